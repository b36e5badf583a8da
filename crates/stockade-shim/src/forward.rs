//! Connections on the guest's loopback: made for the host, or accepted for it.
//!
//! Owns `Connect`, `Listen` and accepted connections. A connection that stands is announced by `Started` (process number 0);
//! a half-closed direction is `Eof`; when both are closed the request is `Done`, and `Failed` when it breaks.

use std::os::fd::OwnedFd;
use std::rc::Rc;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddrAny, SocketAddrV4, SocketAddrV6, SocketFlags, SocketType, acceptfrom_with,
};
use stockade_wire::message::{Reply, Stream};

use crate::context::{Context, Progress, Ready, Slot};
use crate::ends::{Flushed, Medium, Pumped, Sink, Source};
use crate::failure::{Failure, describe, kind};
use crate::flow::Overrun;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 128;

/// One TCP connection.
pub(crate) struct Connection {
    socket: Rc<OwnedFd>,
    /// `Some` while the connection is being made.
    making: Option<Attempt>,
    input: Option<Sink>,
    output: Option<Source>,
}

/// Servers listen on one of the two loopback addresses, and not always on the older one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attempt {
    V4(u16),
    V6(u16),
}

impl Attempt {
    fn port(self) -> u16 {
        match self {
            Self::V4(port) | Self::V6(port) => port,
        }
    }
}

impl Connection {
    /// Begins to connect.
    pub(crate) fn start(context: &Context, id: u32, port: u16) -> Result<Self, Failure> {
        let attempt = Attempt::V4(port);
        let (socket, attempt) = match connecting(attempt) {
            Ok(socket) => (socket, attempt),
            Err(_) => (connecting(Attempt::V6(port)).map_err(|errno| refused(port, errno))?, Attempt::V6(port)),
        };
        Self::with(context, id, socket, Some(attempt)).map_err(|errno| refused(port, errno))
    }

    /// Takes over an accepted connection.
    pub(crate) fn accepted(context: &Context, id: u32, socket: OwnedFd) -> Result<Self, Errno> {
        Self::with(context, id, socket, None)
    }

    fn with(context: &Context, id: u32, socket: OwnedFd, making: Option<Attempt>) -> Result<Self, Errno> {
        // Small writes are not held back; what the host sends is already cut the way it wants.
        let _ = rustix::net::sockopt::set_tcp_nodelay(&socket, true);
        let socket = Rc::new(socket);
        context.poller.watch(&*socket, id, Slot::Both)?;
        let mut input = Sink::new(Rc::clone(&socket));
        if making.is_some() {
            input.hold();
        }
        let output = Source::new(Rc::clone(&socket), Medium::Connection);
        Ok(Self { socket, making, input: Some(input), output: Some(output) })
    }

    /// Remembers an event. Until the connection stands, writable may mean that it was refused.
    pub(crate) fn event(&mut self, ready: Ready) {
        if let (Some(input), None) = (&mut self.input, self.making) {
            input.event(ready);
        }
        if let Some(output) = &mut self.output {
            output.event(ready);
        }
    }

    /// Bytes towards the peer.
    pub(crate) fn input(&mut self, bytes: &[u8], context: &mut Context, id: u32) -> Result<Progress, Overrun> {
        let Some(input) = &mut self.input else { return Ok(Progress::Idle) };
        Ok(match input.accept(bytes, context, id)? {
            Flushed::Failed(errno) => context.fail(id, broken(errno)),
            Flushed::Clean | Flushed::Waiting | Flushed::Complete => Progress::Again,
        })
    }

    /// No more bytes towards the peer.
    pub(crate) fn end_input(&mut self) {
        if let Some(input) = &mut self.input {
            input.end(b"");
        }
    }

    /// The host takes more.
    pub(crate) fn grant(&mut self, bytes: u32) {
        if let Some(output) = &mut self.output {
            output.grant(bytes);
        }
    }

    /// Moves bytes both ways.
    pub(crate) fn step(&mut self, context: &mut Context, id: u32) -> Progress {
        if let Some(attempt) = self.making
            && let Some(progress) = self.finish_connecting(attempt, context, id)
        {
            return progress;
        }
        if let Some(input) = &mut self.input {
            match input.flush(context, id) {
                Flushed::Clean | Flushed::Waiting => {}
                Flushed::Complete => {
                    let _ = rustix::net::shutdown(&*self.socket, Shutdown::Write);
                    self.input = None;
                }
                Flushed::Failed(errno) => return context.fail(id, broken(errno)),
            }
        }
        let mut progress = Progress::Idle;
        if let Some(output) = &mut self.output {
            match output.pump(context, id, &Stream::Output {}) {
                Pumped::More => progress = Progress::Again,
                Pumped::Nothing => {}
                Pumped::Ended => {
                    self.output = None;
                    context.reply(id, &Reply::Eof { stream: Stream::Output {} });
                }
                Pumped::Failed(errno) => return context.fail(id, broken(errno)),
            }
        }
        if self.input.is_none() && self.output.is_none() { context.done(id) } else { progress }
    }

