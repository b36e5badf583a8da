//! What a run came to, in the shape that `run --json` prints.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::demand::{Demand, Level};

/// How a path of the workspace changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeKind {
    /// New.
    Added,
    /// Other contents.
    Modified,
    /// Gone.
    Deleted,
    /// Other permissions only.
    Mode,
    /// Same contents under another name.
    Renamed,
}

/// One changed path, relative to the workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The path, relative to the workspace; where it is not UTF-8 it is escaped, and `path_base64` has the bytes.
    pub path: String,
    /// The path's bytes, where they are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub path_base64: Option<String>,
    /// What happened.
    pub kind: ChangeKind,
    /// Where it was before, for a rename.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub from: Option<String>,
    /// It could run code outside later; `apply` skips it unless it is named.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub protected: bool,
}

/// Which output was cut at the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Truncated {
    /// stdout was cut.
    pub stdout: bool,
    /// stderr was cut.
    pub stderr: bool,
}

/// Something that the sandbox tried to reach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reached {
    /// The host as it was named.
    pub host: String,
    /// The port; 0 where only a name was asked for.
    pub port: u16,
    /// The method of a request.
    pub method: Option<String>,
    /// Its path, without the query.
    pub path: Option<String>,
    /// `allow`, `deny` or `learn`.
    pub verdict: String,
    /// The pattern that allowed it, or the check that refused it.
    pub rule: String,
    /// The secret that was put in or stopped, by name.
    pub secret: Option<String>,
}

/// What policy said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// `allow`, `ask` or `deny`.
    pub verdict: String,
    /// The rule's id.
    pub rule: String,
    /// Why.
    pub reason: Option<String>,
    /// File and line of the rule.
    pub source: Option<String>,
    /// The narrowest change that would allow it.
    pub suggest: Option<String>,
    /// The request that waits for a person, or that one said no to.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub approval_id: Option<String>,
}

impl Decision {
    /// No policy exists: a person at the command line may run what they like, behind the wall.
    pub fn no_policy() -> Self {
        Self { verdict: "allow".into(), rule: "no-policy".into(), reason: None, source: None, suggest: None, approval_id: None }
    }
}

/// The object that `run --json` prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunResult {
    /// The receipt of this run; null where no ledger is kept.
    pub receipt_id: Option<String>,
    /// The sandbox.
    pub sandbox_id: String,
    /// The wall.
    pub backend: String,
    /// The program's own code; null on timeout, denial or signal.
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// The wall-time limit was reached.
    pub timed_out: bool,
    /// The resource limit that ended it.
    pub limit: Option<String>,
    /// Captured output, when it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub stdout: Option<String>,
    /// Captured output, when it is not.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub stdout_base64: Option<String>,
    /// Captured errors, when they are UTF-8.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub stderr: Option<String>,
    /// Captured errors, when they are not.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub stderr_base64: Option<String>,
    /// What was cut.
    pub truncated: Truncated,
    /// From the start of the program to its end.
    pub duration_ms: u64,
    /// What changed in the workspace.
    pub changes: Vec<Change>,
    /// What the sandbox tried to reach.
    pub network: Vec<Reached>,
    /// What was enforced.
    pub enforcement: BTreeMap<Demand, Level>,
    /// What policy said.
    pub decision: Decision,
    /// Protected paths that appeared and were taken away, and the like.
    pub violations: Vec<String>,
}
