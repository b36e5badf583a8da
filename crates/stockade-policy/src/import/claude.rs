//! Claude Code's permission rules: `Tool` or `Tool(specifier)`, in lists to allow, to ask about and to deny.
//!
//! There, denying comes before asking and asking before allowing, and rules of `Bash` are about the text of each command of a line. `prefix:*` and
//! `prefix *` mean these words and whatever follows; a `*` elsewhere stands for any text.

use stockade_core::host::HostPattern;

use super::pattern::Extent;
use super::{About, Basket, Draft, Fate, Imported, Note, Pattern, Wish};
use crate::cedar::NAMESPACE;
use crate::suggest::quoted;

/// Tools that change files.
const EDITORS: [&str; 4] = ["Edit", "Write", "MultiEdit", "NotebookEdit"];

/// Carries rules over. `home` is what `~` stands for.
pub fn claude(rules: &[(Wish, String)], home: Option<&str>) -> Imported {
    let mut basket = Basket::default();
    for (wish, rule) in rules {
        match about(*wish, rule.trim(), home) {
            Ok((about, narrowed)) => {
                if let Some(why) = narrowed {
                    basket.notes.push(Note { fate: Fate::Narrowed, wish: Some(*wish), rule: rule.clone(), why });
                }
                let reason = (*wish != Wish::Allow).then(|| format!("Claude Code's rules {} `{rule}`", asks(*wish)));
                basket.put(Draft { wish: *wish, from: rule.clone(), reason, about });
            }
            Err(why) => basket.leave(Some(*wish), rule, why),
        }
    }
    basket.finish("claude")
}

fn asks(wish: Wish) -> &'static str {
    match wish {
        Wish::Allow => "allow",
        Wish::Ask => "ask about",
        Wish::Deny => "deny",
    }
}

type Read = (About, Option<String>);

fn about(wish: Wish, rule: &str, home: Option<&str>) -> Result<Read, String> {
    let (tool, specifier) = match rule.split_once('(') {
        Some((tool, rest)) => (tool, Some(rest.strip_suffix(')').ok_or("its parenthesis is not closed")?)),
        None => (rule, None),
    };
    if rule.chars().any(char::is_control) {
        return Err("it holds control characters".to_owned());
    }
    match tool {
        "Bash" => bash(specifier.unwrap_or_default()).map(|pattern| (About::Exec(pattern), None)),
        "Read" => file(&["read"], specifier, home).map(|about| (about, None)),
        tool if EDITORS.contains(&tool) => file(&["write"], specifier, home).map(|about| (about, None)),
        "WebFetch" => web(wish, specifier),
        tool => Err(format!("there is no tool `{}` here", stockade_core::escape::escape(tool))),
    }
}

fn bash(specifier: &str) -> Result<Pattern, String> {
    if matches!(specifier.trim(), "" | "*" | ":*") {
        return Ok(Pattern::any());
    }
    let (text, extent) = match specifier.strip_suffix(":*").or_else(|| specifier.strip_suffix(" *")) {
        Some(prefix) => (prefix.trim_end(), Extent::Open),
        None => (specifier, Extent::Exact),
    };
    if !text.contains('*') {
        return Pattern::of_text(text, extent);
    }
    let words: Vec<&str> = text.split_whitespace().collect();
    if words.first().is_none_or(|first| first.contains('*')) {
        return Err("a `*` hides the program's name".to_owned());
    }
    let gap = words.iter().position(|word| word.contains('*')).unwrap_or(words.len());
    let (before, after) = words.split_at_checked(gap).unwrap_or((&words, &[]));
    let wide = Pattern::of_text(&before.join(" "), Extent::Open)?;
    // `git log*` lets `git log` through; whatever else it lets through is no matter for a permit.
    if let [last] = after
        && let Some(last) = last.strip_suffix('*').filter(|last| !last.is_empty() && !last.contains('*'))
    {
        let narrow = Pattern::of_text(&format!("{} {last}", before.join(" ")), Extent::Open)?;
        // As a question it is about every subcommand that begins so.
        return Ok(Pattern { wide: wide.wide, subcommand: wide.subcommand, ..narrow });
    }
    let later: Vec<&str> = after.iter().copied().filter(|word| !word.contains('*')).collect();
    Ok(wide.and_later(&later))
}

/// Files: `//path` is absolute, `~/path` is in the home directory, everything else depends on where Claude Code runs.
fn file(actions: &'static [&'static str], specifier: Option<&str>, home: Option<&str>) -> Result<About, String> {
    let other = |resource: String| About::Other { actions, resource, conditions: Vec::new() };
    let Some(path) = specifier.filter(|path| !matches!(*path, "" | "*" | "**" | "//**")) else { return Ok(other("resource".to_owned())) };
    let absolute = if let Some(path) = path.strip_prefix("//") {
        format!("/{path}")
    } else if let Some(rest) = path.strip_prefix("~/") {
        format!("{}/{rest}", home.ok_or("there is no home directory to put in the place of `~`")?)
    } else {
        return Err("it is relative to a project, and rules name absolute paths".to_owned());
    };
    let (path, is_tree) = match absolute.strip_suffix("/**") {
        Some(path) => (path, true),
        None => (absolute.as_str(), false),
    };
    if path.contains(['*', '?', '[', '!']) || path.split('/').any(|part| part == "..") {
        return Err("rules name files and directories, not patterns of them".to_owned());
    }
    let path = crate::shell::lexical("/", path);
    let relation = if is_tree { "in" } else { "==" };
    Ok(other(format!("resource {relation} {NAMESPACE}::Path::{}", quoted(&path))))
}

fn web(wish: Wish, specifier: Option<&str>) -> Result<Read, String> {
    let domain = specifier.map(|specifier| specifier.strip_prefix("domain:").ok_or("only `domain:` is known")).transpose()?;
    let Some(domain) = domain.filter(|domain| *domain != "*") else {
        return match wish {
            Wish::Deny => Ok((About::Other { actions: &["connect"], resource: "resource".to_owned(), conditions: Vec::new() }, None)),
            Wish::Allow | Wish::Ask => Err("it would let every program reach every host; name the hosts".to_owned()),
        };
    };
    let pattern = HostPattern::parse(domain).map_err(|error| error.to_string())?;
    let host = format!("{NAMESPACE}::Host::{}", quoted(&pattern.without_port()));
    let (resource, conditions, narrowed) = match wish {
        Wish::Deny => (format!("resource in {host}"), Vec::new(), None),
        Wish::Allow | Wish::Ask => {
            let why = "only over TLS, and by every program of an agent: hosts are held by the wall, not by a tool".to_owned();
            let port = pattern.ports().iter().copied().find(|port| *port != 80).unwrap_or(443);
            (format!("resource in {host}"), vec!["context.tls".to_owned(), format!("context.port == {port}")], Some(why))
        }
    };
    Ok((About::Other { actions: &["connect"], resource, conditions }, narrowed))
}
