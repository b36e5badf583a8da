//! What a server says to the outside by itself: that something waits for a person (`webhook`), and what calls came to (`traces`).
//!
//! ```text
//!  settings ─▶ prepared: egress and broker stand ─▶ (the server confines itself) ─▶ speaking: a thread for each ─▶ finished: last words, the end
//!
//!  store of approvals ─▶ webhook ─┐
//!  ended calls ─ queue ─▶ traces ─┴─▶ courier ─ HTTP over a socket pair ─▶ egress ─ TLS ─▶ the host that settings name
//! ```
//!
//! This process opens no connection and holds no key: egress connects, to those hosts alone, and puts tokens in; the broker signs. Nobody waits for any
//! of this: what cannot be sent is tried a few times, given up, counted and told. Redirects lead nowhere. A project has no say in where anything goes.

mod courier;
mod ending;
mod queue;
mod traces;
mod way;
mod webhook;

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use stockade_core::secret::SecretName;
use stockade_http::{Metrics, Outward};
use stockade_store::settings::{Endpoint, Settings};

use crate::Context;
use crate::destination::{self, Destination, STEP};
use crate::failure::Failure;
use courier::Courier;
use ending::Ending;
use traces::Traces;
use way::Way;
use webhook::Webhook;

pub(crate) use queue::Queue;

/// How long what is under way may take when the server ends.
const LAST_WORDS: Duration = Duration::from_secs(3);
/// Ended calls whose spans wait to be sent.
const MOST_SPANS: usize = 4096;

/// What a server is there to tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Telling {
    /// Its own calls, and what waits for a person.
    Everything,
    /// Its own calls alone: it stands beside a server that tells the rest, and counts it where people look.
    OwnCalls,
}

/// What a server says to the outside.
pub(crate) struct Outbound {
    way: Arc<Way>,
    webhook: Mutex<Option<Webhook>>,
    traces: Mutex<Option<Traces>>,
    ended_calls: Option<Arc<Queue<u64>>>,
    ending: Arc<Ending>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Outbound {
    /// Starts what it takes, where settings name anybody; `None` where they do not. To be called while this process has one thread and may still
    /// start programs.
    pub(crate) fn prepare(telling: Telling, context: &Context) -> Result<Option<Self>, Failure> {
        let places = context.places()?.clone();
        // A project has no say in whom a server talks to.
        let settings = Settings::load(&places, None).map_err(|error| Failure::from_error(STEP, &error))?;
        let webhook = match telling {
            Telling::Everything => target("approvals.webhook", &settings.webhook())?,
            Telling::OwnCalls => None,
        };
        let traces = target("telemetry.otlp", &settings.otlp())?;
        if webhook.is_none() && traces.is_none() {
            return Ok(None);
        }
        let webhook = match webhook {
            None => None,
            Some((to, Some(key))) => Some((to, key)),
            Some((_, None)) => {
                let why = "`approvals.webhook.url` needs `approvals.webhook.secret`: what is sent is signed";
                return Err(
                    Failure::new(STEP, why).with_hint("stockade secret set NAME, then stockade config set approvals.webhook.secret NAME")
                );
            }
        };
        let traces = traces.map(|(to, token)| (to.at_traces(), token));
        let hosts = webhook.iter().map(|(to, _)| to.pattern()).chain(traces.iter().map(|(to, _)| to.pattern()));
        // An endpoint within the house has an address that is not public: that is granted as for sandboxes, by the address itself.
        let granted = settings.allowed_hosts().value.into_iter().filter(|host| host.granted_address().is_some());
        let way = Way::open(
            hosts.chain(granted).collect(),
            webhook.as_ref().map(|(to, key)| (key.clone(), to.pattern())),
            traces.as_ref().and_then(|(to, token)| Some((token.clone()?, to.pattern()))),
            &settings.secrets().value,
            context,
        )?;
        let way = Arc::new(way);
        let ended_calls = traces.is_some().then(|| Arc::new(Queue::new(MOST_SPANS)));
        let traces = match (traces, &ended_calls) {
            (Some((to, token)), Some(queue)) => {
                Some(Traces::new(to, token.and_then(|name| way.placeholder(&name)), Arc::clone(queue), &places))
            }
            (None, _) | (_, None) => None,
        };
        Ok(Some(Self {
            way,
            webhook: Mutex::new(webhook.map(|(to, key)| Webhook::new(to, key, &places))),
            traces: Mutex::new(traces),
            ended_calls,
            ending: Arc::default(),
            threads: Mutex::default(),
        }))
    }

    /// Where calls that ended are put, where anybody wants to know.
    pub(crate) fn ended_calls(&self) -> Option<Arc<Queue<u64>>> {
        self.ended_calls.clone()
    }

    /// Begins to speak. To be called once the server is as confined as it will be: the threads that are started here are it, too.
    pub(crate) fn speak(&self, metrics: &Arc<Metrics>, context: &Context) -> Result<(), Failure> {
        let courier = |what: Outward| {
            Courier::new(what, Arc::clone(&self.way), Arc::clone(&self.ending), Arc::clone(metrics), context.printer.again())
        };
        let mut threads = held(&self.threads);
        if let Some(webhook) = held(&self.webhook).take() {
            let courier = courier(Outward::Webhook)?;
            threads.push(thread("stockade-webhook", move || webhook.tell(courier))?);
        }
        if let Some(traces) = held(&self.traces).take() {
            let courier = courier(Outward::Traces)?;
            threads.push(thread("stockade-traces", move || traces.send(courier))?);
        }
        Ok(())
    }

    /// Says what is left to say, for a moment, and ends egress and the broker.
    pub(crate) fn finish(&self) {
        self.ending.end(LAST_WORDS);
        for thread in held(&self.threads).drain(..) {
            // One that failed has nothing left to say.
            let _ = thread.join();
        }
        self.way.close();
    }
}

impl Drop for Outbound {
    fn drop(&mut self) {
        self.finish();
    }
}

/// Where settings send something, and the secret that goes with it.
fn target(group: &str, endpoint: &Endpoint) -> Result<Option<(Destination, Option<SecretName>)>, Failure> {
    let Some(url) = &endpoint.url.value else { return Ok(None) };
    let destination = destination::at(&format!("{group}.url"), url)?;
    let name = endpoint.secret.value.as_ref().map(|name| destination::secret(&format!("{group}.secret"), name)).transpose()?;
    Ok(Some((destination, name)))
}

fn thread(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Failure> {
    let started = std::thread::Builder::new().name(name.to_owned()).spawn(work);
    started.map_err(|error| Failure::new("outbound", format!("starting a thread: {error}")))
}

/// A thread that failed while it had the lock left whole values.
fn held<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
