//! One tool call as the server attends to it: its place, its thread, its progress, its withdrawal, and the person it may have to wait for.
//!
//! ```text
//!  place ─▶ runs ─▶ answered
//!            │ a person must approve it
//!            ├─ rules let its client say yes, and it can be asked ─▶ asked ─ yes ─▶ runs (rules asked again, the request used up) ─▶ answered
//!            │                                                          └─ no ─▶ denied
//!            ├─ the client wants progress, so it can wait ─▶ waits ─ approved ─▶ runs (rules asked again, the approval used up) ─▶ answered
//!            │                                                 └─ denied, expired, time over ─▶ answered
//!            └─ otherwise ─▶ answered "approval pending"; the call is held
//!
//!  approval_wait ─▶ waits ─ approved ─▶ the call that is held runs, once ─▶ answered with its result
//! ```
//!
//! Whoever waits for a person has no place among those that run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rmcp::RoleServer;
use rmcp::model::{CallToolResponse, CallToolResult, ProgressNotificationParam};
use rmcp::service::RequestContext;
use stockade_gateway::approvals::{Request, RequestId, State};
use stockade_http::SessionEnd;
use stockade_ledger::receipt::Trace;
use tokio::sync::oneshot;

use super::act::{Caller, act};
use super::calls::Entered;
use super::elicit::{self, ASKED_FOR, Brought, Way, Word};
use super::tools::{Awaited, Order};
use super::wait::{self, PATIENCE};
use super::{Session, answer};
use crate::approval::{Consent, Filed, OwnWord, approve_command};
use crate::engine::asker::{AgentName, Asker};
use crate::failure::Failure;
use crate::http::journal::Called;

/// How often a client that wants to know is told that a call still runs, or waits.
const PROGRESS: Duration = Duration::from_secs(1);

/// What somebody said about a request.
enum Told {
    /// Its own client said yes, to be used now.
    Consent(Consent),
    /// What has become of it.
    Request(Box<Request>),
}

impl Told {
    fn of(request: Request) -> Self {
        Self::Request(Box::new(request))
    }
}

/// Ends the thread that waits when nobody awaits it any more.
#[derive(Default)]
struct Over(Arc<AtomicBool>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One call.
pub(super) struct Calling<'a> {
    session: &'a Arc<Session>,
    asker: Asker,
    entered: Arc<Entered>,
    context: &'a RequestContext<RoleServer>,
    told: AtomicU32,
}

impl<'a> Calling<'a> {
    /// A call that was let in.
    pub(super) fn new(session: &'a Arc<Session>, asker: Asker, entered: Entered, context: &'a RequestContext<RoleServer>) -> Self {
        Self { session, asker, entered: Arc::new(entered), context, told: AtomicU32::new(0) }
    }

    /// Does what is asked for; where a person has to approve it, asks or waits as this client can.
    pub(super) async fn answer(&self, order: Order, brought: Option<Brought>) -> CallToolResponse {
        let consent = match brought {
            None => None,
            Some(brought) => match self.consent_in(brought).await {
                Ok(consent) => Some(consent),
                Err(result) => return result.into(),
            },
        };
        let is_new = consent.is_none();
        let (result, filed) = self.perform(order.clone(), consent).await;
        let Some(filed) = filed else { return result.into() };
        self.session.held.keep(filed.id.clone(), &self.asker, order);
        // Whoever was asked once is not asked about something else in its place.
        let way = elicit::way(self.context).filter(|_| is_new && filed.own == OwnWord::Counts);
        let waited = match way {
            Some(Way::Answer) => return self.to_carry(filed).await,
            Some(Way::Request) => self.ask(filed).await,
            None if self.context.meta.get_progress_token().is_some() => self.wait(filed.id, PATIENCE).await.map(Told::of),
            None => return result.into(),
        };
        let told = match waited {
            Ok(Told::Consent(consent)) => self.run_held(consent).await,
            Ok(Told::Request(request)) if request.state == State::Pending => result,
            Ok(Told::Request(request)) => self.run_approved(&request).await,
            Err(failure) => answer::of_failure(&failure),
        };
        told.into()
    }

