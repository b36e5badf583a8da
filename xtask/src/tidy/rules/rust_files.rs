//! Rules about single Rust files.

use super::super::Violation;
use super::super::exceptions::{Exception, LONG_FILES, STARTS_PROGRAMS};
use super::super::source::{Source, lines_with_word};
use super::super::tree::Tree;

/// A file longer than this has more than one subject.
const LONGEST_FILE: usize = 800;
/// How an ignored test says that it is the inner half of another.
const STARTED: &str = "ignore = \"started by another test";
/// Code that stands for code not yet written, or left over from looking for a bug.
const UNFINISHED_CODE: &[&str] = &["todo!", "unimplemented!", "dbg!"];
/// The same, in comments.
const UNFINISHED_COMMENTS: &[&str] = &["FIXME", "XXX"];

/// Each file below a `src` directory opens with `//!`: what it owns and what it does not do.
pub(super) fn open_with_module_doc(tree: &Tree) -> Vec<Violation> {
    let opens = |source: &Source| source.text().starts_with("//! ");
    let files = tree.with_extension("rs").filter(|(path, source)| path.contains("/src/") && !opens(source));
    files.map(|(path, _)| Violation::in_file(path, "does not open with `//! ` and what the file owns")).collect()
}

/// No file is longer than the limit, but for the listed ones.
pub(super) fn are_short(tree: &Tree) -> Vec<Violation> {
    let long = |source: &Source| source.text().lines().count() > LONGEST_FILE;
    let found = tree.with_extension("rs").filter(|(_, source)| long(source)).map(|(path, source)| {
        let lines = source.text().lines().count();
        Violation::in_file(path, format!("has {lines} lines, more than {LONGEST_FILE}: give each subject a file"))
    });
    except(found.collect(), LONG_FILES, tree)
}

/// Nothing is left to do later without anybody noticing.
pub(super) fn are_finished(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, source) in tree.with_extension("rs") {
        let code = UNFINISHED_CODE.iter().map(|word| (source.code(), word));
        let comments = UNFINISHED_COMMENTS.iter().map(|word| (source.comments(), word));
        for (text, word) in code.chain(comments) {
            found.extend(lines_with_word(text, word).map(|line| Violation::at_line(path, line, format!("`{word}` is unfinished work"))));
        }
    }
    found
}

/// A test that is ignored proves nothing, unless another test of the same file starts it in a process of its own.
pub(super) fn ignore_no_test(tree: &Tree) -> Vec<Violation> {
    let ignores = |attribute: &str| attribute.starts_with("ignore") || attribute.contains(",ignore");
    let message = format!("an ignored test proves nothing: make it pass, delete it, or start it from another test and write `{STARTED}`");
    let mut found = attributes(tree, ignores, &message);
    found.retain(|violation| {
        let text = tree.text(&violation.path).unwrap_or_default();
        let line = violation.line.and_then(|line| text.lines().nth(line - 1)).unwrap_or_default();
        !(line.contains(STARTED) && text.contains("\"--ignored\""))
    });
    found
}

/// Code that nothing uses is deleted, not allowed.
pub(super) fn allow_no_dead_code(tree: &Tree) -> Vec<Violation> {
    attributes(tree, |attribute| attribute.contains("allow(") && attribute.contains("dead_code"), "delete the code that nothing uses")
}

/// Host programs are started only where that was thought about.
pub(super) fn start_only_listed_programs(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, source) in tree.with_extension("rs").filter(|(path, _)| !is_test_or_tool(path)) {
        let code = source.code_outside_tests();
        let lines = lines_with_word(&code, "Command::new");
        found.extend(lines.map(|line| {
            Violation::at_line(
                path,
                line,
                "starts a host program; if that is right, list the file in xtask/src/tidy/exceptions.rs with the reason",
            )
        }));
    }
    except(found, STARTS_PROGRAMS, tree)
}

fn is_test_or_tool(path: &str) -> bool {
    path.starts_with("xtask/")
        || path.starts_with("benches/")
        || path.starts_with("conformance/")
        || path.contains("/tests/")
        || path.contains("/benches/")
        || path.ends_with("/tests.rs")
        || path.ends_with("/testing.rs")
}

/// Leaves out what is listed, and adds what is listed for nothing.
fn except(found: Vec<Violation>, listed: &[Exception], tree: &Tree) -> Vec<Violation> {
    let is_used = |exception: &Exception| found.iter().any(|violation| violation.path == exception.path);
    let exists = |exception: &Exception| tree.text(exception.path).is_some();
    let stale = listed.iter().filter(|exception| exists(exception) && !is_used(exception));
    let stale: Vec<Violation> =
        stale.map(|exception| Violation::in_file(exception.path, format!("is an exception for nothing ({})", exception.reason))).collect();
    let kept = found.into_iter().filter(|violation| !listed.iter().any(|exception| exception.path == violation.path));
    kept.chain(stale).collect()
}

