//! The cases: data with an id, a source, an attempt, and what is expected on each wall.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::error::SuiteError;
use crate::target::Target;

/// The files of cases, embedded so that the runner is one file that can be copied.
const FILES: &[(&str, &str)] = &[
    ("cases/allowed.toml", include_str!("../cases/allowed.toml")),
    ("cases/bad-input.toml", include_str!("../cases/bad-input.toml")),
    ("cases/escape-exec.toml", include_str!("../cases/escape-exec.toml")),
    ("cases/escape-files.toml", include_str!("../cases/escape-files.toml")),
    ("cases/escape-ipc.toml", include_str!("../cases/escape-ipc.toml")),
    ("cases/escape-machine.toml", include_str!("../cases/escape-machine.toml")),
    ("cases/escape-namespaces.toml", include_str!("../cases/escape-namespaces.toml")),
    ("cases/escape-network.toml", include_str!("../cases/escape-network.toml")),
    ("cases/escape-proc.toml", include_str!("../cases/escape-proc.toml")),
    ("cases/escape-processes.toml", include_str!("../cases/escape-processes.toml")),
    ("cases/escape-reach.toml", include_str!("../cases/escape-reach.toml")),
    ("cases/escape-shell.toml", include_str!("../cases/escape-shell.toml")),
    ("cases/escape-surface.toml", include_str!("../cases/escape-surface.toml")),
    ("cases/files-host.toml", include_str!("../cases/files-host.toml")),
    ("cases/files-workspace.toml", include_str!("../cases/files-workspace.toml")),
    ("cases/lifecycle.toml", include_str!("../cases/lifecycle.toml")),
    ("cases/limits-host.toml", include_str!("../cases/limits-host.toml")),
    ("cases/limits.toml", include_str!("../cases/limits.toml")),
];

/// What a case is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Family {
    /// Reaching what lies outside.
    Escape,
    /// Taking more than was given.
    Limits,
    /// The host's own file code, and the workspace.
    Files,
    /// Beginning, end, and what is left.
    Lifecycle,
    /// What makes no sense must be an error.
    BadInput,
    /// No attempts but controls: what was allowed must get through.
    Allowed,
}

impl Family {
    /// As a heading.
    pub fn title(self) -> &'static str {
        match self {
            Self::Escape => "Escape",
            Self::Limits => "Limits",
            Self::Files => "Files",
            Self::Lifecycle => "Lifecycle",
            Self::BadInput => "Bad input",
            Self::Allowed => "What is allowed",
        }
    }
}

/// What came of a case, or must.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The wall held.
    Held,
    /// The attacker got what it wanted.
    Open,
    /// The case makes no sense on this wall.
    NotApplicable,
}

impl Verdict {
    /// As on the page.
    pub fn name(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Open => "open",
            Self::NotApplicable => "n/a",
        }
    }

    /// From the page or a case.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Held, Self::Open, Self::NotApplicable].into_iter().find(|verdict| verdict.name() == name)
    }
}

/// What is expected on one wall, and why if that needs saying.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expectation {
    /// The verdict.
    pub verdict: Verdict,
    /// Why, where it is not what a reader would expect.
    pub why: String,
}

/// The sandbox that a case runs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ground {
    /// Shared by all cases that say nothing: overlay workspace, no exec list, no limits.
    #[default]
    Shared,
    /// Shared by all that need one: an exec list that holds the probe and bash.
    Listed,
    /// Its own, with a workspace that is written through and an exec list that holds the exam's programs.
    Granted,
    /// Shared by all that need one: a workspace that is written through.
    Rw,
    /// Its own, with small limits.
    Limited,
    /// Its own, with a way out to a few hosts and a secret for two of them ([`crate::reach`]).
    Reach,
}

/// What is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attempt {
    /// A function of the probe, run inside.
    Probe(String),
    /// A script, run inside under `bash`.
    Script(Script),
    /// A function of the suite, run outside against the library.
    Host(String),
}

/// A script and how its effect is seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    /// What runs inside.
    pub script: String,
    /// What is prepared outside before.
    pub setup: Option<String>,
    /// What it is after.
    pub effect: Effect,
}

/// What a script is after.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// The program that is on no list runs.
    Exec,
    /// The file beside the workspace is printed.
    Read,
    /// The caller's token is printed.
    Env,
    /// A file appears outside.
    Write,
    /// A server outside gets the case's mark, or the token with it.
    Sent,
}

/// One case.
#[derive(Debug, Clone)]
pub struct Case {
    /// Unique.
    pub id: String,
    /// What it is about.
    pub family: Family,
    /// One line for people.
    pub title: String,
    /// Where the idea comes from.
    pub source: String,
    /// What is done.
    pub attempt: Attempt,
    /// Where.
    pub ground: Ground,
    /// A file on the host that is there only if the attempt got through; then the attempt's own word does not count.
    pub trace: Option<String>,
    expect: BTreeMap<String, Expectation>,
}

impl Case {
    /// What is expected on a wall.
    pub fn expectation(&self, target: Target) -> Expectation {
        let missing = Expectation { verdict: Verdict::NotApplicable, why: "nothing is said about this wall".into() };
        target.expectations().iter().find_map(|name| self.expect.get(*name)).cloned().unwrap_or(missing)
    }

