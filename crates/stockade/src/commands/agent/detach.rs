//! `agent run --detach`: this very command once more, in a session of its own, with a terminal or a file in place of ours.
//!
//! ```text
//!  agent run --detach ── starts ──▶ agent run --detached=… ── one line: ready, or why not ──▶ prints the id and ends
//! ```

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use serde_json::{Value, json};
use stockade_core::id::SandboxId;
use stockade_sandbox::drive::{Sink, Streams};

use super::super::run::CAPTURE;
use crate::Context;
use crate::agent::attendant::Attendant;
use crate::agent::transcript::Transcript;
use crate::cli::Detached;
use crate::failure::Failure;

/// The answer is one short line.
const MAX_ANSWER: u64 = 1 << 20;
/// Standard output of an agent without a terminal, in its directory.
const OUTPUT: &str = "output.log";

/// Starts the agent's owner in the background and waits until its sandbox stands.
#[expect(clippy::disallowed_methods, reason = "starts this very program as the agent's owner")]
pub(super) fn start(context: &Context) -> Result<ExitCode, Failure> {
    let failed = |error: std::io::Error| Failure::new("starting the agent's owner", error.to_string());
    let stdin = std::io::stdin();
    let has_terminal = rustix::termios::isatty(stdin.as_fd());
    let mut command = Command::new("/proc/self/exe");
    command.args(words(std::env::args_os().skip(1), if has_terminal { "--detached=terminal" } else { "--detached=plain" }));
    // Without a terminal a prompt may come that way.
    command.stdin(if has_terminal { Stdio::null() } else { Stdio::inherit() });
    let mut owner = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().map_err(failed)?;
    let mut line = String::new();
    if let Some(output) = owner.stdout.take() {
        BufReader::new(output.take(MAX_ANSWER)).read_line(&mut line).map_err(failed)?;
    }
    let answer: Value = serde_json::from_str(line.trim()).unwrap_or(Value::Null);
    if let Some(id) = answer.get("ready").and_then(Value::as_str) {
        if context.printer.is_json() {
            context.printer.json(&json!({ "id": id }))?;
        } else {
            context.printer.line(id)?;
            context.printer.note("runs in the background: stockade agent attach · logs · stop");
        }
        return Ok(ExitCode::SUCCESS);
    }
    let _ = owner.wait();
    let said = |key: &str| answer.pointer(&format!("/error/{key}")).and_then(Value::as_str).map(str::to_owned);
    let failure = Failure::new(
        said("step").unwrap_or_else(|| "starting the agent's owner".into()),
        said("message").unwrap_or_else(|| "it ended without a word".into()),
    );
    Err(match said("hint") {
        Some(hint) => failure.with_hint(hint),
        None => failure,
    })
}

/// Our own words with another flag in the place of `--detach`; JSON, so that a failure can be told.
fn words(own: impl Iterator<Item = OsString>, flag: &str) -> Vec<OsString> {
    let own: Vec<OsString> = own.collect();
    let end = own.iter().position(|word| word == "--").unwrap_or(own.len());
    let (ours, agents) = own.split_at(end);
    let mut words: Vec<OsString> =
        ours.iter().filter(|word| *word != "--json").map(|word| if word == "--detach" { flag.into() } else { word.clone() }).collect();
    words.push("--json".into());
    words.extend_from_slice(agents);
    words
}

/// Tells whoever started this that the sandbox stands, and lets go of their streams.
pub(super) fn ready(id: &SandboxId, context: &Context) {
    let _ = context.printer.json(&json!({ "ready": id }));
    // Errors mean that the streams are gone already.
    if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(&null);
        let _ = rustix::stdio::dup2_stderr(&null);
    }
}

/// What stands in for our streams.
pub(super) enum Background {
    /// A terminal, and where what it shows is kept.
    Terminal(Box<Attendant>, std::path::PathBuf),
    /// A file.
    Plain(File),
}

impl Background {
    /// Makes it, and leaves the session of whoever started this.
    pub(super) fn new(how: Detached, runtime: &Path, id: &SandboxId, directory: &Path) -> Result<Self, Failure> {
        let _ = rustix::process::setsid();
        Ok(match how {
            Detached::Terminal => Self::Terminal(Box::new(Attendant::new(runtime, id, directory)?), directory.to_owned()),
            Detached::Plain => {
                let file = File::options().append(true).create(true).open(directory.join(OUTPUT));
                Self::Plain(file.map_err(|error| Failure::new("output", error.to_string()))?)
            }
        })
    }

    /// Runs with these streams.
    pub(super) fn around<T>(&self, act: impl FnOnce(Streams<'_>) -> Result<T, Failure>) -> Result<T, Failure> {
        match self {
            Self::Terminal(attendant, directory) => {
                let transcript = Transcript::begin(directory).map_err(|error| Failure::new("output", error.to_string()))?;
                attendant.around(transcript, || act(Streams::Terminal { terminal: attendant.slave.as_fd() }))
            }
            Self::Plain(file) => {
                let stdin = std::io::stdin();
                let sink = || Sink::Limited(file.as_fd(), CAPTURE);
                act(Streams::Plain { stdin: Some(stdin.as_fd()), stdout: sink(), stderr: sink() })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agents_own_words_stay() {
        let own = ["agent", "run", "--json", "--detach", "--name", "n", "--", "claude", "--detach", "--json"].map(OsString::from);
        let expected = ["agent", "run", "--detached=plain", "--name", "n", "--json", "--", "claude", "--detach", "--json"];
        assert_eq!(words(own.into_iter(), "--detached=plain"), expected);
    }
}
