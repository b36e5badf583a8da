//! Whether what was typed may run: the rules in force are asked before anything is started.
//!
//! Loading is `stockade-store`'s, deciding is `stockade-policy`'s; here the question is put together, a person is asked where the rules want
//! one, and the answer becomes words, a value of `run --json`, and an exec list.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, IsTerminal, Read};
use std::path::{Path, PathBuf};

use stockade_core::host::HostPattern;
use stockade_core::result::Decision as Told;
use stockade_policy::shell::{self, Programs, Refusal, Script};
use stockade_policy::{Decision, Floor, Judgement, Policies, Principal, Request, Verdict};
use stockade_store::person;
use stockade_store::places::Places;
use stockade_store::policy::{OnPath, PolicyError, PolicyLayers, ProjectTrust};

use crate::Context;
use crate::failure::Failure;

/// The one shell that runs scripts.
pub(crate) const SHELL: &str = "bash";
/// Longer than any answer to a question.
const MOST_ANSWER: u64 = 64;
/// Ports of a pattern that names none.
const USUAL_PORTS: [u16; 2] = [80, 443];

/// The rules in force for a workspace.
#[derive(Debug)]
pub(crate) struct Rules {
    layers: PolicyLayers,
    /// `None` where there is no rule at all, so that nothing need be asked.
    policies: Option<Policies>,
}

/// What is to run.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wanted<'a> {
    /// A program and its arguments.
    Program(&'a [OsString]),
    /// A script for the shell.
    Shell(&'a OsStr),
}

/// Where it is to run.
#[derive(Debug)]
pub(crate) struct Ground<'a> {
    /// The directories of `PATH`.
    pub(crate) path: &'a [PathBuf],
    /// The directory in which it starts.
    pub(crate) current: &'a Path,
    /// Directories that it can write to.
    pub(crate) writable: Vec<PathBuf>,
}

/// What came of it.
#[derive(Debug)]
pub(crate) enum Answer {
    /// It may run.
    Admitted(Admission),
    /// It may not, and nothing ran.
    Denied(Told),
}

/// What may run, and what the rules said.
#[derive(Debug)]
pub(crate) struct Admission {
    /// For `run --json`.
    pub(crate) told: Told,
    /// The only programs that may run, where the rules name them.
    exec_list: Option<Vec<String>>,
}

impl Rules {
    /// Reads the rules that concern a workspace. Rules that do not stand stop everything.
    pub(crate) fn load(places: &Places, workspace: &Path) -> Result<Self, Failure> {
        let layers = PolicyLayers::load(places, Some(workspace)).map_err(|error| failure(&error))?;
        let policies = if layers.is_empty() { None } else { Some(layers.compile(places).map_err(|error| failure(&error))?) };
        Ok(Self { layers, policies })
    }

    /// The files they came from.
    pub(crate) fn layers(&self) -> &PolicyLayers {
        &self.layers
    }

    /// The rules, where there are any.
    pub(crate) fn policies(&self) -> Option<&Policies> {
        self.policies.as_ref()
    }

    /// Asks whether something may run; a person answers where the rules say so.
    pub(crate) fn admit(&self, wanted: Wanted<'_>, ground: &Ground<'_>, context: &Context) -> Result<Answer, Failure> {
        let Some(policies) = &self.policies else {
            return Ok(Answer::Admitted(Admission { told: Told::no_policy(), exec_list: None }));
        };
        let programs = ground.programs();
        let script = classify(wanted, &programs);
        let judgement = policies.judge(&Principal::human(person::name()), &script, self.layers.floor);
        self.mention_project(&judgement, context);
        let told = told(&judgement.decision);
        let allowed = match judgement.decision.verdict {
            Verdict::Allow => true,
            Verdict::Ask => is_approved(&judgement, context)?,
            Verdict::Deny => false,
        };
        if !allowed {
            return Ok(Answer::Denied(told));
        }
        let exec_list = judgement.exec_list.map(|list| existing(list, wanted, &programs));
        Ok(Answer::Admitted(Admission { told, exec_list }))
    }

    /// Keeps the hosts that the person's or the machine's `connect` rules permit.
    pub(crate) fn permitted_hosts(&self, hosts: Vec<HostPattern>, context: &Context) -> Vec<HostPattern> {
        let (Some(policies), Floor::Deny) = (&self.policies, self.layers.floor) else { return hosts };
        let principal = Principal::human(person::name());
        let (kept, dropped): (Vec<_>, Vec<_>) = hosts.into_iter().partition(|pattern| {
            let shown = pattern.to_string();
            pattern.ports().iter().all(|port| {
                let host = if pattern.ports() == USUAL_PORTS { &shown } else { shown.strip_suffix(&format!(":{port}")).unwrap_or(&shown) };
                let request = Request::Connect { host, port: *port, tls: *port != 80, method: "", path: "", secret: None };
                policies.decide(&principal, &request, self.layers.floor).verdict == Verdict::Allow
            })
        });
        for pattern in dropped {
            context.printer.warning(format!("policy: no `connect` rule permits `{pattern}`, so it cannot be reached"));
        }
        kept
    }

