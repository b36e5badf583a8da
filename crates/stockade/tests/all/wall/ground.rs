//! The ground that a test stands on: a user, a home, a state directory and a workspace of its own, and ways to run the program there.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::Outcome;

/// The ordinary user: nobody, who owns nothing and is in no group that matters.
const ORDINARY: u32 = 65534;
/// Nothing here takes that long; what does hangs.
const PATIENCE: Duration = Duration::from_mins(1);
/// Where programs are found, inside and outside.
pub(crate) const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Who runs the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    Root,
    Ordinary,
}

impl Who {
    pub(crate) fn uid(self) -> u32 {
        match self {
            Self::Root => 0,
            Self::Ordinary => ORDINARY,
        }
    }
}

/// Runs a test as root and as an ordinary user.
pub(crate) fn as_both(test: impl Fn(&Ground)) {
    for who in [Who::Root, Who::Ordinary] {
        let ground = Ground::new(who);
        // A failed assertion inside does not say who it was.
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| test(&ground)));
        assert!(result.is_ok(), "as {who:?}: see above");
    }
}

/// Directories of one user, gone with the value.
pub(crate) struct Ground {
    pub(crate) who: Who,
    pub(crate) base: PathBuf,
    pub(crate) home: PathBuf,
    pub(crate) state: PathBuf,
    pub(crate) work: PathBuf,
    pub(crate) binary: PathBuf,
    _directory: TempDir,
    _reachable: Option<Arc<TempDir>>,
}

impl Ground {
    pub(crate) fn new(who: Who) -> Self {
        assert!(rustix::process::geteuid().is_root(), "these tests run as root, so that they can be an ordinary user as well");
        let directory = tempfile::Builder::new().prefix("stockade-wall-").tempdir_in("/var/tmp").expect("a directory");
        let base = std::fs::canonicalize(directory.path()).expect("a real path");
        std::fs::set_permissions(&base, PermissionsExt::from_mode(0o755)).expect("mode");
        let (binary, reachable) = reachable_binary();
        let place = |name: &str| base.join(name);
        let ground = Self {
            who,
            home: place("home"),
            state: place("state"),
            work: place("work"),
            base,
            binary,
            _directory: directory,
            _reachable: reachable,
        };
        for path in [&ground.home, &ground.state, &ground.work] {
            ground.directory(path);
        }
        ground.insist_on_a_wall();
        ground
    }

    /// These tests do their worst as root: without any wall at all they must not even begin.
    fn insist_on_a_wall(&self) {
        static ROOT: OnceLock<()> = OnceLock::new();
        static ORDINARY: OnceLock<()> = OnceLock::new();
        let once = match self.who {
            Who::Root => &ROOT,
            Who::Ordinary => &ORDINARY,
        };
        once.get_or_init(|| {
            let script =
                "readlink /proc/self/ns/pid /proc/self/ns/mnt /proc/self/ns/net /proc/self/ns/ipc /proc/self/ns/uts /proc/self/ns/user";
            // With a state of its own, so that what is said once is still to be said.
            self.directory(&self.base.join("first-state"));
            let mut command = self.running(&["--workspace-mode", "ro"], &["bash", "-c", script]);
            let inside = finish(command.env("XDG_STATE_HOME", self.base.join("first-state")));
            assert_eq!((inside.code, inside.stdout.lines().count()), (Some(0), 6), "{inside:?}");
            let outside = self.host(script);
            let shared: Vec<(&str, &str)> = inside.stdout.lines().zip(outside.lines()).filter(|(i, o)| i == o).collect();
            assert!(shared.is_empty(), "there is no wall: {shared:?}");
        });
    }

    /// Makes a directory, and those above it, for this user.
    pub(crate) fn directory(&self, path: &Path) {
        if path.is_dir() {
            return;
        }
        self.directory(path.parent().expect("a parent"));
        std::fs::create_dir(path).expect("made");
        self.own(path);
    }

    /// Puts a file there, this user's.
    pub(crate) fn plant(&self, path: &Path, contents: &str, mode: u32) {
        self.directory(path.parent().expect("a parent"));
        std::fs::write(path, contents).expect("written");
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("mode");
        self.own(path);
    }

    /// Puts a file into the workspace.
    pub(crate) fn file(&self, name: &str, contents: &str) {
        self.plant(&self.work.join(name), contents, 0o644);
    }

    /// Puts a script into the workspace.
    pub(crate) fn script(&self, name: &str, contents: &str) {
        self.plant(&self.work.join(name), contents, 0o755);
    }

    pub(crate) fn own(&self, path: &Path) {
        chown(path, Some(self.who.uid()), Some(self.who.uid())).expect("chown");
    }