    /// Waits for a person, and runs the call that asked once it is approved.
    pub(super) async fn wait_for(&self, awaited: Awaited) -> CallToolResult {
        match self.wait(awaited.id, awaited.time).await {
            Ok(request) => self.run_approved(&request).await,
            Err(failure) => answer::of_failure(&failure),
        }
    }

    async fn run_approved(&self, request: &Request) -> CallToolResult {
        let held = RequestId::parse(&request.id).filter(|_| request.state != State::Pending);
        let held = held.and_then(|id| self.session.held.take(&id, &self.asker));
        let (State::Approved | State::Granted, Some(order)) = (request.state, held) else { return answer::of_request(request) };
        let (result, filed) = self.perform(order.clone(), None).await;
        match filed {
            None => answer::approved_by(result, request),
            // Something changed meanwhile, so it is another call; nobody is kept waiting twice.
            Some(Filed { id, .. }) => {
                self.session.held.keep(id, &self.asker, order);
                result
            }
        }
    }

    /// Runs what its client said yes to.
    async fn run_held(&self, consent: Consent) -> CallToolResult {
        let Some(order) = self.session.held.take(&consent.id, &self.asker) else {
            return answer::of_failure(&Failure::new("server", "the call that was approved is not held any more").with_hint("repeat it"));
        };
        let (result, filed) = self.perform(order.clone(), Some(consent)).await;
        if let Some(Filed { id, .. }) = filed {
            self.session.held.keep(id, &self.asker, order);
        }
        result
    }

    /// What a client brings back: its yes; or what is to be answered.
    async fn consent_in(&self, brought: Brought) -> Result<Consent, CallToolResult> {
        let (session, asker) = (Arc::clone(self.session), self.asker.clone());
        let said = self.on_thread("the answer is looked at", move |reply| {
            let _ = reply.send(brought.open(&asker, &session.context));
        });
        let (id, word) = said.await.and_then(|said| said).map_err(|failure| answer::of_failure(&failure))?;
        match self.after_word(id, word).await {
            Ok(Told::Consent(consent)) => Ok(consent),
            Ok(Told::Request(request)) => Err(answer::of_request(&request)),
            Err(failure) => Err(answer::of_failure(&failure)),
        }
    }

    /// Has the client call again with an answer.
    async fn to_carry(&self, filed: Filed) -> CallToolResponse {
        let session = Arc::clone(self.session);
        let sealed = self.on_thread("a person is asked", move |reply| {
            let _ = reply.send(elicit::to_carry(&filed, &session.context));
        });
        match sealed.await.and_then(|sealed| sealed) {
            Ok(carried) => carried.into(),
            Err(failure) => answer::of_failure(&failure).into(),
        }
    }

    /// Asks the client, and looks meanwhile whether somebody answers elsewhere.
    async fn ask(&self, filed: Filed) -> Result<Told, Failure> {
        let elsewhere = self.wait(filed.id.clone(), ASKED_FOR);
        tokio::select! {
            word = elicit::ask(&filed, self.context) => match word {
                Some(word) => self.after_word(filed.id, word).await,
                // It did not answer; the request goes on waiting.
                None => self.wait(filed.id, Duration::ZERO).await.map(Told::of),
            },
            request = elsewhere => request.map(Told::of),
        }
    }

    /// A yes may be used now; a no is written down.
    async fn after_word(&self, id: RequestId, word: Word) -> Result<Told, Failure> {
        let by = self.asker.agent().map(AgentName::whole).unwrap_or_default();
        if word == Word::Yes {
            return Ok(Told::Consent(Consent { id, by }));
        }
        let session = Arc::clone(self.session);
        self.session.held.take(&id, &self.asker);
        let denied = self.on_thread("a no is written down", move |reply| {
            let _ = reply.send(elicit::deny(&id, &by, &session.context));
        });
        denied.await.and_then(|denied| denied).map(Told::of)
    }

