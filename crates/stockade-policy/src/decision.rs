//! A verdict, the rules behind it, and what would change it.

use serde::{Deserialize, Serialize};

use crate::source::Layer;

/// What policy says. Ordered by strictness, so that the strictest of several is the greatest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Verdict {
    /// It may happen.
    Allow,
    /// A person decides.
    Ask,
    /// It may not happen.
    Deny,
}

impl Verdict {
    /// The name in `run --json`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}

/// A rule that decided, by name and place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleReference {
    /// Its `@id`, or its place where it has none.
    pub id: String,
    /// Its file.
    pub file: String,
    /// Its line, from 1.
    pub line: usize,
    /// Its layer.
    pub layer: Layer,
    /// Its `@reason`.
    pub reason: Option<String>,
}

impl RuleReference {
    /// `file:line`.
    pub fn source(&self) -> String {
        format!("{}:{}", self.file, self.line)
    }
}

/// What policy says to one request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decision {
    /// The verdict.
    pub verdict: Verdict,
    /// A short name of what decided: a rule's id, or the check that refused before any rule was asked.
    pub rule: String,
    /// The rules behind it; empty where no rule permitted, or where a check refused.
    pub rules: Vec<RuleReference>,
    /// Why, in words.
    pub reason: Option<String>,
    /// The narrowest rule that would allow it, where one would.
    pub suggest: Option<String>,
}

impl Decision {
    /// Where the first deciding rule stands.
    pub fn source(&self) -> Option<String> {
        self.rules.first().map(RuleReference::source)
    }
}
