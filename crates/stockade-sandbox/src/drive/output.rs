//! One stream of a program on its way out: from a pipe or from data frames, into memory or to a descriptor of the caller.
//!
//! Everything that comes is counted, what is beyond the limit is dropped, and nothing is kept but what is captured and one chunk (from a
//! pipe) or one window (of frames) for a slow reader. The caller's descriptor may block and is not ours to change, so it is
//! written only as far as it takes bytes at once.

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::FileType;
use rustix::io::{Errno, ReadWriteFlags};
use stockade_wire::frame::{DATA_CHUNK, WINDOW};

use super::{Captured, Sink};
use crate::connection::ConnectionError;

/// The most that is read from a pipe at once, and what a pipe is enlarged to when it was found full.
const CHUNK: usize = 256 << 10;
/// What a pipe holds at first; a read of so much found it full.
const FULL: usize = 64 << 10;
/// What a pipe takes without waiting when it says that it is ready.
const PIPE_STEP: usize = 4096;

/// How bytes are written without waiting.
enum Manner {
    /// To a file, which never makes us wait for a reader.
    Plain,
    /// The kernel is asked not to wait.
    NoWait,
    /// Where it does not know how: only when ready, and only so much that it fits.
    Polled,
}

struct Pipe {
    reader: OwnedFd,
    /// Set when the program is gone: what it left behind is read, not what others still write.
    left: Option<u64>,
    enlarged: bool,
}

/// A stream under way.
pub(super) struct Output<'a> {
    sink: Sink<'a>,
    captured: Captured,
    /// Bytes for a descriptor, of which those before `start` are written.
    pending: Vec<u8>,
    start: usize,
    /// Credit that the guest has not been granted yet.
    owed: u32,
    manner: Manner,
    pipe: Option<Pipe>,
}

impl<'a> Output<'a> {
    /// A stream that arrives as data frames.
    pub(super) fn framed(sink: Sink<'a>) -> Self {
        let manner = match sink {
            Sink::Descriptor(fd) | Sink::Limited(fd, _) => {
                let regular = rustix::fs::fstat(fd).is_ok_and(|s| FileType::from_raw_mode(s.st_mode) == FileType::RegularFile);
                if regular { Manner::Plain } else { Manner::NoWait }
            }
            Sink::Buffer(_) | Sink::Told(..) => Manner::Plain,
        };
        Self { sink, captured: Captured::default(), pending: Vec::new(), start: 0, owed: 0, manner, pipe: None }
    }

    /// A stream that is read from a pipe, whose end does not block.
    pub(super) fn piped(sink: Sink<'a>, reader: OwnedFd) -> Self {
        Self { pipe: Some(Pipe { reader, left: None, enlarged: false }), ..Self::framed(sink) }
    }

    /// What came of it.
    pub(super) fn into_captured(self) -> Captured {
        self.captured
    }

    /// Whether bytes wait for a slow reader.
    pub(super) fn is_writing(&self) -> bool {
        self.start < self.pending.len()
    }

    /// Whether the pipe still has to be read. After the program's end: only what it left there.
    pub(super) fn is_reading(&self) -> bool {
        self.pipe.as_ref().is_some_and(|pipe| pipe.left != Some(0))
    }

