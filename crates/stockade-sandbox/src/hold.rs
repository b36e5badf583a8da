//! The supervisor of a created sandbox: owns the wall, serves clients on a socket, ends with the sandbox.
//!
//! ```text
//! client ─┐                      ┌─ guest's stream (ids renumbered)
//! client ─┼─ socket ─ [ hold ] ──┤
//! client ─┘                      └─ wall: limits, freezing, the end
//! ```
//!
//! One thread, one poll loop. Clients speak the guest's own protocol; the supervisor renumbers request ids so that they cannot touch each
//! other's requests, passes descriptors on, and answers `Freeze`, `Shutdown` and `Ping` itself. A client that goes away has its
//! requests cancelled. A client that does not read is not waited for: its queue is bounded by the credit it granted.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use stockade_core::demand::Demand;
use stockade_wire::codec;
use stockade_wire::frame::GUEST_ID_BIT;
use stockade_wire::message::{ErrorKind, Reply, Request, Stdio};

use crate::backends::Running;
use crate::connection::{Connection, ConnectionError, Passing};
use crate::limits::Frozen;

/// How often limits are looked at while anything runs.
const TICK: Duration = Duration::from_millis(100);
/// Clients at once.
const MAX_CLIENTS: usize = 128;

/// Why the supervisor ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// Somebody asked.
    Destroyed,
    /// A limit was hit and everything was killed.
    Limit(Demand),
    /// The guest ended by itself or was killed.
    Guest,
    /// A signal asked this process to end.
    Signal,
}

/// Opens the socket that clients connect to, in a directory only we can enter.
pub fn listen(path: &Path) -> std::io::Result<OwnedFd> {
    let _ = std::fs::remove_file(path);
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
    with_short_path(path, |short| {
        rustix::net::bind(&socket, &SocketAddrUnix::new(short)?)?;
        rustix::net::listen(&socket, 64)
    })?;
    rustix::fs::chmod(path, rustix::fs::Mode::from_raw_mode(0o600))?;
    Ok(socket)
}

/// Connects to a supervisor.
pub fn connect(path: &Path) -> std::io::Result<Connection> {
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    with_short_path(path, |short| rustix::net::connect(&socket, &SocketAddrUnix::new(short)?))?;
    Ok(Connection::new(socket, Passing::Possible))
}

/// Socket addresses hold 108 bytes; a long directory is reached through its descriptor instead.
fn with_short_path<T>(path: &Path, act: impl FnOnce(&Path) -> Result<T, Errno>) -> std::io::Result<T> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
    let fd = rustix::fs::open(directory, flags, rustix::fs::Mode::empty())?;
    let name = path.file_name().unwrap_or_default();
    let short = Path::new("/proc/self/fd").join(std::os::fd::AsRawFd::as_raw_fd(&fd).to_string()).join(name);
    Ok(act(&short)?)
}

struct Client {
    connection: Connection,
    /// Bytes that the client has not taken yet.
    queue: Vec<u8>,
    /// Ids as the client numbers them, by the guest's numbers.
    requests: HashMap<u32, u32>,
    gone: bool,
}

/// Serves clients until the sandbox ends.
pub struct Supervisor {
    running: Box<dyn Running>,
    listener: OwnedFd,
    clients: HashMap<u64, Client>,
    /// Which client a request of the guest's numbering belongs to.
    owners: HashMap<u32, u64>,
    next_client: u64,
    frozen: bool,
}

impl Supervisor {
    /// Takes a running sandbox and a listening socket.
    pub fn new(running: Box<dyn Running>, listener: OwnedFd) -> Self {
        Self { running, listener, clients: HashMap::new(), owners: HashMap::new(), next_client: 1, frozen: false }
    }

    /// Serves until the end; `on_frozen` is called when everything inside stands still, to bring layers out of memory.
    pub fn serve(
        mut self,
        signals: &stockade_sys::signals::Signals,
        mut on_frozen: impl FnMut(&mut dyn Running),
    ) -> (Ended, Box<dyn Running>) {
        loop {
            let ready = self.wait(signals);
            if ready.signal && signals.next().is_some() {
                return (Ended::Signal, self.running);
            }
            if ready.ended {
                let hit = self.running.parts().1.tick();
                return (hit.map_or(Ended::Guest, Ended::Limit), self.running);
            }
            if let Some(demand) = self.running.parts().1.tick() {
                self.running.parts().1.kill();
                return (Ended::Limit(demand), self.running);
            }
            if ready.guest && self.serve_guest().is_err() {
                let hit = self.running.parts().1.tick();
                return (hit.map_or(Ended::Guest, Ended::Limit), self.running);
            }
            if ready.listener {
                self.accept();
            }
            for client in ready.clients {
                match self.serve_client(client, &mut on_frozen) {
                    Ok(Next::GoOn) => {}
                    Ok(Next::End) => return (Ended::Destroyed, self.running),
                    Err(_) => self.lose(client),
                }
            }
            let gone: Vec<u64> = self.clients.iter_mut().filter_map(|(id, c)| (c.gone || flush(c).is_err()).then_some(*id)).collect();
            for id in gone {
                self.lose(id);
            }
        }
    }

