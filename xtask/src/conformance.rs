//! `conformance`: builds the suite's runner and lets it write its page. As root, because two of the walls are started by root.

use crate::failure::Failure;
use crate::process;
use crate::workspace::Workspace;

/// What to do with the page.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Write what is observed.
    Write,
    /// Fail where it differs.
    Check,
}

/// Runs the suite on every wall.
pub(crate) fn run(workspace: &Workspace, mode: Mode) -> Result<(), Failure> {
    let word = match mode {
        Mode::Write => "write",
        Mode::Check => "check",
    };
    process::run(workspace.cargo().args(["run", "--locked", "--quiet", "--profile", "ci", "--package", "stockade-conformance", "--", word]))
}
