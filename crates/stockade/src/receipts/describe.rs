//! What a sandbox is and what the rules said, as receipts have it.
//!
//! The configuration of a sandbox is a plain value without any value of a variable; its digest stands in the receipt, and the value itself lies
//! beside the ledger under that digest, so that whoever checks the ledger can look whether it is still what it was.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::PoisonError;

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use stockade_core::credential::Class;
use stockade_core::demand::Enforcement;
use stockade_core::escape::escape_bytes;
use stockade_core::limits::Limits;
use stockade_core::reach::Reach;
use stockade_core::result::Decision;
use stockade_core::spec::SandboxSpec;
use stockade_ledger::payload::Payloads;
use stockade_ledger::receipt::{Credential, Policy, SandboxFacts};
use stockade_ledger::redact::Redact;
use stockade_policy::PolicyFile;
use stockade_verify::canonical::canonical;
use stockade_verify::text::to_hex;

use super::book;
use crate::admission::Rules;
use crate::egress::outlet::Facts;
use crate::failure::Failure;

/// What the rules said.
pub(crate) fn policy_of(told: &Decision, rules: &Rules) -> Policy {
    Policy {
        digest: digest_of(&rules.layers().files),
        rule: told.rule.clone(),
        verdict: told.verdict.clone(),
        reasons: told.reason.iter().cloned().chain(told.source.iter().map(|source| format!("at {source}"))).collect(),
    }
}

/// A sandbox before it stands: its configuration is put beside the ledger under its digest.
pub(crate) fn sandbox_of(
    backend: &str,
    spec: &SandboxSpec,
    reach: &Reach,
    payloads: &Payloads,
    redactor: &dyn Redact,
) -> Result<SandboxFacts, Failure> {
    let text = configuration_text(backend, spec, reach)?;
    let stored = payloads.keep(text.as_bytes(), redactor).map_err(|error| book::failure(&error))?;
    Ok(SandboxFacts {
        id: None,
        backend: backend.to_owned(),
        spec_digest: Some(stored.sha256),
        enforcement: BTreeMap::new(),
        limits: limits(&spec.limits),
    })
}

/// Everything that makes a sandbox what it is, but for values of variables, as one text.
pub(crate) fn configuration_text(backend: &str, spec: &SandboxSpec, reach: &Reach) -> Result<String, Failure> {
    canonical(&configuration(backend, spec, reach))
        .map_err(|error| Failure::new("receipt", format!("the sandbox's configuration cannot be written: {error}")))
}

/// The same once it stands.
pub(crate) fn held(facts: &mut SandboxFacts, enforcement: &Enforcement) {
    facts.enforcement = enforcement.levels();
}

/// The secrets that a sandbox may use, by name: who gave each, whom it speaks for and where it may go, when it ends, and whether it went in.
pub(crate) fn credentials_of(reach: &Reach, facts: &Facts) -> Vec<Credential> {
    let facts = facts.lock().unwrap_or_else(PoisonError::into_inner);
    let one = |secret: &stockade_core::reach::SecretUse| {
        let fact = facts.iter().find(|(name, _)| *name == secret.name).map(|(_, fact)| fact);
        let hosts = secret.hosts.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        Credential {
            adapter: fact.map_or("secret", |fact| fact.adapter.as_str()).to_owned(),
            id: secret.name.as_str().to_owned(),
            scope: Some(match fact.and_then(|fact| fact.scope.as_deref()) {
                None => hosts,
                Some(scope) => format!("{hosts}: {scope}"),
            }),
            expires: fact.and_then(|fact| fact.expires).and_then(|end| jiff::Timestamp::try_from(end).ok()).map(|end| format!("{end:.0}")),
            delivery: Class::of(&secret.deliveries).word().to_owned(),
        }
    };
    reach.secrets.iter().map(one).collect()
}

/// Everything that was evaluated, by layer, trust, name and text; absent where there are no rules.
pub(crate) fn digest_of(files: &[PolicyFile]) -> Option<String> {
    if files.is_empty() {
        return None;
    }
    let mut hash = Sha256::new();
    for file in files {
        let head = format!("{:?} {:?}", file.layer, file.trust);
        // Lengths go in as well, so that no two sets of files look alike.
        for part in [head.as_str(), &file.name, &file.text] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part.as_bytes());
        }
    }
    Some(to_hex(&hash.finalize()))
}

/// A sandbox's configuration. Of variables only the names: values may be secret, and so may a digest over them.
fn configuration(backend: &str, spec: &SandboxSpec, reach: &Reach) -> Value {
    let SandboxSpec { workspace, mounts, env, cwd, home, exec_list, limits: all_limits, allow_degraded, path_dirs } = spec;
    let path = |path: &Path| shown(path);
    json!({
        "version": 1,
        "backend": backend,
        "workspace": {
            "path": path(workspace.path.as_path()),
            "mode": workspace.mode.to_string(),
            "git_common": workspace.git_common.as_ref().map(|common| path(common.as_path())),
        },
        "mounts": mounts.iter().map(|mount| json!({
            "host": path(mount.host.as_path()), "guest": path(mount.guest.as_path()), "mode": mount.mode.to_string(),
        })).collect::<Vec<_>>(),
        "env_names": env.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
        "cwd": path(cwd.as_path()),
        "home": path(home.as_path()),
        "exec_list": exec_list,
        "limits": limits(all_limits),
        "allow_degraded": allow_degraded.iter().map(|demand| demand.name()).collect::<Vec<_>>(),
        "path": path_dirs.iter().map(|directory| path(directory)).collect::<Vec<_>>(),
        "reach": {
            "hosts": reach.hosts.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "secrets": reach.secrets.iter().map(|secret| json!({
                "name": secret.name.as_str(), "hosts": secret.hosts.iter().map(ToString::to_string).collect::<Vec<_>>(),
            })).collect::<Vec<_>>(),
            "unlisted": reach.unlisted,
            "rules": reach.rules,
            "sent_bytes": reach.sent_bytes,
        },
    })
}

/// Limits by name: bytes, counts, and times in milliseconds.
fn limits(limits: &Limits) -> BTreeMap<String, Value> {
    let Limits { cpu_millis, memory, pids, disk, output, time, open_files } = limits;
    let all = [
        ("cpu_millis", cpu_millis.map(|limit| u64::from(limit.value))),
        ("memory", memory.map(|limit| limit.value)),
        ("pids", pids.map(|limit| u64::from(limit.value))),
        ("disk", disk.map(|limit| limit.value)),
        ("output", output.map(|limit| limit.value)),
        ("time_ms", time.map(|limit| u64::try_from(limit.value.as_millis()).unwrap_or(u64::MAX))),
        ("open_files", open_files.map(|limit| limit.value)),
    ];
    let known = all.into_iter().filter_map(|(name, value)| value.map(|value| (name.to_owned(), Value::from(value))));
    known.collect::<Map<String, Value>>().into_iter().collect()
}

/// A path as text.
pub(crate) fn shown(path: &Path) -> String {
    path.to_str().map_or_else(|| escape_bytes(path.as_os_str().as_encoded_bytes()), str::to_owned)
}
