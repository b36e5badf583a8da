//! The line in which processes wait to write.
//!
//! ```text
//!  next ─▶ hold ─▶ (next is given up) ─▶ writes ─▶ (hold is given up)
//! ```
//!
//! The database's own lock goes to whoever asks at the right moment. One who looks now and then may never find it free, and two hundred who look now and
//! then leave no processor to the one who writes. Here they sleep, and the kernel wakes one at a time: whoever comes next has its place while another
//! still writes, and one that just wrote gets in line behind it.
//!
//! The kernel gives the locks up with their process, however that ends. One that was stopped keeps them, so nobody waits for ever. A thread
//! waits in the caller's place, because a wait for such a lock has no end of its own; only one who has to wait starts it. The
//! line is for order, not for safety: two who write at once, because somebody removed its files, still meet at the database's lock.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use crate::error::{LedgerError, Problem};
use crate::queue::held;

/// The files, beside the database.
const NEXT: &str = "turn-next";
const HOLD: &str = "turn";
/// How long one waits for its turn: two hundred before it, on two processors that they need for other work too, take some seconds.
const PATIENCE: Duration = Duration::from_mins(1);

/// One who writes now and then, and its place in the line of one ledger.
#[derive(Debug)]
pub(crate) struct Line {
    directory: PathBuf,
    /// Opened once, unless a wait was given up: then they are the waiter's.
    files: Option<Files>,
    /// One that still waits, though its turn is not wanted any more.
    left: Option<Waiter>,
    patience: Duration,
}

/// The two locks, as descriptions of this line alone: a lock is its description's.
#[derive(Debug)]
struct Files {
    next: File,
    hold: File,
}

/// How far one has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    InLine,
    Next,
    Holding,
}

/// A thread that waits for a turn.
#[derive(Debug)]
struct Waiter {
    between: Arc<Between>,
    thread: JoinHandle<()>,
}

/// What the caller and the thread that waits for it tell each other.
#[derive(Debug)]
struct Between {
    word: Mutex<Word>,
    news: Condvar,
}

#[derive(Debug)]
enum Word {
    /// The turn is waited for.
    Wanted,
    /// It is not wanted any more. Should it come, it is given up at once.
    Unwanted,
    /// It came while it was wanted, or cannot come.
    Come(Result<Files, Errno>),
    /// Nothing comes any more.
    Over,
}

/// A turn; over with the value.
#[derive(Debug)]
pub(crate) struct Turn<'a>(&'a Files);

impl Line {
    /// The line of the ledger in this directory. Its files are made now, while there is room for them.
    pub(crate) fn open(directory: &Path) -> Result<Self, LedgerError> {
        let files = Some(Files::open(directory)?);
        Ok(Self { directory: directory.to_owned(), files, left: None, patience: PATIENCE })
    }

    /// Waits for a turn, though not for ever.
    pub(crate) fn turn(&mut self) -> Result<Turn<'_>, LedgerError> {
        if let Some(waiter) = self.left.take().filter(|waiter| waiter.between.want_again()) {
            // It has its place in line already.
            let files = self.wait(waiter)?;
            return Ok(Turn(self.files.insert(files)));
        }
        let files = self.files.take().map_or_else(|| Files::open(&self.directory), Ok)?;
        let files = match files.try_to_hold().map_err(|errno| self.failed("lock", errno.into()))? {
            Stage::Holding => files,
            stage => {
                let waiter = Waiter::start(files, stage).map_err(|error| self.failed("wait for", error))?;
                self.wait(waiter)?
            }
        };
        Ok(Turn(self.files.insert(files)))
    }

    /// Another patience, for tests.
    #[cfg(test)]
    pub(crate) fn be_patient_for(&mut self, patience: Duration) {
        self.patience = patience;
    }

    fn wait(&mut self, waiter: Waiter) -> Result<Files, LedgerError> {
        let Some(came) = waiter.between.wait(self.patience) else {
            self.left = Some(waiter);
            return Err(LedgerError::Database { step: "write", path: self.directory.join(HOLD), problem: Problem::Held });
        };
        // It is at its end. Some of what comes next wants to be the only thread.
        let _ = waiter.thread.join();
        came.map_err(|errno| self.failed("lock", errno.into()))
    }

    fn failed(&self, step: &'static str, error: std::io::Error) -> LedgerError {
        LedgerError::file(step, &self.directory.join(HOLD))(error)
    }
}

impl Files {
    fn open(directory: &Path) -> Result<Self, LedgerError> {
        let open = |name: &str| {
            let path = directory.join(name);
            let mut options = File::options();
            // Some file systems lock only what is open for writing.
            options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
            options.open(&path).map_err(LedgerError::file("open", &path))
        };
        Ok(Self { next: open(NEXT)?, hold: open(HOLD)? })
    }

