//! Policy files of all layers, and which project a person trusts.
//!
//! The machine's and the person's files are trusted and may be links. A project's come with the repository: read without following links,
//! bounded, and only their forbids count until a person said `trust project`; that is bound to a digest of the files, so a changed file
//! is a stranger again. What the rules say is decided in `stockade-policy`; nothing here evaluates anything.

mod compiled;
pub(crate) mod known;
mod programs;
mod proposals;
mod read;
mod trust;
mod write;

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use known::Subject;
use stockade_core::escape::escape_bytes;
use stockade_policy::capability::Vocabulary;
use stockade_policy::shell::{Refusal, Script};
use stockade_policy::{Checks, Faults, Floor, Judgement, Layer, Policies, PolicyFile, Principal, Trust};

use crate::mcp::{self, McpError};
use crate::packs::{PackError, Packs};
use crate::places::Places;

pub use compiled::Compiled;
pub use programs::OnPath;
pub use proposals::{Draft as ProposalDraft, MAX_PROPOSAL, MAX_PROPOSALS, Proposal, proposal, proposals, propose, withdraw};
pub use trust::{ProjectDigest, ProjectTrust, trust_project, trusted_projects, untrust_project};
pub use write::{Written, add_rules, preset_at, write_imported, write_preset};

/// The directory of policy files in every layer.
const DIRECTORY: &str = "policy";

