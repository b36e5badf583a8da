//! Commands that must end: each has a deadline, and one that misses it is killed and told about.

use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::failure::Failure;
use crate::processes;

/// Nothing here takes that long, even on a machine that is busy with much else; what does hangs.
pub const DEADLINE: Duration = Duration::from_mins(2);
/// How often an end is looked for.
const PAUSE: Duration = Duration::from_micros(500);
/// More output than this is not looked at.
const MOST_OUTPUT: usize = 1 << 18;

/// A command under way. Its output goes to memory files: a pipe would stay open with whatever outlives the command.
#[derive(Debug)]
pub struct Started {
    child: Child,
    stdout: File,
    stderr: File,
    since: Instant,
}

/// What came of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// How it ended.
    pub end: End,
    /// What it said.
    pub stdout: String,
    /// What it complained about.
    pub stderr: String,
    /// How long it took.
    pub time: Duration,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// By itself.
    Code(i32),
    /// By a signal.
    Signal(i32),
    /// Not before the deadline; what its processes were doing.
    Hung(String),
}

impl Started {
    /// Starts a command.
    pub fn new(command: &mut Command) -> Result<Self, Failure> {
        let file = |what| rustix::fs::memfd_create(what, rustix::fs::MemfdFlags::CLOEXEC).map(File::from);
        let failed = |error: std::io::Error| Failure::Start { program: "the soak's own files".into(), error };
        let (stdout, stderr) = (file("stdout").map_err(|e| failed(e.into()))?, file("stderr").map_err(|e| failed(e.into()))?);
        let copy = |file: &File| file.try_clone().map(Stdio::from).map_err(failed);
        let since = Instant::now();
        let child = command.stdin(Stdio::null()).stdout(copy(&stdout)?).stderr(copy(&stderr)?).spawn();
        let child = child.map_err(|error| Failure::Start { program: command.get_program().to_string_lossy().into_owned(), error })?;
        Ok(Self { child, stdout, stderr, since })
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Since when it runs.
    pub fn since(&self) -> Instant {
        self.since
    }

    /// Whether it has ended already.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits until it has said something, or has ended.
    pub fn wait_for(&mut self, said: impl Fn(&str) -> bool) {
        while !said(&self.said()) && !self.has_ended() && self.since.elapsed() < DEADLINE {
            std::thread::sleep(PAUSE);
        }
    }

    /// What it said so far.
    pub fn said(&self) -> String {
        contents(&self.stdout)
    }

    /// Waits for its end.
    pub fn finish(self) -> Outcome {
        self.finish_within(DEADLINE)
    }

    /// Waits for its end, for as long as whoever has much else under way must. Counted from now: what served for minutes may still end in time.
    pub fn finish_within(mut self, deadline: Duration) -> Outcome {
        let begin = Instant::now();
        let end = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => {
                    use std::os::unix::process::ExitStatusExt;
                    break status.code().map_or_else(|| End::Signal(status.signal().unwrap_or(0)), End::Code);
                }
                Ok(None) if begin.elapsed() > deadline => break self.give_up(),
                Ok(None) => self.sleep_until_end(deadline.saturating_sub(begin.elapsed())),
                Err(error) => break End::Hung(format!("waiting for it: {error}")),
            }
        };
        let time = self.since.elapsed();
        Outcome { end, stdout: contents(&self.stdout), stderr: contents(&self.stderr), time }
    }

    /// Sleeps until it ends, or for this long. Two hundred who looked every now and then would have most of the processors themselves.
    fn sleep_until_end(&self, longest: Duration) {
        let of = Pid::from_child(&self.child);
        let slept = pidfd_open(of, PidfdFlags::empty()).and_then(|process| {
            let longest = Timespec::try_from(longest + PAUSE).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
            poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&longest))
        });
        if slept.is_err() {
            std::thread::sleep(PAUSE);
        }
    }

    fn give_up(&mut self) -> End {
        let all = processes::all();
        let told: Vec<String> = all.iter().map(|p| format!("{} {}: {}", p.pid, p.command, processes::story(p.pid))).collect();
        // It may end this very moment.
        let _ = self.child.kill();
        let _ = self.child.wait();
        End::Hung(told.join("; "))
    }
}

/// Runs a command to its end.
pub fn run(command: &mut Command) -> Result<Outcome, Failure> {
    Ok(Started::new(command)?.finish())
}

impl Outcome {
    /// The exit code, where there is one.
    pub fn code(&self) -> Option<i32> {
        match self.end {
            End::Code(code) => Some(code),
            End::Signal(_) | End::Hung(_) => None,
        }
    }

    /// A short name for tables.
    pub fn name(&self) -> String {
        match &self.end {
            End::Code(code) => format!("exit {code}"),
            End::Signal(signal) => format!("signal {signal}"),
            End::Hung(_) => "hung".into(),
        }
    }
}

/// Reads without moving the position, which the writers share.
fn contents(file: &File) -> String {
    use std::os::unix::fs::FileExt;
    let mut bytes = vec![0; MOST_OUTPUT];
    let mut length = 0;
    while let Some(rest) = bytes.get_mut(length..).filter(|rest| !rest.is_empty()) {
        // What cannot be read was not said.
        match file.read_at(rest, length as u64) {
            Ok(read) if read > 0 => length += read,
            Ok(_) | Err(_) => break,
        }
    }
    bytes.truncate(length);
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::disallowed_methods, reason = "what is waited for")]
    fn started(script: &str) -> Started {
        Started::new(Command::new("sh").args(["-c", script])).expect("it starts")
    }

    #[test]
    fn a_deadline_counts_from_when_the_end_is_waited_for() {
        let outcome = started("exit 3").finish_within(Duration::from_mins(1));
        assert_eq!(outcome.end, End::Code(3));
        let old = started("sleep 0.5; exit 5");
        std::thread::sleep(Duration::from_millis(450));
        assert_eq!(old.finish_within(Duration::from_millis(400)).end, End::Code(5), "older than its deadline, and in time");
        let hung = started("exec sleep 600").finish_within(Duration::from_millis(50));
        assert!(matches!(hung.end, End::Hung(_)) && hung.time < Duration::from_secs(30));
    }
}
