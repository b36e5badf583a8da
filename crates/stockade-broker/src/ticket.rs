//! Tickets: what the gateway signs for one call, and the broker takes once.
//!
//! A ticket names a sandbox, what the call is, and exactly the secrets and hosts that were admitted. The broker knows one public key, given
//! over the connection it was started with; whoever else reaches its socket has no key, so no ticket of theirs is taken. A ticket is good for
//! a minute and for one use.
//!
//! ```text
//!  ticket   version (1) | ends, ms (8) | nonce (16) | digest of what it is for (32) | signature (64)
//! ```

use std::collections::HashMap;
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::digest;
use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};

use crate::broker::{SandboxLabel, Wish};

/// Bytes of a public key.
pub const KEY: usize = 32;
/// Bytes of a ticket.
pub const TICKET: usize = 1 + 8 + 16 + 32 + 64;
/// Bytes of what is signed.
const SIGNED: usize = TICKET - 64;
/// The longest word of what a call is.
pub const MAX_PURPOSE: usize = 256;

const VERSION: u8 = 1;
/// How long a ticket is good.
const LIFE: Duration = Duration::from_mins(1);
/// Tickets that are remembered as used; beyond that none is taken until some have ended.
const MAX_USED: usize = 65_536;

/// What the gateway signs with. Made anew by every process that starts a broker.
pub struct Signer(Ed25519KeyPair);

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Signer")
    }
}

/// A ticket as it travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket(pub [u8; TICKET]);

/// Why a ticket is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TicketError {
    /// Not signed by the gateway, or altered.
    #[error("the ticket was not signed by the gateway that started this broker, or not for this call")]
    Forged,
    /// Over.
    #[error("the ticket has expired")]
    Expired,
    /// Twice.
    #[error("the ticket was used already")]
    Used,
    /// Nobody may ask yet.
    #[error("nobody has said whose tickets are taken")]
    NoKey,
    /// Too much at once.
    #[error("too many tickets were used within a minute")]
    Busy,
    /// No random numbers.
    #[error("this machine gives no random numbers")]
    NoRandom,
}

impl Signer {
    /// A new key.
    pub fn new() -> Result<Self, TicketError> {
        Ed25519KeyPair::generate().map(Self).map_err(|_| TicketError::NoRandom)
    }

    /// The key that tickets are checked with.
    pub fn public(&self) -> [u8; KEY] {
        self.0.public_key().as_ref().try_into().unwrap_or([0; KEY])
    }

    /// A ticket for one call.
    pub fn ticket(&self, sandbox: &SandboxLabel, purpose: &str, wishes: &[Wish], now: SystemTime) -> Result<Ticket, TicketError> {
        let mut nonce = [0; 16];
        SystemRandom::new().fill(&mut nonce).map_err(|_| TicketError::NoRandom)?;
        let mut ticket = Vec::with_capacity(TICKET);
        ticket.push(VERSION);
        ticket.extend_from_slice(&millis(now + LIFE).to_be_bytes());
        ticket.extend_from_slice(&nonce);
        ticket.extend_from_slice(&digest_of(sandbox, purpose, wishes));
        let signature = self.0.sign(&ticket);
        ticket.extend_from_slice(signature.as_ref());
        ticket.try_into().map(Ticket).map_err(|_| TicketError::Forged)
    }
}

/// Which tickets the broker takes, and took.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    key: Option<[u8; KEY]>,
    used: HashMap<[u8; 16], u64>,
}

impl Gate {
    /// Says whose tickets are taken; the first word counts.
    pub(crate) fn trust(&mut self, key: [u8; KEY]) -> Result<(), TicketError> {
        match self.key {
            None => {
                self.key = Some(key);
                Ok(())
            }
            Some(known) if known == key => Ok(()),
            Some(_) => Err(TicketError::Forged),
        }
    }

