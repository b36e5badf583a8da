//! Files inside a sandbox, through its stream or a pipe beside it: streamed both ways, never wholly in memory.

mod piped;

use std::io::{Read, Write};

use stockade_core::path::SafePath;
use stockade_wire::frame::{DATA_CHUNK, WINDOW};
use stockade_wire::message::{Entry, ErrorKind, FileStat, Reply, Request, Stream};

use crate::connection::{Connection, ConnectionError, Passing};

/// How long the guest may be silent in the middle of a file.
const PATIENCE_SECONDS: u64 = 120;
/// Names of one directory at most.
const MAX_ENTRIES: usize = 1_000_000;

/// Why a file operation failed.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The guest says why.
    #[error("{message}")]
    Refused {
        /// What kind of trouble.
        kind: ErrorKind,
        /// For people.
        message: String,
    },
    /// The stream broke.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// The local side of a copy failed.
    #[error(transparent)]
    Local(#[from] std::io::Error),
}

/// File operations on one stream, one at a time.
pub struct Files<'a>(pub &'a mut Connection);

impl Files<'_> {
    /// Writes a file from a reader; it appears under its name only when complete.
    pub fn write_file(&mut self, path: &SafePath, mode: u32, from: &mut dyn Read) -> Result<u64, FileError> {
        if self.0.passing() == Passing::Possible {
            let request = Request::WriteFileFrom { path: path.as_bytes().into(), mode, parents: true };
            return piped::write_file(self.0, &request, from);
        }
        let id = self.0.fresh_id();
        self.0.send(id, &Request::WriteFile { path: path.as_bytes().into(), mode, parents: true }, &[])?;
        let mut credit = u64::from(WINDOW);
        let mut total = 0u64;
        let mut buffer = vec![0; DATA_CHUNK];
        loop {
            // Credit and early failures are looked at between chunks, and waited for only when there is no credit left.
            while let Some((got, reply)) = self.0.buffered::<Reply>()? {
                credit += credit_or_error(got, id, reply)?;
            }
            if credit == 0 {
                let (got, reply) = self.0.receive(PATIENCE_SECONDS)?;
                credit += credit_or_error(got, id, reply)?;
                continue;
            }
            let room = buffer.len().min(usize::try_from(credit).unwrap_or(usize::MAX));
            let n = match from.read(buffer.get_mut(..room).unwrap_or_default()) {
                Ok(n) => n,
                Err(error) => {
                    self.0.send(id, &Request::Cancel {}, &[])?;
                    return Err(error.into());
                }
            };
            if n == 0 {
                self.0.send(id, &Request::Eof { stream: Stream::Input {} }, &[])?;
                break;
            }
            let bytes = buffer.get(..n).unwrap_or_default().into();
            self.0.send(id, &Request::Data { stream: Stream::Input {}, bytes }, &[])?;
            credit -= n as u64;
            total += n as u64;
        }
        loop {
            let (got, reply) = self.0.receive(PATIENCE_SECONDS)?;
            if got == id && reply == (Reply::Done {}) {
                return Ok(total);
            }
            credit_or_error(got, id, reply)?;
        }
    }

    /// Reads a file into a writer.
    pub fn read_file(&mut self, path: &SafePath, to: &mut dyn Write) -> Result<u64, FileError> {
        if self.0.passing() == Passing::Possible {
            return piped::read_file(self.0, &Request::ReadFileTo { path: path.as_bytes().into(), offset: 0, limit: 0 }, to);
        }
        let id = self.0.fresh_id();
        self.0.send(id, &Request::ReadFile { path: path.as_bytes().into(), offset: 0, limit: 0 }, &[])?;
        let mut total = 0u64;
        let mut owed = 0u32;
        loop {
            match self.0.receive(PATIENCE_SECONDS)? {
                (got, Reply::Data { bytes, .. }) if got == id => {
                    if let Err(error) = to.write_all(&bytes.0) {
                        self.0.send(id, &Request::Cancel {}, &[])?;
                        return Err(error.into());
                    }
                    total += bytes.0.len() as u64;
                    owed += bytes.0.len() as u32;
                    if owed >= WINDOW / 4 {
                        self.0.send(id, &Request::Credit { stream: Stream::Output {}, bytes: owed }, &[])?;
                        owed = 0;
                    }
                }
                (got, Reply::Eof { .. }) if got == id => {}
                (got, Reply::Done {}) if got == id => return Ok(total),
                (got, reply) => drop(credit_or_error(got, id, reply)?),
            }
        }
    }

    /// Lists a directory.
    pub fn list_dir(&mut self, path: &SafePath) -> Result<Vec<Entry>, FileError> {
        let id = self.0.fresh_id();
        self.0.send(id, &Request::ListDir { path: path.as_bytes().into() }, &[])?;
        let mut all = Vec::new();
        loop {
            match self.0.receive(PATIENCE_SECONDS)? {
                (got, Reply::Entries { entries }) if got == id && all.len() < MAX_ENTRIES => all.extend(entries),
                (got, Reply::Done {}) if got == id => return Ok(all),
                (got, reply) => drop(credit_or_error(got, id, reply)?),
            }
        }
    }

    /// Describes a path.
    pub fn stat(&mut self, path: &SafePath) -> Result<FileStat, FileError> {
        let id = self.0.fresh_id();
        self.0.send(id, &Request::Stat { path: path.as_bytes().into() }, &[])?;
        loop {
            match self.0.receive(PATIENCE_SECONDS)? {
                (got, Reply::Described { stat }) if got == id => return Ok(stat),
                (got, reply) => drop(credit_or_error(got, id, reply)?),
            }
        }
    }

    /// Removes a file or a whole directory.
    pub fn remove(&mut self, path: &SafePath) -> Result<(), FileError> {
        self.simple(&Request::Remove { path: path.as_bytes().into(), recursive: true })
    }

    /// Renames.
    pub fn rename(&mut self, from: &SafePath, to: &SafePath) -> Result<(), FileError> {
        self.simple(&Request::Rename { from: from.as_bytes().into(), to: to.as_bytes().into() })
    }

    /// Makes a directory and its parents.
    pub fn make_dir(&mut self, path: &SafePath, mode: u32) -> Result<(), FileError> {
        self.simple(&Request::MakeDir { path: path.as_bytes().into(), mode, parents: true })
    }

    fn simple(&mut self, request: &Request) -> Result<(), FileError> {
        let id = self.0.fresh_id();
        self.0.send(id, request, &[])?;
        loop {
            let (got, reply) = self.0.receive(PATIENCE_SECONDS)?;
            if got == id && reply == (Reply::Done {}) {
                return Ok(());
            }
            credit_or_error(got, id, reply)?;
        }
    }
}

/// Credit that a reply grants; replies to other requests are left-overs of ones that were given up.
fn credit_or_error(got: u32, id: u32, reply: Reply) -> Result<u64, FileError> {
    if got != id {
        return Ok(0);
    }
    match reply {
        Reply::Credit { bytes, .. } => Ok(u64::from(bytes)),
        Reply::Failed { kind, message } => Err(FileError::Refused { kind, message: stockade_core::escape::escape(&message) }),
        _ => Err(ConnectionError::OutOfTurn("an unexpected reply to a file request").into()),
    }
}
