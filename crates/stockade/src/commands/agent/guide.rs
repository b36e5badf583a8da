//! `agent guide`: how an agent is run here, from its profile.

use std::process::ExitCode;

use serde_json::json;

use crate::Context;
use crate::agent::profile::{self, Profile};
use crate::cli::GuideArgs;
use crate::failure::Failure;

pub(super) fn guide(args: &GuideArgs, context: &Context) -> Result<ExitCode, Failure> {
    let profiles = match &args.agent {
        Some(name) => vec![profile::choose(Some(name), std::path::Path::new(""))?],
        None => profile::all()?,
    };
    if context.printer.is_json() {
        let agents: Vec<serde_json::Value> = profiles.iter().map(describe).collect();
        context.printer.json(&json!({ "agents": agents }))?;
        return Ok(ExitCode::SUCCESS);
    }
    for profile in &profiles {
        for line in lines(profile) {
            context.printer.line(line)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn lines(profile: &Profile) -> Vec<String> {
    let program = profile.programs.first().map_or("./agent", String::as_str);
    let mut lines = vec![format!("{} ({})", profile.title, profile.name), format!("  stockade agent run -- {program}")];
    for key in &profile.keys {
        let hosts: Vec<String> = key.hosts.iter().map(ToString::to_string).collect();
        let elsewhere = key.base_url.as_ref().map(|name| format!(", or where {name} leads")).unwrap_or_default();
        lines.push(format!("  key {}: only to {}{elsewhere}", key.variable, hosts.join(", ")));
    }
    if profile.keys.is_empty() {
        lines.push("  no key is known: --secret NAME@HOST for each, --allow-host HOST for the rest".to_owned());
    }
    if let Some(directory) = &profile.directory {
        let files: Vec<&str> = profile.files.iter().map(|file| file.from.as_str()).collect();
        lines.push(format!("  copied in without credentials, from ~/{}: {}", directory.path, files.join(", ")));
    }
    lines.push(String::new());
    lines
}

fn describe(profile: &Profile) -> serde_json::Value {
    json!({
        "name": profile.name,
        "title": profile.title,
        "programs": profile.programs,
        "hosts": profile.hosts,
        "keys": profile.keys.iter().map(|key| json!({ "variable": key.variable, "hosts": key.hosts, "base_url": key.base_url })).collect::<Vec<_>>(),
        "directory": profile.directory.as_ref().map(|directory| &directory.path),
        "files": profile.files.iter().map(|file| &file.from).collect::<Vec<_>>(),
    })
}
