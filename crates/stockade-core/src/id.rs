//! Sandbox ids and names.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The longest name a person may give a sandbox.
pub const MAX_NAME: usize = 63;

/// A sandbox's id: 16 lowercase hexadecimal digits, sortable by creation time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SandboxId(String);

/// Text that is no sandbox id or name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a sandbox id or name: use letters, digits, `-`, `_` and `.`, at most 63, beginning with a letter or digit")]
pub struct BadName(String);

impl SandboxId {
    /// Makes an id from the current time and random bits (the caller supplies both, so this crate stays pure).
    pub fn from_parts(unix_millis: u64, random: u32) -> Self {
        Self(format!("{:08x}{random:08x}", (unix_millis / 1000) as u32))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SandboxId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for SandboxId {
    type Err = BadName;
    fn from_str(text: &str) -> Result<Self, BadName> {
        let good = text.len() == 16 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        if good { Ok(Self(text.to_owned())) } else { Err(BadName(crate::escape::escape(text))) }
    }
}

impl TryFrom<String> for SandboxId {
    type Error = BadName;
    fn try_from(text: String) -> Result<Self, BadName> {
        text.parse()
    }
}

impl From<SandboxId> for String {
    fn from(id: SandboxId) -> Self {
        id.0
    }
}

/// A name that a person gave a sandbox. It cannot look like an id, a path or an option.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SandboxName(String);

impl SandboxName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SandboxName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for SandboxName {
    type Err = BadName;
    fn from_str(text: &str) -> Result<Self, BadName> {
        let good = !text.is_empty()
            && text.len() <= MAX_NAME
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
            && text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric())
            && text.parse::<SandboxId>().is_err();
        if good { Ok(Self(text.to_owned())) } else { Err(BadName(crate::escape::escape(text))) }
    }
}

impl TryFrom<String> for SandboxName {
    type Error = BadName;
    fn try_from(text: String) -> Result<Self, BadName> {
        text.parse()
    }
}

impl From<SandboxName> for String {
    fn from(name: SandboxName) -> Self {
        name.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_names() {
        let id = SandboxId::from_parts(1_763_240_000_000, 0xdead_beef);
        assert_eq!(id.as_str().parse::<SandboxId>(), Ok(id.clone()));
        assert!(id.as_str().parse::<SandboxName>().is_err(), "a name must not look like an id");
        assert!("my-box.1".parse::<SandboxName>().is_ok());
        for bad in ["", "-x", "../x", "a b", "a/b", &"x".repeat(64), "\u{1b}"] {
            assert!(bad.parse::<SandboxName>().is_err(), "{bad:?}");
        }
    }
}
