//! The beginning of a command line as conditions on what is read from one.
//!
//! Two forms of each: `narrow` is true only where the foreign rule matches, for permits; `wide` is true wherever it could match, for forbids and
//! for what a permit must leave to a question.

use std::collections::BTreeSet;

use stockade_core::escape::escape;

use super::Wish;
use crate::shell::{ByName, Call, Needs, Refusal, Script, classify, classify_argv};
use crate::suggest::quoted;

/// Where relative programs would be; rules that name one are left out.
const DIRECTORY: &str = "/";

/// How far a foreign rule goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    /// These words and no others.
    Exact,
    /// These words, and whatever follows.
    Open,
}

/// Commands that a foreign rule is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pattern {
    /// The program, or any.
    pub(super) program: Option<String>,
    /// The subcommand, or any.
    pub(super) subcommand: Option<String>,
    /// What must hold for a permit; `None` where no condition would keep others out.
    pub(super) narrow: Option<Vec<String>>,
    /// What must hold for a forbid.
    pub(super) wide: Vec<String>,
    /// A command line that is meant.
    pub(super) example: Option<String>,
    /// What a permit leaves out that the foreign rule let through.
    pub(super) missing: Option<String>,
}

impl Pattern {
    /// Any command.
    pub(super) fn any() -> Self {
        Self { program: None, subcommand: None, narrow: Some(Vec::new()), wide: Vec::new(), example: None, missing: None }
    }

    /// A command line as a shell would read it.
    pub(super) fn of_text(text: &str, extent: Extent) -> Result<Self, String> {
        let first = text.split_whitespace().next().unwrap_or_default();
        if first.contains('=') {
            return Err("it sets a variable first".to_owned());
        }
        let call = only(classify(text, &ByName { directory: DIRECTORY }))?;
        let is_relative = first.contains('/') && !first.starts_with('/');
        if is_relative || (call.program.contains('/') && !text.contains(&call.program)) {
            return Err(format!("`{first}` is no absolute path, and rules name programs by name or absolute path"));
        }
        Ok(Self::of_call(&call, extent, text))
    }

    /// Words as a program gets them.
    pub(super) fn of_words(words: &[&str], extent: Extent) -> Result<Self, String> {
        let argv: Vec<Option<&str>> = words.iter().copied().map(Some).collect();
        let call = only(classify_argv(&argv, &ByName { directory: DIRECTORY }))?;
        let first = words.first().copied().unwrap_or_default();
        if first.contains('/') && !first.starts_with('/') {
            return Err(format!("`{first}` is no absolute path, and rules name programs by name or absolute path"));
        }
        let mut pattern = Self::of_call(&call, extent, &words.join(" "));
        // An example is read by a shell, which would see other words where these are not plain.
        let is_plain = |word: &&str| !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "-_./:@%+,".contains(c));
        pattern.example = pattern.example.filter(|_| words.iter().all(is_plain));
        Ok(pattern)
    }

    /// The same with these words somewhere after, and anything between: for forbids only.
    #[must_use]
    pub(super) fn and_later(mut self, words: &[&str]) -> Self {
        self.narrow = None;
        self.example = None;
        for word in words {
            let is_there = match word.strip_prefix('-') {
                Some(letters) if !letters.is_empty() && !letters.starts_with('-') => {
                    all("flags", &letters.chars().map(|letter| format!("-{letter}")).collect())
                }
                Some(_) => all("flags", &BTreeSet::from([word.split('=').next().unwrap_or(word).to_owned()])),
                None => format!("context.operands.contains({0}) || context.subcommand == {0}", quoted(word)),
            };
            self.wide.push(format!("(context.opaque || {is_there})"));
        }
        self
    }

    fn of_call(call: &Call, extent: Extent, text: &str) -> Self {
        let mut narrow = Vec::new();
        let mut missing = None;
        match extent {
            Extent::Exact => {
                narrow.push(format!("context.subcommand == {}", quoted(&call.subcommand)));
                narrow.push(equal("flags", &call.flags));
                narrow.push(equal("operands", &call.operands));
                narrow.push(format!("context.count == {}", call.count));
                narrow.push("!context.opaque".to_owned());
            }
            Extent::Open => {
                if !call.subcommand.is_empty() {
                    narrow.push(format!("context.subcommand == {}", quoted(&call.subcommand)));
                }
                // Which word comes first is not known: an option before the words could change what they are. Options of a subcommand mean the
                // same wherever they stand.
                if !call.operands.is_empty() {
                    narrow.extend([equal("flags", &call.flags), equal("operands", &call.operands), "!context.opaque".to_owned()]);
                    missing = Some("nothing else may follow: rules know words as a set, not by their place".to_owned());
                } else if !call.flags.is_empty() && call.subcommand.is_empty() {
                    narrow.extend([equal("flags", &call.flags), "!context.opaque".to_owned()]);
                    missing = Some("other options may not follow: rules know them as a set, not by their place".to_owned());
                } else if !call.flags.is_empty() {
                    narrow.push(all("flags", &call.flags));
                }
            }
        }
        let subcommand = Some(call.subcommand.clone()).filter(|name| !name.is_empty());
        // What needs no permit is no example of one.
        let example = (call.needs == Needs::Permit && escape(text) == text).then(|| text.to_owned());
        Self { program: Some(call.program.clone()), subcommand, narrow: Some(narrow), wide: wide(call, extent), example, missing }
    }

    /// What a person should know, where the result is not the same.
    pub(super) fn narrowed(&self, wish: Wish) -> Option<String> {
        match wish {
            Wish::Allow | Wish::Ask => self.missing.clone().filter(|_| self.narrow.is_some()),
            Wish::Deny => None,
        }
    }
}