    /// Takes a ticket, once.
    pub(crate) fn take(
        &mut self,
        ticket: &Ticket,
        sandbox: &SandboxLabel,
        purpose: &str,
        wishes: &[Wish],
        now: SystemTime,
    ) -> Result<(), TicketError> {
        let key = self.key.ok_or(TicketError::NoKey)?;
        let (signed, signature) = ticket.0.split_at_checked(SIGNED).ok_or(TicketError::Forged)?;
        UnparsedPublicKey::new(&ED25519, key).verify(signed, signature).map_err(|_| TicketError::Forged)?;
        let (version, rest) = signed.split_first().ok_or(TicketError::Forged)?;
        let (ends, rest) = rest.split_first_chunk::<8>().ok_or(TicketError::Forged)?;
        let (nonce, digest) = rest.split_first_chunk::<16>().ok_or(TicketError::Forged)?;
        if *version != VERSION || digest != digest_of(sandbox, purpose, wishes) {
            return Err(TicketError::Forged);
        }
        let (ends, now) = (u64::from_be_bytes(*ends), millis(now));
        // One that is good for longer than we make them is not of our making, whatever its signature.
        if ends <= now || ends > now + 2 * LIFE.as_millis() as u64 {
            return Err(TicketError::Expired);
        }
        self.used.retain(|_, ends| *ends > now);
        if self.used.contains_key(nonce) {
            return Err(TicketError::Used);
        }
        if self.used.len() >= MAX_USED {
            return Err(TicketError::Busy);
        }
        self.used.insert(*nonce, ends);
        Ok(())
    }
}

fn millis(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

/// What a ticket is for: every part with its length, so that no two calls look alike.
fn digest_of(sandbox: &SandboxLabel, purpose: &str, wishes: &[Wish]) -> [u8; 32] {
    let mut hash = digest::Context::new(&digest::SHA256);
    let mut part = |bytes: &[u8]| {
        hash.update(&(bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    };
    part(sandbox.as_str().as_bytes());
    part(purpose.as_bytes());
    for wish in wishes {
        part(wish.binding.to_string().as_bytes());
        part(wish.class.word().as_bytes());
        part(&[u8::from(wish.caller.is_some())]);
        part(&(wish.behind.len() as u64).to_be_bytes());
        wish.behind.iter().for_each(|(name, _)| part(name.as_str().as_bytes()));
    }
    hash.finish().as_ref().try_into().unwrap_or([0; 32])
}

#[cfg(test)]
mod tests {
    use super::*;
    use stockade_core::credential::Class;

    fn label(text: &str) -> SandboxLabel {
        text.parse().unwrap()
    }

    fn wishes(text: &str) -> Vec<Wish> {
        vec![Wish { binding: text.parse().unwrap(), caller: None, class: Class::ProxyOnly, behind: Vec::new() }]
    }

    #[test]
    fn a_ticket_is_good_once_for_what_it_names_and_for_a_minute() {
        let now = UNIX_EPOCH + Duration::from_secs(1_000_000);
        let signer = Signer::new().unwrap();
        let mut gate = Gate::default();
        let ticket = signer.ticket(&label("one"), "git.log", &wishes("T@a.com"), now).unwrap();
        let take = |gate: &mut Gate, ticket: &Ticket, sandbox: &str, purpose: &str, wanted: &str, now| {
            gate.take(ticket, &label(sandbox), purpose, &wishes(wanted), now)
        };
        assert_eq!(take(&mut gate, &ticket, "one", "git.log", "T@a.com", now), Err(TicketError::NoKey));
        gate.trust(signer.public()).unwrap();
        gate.trust(signer.public()).unwrap();
        assert_eq!(gate.trust(Signer::new().unwrap().public()), Err(TicketError::Forged));
        for (sandbox, purpose, wanted) in
            [("two", "git.log", "T@a.com"), ("one", "git.push", "T@a.com"), ("one", "git.log", "T@b.com"), ("one", "git.log", "U@a.com")]
        {
            assert_eq!(take(&mut gate, &ticket, sandbox, purpose, wanted, now), Err(TicketError::Forged), "{sandbox} {purpose} {wanted}");
        }
        assert_eq!(take(&mut gate, &ticket, "one", "git.log", "T@a.com", now + LIFE), Err(TicketError::Expired));
        assert_eq!(take(&mut gate, &ticket, "one", "git.log", "T@a.com", now - 2 * LIFE), Err(TicketError::Expired));
        assert_eq!(take(&mut gate, &ticket, "one", "git.log", "T@a.com", now), Ok(()));
        assert_eq!(take(&mut gate, &ticket, "one", "git.log", "T@a.com", now), Err(TicketError::Used));
        let fresh = signer.ticket(&label("one"), "git.log", &wishes("T@a.com"), now).unwrap();
        for at in 0..TICKET {
            let mut altered = fresh;
            altered.0[at] ^= 1;
            assert_eq!(take(&mut gate, &altered, "one", "git.log", "T@a.com", now), Err(TicketError::Forged), "{at}");
        }
        let other = Signer::new().unwrap().ticket(&label("one"), "git.log", &wishes("T@a.com"), now).unwrap();
        assert_eq!(take(&mut gate, &other, "one", "git.log", "T@a.com", now), Err(TicketError::Forged));
    }
}