    /// Goes as far as nobody is in the way.
    fn try_to_hold(&self) -> Result<Stage, Errno> {
        if !is_locked_now(&self.next)? {
            return Ok(Stage::InLine);
        }
        if !is_locked_now(&self.hold)? {
            return Ok(Stage::Next);
        }
        unlock(&self.next);
        Ok(Stage::Holding)
    }

    /// Goes the rest of the way, however long that takes.
    fn hold(&self, from: Stage) -> Result<(), Errno> {
        if from == Stage::InLine {
            rustix::io::retry_on_intr(|| flock(&self.next, FlockOperation::LockExclusive))?;
        }
        if from != Stage::Holding {
            rustix::io::retry_on_intr(|| flock(&self.hold, FlockOperation::LockExclusive))?;
            unlock(&self.next);
        }
        Ok(())
    }
}

impl Waiter {
    fn start(files: Files, from: Stage) -> Result<Self, std::io::Error> {
        let between = Arc::new(Between { word: Mutex::new(Word::Wanted), news: Condvar::new() });
        let its = Arc::clone(&between);
        let thread = std::thread::Builder::new().name("stockade-turn".into()).spawn(move || {
            let came = files.hold(from).map(|()| files);
            its.tell(came);
        })?;
        Ok(Self { between, thread })
    }
}

impl Between {
    /// The turn came. One that is not wanted goes with the files, before anybody can want it again.
    fn tell(&self, came: Result<Files, Errno>) {
        let mut word = held(&self.word);
        *word = match &*word {
            Word::Wanted => Word::Come(came),
            Word::Unwanted | Word::Come(_) | Word::Over => {
                drop(came);
                Word::Over
            }
        };
        drop(word);
        self.news.notify_one();
    }

    /// Whether it still waits, for a caller who wants the turn again.
    fn want_again(&self) -> bool {
        let mut word = held(&self.word);
        let waits = matches!(*word, Word::Unwanted);
        if waits {
            *word = Word::Wanted;
        }
        waits
    }

    /// Waits for the thread; `None` after this long, and the turn is not wanted any more.
    fn wait(&self, patience: Duration) -> Option<Result<Files, Errno>> {
        let word = held(&self.word);
        let waited = self.news.wait_timeout_while(word, patience, |word| matches!(word, Word::Wanted));
        let mut word = waited.unwrap_or_else(PoisonError::into_inner).0;
        match std::mem::replace(&mut *word, Word::Over) {
            Word::Come(came) => Some(came),
            Word::Wanted | Word::Unwanted | Word::Over => {
                *word = Word::Unwanted;
                None
            }
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        unlock(&self.0.hold);
    }
}

fn is_locked_now(file: &File) -> Result<bool, Errno> {
    match rustix::io::retry_on_intr(|| flock(file, FlockOperation::NonBlockingLockExclusive)) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(errno) => Err(errno),
    }
}