/// True wherever these words could be among those of a command.
fn wide(call: &Call, extent: Extent) -> Vec<String> {
    let mut conditions = Vec::new();
    if !call.subcommand.is_empty() {
        let name = quoted(&call.subcommand);
        conditions.push(format!("(context.subcommand == {name} || (context.opaque && context.subcommand == \"\"))"));
    }
    let mut words = Vec::new();
    // However the letters are put together.
    let flags: BTreeSet<String> = call.flags.iter().filter(|flag| flag.starts_with("--") || flag.chars().count() == 2).cloned().collect();
    let flags = if flags.is_empty() { call.flags.clone() } else { flags };
    if !flags.is_empty() {
        words.push(all("flags", &flags));
    }
    if !call.operands.is_empty() {
        words.push(all("operands", &call.operands));
    }
    if extent == Extent::Exact {
        words.push(format!("context.count == {}", call.count));
    }
    if !words.is_empty() {
        conditions.push(format!("(context.opaque || ({}))", words.join(" && ")));
    }
    conditions
}

/// Exactly these.
fn equal(name: &str, values: &BTreeSet<String>) -> String {
    if values.is_empty() { format!("context.{name}.isEmpty()") } else { format!("context.{name} == {}", list(values)) }
}

/// At least these.
fn all(name: &str, values: &BTreeSet<String>) -> String {
    format!("context.{name}.containsAll({})", list(values))
}

fn list(values: &BTreeSet<String>) -> String {
    let values: Vec<String> = values.iter().map(|value| quoted(value)).collect();
    format!("[{}]", values.join(", "))
}

/// One plain command, or why it is none.
fn only(script: Result<Script, Refusal>) -> Result<Call, String> {
    let script = script.map_err(|refusal| refusal.to_string())?;
    let Ok([call]) = <[Call; 1]>::try_from(script.calls) else {
        return Err("it is not one command: each command of a line is put to the rules by itself".to_owned());
    };
    // A shell without words reads its script from elsewhere, which is what such a rule is about.
    if call.opaque && call.count > 0 {
        return Err("what it runs is not in its text".to_owned());
    }
    if !call.reads.is_empty() || !call.writes.is_empty() {
        return Err("it names files that are read or written".to_owned());
    }
    Ok(call)
}
