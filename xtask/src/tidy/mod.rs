//! `tidy`: the house rules as checks that can fail.
//!
//! The tree is read once into a plain value; a rule is a function from that value to what breaks it. So every rule is
//! tested on a small bad tree made by hand. What rustc and clippy already say well is left to them.

mod exceptions;
mod rules;
mod source;
mod tree;

use crate::failure::Failure;
use crate::terminal;
use crate::workspace::Workspace;
use tree::Tree;

/// Something that breaks a rule.
#[derive(Debug, PartialEq, Eq)]
struct Violation {
    path: String,
    line: Option<usize>,
    message: String,
}

impl Violation {
    fn in_file(path: &str, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line: None, message: message.into() }
    }

    fn at_line(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line: Some(line), message: message.into() }
    }
}

/// A house rule.
struct Rule {
    name: &'static str,
    check: fn(&Tree) -> Vec<Violation>,
}

/// Checks the repository. Returns one line that sums up.
pub(crate) fn run(workspace: &Workspace) -> Result<String, Failure> {
    let tree = Tree::read(workspace.root())?;
    let mut count = 0_usize;
    for rule in rules::ALL {
        for violation in (rule.check)(&tree) {
            count += 1;
            let line = violation.line.map(|line| format!(":{line}")).unwrap_or_default();
            println!("{} {}{line}: {}", terminal::red(rule.name), violation.path, violation.message);
        }
    }
    match count {
        0 => Ok(format!("{} rules hold over {} files", rules::ALL.len(), tree.len())),
        1 => Err(Failure::new("1 house rule is broken")),
        _ => Err(Failure::new(format!("house rules are broken in {count} places"))),
    }
}
