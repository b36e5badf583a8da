//! How the keys of a ledger followed each other, and which of them signed which receipt.
//!
//! A change of keys is stated once and signed by both keys, so trust in either leads to the other. Each key counts only for its own stretch of
//! the ledger: a retired key that leaks later cannot sign anything new.

use serde_json::{Value, json};

use crate::flaw::Flaw;
use crate::key::PublicKey;
use crate::text::{from_base64, from_hex, to_base64, to_hex};

/// The most changes of keys in one ledger.
pub const MAX_ROTATIONS: usize = 1024;

/// One change of keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rotation {
    /// The receipt that records it, the last one signed with the old key.
    pub seq: u64,
    /// The key before.
    pub old: PublicKey,
    /// The key after.
    pub new: PublicKey,
    /// The old key's signature.
    pub old_signature: [u8; 64],
    /// The new key's signature.
    pub new_signature: [u8; 64],
}

impl Rotation {
    /// What both keys sign.
    pub fn message(origin: &str, seq: u64, old: &PublicKey, new: &PublicKey) -> Vec<u8> {
        format!("stockade-rotation-v1\n{origin}\n{seq}\n{}\n{}\n", to_hex(old.as_bytes()), to_hex(new.as_bytes())).into_bytes()
    }

    /// Whether both signatures hold.
    pub fn holds(&self, origin: &str) -> bool {
        let message = Self::message(origin, self.seq, &self.old, &self.new);
        self.old.verifies(&message, &self.old_signature) && self.new.verifies(&message, &self.new_signature)
    }

    /// As it stands in receipts and exports.
    pub fn to_value(&self) -> Value {
        json!({
            "new": to_hex(self.new.as_bytes()),
            "new_signature": to_base64(&self.new_signature),
            "old": to_hex(self.old.as_bytes()),
            "old_signature": to_base64(&self.old_signature),
            "seq": self.seq,
        })
    }

    /// Reads what [`Self::to_value`] gave.
    pub fn from_value(value: &Value) -> Option<Self> {
        let text = |name| value.get(name).and_then(Value::as_str);
        let key = |name| PublicKey::from_bytes(from_hex(text(name)?)?).ok();
        let signature = |name| from_base64(text(name)?)?.try_into().ok();
        let rotation = Self {
            seq: value.get("seq")?.as_u64()?,
            old: key("old")?,
            new: key("new")?,
            old_signature: signature("old_signature")?,
            new_signature: signature("new_signature")?,
        };
        (rotation.to_value() == *value).then_some(rotation)
    }
}

/// The keys of one ledger, each with its stretch.
#[derive(Debug, Clone)]
pub struct Keys {
    first: PublicKey,
    rotations: Vec<Rotation>,
}

impl Keys {
    /// A ledger whose key never changed.
    pub fn single(key: PublicKey) -> Self {
        Self { first: key, rotations: Vec::new() }
    }

    /// The keys of a ledger, as far as one of the trusted keys vouches for them. `is_newest` tells the newest key.
    pub fn trusted(
        trusted: &[PublicKey],
        rotations: Vec<Rotation>,
        origin: &str,
        is_newest: impl Fn(&PublicKey) -> bool,
    ) -> Result<Self, Flaw> {
        if rotations.is_empty() {
            return trusted.iter().find(|key| is_newest(key)).cloned().map(Self::single).ok_or(Flaw::UnknownKey);
        }
        let follows = |pair: &[Rotation]| matches!(pair, [one, next] if one.new == next.old && one.seq < next.seq);
        let is_sound =
            rotations.len() <= MAX_ROTATIONS && rotations.windows(2).all(follows) && rotations.iter().all(|one| one.holds(origin));
        let first = rotations.first().filter(|_| is_sound).map(|one| one.old.clone()).ok_or(Flaw::Rotation)?;
        let keys = Self { first, rotations };
        if keys.all().any(|key| trusted.contains(key)) { Ok(keys) } else { Err(Flaw::UnknownKey) }
    }

    /// Every key, oldest first.
    pub fn all(&self) -> impl Iterator<Item = &PublicKey> {
        std::iter::once(&self.first).chain(self.rotations.iter().map(|rotation| &rotation.new))
    }

    /// The key that signs the receipt with this number.
    pub fn at(&self, seq: u64) -> &PublicKey {
        self.rotations.iter().rev().find(|rotation| rotation.seq < seq).map_or(&self.first, |rotation| &rotation.new)
    }

    /// The key in use now.
    pub fn newest(&self) -> &PublicKey {
        self.at(u64::MAX)
    }

    /// The changes of keys.
    pub fn rotations(&self) -> &[Rotation] {
        &self.rotations
    }

    /// The change that the receipt with this number records.
    pub fn rotation_at(&self, seq: u64) -> Option<&Rotation> {
        self.rotations.iter().find(|rotation| rotation.seq == seq)
    }
}
