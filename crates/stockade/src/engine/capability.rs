//! One call of a capability, put together: its inputs, its argument list, and a sandbox that gives it what its pack asks for and no more.
//!
//! A capability only ever narrows what a sandbox of this person would be: its hosts take the place of the settings' list (a person agreed to
//! them with the pack) unless it says `allowed`, its limits count where they are tighter, and `read` makes the workspace read-only and leaves
//! GET and HEAD.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Map, Value};
use stockade_core::host::intersect;
use stockade_core::limits::Limit;
use stockade_core::path::SafePath;
use stockade_core::reach::{HostUse, Reach, SecretUse, TlsUse};
use stockade_core::route::Method;
use stockade_core::spec::MountMode;
use stockade_gateway::approvals;
use stockade_policy::capability::{
    Capability, CapabilityFacts, CapabilityLimits, CapabilityMount, Effect, ExecList, Hosts, Invocation, Prepared, Refused, from_words,
};
use stockade_policy::{Decision, Floor, Judgement, Policies, PolicyFile, Principal, Request, Verdict, narrowest_rule, shell};
use stockade_store::inputs::Beneath;
use stockade_store::packs::{Packs, Standing};
use stockade_store::programs::{self, Program};

use super::asker::Asker;
use crate::Context;
use crate::admission;
use crate::approval::Question;
use crate::assemble::{Additions, Admitted, Assembled, assemble_with};
use crate::cli::{MountFlag, SandboxFlags};
use crate::commands::pack::{failure, tell_problems};
use crate::failure::Failure;
use crate::receipts::digest_of;

const STEP: &str = "capability";

/// A wish for one.
#[derive(Debug)]
pub(crate) struct Wish<'a> {
    /// Its name.
    pub(crate) name: &'a str,
    /// What it is given.
    pub(crate) inputs: Inputs<'a>,
    /// The workspace; without one, that of the caller's current directory.
    pub(crate) workspace: Option<PathBuf>,
    /// Its changes are brought back when it returns 0.
    pub(crate) apply: Apply,
    /// Who asks.
    pub(crate) asker: Asker,
}

/// What a capability is given.
#[derive(Debug)]
pub(crate) enum Inputs<'a> {
    /// `name=value`, as people type them.
    Words(&'a [String]),
    /// A JSON object as text.
    Json(&'a str),
    /// Values.
    Values(Map<String, Value>),
}

/// Whether changes are brought back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Apply {
    /// When it returns 0.
    OnSuccess,
    /// When somebody says so.
    Later,
}

/// A call that is ready to be judged and run.
pub(crate) struct Called {
    /// What rules see of the capability.
    pub(crate) facts: CapabilityFacts,
    /// What vouches for its pack.
    pub(crate) standing: Standing,
    /// The inputs and the arguments.
    pub(crate) prepared: Prepared,
    /// The program.
    pub(crate) program: Program,
}

impl Called {
    /// Puts a call together, with its sandbox. Nothing is started.
    pub(crate) fn assemble(wish: Wish<'_>, packs: &Packs, context: &Context) -> Result<(Self, Assembled), Failure> {
        let (pack, capability) = packs.capability(wish.name).map_err(|error| {
            tell_problems(packs, context);
            failure(&error)
        })?;
        let flags = flags(&wish, &capability, context)?;
        let asker = wish.asker;
        let given = given(wish.inputs, &capability)?;
        let credentials = capability.credentials.iter();
        let additions = Additions {
            asker,
            who: format!("the capability `{}`", capability.name),
            secrets: credentials.map(SecretUse::from).collect(),
            purpose: capability.name.to_string(),
            ..Additions::default()
        };
        let mut assembled = assemble_with(&flags, &additions, context)?;
        let prepared = capability
            .prepare(given, &Beneath::new(assembled.spec.workspace.path.as_path()))
            .map_err(|error| refused(&capability, &error))?;
        let program = program(&capability, &assembled, context)?;
        assembled.spec.exec_list = exec_list(&capability, &program, &assembled);
        narrow(&capability.sandbox.limits, &capability, &mut assembled);
        hold_to_hosts(&capability, &mut assembled.reach);
        if capability.sandbox.hosts == Hosts::Allowed && assembled.reach.hosts.is_empty() {
            let name = &capability.name;
            context.printer.note(format!("`{name}` reaches hosts of the setting sandbox.allowedHosts only, and there are none"));
        }
        Ok((Self { facts: capability.facts(&pack.name), standing: pack.standing.clone(), prepared, program }, assembled))
    }

