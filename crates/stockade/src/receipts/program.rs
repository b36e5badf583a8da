//! Which file a program is, and the digest of it.
//!
//! The file is found before anything runs, as the sandbox will find it, and kept open; which one was executed, the guest says when it has started.
//! Where both are the same, the digest is that of the open file. Digests are remembered by device, inode, time of change and size, so that
//! a large program is read once.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::OFlags;
use stockade_core::spec::{MountMode, SandboxSpec};
use stockade_ledger::receipt::Program;
use stockade_store::private_dir::ensure_private_dir;
use stockade_verify::text::from_hex;

use super::describe::shown;
use super::hash::hashed;

/// The directory of remembered digests beneath the state.
const DIRECTORY: &str = "digests";
/// How many are remembered.
const SLOTS: u64 = 4096;
/// A remembered digest is one short line.
const MOST_LINE: u64 = 256;
/// Bytes of a program that are read before it starts, where its digest is not remembered; of a larger one they are read afterwards.
const READ_BEFORE: u64 = 1 << 20;
/// Bytes of a program that are read at all.
const MOST_READ: u64 = 4 << 30;
/// A file that changed less long ago may change again without its time telling.
const SETTLED: Duration = Duration::from_secs(2);
/// Where programs are looked for when the environment has no `PATH`, as the guest does.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Finds programs and remembers their digests.
#[derive(Debug, Clone)]
pub(crate) struct Programs {
    directory: PathBuf,
}

/// A program that was found before it started.
#[derive(Debug)]
pub(crate) struct Candidate {
    /// Where it lies inside.
    inside: PathBuf,
    file: Option<(File, Stamp)>,
}

/// What changes whenever a file does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    changed: (i64, i64),
    size: u64,
}

/// How long a digest may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Patience {
    /// Somebody waits.
    Little,
    Much,
}

/// What earlier programs of a sandbox may have changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Past {
    /// It is fresh: what is inside is what is outside.
    Fresh,
    /// Others ran in it before.
    Used,
}

impl Programs {
    /// With what is remembered in this state directory.
    pub(crate) fn new(state: &Path) -> Self {
        Self { directory: state.join(DIRECTORY) }
    }

    /// Looks for a program as the guest will.
    pub(crate) fn find(name: &OsStr, spec: &SandboxSpec, past: Past) -> Option<Candidate> {
        let inside = places(name, spec).into_iter().find(|inside| is_program(&outside(spec, inside)))?;
        let file = if may_differ(spec, &inside, past) { None } else { open(&outside(spec, &inside)) };
        Some(Candidate { inside, file })
    }

    /// What is known of a program that is about to start, and costs little to know.
    pub(crate) fn expected(&self, candidate: &Candidate) -> Program {
        let sha256 = candidate.file.as_ref().and_then(|(file, stamp)| self.digest(file, *stamp, Patience::Little));
        Program { path: shown(&candidate.inside), sha256 }
    }

    /// The program that was executed, with the digest of its file as it was when it started.
    pub(crate) fn executed(&self, candidate: Option<&Candidate>, executed: &Path) -> Program {
        let file = candidate.filter(|candidate| candidate.inside == executed).and_then(|candidate| candidate.file.as_ref());
        let sha256 = file.and_then(|(file, stamp)| self.digest(file, *stamp, Patience::Much));
        Program { path: shown(executed), sha256 }
    }

    /// Where a program lies outside, and the digest of its file, however long that takes.
    pub(crate) fn look_up(&self, name: &OsStr, spec: &SandboxSpec) -> Option<(PathBuf, Option<String>)> {
        let candidate = Self::find(name, spec, Past::Fresh)?;
        let sha256 = candidate.file.as_ref().and_then(|(file, stamp)| self.digest(file, *stamp, Patience::Much));
        Some((outside(spec, &candidate.inside), sha256))
    }

