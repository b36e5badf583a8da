//! Reads the three data files of the system call filter and holds them against each other.
//!
//! Owns their format and the promise that every call of `numbers.txt` is decided exactly once, with a reason.
//! Does not know how a filter is made: that is `program.rs`. Compiled into the build script and into the tests,
//! never into the shim.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// No architecture has a higher number. Above it, bit 30 marks x32 calls, which must never be found in a list.
const HIGHEST: u32 = 0xffff;

/// The processor families that the shim runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Architecture {
    X86_64,
    Aarch64,
}

/// The kinds of sandbox, each with a filter of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variant {
    /// The ordinary one.
    General,
    /// With an exec list: the lines marked `unless exec-list` do not count.
    ExecList,
}

/// What becomes of one system call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Allow,
    AllowIf(Condition),
    Refuse,
}

/// When a call is allowed, and what it answers when it is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Condition {
    /// The call is allowed when every test of any one alternative holds.
    pub(crate) alternatives: Vec<Vec<Test>>,
    pub(crate) otherwise: Errno,
}

/// A comparison of the low 32 bits of one argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Test {
    pub(crate) argument: u8,
    pub(crate) mask: u32,
    pub(crate) comparison: Comparison,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    OneOf(Vec<u32>),
    Not(u32),
    AtMost(u32),
    AtLeast(u32),
}

/// The answers that a refused call may give; their numbers are the same on both architectures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Errno {
    NotPermitted = 1,
    NoEntry = 2,
    Invalid = 22,
    NoSuchCall = 38,
    NoSuchFamily = 97,
}

/// A fault in a data file: which file, which line (0 for the file as a whole), and what is wrong.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PolicyError {
    file: &'static str,
    line: usize,
    message: String,
}

/// A call with its number on each architecture that has it.
#[derive(Debug)]
struct Number {
    x86_64: Option<u32>,
    aarch64: Option<u32>,
}

/// A call's fate in the two kinds of sandbox.
#[derive(Debug)]
struct Fate {
    general: Verdict,
    exec_list: Verdict,
}

/// The decided fate of every known system call.
#[derive(Debug)]
pub(crate) struct Policy {
    numbers: BTreeMap<String, Number>,
    fates: BTreeMap<String, Fate>,
}

impl Policy {
    /// Reads the files' texts; fails on any fault, and on a call that is undecided, decided twice or unknown.
    pub(crate) fn read(numbers: &str, allow: &str, refused: &str) -> Result<Self, PolicyError> {
        let numbers = read_numbers(numbers)?;
        let mut fates = BTreeMap::new();
        for (line, name, fate) in rules("allow.txt", allow, read_allowed)? {
            decide(&mut fates, &numbers, name, fate).map_err(|message| PolicyError { file: "allow.txt", line, message })?;
        }
        for (line, name, fate) in rules("refused.txt", refused, read_refused)? {
            decide(&mut fates, &numbers, name, fate).map_err(|message| PolicyError { file: "refused.txt", line, message })?;
        }
        match numbers.keys().find(|name| !fates.contains_key(*name)) {
            None => Ok(Self { numbers, fates }),
            Some(name) => {
                let message = format!("`{name}` is in neither allow.txt nor refused.txt");
                Err(PolicyError { file: "numbers.txt", line: 0, message })
            }
        }
    }

    /// Every call that the architecture has, by number, with its fate in that kind of sandbox.
    pub(crate) fn calls(&self, architecture: Architecture, variant: Variant) -> BTreeMap<u32, (&str, &Verdict)> {
        let number = |number: &Number| match architecture {
            Architecture::X86_64 => number.x86_64,
            Architecture::Aarch64 => number.aarch64,
        };
        let mut calls = BTreeMap::new();
        for (name, fate) in &self.fates {
            let verdict = match variant {
                Variant::General => &fate.general,
                Variant::ExecList => &fate.exec_list,
            };
            if let Some(number) = self.numbers.get(name).and_then(number) {
                calls.insert(number, (name.as_str(), verdict));
            }
        }
        calls
    }
}

/// Splits a file into rules, each with its line number, and has their part before the reason read.
fn rules<'a>(
    file: &'static str,
    text: &'a str,
    read: impl Fn(&'a str) -> Result<(&'a str, Fate), String>,
) -> Result<Vec<(usize, &'a str, Fate)>, PolicyError> {
    let mut rules = Vec::new();
    for (line, content) in lines(text) {
        let rule = match content.split_once('#') {
            None => Err("a reason after `#` is missing".into()),
            Some((_, reason)) if reason.trim().is_empty() => Err("the reason after `#` is empty".into()),
            Some((rule, _)) => read(rule.trim()),
        };
        let (name, fate) = rule.map_err(|message| PolicyError { file, line, message })?;
        rules.push((line, name, fate));
    }
    Ok(rules)
}

