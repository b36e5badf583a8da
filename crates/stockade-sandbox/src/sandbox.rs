//! The handle of a sandbox: start, run programs, move files, stop, end. The same on every wall.
//!
//! One request at a time on one stream; whoever wants several at once starts a supervisor ([`crate::hold`]) and connects to it more
//! than once. Dropping the handle ends the sandbox.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::ops::ControlFlow;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use stockade_core::demand::{Demand, Enforcement, Level};
use stockade_core::path::SafePath;
use stockade_core::spec::{BackendKind, SandboxSpec};
use stockade_sys::signals::Signals;
use stockade_wire::message::{Entry, Exec, FileStat, Stdio};

use crate::backends::{Backend, BackendError, Running, Start, judge, local};
use crate::connection::ConnectionError;
use crate::drive::{self, Outcome, Streams};
use crate::files::{FileError, Files};
use crate::forward;
use crate::leftovers;
use crate::limits::Frozen;
use crate::watch::{self, Event};

/// A running sandbox.
pub struct Sandbox {
    running: Box<dyn Running>,
    environment: Vec<(String, OsString)>,
    cwd: SafePath,
    timeout: Option<Duration>,
}

/// Whoever chose no wall was told so; but a limit or an exec list that somebody asked for is not passed over in silence.
fn judge_without_a_wall(enforcement: &Enforcement, spec: &SandboxSpec) -> Result<(), BackendError> {
    let listed = spec.exec_list.as_ref().map(|_| Demand::Exec);
    let limits = [Demand::Cpu, Demand::Memory, Demand::Pids, Demand::Disk].into_iter().filter(|d| spec.limits.is_asked(*d));
    match limits.chain(listed).find(|d| enforcement.level(*d) != Level::Enforced && !spec.allow_degraded.contains(d)) {
        None => Ok(()),
        Some(demand) => Err(BackendError::Demand {
            demand,
            why: "the `local` backend has no wall".into(),
            fix: format!("use another backend, or --allow-degraded {demand}"),
        }),
    }
}

impl Sandbox {
    /// Starts a sandbox; refuses when a demand is held worse than it must be.
    pub fn start(backend: &dyn Backend, start: &Start<'_>) -> Result<Self, BackendError> {
        Self::around(backend.start(start)?, backend.kind(), start.spec)
    }

    /// A handle of what a wall started, judged once more.
    pub(crate) fn around(running: Box<dyn Running>, kind: BackendKind, spec: &SandboxSpec) -> Result<Self, BackendError> {
        if kind == local::KIND {
            judge_without_a_wall(running.enforcement(), spec)?;
        } else {
            judge(running.enforcement(), spec)?;
        }
        let mut environment = spec.env.clone();
        for (name, value) in running.environment() {
            environment.retain(|(known, _)| known != name);
            environment.push((name.clone(), value.clone()));
        }
        Ok(Self { running, environment, cwd: spec.cwd.clone(), timeout: spec.limits.time.map(|l| l.value) })
    }

    /// Lets go of what was only needed for the start; for a sandbox that stays.
    pub fn settle(&mut self) {
        self.running.settle();
    }

    /// What holds.
    pub fn enforcement(&self) -> &Enforcement {
        self.running.enforcement()
    }

    /// How long each step of the start took, in microseconds.
    pub fn steps(&self) -> &[(String, u32)] {
        self.running.steps()
    }

    /// What a person should know about how it was made.
    pub fn notes(&self) -> &[String] {
        self.running.notes()
    }

    /// Runs a program to its end, with the sandbox's environment, directory and time limit.
    pub fn exec(&mut self, argv: &[OsString], streams: Streams<'_>, signals: Option<&Signals>) -> Result<Outcome, ConnectionError> {
        let exec = Exec {
            argv: argv.iter().map(|a| a.as_bytes().into()).collect(),
            env: self.environment.iter().map(|(n, v)| (n.as_str().into(), v.as_bytes().into())).collect(),
            cwd: self.cwd.as_bytes().into(),
            stdio: Stdio::Piped { stdin: false },
        };
        let timeout = self.timeout;
        let (connection, watch) = self.running.parts();
        drive::drive(connection, exec, streams, timeout, signals, watch)
    }

    /// Writes a file; it appears under its name only when complete.
    pub fn write_file(&mut self, path: &SafePath, mode: u32, from: &mut dyn Read) -> Result<u64, FileError> {
        self.files().write_file(path, mode, from)
    }

    /// Reads a file.
    pub fn read_file(&mut self, path: &SafePath, to: &mut dyn Write) -> Result<u64, FileError> {
        self.files().read_file(path, to)
    }

    /// Lists a directory.
    pub fn list_dir(&mut self, path: &SafePath) -> Result<Vec<Entry>, FileError> {
        self.files().list_dir(path)
    }

    /// Describes a path.
    pub fn stat(&mut self, path: &SafePath) -> Result<FileStat, FileError> {
        self.files().stat(path)
    }

    /// Removes a file or a whole directory.
    pub fn remove(&mut self, path: &SafePath) -> Result<(), FileError> {
        self.files().remove(path)
    }

    /// Renames.
    pub fn rename(&mut self, from: &SafePath, to: &SafePath) -> Result<(), FileError> {
        self.files().rename(from, to)
    }

    /// Makes a directory and its parents.
    pub fn make_dir(&mut self, path: &SafePath, mode: u32) -> Result<(), FileError> {
        self.files().make_dir(path, mode)
    }

    /// Reports changes beneath a path until `on_event` breaks or `patience` passes without one.
    pub fn watch(
        &mut self,
        path: &SafePath,
        patience: Duration,
        on_event: &mut dyn FnMut(Event) -> ControlFlow<()>,
    ) -> Result<(), FileError> {
        watch::watch(self.running.parts().0, path, patience, on_event)
    }

    /// Joins a local stream to a TCP port on the sandbox's loopback, until both directions are closed.
    pub fn forward(&mut self, port: u16, local: BorrowedFd<'_>) -> Result<(), FileError> {
        forward::forward(self.running.parts().0, port, local)
    }

    /// Stops everything inside.
    pub fn pause(&mut self) -> Result<(), BackendError> {
        self.running.freeze(Frozen::Yes)
    }

    /// Lets everything go on.
    pub fn resume(&mut self) -> Result<(), BackendError> {
        self.running.freeze(Frozen::No)
    }

    /// Names of programs that run inside now.
    pub(crate) fn programs(&self) -> Vec<String> {
        leftovers::below(self.running.process())
    }

    /// Whether the guest lives.
    pub fn is_running(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut [PollFd::new(self.running.process(), PollFlags::IN)], Some(&now)) == Ok(0)
    }

    /// Descriptors of directories that outlive the sandbox, by name.
    pub fn take_exports(&mut self) -> Vec<(String, OwnedFd)> {
        self.running.take_exports()
    }

    /// Gives the wall to a supervisor, or to whoever hands it on to another process.
    pub fn into_running(self) -> Box<dyn Running> {
        self.running
    }

    /// Kills everything inside; [`Sandbox::destroy`] clears up.
    pub fn silence(&mut self) {
        self.running.silence();
    }

    /// Ends it and removes what the wall made.
    pub fn destroy(self) {
        self.running.destroy();
    }

    /// Kills the guest, and so everything inside, without waiting for the end of it.
    pub(crate) fn kill(&self) {
        // Fails only where it is gone already.
        let _ = rustix::process::pidfd_send_signal(self.running.process(), rustix::process::Signal::KILL);
    }

    pub(crate) fn files(&mut self) -> Files<'_> {
        Files(self.running.parts().0)
    }
}
