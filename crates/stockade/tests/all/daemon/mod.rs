//! The daemon as people meet it: runs are faster, and nothing else about them is different.

#![allow(clippy::indexing_slicing, clippy::panic, reason = "tests")]

mod ends;
pub(crate) mod held;
mod runs;

use std::path::PathBuf;
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::Outcome;
use crate::wall::Ground;
use crate::wall::ground::{eventually, finish};

/// What a run says, if it is asked, where the daemon did it.
const SERVED: &str = "the daemon has a sandbox ready";

/// A daemon, until the value goes.
pub(crate) struct Daemon {
    child: Child,
    socket: PathBuf,
}

impl Daemon {
    /// For workspaces beneath the ground's own.
    pub(crate) fn of(ground: &Ground) -> Self {
        let base = ground.base.to_string_lossy().into_owned();
        Self::with(ground, &["--root", &base])
    }

    fn with(ground: &Ground, flags: &[&str]) -> Self {
        let socket = ground.state.join("stockade/run/daemon.sock");
        let mut command = ground.stockade(["serve"].iter().chain(flags));
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the daemon starts");
        let mut daemon = Self { child, socket };
        let answers = |socket: &PathBuf| std::os::unix::net::UnixStream::connect(socket).is_ok();
        eventually("the daemon is there", || answers(&daemon.socket) || daemon.child.try_wait().expect("waited").is_some());
        assert!(daemon.child.try_wait().expect("waited").is_none(), "{:?}", daemon.last_words());
        daemon
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).expect("told");
    }

    /// Ends it, and waits.
    pub(crate) fn end(mut self) -> Option<i32> {
        self.signal(rustix::process::Signal::TERM);
        self.child.wait().expect("waited").code()
    }

    fn last_words(&mut self) -> String {
        let mut text = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            std::io::Read::read_to_string(&mut stderr, &mut text).expect("read");
        }
        text
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // One that was ended already is gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs with these flags, and checks who did it; the rest of stderr is left as it would be without asking.
fn served(ground: &Ground, flags: &[&str], argv: &[&str]) -> Outcome {
    let outcome = finish(&mut ground.running(&[&["--verbose"], flags].concat(), argv));
    assert!(outcome.stderr.contains(SERVED), "the daemon did not do {flags:?} {argv:?}: {outcome:?}");
    let said = |line: &&str| !line.contains(SERVED) && !line.contains(" µs");
    let stderr = outcome.stderr.lines().filter(said).flat_map(|line| [line, "\n"]).collect();
    Outcome { stderr, ..outcome }
}

/// All receipts, oldest first.
fn receipts(ground: &Ground) -> Vec<Value> {
    let exported = finish(&mut ground.stockade(["receipts", "export"]));
    assert_eq!(exported.code, Some(0), "{exported:?}");
    let lines = exported.stdout.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    lines.map(|line| line["receipt"].clone()).filter(Value::is_object).collect()
}
