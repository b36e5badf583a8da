//! `soak`: builds the program and the fault loops, and runs them. Words after `soak` are the loops' own.

use std::process::Command;

use crate::failure::Failure;
use crate::process;
use crate::workspace::Workspace;

/// Runs the loops on a release build: that is what people run, and its moments are the ones that count.
pub(crate) fn run(workspace: &Workspace, words: &[&str]) -> Result<(), Failure> {
    process::run(workspace.cargo().args(["build", "--locked", "--release", "--package", "stockade", "--package", "stockade-soak"]))?;
    let built = workspace.target_directory().join("release");
    process::run(Command::new(built.join("stockade-soak")).arg("--binary").arg(built.join("stockade")).args(words))
}
