//! The loop around a running program: moves its streams, passes signals on, watches time and limits.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use stockade_core::demand::Demand;
use stockade_sys::signals::Signals;
use stockade_wire::message::{Exit, Reply, Request, Stream};

use super::input::Fed;
use super::standard::Ours;
use super::{Ending, Watch, size_of_terminal};
use crate::connection::{Connection, ConnectionError};

/// How often limits without a notification are looked at.
const TICK: Duration = Duration::from_millis(50);
/// After SIGTERM or SIGHUP was passed on, how long the program may take to end.
const GRACE: Duration = Duration::from_secs(2);

/// A program that has started.
pub(super) struct Relay<'a> {
    pub(super) id: u32,
    pub(super) ours: Ours<'a>,
}

/// Why the loop stopped waiting for the program itself.
#[derive(Clone, Copy)]
enum Cut {
    Time,
    Limit(Demand),
    Signal(i32),
}

#[derive(Default)]
struct Ready {
    stream: bool,
    signals: bool,
    input: bool,
}

impl Relay<'_> {
    /// Until its end.
    pub(super) fn run(
        &mut self,
        connection: &mut Connection,
        started: Instant,
        timeout: Option<Duration>,
        signals: Option<&Signals>,
        watch: &mut dyn Watch,
    ) -> Result<Ending, ConnectionError> {
        let deadline = timeout.map(|t| started + t);
        let mut look = watch.is_needed().then(|| started + TICK);
        let mut give_up: Option<(Instant, i32)> = None;
        let mut interrupts = 0u32;
        let mut ended: Option<Ending> = None;
        loop {
            while let Some((id, reply)) = connection.buffered::<Reply>()? {
                if id == self.id
                    && let Some(exit) = self.reply(reply)?
                {
                    // A limit that killed the program is the reason, whatever the program's status says.
                    ended = Some(watch.tick().map_or(exit, Ending::Limit));
                    self.ours.input = None;
                    self.ours.outputs.iter_mut().flatten().for_each(super::output::Output::finish);
                }
            }
            let now = Instant::now();
            if let Some(ending) = &ended {
                // It is over; only what it wrote may still be on its way to a slow reader, for as long as the time limit allows.
                if !self.is_moving() || deadline.is_some_and(|d| now >= d) || give_up.is_some_and(|(when, _)| now >= when) {
                    return Ok(ending.clone());
                }
            } else {
                self.grant(connection)?;
            }
            let mut cut = None;
            if ended.is_some() {
                // Nothing is left to cut.
            } else if deadline.is_some_and(|d| now >= d) {
                cut = Some(Cut::Time);
            } else if let Some((when, signal)) = give_up
                && now >= when
            {
                cut = Some(Cut::Signal(signal));
            } else if look.is_some_and(|when| now >= when) {
                cut = watch.tick().map(Cut::Limit);
                look = Some(now + TICK);
            }
            if let Some(cut) = cut {
                watch.kill();
                return Ok(match cut {
                    Cut::Time => Ending::TimedOut,
                    Cut::Limit(demand) => Ending::Limit(demand),
                    Cut::Signal(signal) => Ending::Signal(signal),
                });
            }
            let next = [deadline, give_up.map(|g| g.0), look.filter(|_| ended.is_none())].into_iter().flatten().min();
            let stream = ended.is_none().then_some(&*connection);
            let ready = self.wait(stream, signals, next.map(|n| n.saturating_duration_since(now)))?;
            if ready.signals
                && let Some(signals) = signals
            {
                while let Some(signal) = signals.next() {
                    match signal {
                        libc::SIGWINCH => {
                            if let Some(terminal) = self.ours.terminal {
                                let (rows, cols) = size_of_terminal(terminal);
                                connection.send(self.id, &Request::Resize { rows, cols }, &[])?;
                            }
                        }
                        // No process can catch this one: it comes from whoever runs the job, and means now.
                        libc::SIGKILL => give_up = Some((Instant::now(), libc::SIGKILL)),
                        libc::SIGINT if interrupts >= 2 => give_up = Some((Instant::now(), libc::SIGINT)),
                        signal => {
                            interrupts += u32::from(signal == libc::SIGINT);
                            connection.send(self.id, &Request::Signal { signal }, &[])?;
                            if matches!(signal, libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT) && give_up.is_none() {
                                give_up = Some((Instant::now() + GRACE, signal));
                            }
                        }
                    }
                }
            }
            self.ours.outputs.iter_mut().flatten().for_each(super::output::Output::advance);
            if ready.input
                && let Some(input) = &mut self.ours.input
                && input.feed(connection, self.id)? == Fed::Ended
            {
                self.ours.input = None;
            }
            if ready.stream {
                match connection.fill() {
                    Ok(()) => {}
                    Err(ConnectionError::Closed) => {
                        // The guest itself died: killed by the memory limit with everything else, or from outside.
                        watch.kill();
                        return match watch.tick() {
                            Some(demand) => Ok(Ending::Limit(demand)),
                            None => Err(ConnectionError::Closed),
                        };
                    }
                    Err(error) => return Err(error),
                }
            }
        }
    }

    /// Waits for whatever comes first. `stream` is left out when the program has ended.
    fn wait(&self, stream: Option<&Connection>, signals: Option<&Signals>, time: Option<Duration>) -> Result<Ready, ConnectionError> {
        let timeout = time.map(|t| Timespec { tv_sec: t.as_secs() as i64, tv_nsec: i64::from(t.subsec_nanos()) });
        let input = self.ours.input.as_ref().and_then(super::input::Input::awaited);
        let mut ready = Ready { stream: stream.is_some(), signals: signals.is_some(), input: input.is_some() };
        let mut fds: Vec<PollFd<'_>> = Vec::with_capacity(5);
        fds.extend(stream.map(|s| PollFd::from_borrowed_fd(s.as_fd(), PollFlags::IN)));
        fds.extend(signals.map(|s| PollFd::from_borrowed_fd(s.as_fd().as_fd(), PollFlags::IN)));
        fds.extend(input);
        fds.extend(self.ours.outputs.iter().flatten().filter_map(super::output::Output::awaited));
        match rustix::event::poll(&mut fds, timeout.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(Ready::default()),
            Err(errno) => return Err(errno.into()),
        }
        let mut answers = fds.iter().map(|fd| !fd.revents().is_empty());
        for asked in [&mut ready.stream, &mut ready.signals, &mut ready.input] {
            *asked = *asked && answers.next().unwrap_or(false);
        }
        Ok(ready)
    }

    fn is_moving(&self) -> bool {
        self.ours.outputs.iter().flatten().any(|output| output.is_writing() || output.is_reading())
    }

    /// Lets the guest send as much again as was taken.
    fn grant(&mut self, connection: &Connection) -> Result<(), ConnectionError> {
        for (output, stream) in self.ours.outputs.iter_mut().zip([Stream::Output {}, Stream::Errors {}]) {
            if let Some(bytes) = output.as_mut().and_then(super::output::Output::due) {
                connection.send(self.id, &Request::Credit { stream, bytes }, &[])?;
            }
        }
        Ok(())
    }

    fn reply(&mut self, reply: Reply) -> Result<Option<Ending>, ConnectionError> {
        let [out, err] = &mut self.ours.outputs;
        match reply {
            Reply::Data { stream: Stream::Output {}, bytes } => out.as_mut().map(|o| o.take(&bytes.0)).transpose()?,
            Reply::Data { stream: Stream::Errors {}, bytes } => err.as_mut().map(|o| o.take(&bytes.0)).transpose()?,
            Reply::Credit { stream: Stream::Input {}, bytes } => self.ours.input.as_mut().map(|i| i.grant(bytes)),
            Reply::Eof { .. } => None,
            Reply::Exited { exit: Exit::Code { code } } => return Ok(Some(Ending::Code(code))),
            Reply::Exited { exit: Exit::Signal { signal } } => return Ok(Some(Ending::Signal(signal))),
            // From the supervisor of a created sandbox; anything but a known demand is nonsense.
            Reply::Exited { exit: Exit::Limit { demand } } => {
                let demand = demand.parse().map_err(|_| ConnectionError::OutOfTurn("an unknown limit"))?;
                return Ok(Some(Ending::Limit(demand)));
            }
            Reply::Failed { message, .. } => return Ok(Some(Ending::NotStarted { missing: false, message })),
            _ => return Err(ConnectionError::OutOfTurn("an unexpected reply to a running program")),
        };
        Ok(None)
    }
}
