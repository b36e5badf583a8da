//! Runs the program that a person named in the settings, and takes what it prints: bounded in bytes and time, its errors unread.
//!
//! The program is the person's own, runs outside any sandbox with the person's environment, in the home directory and without a terminal. It
//! is found only in absolute directories of `PATH`, so that a repository one stands in cannot plant it.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use stockade_core::escape::escape;
use zeroize::Zeroizing;

use super::Surroundings;
use crate::gone::Wait;

/// How long a program may take: time for a person to touch a hardware key.
const MAX_TIME: Duration = Duration::from_secs(30);
/// How much it may print.
const MAX_OUTPUT: usize = 64 * 1024;
/// How often to look whether it has ended while something else holds its output open.
const LOOK: Duration = Duration::from_millis(20);

/// Why a program gave nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    #[error("there is no program `{0}` in an absolute directory of PATH")]
    NotFound(String),
    #[error("`{program}` cannot be started: {source}")]
    Start { program: String, source: std::io::Error },
    #[error("`{program}` cannot be read: {source}")]
    Read { program: String, source: std::io::Error },
    #[error("`{0}` did not end within 30 seconds and was killed")]
    Slow(String),
    #[error("nobody waits for `{0}` any more, and it was killed")]
    Unwanted(String),
    #[error("`{0}` printed more than 64 KiB and was killed")]
    Loud(String),
    #[error("`{program}` ended with {how}")]
    Failed { program: String, how: String },
}

/// Runs the program; what it printed.
pub(crate) fn run(argv: &[String], around: &Surroundings) -> Result<Zeroizing<Vec<u8>>, CommandError> {
    run_within(argv, around, MAX_TIME)
}

/// The same with something on its standard input: a line or two, which a pipe holds whole.
pub(super) fn run_with(argv: &[String], input: &[u8], around: &Surroundings) -> Result<Zeroizing<Vec<u8>>, CommandError> {
    run_all(argv, input, around, MAX_TIME)
}

pub(super) fn run_within(argv: &[String], around: &Surroundings, time: Duration) -> Result<Zeroizing<Vec<u8>>, CommandError> {
    run_all(argv, b"", around, time)
}

fn run_all(argv: &[String], input: &[u8], around: &Surroundings, time: Duration) -> Result<Zeroizing<Vec<u8>>, CommandError> {
    let program = argv.first().map_or("", String::as_str);
    let shown = escape(program);
    let found = find(program, &around.path).ok_or_else(|| CommandError::NotFound(shown.clone()))?;
    #[expect(clippy::disallowed_methods, reason = "the person's own settings name this program as the source of a secret")]
    let mut command = Command::new(found);
    command.arg0(program).args(argv.iter().skip(1)).current_dir(&around.home).process_group(0);
    command.stdin(if input.is_empty() { Stdio::null() } else { Stdio::piped() }).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|source| CommandError::Start { program: shown.clone(), source })?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that does not want it has its reasons; what it prints tells.
        let _ = stdin.write_all(input);
    }
    let mut running = Running { child, over: false };
    let printed = running.collect(&shown, Instant::now() + time)?;
    let status = running.child.wait().map_err(|source| CommandError::Read { program: shown.clone(), source })?;
    running.over = true;
    if status.success() {
        return Ok(printed);
    }
    Err(CommandError::Failed { program: shown, how: status.to_string() })
}

/// A started program; killed with its group when it is dropped before its end.
struct Running {
    child: Child,
    over: bool,
}

impl Running {
    fn collect(&mut self, shown: &str, end: Instant) -> Result<Zeroizing<Vec<u8>>, CommandError> {
        let failed = |source: std::io::Error| CommandError::Read { program: shown.to_owned(), source };
        let mut printed = Zeroizing::new(Vec::with_capacity(MAX_OUTPUT + 1));
        let Some(mut stdout) = self.child.stdout.take() else { return Ok(printed) };
        rustix::io::ioctl_fionbio(&stdout, true).map_err(|errno| failed(errno.into()))?;
        let mut piece = Zeroizing::new([0; 4096]);
        let wait = Wait::begin();
        loop {
            // Looked at before the read: what it wrote before its end is then in the pipe.
            let ended = self.child.try_wait().map_err(failed)?.is_some();
            match stdout.read(piece.as_mut_slice()) {
                Ok(0) => break,
                Ok(count) => printed.extend_from_slice(piece.get(..count).unwrap_or_default()),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock && ended => return Ok(printed),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    let look = Timespec { tv_sec: 0, tv_nsec: LOOK.subsec_nanos().into() };
                    let _ = poll(&mut [PollFd::from_borrowed_fd(stdout.as_fd(), PollFlags::IN)], Some(&look));
                }
                Err(error) => return Err(failed(error)),
            }
            if printed.len() > MAX_OUTPUT {
                return Err(CommandError::Loud(shown.to_owned()));
            }
            over(wait, end, shown)?;
        }
        // It closed its output; it may still be busy.
        while self.child.try_wait().map_err(failed)?.is_none() {
            over(wait, end, shown)?;
            std::thread::sleep(LOOK);
        }
        Ok(printed)
    }
}

/// Whether its time is over.
fn over(wait: Wait, end: Instant, shown: &str) -> Result<(), CommandError> {
    if wait.is_over() {
        return Err(CommandError::Unwanted(shown.to_owned()));
    }
    if Instant::now() > end { Err(CommandError::Slow(shown.to_owned())) } else { Ok(()) }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        // Not waited for yet, so the number is still its own.
        let _ = rustix::process::kill_process_group(rustix::process::Pid::from_child(&self.child), rustix::process::Signal::KILL);
        let _ = self.child.wait();
    }
}

fn find(program: &str, path: &OsStr) -> Option<PathBuf> {
    let is_program = |path: &Path| std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0);
    if program.starts_with('/') {
        return Some(PathBuf::from(program)).filter(|path| is_program(path));
    }
    if program.is_empty() || program.contains('/') {
        return None;
    }
    std::env::split_paths(path)
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join(program))
        .find(|path| is_program(path))
}