    /// What a file of the workspace holds on the host.
    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.work.join(name)).expect("a file of the workspace")
    }

    /// A command of the host as this user, in the workspace, with a clean environment.
    #[expect(clippy::disallowed_methods, reason = "programs that a test compares with, or starts the program through")]
    pub(crate) fn outside(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env_clear().current_dir(&self.work).stdin(Stdio::null());
        command.env("PATH", PATH).env("HOME", &self.home).env("XDG_STATE_HOME", &self.state).env("LANG", "C.UTF-8");
        if self.who == Who::Ordinary {
            // The standard library drops supplementary groups with the user.
            command.uid(ORDINARY).gid(ORDINARY);
        }
        command
    }

    /// Runs a shell script of the host as this user; it must succeed.
    pub(crate) fn host(&self, script: &str) -> String {
        let outcome = finish(self.outside("bash").args(["-euc", script]));
        assert_eq!(outcome.code, Some(0), "{script}: {outcome:?}");
        outcome.stdout
    }

    /// `stockade` with these words.
    pub(crate) fn stockade(&self, words: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
        let mut command = self.outside(&self.binary);
        command.args(words);
        command
    }

    /// Runs `stockade run FLAGS -- ARGV`, and waits until everything it leaves behind is cleared away.
    pub(crate) fn run(&self, flags: &[&str], argv: &[&str]) -> Outcome {
        let outcome = finish(&mut self.running(flags, argv));
        eventually("what the run left is cleared away", || !self.is_clearing_up());
        outcome
    }

    /// Whether a child of a run that has ended is still at work: it has our state and a session of its own.
    fn is_clearing_up(&self) -> bool {
        let state = [b"XDG_STATE_HOME=", self.state.as_os_str().as_bytes()].concat();
        std::fs::read_dir("/proc").expect("/proc").flatten().any(|entry| {
            let of = |name: &str| std::fs::read(entry.path().join(name)).unwrap_or_default();
            let session = || String::from_utf8_lossy(&of("stat")).rsplit(") ").next().and_then(|s| s.split(' ').nth(3).map(str::to_owned));
            let is_run = of("cmdline").split(|b| *b == 0).nth(1) == Some(b"run");
            is_run && of("environ").split(|b| *b == 0).any(|v| v == state) && session().as_deref() == entry.file_name().to_str()
        })
    }

    /// Runs a shell script inside.
    pub(crate) fn sh(&self, flags: &[&str], script: &str) -> Outcome {
        self.run(flags, &["bash", "-c", script])
    }

    /// Runs a Python program inside.
    pub(crate) fn python(&self, flags: &[&str], program: &str) -> Outcome {
        self.run(flags, &["/usr/bin/python3", "-c", program])
    }

    /// The command that [`Self::run`] runs.
    pub(crate) fn running(&self, flags: &[&str], argv: &[&str]) -> Command {
        self.stockade(["run"].iter().chain(flags).chain(&["--"]).chain(argv))
    }

    /// Runs with `--json`; gives the exit code and the object.
    pub(crate) fn json(&self, flags: &[&str], argv: &[&str]) -> (i32, Value) {
        let outcome = self.run(&[&["--json"], flags].concat(), argv);
        let value = serde_json::from_str(&outcome.stdout).unwrap_or_else(|e| panic!("{e}: {outcome:?}"));
        (outcome.code.expect("an exit code"), value)
    }

    /// A script inside must succeed; its stdout.
    pub(crate) fn good(&self, flags: &[&str], script: &str) -> String {
        let outcome = self.sh(flags, script);
        assert_eq!(outcome.code, Some(0), "{script}: {outcome:?}");
        outcome.stdout
    }

    /// Fails with 125 (or another code), says all of these words, and has the same in JSON.
    pub(crate) fn refused(&self, code: i32, flags: &[&str], argv: &[&str], says: &[&str]) {
        let outcome = self.run(flags, argv);
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(code), ""), "{flags:?} {argv:?}: {outcome:?}");
        for word in says {
            assert!(outcome.stderr.contains(word), "{word:?} is not in {:?}", outcome.stderr);
        }
        let (json_code, value) = self.json(flags, argv);
        assert_eq!(json_code, code, "{value}");
        let message = value["error"]["message"].as_str().unwrap_or_else(|| panic!("no message in {value}"));
        assert!(value["error"]["step"].is_string() && !message.is_empty(), "{value}");
        assert_eq!(self.sandboxes(), Vec::<String>::new(), "left behind by {flags:?} {argv:?}");
    }

    /// Names of what is in the state directory: running, kept and left sandboxes. What a run that has ended is clearing away is waited for.
    pub(crate) fn sandboxes(&self) -> Vec<String> {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            let mut names: Vec<String> = std::fs::read_dir(self.state.join("stockade/sandboxes"))
                .map(|entries| entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect())
                .unwrap_or_default();
            names.sort();
            if Instant::now() > end || !names.iter().any(|name| name.starts_with(".dead-")) {
                return names;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Everything below the workspace on the host: type, mode, owner and contents, to compare later.
    pub(crate) fn snapshot(&self) -> String {
        let script = "find . -printf '%P %y %m %U %l\\n' | sort; find . -type f -print0 | sort -z | xargs -0 -r sha256sum";
        finish(self.outside("bash").args(["-c", script])).stdout
    }
}

/// Runs a command to its end, and fails if there is none.
pub(crate) fn finish(command: &mut Command) -> Outcome {
    finish_with(command, b"")
}

/// The same with something on stdin (nothing: what the command says already).
pub(crate) fn finish_with(command: &mut Command, stdin: &[u8]) -> Outcome {
    if !stdin.is_empty() {
        command.stdin(Stdio::piped());
    }
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    if let Some(mut pipe) = child.stdin.take() {
        let stdin = stdin.to_owned();
        // The reader may be gone before it has read all, which is its right.
        std::thread::spawn(move || drop(pipe.write_all(&stdin)));
    }
    ended(child)
}

/// Runs a command that may take so long.
pub(crate) fn finish_within(command: &mut Command, patience: Duration) -> Outcome {
    ended_within(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts"), patience)
}

/// Waits for the end of a program that was started with pipes.
pub(crate) fn ended(child: Child) -> Outcome {
    ended_within(child, PATIENCE)
}

fn ended_within(mut child: Child, patience: Duration) -> Outcome {
    let stdout = child.stdout.take().map(reader);
    let stderr = child.stderr.take().map(reader);
    let end = Instant::now() + patience;
    let status = loop {
        if let Some(status) = child.try_wait().expect("waited") {
            break status;
        }
        if Instant::now() > end {
            child.kill().expect("killed");
            panic!("no end after {patience:?}: {child:?}");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let text = |reader: Option<std::thread::JoinHandle<String>>| reader.map(|r| r.join().expect("read")).unwrap_or_default();
    Outcome { code: status.code(), stdout: text(stdout), stderr: text(stderr) }
}

fn reader(mut from: impl Read + Send + 'static) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).expect("read");
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Waits until something holds; fails when it never does.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_mins(1);
    while !holds() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Processes of this machine whose command line holds a word.
pub(crate) fn processes(word: &str) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { panic!("/proc") };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()));
    let named = |pid: &u32| std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| contains(&line, word.as_bytes()));
    pids.filter(named).collect()
}

fn contains(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|window| window == word)
}