fn unlock(file: &File) {
    // It goes with the description at the latest.
    let _ = flock(file, FlockOperation::Unlock);
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use std::time::Instant;

    use super::*;

    fn line(directory: &Path, patience: Duration) -> Line {
        let mut line = Line::open(directory).unwrap();
        line.be_patient_for(patience);
        line
    }

    fn is_free(directory: &Path) -> bool {
        let files = Files::open(directory).unwrap();
        is_locked_now(&files.next).unwrap() && is_locked_now(&files.hold).unwrap()
    }

    /// Waits until so many are in line, as the kernel counts them.
    fn wait_until_in_line(directory: &Path, many: usize) {
        use std::os::unix::fs::MetadataExt as _;
        let numbers = [NEXT, HOLD].map(|name| format!(":{} ", directory.join(name).metadata().unwrap().ino()));
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            let locks = std::fs::read_to_string("/proc/locks").unwrap();
            let waiting = locks.lines().filter(|line| line.contains("->") && numbers.iter().any(|number| line.contains(number))).count();
            if waiting == many {
                return;
            }
            assert!(Instant::now() < end, "{waiting} are in line, not {many}:\n{locks}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn those_in_line_have_their_turns_in_the_order_in_which_they_came() {
        let directory = tempfile::tempdir().unwrap();
        let mut first = line(directory.path(), PATIENCE);
        let order = Mutex::new(Vec::new());
        let turn = first.turn().unwrap();
        std::thread::scope(|scope| {
            for number in 0..8 {
                let (order, directory) = (&order, directory.path());
                scope.spawn(move || {
                    let mut line = line(directory, PATIENCE);
                    let turn = line.turn().unwrap();
                    held(order).push(number);
                    drop(turn);
                });
                wait_until_in_line(directory, number + 1);
            }
            drop(turn);
        });
        assert_eq!(order.into_inner().unwrap(), (0..8).collect::<Vec<_>>());
        assert!(is_free(directory.path()));
    }

    /// Somebody who writes without a pause, and somebody who comes now and then: at most a turn or two lie between.
    #[test]
    fn one_who_never_pauses_does_not_keep_others_out() {
        let directory = tempfile::tempdir().unwrap();
        let (over, turns) = (AtomicBool::new(false), AtomicU32::new(0));
        let mut waited = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut line = line(directory.path(), PATIENCE);
                while !over.load(Ordering::SeqCst) {
                    let turn = line.turn().unwrap();
                    turns.fetch_add(1, Ordering::SeqCst);
                    std::thread::sleep(Duration::from_millis(2));
                    drop(turn);
                }
            });
            let mut line = line(directory.path(), PATIENCE);
            for _ in 0..50 {
                let before = turns.load(Ordering::SeqCst);
                // It has begun the next one.
                while turns.load(Ordering::SeqCst) == before {
                    std::thread::yield_now();
                }
                let before = turns.load(Ordering::SeqCst);
                drop(line.turn().unwrap());
                waited.push(turns.load(Ordering::SeqCst) - before);
            }
            over.store(true, Ordering::SeqCst);
        });
        waited.sort_unstable();
        assert!(waited[25] <= 2, "turns of the other in between: {waited:?}");
    }

    #[test]
    fn a_wait_ends_and_what_comes_too_late_is_given_up() {
        let directory = tempfile::tempdir().unwrap();
        let (mut one, mut other) = (line(directory.path(), PATIENCE), line(directory.path(), Duration::from_millis(50)));
        let turn = one.turn().unwrap();
        let begin = Instant::now();
        for _ in 0..5 {
            let error = other.turn().unwrap_err();
            assert!(matches!(error, LedgerError::Database { problem: Problem::Held, .. }), "{error}");
            assert!(error.hint().is_some_and(|hint| hint.contains("fuser")));
        }
        assert!((Duration::from_millis(250)..Duration::from_secs(20)).contains(&begin.elapsed()));
        // One thread waits, however often it is given up on.
        wait_until_in_line(directory.path(), 1);
        drop(turn);
        let end = Instant::now() + Duration::from_secs(20);
        while !is_free(directory.path()) {
            assert!(Instant::now() < end, "nobody gave up the turn that nobody wanted");
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(other.turn().unwrap());
    }

    #[test]
    fn one_who_comes_back_has_kept_its_place() {
        let directory = tempfile::tempdir().unwrap();
        let (mut one, mut other) = (line(directory.path(), PATIENCE), line(directory.path(), Duration::from_millis(20)));
        let order = Mutex::new(Vec::new());
        let turn = one.turn().unwrap();
        assert!(other.turn().is_err());
        other.patience = PATIENCE;
        std::thread::scope(|scope| {
            let order = &order;
            let take = |mut line: Line, name| {
                scope.spawn(move || {
                    let turn = line.turn().unwrap();
                    held(order).push(name);
                    drop(turn);
                })
            };
            take(line(directory.path(), PATIENCE), "came while the other was away");
            wait_until_in_line(directory.path(), 2);
            let back = take(other, "came back");
            // It is where it was: nobody new is in line.
            std::thread::sleep(Duration::from_millis(50));
            wait_until_in_line(directory.path(), 2);
            assert!(!back.is_finished());
            drop(turn);
        });
        assert_eq!(order.into_inner().unwrap(), ["came back", "came while the other was away"]);
        assert!(is_free(directory.path()));
    }

    /// Whether the kernel has it so, too: a process is killed while it has its turn.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "a process that is there to be killed")]
    fn a_turn_ends_with_its_process() {
        let directory = tempfile::tempdir().unwrap();
        let mut line = line(directory.path(), PATIENCE);
        let hold = directory.path().join(HOLD);
        let mut holder = std::process::Command::new("flock").arg("--no-fork").arg(&hold).args(["sleep", "600"]).spawn().unwrap();
        let end = Instant::now() + Duration::from_secs(20);
        while is_free(directory.path()) {
            assert!(Instant::now() < end);
            std::thread::sleep(Duration::from_millis(1));
        }
        line.patience = Duration::from_millis(50);
        assert!(line.turn().is_err());
        line.patience = PATIENCE;
        holder.kill().unwrap();
        holder.wait().unwrap();
        drop(line.turn().unwrap());
    }

    #[test]
    fn its_files_are_for_nobody_else_and_one_that_cannot_be_made_is_told() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        drop(Line::open(directory.path()).unwrap());
        for name in [NEXT, HOLD] {
            assert_eq!(directory.path().join(name).metadata().unwrap().permissions().mode() & 0o777, 0o600);
            std::fs::remove_file(directory.path().join(name)).unwrap();
        }
        std::os::unix::fs::symlink("/dev/null", directory.path().join(HOLD)).unwrap();
        let error = Line::open(directory.path()).unwrap_err();
        assert!(error.to_string().contains("open") && error.to_string().contains("turn"), "{error}");
    }
}
