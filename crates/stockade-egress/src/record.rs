//! The record of one request or connection while it is under way; it reports itself when the last part of it is done.
//!
//! Both bodies of a request hold it, so the event has the true counts and the true end, however that comes about.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use stockade_core::host::HostName;

use crate::event::{Event, Events, MAX_SHOWN_PATH, Subject, Verdict};
use crate::meter::Usage;
use crate::refusal::Refusal;
use crate::sandbox::Sandbox;

/// How much of a host that is none is shown.
const MAX_SHOWN_HOST: usize = 64;

/// One record.
#[derive(Debug)]
pub(crate) struct Record {
    event: Mutex<Event>,
    events: Events,
    began: Instant,
    sent: AtomicU64,
    received: AtomicU64,
}

impl Record {
    pub(crate) fn new(events: &Events, sandbox: &Sandbox, subject: Subject, host: &HostName, port: u16) -> Self {
        Self::of_text(events, sandbox, subject, host.to_string(), port)
    }

    /// For what may not even be a host; already escaped.
    pub(crate) fn of_text(events: &Events, sandbox: &Sandbox, subject: Subject, host: String, port: u16) -> Self {
        let event = Event {
            time: SystemTime::now(),
            sandbox: sandbox.id.clone(),
            subject,
            host,
            port,
            method: None,
            path: None,
            verdict: Verdict::Deny,
            rule: String::new(),
            secrets: Vec::new(),
            status: None,
            sent: 0,
            received: 0,
            duration: std::time::Duration::ZERO,
            reason: None,
            change: None,
            usage: None,
        };
        let (sent, received) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { event: Mutex::new(event), events: events.clone(), began: Instant::now(), sent, received }
    }

    /// Notes method and path.
    pub(crate) fn of_request(self, method: &::http::Method, path: &str) -> Self {
        self.change(|event| {
            event.method = Some(method.as_str().chars().take(32).collect());
            event.path = Some(stockade_core::escape::escape(path.get(..MAX_SHOWN_PATH).unwrap_or(path)));
        });
        self
    }

    /// Notes what was asked of the agent: the kind, and by whom and where as far as that is known.
    pub(crate) fn of_agent(self, method: &str, path: Option<String>) -> Self {
        self.change(|event| {
            event.method = Some(method.to_owned());
            event.path = path.map(|path| stockade_core::escape::escape(path.get(..MAX_SHOWN_PATH).unwrap_or(&path)));
        });
        self
    }

    pub(crate) fn allow(&self, verdict: Verdict, rule: String) {
        self.change(|event| {
            event.verdict = verdict;
            event.rule = rule;
        });
    }

    pub(crate) fn use_secret(&self, name: &Arc<str>) {
        self.change(|event| note_secret(event, name));
    }

    pub(crate) fn status(&self, status: ::http::StatusCode) {
        self.change(|event| event.status = Some(status.as_u16()));
    }

    /// Notes a refusal, or that the other side could not be reached: the verdict stays then, only the end was bad.
    pub(crate) fn refuse(&self, refusal: &Refusal) {
        self.change(|event| {
            if !matches!(refusal, Refusal::Unreachable { .. }) || event.rule.is_empty() {
                event.verdict = Verdict::Deny;
                event.rule = refusal.rule();
            }
            event.reason = Some(stockade_core::escape::escape(&refusal.to_string()));
            event.change = refusal.change();
            if let Some(name) = refusal.secret() {
                note_secret(event, name);
            }
        });
    }

    pub(crate) fn note(&self, reason: impl Into<String>) {
        let reason = reason.into();
        self.change(|event| {
            event.reason.get_or_insert(reason);
        });
    }

    pub(crate) fn usage(&self, usage: Usage) {
        self.change(|event| event.usage = Some(usage));
    }

    pub(crate) fn add_sent(&self, count: u64) {
        self.sent.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn add_received(&self, count: u64) {
        self.received.fetch_add(count, Ordering::Relaxed);
    }

    fn change(&self, change: impl FnOnce(&mut Event)) {
        change(&mut self.event.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// What was named as a host, for an event. What stands before an `@` may be a password.
pub(crate) fn shown_host(text: &str) -> String {
    let host = text.rsplit('@').next().unwrap_or_default();
    stockade_core::escape::escape(host.get(..MAX_SHOWN_HOST).unwrap_or(host))
}

/// Each is named once, also where what it was used for is refused afterwards.
fn note_secret(event: &mut Event, name: &Arc<str>) {
    if !event.secrets.contains(name) {
        event.secrets.push(Arc::clone(name));
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let mut event = self.event.lock().unwrap_or_else(PoisonError::into_inner).clone();
        event.sent = *self.sent.get_mut();
        event.received = *self.received.get_mut();
        event.duration = self.began.elapsed();
        self.events.report(event);
    }
}