    fn wait(&mut self, signals: &stockade_sys::signals::Signals) -> Ready {
        let order: Vec<u64> = self.clients.keys().copied().collect();
        let busy = !self.owners.is_empty();
        let process = self.running.process().try_clone();
        let (guest, _) = self.running.parts();
        let mut fds = vec![
            PollFd::from_borrowed_fd(guest.as_fd(), PollFlags::IN),
            PollFd::new(&self.listener, PollFlags::IN),
            PollFd::new(signals.as_fd(), PollFlags::IN),
        ];
        if let Ok(process) = &process {
            fds.push(PollFd::new(process, PollFlags::IN));
        }
        let fixed = fds.len();
        for id in &order {
            if let Some(client) = self.clients.get(id) {
                let flags = if client.queue.is_empty() { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT };
                fds.push(PollFd::from_borrowed_fd(client.connection.as_fd(), flags));
            }
        }
        // An idle sandbox is looked at now and then too: what runs in the background can hit a limit.
        let tick = if busy { TICK } else { TICK * 5 };
        let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(tick.subsec_nanos()) };
        if rustix::event::poll(&mut fds, Some(&timeout)).is_err() {
            return Ready::default();
        }
        let is = |i: usize| fds.get(i).is_some_and(|fd| !fd.revents().is_empty());
        let readable = |i: usize| fds.get(i).is_some_and(|fd| fd.revents().intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR));
        Ready {
            guest: is(0),
            listener: is(1),
            signal: is(2),
            ended: process.is_ok() && is(3),
            clients: order.iter().enumerate().filter(|(i, _)| readable(fixed + i)).map(|(_, id)| *id).collect(),
        }
    }

    fn accept(&mut self) {
        while let Ok(socket) = rustix::net::accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            // The directory is private already; the kernel's word on who connected is a second check.
            let own = rustix::process::geteuid();
            let peer = rustix::net::sockopt::socket_peercred(&socket);
            if self.clients.len() >= MAX_CLIENTS || !peer.is_ok_and(|p| p.uid == own || p.uid.is_root()) {
                continue;
            }
            let client =
                Client { connection: Connection::new(socket, Passing::Possible), queue: Vec::new(), requests: HashMap::new(), gone: false };
            self.clients.insert(self.next_client, client);
            self.next_client += 1;
        }
    }

    fn serve_client(&mut self, id: u64, on_frozen: &mut impl FnMut(&mut dyn Running)) -> Result<Next, ConnectionError> {
        let Some(client) = self.clients.get_mut(&id) else { return Ok(Next::GoOn) };
        client.connection.fill()?;
        while let Some(client) = self.clients.get_mut(&id) {
            let Some((request_id, request)) = client.connection.buffered::<Request>()? else { break };
            match request {
                Request::Hello { version, .. } if version == stockade_wire::VERSION => {
                    queue(client, request_id, &Reply::Welcome { version, pid: std::process::id() });
                }
                Request::Hello { .. } | Request::Jail { .. } => {
                    return Err(ConnectionError::OutOfTurn("a request that only the supervisor makes"));
                }
                Request::Ping {} => queue(client, request_id, &Reply::Pong {}),
                Request::Shutdown {} => {
                    queue(client, request_id, &Reply::Done {});
                    let _ = flush(client);
                    return Ok(Next::End);
                }
                Request::Freeze { frozen } => {
                    let answer = self.freeze(frozen, on_frozen);
                    if let Some(client) = self.clients.get_mut(&id) {
                        queue(client, request_id, &answer);
                    }
                }
                request => self.forward(id, request_id, &request)?,
            }
        }
        Ok(Next::GoOn)
    }

    fn freeze(&mut self, frozen: bool, on_frozen: &mut impl FnMut(&mut dyn Running)) -> Reply {
        let wanted = if frozen { Frozen::Yes } else { Frozen::No };
        match self.running.freeze(wanted) {
            Ok(()) => {
                self.frozen = frozen;
                if frozen {
                    on_frozen(self.running.as_mut());
                }
                Reply::Done {}
            }
            Err(error) => Reply::Failed { kind: ErrorKind::Io {}, message: error.to_string() },
        }
    }

    /// Passes a request on under a number of our own.
    fn forward(&mut self, client_id: u64, request_id: u32, request: &Request) -> Result<(), ConnectionError> {
        let Some(client) = self.clients.get_mut(&client_id) else { return Ok(()) };
        let follows = matches!(
            request,
            Request::Data { .. }
                | Request::Eof { .. }
                | Request::Credit { .. }
                | Request::Signal { .. }
                | Request::Resize { .. }
                | Request::Cancel {}
        );
        let known = client.requests.iter().find(|(_, theirs)| **theirs == request_id).map(|(ours, _)| *ours);
        let (guest, _) = self.running.parts();
        let ours = match (follows, known) {
            (true, Some(ours)) => ours,
            // It ended while this was on its way.
            (true, None) => return Ok(()),
            (false, Some(_)) => {
                let reply = Reply::Failed { kind: ErrorKind::Invalid {}, message: format!("request {request_id} is in use") };
                queue(client, request_id, &reply);
                return Ok(());
            }
            (false, None) => {
                let ours = guest.fresh_id();
                client.requests.insert(ours, request_id);
                self.owners.insert(ours, client_id);
                ours
            }
        };
        let passed = match request {
            Request::Run { exec } if exec.stdio == (Stdio::Passed {}) => client.connection.take_some_descriptors(3),
            _ => Vec::new(),
        };
        if self.frozen && matches!(request, Request::Run { .. }) {
            client.requests.remove(&ours);
            self.owners.remove(&ours);
            queue(client, request_id, &Reply::Failed { kind: ErrorKind::Invalid {}, message: "the sandbox is paused".into() });
            return Ok(());
        }
        let fds: Vec<_> = passed.iter().map(AsFd::as_fd).collect();
        guest.send(ours, request, &fds)
    }

    fn serve_guest(&mut self) -> Result<(), ConnectionError> {
        self.running.parts().0.fill()?;
        loop {
            let Some((ours, reply)) = self.running.parts().0.buffered::<Reply>()? else { return Ok(()) };
            if let Reply::Accepted { listener, .. } = &reply {
                // A connection that a client's listener accepted is that client's, under the guest's own number.
                if let Some(owner) = self.owners.get(listener).copied()
                    && let Some(client) = self.clients.get_mut(&owner)
                {
                    client.requests.insert(ours, ours | GUEST_ID_BIT);
                    self.owners.insert(ours, owner);
                }
            }
            let Some(owner) = self.owners.get(&ours).copied() else { continue };
            let ends = matches!(reply, Reply::Exited { .. } | Reply::Done {} | Reply::Failed { .. } | Reply::Described { .. });
            if let Some(client) = self.clients.get_mut(&owner) {
                let theirs = client.requests.get(&ours).copied().unwrap_or(ours);
                queue(client, theirs, &reply);
                if ends {
                    client.requests.remove(&ours);
                }
            }
            if ends {
                self.owners.remove(&ours);
            }
        }
    }

    /// Forgets a client and ends what it started.
    fn lose(&mut self, id: u64) {
        let Some(client) = self.clients.remove(&id) else { return };
        for ours in client.requests.keys() {
            self.owners.remove(ours);
            // A guest that cannot be told is noticed by the main loop.
            let _ = self.running.parts().0.send(*ours, &Request::Cancel {}, &[]);
        }
    }
}

enum Next {
    GoOn,
    End,
}

#[derive(Default)]
struct Ready {
    guest: bool,
    listener: bool,
    signal: bool,
    ended: bool,
    clients: Vec<u64>,
}

fn queue(client: &mut Client, id: u32, reply: &Reply) {
    stockade_wire::frame::push_frame(&mut client.queue, id, &codec::to_bytes(reply));
    if flush(client).is_err() {
        client.gone = true;
    }
}

fn flush(client: &mut Client) -> Result<(), Errno> {
    while !client.queue.is_empty() {
        match rustix::io::write(client.connection.as_fd(), &client.queue) {
            Ok(n) => drop(client.queue.drain(..n)),
            Err(Errno::AGAIN) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
