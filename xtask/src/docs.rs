//! `docs`: the reference pages, generated from the code and committed; `--check` fails where they differ.
//!
//! The binary prints its own reference (`stockade docs-reference`, a hidden command), so a flag cannot change without the
//! page changing, and no path of REST without its document. Guides are written by hand and are not touched here.

use std::process::Command;

use crate::failure::Failure;
use crate::process;
use crate::workspace::Workspace;

/// The generated pages, and what else to say to have them printed.
const PAGES: [(&str, &[&str]); 2] = [("docs/reference/cli.md", &[]), ("docs/reference/openapi.json", &["--openapi"])];

/// What to do with the page.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Write it.
    Write,
    /// Compare it and fail on a difference.
    Check,
}

/// Builds the binary and writes or checks the reference. Returns one line that sums up.
pub(crate) fn run(workspace: &Workspace, mode: Mode) -> Result<String, Failure> {
    process::run(workspace.cargo().args(["build", "--quiet", "--locked", "--profile", "ci", "--package", "stockade"]))?;
    let done: Vec<String> = PAGES.iter().map(|(page, words)| one(page, words, workspace, mode)).collect::<Result<_, _>>()?;
    Ok(done.join("; "))
}

fn one(page: &str, words: &[&str], workspace: &Workspace, mode: Mode) -> Result<String, Failure> {
    let generated = process::output(Command::new(workspace.binary()).arg("docs-reference").args(words).env("NO_COLOR", "1"))?;
    if generated.trim().is_empty() {
        return Err(Failure::new("`stockade docs-reference` printed nothing"));
    }
    let path = workspace.root().join(page);
    match mode {
        Mode::Write => {
            let directory = path.parent().unwrap_or(workspace.root());
            std::fs::create_dir_all(directory).map_err(Failure::io("create", directory))?;
            std::fs::write(&path, &generated).map_err(Failure::io("write", &path))?;
            Ok(format!("wrote {page}, {} lines", generated.lines().count()))
        }
        Mode::Check => {
            let committed = std::fs::read_to_string(&path).map_err(Failure::io("read", &path))?;
            match first_difference(&committed, &generated) {
                None => Ok(format!("{page} is as the binary says")),
                Some(difference) => Err(Failure::new(format!("{page} {difference}\nhint: run `cargo xtask docs` and commit the page"))),
            }
        }
    }
}

/// Says where two texts part, or nothing if they are the same.
fn first_difference(committed: &str, generated: &str) -> Option<String> {
    if committed == generated {
        return None;
    }
    let mut old = committed.lines();
    let mut new = generated.lines();
    for number in 1_usize.. {
        match (old.next(), new.next()) {
            (None, None) => return Some("differs in its line endings".to_owned()),
            (old, new) if old == new => {}
            (old, new) => {
                let show = |line: Option<&str>| line.map_or_else(|| "(end)".to_owned(), |line| format!("`{line}`"));
                return Some(format!("differs at line {number}: committed {}, generated {}", show(old), show(new)));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::first_difference;

    #[test]
    fn the_first_differing_line_is_named() {
        assert_eq!(first_difference("a\nb\n", "a\nb\n"), None);
        assert_eq!(first_difference("a\nb\n", "a\nc\n").unwrap(), "differs at line 2: committed `b`, generated `c`");
        assert_eq!(first_difference("a\n", "a\nc\n").unwrap(), "differs at line 2: committed (end), generated `c`");
        assert!(first_difference("a", "a\n").unwrap().contains("line endings"));
    }
}
