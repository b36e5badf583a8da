//! File contents: streamed out against credit, streamed in to a temporary file that is renamed when complete.
//!
//! Owns `ReadFile` and `WriteFile`, and the same through a pipe of the host (`transfer` moves the bytes then). Never holds more than one
//! chunk of a file. A reader of the target sees the old contents or the new ones; a cancelled or failed write leaves nothing behind.

use std::ffi::{CStr, CString};
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use stockade_wire::message::{Reply, Stream};

use crate::channel::CHUNK;
use crate::context::{Context, Progress};
use crate::failure::Failure;
use crate::flow::{Overrun, ReceiveWindow, SendCredit};
use crate::transfer::{Moved, Transfer};
use crate::{paths, tree};

/// How many symbolic links in the place of the file itself are followed.
const MAX_LINKS: usize = 8;
/// How often a new temporary name is tried.
const NAME_TRIES: usize = 8;

/// A file being read.
pub(crate) struct Reading {
    file: OwnedFd,
    path: Vec<u8>,
    offset: u64,
    left: u64,
    credit: SendCredit,
    /// Where the contents go, if not into data frames.
    pipe: Option<Transfer>,
}

impl Reading {
    /// Opens a file; only regular ones, because others may never end or never answer.
    pub(crate) fn start(path: &[u8], offset: u64, limit: u64, pipe: Option<Transfer>) -> Result<Self, Failure> {
        let name = paths::absolute(path)?;
        // Without NONBLOCK, opening a named pipe would wait for its writer.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = rustix::fs::open(&name, flags, Mode::empty()).map_err(|errno| Failure::about(path, errno))?;
        let stat = rustix::fs::fstat(&file).map_err(|errno| Failure::about(path, errno))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {}
            FileType::Directory => return Err(Failure::about(path, Errno::ISDIR)),
            _ => return Err(Failure::invalid(format!("{} is not a regular file", crate::failure::quoted(path)))),
        }
        let left = if limit == 0 { u64::MAX } else { limit };
        Ok(Self { file, path: path.to_vec(), offset, left, credit: SendCredit::new(), pipe })
    }

    /// The host takes more.
    pub(crate) fn grant(&mut self, bytes: u32) {
        self.credit.grant(bytes);
    }

    /// Sends one chunk.
    pub(crate) fn step(&mut self, context: &mut Context, id: u32) -> Progress {
        let want = CHUNK.min(usize::try_from(self.left).unwrap_or(usize::MAX));
        if let Some(pipe) = &mut self.pipe {
            return match pipe.fill(&self.file, &mut self.offset, &mut self.left) {
                Ok(Moved::Some) => Progress::Again,
                Ok(Moved::Nothing) => Progress::Idle,
                // Its end is closed with this request, before the host reads that it is done.
                Ok(Moved::All) => context.done(id),
                Err(errno) => context.fail(id, Failure::about(&self.path, errno)),
            };
        }
        if want == 0 {
            return finish(context, id);
        }
        let most = self.credit.allowed(want);
        if most == 0 {
            return Progress::Idle;
        }
        match rustix::io::pread(&self.file, context.channel.data_space(most), self.offset) {
            Ok(0) => finish(context, id),
            Ok(count) => {
                context.channel.send_data(id, &Stream::Output {}, count);
                self.credit.spend(count);
                self.offset = self.offset.saturating_add(count as u64);
                self.left = self.left.saturating_sub(count as u64);
                Progress::Again
            }
            Err(Errno::INTR) => Progress::Again,
            Err(errno) => context.fail(id, Failure::about(&self.path, errno)),
        }
    }
}

fn finish(context: &mut Context, id: u32) -> Progress {
    context.reply(id, &Reply::Eof { stream: Stream::Output {} });
    context.done(id)
}

/// A file being written.
pub(crate) struct Writing {
    directory: OwnedFd,
    temporary: CString,
    target: CString,
    file: OwnedFd,
    path: Vec<u8>,
    mode: Mode,
    window: ReceiveWindow,
    renamed: bool,
    source: Source,
}