    /// `None` once the connection stands.
    fn finish_connecting(&mut self, attempt: Attempt, context: &mut Context, id: u32) -> Option<Progress> {
        let trouble = match rustix::net::sockopt::socket_error(&*self.socket) {
            Ok(Ok(())) if rustix::net::getpeername(&*self.socket).is_ok() => {
                self.making = None;
                if let Some(input) = &mut self.input {
                    input.event(Ready { readable: false, writable: true, hung_up: false });
                }
                context.reply(id, &Reply::Started { pid: 0, program: "".into() });
                return None;
            }
            Ok(Ok(())) => return Some(Progress::Idle),
            Ok(Err(errno)) | Err(errno) => errno,
        };
        match attempt {
            Attempt::V4(port) => Some(self.try_again(Attempt::V6(port), trouble, context, id)),
            Attempt::V6(port) => Some(context.fail(id, refused(port, trouble))),
        }
    }

    /// What the host has sent meanwhile is kept: only the socket is replaced.
    fn try_again(&mut self, attempt: Attempt, trouble: Errno, context: &mut Context, id: u32) -> Progress {
        let port = attempt.port();
        let replaced = connecting(attempt).and_then(|socket| {
            let _ = rustix::net::sockopt::set_tcp_nodelay(&socket, true);
            let socket = Rc::new(socket);
            context.poller.watch(&*socket, id, Slot::Both)?;
            Ok(socket)
        });
        let Ok(socket) = replaced else { return context.fail(id, refused(port, trouble)) };
        if let Some(input) = &mut self.input {
            input.replace(Rc::clone(&socket));
            input.hold();
        }
        if let Some(output) = &mut self.output {
            output.replace(Rc::clone(&socket));
        }
        self.socket = socket;
        self.making = Some(attempt);
        Progress::Again
    }
}

fn connecting(attempt: Attempt) -> Result<OwnedFd, Errno> {
    let socket = socket(attempt)?;
    let connected = match attempt {
        Attempt::V4(port) => rustix::net::connect(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)),
        Attempt::V6(port) => rustix::net::connect(&socket, &SocketAddrV6::new(Ipv6Addr::LOCALHOST, port, 0, 0)),
    };
    match connected {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(errno) => Err(errno),
    }
}

fn socket(attempt: Attempt) -> Result<OwnedFd, Errno> {
    let family = match attempt {
        Attempt::V4(_) => AddressFamily::INET,
        Attempt::V6(_) => AddressFamily::INET6,
    };
    rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)
}

fn refused(port: u16, errno: Errno) -> Failure {
    Failure { kind: kind(errno), message: format!("cannot connect to port {port}: {}", describe(errno)) }
}

fn broken(errno: Errno) -> Failure {
    Failure { kind: kind(errno), message: format!("the connection broke: {}", describe(errno)) }
}

/// A listening socket.
pub(crate) struct Listener(OwnedFd);

/// A connection that came in.
pub(crate) struct Incoming {
    pub(crate) socket: OwnedFd,
    pub(crate) peer_port: u16,
}

impl Listener {
    /// Listens, and tells the host the port.
    pub(crate) fn start(context: &mut Context, id: u32, port: u16) -> Result<Self, Failure> {
        let about = |errno| Failure { kind: kind(errno), message: format!("cannot listen on port {port}: {}", describe(errno)) };
        let socket = socket(Attempt::V4(port)).map_err(about)?;
        rustix::net::sockopt::set_socket_reuseaddr(&socket, true).map_err(about)?;
        rustix::net::bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)).map_err(about)?;
        rustix::net::listen(&socket, BACKLOG).map_err(about)?;
        let bound = rustix::net::getsockname(&socket).map_err(about)?;
        context.poller.watch(&socket, id, Slot::Both).map_err(about)?;
        context.reply(id, &Reply::Listening { port: port_of(Some(&bound)) });
        Ok(Self(socket))
    }

    /// Accepts one connection, if there is one.
    pub(crate) fn accept(&self) -> Result<Option<Incoming>, Errno> {
        loop {
            return match acceptfrom_with(&self.0, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok((socket, peer)) => Ok(Some(Incoming { socket, peer_port: port_of(peer.as_ref()) })),
                Err(Errno::AGAIN) => Ok(None),
                Err(Errno::CONNABORTED | Errno::INTR) => continue,
                Err(errno) => Err(errno),
            };
        }
    }
}

fn port_of(address: Option<&SocketAddrAny>) -> u16 {
    address.and_then(|address| SocketAddrV4::try_from(address.clone()).ok()).map_or(0, |address| address.port())
}
