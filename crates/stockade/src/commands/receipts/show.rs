//! `receipts show`: everything about one call, record by record.

use serde_json::{Value, json};

use super::{existing, value};
use crate::Context;
use crate::cli::OneReceipt;
use crate::failure::Failure;
use crate::receipts::book;
use crate::text::{Text, Tone};

/// Members in the order in which people read them; others follow.
const ORDER: [&str; 12] = [
    "time",
    "receipt_id",
    "principal",
    "capability",
    "argv",
    "argv_executed",
    "program",
    "policy",
    "sandbox",
    "result",
    "changes",
    "network",
];

pub(super) fn show(args: &OneReceipt, context: &Context) -> Result<(), Failure> {
    let entries = existing(context)?.show(&args.id).map_err(|error| {
        let failure = book::failure(&error);
        if failure.hint.is_some() { failure } else { failure.with_hint("stockade receipts list") }
    })?;
    let receipts: Vec<Value> = entries.iter().map(value).collect();
    if context.printer.is_json() {
        return context.printer.json(&json!({ "receipts": receipts }));
    }
    for receipt in &receipts {
        let kind = receipt.get("kind").and_then(Value::as_str).unwrap_or_default();
        let seq = receipt.get("seq").map(ToString::to_string).unwrap_or_default();
        context.printer.line(Text::toned(Tone::Strong, format!("{kind} (receipt {seq})")))?;
        let Some(object) = receipt.as_object() else { continue };
        let first = ORDER.into_iter().filter_map(|name| object.get_key_value(name));
        let others = object.iter().filter(|(name, _)| !ORDER.contains(&name.as_str()) && *name != "kind" && *name != "seq");
        for (name, member) in
            first.map(|(name, member)| (name.as_str(), member)).chain(others.map(|(name, member)| (name.as_str(), member)))
        {
            print(name, member, 1, context)?;
        }
    }
    Ok(())
}

/// One member, indented; objects and lists of objects take a line for each of theirs.
fn print(name: &str, member: &Value, depth: usize, context: &Context) -> Result<(), Failure> {
    let indent = "  ".repeat(depth);
    let heading = |context: &Context| context.printer.line(Text::plain(&indent).then(Text::toned(Tone::Faint, format!("{name}:"))));
    match member {
        Value::Object(object) => {
            heading(context)?;
            object.iter().try_for_each(|(name, inner)| print(name, inner, depth + 1, context))
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            heading(context)?;
            items.iter().try_for_each(|item| context.printer.line(format!("{indent}  {}", flat(item))))
        }
        Value::Array(_) | Value::String(_) | Value::Number(_) | Value::Bool(_) | Value::Null => {
            context.printer.line(Text::plain(&indent).then(Text::toned(Tone::Faint, format!("{name}: "))).then(flat(member)))
        }
    }
}

/// A value in one line.
fn flat(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Object(object) => {
            let shown = object.iter().filter(|(_, inner)| !inner.is_null());
            shown.map(|(name, inner)| format!("{name} {}", flat(inner))).collect::<Vec<_>>().join(" · ")
        }
        Value::Array(_) | Value::Number(_) | Value::Bool(_) | Value::Null => value.to_string(),
    }
}
