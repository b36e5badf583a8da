//! Listing a directory, in frames of bounded size.
//!
//! Owns `ListDir`. Names come in the order of the file system; those that vanish while listing are left out.

use rustix::fs::{Dir, Mode, OFlags};
use stockade_wire::codec::Bytes;
use stockade_wire::message::{Entry, FileKind, Reply};

use crate::context::{Context, Progress};
use crate::failure::Failure;
use crate::files::describe_at;
use crate::paths;

/// Names in one frame.
const MOST_NAMES: usize = 256;
/// Bytes of names and link targets in one frame, roughly.
const MOST_BYTES: usize = 64 << 10;

/// A directory being listed.
pub(crate) struct Listing {
    directory: Dir,
    path: Vec<u8>,
}

impl Listing {
    /// Opens a directory.
    pub(crate) fn start(path: &[u8]) -> Result<Self, Failure> {
        let name = paths::absolute(path)?;
        let about = |errno| Failure::about(path, errno);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(&name, flags, Mode::empty()).map_err(about)?;
        Ok(Self { directory: Dir::new(fd).map_err(about)?, path: path.to_vec() })
    }

    /// Sends one frame of names.
    pub(crate) fn step(&mut self, context: &mut Context, id: u32) -> Progress {
        let mut entries = Vec::new();
        let mut bytes = 0;
        let mut ended = false;
        while entries.len() < MOST_NAMES && bytes < MOST_BYTES {
            let entry = match self.directory.read() {
                None => {
                    ended = true;
                    break;
                }
                Some(Ok(entry)) => entry,
                Some(Err(errno)) => return context.fail(id, Failure::about(&self.path, errno)),
            };
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let Ok(stat) = self.directory.fd().and_then(|directory| describe_at(directory, name)) else { continue };
            bytes += name.to_bytes().len();
            if let FileKind::Symlink { target } = &stat.kind {
                bytes += target.0.len();
            }
            entries.push(Entry { name: Bytes::from(name.to_bytes()), stat });
        }
        if !entries.is_empty() {
            context.reply(id, &Reply::Entries { entries });
        }
        if ended { context.done(id) } else { Progress::Again }
    }
}
