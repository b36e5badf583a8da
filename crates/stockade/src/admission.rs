//! Whether what was typed may run: the rules in force are asked before anything is started.
//!
//! Loading is `stockade-store`'s, deciding is `stockade-policy`'s; here the question is put together, a person is asked where the rules want
//! one, and the answer becomes words, a value of `run --json`, and an exec list.

use std::cell::OnceCell;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use stockade_core::escape::escape;
use stockade_core::host::HostPattern;
use stockade_core::reach::{Reach, Unlisted};
use stockade_core::result::Decision as Told;
use stockade_gateway::approvals;
use stockade_policy::capability::Effect;
use stockade_policy::shell::{self, Programs, Refusal, Script, Standing};
use stockade_policy::{
    Decision, Floor, Judgement, Layer, Policies, Principal, PrincipalKind, Request, RuleReference, Verdict, narrowest_rule,
};
use stockade_store::places::Places;
use stockade_store::policy::{OnPath, PolicyError, PolicyLayers, ProjectTrust};

use crate::Context;
use crate::approval::{OwnWord, Question};
use crate::egress::judge;
use crate::engine::asker::Asker;
use crate::failure::Failure;
use crate::receipts::digest_of;

/// The one shell that runs scripts.
pub(crate) const SHELL: &str = "bash";
/// The port whose traffic is not TLS.
const PLAIN_PORT: u16 = 80;
/// A host that no pattern can name: what the rules say to it, they say to any.
const ANY_HOST: &str = "*";
/// Why a person is asked, where a rule gives no reason.
const LOOK: &str = "the rules want a person to look";

/// The rules in force for a workspace.
#[derive(Debug)]
pub(crate) struct Rules {
    layers: PolicyLayers,
    places: Places,
    /// Who asks.
    asker: Asker,
    /// Compiled when first asked: where the same was permitted before, they need not be.
    policies: OnceCell<Policies>,
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
    /// It may run if somebody says so.
    Asked(Admission, Box<Question>),
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
    /// Reads the rules that concern a workspace, for the person at the command line. Rules that do not stand stop everything.
    pub(crate) fn load(places: &Places, workspace: &Path) -> Result<Self, Failure> {
        Self::load_for(Asker::Person, places, workspace)
    }

    /// The same for whoever asks.
    pub(crate) fn load_for(asker: Asker, places: &Places, workspace: &Path) -> Result<Self, Failure> {
        let layers = PolicyLayers::load(places, Some(workspace)).map_err(|error| failure(&error))?;
        let rules = Self { layers, places: places.clone(), asker, policies: OnceCell::new() };
        if !rules.layers.is_empty() && !rules.layers.has_passed(places) {
            rules.compiled()?;
        }
        Ok(rules)
    }

    /// The files they came from.
    pub(crate) fn layers(&self) -> &PolicyLayers {
        &self.layers
    }

    /// Who asks.
    pub(crate) fn asker(&self) -> &Asker {
        &self.asker
    }

    /// Why an agent may do nothing at all: no person and no administrator wrote down what agents may do.
    pub(crate) fn refusal_of_agents(&self) -> Option<Told> {
        (self.asker.agent().is_some() && self.layers.floor == Floor::NoPolicy).then(no_agents)
    }

    /// What the rules say to one request that is no program.
    pub(crate) fn decide(&self, request: &Request<'_>) -> Result<Decision, Failure> {
        Ok(self.compiled()?.decide(&self.asker.principal(), request, self.layers.floor))
    }

    /// The rules, where there are any.
    pub(crate) fn policies(&self) -> Result<Option<&Policies>, Failure> {
        if self.layers.is_empty() { Ok(None) } else { self.compiled().map(Some) }
    }

    fn compiled(&self) -> Result<&Policies, Failure> {
        if let Some(policies) = self.policies.get() {
            return Ok(policies);
        }
        let policies = self.layers.compile(&self.places).map_err(|error| failure(&error))?;
        Ok(self.policies.get_or_init(|| policies))
    }

