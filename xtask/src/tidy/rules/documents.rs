//! Rules about Markdown.

use super::super::Violation;
use super::super::tree::Tree;

const CHANGELOG: &str = "CHANGELOG.md";

/// A link to a file of the repository leads to one that is there.
pub(super) fn links_lead_somewhere(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, source) in tree.with_extension("md") {
        let mut in_fence = false;
        for (index, line) in source.text().lines().enumerate() {
            if line.trim_start().starts_with("```") {
                in_fence = !in_fence;
            }
            if in_fence {
                continue;
            }
            for link in links(line).filter(|link| !is_elsewhere(link)) {
                let file = link.split(['#', '?']).next().unwrap_or_default();
                if !tree.leads_somewhere(path, file) {
                    found.push(Violation::at_line(path, index + 1, format!("`{link}` leads nowhere")));
                }
            }
        }
    }
    found
}

/// The changelog has a place for what comes next.
pub(super) fn changelog_has_unreleased(tree: &Tree) -> Vec<Violation> {
    match tree.text(CHANGELOG) {
        Some(text) if text.lines().any(|line| line.trim() == "## [Unreleased]") => Vec::new(),
        Some(_) => vec![Violation::in_file(CHANGELOG, "has no `## [Unreleased]`")],
        None => vec![Violation::in_file(CHANGELOG, "is missing")],
    }
}

fn is_elsewhere(link: &str) -> bool {
    link.starts_with('#') || link.contains("://") || link.starts_with("mailto:")
}

/// Targets of `[text](target)`, `![text](target)` and `src="target"` on one line, outside of `code`.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let outside_code = line.split('`').step_by(2);
    // A target that itself stands beside code, as in [`name`](file), begins with the closing bracket.
    outside_code.flat_map(|text| {
        let inline = text.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
        let images = text.split("src=\"").skip(1).filter_map(|rest| rest.split('"').next());
        inline.chain(images)
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::places;
    use super::*;

    const NONE: [&str; 0] = [];

    #[test]
    fn a_link_that_leads_nowhere_is_found() {
        let text = "[a](docs/a.md) [b](docs/b.md)\n[`c`](c.md)\n<img src=\"docs/d.svg\">\n[web](https://example.com) [here](#there) [deep](docs/a.md#part)\n`[not](a-link)`\n```\n[not](either)\n```\n";
        assert_eq!(places(links_lead_somewhere, &[("README.md", text), ("docs/a.md", "")]), ["README.md:1", "README.md:2", "README.md:3"]);
    }

    #[test]
    fn a_changelog_without_unreleased_is_found() {
        assert_eq!(places(changelog_has_unreleased, &[("CHANGELOG.md", "# Changelog\n\n## [Unreleased]\n")]), NONE);
        assert_eq!(places(changelog_has_unreleased, &[("CHANGELOG.md", "# Changelog\n\n## 0.1.0\n")]), ["CHANGELOG.md"]);
        assert_eq!(places(changelog_has_unreleased, &[]), ["CHANGELOG.md"]);
    }
}