    /// Asks the rules.
    pub(super) fn admit(&self, assembled: &mut Assembled, packs: &Packs, context: &Context) -> Result<Admitted, Failure> {
        if let Some(told) = assembled.rules.refusal_of_agents() {
            return Ok(Admitted::No(told));
        }
        let principal = assembled.rules.asker().principal();
        let policies = policies(assembled, packs, context)?;
        let decision = self.ask(&policies, &principal, assembled);
        let told = admission::told(&decision);
        let admitted = match decision.verdict {
            Verdict::Allow => Admitted::Yes,
            Verdict::Ask => Admitted::Asked(Box::new(self.question(&decision, &principal, &policies, assembled, packs)?)),
            Verdict::Deny => return Ok(Admitted::No(told)),
        };
        assembled.told = told;
        Ok(admitted)
    }

    /// What a person is asked about it, where the rules want one.
    fn question(
        &self,
        decision: &Decision,
        principal: &Principal,
        policies: &Policies,
        assembled: &Assembled,
        packs: &Packs,
    ) -> Result<Question, Failure> {
        let argv = self.argv();
        let files = packs.policy_files().map_err(|error| failure(&error))?;
        let files: Vec<PolicyFile> = assembled.rules.layers().files.iter().cloned().chain(files).collect();
        let effect = self.facts.effect;
        let (rule, own) = self.invoked(assembled, |invocation| {
            let request = Request::Invoke(invocation);
            (narrowest_rule(principal, &request), admission::own_word(policies, principal, &[request], effect))
        });
        let interpreter = self.program.interpreter.iter().map(|(path, _)| path.clone().into_os_string());
        Ok(Question {
            told: admission::told(decision),
            because: admission::because(&Judgement {
                decision: decision.clone(),
                commands: vec![(self.facts.name.to_string(), decision.clone())],
                exec_list: None,
            }),
            rules: vec![rule],
            policy: digest_of(&files).unwrap_or_default(),
            principal: principal.named(),
            effect,
            wanted: approvals::Wanted::Capability {
                name: self.facts.name.to_string(),
                pack: format!("of the pack `{}`, {}", self.facts.pack, self.standing.name()),
                inputs: Value::Object(self.prepared.values.clone()).to_string(),
                argv: argv.iter().map(|word| word.as_bytes().to_vec()).collect(),
            },
            programs: argv.iter().take(1).cloned().chain(interpreter).collect(),
            words: argv.into_iter().skip(1).collect(),
            own,
        })
    }

    /// What the rules say to it, those of packs included.
    pub(crate) fn decide(
        &self,
        principal: &Principal,
        assembled: &Assembled,
        packs: &Packs,
        context: &Context,
    ) -> Result<Decision, Failure> {
        Ok(self.ask(policies(assembled, packs, context)?.as_ref(), principal, assembled))
    }

    fn ask(&self, policies: &Policies, principal: &Principal, assembled: &Assembled) -> Decision {
        let floor: Floor = assembled.rules.layers().floor;
        self.invoked(assembled, |invocation| policies.decide(principal, &Request::Invoke(invocation), floor))
    }

