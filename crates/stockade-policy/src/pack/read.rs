//! A pack as a whole: its manifest, its capabilities, its rules, and whether all of that stands together.

use std::collections::BTreeSet;

use sha2::{Digest, Sha256};

use super::files::{MANIFEST, PackFiles};
use super::key::hex;
use super::manifest::Manifest;
use crate::capability::{Capability, CapabilityFacts, Invocation, Vocabulary};
use crate::capability::{Tried, WORKSPACE};
use crate::cedar::{Checks, Policies, foreign_rules};
use crate::decision::Verdict;
use crate::fault::{Fault, FaultKind, Faults};
use crate::judge::Floor;
use crate::request::{Principal, Request};
use crate::source::{Layer, PolicyFile, Trust};

/// A capability and the file that it stands in.
#[derive(Debug, Clone, PartialEq)]
pub struct CapabilityFile {
    /// The path in the pack.
    pub path: String,
    /// The SHA-256 of the file.
    pub sha256: String,
    /// The capability.
    pub capability: Capability,
}

/// A pack.
#[derive(Debug, Clone, PartialEq)]
pub struct Pack {
    /// Its manifest.
    pub manifest: Manifest,
    /// Its capabilities, by name.
    pub capabilities: Vec<CapabilityFile>,
    /// Its rules; whether their permits count is said by whoever installs it.
    pub policy: Vec<PolicyFile>,
}

impl Pack {
    /// Reads a pack. Faults carry `label` and the path in the pack.
    pub fn read(files: &PackFiles, label: &str) -> Result<Self, Faults> {
        let mut faults = Vec::new();
        let manifest = match files.get(MANIFEST).map(|bytes| text(label, MANIFEST, bytes)) {
            None => Err(Faults(vec![Fault::at(FaultKind::Manifest, &name(label, MANIFEST), "", (0, 0), "the file is missing")])),
            Some(Err(found)) => Err(found),
            Some(Ok(text)) => Manifest::parse(&name(label, MANIFEST), text),
        };
        let manifest = manifest.map_err(|found| faults.extend(found.0)).ok();
        let (mut capabilities, mut policy) = (Vec::new(), Vec::new());
        for (path, bytes) in files.iter() {
            if path.capability().is_none() && !path.is_policy() {
                continue;
            }
            let text = match text(label, path.as_str(), bytes) {
                Ok(text) => text,
                Err(found) => {
                    faults.extend(found.0);
                    continue;
                }
            };
            let file = name(label, path.as_str());
            let Some(expected) = path.capability() else {
                policy.push(PolicyFile { layer: Layer::Pack, trust: Trust::Trusted, name: file, text: text.to_owned() });
                continue;
            };
            match Capability::parse(&file, text) {
                // One name, one file: so that a capability is found, and a second claim noticed, without reading any.
                Ok(found) if found.name.as_str() != expected => {
                    let message = format!("the file must be called capabilities/{}.toml, as its capability is", found.name);
                    faults.push(Fault::at(FaultKind::Manifest, &file, text, (0, 0), message));
                }
                Ok(capability) => {
                    capabilities.push(CapabilityFile { path: path.as_str().to_owned(), sha256: hex(&Sha256::digest(bytes)), capability });
                }
                Err(found) => faults.extend(found.0),
            }
        }
        if capabilities.is_empty() && faults.is_empty() {
            faults.push(Fault::at(FaultKind::Manifest, &name(label, MANIFEST), "", (0, 0), "the pack has no capabilities"));
        }
        match manifest {
            Some(manifest) if faults.is_empty() => Ok(Self { manifest, capabilities, policy }),
            _ => Err(Faults(faults)),
        }
    }

    /// What rules may say about its capabilities.
    pub fn facts(&self) -> Vec<CapabilityFacts> {
        self.capabilities.iter().map(|file| file.capability.facts(&self.manifest.name)).collect()
    }

    /// Checks all that reading leaves out: schemas, rules and examples.
    pub fn lint(&self, files: &PackFiles, label: &str) -> Result<(), Faults> {
        let mut faults = Vec::new();
        let vocabulary = Vocabulary { capabilities: self.facts() };
        let policies = self.policies(&vocabulary).map_err(|found| faults.extend(found.0)).ok();
        for CapabilityFile { path, capability, .. } in &self.capabilities {
            let text = files.get(path).and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or_default();
            let fault = |kind, place, message: String| Fault::at(kind, &name(label, path), text, place, message);
            if let Err(why) = capability.input.check() {
                faults.push(fault(FaultKind::Manifest, (0, 0), format!("`input`: {why}")));
                continue;
            }
            if capability.examples.is_empty() {
                faults.push(fault(FaultKind::Example, (0, 0), "there are no examples".to_owned()));
            }
            for example in &capability.examples {
                match capability.try_example(example) {
                    Tried::Holds => {}
                    Tried::Fails(why) => faults.push(fault(FaultKind::Example, example.place, why)),
                    Tried::Accepted(values) => {
                        let facts = vocabulary.find(capability.name.as_str());
                        let is_forbidden =
                            policies.as_ref().zip(facts).is_some_and(|(policies, facts)| is_forbidden(policies, facts, &values));
                        if !is_forbidden {
                            faults.push(fault(FaultKind::Example, example.place, "nothing refuses the example".to_owned()));
                        }
                    }
                }
            }
        }
        if faults.is_empty() { Ok(()) } else { Err(Faults(faults)) }
    }

    /// Its rules, which may be about its own capabilities only.
    pub fn policies(&self, vocabulary: &Vocabulary) -> Result<Policies, Faults> {
        let own: BTreeSet<&str> = self.capabilities.iter().map(|file| file.capability.name.as_str()).collect();
        let foreign: Vec<Fault> = self.policy.iter().flat_map(|file| foreign_rules(file, &own)).collect();
        if !foreign.is_empty() {
            return Err(Faults(foreign));
        }
        Policies::compile_with(&self.policy, Checks::All, vocabulary)
    }
}

/// Whether a rule of the pack forbids a call, for anybody.
fn is_forbidden(policies: &Policies, facts: &CapabilityFacts, values: &serde_json::Map<String, serde_json::Value>) -> bool {
    let invocation =
        Invocation { capability: facts, values, workspace: WORKSPACE, backend: "jail", network: &[], time: "2026-01-01T12:00:00Z" };
    let principals = [Principal::agent("example/agent"), Principal::human("example")];
    let request = Request::Invoke(&invocation);
    principals.iter().all(|principal| policies.decide(principal, &request, Floor::NoPolicy).verdict == Verdict::Deny)
}

fn name(label: &str, path: &str) -> String {
    if label.is_empty() { path.to_owned() } else { format!("{label}/{path}") }
}

fn text<'a>(label: &str, path: &str, bytes: &'a [u8]) -> Result<&'a str, Faults> {
    let fault = || Fault::at(FaultKind::Manifest, &name(label, path), "", (0, 0), "the file is not UTF-8");
    std::str::from_utf8(bytes).map_err(|_| Faults(vec![fault()]))
}
