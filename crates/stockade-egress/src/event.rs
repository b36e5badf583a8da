//! Decisions as events: one for each connection that was refused and for each request, over a bounded channel.
//!
//! Nothing is lost and nothing grows: a request waits for room before it begins, and what ends while the channel is full waits in a
//! task of its own. Never a value of a secret, only its name. Who keeps the events is not known here.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use stockade_core::id::SandboxId;
use tokio::sync::mpsc;

use crate::meter::Usage;

/// How many events wait for whoever keeps them.
pub const CHANNEL_EVENTS: usize = 4096;
/// The longest path that is reported; the rest is cut.
pub const MAX_SHOWN_PATH: usize = 512;

/// What was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It went through.
    Allow,
    /// It was refused.
    Deny,
    /// It would have been refused, had this sandbox not been learning.
    Learn,
}

impl Verdict {
    /// The word in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Learn => "learn",
        }
    }
}

/// What the event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// A name was asked for.
    Name,
    /// A connection: a tunnel that is not opened, or one that got no further.
    Connection,
    /// One request.
    Request,
}

impl Subject {
    /// The word in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Connection => "connection",
            Self::Request => "request",
        }
    }
}

/// One decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// When it began.
    pub time: SystemTime,
    /// Whose it was.
    pub sandbox: SandboxId,
    /// What it is about.
    pub subject: Subject,
    /// The host as the request named it, escaped where it is no host at all; empty where none was named.
    pub host: String,
    /// The port; 0 where none was named.
    pub port: u16,
    /// The method of a request.
    pub method: Option<String>,
    /// The path of a request without its query, cut at [`MAX_SHOWN_PATH`].
    pub path: Option<String>,
    /// What was decided.
    pub verdict: Verdict,
    /// The rule that decided: a pattern as it was written, or the name of a built-in check.
    pub rule: String,
    /// Names of the secrets that were put in, or that were stopped.
    pub secrets: Vec<Arc<str>>,
    /// The status of the answer.
    pub status: Option<u16>,
    /// Bytes of body (or of tunnel) towards the host.
    pub sent: u64,
    /// Bytes of body (or of tunnel) from the host.
    pub received: u64,
    /// From the beginning to the last byte.
    pub duration: Duration,
    /// Why it was refused, or how it ended badly.
    pub reason: Option<String>,
    /// The narrowest change that would allow what was refused, as a flag, where one does.
    pub change: Option<String>,
    /// What the answer of a metered host says was used.
    pub usage: Option<Usage>,
}

impl Event {
    /// The secret whose placeholder was on its way to a host that it is not for.
    pub fn misused(&self) -> Option<&str> {
        // The refusal names its secret after those that were put in.
        if self.rule == crate::refusal::SECRET_HOST { self.secrets.last().map(AsRef::as_ref) } else { None }
    }
}

/// The end that egress writes to.
#[derive(Debug, Clone)]
pub struct Events {
    sender: mpsc::Sender<Event>,
}

/// The end that somebody reads from.
pub type EventReceiver = mpsc::Receiver<Event>;

impl Events {
    /// A channel with room for this many events.
    pub fn channel(room: usize) -> (Self, EventReceiver) {
        let (sender, receiver) = mpsc::channel(room.max(1));
        (Self { sender }, receiver)
    }

    /// Waits until whoever keeps the events has room again. An error when nobody keeps them any more: then nothing may go out.
    pub async fn has_room(&self) -> Result<(), NobodyListens> {
        if self.sender.is_closed() {
            return Err(NobodyListens);
        }
        if self.sender.capacity() > 0 {
            return Ok(());
        }
        self.sender.reserve().await.map(drop).map_err(|_| NobodyListens)
    }

    /// Reports without waiting. Where there is no room a task waits: there are no more of them than requests under way.
    pub fn report(&self, event: Event) {
        if let Err(mpsc::error::TrySendError::Full(event)) = self.sender.try_send(event)
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let sender = self.sender.clone();
            runtime.spawn(async move {
                let _ = sender.send(event).await;
            });
        }
    }
}

/// The reader of events is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("nobody keeps the record of what goes out any more")]
pub struct NobodyListens;

#[cfg(test)]
mod tests {
    use super::*;

    fn event(port: u16) -> Event {
        Event {
            time: SystemTime::UNIX_EPOCH,
            sandbox: SandboxId::from_parts(0, 0),
            subject: Subject::Request,
            host: String::new(),
            port,
            method: None,
            path: None,
            verdict: Verdict::Allow,
            rule: String::new(),
            secrets: Vec::new(),
            status: None,
            sent: 0,
            received: 0,
            duration: Duration::ZERO,
            reason: None,
            change: None,
            usage: None,
        }
    }

    #[tokio::test]
    async fn a_full_channel_loses_nothing_and_holds_requests_back() {
        let (events, mut receiver) = Events::channel(2);
        for port in 1..=5 {
            events.report(event(port));
        }
        assert!(tokio::time::timeout(Duration::from_millis(20), events.has_room()).await.is_err());
        let mut ports = Vec::new();
        while ports.len() < 5 {
            ports.push(receiver.recv().await.unwrap().port);
        }
        ports.sort_unstable();
        assert_eq!(ports, [1, 2, 3, 4, 5]);
        assert_eq!(events.has_room().await, Ok(()));
        drop(receiver);
        assert_eq!(events.has_room().await, Err(NobodyListens));
    }
}
