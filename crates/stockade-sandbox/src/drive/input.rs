//! A program's stdin on its way in: from a descriptor of the caller, to a pipe or as data frames.
//!
//! Never reads ahead of what can be passed on: one chunk for a pipe, the credit that the guest granted for frames.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use stockade_wire::frame::{DATA_CHUNK, WINDOW};
use stockade_wire::message::{Request, Stream};

use crate::connection::{Connection, ConnectionError};

/// The most that is read at once for a pipe.
const CHUNK: usize = 64 << 10;

enum Way {
    Frames { credit: u32 },
    Pipe { writer: OwnedFd, written: usize },
}

/// Whether there may be more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fed {
    More,
    Ended,
}

/// A stdin under way.
pub(super) struct Input<'a> {
    from: BorrowedFd<'a>,
    way: Way,
    /// What was read; for a pipe, the part of it that is not written yet waits.
    buffer: Vec<u8>,
}

impl<'a> Input<'a> {
    /// Sent as data frames.
    pub(super) fn framed(from: BorrowedFd<'a>) -> Self {
        Self { from, way: Way::Frames { credit: WINDOW }, buffer: Vec::new() }
    }

    /// Written to a pipe, whose end does not block.
    pub(super) fn piped(from: BorrowedFd<'a>, writer: OwnedFd) -> Self {
        Self { from, way: Way::Pipe { writer, written: 0 }, buffer: Vec::new() }
    }

    /// The guest takes more.
    pub(super) fn grant(&mut self, bytes: u32) {
        if let Way::Frames { credit } = &mut self.way {
            *credit = credit.saturating_add(bytes).min(WINDOW);
        }
    }

    /// What to wait for, if there is anything to do.
    pub(super) fn awaited(&self) -> Option<PollFd<'_>> {
        match &self.way {
            Way::Frames { credit: 0 } => None,
            Way::Pipe { writer, written } if *written < self.buffer.len() => Some(PollFd::from_borrowed_fd(writer.as_fd(), PollFlags::OUT)),
            Way::Frames { .. } | Way::Pipe { .. } => Some(PollFd::from_borrowed_fd(self.from, PollFlags::IN)),
        }
    }

    /// Moves a chunk.
    pub(super) fn feed(&mut self, connection: &Connection, id: u32) -> Result<Fed, ConnectionError> {
        match &mut self.way {
            Way::Frames { credit } => {
                self.buffer.resize(DATA_CHUNK, 0);
                let room = self.buffer.len().min(*credit as usize);
                match rustix::io::read(self.from, self.buffer.get_mut(..room).unwrap_or_default()) {
                    Ok(0) | Err(Errno::IO) => {
                        connection.send(id, &Request::Eof { stream: Stream::Input {} }, &[])?;
                        Ok(Fed::Ended)
                    }
                    Ok(count) => {
                        *credit -= count as u32;
                        let bytes = self.buffer.get(..count).unwrap_or_default().into();
                        connection.send(id, &Request::Data { stream: Stream::Input {}, bytes }, &[])?;
                        Ok(Fed::More)
                    }
                    Err(Errno::INTR | Errno::AGAIN) => Ok(Fed::More),
                    Err(errno) => Err(errno.into()),
                }
            }
            Way::Pipe { writer, written } => {
                if *written >= self.buffer.len() {
                    self.buffer.resize(CHUNK, 0);
                    *written = 0;
                    let read = rustix::io::read(self.from, self.buffer.as_mut_slice());
                    self.buffer.truncate(*read.as_ref().unwrap_or(&0));
                    match read {
                        Ok(0) | Err(Errno::IO) => return Ok(Fed::Ended),
                        Ok(_) | Err(Errno::INTR | Errno::AGAIN) => {}
                        Err(errno) => return Err(errno.into()),
                    }
                }
                while let Some(rest) = self.buffer.get(*written..).filter(|rest| !rest.is_empty()) {
                    match rustix::io::write(&*writer, rest) {
                        Ok(count) => *written += count,
                        Err(Errno::INTR) => {}
                        Err(Errno::AGAIN) => break,
                        // The program reads no more of it.
                        Err(_) => return Ok(Fed::Ended),
                    }
                }
                Ok(Fed::More)
            }
        }
    }
}
