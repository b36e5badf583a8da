//! What an agent with a name remembers from one run to the next: its conversations, so that it can go on with one.
//!
//! ```text
//! <state>/memories/<profile>-<name>/…    0700, what the profile names of the agent's directory
//! ```
//!
//! Read out of the sandbox when the agent has ended, within bounds; put into the next one of that name. It was written inside, so nothing here
//! looks into it. What was not used for a week goes.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

use stockade_core::id::SandboxName;
use stockade_core::path::SafePath;
use stockade_sandbox::files::Files;
use stockade_sandbox::once::HomeFile;
use stockade_sandbox::state::KEEP;
use stockade_sandbox::wire::FileKind;
use stockade_store::places::Places;
use stockade_store::private_dir::ensure_private_dir;

use super::profile::Profile;
use crate::failure::Failure;

/// Files of one agent.
const MAX_FILES: usize = 2000;
/// Bytes of all of them.
const MAX_TOTAL: usize = 64 << 20;
/// Directories in directories.
const MAX_DEPTH: usize = 8;
/// Beneath the state directory.
const MEMORIES: &str = "memories";

/// The memory of one name.
#[derive(Debug)]
pub(crate) struct Memory {
    /// All of it.
    place: PathBuf,
    /// The agent's directory in the sandbox.
    inside: PathBuf,
    /// What of that directory is remembered.
    names: Vec<String>,
    /// Why what the agent left could not be kept.
    failed: RefCell<Option<String>>,
}

impl Memory {
    /// The memory of an agent that has a name and something to remember. `inside` is its directory in the sandbox.
    pub(crate) fn of(profile: &Profile, name: Option<&SandboxName>, inside: &Path, places: &Places) -> Result<Option<Self>, Failure> {
        let Some(name) = name.filter(|_| !profile.remembers.is_empty()) else { return Ok(None) };
        // A profile of a person's own may be called anything.
        let kind: SandboxName = profile.name.parse().map_err(|error| Failure::from_error("profile", &error))?;
        let all = places.state.join(MEMORIES);
        ensure_private_dir(&all).map_err(|error| Failure::from_error("memory", &error))?;
        forget_old(&all);
        let place = all.join(format!("{kind}-{name}"));
        Ok(Some(Self { place, inside: inside.to_owned(), names: profile.remembers.clone(), failed: RefCell::default() }))
    }

    /// What is remembered, as it is put inside.
    pub(crate) fn recall(&self) -> Vec<HomeFile> {
        let mut found = Vec::new();
        let mut queue = vec![PathBuf::new()];
        while let Some(at) = queue.pop() {
            for entry in std::fs::read_dir(self.place.join(&at)).into_iter().flatten().flatten() {
                let (path, kind) = (at.join(entry.file_name()), entry.file_type());
                if kind.as_ref().is_ok_and(std::fs::FileType::is_dir) {
                    queue.push(path);
                } else if let (Ok(place), Ok(contents)) = (SafePath::new(self.inside.join(&path)), std::fs::read(self.place.join(&path))) {
                    found.push(HomeFile { path: place, contents, mode: 0o600 });
                }
            }
        }
        found.sort_by(|a, b| a.path.cmp(&b.path));
        found
    }

    /// Keeps what the agent left. All of it or nothing: half a conversation is worse than the one before.
    pub(crate) fn keep(&self, inside: &mut Files<'_>) {
        let mut reader = Reader { memory: self, inside, found: Vec::new(), total: 0 };
        let read = self.names.iter().try_for_each(|name| reader.top(Path::new(name)));
        let found = reader.found;
        let kept = read.and_then(|()| if found.is_empty() { Ok(()) } else { self.replace(&found).map_err(|error| error.to_string()) });
        *self.failed.borrow_mut() = kept.err();
    }

    /// Why the last [`Self::keep`] failed.
    pub(crate) fn failure(&self) -> Option<String> {
        self.failed.borrow().clone()
    }

    fn replace(&self, found: &[(PathBuf, Vec<u8>)]) -> std::io::Result<()> {
        // Of nobody else: an agent's name is taken while it runs.
        let name = self.place.file_name().unwrap_or_default().to_string_lossy();
        let draft = self.place.with_file_name(format!(".draft-{name}"));
        remove(&draft)?;
        for (path, contents) in found {
            let place = draft.join(path);
            private_directory(place.parent().unwrap_or(&draft))?;
            std::fs::write(place, contents)?;
        }
        remove(&self.place)?;
        std::fs::rename(&draft, &self.place)
    }
}

/// Reads what is remembered out of a sandbox. What it says is not believed: names, counts and lengths are checked.
struct Reader<'a, 'b> {
    memory: &'a Memory,
    inside: &'a mut Files<'b>,
    found: Vec<(PathBuf, Vec<u8>)>,
    total: usize,
}

impl Reader<'_, '_> {
    /// A name that the profile has; it need not be there.
    fn top(&mut self, path: &Path) -> Result<(), String> {
        let Ok(stat) = self.inside.stat(&self.place(path)?) else { return Ok(()) };
        self.take(path, &stat.kind, 0)
    }

    fn take(&mut self, path: &Path, kind: &FileKind, depth: usize) -> Result<(), String> {
        match kind {
            FileKind::File {} if self.found.len() < MAX_FILES => self.file(path),
            FileKind::Directory {} if depth < MAX_DEPTH => self.directory(path, depth),
            FileKind::File {} | FileKind::Directory {} => Err(format!("there are more than {MAX_FILES} files, or they lie too deep")),
            // No conversation is one of these.
            FileKind::Symlink { .. } | FileKind::Other {} => Ok(()),
        }
    }

    fn directory(&mut self, path: &Path, depth: usize) -> Result<(), String> {
        let entries = self.inside.list_dir(&self.place(path)?).map_err(|error| error.to_string())?;
        for entry in entries {
            let name = Path::new(OsStr::from_bytes(&entry.name.0));
            let mut parts = name.components();
            if !matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None)) {
                return Err("a name there is none".into());
            }
            self.take(&path.join(name), &entry.stat.kind, depth + 1)?;
        }
        Ok(())
    }

    fn file(&mut self, path: &Path) -> Result<(), String> {
        let mut bytes = Bounded { bytes: Vec::new(), room: MAX_TOTAL - self.total };
        let place = self.place(path)?;
        self.inside.read_file(&place, &mut bytes).map_err(|error| error.to_string())?;
        self.total += bytes.bytes.len();
        self.found.push((path.to_owned(), bytes.bytes));
        Ok(())
    }

    fn place(&self, path: &Path) -> Result<SafePath, String> {
        SafePath::new(self.memory.inside.join(path)).map_err(|error| error.to_string())
    }
}

/// So many bytes and no more.
struct Bounded {
    bytes: Vec<u8>,
    room: usize,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.bytes.len() + bytes.len() > self.room {
            return Err(std::io::Error::other(format!("it is more than {} MiB", MAX_TOTAL >> 20)));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// What cannot be removed now is tried again by the next.
fn forget_old(all: &Path) {
    for entry in std::fs::read_dir(all).into_iter().flatten().flatten() {
        let changed = entry.metadata().and_then(|data| data.modified());
        if changed.is_ok_and(|changed| SystemTime::now().duration_since(changed).is_ok_and(|age| age > KEEP)) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

fn remove(directory: &Path) -> std::io::Result<()> {
    match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn private_directory(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}
