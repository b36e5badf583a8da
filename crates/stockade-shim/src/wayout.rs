//! The way out: connections that programs inside make are accepted here and passed to the egress process as they are.
//!
//! Owns the listeners and the channel. Not one byte of a connection is read here, and nothing is judged: whom it may reach is decided at the
//! other end of the channel. Questions about names that come as datagrams are in [`crate::names`].
//!
//! ```text
//! program ─ connect ─▶ door ─ accept ─▶ opening and descriptor ─ channel ─▶ egress
//!                                         ├ the channel is full: one waits, and no door is opened until it is gone
//!                                         └ the channel is closed: so is the connection
//! ```
//!
//! Everything is bounded and nothing waits: what nobody has accepted yet stays in the kernel's own queues.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, accept_with, sendmsg};
use stockade_wire::opening::Opening;

use crate::context::{Poller, Progress, Ready};
use crate::names::Names;

/// Connections that one listener accepts before others get their turn.
const TURN: usize = 32;
/// The way out's own descriptors, by the number that events about them carry: the channel, the stream of names, then sockets for names, then
/// doors.
const CHANNEL: u32 = 0;
pub(crate) const NAMES: u32 = 1;
const SOCKETS: u32 = 2;

/// What programs inside can reach besides each other.
pub(crate) enum Way {
    /// Nothing.
    Closed,
    /// An egress process.
    Open(WayOut),
}

/// Whom a listener's connections are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leads {
    /// The proxy.
    Proxy,
    /// Whatever address the program named.
    Address,
    /// The resolver.
    Names,
    /// The agent of SSH.
    Agent,
}

/// A way out.
pub(crate) struct WayOut {
    exit: Exit,
    doors: Vec<Door>,
    names: Names,
}

impl WayOut {
    /// Of a channel, listeners that do not block, and sockets for names.
    pub(crate) fn new(channel: OwnedFd, doors: Vec<(OwnedFd, Leads)>, names: Vec<OwnedFd>) -> Self {
        let doors = doors.into_iter().map(|(socket, leads)| Door { socket, leads, ready: false }).collect();
        Self { exit: Exit { channel: Some(channel), waiting: None }, doors, names: Names::new(names) }
    }

    /// Begins to wait for connections.
    pub(crate) fn watch(&self, poller: &Poller) -> Result<(), Errno> {
        use epoll::EventFlags as Flags;
        if let Some(channel) = &self.exit.channel {
            poller.watch_way_out(channel, CHANNEL, Flags::OUT | Flags::RDHUP | Flags::ET)?;
        }
        let sockets = self.names.sockets().chain(self.doors.iter().map(|door| &door.socket));
        for (number, socket) in (SOCKETS..).zip(sockets) {
            poller.watch_way_out(socket, number, Flags::IN | Flags::ET)?;
        }
        Ok(())
    }

    /// Remembers an event.
    pub(crate) fn event(&mut self, number: u32, ready: Ready) {
        match number {
            CHANNEL if ready.hung_up => self.exit.close(),
            // There is room again, which the next turn finds out.
            CHANNEL => {}
            NAMES => self.names.stream_event(ready),
            _ => {
                let index = (number - SOCKETS) as usize;
                if !self.names.socket_event(index)
                    && let Some(door) = index.checked_sub(self.names.sockets().count()).and_then(|index| self.doors.get_mut(index))
                {
                    door.ready = true;
                }
            }
        }
    }

    /// Passes on what is there, up to a bound.
    pub(crate) fn turn(&mut self, poller: &Poller) -> Progress {
        self.exit.retry();
        let mut progress = self.names.turn(&mut self.exit, poller);
        for door in &mut self.doors {
            if door.turn(&mut self.exit) == Progress::Again {
                progress = Progress::Again;
            }
        }
        progress
    }
}

/// A listener.
struct Door {
    socket: OwnedFd,
    leads: Leads,
    /// Somebody may wait.
    ready: bool,
}

impl Door {
    fn turn(&mut self, exit: &mut Exit) -> Progress {
        if !self.ready {
            return Progress::Idle;
        }
        for _ in 0..TURN {
            if exit.is_full() {
                return Progress::Idle;
            }
            match accept_with(&self.socket, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok(connection) => {
                    // A connection that knows no address of its own is gone already.
                    if let Some(opening) = self.opening(&connection) {
                        exit.pass(opening, connection);
                    }
                }
                Err(Errno::AGAIN) => {
                    self.ready = false;
                    return Progress::Idle;
                }
                // No descriptor left: it is tried again when something has ended.
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => return Progress::Idle,
                // That one broke before it was accepted.
                Err(_) => {}
            }
        }
        Progress::Again
    }

    fn opening(&self, connection: &OwnedFd) -> Option<Opening> {
        match self.leads {
            Leads::Proxy => Some(Opening::Proxy),
            Leads::Names => Some(Opening::Dns),
            Leads::Agent => Some(Opening::Agent),
            // Every address is local here, so the connection's own end is what the program asked for.
            Leads::Address => {
                let address = SocketAddr::try_from(rustix::net::getsockname(connection).ok()?).ok()?;
                Some(Opening::Transparent(address))
            }
        }
    }
}

/// The channel, and what it has no room for at the moment.
pub(crate) struct Exit {
    /// `None` once egress is gone.
    channel: Option<OwnedFd>,
    waiting: Option<(Opening, OwnedFd)>,
}

/// What became of a message.
enum Sent {
    /// It is on its way.
    Whole,
    /// It never will be.
    Refused,
    /// There is no room.
    Full,
    /// There is nobody.
    Gone,
}

impl Exit {
    /// Whether nothing more can be passed until there is room.
    pub(crate) fn is_full(&self) -> bool {
        self.waiting.is_some()
    }

    /// Whether somebody is at the other end, as far as is known.
    pub(crate) fn leads_somewhere(&self) -> bool {
        self.channel.is_some()
    }

    /// Passes a connection on, or keeps it until there is room, or closes it. Not to be called while it is full.
    pub(crate) fn pass(&mut self, opening: Opening, connection: OwnedFd) {
        let Some(channel) = &self.channel else { return };
        match send(channel, opening, &connection) {
            // Dropping it closes it; egress has its own copy where it went.
            Sent::Whole | Sent::Refused => {}
            Sent::Full => self.waiting = Some((opening, connection)),
            Sent::Gone => self.close(),
        }
    }

    fn retry(&mut self) {
        if let Some((opening, connection)) = self.waiting.take() {
            self.pass(opening, connection);
        }
    }

    fn close(&mut self) {
        self.channel = None;
        self.waiting = None;
    }
}

fn send(channel: &OwnedFd, opening: Opening, connection: &OwnedFd) -> Sent {
    let descriptors = [connection.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Sent::Refused;
    }
    loop {
        // The flag belongs to everyone who shares the description, so each call says for itself that it must not wait.
        return match sendmsg(channel, &[IoSlice::new(&opening.bytes())], &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(_) => Sent::Whole,
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN) => Sent::Full,
            Err(Errno::PIPE | Errno::CONNRESET | Errno::CONNREFUSED | Errno::NOTCONN) => Sent::Gone,
            // Too many descriptors are under way, or memory is short. Nothing says when that ends, so this connection is closed.
            Err(_) => Sent::Refused,
        };
    }
}
