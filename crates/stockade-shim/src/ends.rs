//! The ends of byte streams: a source that is read into data frames, a sink that data frames are written to.
//!
//! Owns readiness (edges remembered until a call would block), the credit of each end and the draining of what
//! a finished program left in its pipe. Used for pipes, terminals and connections alike; ending a request is not
//! decided here.

use std::os::fd::OwnedFd;
use std::rc::Rc;

use rustix::io::Errno;
use stockade_wire::message::Stream;

use crate::channel::CHUNK;
use crate::context::{Context, Ready};
use crate::flow::{Backlog, Overrun, ReceiveWindow, SendCredit};

/// What a terminal can hold of a program's output after it ended (flip buffers and line buffer), rounded up.
const TERMINAL_REST: u64 = 128 << 10;

/// What kind of thing a descriptor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Medium {
    Pipe,
    /// The controlling side of a pseudo-terminal: reads are short, and `EIO` is its end.
    Terminal,
    Connection,
}

/// What one turn of reading brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pumped {
    /// A frame was sent and there may be more.
    More,
    /// Nothing to read, or no credit to send it.
    Nothing,
    /// The stream is over.
    Ended,
    /// Reading failed.
    Failed(Errno),
}

/// Something that is read until it ends.
pub(crate) struct Source {
    fd: Rc<OwnedFd>,
    medium: Medium,
    ready: bool,
    hung_up: bool,
    credit: SendCredit,
    /// Set when the program is gone: what it left behind is read, not what others still write.
    left: Option<u64>,
}

impl Source {
    /// A source whose descriptor does not block and is watched.
    pub(crate) fn new(fd: Rc<OwnedFd>, medium: Medium) -> Self {
        Self { fd, medium, ready: false, hung_up: false, credit: SendCredit::new(), left: None }
    }

    /// Remembers an event.
    pub(crate) fn event(&mut self, ready: Ready) {
        self.ready |= ready.readable;
        self.hung_up |= ready.hung_up;
    }

    /// Goes on with another descriptor that was tried instead.
    pub(crate) fn replace(&mut self, fd: Rc<OwnedFd>) {
        self.fd = fd;
        self.ready = false;
        self.hung_up = false;
    }

    /// The host takes more.
    pub(crate) fn grant(&mut self, bytes: u32) {
        self.credit.grant(bytes);
    }

    /// The program ended: read what is there now and no more, though a descendant may hold the other end.
    pub(crate) fn drain(&mut self) {
        self.ready = true;
        self.left = Some(match self.medium {
            Medium::Pipe | Medium::Connection => rustix::io::ioctl_fionread(&*self.fd).unwrap_or(0),
            Medium::Terminal => TERMINAL_REST,
        });
    }

    /// Reads once and sends what came.
    pub(crate) fn pump(&mut self, context: &mut Context, id: u32, stream: &Stream) -> Pumped {
        if self.left == Some(0) {
            return Pumped::Ended;
        }
        let most = self.credit.allowed(self.left.map_or(CHUNK, |left| CHUNK.min(left as usize)));
        if most == 0 || !self.ready {
            return Pumped::Nothing;
        }
        let space = context.channel.data_space(most);
        let asked = space.len();
        match rustix::io::read(&*self.fd, space) {
            Ok(0) => Pumped::Ended,
            Ok(count) => {
                context.channel.send_data(id, stream, count);
                self.credit.spend(count);
                if let Some(left) = self.left.as_mut() {
                    *left = left.saturating_sub(count as u64);
                } else if count < asked && !self.hung_up && self.medium != Medium::Terminal {
                    // A short read has emptied a pipe or socket; the next bytes make a new edge.
                    self.ready = false;
                    return Pumped::Nothing;
                }
                Pumped::More
            }
            Err(Errno::INTR) => Pumped::More,
            Err(Errno::AGAIN) if self.left.is_some() => Pumped::Ended,
            Err(Errno::AGAIN) => {
                self.ready = false;
                Pumped::Nothing
            }
            Err(Errno::IO) if self.medium == Medium::Terminal => Pumped::Ended,
            Err(errno) => Pumped::Failed(errno),
        }
    }
}

