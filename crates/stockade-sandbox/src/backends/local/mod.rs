//! No wall at all: the guest runs as an ordinary child process.
//!
//! It exists for machines that have no wall and for people who say so in as many words. Every demand is answered
//! `unavailable`, and the caller prints a banner at every start. Files, network and processes of the host are all within reach.

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Signal, WaitId, WaitIdOptions};
use stockade_core::demand::{Demand, Enforcement, Level};
use stockade_core::spec::BackendKind;
use stockade_sys::guest::{Guest, Identity, Namespaces};
use stockade_wire::message::Request;

use super::{Backend, BackendError, Running, Start};
use crate::connection::{Connection, Passing};
use crate::drive::Watch;
use crate::guest::{self, Surroundings};
use crate::limits::Frozen;
use crate::wayout;

/// The wall that this is not.
pub const KIND: BackendKind = BackendKind::Local;

/// The line printed at every start.
pub const BANNER: &str = "SANDBOX DISABLED: the `local` backend isolates nothing";

/// The absence of a wall.
#[derive(Debug, Clone, Copy)]
pub struct Local {
    /// Whether descriptors are passed to programs.
    pub passing: Passing,
}

impl Backend for Local {
    fn kind(&self) -> BackendKind {
        BackendKind::Local
    }

    fn start(&self, start: &Start<'_>) -> Result<Box<dyn Running>, BackendError> {
        wayout::refuse(
            start.way_out,
            "there is no wall: programs reach every host by themselves",
            "use another backend, or run without allowed hosts",
        )?;
        let ids = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let identity = Identity { outside: ids, inside: ids };
        let surroundings = Surroundings { namespaces: Namespaces::None, identity, join: &[], cgroup: None, programs: start.programs };
        let (guest, greeted) = guest::spawn(&surroundings, Passing::Possible)?;
        let connection = greeted.welcome(&guest)?;
        let connection = if self.passing == Passing::Possible { connection } else { connection.without_passing() };
        Ok(Box::new(Child { connection, process: Process(guest), enforcement: enforcement() }))
    }
}

/// What holds without a wall: the clock and the captured output, nothing else.
pub fn enforcement() -> Enforcement {
    let mut answers = Enforcement::default();
    for demand in Demand::ALL {
        match demand {
            Demand::Time => answers.set(demand, Level::Partial, "the program is killed, what it detached lives on", ""),
            Demand::Output => answers.set(demand, Level::Enforced, "captured output is cut at the limit", ""),
            _ => answers.set(demand, Level::Unavailable, "there is no wall", "use another backend: stockade sandbox use auto"),
        }
    }
    answers
}

struct Child {
    connection: Connection,
    process: Process,
    enforcement: Enforcement,
}

/// The guest's process; its programs are killed with it because the guest ends their groups when its stream closes.
struct Process(Guest);

impl Watch for Process {
    fn tick(&mut self) -> Option<Demand> {
        None
    }

    fn is_needed(&self) -> bool {
        false
    }

    fn kill(&mut self) {
        // SIGTERM lets the guest end its programs; a guest that does not is killed alone.
        let _ = rustix::process::pidfd_send_signal(&self.0.pidfd, Signal::TERM);
        let patience = rustix::event::Timespec { tv_sec: 2, tv_nsec: 0 };
        let ended = rustix::event::poll(&mut [PollFd::new(&self.0.pidfd, PollFlags::IN)], Some(&patience));
        if ended != Ok(1) {
            let _ = rustix::process::pidfd_send_signal(&self.0.pidfd, Signal::KILL);
        }
        let _ = rustix::process::waitid(WaitId::PidFd(self.0.pidfd.as_fd()), WaitIdOptions::EXITED);
    }
}

impl Running for Child {
    fn parts(&mut self) -> (&mut Connection, &mut dyn Watch) {
        (&mut self.connection, &mut self.process)
    }

    fn enforcement(&self) -> &Enforcement {
        &self.enforcement
    }

    fn steps(&self) -> &[(String, u32)] {
        &[]
    }

    fn notes(&self) -> &[String] {
        &[]
    }

    fn freeze(&mut self, frozen: Frozen) -> Result<(), BackendError> {
        let id = self.connection.fresh_id();
        Ok(self.connection.send(id, &Request::Freeze { frozen: frozen == Frozen::Yes }, &[])?)
    }

    fn take_exports(&mut self) -> Vec<(String, OwnedFd)> {
        Vec::new()
    }

    fn process(&self) -> &OwnedFd {
        &self.process.0.pidfd
    }

    fn silence(&mut self) {
        self.process.kill();
    }

    fn destroy(self: Box<Self>) {
        drop(self);
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.process.kill();
    }
}
