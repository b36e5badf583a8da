//! Tools of other MCP servers: which of them a person accepted, and what their servers last said of them.
//!
//! A tool is what it says of itself, and whom it comes from: [`Definition`]. A person accepts that by its digest. Whatever changes in it makes it
//! a stranger again, so a server cannot put other words under a name that somebody trusts. Each server has two files beneath the state directory:
//! what was accepted, written only for a person, and what was seen last, written by whoever spoke to the server. Both are bounded; one that
//! cannot be understood is an error, never an empty one.

mod definition;
mod file;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use stockade_core::escape::escape_bytes;
use stockade_policy::capability::{CapabilityFacts, Effect};
use stockade_policy::pack::{ServerName, ToolName};

use crate::packs::file::hex;
use crate::places::Places;
use crate::policy::known;

pub use definition::{Definition, MOST_BYTES, Unfit};

/// Tools of one server at most.
pub const MOST_TOOLS: usize = 256;

/// Why tools of servers cannot be looked up or kept.
#[derive(Debug, thiserror::Error)]
pub enum McpError {
    /// A file or directory cannot be read.
    #[error("cannot read `{}`", shown(.0))]
    Read(PathBuf, #[source] io::Error),
    /// A record of ours that cannot be understood.
    #[error("`{}` is damaged: {}", shown(.0), .1)]
    Damaged(PathBuf, String),
    /// A file cannot be written.
    #[error("cannot write `{}`", shown(.0))]
    Write(PathBuf, #[source] io::Error),
}

/// A tool that a person accepted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Accepted {
    /// What it was then.
    pub definition: Definition,
    /// What it does, as the person said.
    pub effect: Effect,
    /// Who it was.
    pub by: String,
}

/// What is known of one server's tools.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tools {
    /// Those that somebody accepted.
    pub accepted: BTreeMap<ToolName, Accepted>,
    /// Those that the server last had.
    pub seen: BTreeMap<ToolName, Definition>,
}

/// How a tool stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Nobody accepted it.
    New,
    /// Somebody accepted another one under this name.
    Changed,
    /// Somebody accepted this very one.
    Accepted(Effect),
}

impl Tools {
    /// What is known of a server; nothing where it was never spoken to.
    pub fn load(places: &Places, server: &ServerName) -> Result<Self, McpError> {
        Ok(Self { accepted: file::read(places, server, file::ACCEPTED)?, seen: file::read(places, server, file::SEEN)? })
    }

    /// How a tool stands that a server says it has.
    pub fn standing(&self, tool: &ToolName, definition: &Definition) -> Standing {
        match self.accepted.get(tool) {
            None => Standing::New,
            Some(accepted) if accepted.definition.sha256() == definition.sha256() => Standing::Accepted(accepted.effect),
            Some(_) => Standing::Changed,
        }
    }

    /// Tools that wait for a person, in the order of their names.
    pub fn waiting(&self) -> Vec<(&ToolName, &Definition)> {
        self.seen.iter().filter(|(tool, seen)| !matches!(self.standing(tool, seen), Standing::Accepted(_))).collect()
    }

    /// Keeps what was accepted. For a person only.
    pub fn store_accepted(&self, places: &Places, server: &ServerName) -> Result<(), McpError> {
        file::write(places, server, file::ACCEPTED, &self.accepted)?;
        // Rules that named what is gone were right before, and are not now.
        known::forget(places).map_err(|error| McpError::Write(places.state.clone(), error))
    }
}

/// The digest of several definitions: what a person agrees to at once.
pub fn digest_of(tools: &[(&ToolName, &Definition)]) -> String {
    let mut hash = Sha256::new();
    for (tool, definition) in tools {
        hash.update(format!("{tool} {}\n", definition.sha256()));
    }
    hex(&hash.finalize())
}

/// Keeps what a server last had.
pub fn remember_seen(places: &Places, server: &ServerName, seen: &BTreeMap<ToolName, Definition>) -> Result<(), McpError> {
    file::write(places, server, file::SEEN, seen)
}

/// The servers that were spoken to.
pub fn servers(places: &Places) -> Result<Vec<ServerName>, McpError> {
    file::servers(places)
}

/// What rules may name: every tool that somebody accepted.
pub fn vocabulary(places: &Places) -> Result<Vec<CapabilityFacts>, McpError> {
    let mut all = Vec::new();
    for server in servers(places)? {
        let accepted: BTreeMap<ToolName, Accepted> = file::read(places, &server, file::ACCEPTED)?;
        all.extend(accepted.iter().map(|(tool, one)| one.definition.facts(&server, tool, one.effect)));
    }
    Ok(all)
}

fn shown(path: &Path) -> String {
    escape_bytes(path.as_os_str().as_encoded_bytes())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn definition(description: &str) -> Definition {
        Definition::new(&["srv".to_owned()], json!({ "name": "t", "description": description, "inputSchema": {} })).unwrap()
    }

    #[test]
    fn what_changed_is_a_stranger_again() {
        let (tool, other) = ("t".parse::<ToolName>().unwrap(), "u".parse::<ToolName>().unwrap());
        let accepted = Accepted { definition: definition("good"), effect: Effect::Read, by: "me".to_owned() };
        let seen = BTreeMap::from([(tool.clone(), definition("bad")), (other.clone(), definition("new"))]);
        let tools = Tools { accepted: BTreeMap::from([(tool.clone(), accepted)]), seen };
        assert_eq!(tools.standing(&tool, &definition("good")), Standing::Accepted(Effect::Read));
        assert_eq!(tools.standing(&tool, &definition("bad")), Standing::Changed);
        assert_eq!(tools.standing(&other, &definition("new")), Standing::New);
        assert_eq!(tools.waiting().iter().map(|(tool, _)| tool.as_str()).collect::<Vec<_>>(), ["t", "u"]);
        assert_ne!(digest_of(&tools.waiting()), digest_of(&tools.waiting()[..1]));
    }

    #[test]
    fn what_is_kept_is_found_again_and_can_be_named_by_rules() {
        let directory = tempfile::tempdir().unwrap();
        let places = Places::from_lookup(|name| (name == "HOME").then(|| directory.path().into())).unwrap();
        let (server, tool) = ("srv".parse::<ServerName>().unwrap(), "t".parse::<ToolName>().unwrap());
        assert_eq!((servers(&places).unwrap(), Tools::load(&places, &server).unwrap()), (vec![], Tools::default()));
        let accepted = Accepted { definition: definition("good"), effect: Effect::Write, by: "me".to_owned() };
        let tools = Tools { accepted: BTreeMap::from([(tool.clone(), accepted)]), seen: BTreeMap::new() };
        tools.store_accepted(&places, &server).unwrap();
        remember_seen(&places, &server, &BTreeMap::from([(tool, definition("good"))])).unwrap();
        assert_eq!(servers(&places).unwrap(), std::slice::from_ref(&server));
        assert_eq!(Tools::load(&places, &server).unwrap().accepted, tools.accepted);
        assert_eq!(vocabulary(&places).unwrap()[0].name.as_str(), "mcp.srv.t");
        let path = places.state.join("mcp/srv.accepted.json");
        std::fs::write(&path, "{\"version\": 2, \"tools\": {}}").unwrap();
        assert!(matches!(vocabulary(&places), Err(McpError::Damaged(..))));
    }
}