    fn digest(&self, file: &File, stamp: Stamp, patience: Patience) -> Option<String> {
        if let Some(digest) = self.remembered(stamp) {
            return Some(digest);
        }
        let most = match patience {
            Patience::Little => READ_BEFORE,
            Patience::Much => MOST_READ,
        };
        let digest = if stamp.size <= most { hashed(file)? } else { return None };
        // Changed while it was read, or since it was found: nobody knows what was executed.
        if Stamp::of(file)? != stamp {
            return None;
        }
        self.remember(stamp, &digest);
        Some(digest)
    }

    fn remembered(&self, stamp: Stamp) -> Option<String> {
        let mut line = String::new();
        File::open(self.slot(stamp)).ok()?.take(MOST_LINE).read_to_string(&mut line).ok()?;
        let digest = line.strip_prefix(&stamp.line())?.strip_prefix(' ')?.trim_end();
        from_hex::<32>(digest).map(|_| digest.to_owned())
    }

    /// Where it cannot be written down it is read again, which does no harm.
    fn remember(&self, stamp: Stamp, digest: &str) {
        if !stamp.is_settled() || ensure_private_dir(&self.directory).is_err() {
            return;
        }
        let path = self.slot(stamp);
        let draft = path.with_extension(std::process::id().to_string());
        let written = std::fs::write(&draft, format!("{} {digest}\n", stamp.line())).and_then(|()| std::fs::rename(&draft, &path));
        if written.is_err() {
            let _ = std::fs::remove_file(&draft);
        }
    }

    /// One of a fixed number of places, so that they cannot become ever more.
    fn slot(&self, stamp: Stamp) -> PathBuf {
        let number = stamp.device.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(stamp.inode) % SLOTS;
        self.directory.join(format!("{number:03x}"))
    }
}

impl Stamp {
    fn of(file: &File) -> Option<Self> {
        let found = file.metadata().ok()?;
        let changed = (found.ctime(), found.ctime_nsec());
        Some(Self { device: found.dev(), inode: found.ino(), changed, size: found.size() })
    }

    fn line(&self) -> String {
        let Self { device, inode, changed: (seconds, nanoseconds), size } = self;
        format!("{device} {inode} {seconds} {nanoseconds} {size}")
    }

    /// Whether it changed long enough ago for another change to be told by its time.
    fn is_settled(self) -> bool {
        let Ok(seconds) = u64::try_from(self.changed.0) else { return false };
        SystemTime::now().duration_since(UNIX_EPOCH + Duration::from_secs(seconds)).is_ok_and(|age| age > SETTLED)
    }
}

/// Where a program may lie inside, in the order in which the guest tries.
fn places(name: &OsStr, spec: &SandboxSpec) -> Vec<PathBuf> {
    let cwd = spec.cwd.as_path();
    if name.as_bytes().contains(&b'/') {
        return vec![cwd.join(name)];
    }
    let path = spec.env.iter().find(|(known, _)| known == "PATH").map_or(OsStr::new(DEFAULT_PATH), |(_, value)| value.as_os_str());
    std::env::split_paths(path).map(|directory| cwd.join(directory).join(name)).collect()
}

/// Where a path of the inside lies outside: the same, but for mounts.
pub(crate) fn outside(spec: &SandboxSpec, inside: &Path) -> PathBuf {
    let within = spec.mounts.iter().filter_map(|mount| Some((mount, inside.strip_prefix(mount.guest.as_path()).ok()?)));
    match within.max_by_key(|(mount, _)| mount.guest.as_path().components().count()) {
        Some((mount, rest)) if rest.as_os_str().is_empty() => mount.host.as_path().to_owned(),
        Some((mount, rest)) => mount.host.as_path().join(rest),
        None => inside.to_owned(),
    }
}

/// Whether the file inside may be another than the one outside: where programs of the sandbox could have written before.
fn may_differ(spec: &SandboxSpec, inside: &Path, past: Past) -> bool {
    if past == Past::Fresh {
        return false;
    }
    let own = [
        spec.workspace.path.as_path(),
        spec.home.as_path(),
        Path::new("/tmp"),
        Path::new("/var/tmp"),
        Path::new("/dev"),
        Path::new("/run"),
    ];
    let mounts = spec.mounts.iter().filter(|mount| mount.mode != MountMode::Ro).map(|mount| mount.guest.as_path());
    own.into_iter().chain(mounts).any(|place| inside.starts_with(place))
}