    /// What to wait for.
    pub(super) fn awaited(&self) -> Option<PollFd<'_>> {
        if self.is_writing() {
            return self.descriptor().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::OUT));
        }
        let pipe = self.pipe.as_ref().filter(|_| self.is_reading())?;
        Some(PollFd::from_borrowed_fd(pipe.reader.as_fd(), PollFlags::IN))
    }

    /// The program ended: what is in the pipe now is its output, though a descendant may hold the other end.
    pub(super) fn finish(&mut self) {
        if let Some(pipe) = &mut self.pipe {
            pipe.left = Some(rustix::io::ioctl_fionread(&pipe.reader).unwrap_or(0));
        }
    }

    /// Credit that is due, if it is worth a frame.
    pub(super) fn due(&mut self) -> Option<u32> {
        (self.owed >= WINDOW / 4).then(|| std::mem::take(&mut self.owed))
    }

    /// Writes what waits, and reads the pipe once if nothing does.
    pub(super) fn advance(&mut self) {
        self.flush();
        if !self.is_writing() && self.is_reading() {
            self.pull();
            self.flush();
        }
    }

    /// Takes the bytes of a data frame, for which the guest had credit; what one sends beyond it must not pile up here.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<(), ConnectionError> {
        if self.pending.len() - self.start + self.owed as usize + bytes.len() > WINDOW as usize {
            return Err(ConnectionError::OutOfTurn("more output than it had credit for"));
        }
        let kept = bytes.get(..self.room().min(bytes.len())).unwrap_or_default();
        self.captured.total += bytes.len() as u64;
        self.captured.truncated |= kept.len() < bytes.len();
        self.owed += match self.sink {
            Sink::Buffer(_) | Sink::Told(..) => {
                self.captured.bytes.extend_from_slice(kept);
                self.tell(kept);
                bytes.len()
            }
            Sink::Descriptor(_) | Sink::Limited(..) => {
                self.pending.extend_from_slice(kept);
                bytes.len() - kept.len()
            }
        } as u32;
        self.flush();
        Ok(())
    }

    /// How many more bytes are wanted.
    fn room(&self) -> usize {
        match self.sink {
            Sink::Descriptor(_) => usize::MAX,
            Sink::Limited(_, limit) | Sink::Buffer(limit) | Sink::Told(limit, _) => {
                usize::try_from(limit.saturating_sub(self.captured.total)).unwrap_or(usize::MAX)
            }
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'a>> {
        match self.sink {
            Sink::Descriptor(fd) | Sink::Limited(fd, _) => Some(fd),
            Sink::Buffer(_) | Sink::Told(..) => None,
        }
    }

    /// Reads the pipe once, to where the bytes stay; what is too much is cut off there.
    fn pull(&mut self) {
        let room = self.room();
        let Some(pipe) = &mut self.pipe else { return };
        // `pending` is empty here, so it also serves for what is dropped.
        let is_kept = room > 0 && matches!(self.sink, Sink::Buffer(_) | Sink::Told(..));
        let space = if is_kept { &mut self.captured.bytes } else { &mut self.pending };
        let before = space.len();
        space.reserve(CHUNK);
        let count = match rustix::io::read(&pipe.reader, spare_capacity(space)) {
            Ok(0) => {
                self.pipe = None;
                return;
            }
            Ok(count) => count,
            Err(Errno::INTR) => return,
            Err(Errno::AGAIN) => {
                // Whoever took it away, there is no more of what the program left.
                pipe.left = pipe.left.map(|_| 0);
                return;
            }
            Err(_) => {
                self.pipe = None;
                return;
            }
        };
        if count >= FULL && !pipe.enlarged {
            pipe.enlarged = true;
            // A smaller pipe is only slower.
            let _ = rustix::pipe::fcntl_setpipe_size(&pipe.reader, CHUNK);
        }
        pipe.left = pipe.left.map(|left| left.saturating_sub(count as u64));
        space.truncate(before + count.min(room));
        self.captured.total += count as u64;
        self.captured.truncated |= count > room;
        if is_kept {
            self.tell(self.captured.bytes.get(before..).unwrap_or_default());
        }
    }

    /// Says what was captured, to whoever listens.
    fn tell(&self, bytes: &[u8]) {
        if let Sink::Told(_, listener) = self.sink
            && !bytes.is_empty()
        {
            listener(bytes);
        }
    }

    /// Writes what can be written now. A reader that went away is not an error of ours: the program goes on.
    fn flush(&mut self) {
        let Some(fd) = self.descriptor() else {
            self.pending.clear();
            return;
        };
        let before = self.start;
        while self.is_writing() {
            match self.write(fd) {
                Ok(count) => self.start += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => self.start = self.pending.len(),
            }
        }
        self.owed += (self.start - before) as u32;
        if !self.is_writing() {
            self.pending.clear();
            self.start = 0;
        } else if self.start > WINDOW as usize {
            self.pending.drain(..self.start);
            self.start = 0;
        }
    }

    fn write(&mut self, fd: BorrowedFd<'_>) -> Result<usize, Errno> {
        let rest = self.pending.get(self.start..).unwrap_or_default();
        match self.manner {
            Manner::Plain => rustix::io::write(fd, rest.get(..DATA_CHUNK).unwrap_or(rest)),
            // The offset means: where the descriptor stands.
            Manner::NoWait => match rustix::io::pwritev2(fd, &[IoSlice::new(rest)], u64::MAX, ReadWriteFlags::NOWAIT) {
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                    self.manner = Manner::Polled;
                    self.write(fd)
                }
                written => written,
            },
            Manner::Polled => {
                let now = Timespec { tv_sec: 0, tv_nsec: 0 };
                if rustix::event::poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::OUT)], Some(&now)) == Ok(0) {
                    return Err(Errno::AGAIN);
                }
                rustix::io::write(fd, rest.get(..PIPE_STEP).unwrap_or(rest))
            }
        }
    }
}
