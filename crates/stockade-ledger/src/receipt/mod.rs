//! What a receipt says, field by field. The ledger adds its number, the time, the link to the one before, and the signature.
//!
//! Records of one call share its `receipt_id`: the intent, the outcome, and what happened between. `seq` is a record's own number.

mod parts;
mod trace;

use serde::{Deserialize, Serialize};
use stockade_core::result::Reached;

pub use parts::{
    Approval, Bytes, ChangedFile, Credential, Cut, LedgerEvent, Outcome, Policy, Principal, Program, Redaction, SandboxFacts, Truncated,
};
pub use trace::{Trace, span_of, trace_of};

/// A call's id: a UUID of version 7, so that ids sort by time as a rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ReceiptId(uuid::Uuid);

/// Text that is no receipt's id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a receipt's id: a UUID such as 01900000-0000-7000-8000-000000000000 is")]
pub struct BadReceiptId(String);

impl ReceiptId {
    /// A fresh one.
    pub fn new() -> Self {
        Self(uuid::Uuid::now_v7())
    }
}

impl Default for ReceiptId {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Display for ReceiptId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0.hyphenated())
    }
}

impl std::str::FromStr for ReceiptId {
    type Err = BadReceiptId;
    fn from_str(text: &str) -> Result<Self, BadReceiptId> {
        let id = uuid::Uuid::parse_str(text).ok().map(Self);
        // One spelling: lower case, with hyphens.
        let shown: String = text.chars().take(64).collect();
        id.filter(|id| id.to_string() == text).ok_or_else(|| BadReceiptId(stockade_core::escape::escape(&shown)))
    }
}

impl TryFrom<String> for ReceiptId {
    type Error = BadReceiptId;
    fn try_from(text: String) -> Result<Self, BadReceiptId> {
        text.parse()
    }
}

impl From<ReceiptId> for String {
    fn from(id: ReceiptId) -> Self {
        id.to_string()
    }
}

/// What a record is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Something is about to run.
    Intent,
    /// It ended, or its owner died.
    Outcome,
    /// It was refused and nothing ran.
    Denied,
    /// A person, or somebody in their place, decided.
    Approval,
    /// A credential was handed out.
    Credential,
    /// Something was reached, or was not.
    Network,
    /// A sandbox, a pack, a setting or a secret was made, changed or removed.
    Lifecycle,
    /// The ledger itself changed: a new key.
    Checkpoint,
}

impl Kind {
    /// The word in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Intent => "intent",
            Self::Outcome => "outcome",
            Self::Denied => "denied",
            Self::Approval => "approval",
            Self::Credential => "credential",
            Self::Network => "network",
            Self::Lifecycle => "lifecycle",
            Self::Checkpoint => "checkpoint",
        }
    }
}

/// A receipt before it is in the ledger. What is empty is left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Draft {
    /// The call.
    pub receipt_id: ReceiptId,
    /// What this record says of it.
    pub kind: Kind,
    /// Whose gateway it was.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tenant: Option<String>,
    /// Who asked.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub principal: Option<Principal>,
    /// What the caller was doing.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub trace: Option<Trace>,
    /// What was asked for, where it was a capability.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub capability: Option<String>,
    /// What was asked for, where it was a program; each item is text, what is not UTF-8 is escaped.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub argv: Option<Vec<String>>,
    /// Says that there were more arguments than are listed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub argv_cut: Option<Cut>,
    /// What was really executed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub argv_executed: Option<Vec<String>>,
    /// The program that really ran.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub program: Option<Program>,
    /// Where it ran.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cwd: Option<String>,
    /// Names of the variables it had; never values.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub env_names: Option<Vec<String>>,
    /// Digest of its input, redacted.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub stdin_sha256: Option<String>,
    /// What policy said.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub policy: Option<Policy>,
    /// Who agreed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub approval: Option<Approval>,
    /// What it was given to act with.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub credentials: Vec<Credential>,
    /// Behind which wall.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sandbox: Option<SandboxFacts>,
    /// How it ended.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub result: Option<Outcome>,
    /// What it changed; absent where nobody looked.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub changes: Option<Vec<ChangedFile>>,
    /// What it tried to reach.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub network: Vec<Reached>,
    /// What it did against the rules.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub violations: Vec<String>,
    /// Which secrets were taken out of this very record, and how often.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub redactions: Vec<Redaction>,
    /// What happened to the ledger itself.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ledger: Option<LedgerEvent>,
}

impl Draft {
    /// A record that says nothing yet.
    pub fn new(receipt_id: ReceiptId, kind: Kind) -> Self {
        Self {
            receipt_id,
            kind,
            tenant: None,
            principal: None,
            trace: None,
            capability: None,
            argv: None,
            argv_cut: None,
            argv_executed: None,
            program: None,
            cwd: None,
            env_names: None,
            stdin_sha256: None,
            policy: None,
            approval: None,
            credentials: Vec::new(),
            sandbox: None,
            result: None,
            changes: None,
            network: Vec::new(),
            violations: Vec::new(),
            redactions: Vec::new(),
            ledger: None,
        }
    }
}

/// A receipt as it stands in the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// Its number, from 0, without gaps.
    pub seq: u64,
    /// When it was written, by the machine's clock, which may be wrong and may go backwards: UTC, microseconds.
    pub time: String,
    /// The digest of the receipt before.
    pub prev: String,
    /// The key that signed it.
    pub key_id: String,
    /// The signature.
    pub signature: String,
    /// What it says.
    #[serde(flatten)]
    pub content: Draft,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_one_spelling() {
        let id = ReceiptId::new();
        assert_eq!(id.to_string().parse(), Ok(id.clone()));
        for bad in ["", "x", &id.to_string().to_uppercase(), &id.to_string().replace('-', "")] {
            assert!(bad.parse::<ReceiptId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_empty_is_left_out_and_reads_back() {
        let draft = Draft::new(ReceiptId::new(), Kind::Denied);
        let value = serde_json::to_value(&draft).unwrap();
        assert_eq!(value.as_object().unwrap().len(), 2);
        assert_eq!(serde_json::from_value::<Draft>(value).unwrap(), draft);
    }
}
