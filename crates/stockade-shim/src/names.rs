//! Questions about names that come as datagrams: carried to egress on one stream, and the answers back to whoever asked.
//!
//! Owns the sockets of the resolver inside, the stream, and who asked what. It reads nothing of a question but its number, which is
//! replaced by one of ours so that two programs can use the same. Whatever does not fit is dropped: who asks by datagrams asks again.
//! The stream is opened by the first question, and anew after it has ended.

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrAny, SocketFlags, SocketType, recv, recvfrom, send, sendto, socketpair};
use stockade_wire::opening::Opening;

use crate::context::{Poller, Progress, Ready};
use crate::flow::Backlog;
use crate::wayout::{Exit, NAMES};

/// The longest question or answer; egress reads no longer one.
const LONGEST: usize = 4096;
/// A message has at least its header.
const SHORTEST: usize = 12;
/// Questions that may be under way at once.
const MOST_ASKED: usize = 256;
/// How long an answer is waited for. Programs give up sooner.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes of questions that may wait for egress to read them.
const MOST_UNSENT: usize = 64 << 10;
/// Datagrams or answers that are taken before others get their turn.
const TURN: usize = 32;

/// The resolver inside.
pub(crate) struct Names {
    sockets: Vec<Socket>,
    stream: Option<Stream>,
    asked: BTreeMap<u16, Asked>,
    next: u16,
}

struct Socket {
    socket: OwnedFd,
    /// Something may be there.
    ready: bool,
}

/// The stream to egress.
struct Stream {
    socket: OwnedFd,
    ready: bool,
    unsent: Backlog,
    received: Vec<u8>,
}

/// A question under way.
struct Asked {
    socket: usize,
    by: SocketAddrAny,
    /// The number that the program gave it.
    number: [u8; 2],
    at: Instant,
}

/// The stream ended, or what came on it is not what was agreed.
struct Ended;

impl Names {
    /// Of datagram sockets that do not block.
    pub(crate) fn new(sockets: Vec<OwnedFd>) -> Self {
        let sockets = sockets.into_iter().map(|socket| Socket { socket, ready: false }).collect();
        Self { sockets, stream: None, asked: BTreeMap::new(), next: 0 }
    }

    /// The sockets, to be watched.
    pub(crate) fn sockets(&self) -> impl Iterator<Item = &OwnedFd> {
        self.sockets.iter().map(|socket| &socket.socket)
    }

    /// Remembers that a socket may have something; false if there is no such socket.
    pub(crate) fn socket_event(&mut self, index: usize) -> bool {
        match self.sockets.get_mut(index) {
            Some(socket) => {
                socket.ready = true;
                true
            }
            None => false,
        }
    }

    /// Remembers an event of the stream.
    pub(crate) fn stream_event(&mut self, ready: Ready) {
        if let Some(stream) = &mut self.stream {
            stream.ready |= ready.readable;
        }
    }

    /// Carries questions out and answers back, up to a bound.
    pub(crate) fn turn(&mut self, exit: &mut Exit, poller: &Poller) -> Progress {
        let mut progress = self.answers();
        for index in 0..self.sockets.len() {
            if self.questions(index, exit, poller) == Progress::Again {
                progress = Progress::Again;
            }
        }
        if self.stream.as_mut().is_some_and(|stream| stream.flush().is_err()) {
            self.end();
        }
        progress
    }

    fn questions(&mut self, index: usize, exit: &mut Exit, poller: &Poller) -> Progress {
        let mut space = [0; LONGEST];
        for _ in 0..TURN {
            let Some(socket) = self.sockets.get_mut(index).filter(|socket| socket.ready) else { return Progress::Idle };
            match recvfrom(&socket.socket, &mut space[..], RecvFlags::DONTWAIT | RecvFlags::TRUNC) {
                Ok((_, length, Some(by))) => {
                    if let Some(question) = space.get_mut(..length) {
                        self.ask(index, by, question, exit, poller);
                    }
                }
                Err(Errno::AGAIN) => {
                    socket.ready = false;
                    return Progress::Idle;
                }
                Ok(_) | Err(_) => {}
            }
        }
        Progress::Again
    }

    /// Sends a question on, if it is one and there is room for it.
    fn ask(&mut self, socket: usize, by: SocketAddrAny, question: &mut [u8], exit: &mut Exit, poller: &Poller) {
        let Some((number, is_answer)) = head(question) else { return };
        if is_answer || !self.has_stream(exit, poller) {
            return;
        }
        let now = Instant::now();
        if self.asked.len() >= MOST_ASKED {
            self.asked.retain(|_, asked| now.duration_since(asked.at) < PATIENCE);
        }
        let Some(stream) = self.stream.as_mut().filter(|stream| stream.unsent.len() < MOST_UNSENT) else { return };
        if self.asked.len() >= MOST_ASKED {
            return;
        }
        while self.asked.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let ours = self.next;
        self.next = self.next.wrapping_add(1);
        renumber(question, ours.to_be_bytes());
        stream.unsent.push(&(question.len() as u16).to_be_bytes());
        stream.unsent.push(question);
        self.asked.insert(ours, Asked { socket, by, number, at: now });
    }

    fn has_stream(&mut self, exit: &mut Exit, poller: &Poller) -> bool {
        // One that has ended shows when it is read.
        if self.stream.as_mut().is_some_and(|stream| stream.flush().is_err()) {
            self.end();
        }
        if self.stream.is_none() && exit.leads_somewhere() && !exit.is_full() {
            self.stream = Stream::open(exit, poller).ok();
        }
        self.stream.is_some()
    }

