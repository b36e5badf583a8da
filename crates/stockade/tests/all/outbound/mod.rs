//! What servers say to the outside by themselves, as whoever is told sees it.

#![allow(clippy::indexing_slicing, clippy::panic, reason = "tests")]

mod traces;
mod webhook;

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::wall::Ground;
use crate::wall::ground::{eventually, finish, finish_with};

/// What only the receiver and the secret store know.
pub(crate) const KEY: &str = "whsec_c3RvY2thZGUtdGVzdC1rZXktMDEyMzQ1Njc4OQ==";

/// Somebody who is told, until the value goes.
pub(crate) struct Receiver {
    child: Child,
    pub(crate) port: u16,
    written: PathBuf,
}

impl Receiver {
    fn new(ground: &Ground) -> Self {
        Self::at(ground, 0)
    }

    /// At a port, which may be one that was free a moment ago.
    fn at(ground: &Ground, port: u16) -> Self {
        Self::with(ground, port, &[])
    }

    /// With a certificate and its key.
    pub(crate) fn with(ground: &Ground, port: u16, identity: &[PathBuf]) -> Self {
        let directory = ground.base.join("receiver");
        let (program, written) = (directory.join("receiver.py"), directory.join("written"));
        ground.plant(&program, include_str!("receiver.py"), 0o644);
        if !written.exists() {
            ground.plant(&written, "", 0o644);
        }
        let mut command = ground.outside("python3");
        command.arg(&program).arg(&written).arg(KEY).args(identity).env("PORT", port.to_string());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the receiver starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("the port");
        Self { child, port: line.trim().parse().expect("a port"), written }
    }

    /// What it will answer.
    fn will_answer(&self, ground: &Ground, statuses: &[u16]) {
        let text: Vec<String> = statuses.iter().map(ToString::to_string).collect();
        ground.plant(&self.written.with_file_name("answers"), &text.join("\n"), 0o644);
    }

    /// What it got so far.
    pub(crate) fn got(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.written).expect("a file");
        text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
    }

    /// Waits until it got so many.
    pub(crate) fn gets(&self, count: usize) -> Vec<Value> {
        eventually(&format!("{count} requests came"), || self.got().len() >= count);
        self.got()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn set(ground: &Ground, key: &str, value: &str) {
    let done = finish(&mut ground.stockade(["config", "set", key, value]));
    assert_eq!(done.code, Some(0), "{done:?}");
}

pub(crate) fn keep_secret(ground: &Ground, name: &str, value: &str) {
    let done = finish_with(&mut ground.stockade(["secret", "set", name]), value.as_bytes());
    assert_eq!(done.code, Some(0), "{done:?}");
}

/// Whether a process has these bytes anywhere in memory that it could write to.
fn has_in_memory(pid: u32, bytes: &[u8]) -> bool {
    use std::os::unix::fs::FileExt as _;
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("its memory");
    let memory = std::fs::File::open(format!("/proc/{pid}/mem")).expect("its memory");
    maps.lines().filter(|line| line.contains(" rw")).any(|line| {
        let (from, to) = line.split(' ').next().and_then(|range| range.split_once('-')).expect("a range");
        let [from, to] = [from, to].map(|text| u64::from_str_radix(text, 16).expect("an address"));
        let mut piece = vec![0; usize::try_from(to - from).expect("fits")];
        // What cannot be read is not there.
        memory.read_exact_at(&mut piece, from).is_ok() && piece.windows(bytes.len()).any(|window| window == bytes)
    })
}
