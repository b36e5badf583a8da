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

use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use stockade_core::credential::Class;
use stockade_core::escape::escape;
use stockade_core::id::{SandboxId, SandboxName};
use stockade_core::redact::RedactError;
use stockade_store::settings::{Cache, Provider, SecretSetting, SecretSource};

use crate::binding::SecretBinding;
use crate::budget::{Account, Budget, Bytes, UsedUp};
use crate::circle;
use crate::mint::{self, Asking, MintError, Verdict};
use crate::placeholder::{self, Placeholder, PlaceholderError};
use crate::redact::{self, Redacted, Values};
use crate::shared::lock;
use crate::sign::{self, SIGNATURE};
use crate::sources::{self, Lease, Slot, SourceError, Surroundings};
use crate::talk::message::Extent;
use crate::ticket::{Gate, KEY, Ticket, TicketError};
use crate::{HostPattern, SecretName, SecretValue};

/// The most secrets of one sandbox.
pub const MAX_SECRETS: usize = 64;
/// A secret that is needed to ask for a secret, and so on: this often.
const MAX_DEPTH: usize = 3;
const MINUTE: Duration = Duration::from_mins(1);
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
    /// Whether it is handed in.
    pub class: Class,
    /// What the caller's environment has for those secrets that a provider is asked with for it (see [`Broker::variables_behind`]).
    pub behind: Behind,
}

/// Values of the caller's own, and which secrets they are.
pub type Behind = Vec<(SecretName, SecretValue)>;

/// What a receipt says of a credential.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fact {
    /// Who gave it: a provider's word, or `secret`.
    pub adapter: String,
    /// Whom it speaks for and what it is good for, where a provider minted it.
    pub scope: Option<String>,
    /// When it ends.
    pub expires: Option<SystemTime>,
    /// What becomes of it after the call.
    pub after: After,
    /// What went wrong when it was minted though the value is good; told to one call.
    pub note: Option<String>,
}

/// What becomes of a credential when its sandbox has ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum After {
    /// Nothing: it is kept for others, or nobody can end it.
    #[default]
    Stays,
    /// It was minted for that sandbox alone, and is given back.
    GivenBack,
}

/// Lets its holder ask for the values of one sandbox.
pub type Pass = [u8; 16];

/// What a sandbox was given.
#[derive(Debug)]
pub struct Registered {
    /// Its secrets, in the order of the wishes.
    pub bound: Vec<Bound>,
    /// For whoever asks for their values.
    pub pass: Pass,
}

