//! A stream socket that came from a sandbox.
//!
//! Its file description is shared with whoever passed it, who could make it block at any moment; so every call says for itself that it
//! must not wait, and no thread of ours ever does.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::net::{AddressFamily, RecvFlags, SendFlags, Shutdown, SocketType, sockopt};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::UnixStream;

/// The socket. It may be a TCP one; the type below only waits for it.
#[derive(Debug)]
pub struct GuestSocket(UnixStream);

impl GuestSocket {
    /// Takes a descriptor that is a connected stream socket of a kind we expect; to be called inside a runtime.
    pub fn new(descriptor: OwnedFd) -> io::Result<Self> {
        let family = sockopt::socket_domain(&descriptor)?;
        let is_stream = sockopt::socket_type(&descriptor)? == SocketType::STREAM;
        let is_expected = [AddressFamily::INET, AddressFamily::INET6, AddressFamily::UNIX].contains(&family);
        if !is_stream || !is_expected || sockopt::socket_acceptconn(&descriptor)? {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        if family != AddressFamily::UNIX {
            // Small answers must not wait for more to come; failing to say so only makes them slower.
            let _ = sockopt::set_tcp_nodelay(&descriptor, true);
        }
        // For the runtime's sake; that it stays so is not relied on.
        rustix::io::ioctl_fionbio(&descriptor, true)?;
        UnixStream::from_std(descriptor.into()).map(Self)
    }

    /// To whom the connection was made, inside; `None` for a Unix socket.
    pub fn original_destination(&self) -> Option<SocketAddr> {
        SocketAddr::try_from(rustix::net::getsockname(&self.0).ok()?).ok()
    }
}

impl AsyncRead for GuestSocket {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.poll_read_ready(context))?;
            let space = buffer.initialize_unfilled();
            let read = || Ok(rustix::net::recv(self.0.as_fd(), &mut *space, RecvFlags::DONTWAIT)?.1);
            match self.0.try_io(Interest::READABLE, read) {
                Ok(count) => {
                    buffer.advance(count.min(buffer.remaining()));
                    return Poll::Ready(Ok(()));
                }
                Err(error) if is_passing(&error) => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for GuestSocket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(context))?;
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match self.0.try_io(Interest::WRITABLE, || Ok(rustix::net::send(self.0.as_fd(), bytes, flags)?)) {
                Err(error) if is_passing(&error) => {}
                sent => return Poll::Ready(sent),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match rustix::net::shutdown(&self.0, Shutdown::Write) {
            // Gone already is shut, too.
            Ok(()) | Err(rustix::io::Errno::NOTCONN) => Poll::Ready(Ok(())),
            Err(error) => Poll::Ready(Err(error.into())),
        }
    }
}

/// Not ready, or interrupted: try again.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
