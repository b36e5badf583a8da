//! The program as people and scripts meet it: run it, look at the code, stdout and stderr.

#![allow(clippy::expect_used, reason = "tests")]

#[cfg(target_os = "linux")]
mod agents;
#[cfg(target_os = "linux")]
mod approvals;
#[cfg(target_os = "linux")]
mod aws;
#[cfg(target_os = "linux")]
mod created;
#[cfg(target_os = "linux")]
mod credentials;
#[cfg(target_os = "linux")]
mod daemon;
#[cfg(target_os = "linux")]
mod egress;
#[cfg(target_os = "linux")]
mod hook;
#[cfg(target_os = "linux")]
mod http;
#[cfg(target_os = "linux")]
mod mcp;
#[cfg(target_os = "linux")]
mod outbound;
mod output;
#[cfg(target_os = "linux")]
mod packs;
#[cfg(target_os = "linux")]
mod policy;
#[cfg(target_os = "linux")]
mod receipts;
#[cfg(target_os = "linux")]
mod rest;
#[cfg(target_os = "linux")]
mod secrets;
mod shipped;
#[cfg(target_os = "linux")]
mod surroundings;
mod usage;
#[cfg(target_os = "linux")]
mod wall;

use std::ffi::OsStr;
use std::process::{Command, Stdio};

/// What a run came to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// The program with an environment that holds nothing of ours.
#[expect(clippy::disallowed_methods, reason = "the program under test")]
pub(crate) fn stockade() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stockade"));
    command.env_clear().env("PATH", "/usr/bin:/bin").stdin(Stdio::null());
    command
}

/// Runs `stockade` with these words.
pub(crate) fn run(words: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Outcome {
    outcome(stockade().args(words))
}

/// Runs a command to its end.
pub(crate) fn outcome(command: &mut Command) -> Outcome {
    let output = command.output().expect("the program starts");
    Outcome {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).expect("stdout is UTF-8"),
        stderr: String::from_utf8(output.stderr).expect("stderr is UTF-8"),
    }
}