/// A word that occurs nowhere else: a number of seconds that `sleep` takes.
pub(crate) fn unique_seconds() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("77{}{:03}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The program where an ordinary user can execute it: as it is, else a link or copy that lives as long as a test holds it.
fn reachable_binary() -> (PathBuf, Option<Arc<TempDir>>) {
    static COPY: Mutex<Weak<TempDir>> = Mutex::new(Weak::new());
    let original = original_binary();
    if ordinary_can_execute(&original) {
        return (original, None);
    }
    let mut copy = COPY.lock().expect("lock");
    let directory = copy.upgrade().unwrap_or_else(|| {
        let directory = tempfile::Builder::new().prefix("stockade-binary-").tempdir_in("/var/tmp").expect("a directory");
        std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).expect("mode");
        let path = directory.path().join("stockade");
        if std::fs::hard_link(&original, &path).is_err() {
            std::fs::copy(&original, &path).expect("copied");
        }
        assert!(ordinary_can_execute(&path), "an ordinary user cannot execute {}", path.display());
        Arc::new(directory)
    });
    *copy = Arc::downgrade(&directory);
    (directory.path().join("stockade"), Some(directory))
}

#[expect(clippy::disallowed_methods, reason = "which program to test is the caller's to say")]
fn original_binary() -> PathBuf {
    let named = std::env::var_os("STOCKADE_TEST_BINARY").map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_stockade")), PathBuf::from);
    std::fs::canonicalize(&named).unwrap_or_else(|e| panic!("{}: {e}", named.display()))
}

#[expect(clippy::disallowed_methods, reason = "asks the kernel as the ordinary user")]
fn ordinary_can_execute(path: &Path) -> bool {
    let mut command = Command::new("/usr/bin/test");
    command.arg("-x").arg(path).uid(ORDINARY).gid(ORDINARY);
    command.status().is_ok_and(|status| status.success())
}
