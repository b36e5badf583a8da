//! Connections out of a sandbox, handed over as descriptors: the guest accepts on loopback inside and passes the socket itself out, so
//! bytes are not copied on the way.
//!
//! The socket they come over belongs to one sandbox, which the host knows because it made it; nothing that is said on it can name
//! another. Everything that arrives is hostile: messages of another form are dropped, as are descriptors that are no stream sockets.

pub(crate) mod message;
pub(crate) mod socket;

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use tokio::io::Interest;
use tokio::net::UnixDatagram;
use tokio::task::JoinSet;

use crate::egress::Guest;
use crate::error::EgressError;
use crate::origin::Kind;
use crate::proxy;
use message::Opening;
use socket::GuestSocket;

/// A guest that sends more malformed messages than this is not ours any more.
const MAX_MALFORMED: usize = 64;

impl Guest {
    /// Serves every connection that is passed over this socket (`SOCK_SEQPACKET`), until the other end closes it or this guest is
    /// let go. The sandbox is this one, whatever the messages say.
    pub async fn accept(&self, socket: OwnedFd) -> Result<(), EgressError> {
        rustix::io::ioctl_fionbio(&socket, true).map_err(|error| EgressError::Socket(error.into()))?;
        let socket = UnixDatagram::from_std(socket.into()).map_err(EgressError::Socket)?;
        let mut served = JoinSet::new();
        let mut malformed = 0;
        loop {
            let received = tokio::select! {
                received = socket.async_io(Interest::READABLE, || receive(&socket)) => received.map_err(EgressError::Socket)?,
                () = self.sandbox.closed() => Received::Closed,
            };
            // Those that ended make room.
            while served.try_join_next().is_some() {}
            match received {
                Received::Opened(kind, stream) => {
                    let (shared, sandbox) = (Arc::clone(&self.shared), Arc::clone(&self.sandbox));
                    served.spawn(async move { proxy::serve(&shared, &sandbox, kind, stream).await });
                }
                Received::Malformed => {
                    malformed += 1;
                    if malformed > MAX_MALFORMED {
                        break;
                    }
                }
                Received::Closed => break,
            }
        }
        // No new ones come; those under way go on to their own ends.
        while served.join_next().await.is_some() {}
        Ok(())
    }
}

enum Received {
    Opened(Kind, GuestSocket),
    Malformed,
    Closed,
}

fn receive(socket: &UnixDatagram) -> io::Result<Received> {
    let mut bytes = [0; message::LENGTH + 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = rustix::net::recvmsg(socket.as_fd(), &mut [IoSliceMut::new(&mut bytes)], &mut control, flags)?;
    let mut descriptors = Vec::new();
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(passed) = part {
            descriptors.extend(passed);
        }
    }
    if received.bytes == 0 && descriptors.is_empty() {
        return Ok(Received::Closed);
    }
    let opening = bytes.get(..received.bytes).and_then(Opening::parse);
    let (Some(opening), Ok([descriptor])) = (opening, <[OwnedFd; 1]>::try_from(descriptors)) else { return Ok(Received::Malformed) };
    let Ok(stream) = GuestSocket::new(descriptor) else { return Ok(Received::Malformed) };
    let kind = match opening {
        Opening::Proxy => Kind::Proxy,
        Opening::Dns => Kind::Dns,
        Opening::Agent => Kind::Agent,
        // Where the socket itself knows to whom it was made, that counts.
        Opening::Transparent(said) => Kind::Transparent(stream.original_destination().unwrap_or(said)),
    };
    Ok(Received::Opened(kind, stream))
}