    fn answers(&mut self) -> Progress {
        let Some(stream) = self.stream.as_mut().filter(|stream| stream.ready) else { return Progress::Idle };
        // What came before an end still counts.
        let read = stream.read();
        loop {
            match stream.next() {
                Ok(Some(answer)) => {
                    if let Some(asked) = answered(&mut self.asked, &answer)
                        && let Some(socket) = self.sockets.get(asked.socket)
                    {
                        let mut answer = answer;
                        renumber(&mut answer, asked.number);
                        // Whoever asked may be gone, or not listening fast enough; it asks again.
                        let _ = sendto(&socket.socket, &answer, SendFlags::DONTWAIT | SendFlags::NOSIGNAL, &asked.by);
                    }
                }
                Ok(None) => break,
                Err(Ended) => {
                    self.end();
                    return Progress::Idle;
                }
            }
        }
        read.unwrap_or_else(|Ended| {
            self.end();
            Progress::Idle
        })
    }

    /// What was asked on a stream that ended will not be answered.
    fn end(&mut self) {
        self.stream = None;
        self.asked.clear();
    }
}

impl Stream {
    fn open(exit: &mut Exit, poller: &Poller) -> Result<Self, Errno> {
        use epoll::EventFlags as Flags;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        poller.watch_way_out(ours.as_fd(), NAMES, Flags::IN | Flags::OUT | Flags::RDHUP | Flags::ET)?;
        exit.pass(Opening::Dns, theirs);
        Ok(Self { socket: ours, ready: true, unsent: Backlog::default(), received: Vec::new() })
    }

    fn flush(&mut self) -> Result<(), Ended> {
        while !self.unsent.is_empty() {
            match send(&self.socket, self.unsent.waiting(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(count) => self.unsent.advance(count),
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(_) => return Err(Ended),
            }
        }
        Ok(())
    }

    fn read(&mut self) -> Result<Progress, Ended> {
        let mut space = [0; LONGEST];
        for _ in 0..TURN {
            match recv(&self.socket, &mut space[..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Err(Ended),
                Ok((count, _)) => self.received.extend_from_slice(space.get(..count).unwrap_or_default()),
                Err(Errno::AGAIN) => {
                    self.ready = false;
                    return Ok(Progress::Idle);
                }
                Err(Errno::INTR) => {}
                Err(_) => return Err(Ended),
            }
        }
        Ok(Progress::Again)
    }

    /// The next whole answer.
    fn next(&mut self) -> Result<Option<Vec<u8>>, Ended> {
        let Some((length, rest)) = self.received.split_first_chunk::<2>() else { return Ok(None) };
        let length = usize::from(u16::from_be_bytes(*length));
        if !(SHORTEST..=LONGEST).contains(&length) {
            return Err(Ended);
        }
        let Some(answer) = rest.get(..length) else { return Ok(None) };
        let answer = answer.to_vec();
        self.received.drain(..2 + length);
        Ok(Some(answer))
    }
}

/// Takes the question that an answer is to.
fn answered(asked: &mut BTreeMap<u16, Asked>, answer: &[u8]) -> Option<Asked> {
    let (number, is_answer) = head(answer)?;
    if is_answer { asked.remove(&u16::from_be_bytes(number)) } else { None }
}

/// A message's number, and whether it is an answer.
fn head(message: &[u8]) -> Option<([u8; 2], bool)> {
    let [high, low, flags, ..] = message.first_chunk::<SHORTEST>()?;
    Some(([*high, *low], flags & 0x80 != 0))
}

fn renumber(message: &mut [u8], number: [u8; 2]) {
    if let Some(place) = message.first_chunk_mut::<2>() {
        *place = number;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_whole_and_of_a_possible_length() {
        let answers = |received: &[u8]| {
            let (socket, _) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
            let mut stream = Stream { socket, ready: false, unsent: Backlog::default(), received: received.to_vec() };
            let mut found = Vec::new();
            loop {
                match stream.next() {
                    Ok(Some(answer)) => found.push(answer.len()),
                    Ok(None) => return Some((found, stream.received.len())),
                    Err(Ended) => return None,
                }
            }
        };
        let framed = |length: usize| [&(length as u16).to_be_bytes()[..], &vec![0; length]].concat();
        assert_eq!(answers(b""), Some((vec![], 0)));
        assert_eq!(answers(b"\0"), Some((vec![], 1)));
        let all = [framed(12), framed(LONGEST), framed(100)].concat();
        assert_eq!(answers(&all), Some((vec![12, LONGEST, 100], 0)));
        assert_eq!(answers(&all[..all.len() - 1]), Some((vec![12, LONGEST], 101)));
        assert_eq!(answers(&framed(11)), None);
        assert_eq!(answers(&framed(LONGEST + 1)), None);
        assert_eq!(answers(&framed(0)), None);
    }

    #[test]
    fn only_an_answer_to_a_question_is_one() {
        let by = SocketAddrAny::from(std::net::SocketAddr::from(([127, 0, 0, 1], 9)));
        let mut asked = BTreeMap::from([(0x0102, Asked { socket: 0, by, number: [7, 8], at: Instant::now() })]);
        let message = |number: [u8; 2], flags: u8| [&number[..], &[flags], &[0; 9]].concat();
        assert!(answered(&mut asked, &message([1, 2], 0x01)).is_none(), "a question");
        assert!(answered(&mut asked, &message([2, 1], 0x81)).is_none(), "another number");
        assert!(answered(&mut asked, &message([1, 2], 0x81)[..11]).is_none(), "too short");
        assert_eq!(answered(&mut asked, &message([1, 2], 0x81)).map(|asked| asked.number), Some([7, 8]));
        assert!(answered(&mut asked, &message([1, 2], 0x81)).is_none(), "twice");
    }
}