    /// Asks whether something may run; a person answers where the rules say so.
    pub(crate) fn admit(&self, wanted: Wanted<'_>, ground: &Ground<'_>, context: &Context) -> Result<Answer, Failure> {
        let programs = ground.programs();
        let starts_with = match wanted {
            Wanted::Shell(_) => Some(SHELL),
            Wanted::Program(_) => None,
        };
        if let Some(told) = self.refusal_of_agents() {
            return Ok(Answer::Denied(told));
        }
        if self.layers.is_empty() {
            return Ok(Answer::Admitted(Admission { told: Told::no_policy(), exec_list: None, starts_with, programs }));
        }
        let script = classify(wanted, &programs);
        let judgement = self.layers.judge(&self.places, &self.asker.principal(), &script, || self.compiled())?;
        self.mention_project(&judgement, context);
        let told = told(&judgement.decision);
        let question = match judgement.decision.verdict {
            Verdict::Allow => None,
            Verdict::Ask => Some(self.question(wanted, script.as_ref().ok(), &judgement, &told)?),
            Verdict::Deny => return Ok(Answer::Denied(told)),
        };
        let exec_list = judgement.exec_list.map(|list| existing(list, &programs));
        let admission = Admission { told, exec_list, starts_with, programs };
        Ok(match question {
            Some(question) => Answer::Asked(admission, Box::new(question)),
            None => Answer::Admitted(admission),
        })
    }

    /// What a person is asked.
    fn question(&self, wanted: Wanted<'_>, script: Option<&Script>, judgement: &Judgement, told: &Told) -> Result<Question, Failure> {
        let principal = self.asker.principal();
        let calls = script.map_or(&[][..], |script| script.calls.as_slice());
        let asked = judgement.commands.iter().zip(calls).filter(|((_, decision), _)| decision.verdict == Verdict::Ask);
        let asked: Vec<Request<'_>> = asked.map(|(_, call)| Request::Exec(call)).collect();
        let mut rules: Vec<String> = asked.iter().map(|request| narrowest_rule(&principal, request)).collect();
        rules.dedup();
        let own = own_word(self.compiled()?, &principal, &asked, Effect::Write);
        let bytes = |words: &[OsString]| words.iter().map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
        let (wanted, first, words) = match wanted {
            Wanted::Program(argv) => {
                (approvals::Wanted::Program(bytes(argv)), argv.first().cloned(), argv.iter().skip(1).cloned().collect())
            }
            Wanted::Shell(script) => {
                let argv = [SHELL.into(), "-c".into(), script.to_owned()];
                (approvals::Wanted::Script { script: script.as_bytes().to_vec(), argv: bytes(&argv) }, Some(SHELL.into()), pieces(script))
            }
        };
        Ok(Question {
            told: told.clone(),
            because: because(judgement),
            rules,
            policy: digest_of(&self.layers.files).unwrap_or_default(),
            principal: principal.named(),
            effect: Effect::Write,
            wanted,
            programs: first.into_iter().chain(calls.iter().map(|call| OsString::from(&call.program))).collect(),
            words,
            own,
        })
    }

    /// What a person is asked about a file that no program uses.
    pub(crate) fn question_about_file(
        &self,
        request: &Request<'_>,
        decision: &Decision,
        wanted: approvals::Wanted,
    ) -> Result<Question, Failure> {
        let principal = self.asker.principal();
        let effect = if matches!(request, Request::Write { .. }) { Effect::Write } else { Effect::Read };
        let why = decision.reason.as_deref().unwrap_or(LOOK);
        Ok(Question {
            told: told(decision),
            because: vec![format!("{why} ({})", decision.rule)],
            rules: vec![narrowest_rule(&principal, request)],
            policy: digest_of(&self.layers.files).unwrap_or_default(),
            principal: principal.named(),
            effect,
            wanted,
            programs: Vec::new(),
            words: Vec::new(),
            own: own_word(self.compiled()?, &principal, std::slice::from_ref(request), effect),
        })
    }