    fn invoked<T>(&self, assembled: &Assembled, act: impl FnOnce(&Invocation<'_>) -> T) -> T {
        let network: Vec<String> = assembled.reach.hosts.iter().map(ToString::to_string).collect();
        let invocation = Invocation {
            capability: &self.facts,
            values: &self.prepared.values,
            workspace: &assembled.spec.workspace.path.to_string(),
            backend: assembled.backend.kind().name(),
            network: &network,
            time: &format!("{:.0}", jiff::Timestamp::now()),
        };
        act(&invocation)
    }

    /// The call in one line.
    pub(crate) fn shown(&self) -> String {
        format!("{} {}", self.facts.name, Value::Object(self.prepared.values.clone()))
    }

    /// The whole argument list, the program by its path.
    pub(crate) fn argv(&self) -> Vec<OsString> {
        std::iter::once(self.program.found.clone().into_os_string()).chain(self.prepared.args.iter().map(OsString::from)).collect()
    }
}

/// The rules, those of packs included.
fn policies(assembled: &Assembled, packs: &Packs, context: &Context) -> Result<Arc<Policies>, Failure> {
    context.compiled(assembled.rules.layers(), packs)
}

/// The inputs as they were given.
fn given(inputs: Inputs<'_>, capability: &Capability) -> Result<Map<String, Value>, Failure> {
    let text = match inputs {
        Inputs::Values(given) => return Ok(given),
        Inputs::Words(words) => {
            return from_words(capability, words.iter().map(String::as_str)).map_err(|error| refused(capability, &error));
        }
        Inputs::Json(text) => text,
    };
    match serde_json::from_str(text) {
        Ok(Value::Object(given)) => Ok(given),
        Ok(_) => Err(refused(capability, &Refused("the input must be a JSON object".to_owned()))),
        Err(error) => Err(refused(capability, &Refused(format!("the input is not JSON: {error}")))),
    }
}

fn refused(capability: &Capability, error: &Refused) -> Failure {
    let name = &capability.name;
    Failure::new(STEP, format!("`{name}`: {}", stockade_core::escape::escape(&error.0))).with_hint(format!("stockade cap show {name}"))
}

/// The flags that a person would have to give for this.
fn flags(wish: &Wish<'_>, capability: &Capability, context: &Context) -> Result<SandboxFlags, Failure> {
    Ok(SandboxFlags {
        workspace: wish.workspace.clone(),
        workspace_mode: (capability.effect == Effect::Read).then_some(MountMode::Ro),
        // From the workspace, wherever the caller stands: so that one input means one thing.
        cwd: Some(PathBuf::from(".")),
        mounts: capability.sandbox.mounts.iter().map(|mount| mounted(mount, context)).collect::<Result<_, _>>()?,
        allow_hosts: capability.sandbox.hosts.named().to_vec(),
        apply: wish.apply == Apply::OnSuccess,
        ..SandboxFlags::default()
    })
}

fn mounted(mount: &CapabilityMount, context: &Context) -> Result<MountFlag, Failure> {
    let host = match mount.host.strip_prefix("~/") {
        Some(rest) => context.places()?.home.join(rest),
        None => PathBuf::from(&mount.host),
    };
    let guest = match &mount.guest {
        Some(guest) => guest.clone(),
        None => SafePath::new(&host).map_err(|error| Failure::from_error("mounts", &error))?,
    };
    Ok(MountFlag { host, guest, mode: mount.mode })
}

fn program(capability: &Capability, assembled: &Assembled, context: &Context) -> Result<Program, Failure> {
    let mounts = assembled.spec.mounts.iter().filter(|mount| mount.mode != MountMode::Ro).map(|mount| mount.host.as_path().to_owned());
    let writable: Vec<PathBuf> = std::iter::once(assembled.spec.workspace.path.as_path().to_owned()).chain(mounts).collect();
    let found = programs::resolve(context.places()?, &capability.program, &assembled.spec.path_dirs, &writable);
    found.map_err(|error| {
        let failure = Failure::from_error(STEP, &error);
        if matches!(error, programs::ProgramError::Missing(_)) { Failure::no_program(STEP, failure.message) } else { failure }
    })
}

/// The program, what the manifest adds, and what the program cannot work without; of these, what there is.
fn exec_list(capability: &Capability, program: &Program, assembled: &Assembled) -> Option<Vec<String>> {
    let ExecList::Only(more) = &capability.sandbox.exec else { return None };
    let is_there = |name: &&str| assembled.spec.path_dirs.iter().any(|directory| directory.is_absolute() && directory.join(name).is_file());
    let more = more.iter().map(String::as_str).chain(shell::helpers(&capability.program).iter().copied());
    let list = more.filter(is_there).map(str::to_owned);
    Some(std::iter::once(program.path.to_string_lossy().into_owned()).chain(list).collect())
}

/// Limits count where they are tighter than what would hold without them.
fn narrow(limits: &CapabilityLimits, capability: &Capability, assembled: &mut Assembled) {
    fn tighter<T: Copy + PartialOrd>(held: Option<Limit<T>>, wanted: Option<T>) -> Option<Limit<T>> {
        match (held, wanted) {
            (Some(held), Some(wanted)) if held.value <= wanted => Some(held),
            (_, Some(wanted)) => Some(Limit::asked(wanted)),
            (held, None) => held,
        }
    }
    let held = &mut assembled.spec.limits;
    held.cpu_millis = tighter(held.cpu_millis, limits.cpu_millis);
    held.memory = tighter(held.memory, limits.memory);
    held.pids = tighter(held.pids, limits.pids);
    held.disk = tighter(held.disk, limits.disk);
    held.output = tighter(held.output, limits.output);
    held.time = tighter(held.time, capability.timeout);
}

/// No host but the capability's own; and where it only reads, no method that changes anything.
fn hold_to_hosts(capability: &Capability, reach: &mut Reach) {
    if let Hosts::Only(hosts) = &capability.sandbox.hosts {
        reach.hosts = intersect(&reach.hosts, hosts);
    }
    if capability.effect != Effect::Read {
        return;
    }
    let get: Vec<Method> = Method::parse("GET").into_iter().collect();
    let only = reach.hosts.iter().map(|host| HostUse { host: host.clone(), methods: get.clone(), paths: Vec::new(), tls: TlsUse::Inspect });
    let only: Vec<HostUse> = only.collect();
    if !only.is_empty() {
        reach.rules.push(only);
    }
}
