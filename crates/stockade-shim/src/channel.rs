//! The control stream: framed, without blocking, with descriptors both ways where it is a socket.
//!
//! Owns descriptor 3, what was read from it and is not a whole frame yet, and what could not be written yet.
//! Small replies are queued and written together before the loop waits; stream data is written at once from
//! the buffer it was read into. It knows nothing of what the messages mean.

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recvmsg,
    sendmsg,
};
use stockade_wire::codec::{Wire, from_bytes};
use stockade_wire::frame::{FrameBuffer, HEADER, MAX_PAYLOAD};
use stockade_wire::message::{Reply, Request, Stream};

use crate::flow::Backlog;

/// The most bytes read from a program, a file or a connection in one go.
pub(crate) const CHUNK: usize = 64 << 10;
/// Above this many unwritten bytes nothing new is produced.
const CONGESTED: usize = 256 << 10;
/// Above this many unwritten bytes the host is taken for dead: it asks and does not read the answers.
const GIVE_UP: usize = 8 << 20;
/// Descriptors that one message may carry (the kernel's own limit).
const MAX_DESCRIPTORS: usize = 253;
/// Header, variant, stream number and length before the bytes of a data frame.
const DATA_PREFIX: usize = HEADER + 6;

/// Why the stream cannot be used any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Broken {
    /// The host closed it.
    Closed,
    /// What arrived is not the protocol.
    Malformed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Carrier {
    Socket,
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waiting {
    Block,
    Return,
}

/// The framed control stream.
pub(crate) struct Channel {
    fd: OwnedFd,
    carrier: Carrier,
    frames: FrameBuffer,
    /// Bytes in `frames` that were not handed out yet.
    unparsed: usize,
    descriptors: VecDeque<OwnedFd>,
    unwritten: Backlog,
    /// Nothing of what is unwritten is urgent.
    unhurried: bool,
    scratch: Vec<u8>,
    buffer: Vec<u8>,
}

impl Channel {
    /// Takes the stream over.
    pub(crate) fn new(fd: OwnedFd) -> Self {
        let carrier = if rustix::net::sockopt::socket_type(&fd).is_ok() { Carrier::Socket } else { Carrier::Other };
        // A terminal would translate and echo the bytes.
        if let Ok(mut settings) = rustix::termios::tcgetattr(&fd) {
            settings.make_raw();
            let _ = rustix::termios::tcsetattr(&fd, rustix::termios::OptionalActions::Now, &settings);
        }
        Self {
            fd,
            carrier,
            frames: FrameBuffer::default(),
            unparsed: 0,
            descriptors: VecDeque::new(),
            unwritten: Backlog::default(),
            unhurried: false,
            scratch: Vec::new(),
            buffer: Vec::new(),
        }
    }

    /// For waiting on it.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Reads exactly one frame, waiting for it, so that descriptors of a later frame cannot be mistaken for its own.
    pub(crate) fn read_one(&mut self) -> Result<(u32, Request), Broken> {
        let mut header = [0u8; HEADER];
        self.read_exact(&mut header)?;
        let [l0, l1, l2, l3, i0, i1, i2, i3] = header;
        let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        if length > MAX_PAYLOAD {
            return Err(Broken::Malformed);
        }
        let mut payload = vec![0; length];
        self.read_exact(&mut payload)?;
        let request = from_bytes(&payload).map_err(|_| Broken::Malformed)?;
        Ok((u32::from_le_bytes([i0, i1, i2, i3]), request))
    }

    /// Writes one reply, waiting until all of it is written; the descriptors travel with its first byte.
    pub(crate) fn write_one(&mut self, id: u32, reply: &Reply, descriptors: &[OwnedFd]) -> Result<(), Broken> {
        self.encode(id, reply);
        let bytes = std::mem::take(&mut self.scratch);
        let mut rest = bytes.as_slice();
        let mut descriptors = descriptors;
        while !rest.is_empty() {
            match self.write_some(rest, descriptors) {
                Ok(count) => {
                    rest = rest.get(count..).unwrap_or_default();
                    descriptors = &[];
                }
                Err(Errno::AGAIN) => self.wait(PollFlags::OUT),
                Err(Errno::INTR) => {}
                Err(_) => return Err(Broken::Closed),
            }
        }
        self.scratch = bytes;
        Ok(())
    }

    /// After the handshake: reads and writes never wait.
    pub(crate) fn stop_waiting(&self) -> Result<(), Errno> {
        // A socket is asked per call instead, because the flag belongs to everyone who shares the description.
        if self.carrier == Carrier::Socket {
            return Ok(());
        }
        let flags = rustix::fs::fcntl_getfl(&self.fd)?;
        rustix::fs::fcntl_setfl(&self.fd, flags | rustix::fs::OFlags::NONBLOCK)
    }

    /// Gives the buffer back until it is needed again.
    pub(crate) fn let_go(&mut self) {
        self.buffer = Vec::new();
        self.scratch = Vec::new();
    }

    fn make_buffer(&mut self) {
        if self.buffer.is_empty() {
            self.buffer = vec![0; DATA_PREFIX + CHUNK];
        }
    }

    /// Reads what is there, once.
    pub(crate) fn receive(&mut self) -> Result<(), Broken> {
        self.make_buffer();
        let mut buffer = std::mem::take(&mut self.buffer);
        let answer = self.read_some(&mut buffer, Waiting::Return);
        let outcome = match answer {
            Ok(0) => Err(Broken::Closed),
            Ok(count) => {
                self.frames.extend(buffer.get(..count).unwrap_or_default());
                self.unparsed += count;
                Ok(())
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            Err(_) => Err(Broken::Closed),
        };
        self.buffer = buffer;
        outcome
    }

    /// The next whole request, if one has arrived.
    pub(crate) fn next_request(&mut self) -> Result<Option<(u32, Request)>, Broken> {
        let Some((id, payload)) = self.frames.next_frame().map_err(|_| Broken::Malformed)? else {
            if self.unparsed == 0 {
                // Nothing under way: give back what a big frame needed, and close descriptors nobody asked for.
                self.frames = FrameBuffer::default();
                self.descriptors.clear();
            }
            return Ok(None);
        };
        let request = from_bytes(payload).map_err(|_| Broken::Malformed)?;
        self.unparsed = self.unparsed.saturating_sub(HEADER + payload.len());
        Ok(Some((id, request)))
    }

    /// Takes descriptors that arrived, oldest first; fewer if fewer came.
    pub(crate) fn take_descriptors(&mut self, most: usize) -> Vec<OwnedFd> {
        let count = most.min(self.descriptors.len());
        self.descriptors.drain(..count).collect()
    }

    /// Queues a reply; it is written before the loop waits.
    pub(crate) fn send(&mut self, id: u32, reply: &Reply) {
        self.encode(id, reply);
        self.unwritten.push(&self.scratch);
        self.unhurried = false;
    }

    /// Queues a reply that can wait for another one to travel with.
    pub(crate) fn send_unhurried(&mut self, id: u32, reply: &Reply) {
        let alone = self.unwritten.is_empty();
        self.send(id, reply);
        self.unhurried = alone;
    }

    /// Whether something is queued, and nothing of it is urgent.
    pub(crate) fn is_unhurried(&self) -> bool {
        self.unhurried
    }

    /// Where stream data is to be read into before [`Self::send_data`].
    pub(crate) fn data_space(&mut self, most: usize) -> &mut [u8] {
        self.make_buffer();
        let end = DATA_PREFIX + most.min(CHUNK);
        self.buffer.get_mut(DATA_PREFIX..end).unwrap_or_default()
    }

    /// Sends the first `count` bytes of [`Self::data_space`], at once where the stream takes them.
    pub(crate) fn send_data(&mut self, id: u32, stream: &Stream, count: usize) {
        let prefix = data_prefix(id, stream, count);
        if let Some(space) = self.buffer.first_chunk_mut::<DATA_PREFIX>() {
            *space = prefix;
        }
        // A failing stream shows itself when the loop flushes; until then the bytes are merely queued.
        let _ = self.flush();
        let buffer = std::mem::take(&mut self.buffer);
        let frame = buffer.get(..DATA_PREFIX + count).unwrap_or_default();
        let written = if self.unwritten.is_empty() { self.write_some(frame, &[]).unwrap_or(0) } else { 0 };
        self.unwritten.push(frame.get(written..).unwrap_or_default());
        self.buffer = buffer;
    }

    /// Writes what is queued as far as the stream takes it.
    pub(crate) fn flush(&mut self) -> Result<(), Broken> {
        self.unhurried = false;
        while !self.unwritten.is_empty() {
            match self.write_some(self.unwritten.waiting(), &[]) {
                Ok(count) => self.unwritten.advance(count),
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(_) => return Err(Broken::Closed),
            }
        }
        if self.unwritten.len() > GIVE_UP { Err(Broken::Closed) } else { Ok(()) }
    }

    /// Whether something waits to be written.
    pub(crate) fn has_unwritten(&self) -> bool {
        !self.unwritten.is_empty()
    }

    /// Whether so much waits to be written that nothing new should be produced.
    pub(crate) fn is_congested(&self) -> bool {
        self.unwritten.len() > CONGESTED
    }

    fn encode(&mut self, id: u32, reply: &Reply) {
        self.scratch.clear();
        self.scratch.extend_from_slice(&[0; 4]);
        self.scratch.extend_from_slice(&id.to_le_bytes());
        reply.encode(&mut self.scratch);
        let length = (self.scratch.len() - HEADER) as u32;
        if let Some(space) = self.scratch.first_chunk_mut::<4>() {
            *space = length.to_le_bytes();
        }
    }

    fn read_exact(&mut self, mut space: &mut [u8]) -> Result<(), Broken> {
        while !space.is_empty() {
            match self.read_some(space, Waiting::Block) {
                Ok(0) => return Err(Broken::Closed),
                Ok(count) => space = space.get_mut(count..).unwrap_or_default(),
                Err(Errno::AGAIN) => self.wait(PollFlags::IN),
                Err(Errno::INTR) => {}
                Err(_) => return Err(Broken::Closed),
            }
        }
        Ok(())
    }

    fn wait(&self, flags: PollFlags) {
        let _ = poll(&mut [PollFd::new(&self.fd, flags)], None);
    }

    fn read_some(&mut self, space: &mut [u8], waiting: Waiting) -> Result<usize, Errno> {
        if self.carrier == Carrier::Other {
            return rustix::io::read(&self.fd, space);
        }
        let mut control = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut control);
        let mut flags = RecvFlags::CMSG_CLOEXEC;
        if waiting == Waiting::Return {
            flags |= RecvFlags::DONTWAIT;
        }
        let received = recvmsg(&self.fd, &mut [IoSliceMut::new(space)], &mut ancillary, flags)?;
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                self.descriptors.extend(descriptors);
            }
        }
        // Lost descriptors would be taken for somebody else's.
        if received.flags.contains(ReturnFlags::CTRUNC) || self.descriptors.len() > MAX_DESCRIPTORS {
            return Err(Errno::MFILE);
        }
        Ok(received.bytes)
    }

    fn write_some(&self, bytes: &[u8], descriptors: &[OwnedFd]) -> Result<usize, Errno> {
        if self.carrier == Carrier::Other {
            return rustix::io::write(&self.fd, bytes);
        }
        if descriptors.is_empty() {
            return rustix::net::send(&self.fd, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        }
        let borrowed: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !control.push(SendAncillaryMessage::ScmRights(&borrowed)) {
            return Err(Errno::MFILE);
        }
        sendmsg(&self.fd, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
    }
}

/// The beginning of a data frame, written by hand so that the bytes themselves need not be copied.
fn data_prefix(id: u32, stream: &Stream, count: usize) -> [u8; DATA_PREFIX] {
    let [l0, l1, l2, l3] = ((DATA_PREFIX - HEADER + count) as u32).to_le_bytes();
    let [i0, i1, i2, i3] = id.to_le_bytes();
    let [c0, c1, c2, c3] = (count as u32).to_le_bytes();
    let number = match stream {
        Stream::Input {} => 0,
        Stream::Output {} => 1,
        Stream::Errors {} => 2,
    };
    [l0, l1, l2, l3, i0, i1, i2, i3, 4, number, c0, c1, c2, c3]
}

#[cfg(test)]
mod tests {
    use super::*;
    use stockade_wire::codec::{Bytes, to_bytes};
    use stockade_wire::frame::push_frame;

    #[test]
    fn the_data_prefix_is_what_the_codec_writes() {
        for stream in [Stream::Input {}, Stream::Output {}, Stream::Errors {}] {
            let body = b"some bytes";
            let mut by_hand = data_prefix(0x8000_0007, &stream, body.len()).to_vec();
            by_hand.extend_from_slice(body);
            let mut by_codec = Vec::new();
            push_frame(&mut by_codec, 0x8000_0007, &to_bytes(&Reply::Data { stream, bytes: Bytes::from(body) }));
            assert_eq!(by_hand, by_codec);
        }
    }
}
