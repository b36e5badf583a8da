//! Why a program could not be started, in words that name the program and what to do about it.
//!
//! Owns the wording only; it looks at files after the fact and decides nothing.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use stockade_wire::message::ErrorKind;

use crate::failure::{Failure, describe, kind, quoted};
use crate::paths::join;
use crate::spawn::{Program, step};

/// How much of a file is read to find its interpreter.
const HEAD: usize = 4096;

/// A program that cannot be started, for the reason given.
pub(crate) fn not_executable(message: String) -> Failure {
    Failure { kind: ErrorKind::NotExecutable {}, message }
}

/// Explains a failing step of the child.
pub(crate) fn explain(program: &Program, failed: u8, errno: Errno) -> Failure {
    let directory = program.directory.as_bytes();
    match failed {
        step::SESSION => Failure::during("make a session", errno),
        step::TERMINAL => Failure::during("take the terminal", errno),
        step::DESCRIPTORS => Failure::during("place the standard streams", errno),
        step::DIRECTORY => Failure { kind: kind(errno), message: format!("working directory {}: {}", quoted(directory), describe(errno)) },
        _ => unstartable(program, errno),
    }
}

fn unstartable(program: &Program, errno: Errno) -> Failure {
    if errno == Errno::TOOBIG {
        return Failure::invalid("arguments and environment are too long");
    }
    let existing = program.candidates.iter().find_map(|candidate| {
        let path = located(program, candidate.as_bytes());
        let stat = rustix::fs::stat(path.as_slice()).ok()?;
        Some((path, FileType::from_raw_mode(stat.st_mode)))
    });
    let Some((path, file_type)) = existing else {
        let name = program.candidates.first().map_or(b"".as_slice(), |candidate| candidate.as_bytes());
        return not_executable(match program.candidates.len() {
            1 => format!("{}: no such program", quoted(name)),
            _ => format!("{}: no such program in PATH", quoted(last_name(name))),
        });
    };
    let name = quoted(&path);
    not_executable(match (file_type, errno) {
        (FileType::Directory, _) => format!("{name} is a directory"),
        (FileType::RegularFile, Errno::NOENT) => match interpreter(&path) {
            Some(interpreter) => format!("{name} needs the interpreter {}, which does not exist", quoted(&interpreter)),
            None => format!("{name} needs an interpreter that does not exist"),
        },
        (FileType::RegularFile, Errno::ACCESS) => format!("{name} is not executable, or may not be executed here"),
        (FileType::RegularFile, Errno::NOEXEC) => format!("{name} is not a program (no known format and no `#!` line)"),
        (FileType::RegularFile, other) => format!("{name}: {}", describe(other)),
        (_, _) => format!("{name} is not a regular file"),
    })
}

/// A relative candidate counts from the working directory.
pub(crate) fn located(program: &Program, candidate: &[u8]) -> Vec<u8> {
    if candidate.first() == Some(&b'/') { candidate.to_vec() } else { join(program.directory.as_bytes(), candidate) }
}

fn last_name(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
}

/// The interpreter that a script or a dynamically linked program asks for.
fn interpreter(path: &[u8]) -> Option<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = rustix::fs::open(Path::new(std::ffi::OsStr::from_bytes(path)), flags, Mode::empty()).ok()?;
    let mut head = vec![0; HEAD];
    let count = rustix::io::read(&file, &mut head).ok()?;
    let head = head.get(..count)?;
    if let Some(line) = head.strip_prefix(b"#!") {
        let line = line.split(|byte| *byte == b'\n').next()?.trim_ascii_start();
        let end = line.iter().position(|byte| matches!(byte, b' ' | b'\t')).unwrap_or(line.len());
        return Some(line.get(..end)?.to_vec());
    }
    if head.starts_with(b"\x7fELF") {
        // The loader's path stands near the front of every linked program; no need to walk the headers for a message.
        let start = head.windows(4).position(|window| window == b"/lib" || window == b"/nix")?;
        let rest = head.get(start..)?;
        let end = rest.iter().position(|byte| *byte == 0)?;
        return Some(rest.get(..end)?.to_vec());
    }
    None
}
