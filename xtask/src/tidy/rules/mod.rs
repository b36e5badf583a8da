//! The rules, one table; each is a function of the tree.

mod crates;
mod documents;
mod rust_files;
mod unsafe_code;

use super::Rule;

pub(super) const ALL: &[Rule] = &[
    Rule { name: "module-doc", check: rust_files::open_with_module_doc },
    Rule { name: "file-length", check: rust_files::are_short },
    Rule { name: "unfinished", check: rust_files::are_finished },
    Rule { name: "ignored-test", check: rust_files::ignore_no_test },
    Rule { name: "dead-code", check: rust_files::allow_no_dead_code },
    Rule { name: "starts-programs", check: rust_files::start_only_listed_programs },
    Rule { name: "unsafe-place", check: unsafe_code::is_in_its_crates },
    Rule { name: "safety-comment", check: unsafe_code::says_why_it_is_safe },
    Rule { name: "crate-direction", check: crates::point_down },
    Rule { name: "crate-lints", check: crates::take_the_lints },
    Rule { name: "crate-map", check: crates::are_in_the_map },
    Rule { name: "tool-std-only", check: crates::tool_has_no_dependencies },
    Rule { name: "links", check: documents::links_lead_somewhere },
    Rule { name: "changelog", check: documents::changelog_has_unreleased },
];

#[cfg(test)]
mod tests {
    use super::super::Violation;
    use super::super::tree::Tree;

    /// Runs a rule over a tree made by hand and gives `path:line` of what it found.
    pub(super) fn places(check: fn(&Tree) -> Vec<Violation>, files: &[(&str, &str)]) -> Vec<String> {
        let place = |violation: Violation| match violation.line {
            Some(line) => format!("{}:{line}", violation.path),
            None => violation.path,
        };
        check(&Tree::of(files)).into_iter().map(place).collect()
    }

    #[test]
    fn rules_have_names_of_their_own() {
        let mut names: Vec<&str> = super::ALL.iter().map(|rule| rule.name).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