/// Attributes (without their white space) that match; attributes may stretch over lines.
fn attributes(tree: &Tree, matches: impl Fn(&str) -> bool, message: &str) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, source) in tree.with_extension("rs") {
        let code = source.code();
        for (start, _) in code.match_indices('#') {
            let rest = code.get(start + 1..).unwrap_or_default();
            let Some(body) = rest.strip_prefix("![").or_else(|| rest.strip_prefix('[')) else { continue };
            let body: String = body.split_once(']').map_or(body, |(inside, _)| inside).split_whitespace().collect();
            if matches(&body) {
                let line = code.get(..start).unwrap_or_default().matches('\n').count() + 1;
                found.push(Violation::at_line(path, line, message));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::tests::places;
    use super::*;

    const NONE: [&str; 0] = [];

    #[test]
    fn a_file_without_module_doc_is_found() {
        let files = [
            ("crates/a/src/lib.rs", "//! Fine.\n"),
            ("crates/a/src/b.rs", "// no\n"),
            ("crates/a/src/c.rs", ""),
            ("crates/a/tests/t.rs", ""),
        ];
        assert_eq!(places(open_with_module_doc, &files), ["crates/a/src/b.rs", "crates/a/src/c.rs"]);
    }

    #[test]
    fn a_long_file_is_found() {
        let just = "x\n".repeat(LONGEST_FILE);
        let over = "x\n".repeat(LONGEST_FILE + 1);
        assert_eq!(places(are_short, &[("a.rs", &just), ("b.rs", &over)]), ["b.rs"]);
    }

    #[test]
    fn unfinished_work_is_found_in_code_and_comments_but_not_in_strings() {
        let text = "fn f() {\n todo!()\n}\n// FIXME later\nlet s = \"todo! FIXME\";\nfn todo() {}\nunimplemented!();\ndbg!(1);\n";
        assert_eq!(places(are_finished, &[("a.rs", text)]), ["a.rs:2", "a.rs:7", "a.rs:8", "a.rs:4"]);
    }

    #[test]
    fn ignored_tests_are_found() {
        let text = "#[test]\n#[ignore = \"slow\"]\nfn a() {}\n#[cfg_attr(miri, ignore)]\nfn b() {}\n#[ignore]\nfn ignore() {}\n";
        assert_eq!(places(ignore_no_test, &[("a.rs", text)]), ["a.rs:2", "a.rs:4", "a.rs:6"]);
    }

    #[test]
    fn an_ignored_test_that_another_starts_is_let_pass() {
        let inner = "#[test]\n#[ignore = \"started by another test, as nobody\"]\nfn inner() {}\n";
        let outer = format!("{inner}fn outer() {{ start(&[\"--ignored\"]); }}\n");
        assert_eq!(places(ignore_no_test, &[("a.rs", &outer), ("b.rs", inner)]), ["b.rs:2"]);
    }

    #[test]
    fn allowed_dead_code_is_found_however_it_is_written() {
        let text = "#![allow(\n    unused,\n    dead_code,\n)]\n#[allow(dead_code)]\nfn a() {}\n#[allow(unused)]\nfn b() {} // #[allow(dead_code)]\n";
        assert_eq!(places(allow_no_dead_code, &[("a.rs", text)]), ["a.rs:1", "a.rs:5"]);
    }

    #[test]
    fn programs_started_outside_tests_are_found() {
        let text = "fn f() { std::process::Command::new(\"x\"); }\n#[cfg(test)]\nmod tests { fn g() { Command::new(\"y\"); } }\n";
        let files =
            [("crates/a/src/lib.rs", text), ("crates/a/tests/all.rs", text), ("xtask/src/main.rs", text), ("benches/src/main.rs", text)];
        assert_eq!(places(start_only_listed_programs, &files), ["crates/a/src/lib.rs:1"]);
    }

    #[test]
    fn an_exception_for_nothing_is_found() {
        let listed = STARTS_PROGRAMS.first().unwrap().path;
        assert_eq!(places(start_only_listed_programs, &[(listed, "fn main() { Command::new(\"cargo\"); }")]), NONE);
        assert_eq!(places(start_only_listed_programs, &[(listed, "fn main() {}")]), [listed]);
    }
}
