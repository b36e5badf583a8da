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
//!
//! A frozen guest does not read, so nothing is sent to it while it stands still. While a client holds the sandbox still to look at it,
//! the requests of others wait; a client that goes away without letting go loses its hold. While a person has paused the sandbox, new
//! requests are refused and those under way wait.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use stockade_core::demand::Demand;
use stockade_sys::memory::Code;
use stockade_wire::codec;
use stockade_wire::frame::GUEST_ID_BIT;
use stockade_wire::message::{ErrorKind, Exit, Reply, Request};

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
    /// The sandbox's lock is not on disk any more, so nobody can see that it lives.
    Disowned,
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

/// Connects to a socket that [`listen`] opened.
pub fn dial(path: &Path) -> std::io::Result<OwnedFd> {
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    with_short_path(path, |short| rustix::net::connect(&socket, &SocketAddrUnix::new(short)?))?;
    Ok(socket)
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
    /// A request that waits until the sandbox runs again; what the client sent after it is not looked at before.
    waiting: Option<(u32, Request)>,
    gone: bool,
}

/// Whether the sandbox runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Motion {
    Running,
    /// A client holds it still for as long as it is connected.
    Held(u64),
    /// A person paused it.
    Paused,
}

/// What on disk says about the sandbox.
pub struct Owner {
    /// Its lock, which is held for as long as the supervisor lives.
    pub lock: OwnedFd,
    /// Exists while a person has paused the sandbox.
    pub pause_marker: PathBuf,
}

impl Owner {
    /// Whether the lock that we hold is the one others look at. Where that cannot be told, it is.
    fn is_seen(&self) -> bool {
        rustix::fs::fstat(&self.lock).map_or(true, |stat| stat.st_nlink > 0)
    }
}

/// Serves clients until the sandbox ends.
pub struct Supervisor {
    running: Box<dyn Running>,
    listener: OwnedFd,
    clients: HashMap<u64, Client>,
    /// Which client a request of the guest's numbering belongs to.
    owners: HashMap<u32, u64>,
    next_client: u64,
    motion: Motion,
    owner: Owner,
    /// Requests of clients that went away while the guest could not be told.
    cancelled: Vec<u32>,
    /// Called when a program ended, before its client hears of it.
    on_exit: Box<dyn FnMut()>,
    code: Code,
    /// Nothing happened in the last turn.
    idle: bool,
}

impl Supervisor {
    /// Takes a running sandbox, a listening socket, what on disk says about the sandbox, and what to do when a program ended.
    pub fn new(mut running: Box<dyn Running>, listener: OwnedFd, owner: Owner, on_exit: Box<dyn FnMut()>) -> Self {
        running.settle();
        Self {
            running,
            listener,
            clients: HashMap::new(),
            owners: HashMap::new(),
            next_client: 1,
            motion: Motion::Running,
            owner,
            cancelled: Vec::new(),
            on_exit,
            code: Code::find(),
            idle: false,
        }
    }

    /// Serves until the end; `on_frozen` is called when everything inside stands still, to bring layers out of memory.
    pub fn serve(
        mut self,
        signals: &stockade_sys::signals::Signals,
        mut on_frozen: impl FnMut(&mut dyn Running),
    ) -> (Ended, Box<dyn Running>, Farewell) {
        let ended = loop {
            if let Some(ended) = self.turn(signals, &mut on_frozen) {
                break ended;
            }
        };
        // What stands still in a group of version 1 cannot be killed.
        if self.motion != Motion::Running {
            let _ = self.running.freeze(Frozen::No);
        }
        let limit = if let Ended::Limit(demand) = ended { Some(demand) } else { None };
        if limit.is_some() {
            self.running.parts().1.kill();
        }
        (ended, self.running, Farewell { clients: self.clients, limit })
    }

