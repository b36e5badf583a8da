//! What came of a call, in the shape of `run --json`: the same for every surface.

use std::collections::BTreeMap;

use base64::Engine as _;
use stockade_core::demand::Demand;
use stockade_core::result::{Decision, RunResult, Truncated};
use stockade_sandbox::drive::Ending;
use stockade_sandbox::once::{self, Done};

use crate::assemble::Assembled;
use crate::egress::outlet::Closed;
use crate::egress::summary;

/// Of something that ran.
pub(crate) fn of_run(done: &Done, traffic: &Closed, receipt_id: &str, assembled: &Assembled) -> RunResult {
    let outcome = &done.outcome;
    let (stdout, stdout_base64) = text_or_base64(&outcome.stdout.bytes);
    let (stderr, stderr_base64) = text_or_base64(&outcome.stderr.bytes);
    RunResult {
        receipt_id: Some(receipt_id.to_owned()),
        sandbox_id: done.id.to_string(),
        backend: assembled.backend.kind().name().to_owned(),
        exit_code: if let Ending::Code(code) = outcome.ending { Some(code) } else { None },
        signal: match outcome.ending {
            Ending::Signal(signal) => Some(signal),
            Ending::Limit(_) => Some(9),
            Ending::Code(_) | Ending::TimedOut | Ending::NotStarted { .. } => None,
        },
        timed_out: outcome.ending == Ending::TimedOut,
        limit: match outcome.ending {
            Ending::Limit(demand) => Some(demand.to_string()),
            Ending::TimedOut => Some(Demand::Time.to_string()),
            Ending::Code(_) | Ending::Signal(_) | Ending::NotStarted { .. } => None,
        },
        stdout,
        stdout_base64,
        stderr,
        stderr_base64,
        truncated: Truncated { stdout: outcome.stdout.truncated, stderr: outcome.stderr.truncated },
        duration_ms: once::millis(outcome.duration),
        changes: done.changes.clone(),
        network: summary::listed(&traffic.rows),
        enforcement: done.enforcement.levels(),
        decision: assembled.told.clone(),
        violations: done.violations.clone(),
    }
}

/// Of something that was denied.
pub(crate) fn of_denial(told: Decision, receipt_id: String, assembled: &Assembled) -> RunResult {
    RunResult {
        receipt_id: Some(receipt_id),
        sandbox_id: String::new(),
        backend: assembled.backend.kind().name().to_owned(),
        exit_code: None,
        signal: None,
        timed_out: false,
        limit: None,
        stdout: Some(String::new()),
        stdout_base64: None,
        stderr: Some(String::new()),
        stderr_base64: None,
        truncated: Truncated::default(),
        duration_ms: 0,
        changes: Vec::new(),
        network: Vec::new(),
        enforcement: BTreeMap::new(),
        decision: told,
        violations: Vec::new(),
    }
}

/// Text where it is text, base64 where it is not.
pub(crate) fn text_or_base64(bytes: &[u8]) -> (Option<String>, Option<String>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (Some(text.to_owned()), None),
        Err(_) => (None, Some(base64::engine::general_purpose::STANDARD.encode(bytes))),
    }
}
