//! The host's end of a guest's stream: whole messages out, whole messages in, descriptors with them where the stream can.
//!
//! Every byte that arrives is hostile: frames are bounded, decoding is strict, descriptors nobody asked for are closed. Sending
//! waits, but not for ever: a healthy guest never stops reading (flow control is by credit, see `stockade_wire::message`).

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use stockade_wire::codec::{self, DecodeError, Wire};
use stockade_wire::frame::{self, FrameBuffer, FrameTooLong};
use stockade_wire::message::{Reply, Request};

/// The most descriptors one message carries.
pub const MAX_FDS: usize = 64;
/// How long an answer is expected soon.
const EAGER: Duration = Duration::from_millis(2);
/// Whoever gets the processor back later than this was not alone there.
const SHARED: Duration = Duration::from_micros(50);
const READ_CHUNK: usize = 64 << 10;
/// A guest that does not read for so long is stuck: a healthy one always reads.
const SEND_SECONDS: u64 = 20;
/// The most that is put aside while one answer is waited for; credit keeps an honest guest far below it.
const MAX_EARLY: usize = if cfg!(test) { 64 << 10 } else { 64 << 20 };

/// Why a stream cannot be used any more.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// The other side is gone.
    #[error("the sandbox closed its stream")]
    Closed,
    /// The kernel refused.
    #[error("the sandbox's stream failed: {0}")]
    Io(#[from] Errno),
    /// The guest broke the protocol.
    #[error("the sandbox sent a malformed message: {0}")]
    Malformed(#[from] DecodeError),
    /// The guest broke the protocol.
    #[error("the sandbox sent a malformed message: {0}")]
    Frame(#[from] FrameTooLong),
    /// It did not answer in time.
    #[error("the sandbox did not answer within {0} s")]
    Silent(u64),
    /// The kernel gives no pipes.
    #[error("cannot make pipes for the program: {0}")]
    Pipes(#[source] Errno),
    /// It answered something that makes no sense here.
    #[error("the sandbox answered `{0}` out of turn")]
    OutOfTurn(&'static str),
}

/// Whether descriptors can travel with messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passing {
    /// A Unix socket between processes of one machine.
    Possible,
    /// A plain byte stream.
    Impossible,
}

/// Who waits for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Haste {
    /// A caller, so the processor is not given up at once.
    Somebody,
    /// Nobody yet: whoever else wants the processor has it.
    Nobody,
}

/// The one of this process that looks again and again.
struct Eager;

static IS_ANYBODY_EAGER: AtomicBool = AtomicBool::new(false);

impl Eager {
    fn begin() -> Option<Self> {
        (!IS_ANYBODY_EAGER.swap(true, Ordering::Relaxed)).then_some(Self)
    }
}

impl Drop for Eager {
    fn drop(&mut self) {
        IS_ANYBODY_EAGER.store(false, Ordering::Relaxed);
    }
}

/// One end of a stream of frames.
#[derive(Debug)]
pub struct Connection {
    stream: OwnedFd,
    passing: Passing,
    haste: Haste,
    incoming: FrameBuffer,
    /// Messages that arrived while the answer to another request was waited for.
    early: VecDeque<(u32, Vec<u8>)>,
    descriptors: VecDeque<OwnedFd>,
    next_id: u32,
    scratch: Vec<u8>,
}

impl Connection {
    /// Wraps a connected stream.
    pub fn new(stream: OwnedFd, passing: Passing) -> Self {
        Self {
            stream,
            passing,
            haste: Haste::Somebody,
            incoming: FrameBuffer::default(),
            early: VecDeque::new(),
            descriptors: VecDeque::new(),
            next_id: 1,
            scratch: vec![0; READ_CHUNK],
        }
    }

    /// The same stream, used as if no descriptor could travel on it.
    #[must_use]
    pub fn without_passing(mut self) -> Self {
        self.passing = Passing::Impossible;
        self
    }

    /// Whether descriptors can travel with messages.
    pub fn passing(&self) -> Passing {
        self.passing
    }

    /// The stream, to poll on.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// A request id that was not used on this stream before.
    pub fn fresh_id(&mut self) -> u32 {
        let id = self.next_id;
        self.next_id = (self.next_id + 1) & !frame::GUEST_ID_BIT;
        id.max(1)
    }

    /// Sends a request, with descriptors where there are any.
    pub fn send(&self, id: u32, request: &Request, fds: &[BorrowedFd<'_>]) -> Result<(), ConnectionError> {
        self.send_payload(id, &codec::to_bytes(request), fds)
    }

    /// Sends any message (the supervisor of a sandbox sends replies to its clients).
    pub fn send_payload(&self, id: u32, payload: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), ConnectionError> {
        let mut bytes = Vec::with_capacity(frame::HEADER + payload.len());
        frame::push_frame(&mut bytes, id, payload);
        send_bytes(self.stream.as_fd(), &bytes, fds)
    }

    /// Waits for the next reply.
    pub fn receive(&mut self, timeout_seconds: u64) -> Result<(u32, Reply), ConnectionError> {
        self.receive_message(timeout_seconds)
    }

    /// Waits for the next message of any kind.
    pub fn receive_message<T: Wire>(&mut self, timeout_seconds: u64) -> Result<(u32, T), ConnectionError> {
        loop {
            if let Some(message) = self.buffered()? {
                return Ok(message);
            }
            let timeout = Timespec { tv_sec: i64::try_from(timeout_seconds).unwrap_or(i64::MAX), tv_nsec: 0 };
            match self.wait(&timeout) {
                Ok(0) => return Err(ConnectionError::Silent(timeout_seconds)),
                Ok(_) => self.fill()?,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// How it waits from now on.
    pub fn set_haste(&mut self, haste: Haste) {
        self.haste = haste;
    }

    /// Waits for bytes. What is expected soon, and waited for, is looked for again and again first, and whoever else wants the processor has it in
    /// between: waking up a processor that sleeps takes longer than most answers, above all in a virtual machine. One at a time does so, and only while
    /// nobody else wants that processor: where there is enough to do, none sleeps.
    fn wait(&self, timeout: &Timespec) -> Result<usize, Errno> {
        let eager = (self.haste == Haste::Somebody).then(Eager::begin).flatten();
        let begun = Instant::now();
        while eager.is_some() && begun.elapsed() < EAGER {
            let mut wait = [PollFd::new(&self.stream, PollFlags::IN)];
            if rustix::event::poll(&mut wait, Some(&Timespec::default()))? > 0 {
                return Ok(1);
            }
            let given = Instant::now();
            rustix::thread::sched_yield();
            if given.elapsed() > SHARED {
                break;
            }
        }
        drop(eager);
        rustix::event::poll(&mut [PollFd::new(&self.stream, PollFlags::IN)], Some(timeout))
    }

    /// Waits for the answer to one request; what arrives for others meanwhile is kept for [`Connection::buffered`].
    pub fn answer_to(&mut self, id: u32, timeout_seconds: u64) -> Result<Reply, ConnectionError> {
        let deadline = Instant::now() + Duration::from_secs(timeout_seconds);
        // With their headers: frames without a payload take room as well.
        let mut kept: usize = self.early.iter().map(|(_, payload)| frame::HEADER + payload.len()).sum();
        loop {
            while let Some((got, payload)) = self.incoming.next_frame()? {
                if got == id {
                    return Ok(codec::from_bytes(payload)?);
                }
                kept += frame::HEADER + payload.len();
                if kept > MAX_EARLY {
                    return Err(ConnectionError::OutOfTurn("more than it had credit for"));
                }
                self.early.push_back((got, payload.to_vec()));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
            let mut wait = [PollFd::new(&self.stream, PollFlags::IN)];
            match rustix::event::poll(&mut wait, Some(&timeout)) {
                Ok(0) => return Err(ConnectionError::Silent(timeout_seconds)),
                Ok(_) => self.fill()?,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// The next reply among the bytes that have already arrived.
    pub fn buffered<T: Wire>(&mut self) -> Result<Option<(u32, T)>, ConnectionError> {
        if let Some((id, payload)) = self.early.pop_front() {
            return Ok(Some((id, codec::from_bytes(&payload)?)));
        }
        match self.incoming.next_frame()? {
            Some((id, payload)) => Ok(Some((id, codec::from_bytes(payload)?))),
            None => Ok(None),
        }
    }

    /// Reads once from the stream; call it when the stream is readable.
    pub fn fill(&mut self) -> Result<(), ConnectionError> {
        let n = match self.passing {
            Passing::Possible => self.receive_with_descriptors(),
            Passing::Impossible => rustix::io::read(&self.stream, self.scratch.as_mut_slice()),
        };
        match n {
            Ok(0) | Err(Errno::CONNRESET) => Err(ConnectionError::Closed),
            Ok(n) => {
                self.incoming.extend(self.scratch.get(..n).unwrap_or_default());
                Ok(())
            }
            Err(Errno::INTR | Errno::AGAIN) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Takes the descriptors that arrived so far.
    pub fn take_descriptors(&mut self) -> Vec<OwnedFd> {
        self.descriptors.drain(..).collect()
    }

    /// Takes the first `count` descriptors that arrived.
    pub fn take_some_descriptors(&mut self, count: usize) -> Vec<OwnedFd> {
        let count = count.min(self.descriptors.len());
        self.descriptors.drain(..count).collect()
    }

    fn receive_with_descriptors(&mut self) -> Result<usize, Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut buffers = [IoSliceMut::new(self.scratch.as_mut_slice())];
        let received = rustix::net::recvmsg(&self.stream, &mut buffers, &mut control, RecvFlags::CMSG_CLOEXEC)?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                self.descriptors.extend(fds);
            }
        }
        // A hostile peer must not be able to park descriptors here without end.
        self.descriptors.truncate(MAX_FDS);
        Ok(received.bytes)
    }
}

fn send_bytes(stream: BorrowedFd<'_>, mut bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), ConnectionError> {
    let mut first = !fds.is_empty();
    while !bytes.is_empty() {
        let sent = if first {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            if !control.push(SendAncillaryMessage::ScmRights(fds)) {
                return Err(ConnectionError::Io(Errno::TOOBIG));
            }
            rustix::net::sendmsg(stream, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
        } else {
            match rustix::net::send(stream, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Err(Errno::NOTSOCK) => rustix::io::write(stream, bytes),
                sent => sent,
            }
        };
        match sent {
            Ok(n) => {
                first = false;
                bytes = bytes.get(n..).unwrap_or_default();
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let mut wait = [PollFd::from_borrowed_fd(stream, PollFlags::OUT)];
                let patience = Timespec { tv_sec: SEND_SECONDS as i64, tv_nsec: 0 };
                match rustix::event::poll(&mut wait, Some(&patience)) {
                    Ok(0) => return Err(ConnectionError::Silent(SEND_SECONDS)),
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(errno) => return Err(errno.into()),
                }
            }
            Err(Errno::PIPE | Errno::CONNRESET) => return Err(ConnectionError::Closed),
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType};

    use super::*;

    #[test]
    fn a_guest_cannot_pile_up_empty_frames_while_an_answer_is_waited_for() {
        let (host, guest) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        // Zeros are frames without a payload, for a request that nobody made.
        send_bytes(guest.as_fd(), &vec![0; MAX_EARLY + frame::HEADER], &[]).unwrap();
        let answer = Connection::new(host, Passing::Impossible).answer_to(1, 30);
        assert!(matches!(answer, Err(ConnectionError::OutOfTurn(_))), "{answer:?}");
    }
}
