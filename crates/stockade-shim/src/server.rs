//! The loop: waits for events, takes requests from the control stream, and gives every request its turns.
//!
//! Owns the table of requests. One thread, nothing ever blocks but the start of a program (until it executes) and the
//! disk. Descriptors of requests are watched for edges and readiness is remembered by the request, so that a request without
//! credit costs nothing; while the host does not read, nothing new is produced, but its requests are still taken.
//! What each kind of request does is in its own file.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::process::{WaitOptions, WaitStatus};
use stockade_wire::frame::{GUEST_ID_BIT, START_DELAY};
use stockade_wire::message::{Exit, Reply, Request};

use crate::channel::{Broken, Channel};
use crate::context::{Context, Poller, Progress, Ready, Subject, subject};
use crate::failure::Failure;
use crate::forward::Connection;
use crate::memory::Code;
use crate::signals::{self, Role, Woken};
use crate::spawn::Spawner;
use crate::task::Task;
use crate::wayout::WayOut;

/// Requests of the host that may be under way at once.
pub(crate) const MOST_REQUESTS: usize = 1024;
/// Accepted connections that may be open at once. Counted apart, because programs inside make them.
const MOST_ACCEPTED: usize = 512;
/// Waiting for nothing.
const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
/// How long a reply that is not urgent waits for company.
const A_MOMENT: Timespec = Timespec { tv_sec: 0, tv_nsec: START_DELAY.subsec_nanos() as i64 };
/// How long nothing happens before memory is given back.
const A_WHILE: Timespec = Timespec { tv_sec: 0, tv_nsec: 300_000_000 };
/// Events taken from the kernel at once.
const EVENTS: usize = 64;

/// Why serving ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The host closed the stream, asked for it, or sent a signal.
    Asked,
    /// What arrived is not the protocol, or the kernel refused what serving needs.
    Broken,
}

impl From<Broken> for End {
    fn from(broken: Broken) -> Self {
        match broken {
            Broken::Closed => Self::Asked,
            Broken::Malformed => Self::Broken,
        }
    }
}

pub(crate) struct Entry {
    pub(crate) task: Task,
    queued: bool,
}

/// All requests and what they need.
pub(crate) struct Server {
    pub(crate) context: Context,
    pub(crate) requests: BTreeMap<u32, Entry>,
    pub(crate) frozen: bool,
    /// Requests that want a turn.
    turns: VecDeque<u32>,
    /// Listeners that found no room for a connection.
    starved: Vec<u32>,
    /// Where programs' connections go, and whether it wants a turn.
    way_out: Option<(WayOut, Progress)>,
    signals: OwnedFd,
    /// The highest id the host has used, to tell a late message from a wrong one.
    highest: Option<u32>,
    next_guest: u32,
    accepted: usize,
    control_interest: epoll::EventFlags,
    code: Code,
    rest: Rest,
}

/// Whether memory was given back since something happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rest {
    Awake,
    Asleep,
}

impl Server {
    /// Gets ready to serve.
    pub(crate) fn new(channel: Channel, role: Role) -> Result<Self, Errno> {
        let signals = signals::prepare(role)?;
        let poller = Poller::new()?;
        channel.stop_waiting()?;
        poller.watch_control(channel.descriptor())?;
        poller.watch_signals(&signals)?;
        Ok(Self {
            context: Context { channel, poller, spawner: Spawner::new(), children: BTreeMap::new(), role },
            requests: BTreeMap::new(),
            frozen: false,
            turns: VecDeque::new(),
            starved: Vec::new(),
            way_out: None,
            signals,
            highest: None,
            next_guest: 0,
            accepted: 0,
            control_interest: epoll::EventFlags::IN,
            code: Code::find(),
            rest: Rest::Awake,
        })
    }

    /// From now on connections that programs make are passed on this way.
    pub(crate) fn lead_out(&mut self, way_out: WayOut) -> Result<(), Errno> {
        way_out.watch(&self.context.poller)?;
        self.way_out = Some((way_out, Progress::Again));
        Ok(())
    }

    /// Serves until the stream ends, beginning with a request that was already read, if any.
    pub(crate) fn serve(&mut self, first: Option<(u32, Request)>) -> End {
        let end = match self.turn_until_end(first) {
            Ok(never) => match never {},
            Err(end) => end,
        };
        let _ = self.context.channel.flush();
        // As the first process we take everything with us; otherwise what we started must not outlive us.
        self.context.signal_all(libc::SIGKILL);
        end
    }

