//! Tools as a server lists them, and how they stand with the person: what is offered, and what waits.

use std::collections::BTreeMap;

use rmcp::model::{Tool, ToolAnnotations};
use serde_json::Value;
use stockade_policy::capability::Effect;
use stockade_policy::pack::ToolName;
use stockade_store::mcp::{self, Definition, McpError, Standing, Tools};

use super::Session;
use crate::failure::Failure;

/// What a server has.
#[derive(Debug, Clone, Default)]
pub(super) struct Listing {
    /// Its tools.
    pub(super) tools: BTreeMap<ToolName, Definition>,
    /// Those that nobody could accept, and why.
    pub(super) unfit: Vec<String>,
}

impl Listing {
    /// Of what a server listed. Of two tools with one name neither is taken: nobody could say which is called.
    pub(super) fn new(listed: Vec<Tool>, source: &[String]) -> Self {
        let mut listing = Self::default();
        let mut twins = Vec::new();
        for tool in listed {
            let name = match tool.name.parse::<ToolName>() {
                Ok(name) => name,
                Err(error) => {
                    listing.unfit.push(error.to_string());
                    continue;
                }
            };
            let whole = serde_json::to_value(&tool).unwrap_or(Value::Null);
            match Definition::new(source, whole) {
                Ok(definition) if listing.tools.contains_key(&name) => {
                    listing.unfit.push(format!("`{name}`: there are two of this name"));
                    twins.push(name);
                    drop(definition);
                }
                Ok(definition) => drop(listing.tools.insert(name, definition)),
                Err(why) => listing.unfit.push(format!("`{name}`: {why}")),
            }
        }
        listing.tools.retain(|name, _| !twins.contains(name));
        listing
    }
}

/// What is offered of a listing, in the order of the names. What waits is kept for the person to look at, and said.
pub(super) fn offered(listing: &Listing, session: &Session) -> Result<Vec<Tool>, Failure> {
    let places = session.context.places()?;
    let known = Tools::load(places, &session.server).map_err(|error| failure(&error))?;
    if known.seen != listing.tools {
        mcp::remember_seen(places, &session.server, &listing.tools).map_err(|error| failure(&error))?;
    }
    let mut offered = Vec::new();
    let mut waiting = Vec::new();
    for (name, definition) in &listing.tools {
        match known.standing(name, definition) {
            Standing::Accepted(effect) => offered.extend(tool(definition, effect)),
            Standing::New => waiting.push(format!("{name} (new)")),
            Standing::Changed => waiting.push(format!("{name} (changed)")),
        }
    }
    let (printer, server) = (&session.context.printer, &session.server);
    for why in &listing.unfit {
        printer.warning(format!("{server}: a tool is left out: {why}"));
    }
    if !waiting.is_empty() {
        printer.warning(format!("{server}: not offered until you accept them: {}", waiting.join(", ")));
        printer.note(format!("look at them with: stockade mcp tools show {server}"));
    }
    Ok(offered)
}

/// A tool as clients get it: nothing hides in its words, and its hints say what the person said.
fn tool(definition: &Definition, effect: Effect) -> Option<Tool> {
    let mut tool: Tool = serde_json::from_value(definition.revealed()).ok()?;
    let hints = ToolAnnotations::new().read_only(effect == Effect::Read);
    let mut hints = if effect == Effect::Read { hints } else { hints.destructive(effect == Effect::Destructive) };
    hints.title = tool.annotations.take().and_then(|own| own.title);
    // Pictures are fetched from anywhere, and what else is there nobody was shown the meaning of.
    tool.icons = None;
    tool.meta = None;
    Some(tool.with_annotations(hints))
}

/// An error of what is kept about tools.
pub(super) fn failure(error: &McpError) -> Failure {
    Failure::from_error("tools", error)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn listed(tools: Value) -> Listing {
        Listing::new(serde_json::from_value(tools).unwrap(), &["srv".to_owned()])
    }

    #[test]
    fn what_nobody_could_accept_is_left_out() {
        let listing = listed(json!([
            { "name": "good", "inputSchema": {} },
            { "name": "bad name", "inputSchema": {} },
            { "name": "twin", "inputSchema": {} },
            { "name": "twin", "description": "other", "inputSchema": {} },
            { "name": "long", "description": "x".repeat(100_000), "inputSchema": {} },
        ]));
        assert_eq!(listing.tools.keys().map(ToolName::as_str).collect::<Vec<_>>(), ["good"]);
        assert_eq!(listing.unfit.len(), 3, "{:?}", listing.unfit);
    }

    #[test]
    fn hints_are_the_persons_and_nothing_hides() {
        let listing = listed(json!([{
            "name": "t", "title": "a\u{202e}b", "description": "x\u{200b}y", "inputSchema": {}, "_meta": { "k": 1 },
            "icons": [{ "src": "https://evil.example/i.png" }],
            "annotations": { "readOnlyHint": true, "destructiveHint": false, "title": "T" },
        }]));
        let definition = listing.tools.values().next().unwrap();
        let tool = serde_json::to_value(tool(definition, Effect::Destructive)).unwrap();
        assert_eq!(
            tool,
            json!({
                "name": "t", "title": "a\\u{202e}b", "description": "x\\u{200b}y", "inputSchema": {},
                "annotations": { "title": "T", "readOnlyHint": false, "destructiveHint": true },
            })
        );
    }
}
