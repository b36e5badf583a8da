//! One call: its place among the calls, the thread it runs on, and what its client hears of it.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

use stockade_http::{Answer, Verdict};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use super::answer::{Problem, Reply};
use super::asked::Asked;
use super::events::{Event, Events, Withdrawn};
use crate::engine::asker::AgentName;
use crate::http::journal::Called;
use crate::mcp::Session;
use crate::mcp::act::{Caller, Listener, Rest, Stream};

/// What is done on the call's thread, and what is left to clear away when its client has the answer.
pub(super) type Job = Box<dyn FnOnce(&Caller<'_>) -> (Result<Reply, Problem>, Rest) + Send>;

/// What makes a job of a request.
pub(super) type Make = fn(&Asked, &Session) -> Result<Job, Problem>;

/// What is known first of a call whose client wants to hear how it goes on.
enum First {
    /// It runs.
    Begun,
    /// It is over, without a word before.
    Over(Result<Reply, Problem>),
}

/// Tells a client how its call goes on.
struct Teller {
    first: Cell<Option<oneshot::Sender<First>>>,
    events: UnboundedSender<Event>,
}

impl Listener for Teller {
    fn begun(&self) {
        if let Some(first) = self.first.take() {
            // Whoever went away is noticed elsewhere.
            let _ = first.send(First::Begun);
        }
    }

    fn heard(&self, stream: Stream, bytes: &[u8]) {
        let _ = self.events.send(Event::Output(stream, bytes.to_vec()));
    }
}

impl Teller {
    /// Says what came of it, at once or as the last event.
    fn end(self, end: Result<Reply, Problem>) {
        match self.first.take() {
            Some(first) => drop(first.send(First::Over(end))),
            None => drop(self.events.send(Event::End(end))),
        }
    }
}

/// Does it on a thread of its own, and waits.
pub(super) async fn call(make: Make, asked: Asked, session: &Arc<Session>) -> Result<Answer, Problem> {
    let begun = Instant::now();
    let mut counted = session.metrics().begin();
    let job = make(&asked, session)?;
    let entered = session.calls.enter()?;
    // Dropped with this future, or with the stream that it answers with: whoever goes away withdraws their call.
    let withdrawn = Withdrawn(Arc::clone(&entered.stop));
    let running = entered.begin().await?;
    let (first, known) = oneshot::channel();
    let (events, heard) = tokio::sync::mpsc::unbounded_channel();
    let form = asked.form;
    let session = Arc::clone(session);
    tokio::task::spawn_blocking(move || {
        let teller = Teller { first: Cell::new(Some(first)), events };
        let listener: Option<&dyn Listener> = if form.is_some() { Some(&teller) } else { None };
        let trace = asked.trace.as_ref();
        let caller = Caller { asker: &asked.asker, session: &session, entered: &entered, listener, trace, consent: None };
        let (end, rest) = job(&caller);
        let verdict = end.as_ref().map_or(Verdict::Failed, Reply::verdict);
        counted.came_to(verdict);
        drop(counted);
        if let Some(journal) = session.journal() {
            let agent = asked.asker.agent().map(AgentName::whole).unwrap_or_default();
            let receipt_id = end.as_ref().ok().and_then(|reply| reply.value().get("receipt_id")?.as_str());
            let (trace, time) = (asked.trace.as_ref(), begun.elapsed());
            journal.called(&Called { surface: "rest", agent, verdict, receipt_id, trace, time });
        }
        teller.end(end);
        // What was done is written down, whether or not anybody waits.
        rest.clear();
        drop(running);
    });
    let first = known.await.map_err(|_| Problem::broken("the call ended without a word"))?;
    match (first, form) {
        (First::Over(end), _) => end.map(|reply| reply.answer()),
        (First::Begun, Some(form)) => Ok(stockade_http::streamed(form.kind(), Events::new(form, heard, withdrawn))),
        (First::Begun, None) => Err(Problem::broken("the call was answered twice")),
    }
}
