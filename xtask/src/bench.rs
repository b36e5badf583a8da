//! `cargo xtask bench`: builds the release binary and the measuring program, and runs the second on the first.
//!
//! What is measured and how is in `benches/`; nothing here knows.

use std::process::Command;

use crate::failure::Failure;
use crate::process;
use crate::workspace::Workspace;

/// Builds and measures; `words` are what the person typed after `bench`.
pub(crate) fn run(workspace: &Workspace, words: &[&str]) -> Result<(), Failure> {
    // Apart, so that what the measuring program needs from a shared dependency does not change the binary that is measured.
    for package in ["stockade", "stockade-bench"] {
        process::run(workspace.cargo().args(["build", "--release", "--locked", "--package", package]))?;
    }
    let built = workspace.target_directory().join("release");
    let mut command = Command::new(built.join("stockade-bench"));
    command.arg("--stockade").arg(built.join("stockade")).arg("--repository").arg(workspace.root());
    command.arg("--scratch").arg(workspace.target_directory().join("bench")).args(words);
    process::run(&mut command)
}