fn is_program(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// Opens a file without waiting for it, whatever it is; only a plain file is a program.
fn open(path: &Path) -> Option<(File, Stamp)> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path).ok()?;
    let stamp = file.metadata().ok()?.is_file().then(|| Stamp::of(&file)).flatten()?;
    Some((file, stamp))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::ffi::OsString;

    use sha2::{Digest as _, Sha256};
    use stockade_core::limits::Limits;
    use stockade_core::path::SafePath;
    use stockade_core::spec::{Mount, Workspace};
    use stockade_verify::text::to_hex;

    use super::*;

    fn spec(root: &Path) -> SandboxSpec {
        let safe = |path: &Path| SafePath::new(path).unwrap();
        SandboxSpec {
            workspace: Workspace { path: safe(&root.join("work")), mode: MountMode::Overlay, git_common: None },
            mounts: vec![Mount { host: safe(&root.join("tools")), guest: safe(Path::new("/opt/tools")), mode: MountMode::Ro }],
            env: vec![("PATH".into(), OsString::from("/opt/tools/bin:/usr/bin"))],
            cwd: safe(&root.join("work")),
            home: safe(Path::new("/home/sandbox")),
            exec_list: None,
            limits: Limits::default(),
            allow_degraded: BTreeSet::new(),
            path_dirs: Vec::new(),
        }
    }

    fn plant(path: &Path, text: &str) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn programs_are_found_as_the_guest_finds_them() {
        let root = tempfile::tempdir().unwrap();
        let spec = spec(root.path());
        plant(&root.path().join("tools/bin/tool"), "one");
        plant(&root.path().join("work/own"), "two");
        let programs = Programs::new(&root.path().join("state"));
        let sha256 = |text: &str| Some(to_hex(&Sha256::digest(text)));
        let found = Programs::find(OsStr::new("tool"), &spec, Past::Fresh).unwrap();
        assert_eq!(programs.expected(&found), Program { path: "/opt/tools/bin/tool".into(), sha256: sha256("one") });
        let own = Programs::find(OsStr::new("./own"), &spec, Past::Fresh).unwrap();
        let inside = root.path().join("work/./own");
        assert_eq!(programs.executed(Some(&own), &inside), Program { path: shown(&inside), sha256: sha256("two") });
        assert_eq!(programs.executed(Some(&own), Path::new("/usr/bin/other")).sha256, None, "another than was expected");
        assert_eq!(programs.expected(&Programs::find(OsStr::new("./own"), &spec, Past::Used).unwrap()).sha256, None);
        assert!(Programs::find(OsStr::new("nothing-of-that-name"), &spec, Past::Fresh).is_none());
    }

    #[test]
    fn a_digest_is_remembered_until_the_file_changes() {
        let root = tempfile::tempdir().unwrap();
        let programs = Programs::new(&root.path().join("state"));
        let path = root.path().join("program");
        plant(&path, "one");
        let (file, stamp) = open(&path).unwrap();
        let old = Stamp { changed: (1, 0), ..stamp };
        assert_eq!(programs.digest(&file, stamp, Patience::Little), Some(to_hex(&Sha256::digest("one"))));
        assert_eq!(programs.remembered(stamp), None, "what changed this very moment is not remembered");
        programs.remember(old, &to_hex(&[7; 32]));
        assert_eq!(programs.digest(&file, old, Patience::Little), Some(to_hex(&[7; 32])));
        assert_eq!(programs.remembered(Stamp { size: 4, ..old }), None);
        std::fs::write(&path, "changed").unwrap();
        assert_eq!(programs.digest(&file, stamp, Patience::Much), None, "nobody knows what was executed");
    }
}
