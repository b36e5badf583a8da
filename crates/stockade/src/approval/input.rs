//! Standard input of a call that somebody is to approve: read whole before, so that what was approved is what the program reads.
//!
//! What ends is kept in memory and put in the place of standard input; what does not end, is too long, or is a device cannot be approved.

use std::io::{IsTerminal as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, MemfdFlags, SealFlags};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};
use stockade_gateway::approvals::Input;
use stockade_verify::text::to_hex;

/// Bytes of input that can be approved.
const MOST: usize = 16 << 20;
/// Seconds of silence after which input counts as having no end.
const PATIENCE: i64 = 2;
/// The device that gives nothing.
const NOTHING: (u32, u32) = (1, 3);

/// Reads standard input whole, and puts the same bytes back in its place. An error says why it cannot be approved.
pub(crate) fn hold() -> Result<Input, String> {
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        return Ok(Input::Terminal);
    }
    let stdin = stdin.as_fd();
    let Ok(found) = rustix::fs::fstat(stdin) else { return Ok(Input::Nothing) };
    match FileType::from_raw_mode(found.st_mode) {
        FileType::CharacterDevice if (rustix::fs::major(found.st_rdev), rustix::fs::minor(found.st_rdev)) == NOTHING => {
            return Ok(Input::Nothing);
        }
        FileType::RegularFile | FileType::Fifo | FileType::Socket => {}
        _ => return Err("its input is a device; give it a file, or </dev/null".to_owned()),
    }
    let bytes = read(stdin)?;
    replace(&bytes).map_err(|error| format!("its input cannot be kept: {error}"))?;
    Ok(known(&bytes))
}

/// Input that is known whole.
pub(super) fn known(bytes: &[u8]) -> Input {
    if bytes.is_empty() {
        return Input::Nothing;
    }
    Input::Bytes { length: bytes.len() as u64, sha256: to_hex(&Sha256::digest(bytes)) }
}

fn read(stdin: BorrowedFd<'_>) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    let patience = Timespec { tv_sec: PATIENCE, tv_nsec: 0 };
    loop {
        match poll(&mut [PollFd::from_borrowed_fd(stdin, PollFlags::IN)], Some(&patience)) {
            Ok(0) => return Err("its input does not end; give it a file, or </dev/null".to_owned()),
            Err(Errno::INTR) => continue,
            Ok(_) | Err(_) => {}
        }
        match rustix::io::read(stdin, &mut buffer) {
            Ok(0) => return Ok(bytes),
            Ok(count) => bytes.extend(buffer.iter().take(count)),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(errno) => return Err(format!("its input cannot be read: {errno}")),
        }
        if bytes.len() > MOST {
            return Err(format!("its input has more than {MOST} bytes"));
        }
    }
}

/// Bytes that nobody can change any more take the place of standard input.
fn replace(bytes: &[u8]) -> std::io::Result<()> {
    rustix::stdio::dup2_stdin(sealed(bytes)?)?;
    Ok(())
}

/// Bytes that nobody can change any more, to be read from their beginning.
pub(crate) fn sealed(bytes: &[u8]) -> std::io::Result<std::fs::File> {
    let name = "stockade-input";
    let memory = match rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::NOEXEC_SEAL) {
        // Kernels before 6.3 do not know the flag; what lies there is data either way.
        Err(Errno::INVAL) => rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?,
        other => other?,
    };
    let mut file = std::fs::File::from(memory);
    file.write_all(bytes)?;
    rustix::fs::fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
    rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0))?;
    Ok(file)
}