fn decide(fates: &mut BTreeMap<String, Fate>, numbers: &BTreeMap<String, Number>, name: &str, fate: Fate) -> Result<(), String> {
    if !numbers.contains_key(name) {
        return Err(format!("`{name}` is not in numbers.txt"));
    }
    match fates.insert(name.to_owned(), fate) {
        None => Ok(()),
        Some(_) => Err(format!("`{name}` is decided twice")),
    }
}

fn read_allowed(rule: &str) -> Result<(&str, Fate), String> {
    if let Some(name) = rule.strip_suffix(" unless exec-list") {
        return Ok((name, Fate { general: Verdict::Allow, exec_list: Verdict::Refuse }));
    }
    let (name, verdict) = match rule.split_once(" if ") {
        Some((name, condition)) => (name, Verdict::AllowIf(read_condition(condition)?)),
        None => (rule, Verdict::Allow),
    };
    Ok((name, Fate { general: verdict.clone(), exec_list: verdict }))
}

fn read_refused(rule: &str) -> Result<(&str, Fate), String> {
    if rule.contains(char::is_whitespace) {
        return Err("a refused call has no condition".into());
    }
    Ok((rule, Fate { general: Verdict::Refuse, exec_list: Verdict::Refuse }))
}

fn read_numbers(text: &str) -> Result<BTreeMap<String, Number>, PolicyError> {
    let mut numbers = BTreeMap::new();
    let mut taken = [BTreeSet::new(), BTreeSet::new()];
    for (line, content) in lines(text) {
        let fault = |message: &str| PolicyError { file: "numbers.txt", line, message: message.into() };
        let fields: Vec<&str> = content.split_whitespace().collect();
        let [name, x86_64, aarch64] = fields.as_slice() else {
            return Err(fault("expected a name and two numbers"));
        };
        let mut found = [None, None];
        for ((field, taken), found) in [x86_64, aarch64].into_iter().zip(&mut taken).zip(&mut found) {
            if *field != "-" {
                let number: u32 = field.parse().map_err(|_| fault("a number is not a number or `-`"))?;
                if number > HIGHEST {
                    return Err(fault("the number is beyond those of any call"));
                }
                if !taken.insert(number) {
                    return Err(fault("the number is another call's"));
                }
                *found = Some(number);
            }
        }
        let [x86_64, aarch64] = found;
        if numbers.insert((*name).to_owned(), Number { x86_64, aarch64 }).is_some() {
            return Err(fault("the name appears twice"));
        }
    }
    Ok(numbers)
}

/// The lines that say something, numbered from 1.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .map(|(index, content)| (index + 1, content.trim()))
        .filter(|(_, content)| !content.is_empty() && !content.starts_with('#'))
}

fn read_condition(text: &str) -> Result<Condition, String> {
    let (tests, errno) = text.split_once(" else ").ok_or("a condition needs `else ERRNO`")?;
    let otherwise = match errno.trim() {
        "EPERM" => Errno::NotPermitted,
        "ENOENT" => Errno::NoEntry,
        "EINVAL" => Errno::Invalid,
        "EAFNOSUPPORT" => Errno::NoSuchFamily,
        other => return Err(format!("`{other}` is not one of the known error names")),
    };
    let alternatives =
        tests.split(" or ").map(|alternative| alternative.split(" and ").map(read_test).collect()).collect::<Result<_, _>>()?;
    Ok(Condition { alternatives, otherwise })
}

fn read_test(text: &str) -> Result<Test, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (argument, mask, operator, value) = match words.as_slice() {
        [argument, operator, value] => (*argument, None, *operator, *value),
        [argument, "&", mask, operator, value] => (*argument, Some(*mask), *operator, *value),
        _ => return Err(format!("`{text}` is not a test")),
    };
    let argument = match argument.strip_prefix("arg").map(str::parse::<u8>) {
        Some(Ok(argument)) if argument < 6 => argument,
        _ => return Err(format!("`{argument}` is not arg0 to arg5")),
    };
    let comparison = match (operator, mask) {
        ("in", _) => Comparison::OneOf(value.split(',').map(read_value).collect::<Result<_, _>>()?),
        ("==", _) => Comparison::OneOf(vec![read_value(value)?]),
        ("!=", None) => Comparison::Not(read_value(value)?),
        ("<=", None) => Comparison::AtMost(read_value(value)?),
        (">=", None) => Comparison::AtLeast(read_value(value)?),
        _ => return Err(format!("`{operator}` is not a comparison, or not one that takes a mask")),
    };
    let mask = mask.map_or(Ok(u32::MAX), read_value)?;
    if let Comparison::OneOf(values) = &comparison
        && values.iter().any(|value| value & !mask != 0)
    {
        return Err(format!("`{text}` can never hold: the value has bits outside the mask"));
    }
    Ok(Test { argument, mask, comparison })
}

fn read_value(text: &str) -> Result<u32, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| format!("`{text}` is not a 32-bit number"))
}

impl fmt::Display for PolicyError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(formatter, "seccomp/{}: {}", self.file, self.message),
            line => write!(formatter, "seccomp/{}:{line}: {}", self.file, self.message),
        }
    }
}

impl std::error::Error for PolicyError {}