    /// Permits that nobody agreed to are left out; whoever is denied should know that there are some.
    fn mention_project(&self, judgement: &Judgement, context: &Context) {
        if judgement.decision.verdict != Verdict::Deny {
            return;
        }
        match self.layers.project {
            ProjectTrust::Unknown => {
                context.printer.note("this project has rules of its own; `stockade trust project` lets its permits count")
            }
            ProjectTrust::Changed => context.printer.note("this project's rules changed; `stockade trust project` agrees to them again"),
            ProjectTrust::Nothing | ProjectTrust::Trusted => {}
        }
    }
}

impl Admission {
    /// The exec list of the call: what the rules name, and no more than a person's own flag does.
    pub(crate) fn narrow(&self, asked: Option<Vec<String>>) -> Option<Vec<String>> {
        match (asked, &self.exec_list) {
            (Some(asked), Some(permitted)) => Some(asked.into_iter().filter(|program| permitted.contains(program)).collect()),
            (Some(list), None) => Some(list),
            (None, permitted) => permitted.clone(),
        }
    }

    /// Whether a sandbox that stands already lets run no more than the rules name.
    pub(crate) fn is_held_by(&self, exec_list: Option<&[String]>) -> bool {
        match (&self.exec_list, exec_list) {
            (None, _) => true,
            (Some(permitted), Some(held)) => held.iter().all(|program| permitted.contains(program)),
            (Some(_), None) => false,
        }
    }
}

impl Ground<'_> {
    /// Looks programs up as the sandbox will.
    pub(crate) fn programs(&self) -> OnPath {
        OnPath { directories: self.path.to_vec(), current: self.current.to_owned(), writable: self.writable.clone() }
    }
}

/// Reads what is to run.
pub(crate) fn classify(wanted: Wanted<'_>, programs: &dyn Programs) -> Result<Script, Refusal> {
    match wanted {
        Wanted::Shell(script) => match script.to_str() {
            Some(script) => shell::classify(script, programs),
            None => Err(Refusal::Unparsable("it is not UTF-8".to_owned())),
        },
        Wanted::Program(argv) => {
            let argv: Vec<Option<&str>> = argv.iter().map(|argument| argument.to_str()).collect();
            shell::classify_argv(&argv, programs)
        }
    }
}

/// A decision in the shape of `run --json`.
pub(crate) fn told(decision: &Decision) -> Told {
    Told {
        verdict: decision.verdict.name().to_owned(),
        rule: decision.rule.clone(),
        reason: decision.reason.clone(),
        source: decision.source(),
        suggest: decision.suggest.clone(),
    }
}

/// Says that nothing ran, and why.
pub(crate) fn explain_denial(told: &Told, context: &Context) {
    let reason = told.reason.as_deref().unwrap_or(if told.verdict == "ask" { "nobody approved it" } else { "no rule permits it" });
    let source = told.source.as_ref().map_or(String::new(), |source| format!(", {source}"));
    context.printer.banner(format!("denied by policy: {reason} ({}{source})", told.rule));
    if let Some(rule) = &told.suggest {
        context.printer.note("the narrowest rule that would allow it (`stockade policy allow` writes it):");
        for line in rule.lines() {
            context.printer.note(line);
        }
    }
}

/// Files that cannot be read, and rules that do not stand.
pub(crate) fn failure(error: &PolicyError) -> Failure {
    match error {
        PolicyError::Faults(faults) => {
            let first = faults.0.first().map_or_else(String::new, stockade_policy::Fault::headline);
            let others = faults.0.len().saturating_sub(1);
            let message = if others == 0 { first } else { format!("{first} (and {others} more)") };
            Failure::new("policy", message).with_hint("stockade policy check")
        }
        error => Failure::from_error("policy", error),
    }
}

/// Programs of the list that there are, and the shell where one runs. What is not there cannot run anyway.
fn existing(list: Vec<String>, wanted: Wanted<'_>, programs: &OnPath) -> Vec<String> {
    let is_there = |program: &String| if program.contains('/') { Path::new(program).is_file() } else { programs.exists(program) };
    let mut list: Vec<String> =
        list.into_iter().filter(|program| !program.contains('/') || program.starts_with('/')).filter(is_there).collect();
    if matches!(wanted, Wanted::Shell(_)) && !list.iter().any(|program| program == SHELL) {
        list.push(SHELL.to_owned());
    }
    list
}

/// Asks at the terminal; where there is none, the answer is no.
fn is_approved(judgement: &Judgement, context: &Context) -> Result<bool, Failure> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() || !std::io::stderr().is_terminal() {
        return Ok(false);
    }
    for (command, decision) in judgement.commands.iter().filter(|(_, decision)| decision.verdict == Verdict::Ask) {
        let reason = decision.reason.as_deref().unwrap_or("the rules want a person to look");
        context.printer.note(format!("`{command}`: {reason} ({})", decision.rule));
    }
    context.printer.note("run it? [y/N]");
    let mut answer = String::new();
    let read = stdin.lock().take(MOST_ANSWER).read_line(&mut answer);
    read.map_err(|error| Failure::new("policy", format!("reading the answer: {error}")))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
