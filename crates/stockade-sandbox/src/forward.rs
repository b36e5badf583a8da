//! A local stream joined to a TCP port on a sandbox's loopback.

use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use stockade_wire::frame::{DATA_CHUNK, WINDOW};
use stockade_wire::message::{Reply, Request, Stream};

use crate::connection::{Connection, ConnectionError};
use crate::drive::write_fully;
use crate::files::FileError;

/// Carries bytes both ways until both directions are closed.
pub fn forward(connection: &mut Connection, port: u16, local: BorrowedFd<'_>) -> Result<(), FileError> {
    let id = connection.fresh_id();
    connection.send(id, &Request::Connect { port }, &[])?;
    let mut join = Join { id, local, credit: WINDOW, owed: 0, sending: false, buffer: vec![0; DATA_CHUNK] };
    loop {
        while let Some((got, reply)) = connection.buffered::<Reply>()? {
            if got == id && join.reply(connection, reply)? {
                return Ok(());
            }
        }
        let mut wait = vec![PollFd::from_borrowed_fd(connection.as_fd(), PollFlags::IN)];
        if join.sending && join.credit > 0 {
            wait.push(PollFd::from_borrowed_fd(local, PollFlags::IN));
        }
        match rustix::event::poll(&mut wait, None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(ConnectionError::Io(errno).into()),
        }
        let ready: Vec<bool> = wait.iter().map(|fd| !fd.revents().is_empty()).collect();
        if ready.get(1) == Some(&true) {
            join.feed(connection)?;
        }
        if ready.first() == Some(&true) {
            connection.fill()?;
        }
    }
}

struct Join<'a> {
    id: u32,
    local: BorrowedFd<'a>,
    credit: u32,
    owed: u32,
    /// Connected, and the local side has not ended yet.
    sending: bool,
    buffer: Vec<u8>,
}

impl Join<'_> {
    /// Deals with a reply; true when both directions are closed.
    fn reply(&mut self, connection: &Connection, reply: Reply) -> Result<bool, FileError> {
        match reply {
            Reply::Started { .. } => self.sending = true,
            Reply::Data { bytes, .. } => {
                write_fully(self.local, &bytes.0);
                self.owed += bytes.0.len() as u32;
                if self.owed >= WINDOW / 4 {
                    let bytes = std::mem::take(&mut self.owed);
                    connection.send(self.id, &Request::Credit { stream: Stream::Output {}, bytes }, &[])?;
                }
            }
            Reply::Credit { bytes, .. } => self.credit = self.credit.saturating_add(bytes).min(WINDOW),
            // The other side will send no more; ours hears of it, if it can hear such a thing.
            Reply::Eof { .. } => drop(rustix::net::shutdown(self.local, rustix::net::Shutdown::Write)),
            Reply::Done {} => return Ok(true),
            Reply::Failed { kind, message } => return Err(FileError::Refused { kind, message }),
            _ => return Err(ConnectionError::OutOfTurn("an unexpected reply to a forwarded connection").into()),
        }
        Ok(false)
    }

    fn feed(&mut self, connection: &Connection) -> Result<(), FileError> {
        let room = self.buffer.len().min(self.credit as usize);
        match rustix::io::read(self.local, self.buffer.get_mut(..room).unwrap_or_default()) {
            Ok(0) | Err(Errno::CONNRESET) => {
                self.sending = false;
                connection.send(self.id, &Request::Eof { stream: Stream::Input {} }, &[])?;
            }
            Ok(n) => {
                self.credit -= n as u32;
                let bytes = self.buffer.get(..n).unwrap_or_default().into();
                connection.send(self.id, &Request::Data { stream: Stream::Input {}, bytes }, &[])?;
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(errno) => return Err(ConnectionError::Io(errno).into()),
        }
        Ok(())
    }
}
