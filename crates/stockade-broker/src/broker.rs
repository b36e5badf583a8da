//! The broker's own state: which sandbox may use which secret, what was spent, and the latest value of each source.
//!
//! ```text
//!  register ──▶ values fetched ──▶ placeholders drawn ──▶ value, spend … ──▶ release
//!       └ any secret without a value, or bound beyond its hosts: nothing is registered
//! ```
//!
//! Knows nothing of connections. All calls may be made at once from many threads.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use stockade_core::escape::escape;
use stockade_core::id::{SandboxId, SandboxName};
use stockade_core::redact::RedactError;
use stockade_store::settings::{SecretSetting, SecretSource};

use crate::binding::SecretBinding;
use crate::budget::{Account, Budget, Bytes, UsedUp};
use crate::placeholder::{self, Placeholder, PlaceholderError};
use crate::redact::{self, Redacted, Values};
use crate::shared::lock;
use crate::sign::{self, SIGNATURE};
use crate::sources::{self, Lease, Slot, SourceError, Surroundings};
use crate::talk::message::Extent;
use crate::{HostPattern, SecretName, SecretValue};

/// The most secrets of one sandbox.
pub const MAX_SECRETS: usize = 64;
/// The most sandboxes at a time.
pub const MAX_SANDBOXES: usize = 4096;

/// A sandbox as the broker knows it: an id or a name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SandboxLabel(String);

impl SandboxLabel {
    /// The label as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SandboxLabel {
    type Err = stockade_core::id::BadName;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse::<SandboxId>().map(drop).or_else(|_| text.parse::<SandboxName>().map(drop))?;
        Ok(Self(text.to_owned()))
    }
}

impl From<&SandboxId> for SandboxLabel {
    fn from(id: &SandboxId) -> Self {
        Self(id.to_string())
    }
}

impl fmt::Display for SandboxLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A secret that a sandbox is to have.
#[derive(Debug)]
pub struct Wish {
    /// Which, and where it may go.
    pub binding: SecretBinding,
    /// What the caller's environment has for it, if anything (see [`Broker::variable_of`]).
    pub caller: Option<SecretValue>,
}

/// A secret that a sandbox has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    /// Which, and where it may go.
    pub binding: SecretBinding,
    /// What stands for it inside.
    pub placeholder: Placeholder,
}

/// A value and how it may be used.
#[derive(Debug)]
pub struct Answer {
    /// The value.
    pub lease: Arc<Lease>,
    /// Whether it may be used more than once.
    pub keep: Keep,
    /// Whether bytes that are sent with it must be told.
    pub bytes: Bytes,
    /// After this it is worthless: the value's own end, or the budget's.
    pub expires: Option<SystemTime>,
    /// After this it is to be asked for again.
    pub fresh_until: SystemTime,
}

/// Whether an answer may be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// Until it is no longer fresh.
    UntilStale,
    /// For one request: uses are counted.
    Once,
}

