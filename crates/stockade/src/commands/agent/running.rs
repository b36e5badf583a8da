//! `agent logs` and `agent stop`: about an agent that runs, or ran, elsewhere.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal};

use crate::Context;
use crate::agent::roll::{self, Entry, Roll};
use crate::agent::transcript::Reader;
use crate::cli::{LogsArgs, OneAgent};
use crate::failure::Failure;

/// How often an agent is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// How long an agent may take to end: two seconds by itself, and then it is killed.
const PATIENCE: Duration = Duration::from_secs(20);

pub(super) fn logs(args: &LogsArgs, context: &Context) -> Result<ExitCode, Failure> {
    let roll = Roll::open(context)?;
    let entry = roll.find(args.agent.as_str())?;
    let Some(mut reader) = Reader::open(&entry.directory) else {
        return Err(Failure::new("logs", format!("agent `{}` did not run detached, so its output was not kept", args.agent)));
    };
    loop {
        // Asked first, so that what it printed before its end is still shown.
        let runs = roll.find(entry.agent.id.as_str()).is_ok_and(|entry| entry.is_running());
        let print = |bytes: &[u8]| context.printer.bytes(bytes).map_err(|failure| std::io::Error::other(failure.message));
        reader.drain(print).map_err(|error| Failure::new("logs", error.to_string()))?;
        if !args.follow || !runs || context.printer.reader_is_gone() {
            return Ok(ExitCode::SUCCESS);
        }
        std::thread::sleep(LOOK);
    }
}

pub(super) fn stop(args: &OneAgent, context: &Context) -> Result<ExitCode, Failure> {
    let roll = Roll::open(context)?;
    let entry = roll.find(args.agent.as_str())?;
    if !entry.is_running() {
        context.printer.note(format!("agent `{}` has ended already", args.agent));
        return Ok(ExitCode::SUCCESS);
    }
    signal_owner(&entry)?;
    let end = Instant::now() + PATIENCE;
    while roll.find(entry.agent.id.as_str()).is_ok_and(|entry| entry.is_running()) {
        if Instant::now() > end {
            return Err(Failure::new("stop", format!("agent `{}` does not end", args.agent)));
        }
        std::thread::sleep(LOOK);
    }
    Ok(ExitCode::SUCCESS)
}

/// Sends the signal to the very process that owns it: the descriptor is checked after it was opened, so a number that was given
/// to another process meanwhile is noticed.
fn signal_owner(entry: &Entry) -> Result<(), Failure> {
    let (number, began) = entry.agent.owner;
    let failed = |error: rustix::io::Errno| Failure::new("stop", error.to_string());
    let Some(pid) = i32::try_from(number).ok().and_then(Pid::from_raw) else { return Ok(()) };
    let owner = match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
        Ok(owner) => owner,
        Err(rustix::io::Errno::SRCH) => return Ok(()),
        Err(errno) => return Err(failed(errno)),
    };
    if roll::started_at(number) != Some(began) {
        return Ok(());
    }
    rustix::process::pidfd_send_signal(owner, Signal::TERM).map_err(failed)
}
