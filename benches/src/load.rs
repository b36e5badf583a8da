//! The two conditions: an idle machine, and one with a busy loop on every core.
//!
//! The loops are processes of their own, so that threads of the harness change nothing about how it forks. Each ends when the pipe from
//! the harness closes, however the harness ends.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde::Serialize;

use crate::failure::Failure;

/// The hidden first argument that makes this program a busy loop.
pub(crate) const SPIN: &str = "--spin";
/// How long the loops run before anything is measured, so that the scheduler has spread them.
const SETTLE: Duration = Duration::from_millis(300);

/// What else the machine does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Condition {
    /// Nothing of ours.
    Idle,
    /// A busy loop on every core.
    Busy,
}

impl std::fmt::Display for Condition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Idle => "idle",
            Self::Busy => "every core busy",
        })
    }
}

/// The busy loops; dropping ends them.
pub(crate) struct Load {
    loops: Vec<Child>,
}

impl Load {
    /// Starts what the condition asks for.
    pub(crate) fn start(condition: Condition) -> Result<Self, Failure> {
        let mut load = Self { loops: Vec::new() };
        if condition == Condition::Busy {
            let own = std::env::current_exe().map_err(Failure::io("find", std::path::Path::new("/proc/self/exe")))?;
            for _ in 0..crate::machine::cores() {
                let child = Command::new(&own).arg(SPIN).stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
                load.loops.push(child.map_err(Failure::io("start", &own))?);
            }
            std::thread::sleep(SETTLE);
        }
        Ok(load)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for child in &mut self.loops {
            // It may be gone already; then there is nothing to end.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Turns for as long as standard input is open.
pub(crate) fn spin() {
    let open = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    let flag = std::sync::Arc::clone(&open);
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        flag.store(false, std::sync::atomic::Ordering::Relaxed);
    });
    let mut turns = 0u64;
    while open.load(std::sync::atomic::Ordering::Relaxed) {
        for _ in 0..10_000 {
            turns = std::hint::black_box(turns.wrapping_mul(31).wrapping_add(7));
        }
    }
}
