//! Bindings: which placeholder stands for which secret, at which hosts, in which places, and how often.
//!
//! Owns the budgets' counters. Knows no values.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use memchr::memmem::Finder;
use stockade_core::host::{HostName, HostPattern};

use super::MIN_VALUE;
use crate::error::EgressError;
use crate::refusal::Refusal;

/// The most secrets of one sandbox.
pub const MAX_BINDINGS: usize = 64;
/// What is said of a secret whose bytes are used up.
const NO_BYTES: &str = "has no bytes left for this sandbox";

/// One secret as a sandbox may use it.
#[derive(Debug, Clone)]
pub struct Binding {
    /// Its name, for events and look-ups.
    pub name: String,
    /// What stands for it inside: at least 16 bytes of text, made at random for this sandbox.
    pub placeholder: String,
    /// Where it may go.
    pub hosts: Vec<HostPattern>,
    /// Where in a request it is put in.
    pub places: Places,
    /// How much of it there is.
    pub budget: Budget,
    /// What it is.
    pub form: Form,
}

/// What a secret is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Form {
    /// Text that takes the place of its placeholder.
    #[default]
    Plain,
    /// Keys of AWS as JSON ([`crate::aws::keys`]); the placeholder is the id of a made-up key, and requests signed with that are signed
    /// anew. Never put in anywhere as it is.
    AwsKeys,
    /// A key for SSH: sessions are opened with it here ([`crate::ssh`]). Never put in anywhere.
    SshKey,
}

/// Where in a request a placeholder is replaced, besides header values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Places {
    /// The query of the target.
    pub query: Place,
    /// The body. An interface that repeats a body back can then be used to try to read the value.
    pub body: Place,
}

/// Whether one place counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Place {
    /// A placeholder there stays one.
    #[default]
    Leave,
    /// A placeholder there is replaced.
    Replace,
}

/// When a binding ends. Nothing said means without end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Budget {
    /// Not after this moment.
    pub expires: Option<SystemTime>,
    /// In so many requests.
    pub uses: Option<u64>,
    /// With so many bytes sent in requests that carry it, heads and bodies.
    pub bytes: Option<u64>,
}

/// A binding in use.
#[derive(Debug)]
pub(crate) struct Bound {
    pub(crate) name: Arc<str>,
    pub(crate) placeholder: Vec<u8>,
    pub(crate) finder: Finder<'static>,
    pub(crate) places: Places,
    pub(crate) form: Form,
    /// Whether it takes another way than requests: programs get the value itself, from the desk, or signatures, from the agent. Then it is neither put
    /// in nor looked for.
    pub(crate) handed_out: bool,
    hosts: Vec<HostPattern>,
    budget: Budget,
    uses: AtomicU64,
    bytes: AtomicU64,
}

impl Bound {
    pub(crate) fn new(binding: Binding) -> Result<Self, EgressError> {
        let Binding { name, placeholder, hosts, places, budget, form } = binding;
        if placeholder.len() < MIN_VALUE || !placeholder.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(EgressError::Placeholder { name });
        }
        let placeholder = placeholder.into_bytes();
        let finder = Finder::new(&placeholder).into_owned();
        let (uses, bytes) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(Self { name: name.into(), placeholder, finder, places, form, handed_out: false, hosts, budget, uses, bytes })
    }

    /// Whether it may go to this host.
    pub(crate) fn is_for(&self, host: &HostName, port: u16) -> bool {
        self.hosts.iter().any(|pattern| pattern.matches(host, port))
    }

    /// Whether it goes along with requests, in whatever way.
    pub(crate) fn travels(&self) -> bool {
        !self.handed_out && self.form != Form::SshKey
    }

    /// Where it may go, as it was written.
    pub(crate) fn hosts(&self) -> &[HostPattern] {
        &self.hosts
    }

    /// Whether one of its hosts is this very address, written as such.
    pub(crate) fn grants_address(&self, host: &HostName, port: u16) -> bool {
        self.hosts.iter().any(|pattern| pattern.granted_address().is_some() && pattern.matches(host, port))
    }

    /// Counts one use, or says that there is none left.
    pub(crate) fn spend(&self, now: SystemTime) -> Result<(), Refusal> {
        let spent = |what| Refusal::SecretSpent { name: Arc::clone(&self.name), what };
        if self.budget.expires.is_some_and(|expires| now >= expires) {
            return Err(spent("has expired for this sandbox"));
        }
        if self.budget.bytes.is_some_and(|most| self.bytes.load(Ordering::Relaxed) >= most) {
            return Err(spent(NO_BYTES));
        }
        let most = self.budget.uses.unwrap_or(u64::MAX);
        let counted = self.uses.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |uses| (uses < most).then_some(uses + 1));
        counted.map(drop).map_err(|_| spent("has no uses left for this sandbox"))
    }

    /// Counts bytes that go with it, or says that there are too many.
    pub(crate) fn count_bytes(&self, count: u64) -> Result<(), Refusal> {
        let Some(most) = self.budget.bytes else { return Ok(()) };
        let before = self.bytes.fetch_add(count, Ordering::Relaxed);
        if before.saturating_add(count) > most {
            return Err(Refusal::SecretSpent { name: Arc::clone(&self.name), what: NO_BYTES });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn binding(budget: Budget) -> Binding {
        let hosts = vec![HostPattern::parse("api.example").unwrap()];
        let (places, form) = (Places::default(), Form::default());
        Binding { name: "TOKEN".into(), placeholder: "ghp_0123456789abcdef".into(), hosts, places, budget, form }
    }

    #[test]
    fn budgets_end() {
        let epoch = SystemTime::UNIX_EPOCH;
        let bound = Bound::new(binding(Budget { uses: Some(2), ..Budget::default() })).unwrap();
        assert!(bound.spend(epoch).is_ok() && bound.spend(epoch).is_ok() && bound.spend(epoch).is_err());
        let bound = Bound::new(binding(Budget { expires: Some(epoch + Duration::from_secs(9)), ..Budget::default() })).unwrap();
        assert!(bound.spend(epoch + Duration::from_secs(8)).is_ok());
        assert!(bound.spend(epoch + Duration::from_secs(9)).is_err());
        let bound = Bound::new(binding(Budget { bytes: Some(10), ..Budget::default() })).unwrap();
        assert!(bound.count_bytes(10).is_ok());
        assert!(bound.spend(epoch).is_err());
        assert!(matches!(bound.count_bytes(1), Err(Refusal::SecretSpent { .. })));
    }

    #[test]
    fn placeholders_that_could_be_ordinary_text_are_refused() {
        for placeholder in ["short", "with a space inside it", "bücher bücher bücher"] {
            assert!(Bound::new(Binding { placeholder: placeholder.into(), ..binding(Budget::default()) }).is_err());
        }
    }
}
