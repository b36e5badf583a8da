//! Codex's rules: calls of `prefix_rule` in files that end in `.rules`.
//!
//! A pattern is a list of words with which a command begins; a list in the place of a word holds alternatives. The strictest decision wins.
//! Rules about hosts (`network_rule`) are carried over too; everything else in such a file is left out.

use stockade_core::host::HostPattern;

use super::pattern::Extent;
use super::starlark::{self, Statement, Value};
use super::{About, Basket, Draft, Imported, Pattern, Wish};
use crate::cedar::NAMESPACE;
use crate::suggest::quoted;

/// Commands that the alternatives of one rule may stand for.
const MAX_ALTERNATIVES: usize = 64;
/// Characters of a rule that are shown.
const SHOWN: usize = 120;

/// Carries the rules of a file over.
pub fn codex(text: &str) -> Imported {
    let mut basket = Basket::default();
    for statement in starlark::statements(text) {
        let shown = |line: usize, text: &str| {
            let text: String = text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(SHOWN).collect();
            format!("line {line}: {text}")
        };
        match statement {
            Statement::Unknown { line, text } => basket.leave(None, shown(line, text), "it is no plain call of a rule"),
            Statement::Call(call) => {
                let from = shown(call.line, call.text);
                match call.name {
                    "prefix_rule" => prefix(&mut basket, &call, &from),
                    "network_rule" => network(&mut basket, &call, &from),
                    "host_executable" => basket.leave(None, from, "programs are looked up on PATH, or named by their absolute path"),
                    _ => basket.leave(None, from, "no such rule is known"),
                }
            }
        }
    }
    basket.finish("codex")
}

fn prefix(basket: &mut Basket, call: &starlark::Call<'_>, from: &str) {
    let wish = match wish(call) {
        Ok(wish) => wish,
        Err(why) => return basket.leave(None, from, why),
    };
    let commands = match call.argument("pattern", 0).and_then(alternatives) {
        Some(commands) if !commands.is_empty() && commands.len() <= MAX_ALTERNATIVES => commands,
        Some(_) => return basket.leave(Some(wish), from, "its pattern has no words, or too many alternatives"),
        None => return basket.leave(Some(wish), from, "its pattern is not a list of words"),
    };
    let reason = text(call, "justification");
    for words in commands {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let rule = format!("{from} [{}]", words.join(" "));
        match Pattern::of_words(&words, Extent::Open) {
            Ok(pattern) => basket.put(Draft { wish, from: rule, reason: reason.clone(), about: About::Exec(pattern) }),
            Err(why) => basket.leave(Some(wish), rule, why),
        }
    }
}

fn network(basket: &mut Basket, call: &starlark::Call<'_>, from: &str) {
    let wish = match wish(call) {
        Ok(wish) => wish,
        Err(why) => return basket.leave(None, from, why),
    };
    let host = text(call, "host").and_then(|host| HostPattern::parse(&host).ok());
    let Some(host) = host else { return basket.leave(Some(wish), from, "its host is no host name") };
    let conditions = match text(call, "protocol").as_deref() {
        Some("https") => vec!["context.tls".to_owned()],
        Some("http") => vec!["!context.tls".to_owned()],
        Some(_) | None => return basket.leave(Some(wish), from, "rules about hosts are for `http` and `https`"),
    };
    let resource = format!("resource in {NAMESPACE}::Host::{}", quoted(&host.without_port()));
    let about = About::Other { actions: &["connect"], resource, conditions };
    basket.put(Draft { wish, from: from.to_owned(), reason: text(call, "justification"), about });
}

fn wish(call: &starlark::Call<'_>) -> Result<Wish, String> {
    match text(call, "decision").as_deref() {
        Some("allow") => Ok(Wish::Allow),
        Some("prompt") => Ok(Wish::Ask),
        Some("forbidden" | "deny") => Ok(Wish::Deny),
        Some(other) => Err(format!("the decision `{}` is not known", stockade_core::escape::escape(other))),
        // Codex takes a rule without one as a permit. One whose value cannot be read is not.
        None if call.argument("decision", usize::MAX).is_none() => Ok(Wish::Allow),
        None => Err("its decision is no plain text".to_owned()),
    }
}

fn text(call: &starlark::Call<'_>, name: &str) -> Option<String> {
    match call.argument(name, usize::MAX) {
        Some(Value::Text(text)) => Some(text.clone()),
        Some(Value::List(_) | Value::Other) | None => None,
    }
}

/// Every command that a pattern stands for; `None` where it is not made of words.
fn alternatives(pattern: &Value) -> Option<Vec<Vec<String>>> {
    let Value::List(items) = pattern else { return None };
    let mut commands: Vec<Vec<String>> = vec![Vec::new()];
    for item in items {
        let words: Vec<String> = match item {
            Value::Text(word) => vec![word.clone()],
            Value::List(choices) => choices.iter().map(word).collect::<Option<_>>()?,
            Value::Other => return None,
        };
        commands = commands.iter().flat_map(|command| words.iter().map(|word| [command.clone(), vec![word.clone()]].concat())).collect();
        if commands.len() > MAX_ALTERNATIVES {
            break;
        }
    }
    commands.retain(|command| !command.is_empty());
    Some(commands)
}

fn word(value: &Value) -> Option<String> {
    match value {
        Value::Text(word) => Some(word.clone()),
        Value::List(_) | Value::Other => None,
    }
}