    /// Everything that is expected, by the names that the case uses.
    pub fn expectations(&self) -> &BTreeMap<String, Expectation> {
        &self.expect
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    family: Family,
    /// Taken by cases that say nothing of their own.
    #[serde(default)]
    source: String,
    #[serde(default)]
    ground: Ground,
    #[serde(default)]
    expect: BTreeMap<String, String>,
    case: Vec<RawCase>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCase {
    id: String,
    title: String,
    #[serde(default)]
    source: String,
    probe: Option<String>,
    script: Option<String>,
    setup: Option<String>,
    effect: Option<Effect>,
    host: Option<String>,
    ground: Option<Ground>,
    trace: Option<String>,
    #[serde(default)]
    expect: BTreeMap<String, String>,
}

/// All cases, checked.
pub fn all() -> Result<Vec<Case>, SuiteError> {
    let mut cases: Vec<Case> = Vec::new();
    let mut ids = BTreeSet::new();
    for (file, text) in FILES {
        let wrong = |why: String| SuiteError::Cases { file, why };
        let raw: RawFile = toml::from_str(text).map_err(|e| wrong(e.to_string()))?;
        for case in raw.case {
            let id = case.id.clone();
            let case = finish(case, raw.family, &raw.source, raw.ground, &raw.expect).map_err(|why| wrong(format!("`{id}`: {why}")))?;
            if !ids.insert(case.id.clone()) {
                return Err(wrong(format!("`{id}` is there twice")));
            }
            cases.push(case);
        }
    }
    Ok(cases)
}

fn finish(raw: RawCase, family: Family, source: &str, ground: Ground, defaults: &BTreeMap<String, String>) -> Result<Case, String> {
    let attempt = match (raw.probe, raw.script, raw.host) {
        (Some(name), None, None) => Attempt::Probe(name),
        (None, Some(script), None) => {
            let effect = raw.effect.ok_or("a script needs an `effect`")?;
            Attempt::Script(Script { script, setup: raw.setup, effect })
        }
        (None, None, Some(name)) => Attempt::Host(name),
        _ => return Err("exactly one of `probe`, `script` and `host` is needed".into()),
    };
    let mut expect = BTreeMap::new();
    for (name, text) in defaults.iter().chain(&raw.expect) {
        if !Target::ALL.iter().any(|target| target.expectations().contains(&name.as_str())) {
            return Err(format!("`{name}` is no wall"));
        }
        let (verdict, why) = text.split_once(": ").unwrap_or((text, ""));
        let verdict = Verdict::named(verdict).ok_or_else(|| format!("`{verdict}` is not held, open or n/a"))?;
        expect.insert(name.clone(), Expectation { verdict, why: why.to_owned() });
    }
    let source = if raw.source.is_empty() { source.to_owned() } else { raw.source };
    let case =
        Case { id: raw.id, family, title: raw.title, source, attempt, ground: raw.ground.unwrap_or(ground), trace: raw.trace, expect };
    check(&case)?;
    Ok(case)
}

/// What every case must say.
fn check(case: &Case) -> Result<(), String> {
    if case.source.is_empty() {
        return Err("no source is given".into());
    }
    for target in Target::ALL {
        let name = target.name();
        if !target.expectations().iter().any(|wall| case.expect.contains_key(*wall)) {
            return Err(format!("nothing is said about `{name}`"));
        }
        let expected = case.expectation(target);
        let needs_reason = match (target, expected.verdict) {
            (_, Verdict::NotApplicable)
            | (
                Target::JailRoot | Target::JailUser | Target::StreamRoot | Target::StreamUser | Target::TemplateRoot | Target::TemplateUser,
                Verdict::Open,
            ) => true,
            // A case that is held where there is no wall proves nothing by itself; it says why it cannot be open.
            (Target::Local, Verdict::Held) => case.family == Family::Escape,
            _ => false,
        };
        if needs_reason && expected.why.is_empty() {
            return Err(format!("`{name}` is {} without a reason: write `{}: why`", expected.verdict.name(), expected.verdict.name()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cases_are_whole() {
        let cases = all().unwrap();
        assert!(cases.len() >= 10, "{}", cases.len());
    }

    #[test]
    fn a_case_that_proves_nothing_must_say_so() {
        let text = |expect: &str| {
            format!("family = \"escape\"\nsource = \"x\"\n[[case]]\nid = \"a\"\ntitle = \"a\"\nprobe = \"p\"\nexpect = {{ {expect} }}\n")
        };
        let parse = |text: &str| {
            let raw: RawFile = toml::from_str(text).unwrap();
            let case = raw.case.into_iter().next().unwrap();
            finish(case, raw.family, &raw.source, raw.ground, &raw.expect).map(|_| ())
        };
        assert_eq!(parse(&text("jail = \"held\", local = \"open\", bubblewrap = \"open\"")), Ok(()));
        assert!(parse(&text("jail = \"held\", local = \"held\", bubblewrap = \"open\"")).is_err());
        assert_eq!(parse(&text("jail = \"held\", local = \"held: the kernel refuses\", bubblewrap = \"open\"")), Ok(()));
        assert!(parse(&text("jail = \"held\", local = \"open\"")).is_err(), "bubblewrap is missing");
        assert!(parse(&text("jail = \"helt\", local = \"open\", bubblewrap = \"open\"")).is_err());
        assert!(parse(&text("docker = \"held\", jail = \"held\", local = \"open\", bubblewrap = \"open\"")).is_err());
    }
}
