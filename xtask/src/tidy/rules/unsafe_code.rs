//! Rules about `unsafe`.

use super::super::Violation;
use super::super::exceptions::UNSAFE_CRATES;
use super::super::source::{Source, lines_with_word};
use super::super::tree::Tree;

/// `unsafe` stands only in the crates that are for it.
pub(super) fn is_in_its_crates(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, source) in tree.with_extension("rs") {
        if UNSAFE_CRATES.iter().any(|exception| path.starts_with(exception.path)) {
            continue;
        }
        let lines = lines_with_word(source.code(), "unsafe");
        found.extend(lines.map(|line| {
            Violation::at_line(path, line, "`unsafe` belongs in stockade-sys or stockade-shim (or in the probe of conformance/)")
        }));
    }
    found
}

/// Every `unsafe` block and implementation is preceded by `// SAFETY:` with the preconditions and why they hold.
pub(super) fn says_why_it_is_safe(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, source) in tree.with_extension("rs") {
        let code: Vec<&str> = source.code().lines().collect();
        let needs_reason = |line: &usize| {
            let text = code.get(line - 1).copied().unwrap_or_default();
            let after = text.split("unsafe").nth(1).unwrap_or_default().trim_start();
            after.is_empty() || after.starts_with('{') || after.starts_with("impl")
        };
        let lines = lines_with_word(source.code(), "unsafe").filter(needs_reason);
        let bare = lines.filter(|line| !has_reason(source, *line));
        found.extend(bare.map(|line| Violation::at_line(path, line, "no `// SAFETY:` comment says why this holds")));
    }
    found
}

/// Whether the comment directly above the statement that holds `line` has a reason.
fn has_reason(source: &Source, line: usize) -> bool {
    let code: Vec<&str> = source.code().lines().collect();
    let comments: Vec<&str> = source.comments().lines().collect();
    let code_at = |line: usize| code.get(line - 1).map_or("", |text| text.trim());
    let comment_at = |line: usize| comments.get(line - 1).map_or("", |text| text.trim());
    if comment_at(line).contains("SAFETY:") {
        return true;
    }
    let mut above = line - 1;
    // Up through the lines of the same statement, then through the comment above it.
    while above > 0 && !code_at(above).is_empty() && !ends_statement(code_at(above)) {
        above -= 1;
    }
    while above > 0 && code_at(above).is_empty() && !comment_at(above).is_empty() {
        if comment_at(above).contains("SAFETY:") {
            return true;
        }
        above -= 1;
    }
    false
}

fn ends_statement(code: &str) -> bool {
    code.ends_with([';', '{', '}'])
}

#[cfg(test)]
mod tests {
    use super::super::tests::places;
    use super::*;

    const NONE: [&str; 0] = [];

    #[test]
    fn unsafe_outside_its_crates_is_found() {
        let text = "//! unsafe in words\n#![forbid(unsafe_code)]\nunsafe { f() };\n";
        let files =
            [("crates/stockade-core/src/lib.rs", text), ("crates/stockade-sys/src/lib.rs", text), ("crates/stockade-shim/src/a.rs", text)];
        assert_eq!(places(is_in_its_crates, &files), ["crates/stockade-core/src/lib.rs:3"]);
        let look_alike = [("crates/stockade-shim-image/src/lib.rs", text)];
        assert_eq!(places(is_in_its_crates, &look_alike), ["crates/stockade-shim-image/src/lib.rs:3"]);
    }

    #[test]
    fn an_unsafe_block_without_reason_is_found() {
        let text = "fn f() {\n    let x = 1;\n    unsafe { g() };\n    // because\n    unsafe { g() };\n}\nunsafe impl Send for A {}\n";
        assert_eq!(places(says_why_it_is_safe, &[("a.rs", text)]), ["a.rs:3", "a.rs:5", "a.rs:7"]);
    }

    #[test]
    fn reasons_are_seen_where_people_write_them() {
        let text = "fn f() {\n    // SAFETY: the pointer is ours,\n    // and nobody else has it.\n    let result =\n        unsafe { g() };\n    // SAFETY: same\n    unsafe {\n        g()\n    }\n    h(unsafe { g() }); // SAFETY: on the line\n}\nunsafe fn declared() {}\nunsafe extern \"C\" {}\n";
        assert_eq!(places(says_why_it_is_safe, &[("a.rs", text)]), NONE);
    }
}
