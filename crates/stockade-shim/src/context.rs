//! What every request needs while it is worked on: the control stream, the poller and the running programs.
//!
//! Owns the epoll descriptor and the meaning of its tokens. It holds no requests; `server` does.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::epoll;
use rustix::io::Errno;
use stockade_wire::message::{Reply, Stream};

use crate::channel::Channel;
use crate::failure::Failure;
use crate::signals::Role;
use crate::spawn::Spawner;

/// Whether a request wants to be worked on again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// There is more to do right now; others go first.
    Again,
    /// Nothing to do until an event, data or credit arrives.
    Idle,
    /// Its last reply is sent.
    Finished,
}

/// Which descriptor of a request an event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slot {
    /// A pipe that is written.
    Input,
    /// A pipe that is read.
    Output,
    /// The pipe of stderr.
    Errors,
    /// A descriptor for both ways: a terminal, a connection, a listener, inotify.
    Both,
}

/// What an event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    /// The control stream.
    Control,
    /// The signal descriptor.
    Signals,
    /// A descriptor of the way out, by its number there.
    WayOut(u32),
    /// A request's descriptor.
    Request(u32, Slot),
}

/// What is ready on a descriptor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ready {
    /// Bytes (or an end) can be read.
    pub(crate) readable: bool,
    /// Bytes can be written.
    pub(crate) writable: bool,
    /// The other side is gone, so only an end of file can follow what is there.
    pub(crate) hung_up: bool,
}

impl Ready {
    /// Reads the kernel's flags.
    pub(crate) fn from_flags(flags: epoll::EventFlags) -> Self {
        use epoll::EventFlags as Flags;
        let hung_up = flags.intersects(Flags::HUP | Flags::ERR | Flags::RDHUP);
        Self { readable: hung_up || flags.contains(Flags::IN), writable: flags.intersects(Flags::OUT | Flags::ERR | Flags::HUP), hung_up }
    }
}

/// The epoll instance.
pub(crate) struct Poller(OwnedFd);

impl Poller {
    /// Makes one.
    pub(crate) fn new() -> Result<Self, Errno> {
        epoll::create(epoll::CreateFlags::CLOEXEC).map(Self)
    }

    /// Watches a request's descriptor for edges; closing the descriptor ends it.
    pub(crate) fn watch(&self, fd: impl AsFd, id: u32, slot: Slot) -> Result<(), Errno> {
        use epoll::EventFlags as Flags;
        let flags = match slot {
            Slot::Input => Flags::OUT | Flags::ET,
            Slot::Output | Slot::Errors => Flags::IN | Flags::ET,
            Slot::Both => Flags::IN | Flags::OUT | Flags::RDHUP | Flags::ET,
        };
        epoll::add(&self.0, fd, token(Subject::Request(id, slot)), flags)
    }

    /// Watches the signal descriptor for as long as it lives.
    pub(crate) fn watch_signals(&self, fd: impl AsFd) -> Result<(), Errno> {
        epoll::add(&self.0, fd, token(Subject::Signals), epoll::EventFlags::IN)
    }

    /// Watches a descriptor of the way out; closing it ends that.
    pub(crate) fn watch_way_out(&self, fd: impl AsFd, number: u32, flags: epoll::EventFlags) -> Result<(), Errno> {
        epoll::add(&self.0, fd, token(Subject::WayOut(number)), flags)
    }

    /// Watches the control stream for reading.
    pub(crate) fn watch_control(&self, fd: impl AsFd) -> Result<(), Errno> {
        epoll::add(&self.0, fd, token(Subject::Control), epoll::EventFlags::IN)
    }

    /// Watches the control stream for reading, and also for writing while something waits to be written.
    pub(crate) fn rewatch_control(&self, fd: impl AsFd, interest: epoll::EventFlags) -> Result<(), Errno> {
        epoll::modify(&self.0, fd, token(Subject::Control), interest)
    }

    /// The epoll descriptor itself, for waiting.
    pub(crate) fn descriptor(&self) -> &OwnedFd {
        &self.0
    }
}

fn token(subject: Subject) -> epoll::EventData {
    epoll::EventData::new_u64(match subject {
        Subject::Control => 0xff,
        Subject::Signals => 0xfe,
        Subject::WayOut(number) => (u64::from(number) << 8) | 0xfd,
        Subject::Request(id, slot) => {
            let slot = match slot {
                Slot::Input => 0,
                Slot::Output => 1,
                Slot::Errors => 2,
                Slot::Both => 3,
            };
            (u64::from(id) << 8) | slot
        }
    })
}

/// What an event's token names.
pub(crate) fn subject(data: epoll::EventData) -> Subject {
    let value = data.u64();
    let id = (value >> 8) as u32;
    match value & 0xff {
        0 => Subject::Request(id, Slot::Input),
        1 => Subject::Request(id, Slot::Output),
        2 => Subject::Request(id, Slot::Errors),
        3 => Subject::Request(id, Slot::Both),
        0xfe => Subject::Signals,
        0xfd => Subject::WayOut(id),
        _ => Subject::Control,
    }
}

/// Handed to every step of every request.
pub(crate) struct Context {
    /// The control stream.
    pub(crate) channel: Channel,
    /// Where descriptors are watched.
    pub(crate) poller: Poller,
    /// Starts programs.
    pub(crate) spawner: Spawner,
    /// Running programs: process number (also that of the process group) and request.
    pub(crate) children: BTreeMap<i32, u32>,
    /// First process or not.
    pub(crate) role: Role,
}

impl Context {
    /// Queues a reply.
    pub(crate) fn reply(&mut self, id: u32, reply: &Reply) {
        self.channel.send(id, reply);
    }

    /// Queues a reply that can wait a moment for the next one.
    pub(crate) fn reply_unhurried(&mut self, id: u32, reply: &Reply) {
        self.channel.send_unhurried(id, reply);
    }

    /// Queues the reply that a request failed.
    pub(crate) fn fail(&mut self, id: u32, failure: Failure) -> Progress {
        self.channel.send(id, &Reply::Failed { kind: failure.kind, message: failure.message });
        Progress::Finished
    }

    /// Queues the reply that a request is done.
    pub(crate) fn done(&mut self, id: u32) -> Progress {
        self.channel.send(id, &Reply::Done {});
        Progress::Finished
    }

    /// Grants the host more on a request's input.
    pub(crate) fn grant(&mut self, id: u32, bytes: Option<u32>) {
        if let Some(bytes) = bytes {
            self.channel.send(id, &Reply::Credit { stream: Stream::Input {}, bytes });
        }
    }

    /// Signals every program: all processes where we are the first one, else the groups we started and what left them.
    pub(crate) fn signal_all(&self, signal: i32) {
        match self.role {
            Role::Init => crate::signals::kill_everyone(signal),
            Role::Process => {
                for group in self.children.keys() {
                    crate::signals::kill_group(*group, signal);
                }
                crate::descendants::signal(signal);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_name_what_they_were_made_for() {
        let mut subjects = vec![Subject::Control, Subject::Signals, Subject::WayOut(0), Subject::WayOut(u32::MAX)];
        for id in [0, 1, 0x7fff_ffff, 0x8000_0000, u32::MAX] {
            for slot in [Slot::Input, Slot::Output, Slot::Errors, Slot::Both] {
                subjects.push(Subject::Request(id, slot));
            }
        }
        for expected in subjects {
            assert_eq!(subject(token(expected)), expected);
        }
    }
}
