//! What is counted, and how Prometheus reads it.
//!
//! Labels come from a fixed list: nothing that a client says becomes one.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Upper bounds of the histogram, in seconds.
const BOUNDS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 300.0];

/// What came of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It was allowed, and ran.
    Allow,
    /// A person has to say yes first.
    Ask,
    /// It was denied.
    Deny,
    /// It came to no verdict: it made no sense, or Stockade failed.
    Failed,
}

impl Verdict {
    /// The word for it.
    pub fn name(self) -> &'static str {
        VERDICTS.iter().find(|(known, _)| *known == self).map_or("failed", |(_, name)| name)
    }
}

/// What a server sends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outward {
    /// That something waits for a person.
    Webhook,
    /// What calls came to.
    Traces,
}

impl Outward {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Webhook => "webhook",
            Self::Traces => "traces",
        }
    }
}

/// What was sent and what was given up, of one kind.
#[derive(Debug, Default)]
struct Sent {
    sent: AtomicU64,
    dropped: AtomicU64,
}

/// The counters of one server.
#[derive(Debug, Default)]
pub struct Metrics {
    verdicts: [AtomicU64; 4],
    running: AtomicU64,
    buckets: [AtomicU64; BOUNDS.len()],
    count: AtomicU64,
    microseconds: AtomicU64,
    answers: [AtomicU64; 5],
    webhook: Sent,
    traces: Sent,
}

/// A call that is counted as running until the value goes.
#[derive(Debug)]
pub struct Running {
    metrics: Arc<Metrics>,
    begun: Instant,
    verdict: Verdict,
}

/// What else is known when somebody reads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now {
    pub(crate) connections: usize,
    pub(crate) sessions: usize,
}

const VERDICTS: [(Verdict, &str); 4] =
    [(Verdict::Allow, "allow"), (Verdict::Ask, "ask"), (Verdict::Deny, "deny"), (Verdict::Failed, "failed")];

impl Metrics {
    /// A call begins.
    pub fn begin(self: &Arc<Self>) -> Running {
        self.running.fetch_add(1, Ordering::Relaxed);
        Running { metrics: Arc::clone(self), begun: Instant::now(), verdict: Verdict::Failed }
    }

    /// An answer was given.
    pub(crate) fn answered(&self, status: http::StatusCode) {
        let class = usize::from(status.as_u16() / 100).saturating_sub(1);
        if let Some(counter) = self.answers.get(class) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Something was sent, and taken.
    pub fn sent(&self, what: Outward) {
        add(&self.outward(what).sent, 1);
    }

    /// So much was given up.
    pub fn dropped(&self, what: Outward, count: u64) {
        add(&self.outward(what).dropped, count);
    }

    fn outward(&self, what: Outward) -> &Sent {
        match what {
            Outward::Webhook => &self.webhook,
            Outward::Traces => &self.traces,
        }
    }

    fn ended(&self, verdict: Verdict, seconds: f64) {
        let counters = VERDICTS.iter().zip(&self.verdicts);
        counters.filter(|((known, _), _)| *known == verdict).for_each(|(_, counter)| add(counter, 1));
        BOUNDS.iter().zip(&self.buckets).filter(|(bound, _)| seconds <= **bound).for_each(|(_, counter)| add(counter, 1));
        add(&self.count, 1);
        add(&self.microseconds, (seconds * 1e6) as u64);
    }

    /// As Prometheus reads it.
    pub(crate) fn text(&self, now: Now) -> String {
        let mut page = Page::default();
        page.head("stockade_calls_total", "counter", "Tool calls that ended, by verdict.");
        for ((_, name), counter) in VERDICTS.iter().zip(&self.verdicts) {
            page.value(&format!("stockade_calls_total{{verdict=\"{name}\"}}"), read(counter));
        }
        page.head("stockade_calls_running", "gauge", "Tool calls that run or wait for their turn.");
        page.value("stockade_calls_running", read(&self.running));
        page.head("stockade_call_duration_seconds", "histogram", "Time from a call's arrival to its answer.");
        for (bound, counter) in BOUNDS.iter().zip(&self.buckets) {
            page.value(&format!("stockade_call_duration_seconds_bucket{{le=\"{bound}\"}}"), read(counter));
        }
        page.value("stockade_call_duration_seconds_bucket{le=\"+Inf\"}", read(&self.count));
        page.value("stockade_call_duration_seconds_sum", read(&self.microseconds) as f64 / 1e6);
        page.value("stockade_call_duration_seconds_count", read(&self.count));
        page.head("stockade_http_answers_total", "counter", "Answers to HTTP requests, by class of their status.");
        for (class, counter) in (1..).zip(&self.answers) {
            page.value(&format!("stockade_http_answers_total{{status=\"{class}xx\"}}"), read(counter));
        }
        page.head("stockade_outbound_total", "counter", "What the server sent by itself, by what became of it.");
        for what in [Outward::Webhook, Outward::Traces] {
            let Sent { sent, dropped } = self.outward(what);
            for (result, counter) in [("sent", sent), ("dropped", dropped)] {
                page.value(&format!("stockade_outbound_total{{kind=\"{}\",result=\"{result}\"}}", what.name()), read(counter));
            }
        }
        page.head("stockade_http_connections", "gauge", "Open connections.");
        page.value("stockade_http_connections", now.connections);
        page.head("stockade_mcp_sessions", "gauge", "Open MCP sessions, of clients that use the initialize handshake.");
        page.value("stockade_mcp_sessions", now.sessions);
        page.text
    }
}

impl Running {
    /// What came of it.
    pub fn came_to(&mut self, verdict: Verdict) {
        self.verdict = verdict;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.metrics.running.fetch_sub(1, Ordering::Relaxed);
        self.metrics.ended(self.verdict, self.begun.elapsed().as_secs_f64());
    }
}

#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string does not fail.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn value(&mut self, name: &str, value: impl std::fmt::Display) {
        let _ = writeln!(self.text, "{name} {value}");
    }
}

fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_by_verdict_and_by_time() {
        let metrics = Arc::new(Metrics::default());
        let mut allowed = metrics.begin();
        let broken = metrics.begin();
        assert!(metrics.text(Now { connections: 3, sessions: 2 }).contains("\nstockade_calls_running 2\n"));
        allowed.came_to(Verdict::Allow);
        drop(allowed);
        drop(broken);
        metrics.ended(Verdict::Deny, 0.3);
        metrics.answered(http::StatusCode::NOT_FOUND);
        let text = metrics.text(Now { connections: 3, sessions: 2 });
        for line in [
            "stockade_calls_total{verdict=\"allow\"} 1",
            "stockade_calls_total{verdict=\"deny\"} 1",
            "stockade_calls_total{verdict=\"failed\"} 1",
            "stockade_call_duration_seconds_bucket{le=\"0.1\"} 2",
            "stockade_call_duration_seconds_bucket{le=\"0.5\"} 3",
            "stockade_call_duration_seconds_bucket{le=\"+Inf\"} 3",
            "stockade_http_answers_total{status=\"4xx\"} 1",
            "stockade_http_connections 3",
            "stockade_mcp_sessions 2",
        ] {
            assert!(text.lines().any(|one| one == line), "{line}\n{text}");
        }
        let is_sample = |line: &str| line.starts_with("# ") || line.split_once(' ').is_some_and(|(_, value)| value.parse::<f64>().is_ok());
        assert!(text.lines().all(is_sample), "{text}");
    }
}
