//! File contents through a pipe of ours, where descriptors can be passed: the guest moves them in the kernel.
//!
//! The guest gets one end and we keep the other, which never blocks; so however the guest behaves, we wait no longer than the patience
//! of any answer. Nothing that the guest opened ever comes to us.

use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use stockade_wire::message::{Reply, Request, Stream};

use super::{FileError, PATIENCE_SECONDS, credit_or_error};
use crate::connection::{Connection, ConnectionError};

/// What is read or written at once.
const CHUNK: usize = 256 << 10;
/// What the pipe may hold: as much as the kernel gives without privileges.
const PIPE_SIZE: usize = 1 << 20;

/// Which end of a new pipe stays here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keep {
    Reader,
    Writer,
}

/// Our end and the guest's.
fn pipe(keep: Keep) -> Result<(OwnedFd, OwnedFd), ConnectionError> {
    let make = || {
        let (reader, writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        let (ours, theirs) = if keep == Keep::Reader { (reader, writer) } else { (writer, reader) };
        // The two ends are descriptions of their own, so only ours does not block.
        rustix::io::ioctl_fionbio(&ours, true)?;
        // A smaller pipe is only slower.
        let _ = rustix::pipe::fcntl_setpipe_size(&ours, PIPE_SIZE);
        Ok((ours, theirs))
    };
    make().map_err(ConnectionError::Pipes)
}

/// Writes a file from a reader.
pub(super) fn write_file(connection: &mut Connection, request: &Request, from: &mut dyn Read) -> Result<u64, FileError> {
    let id = connection.fresh_id();
    let (ours, theirs) = pipe(Keep::Writer)?;
    connection.send(id, request, &[theirs.as_fd()])?;
    drop(theirs);
    let mut buffer = vec![0; CHUNK];
    let mut total = 0u64;
    loop {
        let count = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => {
                // Before the pipe is closed, so that its end is not taken for the file's.
                connection.send(id, &Request::Cancel {}, &[])?;
                return Err(error.into());
            }
        };
        push(connection, id, &ours, buffer.get(..count).unwrap_or_default())?;
        total += count as u64;
    }
    drop(ours);
    connection.send(id, &Request::Eof { stream: Stream::Input {} }, &[])?;
    loop {
        let (got, reply) = connection.receive(PATIENCE_SECONDS)?;
        if got == id && reply == (Reply::Done {}) {
            return Ok(total);
        }
        credit_or_error(got, id, reply)?;
    }
}

/// Puts bytes into the pipe; a guest that failed says why.
fn push(connection: &mut Connection, id: u32, pipe: &OwnedFd, mut bytes: &[u8]) -> Result<(), FileError> {
    while !bytes.is_empty() {
        match rustix::io::write(pipe, bytes) {
            Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                if wait(connection, pipe, PollFlags::OUT)?.stream {
                    connection.fill()?;
                }
                while let Some((got, reply)) = connection.buffered::<Reply>()? {
                    credit_or_error(got, id, reply)?;
                }
            }
            // It let go of its end, so it has failed.
            Err(Errno::PIPE) => loop {
                let (got, reply) = connection.receive(PATIENCE_SECONDS)?;
                credit_or_error(got, id, reply)?;
            },
            Err(errno) => return Err(ConnectionError::Io(errno).into()),
        }
    }
    Ok(())
}

/// Reads a file into a writer.
pub(super) fn read_file(connection: &mut Connection, request: &Request, to: &mut dyn Write) -> Result<u64, FileError> {
    let id = connection.fresh_id();
    let (ours, theirs) = pipe(Keep::Reader)?;
    connection.send(id, request, &[theirs.as_fd()])?;
    drop(theirs);
    let mut buffer = vec![0; CHUNK];
    let mut total = 0u64;
    let mut open = true;
    // When the guest is done: what is in the pipe then, whoever still holds its other end.
    let mut left: Option<u64> = None;
    loop {
        while let Some((got, reply)) = connection.buffered::<Reply>()? {
            if got == id && reply == (Reply::Done {}) {
                left = Some(rustix::io::ioctl_fionread(&ours).map_err(ConnectionError::Io)?);
            } else {
                credit_or_error(got, id, reply)?;
            }
        }
        if left.is_some_and(|left| left == 0 || !open) {
            return Ok(total);
        }
        let ready = if left.is_some() {
            Ready { stream: false, pipe: true }
        } else if open {
            wait(connection, &ours, PollFlags::IN)?
        } else {
            // The pipe is at its end and says so again and again; only the answer is missing.
            Ready { stream: wait_for_answer(connection)?, pipe: false }
        };
        if ready.pipe {
            match rustix::io::read(&ours, buffer.as_mut_slice()) {
                Ok(0) => open = false,
                Ok(count) => {
                    if let Err(error) = to.write_all(buffer.get(..count).unwrap_or_default()) {
                        connection.send(id, &Request::Cancel {}, &[])?;
                        return Err(error.into());
                    }
                    total += count as u64;
                    left = left.map(|left| left.saturating_sub(count as u64));
                }
                Err(Errno::INTR) => {}
                // Whoever took it away, there is no more.
                Err(Errno::AGAIN) => left = left.map(|_| 0),
                Err(errno) => return Err(ConnectionError::Io(errno).into()),
            }
        }
        if ready.stream {
            connection.fill()?;
        }
    }
}

struct Ready {
    stream: bool,
    pipe: bool,
}

/// Waits for the stream or the pipe.
fn wait(connection: &Connection, pipe: &OwnedFd, flags: PollFlags) -> Result<Ready, ConnectionError> {
    let mut fds = [PollFd::from_borrowed_fd(connection.as_fd(), PollFlags::IN), PollFd::new(pipe, flags)];
    poll(&mut fds)?;
    let [stream, pipe] = fds.map(|fd| !fd.revents().is_empty());
    Ok(Ready { stream, pipe })
}

fn wait_for_answer(connection: &Connection) -> Result<bool, ConnectionError> {
    let mut fds = [PollFd::from_borrowed_fd(connection.as_fd(), PollFlags::IN)];
    poll(&mut fds)?;
    Ok(fds.iter().any(|fd| !fd.revents().is_empty()))
}

fn poll(fds: &mut [PollFd<'_>]) -> Result<(), ConnectionError> {
    let patience = Timespec { tv_sec: PATIENCE_SECONDS as i64, tv_nsec: 0 };
    match rustix::event::poll(fds, Some(&patience)) {
        Ok(0) => Err(ConnectionError::Silent(PATIENCE_SECONDS)),
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