    /// One turn of the loop.
    fn turn(&mut self, signals: &stockade_sys::signals::Signals, on_frozen: &mut impl FnMut(&mut dyn Running)) -> Option<Ended> {
        let ready = self.wait(signals);
        if ready.signal && signals.next().is_some() {
            return Some(Ended::Signal);
        }
        if !self.owner.is_seen() {
            return Some(Ended::Disowned);
        }
        let hit = self.running.parts().1.tick();
        if let Some(demand) = hit {
            return Some(Ended::Limit(demand));
        }
        if ready.ended || (ready.guest && self.serve_guest().is_err()) {
            let hit = self.running.parts().1.tick();
            return Some(hit.map_or(Ended::Guest, Ended::Limit));
        }
        if ready.listener {
            self.accept();
        }
        for id in ready.clients {
            // An earlier client of this turn may have stopped the sandbox.
            if !self.may_be_read(id) {
                continue;
            }
            let filled = self.clients.get_mut(&id).map_or(Ok(()), |client| client.connection.fill());
            match filled.and_then(|()| self.serve_client(id, on_frozen)) {
                Ok(Next::GoOn) => {}
                Ok(Next::End) => return Some(Ended::Destroyed),
                Err(_) => self.lose(id),
            }
        }
        let gone: Vec<u64> = self.clients.iter_mut().filter_map(|(id, c)| (c.gone || flush(c).is_err()).then_some(*id)).collect();
        for id in gone {
            self.lose(id);
        }
        if self.motion == Motion::Running {
            return self.let_go_on(on_frozen);
        }
        None
    }

    /// The sandbox runs again: what waited for that goes on.
    fn let_go_on(&mut self, on_frozen: &mut impl FnMut(&mut dyn Running)) -> Option<Ended> {
        for ours in std::mem::take(&mut self.cancelled) {
            let _ = self.running.parts().0.send(ours, &Request::Cancel {}, &[]);
        }
        let waiting: Vec<u64> = self.clients.iter().filter(|(_, c)| c.waiting.is_some()).map(|(id, _)| *id).collect();
        for id in waiting {
            match self.serve_client(id, on_frozen) {
                Ok(Next::GoOn) => {}
                Ok(Next::End) => return Some(Ended::Destroyed),
                Err(_) => self.lose(id),
            }
        }
        None
    }

    /// Whether what a client sends can be dealt with now. Requests under way cannot while the guest does not read.
    fn may_be_read(&self, id: u64) -> bool {
        self.motion == Motion::Running
            || self.motion == Motion::Held(id)
            || self.clients.get(&id).is_some_and(|client| client.requests.is_empty() && client.waiting.is_none())
    }