/// Why policy files cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// A file or directory cannot be read.
    #[error("cannot read `{}`", shown(.0))]
    Read(PathBuf, #[source] io::Error),
    /// A link, or no plain file, where a project's file should be.
    #[error("`{}` is a symbolic link or not a plain file", shown(.0))]
    NotAFile(PathBuf),
    /// Everybody could write rules.
    #[error("`{}` can be written by everybody on this machine", shown(.0))]
    OpenToAll(PathBuf),
    /// Larger than any policy.
    #[error("`{}` has more than {} bytes", shown(.0), read::MAX_BYTES)]
    TooLarge(PathBuf),
    /// More files than any policy.
    #[error("`{}` holds more than {} policy files", shown(.0), read::MAX_FILES)]
    TooMany(PathBuf),
    /// Not text.
    #[error("`{}` is not UTF-8", shown(.0))]
    NotText(PathBuf),
    /// Packs cannot be read, so nobody knows what rules may name.
    #[error("packs cannot be read")]
    Packs(#[source] Box<PackError>),
    /// Accepted tools of MCP servers cannot be read, so nobody knows what rules may name.
    #[error("accepted tools cannot be read")]
    Tools(#[source] Box<McpError>),
    /// The rules do not stand.
    #[error("{0}")]
    Faults(#[source] Faults),
    /// A record of ours that cannot be understood.
    #[error("`{}` is damaged: {}", shown(.0), .1)]
    TrustFile(PathBuf, String),
    /// A file cannot be written.
    #[error("cannot write `{}`", shown(.0))]
    Write(PathBuf, #[source] io::Error),
    /// It is there already.
    #[error("`{}` is there already", shown(.0))]
    Exists(PathBuf),
    /// Nobody proposed that.
    #[error("there is no proposal `{0}`")]
    NoProposal(String),
    /// More than a person would read.
    #[error("{MAX_PROPOSALS} proposals wait for a person already")]
    TooManyProposals,
    /// Longer than a person would read.
    #[error("the proposal has more than {MAX_PROPOSAL} bytes")]
    LongProposal,
}

/// Policy files as they lie on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyLayers {
    /// The files of all layers, in no particular order.
    pub files: Vec<PolicyFile>,
    /// What holds where no rule permits.
    pub floor: Floor,
    /// Whether the project's permits count.
    pub project: ProjectTrust,
}

impl PolicyLayers {
    /// Reads the files that concern a workspace.
    pub fn load(places: &Places, workspace: Option<&Path>) -> Result<Self, PolicyError> {
        let mut files = Vec::new();
        let above = [(Layer::Machine, places.machine.join(DIRECTORY)), (Layer::User, places.config.join(DIRECTORY))];
        for (layer, directory) in above {
            for found in read::trusted(&directory)? {
                files.push(PolicyFile { layer, trust: Trust::Trusted, name: found.name, text: found.text });
            }
        }
        let floor = if files.is_empty() { Floor::NoPolicy } else { Floor::Deny };
        let found = workspace.map(read::project).transpose()?.unwrap_or_default();
        let project = match workspace {
            Some(workspace) if !found.is_empty() => trust::of(places, workspace, &found)?,
            _ => ProjectTrust::Nothing,
        };
        let trust = if project == ProjectTrust::Trusted { Trust::Trusted } else { Trust::Untrusted };
        for found in found {
            files.push(PolicyFile { layer: Layer::Project, trust, name: found.name, text: found.text });
        }
        Ok(Self { files, floor, project })
    }

    /// Whether there is no rule at all.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// The rules, fully checked, unless these very files passed before.
    pub fn compile(&self, places: &Places) -> Result<Policies, PolicyError> {
        let subject = Subject::rules(&self.files);
        if subject.as_ref().is_some_and(|rules| known::has_passed(places, rules)) {
            return Policies::compile(&self.files, Checks::Known).map_err(PolicyError::Faults);
        }
        // Only here, because packs take longer to load than rules that passed before take to compile.
        let packs = Packs::load(places).map_err(|error| PolicyError::Packs(Box::new(error)))?;
        let policies = Policies::compile_with(&self.files, Checks::All, &vocabulary(places, &packs)?).map_err(PolicyError::Faults)?;
        if let Some(rules) = subject {
            known::remember_passed(places, &rules);
        }
        Ok(policies)
    }

    /// The same with the rules of packs, for calls of capabilities. Rules that passed before passed with the capabilities of then; what
    /// has other inputs now cannot be evaluated, which denies.
    pub fn compile_with_packs(&self, places: &Places, packs: &Packs) -> Result<Policies, PolicyError> {
        let rules = packs.policy_files().map_err(|error| PolicyError::Packs(Box::new(error)))?;
        // Rules of packs were checked when the packs were verified.
        let is_known = self.files.is_empty() || self.has_passed(places);
        let checks = if is_known { Checks::Known } else { Checks::All };
        let files: Vec<PolicyFile> = self.files.iter().cloned().chain(rules).collect();
        // Known ones are not checked against any.
        let vocabulary = if is_known { Vocabulary::default() } else { vocabulary(places, packs)? };
        Policies::compile_with(&files, checks, &vocabulary).map_err(PolicyError::Faults)
    }

    /// Whether these very rules passed every check before, so that compiling them can wait until they are asked.
    pub fn has_passed(&self, places: &Places) -> bool {
        Subject::rules(&self.files).is_some_and(|rules| known::has_passed(places, &rules))
    }

    /// What the rules say to a call; `policies` compiles them, and is not asked where they permitted the very same before.
    pub fn judge<'a, E>(
        &self,
        places: &Places,
        principal: &Principal,
        script: &Result<Script, Refusal>,
        policies: impl FnOnce() -> Result<&'a Policies, E>,
    ) -> Result<Judgement, E> {
        let question = Subject::question(&self.files, &(principal, script, self.floor));
        if let Some(permission) = question.as_ref().and_then(|question| known::permission(places, question)) {
            return Ok(permission);
        }
        let judgement = policies()?.judge(principal, script, self.floor);
        if let Some(question) = question {
            known::remember_permission(places, &question, &judgement);
        }
        Ok(judgement)
    }
}

/// What rules may name: capabilities of packs, and tools of MCP servers that somebody accepted.
pub fn vocabulary(places: &Places, packs: &Packs) -> Result<Vocabulary, PolicyError> {
    let mut all = packs.vocabulary();
    all.capabilities.extend(mcp::vocabulary(places).map_err(|error| PolicyError::Tools(Box::new(error)))?);
    Ok(all)
}

/// A digest as people write it.
fn digits(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut digits, byte| {
        // Writing to a string does not fail.
        let _ = write!(digits, "{byte:02x}");
        digits
    })
}

fn shown(path: &Path) -> String {
    escape_bytes(path.as_os_str().as_encoded_bytes())
}

#[cfg(test)]
mod tests;
