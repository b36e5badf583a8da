//! `stockade cap show`: what a capability takes, runs and may reach.

use std::process::ExitCode;

use serde_json::{Value, json};
use stockade_policy::capability::{Capability, ExecList, Hosts, Kind, Presence, Scalar};
use stockade_store::packs::{LoadedPack, Packs};

use super::super::pack::failure;
use crate::Context;
use crate::cli::CapShowArgs;
use crate::failure::Failure;

pub(super) fn run(args: &CapShowArgs, context: &Context) -> Result<ExitCode, Failure> {
    let packs = Packs::load(context.places()?).map_err(|error| failure(&error))?;
    let (pack, capability) = packs.capability(&args.name).map_err(|error| failure(&error))?;
    if context.printer.is_json() {
        context.printer.json(&described(pack, &capability))?;
        return Ok(ExitCode::SUCCESS);
    }
    let Reach { hosts, mounts, secrets, exec } = Reach::of(&capability);
    let line = |text: String| context.printer.line(text);
    line(format!("{} ({} {}, {})", capability.name, pack.name, pack.version, pack.standing.name()))?;
    line(capability.description.clone())?;
    line(format!("effect {}, risk {}, runs {}", capability.effect.name(), capability.risk.name(), capability.program))?;
    tell_inputs(&capability, context)?;
    for (what, list) in [("hosts", hosts), ("mounts", mounts), ("secrets", secrets)] {
        if !list.is_empty() {
            line(format!("{what}: {}", list.join(", ")))?;
        }
    }
    match exec {
        None => line("runs any program inside".to_owned())?,
        Some(more) if !more.is_empty() => line(format!("runs besides: {}", more.join(", ")))?,
        Some(_) => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// The same with `--json`.
pub(crate) fn described(pack: &LoadedPack, capability: &Capability) -> Value {
    let Reach { hosts, mounts, secrets, exec } = Reach::of(capability);
    json!({
        "name": capability.name.as_str(), "pack": pack.name.as_str(), "version": pack.version.to_string(), "standing": pack.standing.name(),
        "description": capability.description, "effect": capability.effect.name(), "risk": capability.risk.name(),
        "program": capability.program, "input": capability.input.schema(), "output": capability.output.name(),
        "timeout_seconds": capability.timeout.map(|time| time.as_secs_f64()),
        "sandbox": { "hosts": hosts, "mounts": mounts, "exec": exec }, "secrets": secrets,
    })
}

/// What a capability may reach, in words.
struct Reach {
    hosts: Vec<String>,
    mounts: Vec<String>,
    secrets: Vec<String>,
    exec: Option<Vec<String>>,
}

impl Reach {
    fn of(capability: &Capability) -> Self {
        let sandbox = &capability.sandbox;
        Self {
            hosts: match &sandbox.hosts {
                Hosts::Allowed => vec!["allowed".to_owned()],
                Hosts::Only(hosts) => hosts.iter().map(ToString::to_string).collect(),
            },
            mounts: sandbox.mounts.iter().map(|mount| format!("{}:{}", mount.host, mount.mode)).collect(),
            secrets: capability.credentials.iter().map(|credential| credential.secret.to_string()).collect(),
            exec: match &sandbox.exec {
                ExecList::Any => None,
                ExecList::Only(more) => Some(more.clone()),
            },
        }
    }
}

fn tell_inputs(capability: &Capability, context: &Context) -> Result<(), Failure> {
    for (name, property) in capability.input.properties() {
        let kind = match property.kind {
            Kind::Bool => "true or false",
            Kind::Long => "whole number",
            Kind::Text if property.is_path => "path",
            Kind::Text => "text",
            Kind::Number => "number",
            Kind::Set(Scalar::Text) if property.is_path => "paths",
            Kind::Set(_) => "list",
            Kind::Json => "JSON",
        };
        let schema = capability.input.schema().get("properties").and_then(|all| all.get(name));
        let kind = schema.and_then(choices).unwrap_or_else(|| format!("{kind}{}", schema.map_or_else(String::new, range)));
        let default = schema.and_then(|schema| schema.get("default"));
        let need = match (default, property.presence) {
            (Some(default), _) => format!("default {default}"),
            (None, Presence::Always) => "required".to_owned(),
            (None, Presence::Maybe) => "optional".to_owned(),
        };
        let words = property.description.as_ref().map_or_else(String::new, |words| format!(": {words}"));
        context.printer.line(format!("  {name} ({kind}, {need}){words}"))?;
    }
    Ok(())
}

/// The values of an input that has only a few.
fn choices(schema: &Value) -> Option<String> {
    let words = schema.get("enum")?.as_array()?.iter().map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned));
    Some(format!("one of {}", words.collect::<Vec<_>>().join(", ")))
}

/// The least and the greatest of a number.
fn range(schema: &Value) -> String {
    let bound = |word: &str, key: &str| schema.get(key).map_or_else(String::new, |bound| format!(" {word} {bound}"));
    format!("{}{}", bound("from", "minimum"), bound("to", "maximum"))
}