    /// What the person's or the machine's `connect` rules permit of a list of hosts, port by port.
    pub(crate) fn permitted_hosts(&self, hosts: Vec<HostPattern>, context: &Context) -> Result<Vec<HostPattern>, Failure> {
        if !self.decide_hosts() || hosts.is_empty() {
            return Ok(hosts);
        }
        let policies = self.compiled()?;
        if policies.look_at_requests() {
            // Egress asks about each request, so none of these hosts is open yet.
            return Ok(hosts);
        }
        let mut kept = Vec::new();
        for pattern in hosts {
            let host = pattern.without_port();
            let ports: Vec<u16> = pattern.ports().iter().copied().filter(|port| self.permits_host(policies, &host, *port)).collect();
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
        Ok(kept)
    }

    /// What egress is to ask about each request, where rules need to know more than host and port.
    pub(crate) fn about_requests(&self, reach: &Reach) -> Result<Option<String>, Failure> {
        if !self.decide_hosts() || reach.is_nothing() {
            return Ok(None);
        }
        // While learning, hosts are reached that no call names; each is asked about when it is.
        if reach.unlisted == Unlisted::Refuse && !self.compiled()?.look_at_requests() {
            return Ok(None);
        }
        judge::write(&self.layers.files, self.asker.principal(), self.layers.floor).map(Some)
    }

    /// Whether hosts that nobody listed may be reached, as `--learn` would let them.
    pub(crate) fn permits_every_host(&self) -> Result<bool, Failure> {
        if !self.decide_hosts() {
            return Ok(true);
        }
        let policies = self.compiled()?;
        Ok(self.permits_host(policies, ANY_HOST, 443) && self.permits_host(policies, ANY_HOST, PLAIN_PORT))
    }

    /// A forbid counts whoever wrote it; without a policy of a person's or the machine's the floor permits the rest.
    fn decide_hosts(&self) -> bool {
        !self.layers.is_empty()
    }

    fn permits_host(&self, policies: &Policies, host: &str, port: u16) -> bool {
        let request = connect(host, port);
        policies.decide(&self.asker.principal(), &request, self.layers.floor).verdict == Verdict::Allow
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

/// The answer to every agent where no person and no administrator wrote down what agents may do.
pub(crate) fn no_agents() -> Told {
    Told {
        verdict: Verdict::Deny.name().to_owned(),
        rule: "no-policy".to_owned(),
        reason: Some("no policy of a person or of this machine says what agents may do".to_owned()),
        source: None,
        suggest: Some("stockade init".to_owned()),
        approval_id: None,
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
        approval_id: None,
    }
}

/// The denial of what rules want a person to see, where nobody can be asked.
pub(crate) fn unasked(told: Told) -> Told {
    let why = told.reason.as_deref().unwrap_or(LOOK);
    Told { reason: Some(format!("{why}; nobody can be asked from here")), ..told }
}

/// Whether the client of an agent may itself say yes to all that rules ask about: it is no person, so the rules have to say so for each.
pub(crate) fn own_word(policies: &Policies, principal: &Principal, asked: &[Request<'_>], effect: Effect) -> OwnWord {
    let (effect, method) = (effect.name(), approvals::Method::Elicitation.name());
    let may = |of: &Request<'_>| {
        let request = Request::Approve { of, requester: principal, effect, method };
        let decision = policies.decide(principal, &request, Floor::Deny);
        // Not a project's to say, nor a pack's: they bring the agent what to do.
        let is_own = |rule: &RuleReference| matches!(rule.layer, Layer::User | Layer::Machine);
        decision.verdict == Verdict::Allow && decision.rules.iter().any(is_own)
    };
    let is_agent = principal.kind == PrincipalKind::Agent;
    if is_agent && !asked.is_empty() && asked.iter().all(may) { OwnWord::Counts } else { OwnWord::DoesNotCount }
}

/// Why a person is asked, command by command.
pub(crate) fn because(judgement: &Judgement) -> Vec<String> {
    let asked = judgement.commands.iter().filter(|(_, decision)| decision.verdict == Verdict::Ask);
    let why = |decision: &Decision| decision.reason.clone().unwrap_or_else(|| LOOK.to_owned());
    asked.map(|(command, decision)| format!("{command}: {} ({})", why(decision), decision.rule)).collect()
}

/// Everything in a script that could be the name of a file: more than there are words, so that none is missed.
fn pieces(script: &OsStr) -> Vec<OsString> {
    let separates = |byte: &u8| byte.is_ascii_whitespace() || b";|&<>()\"'`${}=,:".contains(byte);
    let pieces = script.as_bytes().split(separates).filter(|piece| !piece.is_empty());
    let mut pieces: Vec<OsString> = pieces.map(|piece| OsStr::from_bytes(piece).to_owned()).collect();
    pieces.sort();
    pieces.dedup();
    pieces
}

/// Says that nothing ran, and why.
pub(crate) fn explain_denial(told: &Told, context: &Context) {
    let reason = told.reason.as_deref().unwrap_or(if told.verdict == "ask" { "nobody approved it" } else { "no rule permits it" });
    let source = told.source.as_ref().map_or(String::new(), |source| format!(", {source}"));
    if let (Some(_), Some(command)) = (&told.approval_id, &told.suggest) {
        context.printer.banner(format!("waits for approval: {reason} ({}{source})", told.rule));
        // However quiet: without the id nobody could say yes.
        context.printer.banner(format!("a person may now say: {command}"));
        return;
    }
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
        PolicyError::OpenToAll(path) => {
            Failure::from_error("policy", error).with_hint(format!("chmod o-w {}", escape(&path.to_string_lossy())))
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

/// All of it, line by line; an argument list one word per line, so that no word can look like two.
pub(crate) fn shown(wanted: Wanted<'_>) -> Vec<String> {
    match wanted {
        Wanted::Shell(script) => script.to_string_lossy().lines().map(str::to_owned).collect(),
        Wanted::Program(argv) => argv.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
    }
}
