//! `stockade mcp tools`: what other MCP servers offer, and what of it a person accepted.
//!
//! `show` prints all that would be accepted, with nothing hidden, and a digest of it; `accept` takes that digest. So a server that changes its words
//! in between has them accepted by nobody.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use stockade_core::escape::{escape, reveal};
use stockade_policy::capability::Effect;
use stockade_policy::pack::{ServerName, ToolName};
use stockade_store::mcp::{self, Accepted, Definition, McpError, Standing, Tools};

use crate::Context;
use crate::approver;
use crate::cli::{EffectChoice, ToolsAcceptArgs, ToolsArgs, ToolsListArgs, ToolsOfServer, ToolsVerb};
use crate::failure::Failure;
use crate::printer::Table;
use crate::receipts::approved;

const STEP: &str = "tools";

pub(super) fn run(args: &ToolsArgs, context: &Context) -> Result<(), Failure> {
    match &args.verb {
        ToolsVerb::List(args) => list(args, context),
        ToolsVerb::Show(args) => show(args, context),
        ToolsVerb::Accept(args) => accept(args, context),
        ToolsVerb::Forget(args) => forget(args, context),
    }
}

/// One line of the list.
struct Row {
    server: String,
    tool: String,
    state: &'static str,
    effect: &'static str,
    sha256: String,
}

fn list(args: &ToolsListArgs, context: &Context) -> Result<(), Failure> {
    let places = context.places()?;
    let servers = match &args.server {
        Some(server) => vec![server.clone()],
        None => mcp::servers(places).map_err(|error| failure(&error))?,
    };
    let mut rows = Vec::new();
    for server in servers {
        let tools = Tools::load(places, &server).map_err(|error| failure(&error))?;
        let names: BTreeSet<&ToolName> = tools.seen.keys().chain(tools.accepted.keys()).collect();
        for tool in names {
            let (state, effect) = match tools.seen.get(tool).map(|seen| tools.standing(tool, seen)) {
                Some(Standing::New) => ("new", ""),
                Some(Standing::Changed) => ("changed", ""),
                Some(Standing::Accepted(effect)) => ("accepted", effect.name()),
                None => ("gone", ""),
            };
            let definition = tools.seen.get(tool).or_else(|| tools.accepted.get(tool).map(|one| &one.definition));
            let sha256 = definition.map(Definition::sha256).unwrap_or_default();
            rows.push(Row { server: server.to_string(), tool: tool.to_string(), state, effect, sha256 });
        }
    }
    if context.printer.is_json() {
        let value = |row: &Row| {
            let effect = Some(row.effect).filter(|effect| !effect.is_empty());
            json!({ "server": row.server, "tool": row.tool, "state": row.state, "effect": effect, "sha256": row.sha256 })
        };
        return context.printer.json(&json!({ "tools": rows.iter().map(value).collect::<Vec<_>>() }));
    }
    if rows.is_empty() {
        context.printer.note("no MCP server was proxied yet: see stockade mcp proxy --help");
        return Ok(());
    }
    let mut table = Table::new(["SERVER", "TOOL", "STATE", "EFFECT", "SHA-256"]);
    for row in &rows {
        table.row([&row.server, &row.tool, row.state, row.effect, &row.sha256]);
    }
    context.printer.table(&table)
}

fn show(args: &ToolsOfServer, context: &Context) -> Result<(), Failure> {
    let tools = Tools::load(context.places()?, &args.server).map_err(|error| failure(&error))?;
    let chosen = chosen(&tools, args)?;
    let digest = mcp::digest_of(&chosen);
    if context.printer.is_json() {
        let value = |(tool, seen): &(&ToolName, &Definition)| {
            let before = tools.accepted.get(*tool).map(|one| one.definition.tool());
            json!({ "tool": tool, "sha256": seen.sha256(), "source": seen.source(), "definition": seen.tool(), "accepted": before })
        };
        return context
            .printer
            .json(&json!({ "server": args.server, "digest": digest, "tools": chosen.iter().map(value).collect::<Vec<_>>() }));
    }
    for (tool, seen) in &chosen {
        let before = tools.accepted.get(*tool).map(|one| &one.definition);
        whole(tool, seen, before, context)?;
    }
    if chosen.is_empty() {
        context.printer.note(format!("no tool of `{}` waits for you", args.server));
        return Ok(());
    }
    let names: String = args.tools.iter().flat_map(|tool| [" ", tool.as_str()]).collect();
    context.printer.line(format!("to accept: stockade mcp tools accept {}{names} --digest {digest}", args.server))
}

/// Prints one tool, nothing of it hidden or left out.
fn whole(tool: &ToolName, seen: &Definition, before: Option<&Definition>, context: &Context) -> Result<(), Failure> {
    let printer = &context.printer;
    let state = if before.is_some() { "changed since it was accepted" } else { "new" };
    printer.line(format!("{tool} ({state}), sha256 {}", seen.sha256()))?;
    printer.line(format!("  from {}", revealed(seen.source())))?;
    let now = lines(seen.tool());
    now.iter().try_for_each(|line| printer.line(format!("  {line}")))?;
    let Some(before) = before else { return Ok(()) };
    printer.line("  what changed:")?;
    let then = lines(before.tool());
    if before.source() != seen.source() {
        printer.line(format!("  - from {}", revealed(before.source())))?;
        printer.line(format!("  + from {}", revealed(seen.source())))?;
    }
    then.iter().filter(|line| !now.contains(line)).try_for_each(|line| printer.line(format!("  - {line}")))?;
    now.iter().filter(|line| !then.contains(line)).try_for_each(|line| printer.line(format!("  + {line}")))
}

