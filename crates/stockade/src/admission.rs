//! Whether what was typed may run: the rules in force are asked before anything is started.
//!
//! Loading is `stockade-store`'s, deciding is `stockade-policy`'s; here the question is put together, a person is asked where the rules want
//! one, and the answer becomes words, a value of `run --json`, and an exec list.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, IsTerminal, Read};
use std::path::{Path, PathBuf};

use stockade_core::host::HostPattern;
use stockade_core::result::Decision as Told;
use stockade_policy::shell::{self, Programs, Refusal, Script, Standing};
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
/// The port whose traffic is not TLS.
const PLAIN_PORT: u16 = 80;
/// A host that no pattern can name: what the rules say to it, they say to any.
const ANY_HOST: &str = "*";

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
    /// What starts it, whatever a list says.
    starts_with: Option<&'static str>,
    /// Where programs are looked up.
    programs: OnPath,
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
        let programs = ground.programs();
        let starts_with = match wanted {
            Wanted::Shell(_) => Some(SHELL),
            Wanted::Program(_) => None,
        };
        let Some(policies) = &self.policies else {
            return Ok(Answer::Admitted(Admission { told: Told::no_policy(), exec_list: None, starts_with, programs }));
        };
        let script = classify(wanted, &programs);
        let judgement = policies.judge(&Principal::human(person::name()), &script, self.layers.floor);
        self.mention_project(&judgement, context);
        let told = told(&judgement.decision);
        let allowed = match judgement.decision.verdict {
            Verdict::Allow => true,
            Verdict::Ask => is_approved(wanted, &judgement, context)?,
            Verdict::Deny => false,
        };
        if !allowed {
            return Ok(Answer::Denied(told));
        }
        let exec_list = judgement.exec_list.map(|list| existing(list, &programs));
        Ok(Answer::Admitted(Admission { told, exec_list, starts_with, programs }))
    }

    /// What the person's or the machine's `connect` rules permit of a list of hosts, port by port.
    pub(crate) fn permitted_hosts(&self, hosts: Vec<HostPattern>, context: &Context) -> Vec<HostPattern> {
        if !self.decide_hosts() {
            return hosts;
        }
        let mut kept = Vec::new();
        for pattern in hosts {
            let host = pattern.without_port();
            let ports: Vec<u16> = pattern.ports().iter().copied().filter(|port| self.permits_host(&host, *port)).collect();
            if ports.len() == pattern.ports().len() {
                kept.push(pattern);
                continue;
            }
            if ports.is_empty() {
                let allow = format!("`stockade policy allow --host {pattern}` adds one");
                context.printer.warning(format!("policy: no `connect` rule permits `{pattern}`, so it cannot be reached; {allow}"));
            }
            kept.extend(ports.into_iter().map(|port| pattern.at_port(port)));
        }
        kept
    }

    /// Whether hosts that nobody listed may be reached, as `--learn` would let them.
    pub(crate) fn permits_every_host(&self) -> bool {
        !self.decide_hosts() || (self.permits_host(ANY_HOST, 443) && self.permits_host(ANY_HOST, PLAIN_PORT))
    }

    /// Without a policy of a person's or the machine's there is nothing to intersect with.
    fn decide_hosts(&self) -> bool {
        self.policies.is_some() && self.layers.floor == Floor::Deny
    }

    fn permits_host(&self, host: &str, port: u16) -> bool {
        let Some(policies) = &self.policies else { return true };
        let request = connect(host, port);
        policies.decide(&Principal::human(person::name()), &request, self.layers.floor).verdict == Verdict::Allow
    }

    /// Permits that nobody agreed to are left out; whoever is denied should know that there are some.
    fn mention_project(&self, judgement: &Judgement, context: &Context) {
        if judgement.decision.verdict != Verdict::Deny {
            return;
        }
        match self.layers.project {
            ProjectTrust::Unknown => {
                context.printer.note("this project has rules of its own; `stockade trust project` lets its permits count");
            }
            ProjectTrust::Changed => context.printer.note("this project's rules changed; `stockade trust project` agrees to them again"),
            ProjectTrust::Nothing | ProjectTrust::Trusted => {}
        }
    }
}

impl Admission {
    /// The exec list of the call: what the rules name, and no more than a person's own flag does; the shell that runs a script is always
    /// there.
    pub(crate) fn narrow(&self, asked: Option<Vec<String>>) -> Option<Vec<String>> {
        let mut list = match (asked, &self.exec_list) {
            (Some(asked), Some(permitted)) => asked.into_iter().filter(|program| self.is_among(program, permitted)).collect(),
            (Some(list), None) => list,
            (None, Some(permitted)) => permitted.clone(),
            (None, None) => return None,
        };
        if let Some(shell) = self.starts_with
            && !self.is_among(shell, &list)
        {
            list.push(shell.to_owned());
        }
        Some(list)
    }

    /// Whether a sandbox that stands already lets run no more than the rules name.
    pub(crate) fn is_held_by(&self, exec_list: Option<&[String]>) -> bool {
        match (&self.exec_list, exec_list) {
            (None, _) => true,
            (Some(permitted), Some(held)) => held.iter().all(|program| self.is_among(program, permitted)),
            (Some(_), None) => false,
        }
    }

    /// Whether a list has a program, by whichever name.
    fn is_among(&self, program: &str, list: &[String]) -> bool {
        let real = |program: &str| {
            let found = if program.contains('/') { self.programs.at(program, Standing::Start) } else { self.programs.named(program) };
            found.path
        };
        list.iter().any(|other| other == program)
            || real(program).is_some_and(|path| list.iter().any(|other| real(other).as_ref() == Some(&path)))
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

/// A question about one port of a host.
pub(crate) fn connect(host: &str, port: u16) -> Request<'_> {
    Request::Connect { host, port, tls: port != PLAIN_PORT, method: "", path: "", secret: None }
}

/// Programs of the list that there are. What is not there cannot run anyway.
fn existing(list: Vec<String>, programs: &OnPath) -> Vec<String> {
    let is_there = |program: &String| if program.contains('/') { Path::new(program).is_file() } else { programs.exists(program) };
    list.into_iter().filter(|program| !program.contains('/') || program.starts_with('/')).filter(is_there).collect()
}

/// Asks at the terminal, showing the whole of it; where there is no terminal, the answer is no.
fn is_approved(wanted: Wanted<'_>, judgement: &Judgement, context: &Context) -> Result<bool, Failure> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() || !std::io::stderr().is_terminal() {
        return Ok(false);
    }
    // Whatever `--quiet` leaves out, a question is not asked blindly.
    context.printer.banner("policy wants a person to approve this:");
    for line in shown(wanted) {
        context.printer.banner(format!("  {line}"));
    }
    for (command, decision) in judgement.commands.iter().filter(|(_, decision)| decision.verdict == Verdict::Ask) {
        let reason = decision.reason.as_deref().unwrap_or("the rules want a person to look");
        context.printer.banner(format!("`{command}`: {reason} ({})", decision.rule));
    }
    context.printer.banner("run it? [y/N]");
    let mut answer = String::new();
    let read = stdin.lock().take(MOST_ANSWER).read_line(&mut answer);
    read.map_err(|error| Failure::new("policy", format!("reading the answer: {error}")))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// All of it, line by line; an argument list one word per line, so that no word can look like two.
pub(crate) fn shown(wanted: Wanted<'_>) -> Vec<String> {
    match wanted {
        Wanted::Shell(script) => script.to_string_lossy().lines().map(str::to_owned).collect(),
        Wanted::Program(argv) => argv.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
    }
}