/// Where the contents of a file come from.
#[derive(Default)]
enum Source {
    /// Data frames.
    #[default]
    Frames,
    /// A pipe. An end of it that the host did not announce is a host that went away.
    Pipe(Transfer, Announced),
    /// A pipe that is empty and closed; the announcement is still on its way.
    Drained,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Announced {
    Yes,
    No,
}

impl Writing {
    /// Makes the temporary file beside the target.
    pub(crate) fn start(path: &[u8], mode: u32, parents: bool, pipe: Option<Transfer>) -> Result<Self, Failure> {
        paths::split(path)?;
        if path.last() == Some(&b'/') {
            return Err(Failure::about(path, Errno::ISDIR));
        }
        let place = followed(path)?;
        let (parent, target) = paths::split(&place)?;
        if parents {
            tree::make_parents(parent.as_bytes())?;
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(&parent, flags, Mode::empty()).map_err(|errno| Failure::about(parent.as_bytes(), errno))?;
        if let Ok(stat) = rustix::fs::statat(&directory, &target, AtFlags::SYMLINK_NOFOLLOW)
            && FileType::from_raw_mode(stat.st_mode) == FileType::Directory
        {
            return Err(Failure::about(path, Errno::ISDIR));
        }
        let (temporary, file) = temporary(&directory).map_err(|errno| Failure::about(path, errno))?;
        Ok(Self {
            directory,
            temporary,
            target,
            file,
            path: path.to_vec(),
            mode: Mode::from_raw_mode(mode & 0o777),
            window: ReceiveWindow::new(),
            renamed: false,
            source: pipe.map_or(Source::Frames, |pipe| Source::Pipe(pipe, Announced::No)),
        })
    }

    /// Writes bytes that arrived.
    pub(crate) fn input(&mut self, bytes: &[u8], context: &mut Context, id: u32) -> Result<Progress, Overrun> {
        self.window.receive(bytes.len())?;
        let mut rest = bytes;
        while !rest.is_empty() {
            match rustix::io::write(&self.file, rest) {
                Ok(0) => return Ok(context.fail(id, Failure::about(&self.path, Errno::NOSPC))),
                Ok(count) => rest = rest.get(count..).unwrap_or_default(),
                Err(Errno::INTR) => {}
                Err(errno) => return Ok(context.fail(id, Failure::about(&self.path, errno))),
            }
        }
        context.grant(id, self.window.consume(bytes.len()));
        Ok(Progress::Idle)
    }

    /// The host has sent everything, or put it into the pipe.
    pub(crate) fn end_input(&mut self, context: &mut Context, id: u32) -> Progress {
        if let Source::Pipe(_, announced) = &mut self.source {
            *announced = Announced::Yes;
            return Progress::Again;
        }
        self.complete(context, id)
    }

    /// Moves bytes from the pipe, if there is one.
    pub(crate) fn step(&mut self, context: &mut Context, id: u32) -> Progress {
        let Source::Pipe(pipe, announced) = &mut self.source else { return Progress::Idle };
        match (pipe.drain(&self.file), *announced) {
            (Ok(Moved::Some), _) => Progress::Again,
            (Ok(Moved::Nothing), _) => Progress::Idle,
            (Ok(Moved::All), Announced::Yes) => self.complete(context, id),
            (Ok(Moved::All), Announced::No) => {
                self.source = Source::Drained;
                Progress::Idle
            }
            (Err(errno), _) => context.fail(id, Failure::about(&self.path, errno)),
        }
    }

    /// All bytes are there: the file appears under its name.
    fn complete(&mut self, context: &mut Context, id: u32) -> Progress {
        let renamed = rustix::fs::fchmod(&self.file, self.mode)
            .and_then(|()| rustix::fs::renameat(&self.directory, &self.temporary, &self.directory, &self.target));
        match renamed {
            Ok(()) => {
                self.renamed = true;
                context.done(id)
            }
            Err(errno) => context.fail(id, Failure::about(&self.path, errno)),
        }
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        if !self.renamed {
            let _ = rustix::fs::unlinkat(&self.directory, &self.temporary, AtFlags::empty());
        }
    }
}

/// Where a write really goes: a symbolic link in the place of the file is kept, and what it names is replaced.
fn followed(path: &[u8]) -> Result<Vec<u8>, Failure> {
    let mut place = path.to_vec();
    for _ in 0..MAX_LINKS {
        let (parent, name) = paths::split(&place)?;
        let target = match rustix::fs::readlinkat(CWD, paths::join(parent.as_bytes(), name.as_bytes()), Vec::new()) {
            Ok(target) => target.into_bytes(),
            // Not a link, or nothing there (yet).
            Err(_) => return Ok(place),
        };
        place = if target.first() == Some(&b'/') { target } else { paths::join(parent.as_bytes(), &target) };
    }
    Err(Failure::about(path, Errno::LOOP))
}

fn temporary(directory: &OwnedFd) -> Result<(CString, OwnedFd), Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    for _ in 0..NAME_TRIES {
        let name = temporary_name()?;
        match rustix::fs::openat(directory, &name, flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => return Ok((name, file)),
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::EXIST)
}

/// A name that nobody else uses.
pub(crate) fn temporary_name() -> Result<CString, Errno> {
    let mut random = [0u8; 8];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
    let name = format!(".stockade-{:016x}", u64::from_ne_bytes(random));
    CString::new(name).map_err(|_| Errno::INVAL)
}

/// Describes a path without following a final link.
pub(crate) fn describe_at(directory: impl rustix::fd::AsFd, name: &CStr) -> Result<stockade_wire::message::FileStat, Errno> {
    use stockade_wire::codec::Bytes;
    use stockade_wire::message::{FileKind, FileStat};
    let stat = rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => FileKind::File {},
        FileType::Directory => FileKind::Directory {},
        FileType::Symlink => FileKind::Symlink {
            target: Bytes(rustix::fs::readlinkat(&directory, name, Vec::new()).map_or(Vec::new(), CString::into_bytes)),
        },
        _ => FileKind::Other {},
    };
    #[allow(clippy::useless_conversion, clippy::unnecessary_fallible_conversions, reason = "the types differ between architectures")]
    Ok(FileStat {
        kind,
        size: u64::try_from(stat.st_size).unwrap_or(0),
        mode: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        modified: (i64::try_from(stat.st_mtime).unwrap_or(0), u32::try_from(stat.st_mtime_nsec).unwrap_or(0)),
    })
}
