//! One attempt in one process: a fork that reports through a pipe and is killed when it takes too long.
//!
//! An attempt may drop privileges, enter namespaces, crash or be killed by a filter; the next one starts clean.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::FromRawFd;

use crate::attempts::Attempt;
use crate::call;
use crate::facts::Facts;
use crate::finding::Finding;

/// Seconds that one attempt may take: on a busy machine even a small one is slow.
const PATIENCE: u32 = 40;

/// Runs an attempt apart.
pub(crate) fn run(attempt: Attempt, facts: &Facts) -> Finding {
    let Ok((reader, writer)) = std::io::pipe() else { return Finding::Broken("no pipe".into()) };
    match call::fork() {
        Ok(0) => {
            drop(reader);
            call::alarm(PATIENCE);
            let finding = attempt(facts);
            let (tag, text) = match &finding {
                Finding::Open(text) => (b'o', text),
                Finding::Held(text) => (b'h', text),
                Finding::Broken(text) => (b'b', text),
            };
            let mut writer = writer;
            let _ = writer.write_all(&[tag]);
            let _ = writer.write_all(text.as_bytes());
            call::leave(0)
        }
        Ok(child) => {
            drop(writer);
            let status = call::wait_for(child);
            // Grandchildren may still hold the pipe: read what there is, do not wait for its end.
            let bytes = call::read_available(reader);
            judge(status, &bytes)
        }
        Err(error) => Finding::Broken(format!("no process for the attempt: {error}")),
    }
}

fn judge(status: i32, bytes: &[u8]) -> Finding {
    let text = |rest: &[u8]| String::from_utf8_lossy(rest).into_owned();
    match bytes.split_first() {
        Some((b'o', rest)) => Finding::Open(text(rest)),
        Some((b'h', rest)) => Finding::Held(text(rest)),
        Some((b'b', rest)) => Finding::Broken(text(rest)),
        _ if libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGALRM => Finding::Broken("it took too long".into()),
        _ if libc::WIFSIGNALED(status) => Finding::Held(format!("killed by signal {}", libc::WTERMSIG(status))),
        _ => Finding::Broken("it ended without a word".into()),
    }
}

/// Runs something in a child of an attempt and gives the bytes it returns.
pub(crate) fn in_child(act: impl FnOnce() -> Vec<u8>) -> Option<Vec<u8>> {
    let (mut reader, mut writer) = std::io::pipe().ok()?;
    match call::fork().ok()? {
        0 => {
            drop(reader);
            let _ = writer.write_all(&act());
            drop(writer);
            call::leave(0)
        }
        child => {
            drop(writer);
            let mut bytes = Vec::new();
            reader.read_to_end(&mut bytes).ok()?;
            call::wait_for(child);
            Some(bytes)
        }
    }
}

/// A descriptor number as a file, for descriptors that a raw call made.
pub(crate) fn file_of(fd: i64) -> File {
    // SAFETY: the caller got this number from a call that has just made it and gives it to nobody else.
    unsafe { File::from_raw_fd(fd as i32) }
}
