//! Which capabilities an agent is offered: those that the rules let it call with some inputs.
//!
//! What inputs a rule wants is not known before a call. A capability's own examples are asked about, and one that is not denied is enough; each
//! call is judged again by what it really says.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use rmcp::model::{Tool, ToolAnnotations};
use serde_json::{Map, Value};
use stockade_policy::capability::{Capability, CapabilityFacts, Effect, Hosts, Invocation};
use stockade_policy::{Floor, Policies, Principal, Request, Verdict};
use stockade_store::inputs::Beneath;
use stockade_store::policy::PolicyLayers;

use super::{Session, schema};
use crate::admission;
use crate::engine::asker::Asker;
use crate::failure::Failure;

/// More than these are found by search.
pub(crate) const MOST_TOOLS: usize = 40;
/// What was offered to so many agents is remembered.
const MOST_AGENTS: usize = 16;

/// The capabilities an agent is offered, by the names of their tools.
pub(crate) struct Granted {
    /// In the order of the tools' names.
    pub(crate) capabilities: BTreeMap<String, Arc<Capability>>,
}

impl Granted {
    /// Asks the rules about every capability of every pack that verified.
    pub(crate) fn to(asker: &Asker, session: &Session) -> Result<Self, Failure> {
        let places = session.context.places()?;
        let layers = PolicyLayers::load(places, Some(&session.workspace)).map_err(|error| admission::failure(&error))?;
        let mut capabilities = BTreeMap::new();
        if layers.floor == Floor::NoPolicy {
            return Ok(Self { capabilities });
        }
        let packs = session.context.packs()?;
        let policies = session.context.compiled(&layers, &packs)?;
        let principal = asker.principal();
        for loaded in &packs.packs {
            for summary in &loaded.capabilities {
                // One that cannot be read any more cannot be called either.
                let Ok((_, capability)) = packs.capability(summary.facts.name.as_str()) else { continue };
                if is_granted(&capability, &summary.facts, &policies, &principal, session) {
                    let name = capability.name.as_str();
                    let plain = name.replace('.', "_");
                    let free = !capabilities.contains_key(&plain);
                    capabilities.insert(if free { plain } else { name.to_owned() }, capability);
                }
            }
        }
        Ok(Self { capabilities })
    }

    /// Whether they are found by search rather than listed.
    pub(crate) fn are_many(&self) -> bool {
        self.capabilities.len() > MOST_TOOLS
    }

    /// One tool each.
    pub(crate) fn tools(&self) -> Vec<Tool> {
        let tool = |(name, capability): (&String, &Arc<Capability>)| {
            let reads = capability.effect == Effect::Read;
            let reaches = !matches!(&capability.sandbox.hosts, Hosts::Only(hosts) if hosts.is_empty());
            let hints = ToolAnnotations::with_title(capability.name.as_str()).read_only(reads).open_world(reaches);
            let hints = if reads { hints } else { hints.destructive(capability.effect == Effect::Destructive) };
            let input = capability.input.schema().as_object().cloned().unwrap_or_default();
            let tool = Tool::new(name.clone(), capability.description.clone(), Arc::new(input));
            tool.with_raw_output_schema(Arc::new(schema::run_result())).with_annotations(hints)
        };
        self.capabilities.iter().map(tool).collect()
    }

    /// Those whose name or description has every word.
    pub(crate) fn search(&self, query: &str) -> Vec<Value> {
        let words: Vec<String> = query.split_whitespace().map(str::to_lowercase).collect();
        let fits = |capability: &&Arc<Capability>| {
            let text = format!("{} {}", capability.name, capability.description).to_lowercase();
            words.iter().all(|word| text.contains(word.as_str()))
        };
        let described = |capability: &Arc<Capability>| {
            serde_json::json!({
                "name": capability.name.as_str(), "description": capability.description, "effect": capability.effect.name(),
                "risk": capability.risk.name(), "input": capability.input.schema(),
            })
        };
        self.capabilities.values().filter(fits).take(MOST_TOOLS).map(described).collect()
    }
}

/// Which capability a tool's name stood for when an agent was told of it, so that a call need not ask about every other. What it may do is asked
/// at each call anyway; what was granted since is found by asking.
#[derive(Debug, Default)]
pub(super) struct Offered {
    agents: Mutex<Vec<(Asker, BTreeMap<String, String>)>>,
}

impl Offered {
    /// The capability that a tool is, as far as this agent was told.
    pub(super) fn capability(&self, asker: &Asker, tool: &str) -> Option<String> {
        let agents = self.agents.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, names) = agents.iter().find(|(known, _)| known == asker)?;
        names.get(tool).cloned()
    }

    /// What this agent is told now.
    pub(super) fn remember(&self, asker: &Asker, granted: &Granted) {
        let names = granted.capabilities.iter().map(|(tool, capability)| (tool.clone(), capability.name.as_str().to_owned())).collect();
        let mut agents = self.agents.lock().unwrap_or_else(PoisonError::into_inner);
        agents.retain(|(known, _)| known != asker);
        agents.truncate(MOST_AGENTS - 1);
        agents.insert(0, (asker.clone(), names));
    }
}

fn is_granted(capability: &Capability, facts: &CapabilityFacts, policies: &Policies, principal: &Principal, session: &Session) -> bool {
    let examples = capability.examples.iter().map(|example| example.input.clone());
    let time = format!("{:.0}", jiff::Timestamp::now());
    let workspace = session.workspace.to_string_lossy();
    examples.chain(std::iter::once(Map::new())).any(|given| {
        // With defaults where it makes sense here; what does not is asked about as it stands.
        let prepared = capability.prepare(given.clone(), &Beneath::new(&session.workspace));
        let values = &prepared.map_or(given, |prepared| prepared.values);
        let invocation = Invocation { capability: facts, values, workspace: &workspace, backend: "jail", network: &[], time: &time };
        policies.decide(principal, &Request::Invoke(&invocation), Floor::Deny).verdict != Verdict::Deny
    })
}