/// What became of bytes handed to a sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flushed {
    /// Nothing waits, and more may come.
    Clean,
    /// The reader is slow.
    Waiting,
    /// All was written and no more will come: the descriptor can be closed.
    Complete,
    /// The reader is gone.
    Failed(Errno),
}

/// Something that is written until the host says that it ends.
pub(crate) struct Sink {
    /// `None` once the reader is gone: what still comes is taken and dropped, as the host may be blocked on credit.
    fd: Option<Rc<OwnedFd>>,
    writable: bool,
    backlog: Backlog,
    window: ReceiveWindow,
    ended: bool,
}

impl Sink {
    /// A sink whose descriptor does not block and is watched.
    pub(crate) fn new(fd: Rc<OwnedFd>) -> Self {
        Self { fd: Some(fd), writable: true, backlog: Backlog::default(), window: ReceiveWindow::new(), ended: false }
    }

    /// Remembers an event.
    pub(crate) fn event(&mut self, ready: Ready) {
        self.writable |= ready.writable;
    }

    /// Goes on with another descriptor that was tried instead.
    pub(crate) fn replace(&mut self, fd: Rc<OwnedFd>) {
        self.fd = Some(fd);
    }

    /// The connection is not there yet; writing waits for an event.
    pub(crate) fn hold(&mut self) {
        self.writable = false;
    }

    /// The reader is gone: closes the descriptor and drops what waits.
    pub(crate) fn discard(&mut self, context: &mut Context, id: u32) {
        self.fd = None;
        context.grant(id, self.window.consume(self.backlog.len()));
        self.backlog = Backlog::default();
    }

    /// Takes bytes from the host: written at once where possible, else kept. Bytes after the end are dropped.
    pub(crate) fn accept(&mut self, bytes: &[u8], context: &mut Context, id: u32) -> Result<Flushed, Overrun> {
        self.window.receive(bytes.len())?;
        if self.ended {
            return Ok(Flushed::Clean);
        }
        let mut rest = bytes;
        if self.backlog.is_empty() && self.writable && !rest.is_empty() {
            match self.write(rest) {
                Ok(count) => {
                    context.grant(id, self.window.consume(count));
                    rest = rest.get(count..).unwrap_or_default();
                }
                Err(errno) => return Ok(Flushed::Failed(errno)),
            }
        }
        if !rest.is_empty() {
            self.backlog.push(rest);
        }
        Ok(if self.backlog.is_empty() { Flushed::Clean } else { Flushed::Waiting })
    }

    /// The host sends no more; `last` is written after what waits (a terminal's end-of-file character).
    pub(crate) fn end(&mut self, last: &[u8]) {
        if !self.ended {
            self.backlog.push(last);
        }
        self.ended = true;
    }

    /// Writes what waits, once.
    pub(crate) fn flush(&mut self, context: &mut Context, id: u32) -> Flushed {
        while self.writable && !self.backlog.is_empty() {
            match self.write(self.backlog.waiting()) {
                Ok(0) => break,
                Ok(count) => {
                    self.backlog.advance(count);
                    context.grant(id, self.window.consume(count));
                }
                Err(errno) => return Flushed::Failed(errno),
            }
        }
        match (self.backlog.is_empty(), self.ended) {
            (false, _) => Flushed::Waiting,
            (true, false) => Flushed::Clean,
            (true, true) => Flushed::Complete,
        }
    }

    fn write(&self, bytes: &[u8]) -> Result<usize, Errno> {
        let Some(fd) = &self.fd else { return Ok(bytes.len()) };
        match rustix::io::write(&**fd, bytes) {
            Ok(count) => Ok(count),
            // A full pipe makes an edge when it empties, so readiness is simply tried again at the next event.
            Err(Errno::AGAIN | Errno::INTR) => Ok(0),
            Err(errno) => Err(errno),
        }
    }
}