/// A secret that a sandbox has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    /// Which, and where it may go.
    pub binding: SecretBinding,
    /// What stands for it inside.
    pub placeholder: Placeholder,
    /// What a receipt says of it.
    pub fact: Fact,
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
    /// Only what ends soon is handed in.
    #[error("the secret `{0}` would be handed in, and only a credential that a provider mints for a while may be")]
    LongLived(SecretName),
    /// Not for this call.
    #[error(transparent)]
    Ticket(#[from] TicketError),
    /// Too often.
    #[error("the secret `{name}` may be given out {most} times in a minute, and was")]
    TooOften {
        /// Which secret.
        name: SecretName,
        /// How often.
        most: u64,
    },
    /// What could not be given back.
    #[error("{0}")]
    NotGivenBack(String),
    /// The same beside what went wrong first.
    #[error("{}; besides, {left}", crate::server::with_causes(&**.first))]
    AndNotGivenBack {
        /// What went wrong.
        first: Box<BrokerError>,
        /// What could not be given back.
        left: String,
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
            Self::LongLived(name) => {
                Some(format!("give `secrets.{name}` a `delivery` that hands nothing in, or a provider as its `source`"))
            }
            Self::TooOften { name, .. } => Some(format!("wait a minute, or raise `secrets.{name}.maxPerMinute` in your settings")),
            Self::NotGivenBack(_) => Some("it ends by itself at its own time; see the provider's own list of what is out".to_owned()),
            Self::AndNotGivenBack { first, .. } => first.hint(),
            Self::UsedUp { name, .. } => Some(format!("raise the limits of `secrets.{name}` in your settings")),
            Self::UnknownSandbox(_)
            | Self::KnownSandbox(_)
            | Self::NotBound { .. }
            | Self::Twice(_)
            | Self::TooMany(_)
            | Self::Ticket(_)
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
    slots: Mutex<HashMap<SlotKey, Arc<Slot>>>,
    sandboxes: Mutex<HashMap<SandboxLabel, Registration>>,
    gate: Mutex<Gate>,
    rates: Mutex<HashMap<SecretName, Rate>>,
}

/// Whose value a slot holds: everybody's, or one call's.
type SlotKey = (SecretName, Option<SandboxLabel>);

/// A sandbox that is registered.
#[derive(Debug)]
struct Registration {
    pass: Pass,
    /// What the call is.
    purpose: Arc<str>,
    entries: HashMap<SecretName, Entry>,
}

/// How often a secret was given out in the minute that began then.
#[derive(Debug)]
struct Rate {
    began: SystemTime,
    count: u64,
}

#[derive(Debug)]
struct Entry {
    slot: SlotKey,
    caller: Option<Arc<SecretValue>>,
    behind: Arc<Behind>,
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
        Self {
            settings,
            around,
            clock,
            slots: Mutex::default(),
            sandboxes: Mutex::default(),
            gate: Mutex::default(),
            rates: Mutex::default(),
        }
    }

    /// Says whose tickets are taken; the first word counts.
    pub fn trust(&self, key: [u8; KEY]) -> Result<(), BrokerError> {
        Ok(lock(&self.gate).trust(key)?)
    }

    /// Takes the ticket of one call, once.
    pub fn admit(&self, ticket: &Ticket, sandbox: &SandboxLabel, purpose: &str, wishes: &[Wish]) -> Result<(), BrokerError> {
        Ok(lock(&self.gate).take(ticket, sandbox, purpose, wishes, (self.clock)())?)
    }

    /// The sandbox that a pass is for.
    pub fn bearer(&self, pass: &Pass) -> Option<SandboxLabel> {
        let sandboxes = lock(&self.sandboxes);
        let same = |known: &Pass| aws_lc_rs::constant_time::verify_slices_are_equal(known, pass).is_ok();
        sandboxes.iter().find(|(_, registration)| same(&registration.pass)).map(|(label, _)| label.clone())
    }

    /// Gives a sandbox its secrets: each must have a value now. All or none; what was minted for none is given back.
    pub fn register(&self, sandbox: &SandboxLabel, purpose: &str, wishes: Vec<Wish>) -> Result<Registered, BrokerError> {
        self.register_all(sandbox, purpose, wishes).map_err(|first| match first {
            // What there is belongs to whoever was first.
            BrokerError::KnownSandbox(_) => first,
            first => match self.give_back(sandbox) {
                Err(BrokerError::NotGivenBack(left)) => BrokerError::AndNotGivenBack { first: Box::new(first), left },
                Ok(()) | Err(_) => first,
            },
        })
    }

    fn register_all(&self, sandbox: &SandboxLabel, purpose: &str, wishes: Vec<Wish>) -> Result<Registered, BrokerError> {
        if lock(&self.sandboxes).contains_key(sandbox) {
            return Err(BrokerError::KnownSandbox(sandbox.clone()));
        }
        if wishes.len() > MAX_SECRETS {
            return Err(BrokerError::TooMany("that many secrets of one sandbox"));
        }
        for (index, wish) in wishes.iter().enumerate() {
            let name = wish.binding.name();
            if wishes.iter().take(index).any(|earlier| earlier.binding.name() == name) {
                return Err(BrokerError::Twice(name.clone()));
            }
            self.check_hosts(&wish.binding)?;
            if wish.class == Class::Reference && !self.is_minted(name) {
                return Err(BrokerError::LongLived(name.clone()));
            }
        }
        let leases = self.fetch_all(sandbox, purpose, &wishes)?;
        let values: Vec<&SecretValue> = leases.iter().map(|lease| lease.face()).collect();
        let placeholders = placeholder::draw(&values)?;
        let mut pass = Pass::default();
        SystemRandom::new().fill(&mut pass).map_err(|_| PlaceholderError::NoRandom)?;
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
            values.remember_all(lease);
            let adapter = match self.setting(&name).map(|setting| &setting.source) {
                Some(SecretSource::Provider(provider)) => provider.word(),
                Some(SecretSource::Store | SecretSource::Env { .. } | SecretSource::File { .. } | SecretSource::Command { .. }) | None => {
                    "secret"
                }
            };
            let slot = self.slot_of(sandbox, &wish);
            let after = if slot.1.is_some() && lock(&lease.revoke).is_some() { After::GivenBack } else { After::Stays };
            let fact = Fact {
                adapter: adapter.to_owned(),
                scope: lease.scope.clone(),
                expires: lease.expires,
                after,
                note: lock(&lease.note).take(),
            };
            let (caller, behind) = (wish.caller.map(Arc::new), Arc::new(wish.behind));
            entries.insert(name, Entry { slot, caller, behind, account, values });
            bound.push(Bound { binding: wish.binding, placeholder, fact });
        }
        sandboxes.insert(sandbox.clone(), Registration { pass, purpose: purpose.into(), entries });
        Ok(Registered { bound, pass })
    }

    /// Forgets a sandbox, and gives back what was minted for it alone. One that is not there is forgotten already.
    pub fn release(&self, sandbox: &SandboxLabel) -> Result<(), BrokerError> {
        lock(&self.sandboxes).remove(sandbox);
        self.give_back(sandbox)
    }

    /// Gives back what was minted for one call.
    fn give_back(&self, sandbox: &SandboxLabel) -> Result<(), BrokerError> {
        let own: Vec<(SecretName, Arc<Slot>)> = {
            let mut slots = lock(&self.slots);
            let is_own = |key: &SlotKey| key.1.as_ref() == Some(sandbox);
            slots.extract_if(|key, _| is_own(key)).map(|((name, _), slot)| (name, slot)).collect()
        };
        let mut kept = Vec::new();
        for (name, slot) in own {
            for lease in slot.all() {
                let revoke = lock(&lease.revoke).take();
                if let Some(Err(error)) = revoke.map(|revoke| revoke()) {
                    kept.push(format!("the credential of `{name}` could not be given back: {error}"));
                }
            }
        }
        if kept.is_empty() { Ok(()) } else { Err(BrokerError::NotGivenBack(kept.join("; "))) }
    }

    /// Whether a value is one call's own: it is had with what is the caller's own, or is handed in, or can be given back, unless the settings say otherwise.
    fn slot_of(&self, sandbox: &SandboxLabel, wish: &Wish) -> SlotKey {
        let name = wish.binding.name();
        let own = match self.setting(name) {
            Some(SecretSetting { source: SecretSource::Provider(_), .. }) if !wish.behind.is_empty() => true,
            Some(SecretSetting { source: SecretSource::Provider(provider), cache, .. }) => match cache {
                Cache::Call => true,
                Cache::Shared => false,
                Cache::Usual => wish.class == Class::Reference || mint::gives_back(provider),
            },
            Some(_) | None => false,
        };
        (name.clone(), own.then(|| sandbox.clone()))
    }

    /// The value of a sandbox's secret; counts a use. May go to the source, and wait for it.
    pub fn value(&self, sandbox: &SandboxLabel, name: &SecretName) -> Result<Answer, BrokerError> {
        let purpose = self.purpose(sandbox)?;
        let (caller, behind, slot) = self.entry(sandbox, name, |entry| {
            entry.account.check((self.clock)()).map(|()| (entry.caller.clone(), Arc::clone(&entry.behind), entry.slot.clone()))
        })?;
        let lease = self.fetch(sandbox, &purpose, &slot, caller.as_deref(), &behind, 0)?;
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
        let slot = match self.entry(sandbox, name, |entry| entry.account.check(now).map(|()| entry.slot.clone())) {
            Ok(slot) => slot,
            Err(refused) => return Some(Err(refused)),
        };
        let lease = lock(&self.slots).get(&slot)?.ready(now)?;
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
        let registration = sandboxes.get(sandbox).ok_or_else(|| BrokerError::UnknownSandbox(sandbox.clone()))?;
        Ok(redact::redact(registration.entries.iter().map(|(name, entry)| (name, &entry.values)), pieces, extent)?)
    }

    /// The caller's variable that a secret may come from; `None` where it comes from elsewhere, so that nobody need read it.
    pub fn variable_of(settings: &[SecretSetting], name: &SecretName) -> Option<SecretName> {
        match settings.iter().find(|setting| setting.name == *name).map(|setting| &setting.source) {
            None => Some(name.clone()),
            Some(SecretSource::Env { variable }) => Some(variable.clone()),
            Some(SecretSource::Store | SecretSource::File { .. } | SecretSource::Command { .. } | SecretSource::Provider(_)) => None,
        }
    }

    /// The caller's variables that a provider is asked with for a secret, each behind the secret that it is.
    pub fn variables_behind(settings: &[SecretSetting], name: &SecretName) -> Vec<(SecretName, SecretName)> {
        let source = |name: &SecretName| settings.iter().find(|setting| setting.name == *name).map(|setting| &setting.source);
        let mut found = Vec::new();
        let mut asked = vec![name.clone()];
        for _ in 0..MAX_DEPTH {
            let behind = |name: &SecretName| match source(name) {
                Some(SecretSource::Provider(provider)) => provider.asked_with().into_iter().cloned().collect(),
                _ => Vec::new(),
            };
            asked = asked.iter().flat_map(behind).collect();
            for needed in &asked {
                if let Some(SecretSource::Env { variable }) = source(needed)
                    && !found.iter().any(|(known, _)| known == needed)
                {
                    found.push((needed.clone(), variable.clone()));
                }
            }
        }
        found
    }

    fn answer(&self, sandbox: &SandboxLabel, name: &SecretName, lease: Arc<Lease>) -> Result<Answer, BrokerError> {
        let rate = self.setting(name).and_then(|setting| setting.max_per_minute);
        if let Some(most) = rate {
            self.count(name, most)?;
        }
        self.entry(sandbox, name, |entry| {
            // Others may have used it up while the source was asked.
            entry.account.check((self.clock)())?;
            entry.account.spend_use();
            entry.values.remember_all(&lease);
            let keep = if entry.account.counts_uses() || rate.is_some() { Keep::Once } else { Keep::UntilStale };
            let expires = lease.expires.into_iter().chain(entry.account.ends()).min();
            let fresh_until = expires.map_or(lease.fresh_until, |end| end.min(lease.fresh_until));
            Ok(Answer { lease, keep, bytes: entry.account.bytes(), expires, fresh_until })
        })
    }

    /// Counts one more use in this minute.
    fn count(&self, name: &SecretName, most: u64) -> Result<(), BrokerError> {
        let now = (self.clock)();
        let mut rates = lock(&self.rates);
        let rate = rates.entry(name.clone()).or_insert(Rate { began: now, count: 0 });
        // A clock that was set back begins a new minute too.
        if now.duration_since(rate.began).is_ok_and(|passed| passed < MINUTE) {
            rate.count += 1;
        } else {
            *rate = Rate { began: now, count: 1 };
        }
        if rate.count <= most { Ok(()) } else { Err(BrokerError::TooOften { name: name.clone(), most }) }
    }

    fn purpose(&self, sandbox: &SandboxLabel) -> Result<Arc<str>, BrokerError> {
        let sandboxes = lock(&self.sandboxes);
        let registration = sandboxes.get(sandbox).ok_or_else(|| BrokerError::UnknownSandbox(sandbox.clone()))?;
        Ok(Arc::clone(&registration.purpose))
    }

    fn entry<T>(
        &self,
        sandbox: &SandboxLabel,
        name: &SecretName,
        act: impl FnOnce(&mut Entry) -> Result<T, UsedUp>,
    ) -> Result<T, BrokerError> {
        let mut sandboxes = lock(&self.sandboxes);
        let registration = sandboxes.get_mut(sandbox).ok_or_else(|| BrokerError::UnknownSandbox(sandbox.clone()))?;
        let entry =
            registration.entries.get_mut(name).ok_or_else(|| BrokerError::NotBound { sandbox: sandbox.clone(), name: name.clone() })?;
        act(entry).map_err(|why| BrokerError::UsedUp { name: name.clone(), why })
    }

    /// Programs may be slow, so they are asked at the same time.
    fn fetch_all(&self, sandbox: &SandboxLabel, purpose: &str, wishes: &[Wish]) -> Result<Vec<Arc<Lease>>, BrokerError> {
        let fetch = |wish: &Wish| self.fetch(sandbox, purpose, &self.slot_of(sandbox, wish), wish.caller.as_ref(), &wish.behind, 0);
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

    fn fetch(
        &self,
        sandbox: &SandboxLabel,
        purpose: &str,
        key: &SlotKey,
        caller: Option<&SecretValue>,
        behind: &Behind,
        depth: usize,
    ) -> Result<Arc<Lease>, BrokerError> {
        let name = &key.0;
        if depth == 0
            && let Some(way) = circle::of(&self.settings, name)
        {
            let way = way.into_iter().map(SecretName::as_str).collect::<Vec<_>>().join(" → ");
            return Err(Arc::new(SourceError::Circle { name: name.clone(), way }).into());
        }
        let source = self.setting(name).map(|setting| &setting.source);
        let slot = Arc::clone(lock(&self.slots).entry(key.clone()).or_default());
        // What a provider is asked with is a secret as well, and may come from a provider.
        let look_up = |needed: &SecretName| {
            if depth >= MAX_DEPTH {
                return Err(MintError::new("secrets", format!("`{needed}` is needed to ask for `{name}`, and so on without end")));
            }
            let needed_source = self.setting(needed).map(|setting| &setting.source);
            if let Some(SecretSource::Env { variable }) = needed_source {
                if matches!(source, Some(SecretSource::Provider(provider)) if !provider.asked_with().contains(&needed)) {
                    let why = format!(
                        "`{needed}` is the caller's variable `{variable}`, and a refresh token is renewed, which a variable cannot be"
                    );
                    let hint =
                        format!("keep it in the store: stockade secret set {needed}, and take `secrets.{needed}` out of the settings");
                    return Err(MintError::new("secrets", why).with_hint(hint));
                }
                let value = behind.iter().find(|(known, _)| known == needed).map(|(_, value)| value);
                let missing = || SourceError::NoVariable { name: needed.clone(), variable: variable.clone() };
                return value.map(|value| Arc::new(sources::of_caller(value, (self.clock)()))).ok_or_else(|| {
                    let missing = missing();
                    let failed = MintError::new("secrets", missing.to_string());
                    missing.hint().map_or_else(|| failed.clone(), |hint| failed.clone().with_hint(hint))
                });
            }
            // What is had with a caller's own values is that caller's own, too.
            let own = !behind.is_empty() && matches!(needed_source, Some(SecretSource::Provider(_)));
            let key = (needed.clone(), own.then(|| sandbox.clone()));
            self.fetch(sandbox, purpose, &key, None, behind, depth + 1).map_err(|error| {
                let refused = matches!(&error, BrokerError::Source(source) if source.is_refused());
                let verdict = if refused { Verdict::Refused } else { Verdict::Open };
                let failed = MintError { verdict, ..MintError::new("secrets", crate::server::with_causes(&error)) };
                match error.hint() {
                    Some(hint) => failed.with_hint(hint),
                    None => failed,
                }
            })
        };
        let said = slot.ask(self.clock, || {
            let asking = Asking::new(sandbox, purpose, (self.clock)(), &self.around, &look_up);
            sources::fetch(name, source, &asking)
        })?;
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

    /// Whether a provider mints it, with an end of its own.
    fn is_minted(&self, name: &SecretName) -> bool {
        self.setting(name).is_some_and(|setting| match &setting.source {
            SecretSource::Provider(provider) => match provider.as_ref() {
                Provider::Aws(_)
                | Provider::Gcp(_)
                | Provider::Kubernetes(_)
                | Provider::Github(_)
                | Provider::Oauth(_)
                | Provider::Vault(_) => true,
                Provider::Keychain(_) | Provider::Onepassword(_) | Provider::Infisical(_) => false,
            },
            SecretSource::Store | SecretSource::Env { .. } | SecretSource::File { .. } | SecretSource::Command { .. } => false,
        })
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
