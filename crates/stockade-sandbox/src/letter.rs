//! Letters: one JSON value and the descriptors that belong to it, between two processes of ours over a Unix socket.
//!
//! ```text
//!  length (4 bytes, with the descriptors) value (JSON)
//! ```
//!
//! Both ends are the same program, so whatever is unexpected ends the conversation. How long a reader waits is the stream's own time limit.

use std::io::{ErrorKind, IoSlice, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The longest letter.
pub const MAX_BYTES: u32 = 4 << 20;
/// What most letters fit into.
const USUAL_BYTES: usize = 16 << 10;
/// The most descriptors of one letter.
pub const MAX_DESCRIPTORS: usize = 32;

/// Sends a letter.
pub fn send(stream: &UnixStream, value: &impl Serialize, descriptors: &[BorrowedFd<'_>]) -> std::io::Result<()> {
    let text = serde_json::to_vec(value)?;
    let length = u32::try_from(text.len()).ok().filter(|length| *length <= MAX_BYTES).ok_or(ErrorKind::InvalidInput)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(ErrorKind::InvalidInput.into());
    }
    let head = length.to_be_bytes();
    let parts = [IoSlice::new(&head), IoSlice::new(&text)];
    let sent = rustix::io::retry_on_intr(|| rustix::net::sendmsg(stream, &parts, &mut control, SendFlags::NOSIGNAL))?;
    let rest = sent.checked_sub(head.len()).ok_or(ErrorKind::WriteZero)?;
    let mut stream = stream;
    stream.write_all(text.get(rest..).unwrap_or_default())
}

/// Receives a letter; `None` where the other side has closed instead.
pub fn receive<T: DeserializeOwned>(stream: &UnixStream) -> std::io::Result<Option<(T, Vec<OwnedFd>)>> {
    let mut head = [0; 4];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = rustix::io::retry_on_intr(|| {
        rustix::net::recvmsg(stream, &mut [IoSliceMut::new(&mut head)], &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    let mut descriptors = Vec::new();
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(passed) = part {
            descriptors.extend(passed);
        }
    }
    match got.bytes {
        0 => return Ok(None),
        4 => {}
        _ => return Err(ErrorKind::UnexpectedEof.into()),
    }
    let length = Some(u32::from_be_bytes(head)).filter(|length| *length <= MAX_BYTES).ok_or(ErrorKind::InvalidData)?;
    let mut text = Vec::with_capacity((length as usize).min(USUAL_BYTES));
    stream.take(u64::from(length)).read_to_end(&mut text)?;
    if text.len() < length as usize {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    Ok(Some((serde_json::from_slice(&text)?, descriptors)))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn letters_arrive_as_they_were_sent_one_after_the_other() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (one, other) = UnixStream::pair().unwrap();
        send(&ours, &("first", 1), &[one.as_fd(), other.as_fd()]).unwrap();
        send(&ours, &("second", 2), &[]).unwrap();
        let (first, descriptors) = receive::<(String, u8)>(&theirs).unwrap().unwrap();
        assert_eq!((first, descriptors.len()), (("first".to_owned(), 1), 2));
        let (second, descriptors) = receive::<(String, u8)>(&theirs).unwrap().unwrap();
        assert_eq!((second, descriptors.len()), (("second".to_owned(), 2), 0));
        drop(ours);
        assert!(receive::<u8>(&theirs).unwrap().is_none());
    }

    #[test]
    fn a_long_letter_arrives_whole_and_a_longer_one_is_not_sent() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let long = "x".repeat(MAX_BYTES as usize - 2);
        let sender = {
            let long = long.clone();
            std::thread::spawn(move || send(&ours, &long, &[]).map(|()| ours))
        };
        assert!(receive::<String>(&theirs).unwrap().unwrap().0 == long);
        let ours = sender.join().unwrap().unwrap();
        assert!(send(&ours, &format!("{long}x"), &[]).is_err());
    }

    #[test]
    fn what_is_cut_endless_or_something_else_is_refused() {
        for bytes in [&u32::MAX.to_be_bytes()[..], &[0, 0], &[0, 0, 0, 9, b'1'], &[0, 0, 0, 1, b'{']] {
            let (mut ours, theirs) = UnixStream::pair().unwrap();
            ours.write_all(bytes).unwrap();
            drop(ours);
            assert!(receive::<u8>(&theirs).is_err(), "{bytes:?}");
        }
    }
}
