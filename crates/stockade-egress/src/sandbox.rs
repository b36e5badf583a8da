//! What egress knows of one sandbox while it lives: rules, bindings, counters, its table of made-up addresses, its idle connections.
//!
//! One owner; every connection of the sandbox holds a reference. When the sandbox is let go, all of them end.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use stockade_core::host::HostName;
use stockade_core::id::SandboxId;
use tokio::sync::{Semaphore, watch};
use zeroize::Zeroizing;

use crate::agent;
use crate::agent::ring::Ring;
use crate::agent::sessions::Sessions;
use crate::aws::keys::Keys;
use crate::desk::Desk;
use crate::error::EgressError;
use crate::event::Verdict;
use crate::http::pool::Pool;
use crate::refusal::Refusal;
use crate::rules::learn::{Before, Learnt};
use crate::rules::{Mode, Rules};
use crate::secrets::binding::{Binding, Bound, Form, MAX_BINDINGS};
use crate::secrets::needles::Needles;
use crate::secrets::{MIN_VALUE, SecretValue, Secrets};
use crate::synthetic::Synthetic;
use crate::tls::trust::Trust;

/// How many former values of one secret are still looked for: a server may repeat one after it was changed.
const MAX_FORMER: usize = 3;
/// How many long bodies are held whole at one time, to be hashed.
const MAX_HELD: usize = 8;

/// One sandbox.
#[derive(Debug)]
pub(crate) struct Sandbox {
    pub(crate) id: SandboxId,
    pub(crate) rules: Rules,
    pub(crate) bound: Vec<Bound>,
    pub(crate) connections: Arc<Semaphore>,
    pub(crate) pool: Pool,
    pub(crate) desk: Option<Desk>,
    pub(crate) trust: Trust,
    /// Sessions of SSH that are under way.
    pub(crate) sessions: Sessions,
    /// Keys that the agent signs with.
    pub(crate) ring: Ring,
    /// Places for bodies that are held whole.
    pub(crate) held: Semaphore,
    sent: AtomicU64,
    /// Tokens of models that answers spoke of.
    model_tokens: AtomicU64,
    tokens: Mutex<Tokens>,
    synthetic: Mutex<Synthetic>,
    learnt: Mutex<Learnt>,
    values: Mutex<Values>,
    open: watch::Sender<Open>,
}

/// Whether the sandbox still may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Open {
    Yes,
    No,
}

/// Values that were used, and what is looked for because of them.
#[derive(Debug, Default)]
struct Values {
    /// For each binding the current value and some former ones.
    known: HashMap<usize, Vec<SecretValue>>,
    /// By set of bindings, until a value changes.
    needles: HashMap<u64, Arc<Needles>>,
}

#[derive(Debug)]
struct Tokens {
    left: f64,
    at: Instant,
}

/// A value for a binding, by its place in the list.
pub(crate) type Found = (usize, SecretValue);

impl Sandbox {
    pub(crate) fn new(id: SandboxId, mut rules: Rules, bindings: Vec<Binding>, desk: Option<Desk>) -> Result<Self, EgressError> {
        if bindings.len() > MAX_BINDINGS {
            return Err(EgressError::TooManyBindings);
        }
        let mut bound = bindings.into_iter().map(Bound::new).collect::<Result<Vec<_>, _>>()?;
        for (index, first) in bound.iter().enumerate() {
            for second in bound.iter().skip(index + 1) {
                let hold = first.finder.find(&second.placeholder).is_some() || second.finder.find(&first.placeholder).is_some();
                if hold || first.name == second.name {
                    return Err(EgressError::AmbiguousBindings { first: first.name.to_string(), second: second.name.to_string() });
                }
            }
        }
        if let Some(desk) = &desk {
            desk.prepare(&mut bound)?;
        }
        agent::prepare(&rules.agent, &mut bound)?;
        let trust = Trust::new(std::mem::take(&mut rules.trust))?;
        Ok(Self {
            desk,
            trust,
            sessions: Sessions::default(),
            ring: Ring::default(),
            held: Semaphore::new(MAX_HELD),
            connections: Arc::new(Semaphore::new(rules.limits.connections.min(Semaphore::MAX_PERMITS))),
            tokens: Mutex::new(Tokens { left: burst(rules.limits.requests_per_second), at: Instant::now() }),
            id,
            rules,
            bound,
            pool: Pool::default(),
            sent: AtomicU64::new(0),
            model_tokens: AtomicU64::new(0),
            synthetic: Mutex::default(),
            learnt: Mutex::default(),
            values: Mutex::default(),
            open: watch::Sender::new(Open::Yes),
        })
    }

    /// Ends every connection.
    pub(crate) fn close(&self) {
        self.open.send_replace(Open::No);
        self.pool.clear();
    }