fn revealed(words: &[String]) -> String {
    words.iter().map(|word| reveal(word.as_bytes())).collect::<Vec<_>>().join(" ")
}

/// A definition line by line: its description as text, and the rest as JSON.
fn lines(tool: &Value) -> Vec<String> {
    let mut rest = tool.clone();
    let description = rest.as_object_mut().and_then(|members| members.remove("description"));
    let description = description.as_ref().and_then(Value::as_str).unwrap_or_default();
    let mut lines: Vec<String> = description.split('\n').map(|line| format!("| {}", reveal(line.as_bytes()))).collect();
    let json = serde_json::to_string_pretty(&rest).unwrap_or_default();
    lines.extend(json.lines().map(squeezed));
    lines
}

/// A line of JSON with its blanks at the beginning, and nothing pushed out of sight further on.
fn squeezed(line: &str) -> String {
    let text = line.trim_start_matches(' ');
    let (indent, _) = line.split_at(line.len() - text.len());
    let pieces: Vec<String> = text.split('\\').map(|piece| reveal(piece.as_bytes())).collect();
    format!("{indent}{}", pieces.join("\\"))
}

fn accept(args: &ToolsAcceptArgs, context: &Context) -> Result<(), Failure> {
    let places = context.places()?;
    let which = &args.which;
    let mut tools = Tools::load(places, &which.server).map_err(|error| failure(&error))?;
    let chosen: Vec<(ToolName, Definition)> = chosen(&tools, which)?.into_iter().map(|(tool, seen)| (tool.clone(), seen.clone())).collect();
    let digest = mcp::digest_of(&chosen.iter().map(|(tool, seen)| (tool, seen)).collect::<Vec<_>>());
    if chosen.is_empty() {
        return Err(Failure::new(STEP, format!("no tool of `{}` waits for you", which.server)));
    }
    if digest != args.digest.trim() {
        return Err(Failure::new(STEP, "the digest is not that of what waits now: it changed, or other tools were shown")
            .with_hint(format!("stockade mcp tools show {}", which.server)));
    }
    let effect = match args.effect {
        EffectChoice::Read => Effect::Read,
        EffectChoice::Write => Effect::Write,
        EffectChoice::Destructive => Effect::Destructive,
    };
    let decider = approver::demand("accept tools of an MCP server", context)?;
    let names: Vec<String> = chosen.iter().map(|(tool, _)| tool.to_string()).collect();
    for (tool, definition) in chosen {
        tools.accepted.insert(tool, Accepted { definition, effect, by: decider.by.clone() });
    }
    let listed = names.join(",");
    let words = [which.server.as_str(), &listed, "--digest", &digest, "--effect", effect.name()];
    approved("mcp.tools.accept", &words, &decider, context, || {
        tools.store_accepted(places, &which.server).map_err(|error| failure(&error))
    })?;
    if context.printer.is_json() {
        return context.printer.json(&json!({ "server": which.server, "accepted": names, "effect": effect.name() }));
    }
    context.printer.note(format!("accepted as `{}`: {}", effect.name(), names.join(", ")));
    context.printer.note(format!("rules call them mcp.{}.TOOL; agents may call what a rule permits", which.server));
    Ok(())
}

fn forget(args: &ToolsOfServer, context: &Context) -> Result<(), Failure> {
    let places = context.places()?;
    let mut tools = Tools::load(places, &args.server).map_err(|error| failure(&error))?;
    let is_meant = |tool: &ToolName| args.tools.is_empty() || args.tools.contains(tool);
    let names: Vec<String> = tools.accepted.keys().filter(|tool| is_meant(tool)).map(ToString::to_string).collect();
    if names.is_empty() {
        return Err(unknown(&args.server, &args.tools));
    }
    tools.accepted.retain(|tool, _| !is_meant(tool));
    let decider = approver::demand("change which tools are accepted", context)?;
    let listed = names.join(",");
    approved("mcp.tools.forget", &[args.server.as_str(), &listed], &decider, context, || {
        tools.store_accepted(places, &args.server).map_err(|error| failure(&error))
    })?;
    if context.printer.is_json() {
        return context.printer.json(&json!({ "server": args.server, "forgotten": names }));
    }
    context.printer.note(format!("not accepted any more: {}", names.join(", ")));
    Ok(())
}

/// What waits, of those that were named.
fn chosen<'t>(tools: &'t Tools, args: &ToolsOfServer) -> Result<Vec<(&'t ToolName, &'t Definition)>, Failure> {
    if tools.seen.is_empty() || args.tools.iter().any(|tool| !tools.seen.contains_key(tool)) {
        return Err(unknown(&args.server, &args.tools));
    }
    let waiting = tools.waiting();
    Ok(waiting.into_iter().filter(|(tool, _)| args.tools.is_empty() || args.tools.contains(tool)).collect())
}

fn unknown(server: &ServerName, tools: &[ToolName]) -> Failure {
    let named: Vec<&str> = tools.iter().map(ToolName::as_str).collect();
    let what = if named.is_empty() { "no tools".to_owned() } else { format!("no such tools ({})", escape(&named.join(", "))) };
    Failure::new(STEP, format!("{what} of the MCP server `{server}` are known")).with_hint("stockade mcp tools list")
}

fn failure(error: &McpError) -> Failure {
    Failure::from_error(STEP, error)
}