/// Why the broker refuses.
#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    /// No such sandbox.
    #[error("the sandbox `{0}` has no secrets")]
    UnknownSandbox(SandboxLabel),
    /// It is there already.
    #[error("the sandbox `{0}` has its secrets already")]
    KnownSandbox(SandboxLabel),
    /// The sandbox does not have that secret.
    #[error("the sandbox `{sandbox}` does not have the secret `{name}`")]
    NotBound {
        /// Which sandbox.
        sandbox: SandboxLabel,
        /// Which secret.
        name: SecretName,
    },
    /// One secret twice.
    #[error("the secret `{0}` is named twice; name all its hosts at once: {0}@HOST,HOST")]
    Twice(SecretName),
    /// Too much.
    #[error("{0} is more than the broker takes")]
    TooMany(&'static str),
    /// The settings forbid the host.
    #[error("the settings let the secret `{name}` go to {} only, not to `{host}`", listed(.allowed))]
    HostNotAllowed {
        /// Which secret.
        name: SecretName,
        /// Where it was to go.
        host: HostPattern,
        /// Where it may go.
        allowed: Vec<HostPattern>,
    },
    /// The source gave nothing.
    #[error(transparent)]
    Source(#[from] Arc<SourceError>),
    /// Nothing is left.
    #[error("the secret `{name}` is used up in this sandbox: {why}")]
    UsedUp {
        /// Which secret.
        name: SecretName,
        /// What is used up.
        why: UsedUp,
    },
    /// A value that nothing can be signed with.
    #[error("the secret `{0}` begins with `whsec_` and is no key in base64 of 16 bytes or more")]
    NoKey(SecretName),
    /// Values that cannot be looked for.
    #[error(transparent)]
    Redact(#[from] RedactError),
    /// No placeholder.
    #[error("no placeholder for a secret can be made")]
    Placeholder(#[from] PlaceholderError),
}

impl BrokerError {
    /// What a person can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Source(error) => error.hint(),
            Self::HostNotAllowed { name, .. } => Some(format!("add the host to `secrets.{name}.hosts` in your settings")),
            Self::UsedUp { name, .. } => Some(format!("raise the limits of `secrets.{name}` in your settings")),
            Self::UnknownSandbox(_)
            | Self::KnownSandbox(_)
            | Self::NotBound { .. }
            | Self::Twice(_)
            | Self::TooMany(_)
            | Self::NoKey(_)
            | Self::Redact(_)
            | Self::Placeholder(_) => None,
        }
    }
}

/// The state.
pub struct Broker {
    settings: Vec<SecretSetting>,
    around: Surroundings,
    clock: fn() -> SystemTime,
    slots: Mutex<HashMap<SecretName, Arc<Slot>>>,
    sandboxes: Mutex<HashMap<SandboxLabel, HashMap<SecretName, Entry>>>,
}

#[derive(Debug)]
struct Entry {
    caller: Option<Arc<SecretValue>>,
    account: Account,
    /// What it has been, for as long as the sandbox lives.
    values: Values,
}

impl fmt::Debug for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Broker").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Broker {
    /// A broker without sandboxes.
    pub fn new(settings: Vec<SecretSetting>, around: Surroundings) -> Self {
        Self::with_clock(settings, around, SystemTime::now)
    }

    pub(crate) fn with_clock(settings: Vec<SecretSetting>, around: Surroundings, clock: fn() -> SystemTime) -> Self {
        Self { settings, around, clock, slots: Mutex::default(), sandboxes: Mutex::default() }
    }

    /// Gives a sandbox its secrets: each must have a value now. All or none.
    pub fn register(&self, sandbox: &SandboxLabel, wishes: Vec<Wish>) -> Result<Vec<Bound>, BrokerError> {
        if wishes.len() > MAX_SECRETS {
            return Err(BrokerError::TooMany("that many secrets of one sandbox"));
        }
        for (index, wish) in wishes.iter().enumerate() {
            let name = wish.binding.name();
            if wishes.iter().take(index).any(|earlier| earlier.binding.name() == name) {
                return Err(BrokerError::Twice(name.clone()));
            }
            self.check_hosts(&wish.binding)?;
        }
        let leases = self.fetch_all(&wishes)?;
        let values: Vec<&SecretValue> = leases.iter().map(|lease| &lease.value).collect();
        let placeholders = placeholder::draw(&values)?;
        let now = (self.clock)();
        let mut sandboxes = lock(&self.sandboxes);
        if sandboxes.contains_key(sandbox) {
            return Err(BrokerError::KnownSandbox(sandbox.clone()));
        }
        if sandboxes.len() >= MAX_SANDBOXES {
            return Err(BrokerError::TooMany("that many sandboxes"));
        }
        let mut entries = HashMap::new();
        let mut bound = Vec::new();
        for ((wish, placeholder), lease) in wishes.into_iter().zip(placeholders).zip(&leases) {
            let name = wish.binding.name().clone();
            let account = Account::new(self.budget_of(&name, now));
            let mut values = Values::default();
            values.remember(&lease.value);
            entries.insert(name, Entry { caller: wish.caller.map(Arc::new), account, values });
            bound.push(Bound { binding: wish.binding, placeholder });
        }
        sandboxes.insert(sandbox.clone(), entries);
        Ok(bound)
    }

    /// Forgets a sandbox. One that is not there is forgotten already.
    pub fn release(&self, sandbox: &SandboxLabel) {
        lock(&self.sandboxes).remove(sandbox);
    }

    /// The value of a sandbox's secret; counts a use. May go to the source, and wait for it.
    pub fn value(&self, sandbox: &SandboxLabel, name: &SecretName) -> Result<Answer, BrokerError> {
        let caller = self.entry(sandbox, name, |entry| entry.account.check((self.clock)()).map(|()| entry.caller.clone()))?;
        let lease = self.fetch(name, caller.as_deref())?;
        self.answer(sandbox, name, lease)
    }

    /// Signs a message with a sandbox's secret; counts a use. Who asks never sees the value.
    pub fn sign(&self, sandbox: &SandboxLabel, name: &SecretName, message: &[u8]) -> Result<[u8; SIGNATURE], BrokerError> {
        let answer = self.value(sandbox, name)?;
        sign::sign(&answer.lease.value, message).ok_or_else(|| BrokerError::NoKey(name.clone()))
    }

    /// As [`Self::value`], where that needs no source; `None` where it does.
    pub fn value_at_hand(&self, sandbox: &SandboxLabel, name: &SecretName) -> Option<Result<Answer, BrokerError>> {
        let now = (self.clock)();
        if let Err(refused) = self.entry(sandbox, name, |entry| entry.account.check(now)) {
            return Some(Err(refused));
        }
        let lease = lock(&self.slots).get(name)?.ready(now)?;
        Some(self.answer(sandbox, name, lease))
    }

    /// Counts bytes that a sandbox sent with a secret. Fails when nothing is left for another request.
    pub fn spend(&self, sandbox: &SandboxLabel, name: &SecretName, bytes: u64) -> Result<(), BrokerError> {
        self.entry(sandbox, name, |entry| {
            entry.account.spend_bytes(bytes);
            entry.account.check((self.clock)())
        })
    }

    /// Takes the values that a sandbox's secrets have and had out of some pieces of text or bytes.
    pub(crate) fn redact(&self, sandbox: &SandboxLabel, pieces: &[Vec<u8>], extent: Extent) -> Result<Redacted, BrokerError> {
        let sandboxes = lock(&self.sandboxes);
        let entries = sandboxes.get(sandbox).ok_or_else(|| BrokerError::UnknownSandbox(sandbox.clone()))?;
        Ok(redact::redact(entries.iter().map(|(name, entry)| (name, &entry.values)), pieces, extent)?)
    }

    /// The caller's variable that a secret may come from; `None` where it comes from elsewhere, so that nobody need read it.
    pub fn variable_of(settings: &[SecretSetting], name: &SecretName) -> Option<SecretName> {
        match settings.iter().find(|setting| setting.name == *name).map(|setting| &setting.source) {
            None => Some(name.clone()),
            Some(SecretSource::Env { variable }) => Some(variable.clone()),
            Some(SecretSource::Store | SecretSource::File { .. } | SecretSource::Command { .. }) => None,
        }
    }

    fn answer(&self, sandbox: &SandboxLabel, name: &SecretName, lease: Arc<Lease>) -> Result<Answer, BrokerError> {
        self.entry(sandbox, name, |entry| {
            // Others may have used it up while the source was asked.
            entry.account.check((self.clock)())?;
            entry.account.spend_use();
            entry.values.remember(&lease.value);
            let keep = if entry.account.counts_uses() { Keep::Once } else { Keep::UntilStale };
            let expires = lease.expires.into_iter().chain(entry.account.ends()).min();
            let fresh_until = expires.map_or(lease.fresh_until, |end| end.min(lease.fresh_until));
            Ok(Answer { lease, keep, bytes: entry.account.bytes(), expires, fresh_until })
        })
    }

    fn entry<T>(
        &self,
        sandbox: &SandboxLabel,
        name: &SecretName,
        act: impl FnOnce(&mut Entry) -> Result<T, UsedUp>,
    ) -> Result<T, BrokerError> {
        let mut sandboxes = lock(&self.sandboxes);
        let entries = sandboxes.get_mut(sandbox).ok_or_else(|| BrokerError::UnknownSandbox(sandbox.clone()))?;
        let entry = entries.get_mut(name).ok_or_else(|| BrokerError::NotBound { sandbox: sandbox.clone(), name: name.clone() })?;
        act(entry).map_err(|why| BrokerError::UsedUp { name: name.clone(), why })
    }

    /// Programs may be slow, so they are asked at the same time.
    fn fetch_all(&self, wishes: &[Wish]) -> Result<Vec<Arc<Lease>>, BrokerError> {
        let fetch = |wish: &Wish| self.fetch(wish.binding.name(), wish.caller.as_ref());
        if let [only] = wishes {
            return Ok(vec![fetch(only)?]);
        }
        std::thread::scope(|scope| {
            let asked: Vec<_> = wishes.iter().map(|wish| std::thread::Builder::new().spawn_scoped(scope, move || fetch(wish))).collect();
            let answers = asked.into_iter().map(|thread| match thread.map(std::thread::ScopedJoinHandle::join) {
                Ok(Ok(answer)) => answer,
                Ok(Err(_)) | Err(_) => Err(BrokerError::TooMany("asking for that many secrets at once")),
            });
            answers.collect()
        })
    }

    fn fetch(&self, name: &SecretName, caller: Option<&SecretValue>) -> Result<Arc<Lease>, BrokerError> {
        let source = self.setting(name).map(|setting| &setting.source);
        let slot = Arc::clone(lock(&self.slots).entry(name.clone()).or_default());
        let said = slot.ask(self.clock, || sources::fetch(name, source, &self.around, (self.clock)()))?;
        match (said, caller, source) {
            (Some(lease), _, _) => Ok(lease),
            (None, Some(value), _) => Ok(Arc::new(sources::of_caller(value, (self.clock)()))),
            (None, None, Some(SecretSource::Env { variable })) => {
                Err(Arc::new(SourceError::NoVariable { name: name.clone(), variable: variable.clone() }).into())
            }
            (None, None, _) => Err(Arc::new(SourceError::Nowhere(name.clone())).into()),
        }
    }

    fn check_hosts(&self, binding: &SecretBinding) -> Result<(), BrokerError> {
        let Some(setting) = self.setting(binding.name()).filter(|setting| !setting.hosts.is_empty()) else { return Ok(()) };
        let within = |host: &HostPattern| setting.hosts.iter().any(|allowed| host.intersection(allowed).as_ref() == Some(host));
        match binding.hosts().iter().find(|host| !within(host)) {
            None => Ok(()),
            Some(host) => {
                Err(BrokerError::HostNotAllowed { name: binding.name().clone(), host: host.clone(), allowed: setting.hosts.clone() })
            }
        }
    }

    fn budget_of(&self, name: &SecretName, now: SystemTime) -> Budget {
        self.setting(name).map_or_else(Budget::default, |setting| Budget {
            uses: setting.max_uses,
            bytes: setting.max_bytes,
            ends: setting.max_seconds.and_then(|seconds| now.checked_add(Duration::from_secs(seconds))),
        })
    }

    fn setting(&self, name: &SecretName) -> Option<&SecretSetting> {
        self.settings.iter().find(|setting| setting.name == *name)
    }
}

fn listed(hosts: &[HostPattern]) -> String {
    hosts.iter().map(|host| format!("`{}`", escape(&host.to_string()))).collect::<Vec<_>>().join(", ")
}