    fn turn_until_end(&mut self, first: Option<(u32, Request)>) -> Result<std::convert::Infallible, End> {
        if let Some((id, request)) = first {
            self.dispatch(id, request)?;
        }
        let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS);
        loop {
            let unhurried = self.context.channel.is_unhurried();
            if !unhurried {
                self.context.channel.flush()?;
                self.update_control_interest();
            }
            let leaving = matches!(self.way_out, Some((_, Progress::Again)));
            let busy = leaving || !self.turns.is_empty() && !self.context.channel.is_congested();
            let timeout = match (busy, unhurried, self.rest) {
                (true, _, _) => Some(&AT_ONCE),
                (false, true, _) => Some(&A_MOMENT),
                (false, false, Rest::Awake) => Some(&A_WHILE),
                (false, false, Rest::Asleep) => None,
            };
            let poller = self.context.poller.descriptor();
            let woken = match timeout {
                Some(_) => epoll::wait(poller, spare_capacity(&mut events), timeout),
                None => self.code.sleep(poller, spare_capacity(&mut events)),
            };
            match woken {
                Ok(0) if busy => {}
                Ok(0) if unhurried => self.context.channel.flush()?,
                Ok(0) => self.fall_asleep(),
                Ok(_) => self.rest = Rest::Awake,
                Err(Errno::INTR) => {}
                Err(_) => return Err(End::Broken),
            }
            for event in events.drain(..) {
                let (flags, data) = (event.flags, event.data);
                match subject(data) {
                    Subject::Control => self.control(flags)?,
                    Subject::Signals => self.woken()?,
                    Subject::WayOut(number) => {
                        if let Some((way_out, progress)) = &mut self.way_out {
                            way_out.event(number, Ready::from_flags(flags));
                            *progress = Progress::Again;
                        }
                    }
                    Subject::Request(id, slot) => {
                        if let Some(entry) = self.requests.get_mut(&id) {
                            entry.task.event(slot, Ready::from_flags(flags));
                            self.queue(id);
                        }
                    }
                }
            }
            self.give_turns();
            if let Some((way_out, progress @ Progress::Again)) = &mut self.way_out {
                *progress = way_out.turn(&self.context.poller);
            }
        }
    }

    /// Nothing has happened for a while: gives back what is not needed to wait.
    fn fall_asleep(&mut self) {
        self.rest = Rest::Asleep;
        self.context.channel.let_go();
    }

    fn update_control_interest(&mut self) {
        let mut wanted = epoll::EventFlags::IN;
        if self.context.channel.has_unwritten() {
            wanted |= epoll::EventFlags::OUT;
        }
        if wanted != self.control_interest && self.context.poller.rewatch_control(self.context.channel.descriptor(), wanted).is_ok() {
            self.control_interest = wanted;
        }
    }

    fn control(&mut self, flags: epoll::EventFlags) -> Result<(), End> {
        let hung_up = flags.intersects(epoll::EventFlags::HUP | epoll::EventFlags::ERR);
        if flags.contains(epoll::EventFlags::IN) {
            self.context.channel.receive()?;
            while let Some((id, request)) = self.context.channel.next_request()? {
                self.dispatch(id, request)?;
            }
        } else if hung_up {
            return Err(End::Asked);
        }
        Ok(())
    }

    /// Reaps every child that has ended: programs, and as the first process also orphans.
    fn woken(&mut self) -> Result<(), End> {
        if signals::take(&self.signals) == Woken::Ending {
            return Err(End::Asked);
        }
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            let Some(id) = self.context.children.remove(&pid.as_raw_nonzero().get()) else { continue };
            if let Some(Entry { task: Task::Run(run), .. }) = self.requests.get_mut(&id) {
                run.ended(exit_of(status));
                self.queue(id);
            }
        }
        Ok(())
    }

    /// Every request that wants it gets one turn.
    fn give_turns(&mut self) {
        for _ in 0..self.turns.len() {
            if self.context.channel.is_congested() {
                return;
            }
            let Some(id) = self.turns.pop_front() else { return };
            let Some(entry) = self.requests.get_mut(&id) else { continue };
            entry.queued = false;
            let progress = match &entry.task {
                Task::Listener(_) => self.accept(id),
                Task::Run(_)
                | Task::Reading(_)
                | Task::Writing(_)
                | Task::Listing(_)
                | Task::Removing(_)
                | Task::Watch(_)
                | Task::Connection(_) => entry.task.step(&mut self.context, id),
            };
            self.proceed(id, progress);
        }
    }

    fn accept(&mut self, id: u32) -> Progress {
        if self.accepted >= MOST_ACCEPTED {
            self.starved.push(id);
            return Progress::Idle;
        }
        let Some(Entry { task: Task::Listener(listener), .. }) = self.requests.get(&id) else { return Progress::Idle };
        let incoming = match listener.accept() {
            Ok(Some(incoming)) => incoming,
            Ok(None) => return Progress::Idle,
            // No descriptor left; when a request ends there may be one.
            Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                self.starved.push(id);
                return Progress::Idle;
            }
            Err(errno) => return self.context.fail(id, Failure::during("accept a connection", errno)),
        };
        let new = self.guest_id();
        // A connection that cannot be watched is dropped; its maker sees it closed.
        if let Ok(connection) = Connection::accepted(&self.context, new, incoming.socket) {
            self.accepted += 1;
            self.context.reply(new, &Reply::Accepted { listener: id, peer_port: incoming.peer_port });
            self.insert(new, Task::Connection(connection));
        }
        Progress::Again
    }

    fn guest_id(&mut self) -> u32 {
        loop {
            let id = GUEST_ID_BIT | self.next_guest;
            self.next_guest = (self.next_guest + 1) & !GUEST_ID_BIT;
            if !self.requests.contains_key(&id) {
                return id;
            }
        }
    }

    /// Whether the host may begin a request under this id.
    pub(crate) fn admit(&mut self, id: u32) -> Result<(), Failure> {
        if id & GUEST_ID_BIT != 0 {
            return Err(Failure::invalid("ids with the top bit belong to the guest"));
        }
        if self.requests.contains_key(&id) {
            return Err(Failure::invalid(format!("id {id} is in use")));
        }
        self.highest = self.highest.max(Some(id));
        if self.requests.len() - self.accepted >= MOST_REQUESTS {
            return Err(Failure::too_many(format!("more than {MOST_REQUESTS} requests at once")));
        }
        Ok(())
    }

    /// Whether a message about this id may merely be late.
    pub(crate) fn was_used(&self, id: u32) -> bool {
        if id & GUEST_ID_BIT == 0 { Some(id) <= self.highest } else { id & !GUEST_ID_BIT < self.next_guest }
    }

    /// Adds a request and gives it a turn.
    pub(crate) fn insert(&mut self, id: u32, task: Task) {
        self.requests.insert(id, Entry { task, queued: false });
        self.queue(id);
    }

    /// Queues a request for a turn.
    pub(crate) fn queue(&mut self, id: u32) {
        if let Some(entry) = self.requests.get_mut(&id)
            && !entry.queued
        {
            entry.queued = true;
            self.turns.push_back(id);
        }
    }

    /// Does what a request's progress asks for.
    pub(crate) fn proceed(&mut self, id: u32, progress: Progress) {
        match progress {
            Progress::Again => self.queue(id),
            Progress::Idle => {}
            Progress::Finished => self.remove(id),
        }
    }

    /// Fails a request that is under way. A program is killed; nobody will ask how it ended.
    pub(crate) fn abort(&mut self, id: u32, failure: Failure) {
        if let Some(Entry { task: Task::Run(run), .. }) = self.requests.get_mut(&id) {
            run.cancel();
            self.context.children.retain(|_, request| *request != id);
        }
        self.context.fail(id, failure);
        self.remove(id);
    }

    fn remove(&mut self, id: u32) {
        if self.requests.remove(&id).is_some() && id & GUEST_ID_BIT != 0 {
            self.accepted = self.accepted.saturating_sub(1);
        }
        if let Some((_, progress)) = &mut self.way_out {
            // It may have found no descriptor.
            *progress = Progress::Again;
        }
        for listener in std::mem::take(&mut self.starved) {
            self.queue(listener);
        }
    }
}

fn exit_of(status: WaitStatus) -> Exit {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Exit::Code { code },
        (None, Some(signal)) => Exit::Signal { signal },
        // Stops are not asked for, so the kernel reports nothing else.
        (None, None) => Exit::Code { code: -1 },
    }
}