    fn wait(&mut self, signals: &stockade_sys::signals::Signals) -> Ready {
        // Those that cannot be read now are left out: the kernel would report them again and again. They can still be written to.
        let order: Vec<u64> = self.clients.keys().copied().filter(|id| self.may_be_read(*id)).collect();
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
                let write = if client.queue.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
                fds.push(PollFd::from_borrowed_fd(client.connection.as_fd(), PollFlags::IN | write));
            }
        }
        // An idle sandbox is looked at now and then too: what runs in the background can hit a limit.
        let tick = if busy { TICK } else { TICK * 5 };
        let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(tick.subsec_nanos()) };
        // Each look brings some of the code back; nothing of it is needed to sleep.
        let woken = if self.idle { self.code.sleep(&mut fds, &timeout) } else { rustix::event::poll(&mut fds, Some(&timeout)) };
        let Ok(count) = woken else { return Ready::default() };
        self.idle = count == 0 && !busy;
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
            let peer = rustix::net::sockopt::socket_peercred(&socket);
            if self.clients.len() >= MAX_CLIENTS || !peer.is_ok_and(|p| is_one_of_us(&p)) {
                continue;
            }
            let connection = Connection::new(socket, Passing::Possible);
            let client = Client { connection, queue: Vec::new(), requests: HashMap::new(), waiting: None, gone: false };
            self.clients.insert(self.next_client, client);
            self.next_client += 1;
        }
    }

    /// Deals with what a client has sent, as far as that can be done now.
    fn serve_client(&mut self, id: u64, on_frozen: &mut impl FnMut(&mut dyn Running)) -> Result<Next, ConnectionError> {
        while let Some(client) = self.clients.get_mut(&id) {
            let next = match client.waiting.take() {
                Some(waited) => Some(waited),
                None => client.connection.buffered::<Request>()?,
            };
            let Some((request_id, request)) = next else { break };
            match request {
                Request::Hello { version, .. } if version == stockade_wire::VERSION => {
                    queue(client, request_id, &Reply::Welcome { version, pid: std::process::id() });
                }
                Request::Hello { .. } | Request::Begin { .. } | Request::Jail { .. } | Request::Enter { .. } | Request::Confine { .. } => {
                    return Err(ConnectionError::OutOfTurn("a request that only the supervisor makes"));
                }
                Request::Ping {} => queue(client, request_id, &Reply::Pong {}),
                Request::Shutdown {} => {
                    queue(client, request_id, &Reply::Done {});
                    let _ = flush(client);
                    return Ok(Next::End);
                }
                request if matches!(self.motion, Motion::Held(holder) if holder != id) => {
                    client.waiting = Some((request_id, request));
                    break;
                }
                Request::Freeze { frozen } => {
                    let answer = self.freeze(id, if frozen { Frozen::Yes } else { Frozen::No }, on_frozen)?;
                    if let Some(client) = self.clients.get_mut(&id) {
                        queue(client, request_id, &answer);
                    }
                }
                request => self.forward(id, request_id, &request)?,
            }
        }
        Ok(Next::GoOn)
    }

    fn freeze(&mut self, id: u64, wanted: Frozen, on_frozen: &mut impl FnMut(&mut dyn Running)) -> Result<Reply, ConnectionError> {
        let done = self.running.freeze(wanted);
        // What the guest said meanwhile has arrived already, so the stream will not report it.
        self.pass_replies()?;
        Ok(match (done, wanted) {
            (Ok(()), Frozen::Yes) => {
                self.motion = Motion::Held(id);
                on_frozen(self.running.as_mut());
                Reply::Done {}
            }
            (Ok(()), Frozen::No) => {
                self.motion = Motion::Running;
                Reply::Done {}
            }
            (Err(error), _) => Reply::Failed { kind: ErrorKind::Io {}, message: error.to_string() },
        })
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
        if self.motion != Motion::Running {
            if follows {
                // The rest of one that was refused; a holder has none under way.
                let known = client.requests.values().any(|theirs| *theirs == request_id);
                return if known { Err(ConnectionError::OutOfTurn("more of a request while the sandbox is frozen")) } else { Ok(()) };
            }
            drop(client.connection.take_some_descriptors(request.descriptors()));
            queue(client, request_id, &Reply::Failed { kind: ErrorKind::Invalid {}, message: "the sandbox is paused".into() });
            return Ok(());
        }
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
        let passed = client.connection.take_some_descriptors(request.descriptors());
        let fds: Vec<_> = passed.iter().map(AsFd::as_fd).collect();
        guest.send(ours, request, &fds)
    }

    fn serve_guest(&mut self) -> Result<(), ConnectionError> {
        self.running.parts().0.fill()?;
        self.pass_replies()
    }

    /// Passes on what has arrived from the guest.
    fn pass_replies(&mut self) -> Result<(), ConnectionError> {
        loop {
            let Some((ours, reply)) = self.running.parts().0.buffered::<Reply>()? else { return Ok(()) };
            if matches!(reply, Reply::Exited { exit: Exit::Limit { .. } }) {
                return Err(ConnectionError::OutOfTurn("a limit that is not the guest's to watch"));
            }
            if matches!(reply, Reply::Exited { .. }) {
                (self.on_exit)();
            }
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
            self.cancelled.push(*ours);
        }
        if self.motion == Motion::Held(id) {
            if self.owner.pause_marker.exists() {
                self.motion = Motion::Paused;
            } else if self.running.freeze(Frozen::No).is_ok() {
                self.motion = Motion::Running;
            }
        }
    }
}

/// Whether a client is the person who owns the sandbox (or root), outside of any sandbox: one that reached the socket from inside
/// has the same user, but not the same user namespace.
fn is_one_of_us(peer: &rustix::net::UCred) -> bool {
    let own = rustix::process::geteuid();
    let namespace = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/user")).ok();
    let same = namespace("self").is_some_and(|ours| namespace(&peer.pid.as_raw_nonzero().to_string()) == Some(ours));
    (peer.uid == own || peer.uid.is_root()) && same
}

/// The clients of a sandbox that ended. They hear of it when everything is put in order, so that what they look at next is true.
pub struct Farewell {
    clients: HashMap<u64, Client>,
    limit: Option<Demand>,
}

impl Farewell {
    /// Tells clients whose programs died at a limit; the streams of all others just end.
    pub fn say(mut self) {
        let Some(demand) = self.limit else { return };
        for client in self.clients.values_mut() {
            for theirs in std::mem::take(&mut client.requests).into_values() {
                queue(client, theirs, &Reply::Exited { exit: Exit::Limit { demand: demand.name().to_owned() } });
            }
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