    /// Waits for the end.
    pub(crate) async fn closed(&self) {
        // The sender lives as long as `self`, so this cannot fail.
        let _ = self.open.subscribe().wait_for(|open| *open == Open::No).await;
    }

    /// Judges; what a learning sandbox would be refused goes with the note that it was learnt.
    pub(crate) fn judge(&self, host: &HostName, port: u16, judged: Result<String, Refusal>) -> Result<(Verdict, String), Refusal> {
        match (judged, self.rules.mode) {
            (Ok(rule), Mode::Enforce) => Ok((Verdict::Allow, rule)),
            (Ok(rule), Mode::Learn) => {
                lock(&self.learnt).add(host, port, Before::Allowed);
                Ok((Verdict::Allow, rule))
            }
            (Err(refusal), Mode::Learn) if refusal.is_learnable() => {
                lock(&self.learnt).add(host, port, Before::Refused);
                Ok((Verdict::Learn, refusal.rule()))
            }
            (Err(refusal), Mode::Enforce | Mode::Learn) => Err(refusal),
        }
    }

    pub(crate) fn learnt(&self) -> Learnt {
        lock(&self.learnt).clone()
    }

    pub(crate) fn synthetic(&self) -> MutexGuard<'_, Synthetic> {
        lock(&self.synthetic)
    }

    /// Takes one request out of the second's share.
    pub(crate) fn take_request(&self) -> Result<(), Refusal> {
        let rate = self.rules.limits.requests_per_second;
        let mut tokens = lock(&self.tokens);
        let now = Instant::now();
        let gained = now.duration_since(tokens.at).as_secs_f64() * f64::from(rate);
        tokens.left = (tokens.left + gained).min(burst(rate));
        tokens.at = now;
        if tokens.left < 1.0 {
            return Err(Refusal::Limit { what: format!("{rate} requests in a second") });
        }
        tokens.left -= 1.0;
        Ok(())
    }

    /// Counts bytes on their way out.
    pub(crate) fn count_sent(&self, count: u64) -> Result<(), Refusal> {
        let most = self.rules.limits.sent_bytes;
        let before = self.sent.fetch_add(count, Ordering::Relaxed);
        if before.saturating_add(count) > most {
            return Err(Refusal::Limit { what: format!("{most} bytes sent by this sandbox") });
        }
        Ok(())
    }

    /// Counts bytes on their way out that go with these secrets (as bits).
    pub(crate) fn count_sent_with(&self, carried: u64, count: u64) -> Result<(), Refusal> {
        self.count_sent(count)?;
        let mut with = self.bound.iter().enumerate().filter(|(index, _)| carried >> index & 1 == 1);
        with.try_for_each(|(_, bound)| bound.count_bytes(count))
    }

    /// Counts what an answer said was used.
    pub(crate) fn count_model_tokens(&self, count: u64) {
        let _ = self.model_tokens.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |before| Some(before.saturating_add(count)));
    }

    /// Whether there are tokens left. What is under way already may go beyond: only its answer says how much it was.
    pub(crate) fn has_model_tokens(&self) -> Result<(), Refusal> {
        match self.rules.limits.tokens {
            Some(most) if self.model_tokens.load(Ordering::Relaxed) >= most => {
                Err(Refusal::Limit { what: format!("{most} tokens of this sandbox") })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// The bindings for this host, as bits of their places.
    pub(crate) fn bound_to(&self, host: &HostName, port: u16) -> u64 {
        let fitting = self.bound.iter().enumerate().filter(|(_, bound)| bound.travels() && bound.is_for(host, port));
        fitting.fold(0, |bits, (index, _)| bits | 1 << index)
    }

    /// The secret that programs log in with at this host, by way of the agent.
    pub(crate) fn logs_in_at(&self, host: &HostName, port: u16) -> Option<&Bound> {
        let secrets = self.rules.agent.iter().filter_map(|entry| self.bound.get(entry.binding));
        secrets.into_iter().find(|bound| bound.is_for(host, port))
    }

    /// Asks for the values of these bindings. Those a request carries must be had; of the others, what can be had, so that an
    /// answer can be searched for them too.
    pub(crate) async fn values(&self, secrets: &dyn Secrets, wanted: u64, carried: u64) -> Result<Vec<Found>, Refusal> {
        let mut found = Vec::new();
        for (index, bound) in self.bound.iter().enumerate().filter(|(index, _)| wanted >> index & 1 == 1) {
            match secrets.value(&self.id, &bound.name).await {
                Ok(value) => found.push((index, value)),
                Err(why) if carried >> index & 1 == 1 => return Err(Refusal::SecretUnavailable { name: Arc::clone(&bound.name), why }),
                Err(_) => {}
            }
        }
        Ok(found)
    }

    /// What to look for in answers of a host with these bindings, given their current values.
    pub(crate) fn needles(&self, wanted: u64, found: &[Found]) -> Option<Arc<Needles>> {
        let mut values = lock(&self.values);
        for (index, value) in found {
            let known = values.known.entry(*index).or_default();
            if !known.first().is_some_and(|newest| newest.is_same(value)) {
                known.insert(0, value.clone());
                known.truncate(1 + MAX_FORMER);
                values.needles.clear();
            }
        }
        if let Some(needles) = values.needles.get(&wanted) {
            return Some(Arc::clone(needles));
        }
        let bound = self.bound.iter().enumerate().filter(|(index, _)| wanted >> index & 1 == 1);
        let mut sought: Vec<(Zeroizing<Vec<u8>>, &[u8])> = Vec::new();
        for (index, bound) in bound {
            for value in values.known.get(&index).into_iter().flatten() {
                sought.extend(hidden_in(bound.form, value).into_iter().map(|text| (text, bound.placeholder.as_slice())));
            }
        }
        let needles = Arc::new(Needles::new(sought.iter().map(|(text, placeholder)| (text.as_slice(), *placeholder)))?);
        values.needles.insert(wanted, Arc::clone(&needles));
        Some(needles)
    }
}

/// What must not come back of a value: all of it, or those of its parts that are secret.
fn hidden_in(form: Form, value: &SecretValue) -> Vec<Zeroizing<Vec<u8>>> {
    let whole = || vec![Zeroizing::new(value.expose().to_vec())];
    match form {
        Form::Plain | Form::SshKey => whole(),
        Form::AwsKeys => Keys::parse(value).map_or_else(whole, |keys| {
            let long = keys.hidden().filter(|text| text.len() >= MIN_VALUE);
            long.map(|text| Zeroizing::new(text.to_vec())).collect()
        }),
    }
}

fn burst(rate: u32) -> f64 {
    f64::from(rate.max(1)) * 2.0
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long an idle connection to a host is kept for the next request.
pub(crate) const IDLE_UPSTREAM: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use stockade_core::host::HostPattern;

    use super::*;
    use crate::rules::Limits;
    use crate::secrets::binding::{Budget, Places};

    fn sandbox(limits: Limits, placeholders: &[&str]) -> Result<Sandbox, EgressError> {
        let binding = |(index, placeholder): (usize, &&str)| Binding {
            name: format!("S{index}"),
            placeholder: (*placeholder).to_owned(),
            hosts: vec![HostPattern::parse("a.example").unwrap()],
            places: Places::default(),
            budget: Budget::default(),
            form: Form::default(),
        };
        let rules = Rules { limits, ..Rules::default() };
        Sandbox::new(SandboxId::from_parts(0, 1), rules, placeholders.iter().enumerate().map(binding).collect(), None)
    }

    #[test]
    fn h20_rates_and_bytes_are_limited() {
        let limits = Limits { requests_per_second: 1, sent_bytes: 10, ..Limits::default() };
        let sandbox = sandbox(limits, &[]).unwrap();
        assert!(sandbox.take_request().is_ok() && sandbox.take_request().is_ok());
        assert!(matches!(sandbox.take_request(), Err(Refusal::Limit { .. })));
        assert!(sandbox.count_sent(10).is_ok());
        assert!(matches!(sandbox.count_sent(1), Err(Refusal::Limit { .. })));
    }

    #[test]
    fn tokens_of_models_end() {
        let sandbox = sandbox(Limits { tokens: Some(10), ..Limits::default() }, &[]).unwrap();
        sandbox.count_model_tokens(9);
        assert!(sandbox.has_model_tokens().is_ok());
        sandbox.count_model_tokens(u64::MAX);
        assert!(matches!(sandbox.has_model_tokens(), Err(Refusal::Limit { .. })));
    }

    #[test]
    fn placeholders_that_hold_each_other_are_refused() {
        assert!(sandbox(Limits::default(), &["0123456789abcdef", "fedcba9876543210"]).is_ok());
        let nested = sandbox(Limits::default(), &["0123456789abcdef", "x0123456789abcdefx"]);
        assert!(matches!(nested, Err(EgressError::AmbiguousBindings { .. })));
    }

    #[test]
    fn former_values_are_still_looked_for() {
        let sandbox = sandbox(Limits::default(), &["ghp_fakefakefakefake"]).unwrap();
        let value = |text: &str| SecretValue::new(text.as_bytes().to_vec()).unwrap();
        assert!(sandbox.needles(1, &[]).is_none());
        let first = sandbox.needles(1, &[(0, value("ghp_firstfirstfirst1"))]).unwrap();
        assert!(Arc::ptr_eq(&first, &sandbox.needles(1, &[(0, value("ghp_firstfirstfirst1"))]).unwrap()));
        let both = sandbox.needles(1, &[(0, value("ghp_secondsecondsec2"))]).unwrap();
        assert!(both.is_in(b"ghp_firstfirstfirst1") && both.is_in(b"ghp_secondsecondsec2"));
    }
}