    async fn wait(&self, id: RequestId, time: Duration) -> Result<Request, Failure> {
        let over = Over::default();
        let is_over = Arc::clone(&over.0);
        let (session, stop) = (Arc::clone(self.session), Arc::clone(&self.entered.stop));
        let principal = self.asker.principal().named();
        let doing = format!("waiting for approval {id}: {}", approve_command(&id));
        let waited = self.on_thread(&doing, move |reply| {
            // Nobody waits where the client is gone.
            let is_wanted = || stop.is_wanted() && !is_over.load(Ordering::Relaxed);
            let _ = reply.send(wait::wait(&id, &principal, time, &is_wanted, &session.context));
        });
        let request = waited.await?;
        if self.entered.stop.is_wanted() { request } else { Err(Failure::new("server", "nobody waits for it any more")) }
    }

    /// Does it on a thread of its own once few enough others run, and waits; gives the request that it has to wait for.
    async fn perform(&self, order: Order, consent: Option<Consent>) -> (CallToolResult, Option<Filed>) {
        let stop = &self.entered.stop;
        let running = tokio::select! {
            running = self.entered.begin() => running,
            () = self.withdrawn() => {
                stop.stop();
                Err(stop.refusal())
            }
        };
        let running = match running {
            Ok(running) => running,
            Err(failure) => return (answer::of_failure(&failure), None),
        };
        let (session, asker, entered) = (Arc::clone(self.session), self.asker.clone(), Arc::clone(&self.entered));
        let trace = self.context.meta.get_traceparent().and_then(Trace::parse);
        let begun = Instant::now();
        let acted = self.on_thread("the call runs", move |reply| {
            let (trace, consent) = (trace.as_ref(), consent.as_ref());
            let caller = Caller { asker: &asker, session: &session, entered: &entered, listener: None, trace, consent };
            let (came, mut rest) = act(order, &caller);
            let result = answer::of(came);
            if let Some(journal) = session.journal() {
                let agent = asker.agent().map(AgentName::whole).unwrap_or_default();
                let receipt_id = result.structured_content.as_ref().and_then(|value| value.get("receipt_id")?.as_str());
                let (verdict, time) = (answer::verdict(&result), begun.elapsed());
                journal.called(&Called { surface: "mcp", agent, verdict, receipt_id, trace, time });
            }
            // Nobody waits where the client is gone; what was done is written down either way.
            let _ = reply.send((result, rest.filed.take()));
            rest.clear();
            drop(running);
        });
        acted.await.unwrap_or_else(|failure| (answer::of_failure(&failure), None))
    }

    /// Waits until the client does not want it any more: it said so, or ended the session.
    async fn withdrawn(&self) {
        let Some(mut end) = SessionEnd::of(&self.context.extensions) else { return self.context.ct.cancelled().await };
        tokio::select! {
            () = self.context.ct.cancelled() => {}
            () = end.come() => {}
        }
    }

    /// Waits for what a thread says; tells of progress, and passes a withdrawal on.
    async fn on_thread<T: Send + 'static>(
        &self,
        doing: &str,
        work: impl FnOnce(oneshot::Sender<T>) + Send + 'static,
    ) -> Result<T, Failure> {
        let (reply, mut answered) = oneshot::channel();
        tokio::task::spawn_blocking(move || work(reply));
        let token = self.context.meta.get_progress_token();
        let mut ticks = tokio::time::interval(PROGRESS);
        let mut withdrawn = false;
        loop {
            tokio::select! {
                answer = &mut answered => return answer.map_err(|_| Failure::new("server", "the call ended without a word")),
                () = self.withdrawn(), if !withdrawn => {
                    withdrawn = true;
                    self.entered.stop.stop();
                }
                _ = ticks.tick(), if token.is_some() && !withdrawn => {
                    let Some(token) = token.clone() else { continue };
                    let told = self.told.fetch_add(1, Ordering::Relaxed) + 1;
                    let progress = ProgressNotificationParam::new(token, f64::from(told)).with_message(doing);
                    // A client that is gone is noticed elsewhere.
                    let _ = self.context.peer.notify_progress(progress).await;
                }
            }
        }
    }
}
