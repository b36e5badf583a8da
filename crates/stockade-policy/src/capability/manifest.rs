//! What a capability is once its manifest was read and checked.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::example::Example;
use super::facts::CapabilityFacts;
use super::input::Input;
use super::sandbox::{CapabilitySandbox, Credential};
use super::template::Argument;
use crate::fault::Faults;
use crate::pack::{CapabilityName, PackName};

/// What a call does to the world. There is no default: whoever writes a capability says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    /// It looks. The wall holds it to that: nothing of the workspace can be written, and only GET and HEAD leave.
    Read,
    /// It changes something that can be changed back.
    Write,
    /// It removes, publishes or overwrites.
    Destructive,
}

impl Effect {
    /// The word in manifests and rules.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Destructive => "destructive",
        }
    }

    /// The risk of a manifest that names none.
    pub(super) fn usual_risk(self) -> Risk {
        match self {
            Self::Read => Risk::Low,
            Self::Write => Risk::Medium,
            Self::Destructive => Risk::High,
        }
    }
}

/// How bad a wrong call would be, in the author's eyes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Risk {
    /// A nuisance.
    Low,
    /// Work to undo.
    Medium,
    /// Loss.
    High,
    /// Loss for others.
    Critical,
}

impl Risk {
    /// The word in manifests and rules.
    pub fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Critical => "critical",
        }
    }
}

/// What comes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Output {
    /// Words for people.
    #[default]
    Text,
    /// One JSON value.
    Json,
    /// One item a line.
    Lines,
}

impl Output {
    /// The word in manifests.
    pub fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
            Self::Lines => "lines",
        }
    }
}

/// One capability.
#[derive(Debug, Clone, PartialEq)]
pub struct Capability {
    /// Its name, dotted.
    pub name: CapabilityName,
    /// What it does, for people and agents.
    pub description: String,
    /// What it does to the world.
    pub effect: Effect,
    /// How bad a wrong call would be.
    pub risk: Risk,
    /// The program, by name.
    pub program: String,
    /// Its arguments.
    pub args: Vec<Argument>,
    /// Its inputs.
    pub input: Input,
    /// What comes out.
    pub output: Output,
    /// What it needs of its sandbox, and no more.
    pub sandbox: CapabilitySandbox,
    /// Secrets that are put in on the way to some hosts.
    pub credentials: Vec<Credential>,
    /// After this time everything is killed.
    pub timeout: Option<Duration>,
    /// What it accepts and refuses.
    pub examples: Vec<Example>,
}

impl Capability {
    /// Reads a manifest. `file` is the name that faults carry. Every fault is told at once.
    pub fn parse(file: &str, text: &str) -> Result<Self, Faults> {
        super::parse::capability(file, text)
    }

    /// What rules may say about it.
    pub fn facts(&self, pack: &PackName) -> CapabilityFacts {
        CapabilityFacts { name: self.name.clone(), pack: pack.clone(), effect: self.effect, risk: self.risk, inputs: self.input.facts() }
    }
}
