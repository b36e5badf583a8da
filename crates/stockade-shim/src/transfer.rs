//! Moving bytes between a file and a pipe of the host, in the kernel where the file system can.
//!
//! Owns our end of the pipe. Nothing waits: a full or empty pipe makes an event when that changes. Which file it is,
//! and what the end of the pipe means, is decided in `files`.

use std::os::fd::OwnedFd;

use rustix::fs::FileType;
use rustix::io::Errno;
use rustix::pipe::SpliceFlags;

use crate::channel::CHUNK;
use crate::context::{Context, Slot};
use crate::failure::Failure;
use crate::flow::Backlog;

/// The most bytes moved in one turn; also the most that a pipe can hold without privileges.
const MOST: usize = 1 << 20;

/// What one turn moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moved {
    /// Something; there may be more.
    Some,
    /// Nothing can be moved now.
    Nothing,
    /// Everything was moved.
    All,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// The kernel moves pages.
    Splice,
    /// The file cannot be spliced; through a buffer.
    Copy,
}

/// Our end of a pipe.
pub(crate) struct Transfer {
    pipe: OwnedFd,
    manner: Manner,
    /// Read from the file and not taken by the pipe yet.
    rest: Backlog,
}

impl Transfer {
    /// Takes the descriptor that came with a request and watches it. `slot` says which way the bytes go.
    pub(crate) fn start(context: &Context, id: u32, passed: Vec<OwnedFd>, slot: Slot) -> Result<Self, Failure> {
        let [pipe] = <[OwnedFd; 1]>::try_from(passed).map_err(|_| Failure::invalid("a pipe must come with the request"))?;
        let failed = |errno| Failure::during("use the pipe", errno);
        let stat = rustix::fs::fstat(&pipe).map_err(failed)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Fifo {
            return Err(Failure::invalid("what came with the request is not a pipe"));
        }
        // The two ends are descriptions of their own, so only ours does not block.
        rustix::io::ioctl_fionbio(&pipe, true).map_err(failed)?;
        context.poller.watch(&pipe, id, slot).map_err(failed)?;
        Ok(Self { pipe, manner: Manner::Splice, rest: Backlog::default() })
    }

    /// Moves bytes of a file from `offset` on into the pipe, at most `left`; both are counted on.
    pub(crate) fn fill(&mut self, file: &OwnedFd, offset: &mut u64, left: &mut u64) -> Result<Moved, Errno> {
        let most = usize::try_from(*left).unwrap_or(usize::MAX).min(MOST);
        if most == 0 && self.rest.is_empty() {
            return Ok(Moved::All);
        }
        let moved = match self.manner {
            Manner::Splice => rustix::pipe::splice(file, Some(offset), &self.pipe, None, most, SpliceFlags::NONBLOCK),
            Manner::Copy => self.copy_in(file, offset, most),
        };
        match moved {
            Ok(0) if self.rest.is_empty() => Ok(Moved::All),
            Ok(count) => {
                *left = left.saturating_sub(count as u64);
                Ok(Moved::Some)
            }
            Err(Errno::INTR) => Ok(Moved::Some),
            Err(Errno::INVAL) if self.manner == Manner::Splice => {
                self.manner = Manner::Copy;
                Ok(Moved::Some)
            }
            Err(Errno::AGAIN) => Ok(Moved::Nothing),
            // The host reads no more; it has its reasons.
            Err(Errno::PIPE) => Ok(Moved::All),
            Err(errno) => Err(errno),
        }
    }

    /// Reads a chunk when nothing waits, and writes what waits; returns how much was read.
    fn copy_in(&mut self, file: &OwnedFd, offset: &mut u64, most: usize) -> Result<usize, Errno> {
        let mut read = 0;
        if self.rest.is_empty() {
            let mut buffer = vec![0; most.min(CHUNK)];
            read = rustix::io::pread(file, buffer.as_mut_slice(), *offset)?;
            *offset = offset.saturating_add(read as u64);
            self.rest.push(buffer.get(..read).unwrap_or_default());
        }
        match rustix::io::write(&self.pipe, self.rest.waiting()) {
            Ok(count) => self.rest.advance(count),
            // What was read is counted; the next turn finds the pipe full again and waits.
            Err(Errno::AGAIN | Errno::INTR) if read > 0 => {}
            Err(errno) => return Err(errno),
        }
        Ok(read)
    }

    /// Moves bytes from the pipe to where the file stands.
    pub(crate) fn drain(&mut self, file: &OwnedFd) -> Result<Moved, Errno> {
        let moved = match self.manner {
            Manner::Splice => rustix::pipe::splice(&self.pipe, None, file, None, MOST, SpliceFlags::NONBLOCK),
            Manner::Copy => self.copy_out(file),
        };
        match moved {
            Ok(0) => Ok(Moved::All),
            Ok(_) | Err(Errno::INTR) => Ok(Moved::Some),
            Err(Errno::INVAL) if self.manner == Manner::Splice => {
                self.manner = Manner::Copy;
                Ok(Moved::Some)
            }
            Err(Errno::AGAIN) => Ok(Moved::Nothing),
            Err(errno) => Err(errno),
        }
    }

    fn copy_out(&self, file: &OwnedFd) -> Result<usize, Errno> {
        let mut buffer = vec![0; CHUNK];
        let count = rustix::io::read(&self.pipe, buffer.as_mut_slice())?;
        let mut rest = buffer.get(..count).unwrap_or_default();
        while !rest.is_empty() {
            match rustix::io::write(file, rest) {
                Ok(0) => return Err(Errno::NOSPC),
                Ok(written) => rest = rest.get(written..).unwrap_or_default(),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(count)
    }
}
