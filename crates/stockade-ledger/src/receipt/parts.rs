//! The parts of a receipt.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use stockade_core::demand::{Demand, Level};
use stockade_core::result::Change;

/// Who asked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Principal {
    /// The agent, `client/name`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub agent: Option<String>,
    /// The program that speaks for it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub client: Option<String>,
    /// The conversation.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub session: Option<String>,
    /// The person.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub human: Option<String>,
    /// The call that led to this one, by its receipt's id.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub parent: Option<String>,
}

/// The program that ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Where it was found.
    pub path: String,
    /// The digest of the file that was executed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sha256: Option<String>,
}

/// What policy said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// The digest of everything that was evaluated; absent where there was no policy.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub digest: Option<String>,
    /// The rule that decided.
    pub rule: String,
    /// `allow`, `ask` or `deny`.
    pub verdict: String,
    /// Why, for people.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub reasons: Vec<String>,
}

/// Who agreed, and to what exactly.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approval {
    /// Who.
    pub by: String,
    /// How they showed who they are; `same-uid` where nothing told them from their agent.
    pub method: String,
    /// The digest of what they were shown.
    pub shown_sha256: String,
}

/// A credential that was handed out; never its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credential {
    /// What made or held it.
    pub adapter: String,
    /// What it is called.
    pub id: String,
    /// What it is good for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub scope: Option<String>,
    /// When it ends.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub expires: Option<String>,
    /// How it was delivered.
    pub delivery: String,
}

/// The wall, and what it held.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxFacts {
    /// The sandbox's id.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub id: Option<String>,
    /// The wall.
    pub backend: String,
    /// The digest of the sandbox's specification.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub spec_digest: Option<String>,
    /// What was enforced, as read back.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub enforcement: BTreeMap<Demand, Level>,
    /// The limits.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub limits: BTreeMap<String, Value>,
}

/// How a call ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// The program's own code; absent on a signal, a timeout, or an interruption.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub signal: Option<i32>,
    /// From start to end.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub duration_ms: Option<u64>,
    /// `none` where output went by unseen.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub capture: Option<String>,
    /// Digest of its output, redacted.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub stdout_sha256: Option<String>,
    /// Digest of its errors, redacted.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub stderr_sha256: Option<String>,
    /// How much it wrote.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bytes: Option<Bytes>,
    /// What was cut.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub truncated: Option<Truncated>,
    /// The limit that ended it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub limit: Option<String>,
    /// Why it never began, though it was to.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub failure: Option<String>,
    /// Its owner died: nobody knows how it ended.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub interrupted: bool,
}

/// Bytes of output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bytes {
    /// To stdout.
    pub stdout: u64,
    /// To stderr.
    pub stderr: u64,
}

/// Which output was cut.
pub use stockade_core::result::Truncated;

/// A changed file, with the digest of what is in it now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedFile {
    /// Which, and how.
    #[serde(flatten)]
    pub change: Change,
    /// The digest of its contents after the call.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sha256: Option<String>,
}

/// A secret that was taken out of a record or of a payload.
pub use stockade_core::redact::Redaction;

/// What was left out of a list of arguments that is too long for a receipt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cut {
    /// How many arguments there were in all.
    pub items: u64,
    /// How many bytes they had in all, redacted.
    pub bytes: u64,
    /// The digest of all of them, redacted, each followed by a NUL byte.
    pub sha256: String,
}

/// Something that happened to the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerEvent {
    /// What: `rotated`.
    pub event: String,
    /// The statement that both keys signed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rotation: Option<Value>,
}
