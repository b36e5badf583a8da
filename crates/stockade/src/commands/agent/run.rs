//! `agent run`: an agent in a fresh sandbox, from its profile to its summary.
//!
//! ```text
//! profile ─▶ keys, program, settings of its own ─▶ [ sandbox: home furnished, agent runs, usage watched ] ─▶ summary
//! ```

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use stockade_core::demand::Demand;
use stockade_core::limits::Limit;
use stockade_core::path::SafePath;
use stockade_core::spec::{Mount, MountMode};
use stockade_sandbox::drive::{Ending, Streams};
use stockade_sandbox::files::Files;
use stockade_sandbox::gate::Gate;
use stockade_sandbox::once::{self, Done, Extras, Furnish, HomeFile, Job, Killed, OnSuccess};
use stockade_sandbox::signals::Signals;
use stockade_sandbox::state::{Kind, Owned, Record};
use stockade_sandbox::workspace::locate;
use stockade_store::places::Places;
use stockade_store::settings::{Price, Settings};

use super::super::run::{SIGNALS, denied, end, explain, in_streams};
use super::super::sandbox::{sandboxes, state_failure};
use super::detach::{self, Background};
use super::ending::{described, finish, without_output};
use crate::Context;
use crate::admission::Wanted;
use crate::agent::budget::{Budget, Spent, Watcher};
use crate::agent::furniture::Furniture;
use crate::agent::memory::Memory;
use crate::agent::profile::{self, Profile};
use crate::agent::roll::{self, Agent, Branch, Roll};
use crate::agent::summary::Traffic;
use crate::agent::{keys, program, worktree};
use crate::approval::{Manner, Refusal};
use crate::assemble::{self, Additions, Assembled};
use crate::cli::AgentRunArgs;
use crate::egress::Outlet;
use crate::egress::outlet::Closed;
use crate::engine::asker::Asker;
use crate::engine::result;
use crate::failure::Failure;
use crate::receipts::{Asked, Book, Capture, Running, secrets_of};

/// After this much more than its time an agent is killed, whatever it was asked.
const LAST_CHANCE: Duration = Duration::from_secs(5);

pub(super) fn run(args: &AgentRunArgs, context: &Context) -> Result<ExitCode, Failure> {
    if args.detach {
        return detach::start(context);
    }
    let mut prepared = Prepared::new(args, context)?;
    let admitted = prepared.assembled.admit(Wanted::Program(&args.program), context)?;
    let book = Book::new(&prepared.assembled.state, prepared.assembled.keeping.clone(), context);
    let capture = if args.detached.is_some() { Capture::None } else { Capture::of(context) };
    let outlet = Outlet::of(&prepared.assembled.reach, &prepared.assembled.given, context)?;
    let secrets = secrets_of(outlet.as_ref());
    let receipt = Running::new(&book, Asked::Program(&args.program), &args.program, &prepared.assembled, secrets, capture)?
        .of_agent(name_of(args, &prepared), prepared.profile.name.clone());
    if let Some(Refusal { told, .. }) = admitted.settle(&prepared.assembled, &receipt, &Manner::Typed, secrets, context)? {
        receipt.deny(&told)?;
        return denied(told, receipt.id(), &prepared.assembled, context);
    }
    let Prepared { profile, assembled, furniture, prices, .. } = &prepared;
    assemble::warn_if_local(assembled.backend.as_ref(), context);
    for what in furniture.iter().flat_map(|furniture| &furniture.left_out) {
        context.printer.note(format!("left outside: {what}"));
    }
    for why in &prepared.unusable {
        context.printer.warning(format!("the login in {why}"));
    }
    if profile.name != profile::GENERIC && assembled.reach.secrets.is_empty() {
        let names: Vec<&str> = profile.keys.iter().map(|key| key.variable.as_str()).collect();
        context.printer.note(format!("no key for {} was found; set one of {}, or stockade secret set it", profile.title, names.join(", ")));
    }
    if assembled.spec.limits.is_asked(Demand::Disk) && assembled.spec.workspace.mode == MountMode::Overlay {
        context.printer.note("with --disk changes are held in memory until the end: they are lost if Stockade is killed");
    }
    let (owned, agent) = enter(args, &prepared, context)?;
    let directory = Roll::open(context)?.enter(&agent)?;
    prepared.fresh.iter().for_each(worktree::Fresh::keep);
    let ran = drive(args, &prepared, owned, &directory, &Around { outlet: outlet.as_ref(), receipt: &receipt }, context);
    let (done, traffic, spent, remains) = match ran {
        Ok(ran) => ran,
        Err(failure) => {
            receipt.fail(&failure, context);
            // Whoever lists agents sees that this one never ran.
            let _ = roll::finish(&directory, &failure.to_json());
            if sandboxes(context)?.find(agent.id.as_str()).is_ok() {
                context.printer.note(format!("what it had changed is kept: stockade agent diff {id} · apply {id}", id = agent.id));
            }
            return Err(failure);
        }
    };
    receipt.finish(&done, &traffic, context);
    let traffic_summary = Traffic::of(&traffic.rows);
    let result = result::of_run(&done, &traffic, &receipt.id(), assembled);
    let value = described(&agent, &result, &done.left_running, spent, &traffic_summary, prices);
    drop(receipt);
    drop(outlet);
    let _ = roll::finish(&directory, &without_output(value.clone()));
    let code = finish(&done, &traffic, spent, &traffic_summary, &value, &prepared, context).unwrap_or_else(|failure| {
        context.printer.failure(&failure);
        failure.kind.code()
    });
    end(code, remains, prepared.assembled, book, context)
}

/// Everything that is known before the sandbox has its directory.
pub(super) struct Prepared {
    pub(super) profile: Profile,
    pub(super) assembled: Assembled,
    furniture: Option<Furniture>,
    pub(super) prices: Vec<Price>,
    budget: Budget,
    pub(super) branch: Option<Branch>,
    /// The branch's tree, which goes again where the agent does not start.
    fresh: Option<worktree::Fresh>,
    /// Logins that are there and cannot be used.
    unusable: Vec<String>,
    pub(super) memory: Option<Memory>,
}

impl Prepared {
    fn new(args: &AgentRunArgs, context: &Context) -> Result<Self, Failure> {
        let places = context.places()?;
        let cwd = context.environment.current_dir()?;
        let argv0 = args.program.first().filter(|name| !name.is_empty());
        let argv0 = argv0.ok_or_else(|| Failure::new("arguments", "the agent's name is empty"))?;
        let profile = profile::choose(args.profile.as_deref(), Path::new(argv0))?;
        let outside = keys::directory(&profile, &places.home, context);
        let granted = keys::look(&profile, &args.sandbox, outside.as_deref(), &args.program, context)?;
        let (branch, fresh) = branch(args, cwd, places)?.unzip();
        let additions = Additions {
            purpose: "agent".to_owned(),
            mode: None,
            workspace: branch.as_ref().map(|branch| branch.worktree.clone()),
            who: profile.title.clone(),
            asker: Asker::Person,
            hosts: granted.hosts,
            secrets: granted.secrets,
            metered: granted.metered,
            tokens: args.budget_tokens,
            logins: granted.logins,
            variables: granted.variables,
        };
        let mut assembled = assemble::assemble_with(&args.sandbox, &additions, context)?;
        let workspace = assembled.spec.workspace.path.as_path().to_owned();
        if let Some(branch) = &branch {
            add_mount(&mut assembled, &branch.objects);
        }
        for directory in installed(argv0, &assembled, cwd, &workspace) {
            add_mount(&mut assembled, &directory);
        }
        let furniture = outside.zip(profile.directory.as_ref()).map(|(outside, directory)| {
            let usual = places.home.join(&directory.path);
            let inside = assembled.spec.home.as_path().join(&directory.path);
            if let Some(name) = &directory.variable {
                let environment = &mut assembled.spec.env;
                environment.retain(|(known, _)| known != name);
                environment.push((name.clone(), inside.clone().into_os_string()));
                environment.sort();
            }
            Furniture::gather(&profile, &outside, &usual, &inside, &workspace).with_logins(&assembled.reach.logins)
        });
        let memory = match &profile.directory {
            Some(directory) => Memory::of(&profile, args.name.as_ref(), &assembled.spec.home.as_path().join(&directory.path), places)?,
            None => None,
        };
        let settings = Settings::load(places, Some(&workspace)).map_err(|error| Failure::from_error("settings", &error))?;
        let prices = settings.prices().value;
        if args.budget_usd.is_some() && prices.is_empty() {
            return Err(Failure::new("arguments", "`--budget-usd` needs prices, and the settings have none")
                .with_hint("stockade config set agent.prices '{\"claude-sonnet\": {\"input\": 3, \"output\": 15}}'"));
        }
        // Asked to end in time, and killed only if it does not.
        let time = assembled.spec.limits.time.map(|limit| limit.value);
        if let Some(limit) = &mut assembled.spec.limits.time {
            *limit = Limit { value: limit.value.saturating_add(LAST_CHANCE), origin: limit.origin };
        }
        let budget = Budget { tokens: args.budget_tokens, dollars: args.budget_usd, time };
        Ok(Self { profile, assembled, furniture, prices, budget, branch, fresh, unusable: granted.unusable, memory })
    }
}

/// A tree of the agent's own, where one is wanted.
fn branch(args: &AgentRunArgs, cwd: &Path, places: &Places) -> Result<Option<(Branch, worktree::Fresh)>, Failure> {
    let Some(name) = args.name.as_ref().filter(|_| args.worktree) else { return Ok(None) };
    let located = locate::locate(cwd, None, &places.home).map_err(|error| Failure::from_error("workspace", &error))?;
    worktree::make(located.path.as_path(), name.as_str()).map(Some)
}

/// The directories that hold the agent's program.
fn installed(argv0: &OsString, assembled: &Assembled, cwd: &Path, workspace: &Path) -> Vec<PathBuf> {
    let found = program::find(argv0, &assembled.spec.path_dirs, cwd);
    found.map(|found| program::directories(&found, &assembled.home, workspace)).unwrap_or_default()
}

fn add_mount(assembled: &mut Assembled, directory: &Path) {
    let Ok(path) = SafePath::new(directory) else { return };
    if !assembled.spec.mounts.iter().any(|mount| mount.guest == path) {
        assembled.spec.mounts.push(Mount { host: path.clone(), guest: path, mode: MountMode::Ro });
    }
}

/// What receipts call the agent.
fn name_of(args: &AgentRunArgs, prepared: &Prepared) -> String {
    let name = args.name.as_ref().map_or_else(|| "main".to_owned(), ToString::to_string);
    format!("{}/{name}", prepared.profile.name)
}

/// Makes the sandbox's directory, under its name, and says who the agent is.
fn enter(args: &AgentRunArgs, prepared: &Prepared, context: &Context) -> Result<(Owned, Agent), Failure> {
    let sandboxes = sandboxes(context)?;
    let names = args.name.as_ref().map(|_| sandboxes.lock_names()).transpose().map_err(|e| state_failure(&e))?;
    if let Some(name) = &args.name {
        sandboxes.check_name(name).map_err(|e| state_failure(&e))?;
    }
    let owned = sandboxes.create().map_err(|e| state_failure(&e))?;
    let spec = &prepared.assembled.spec;
    let workspace = spec.workspace.path.as_path();
    let mut record = Record::new(owned.id.clone(), Kind::Run, prepared.assembled.backend.kind().name(), workspace, spec.workspace.mode);
    record.name.clone_from(&args.name);
    owned.write_record(&record).map_err(|e| state_failure(&e))?;
    drop(names);
    let mut agent = Agent::new(owned.id.clone(), args.name.clone(), &prepared.profile.name, workspace);
    agent.branch.clone_from(&prepared.branch);
    agent.command = args.program.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    Ok((owned, agent))
}

/// What is around the sandbox of an agent: its way out, and its receipt.
#[derive(Clone, Copy)]
struct Around<'a> {
    outlet: Option<&'a Outlet<'a>>,
    receipt: &'a Running<'a>,
}

type Ran = (Done, Closed, Option<Spent>, once::Remains);

/// Runs it to its end.
fn drive(
    args: &AgentRunArgs,
    prepared: &Prepared,
    owned: Owned,
    place: &Path,
    around: &Around<'_>,
    context: &Context,
) -> Result<Ran, Failure> {
    let assembled = &prepared.assembled;
    let background = args.detached.map(|how| Background::new(how, &assembled.runtime, &owned.id, place)).transpose()?;
    // Signals wait from here on: what arrives while the sandbox starts reaches the agent.
    let signals = Signals::catch(&SIGNALS).map_err(|e| Failure::new("signals", e.to_string()))?;
    let Around { outlet, receipt } = *around;
    let job = Job {
        backend: assembled.backend.as_ref(),
        spec: &assembled.spec,
        state: &assembled.state,
        runtime: &assembled.runtime,
        home: &assembled.home,
        toolchain_roots: &assembled.toolchain_roots,
        argv: &args.program,
        on_success: if args.sandbox.apply { OnSuccess::Apply } else { OnSuccess::Keep },
        gate: outlet.map(|outlet| outlet as &dyn Gate),
        intent: Some(receipt),
    };
    let watcher = Watcher::default();
    let directory = owned.directory.clone();
    let run = |streams: Streams<'_>| {
        let id = owned.id.clone();
        let announced = Announced {
            furniture: prepared.furniture.as_ref(),
            memory: prepared.memory.as_ref(),
            ready: &|| {
                if args.detached.is_some() {
                    detach::ready(&id, context);
                }
            },
        };
        let extras =
            Extras { owned: Some(owned), name: args.name.clone(), furniture: Some(&announced), killed: Killed::Keeps, ..Extras::default() };
        let act = || once::run_with(&job, extras, streams, Some(&signals)).map_err(|e| explain(&e));
        watcher.around(&prepared.budget, &prepared.prices, &directory, act)
    };
    let ran = match &background {
        Some(background) => background.around(run),
        None => in_streams(&assembled.spec, context, run),
    };
    let traffic = outlet.map(Outlet::close).unwrap_or_default();
    let (mut done, remains) = ran?;
    done.violations.extend(traffic.broken.clone());
    // One that ended by itself in the same moment was not ended.
    let spent = watcher.spent().filter(|_| done.outcome.ending != Ending::Code(0));
    Ok((done, traffic, spent, remains))
}

/// Says that the sandbox stands when its home is furnished: that is right before the agent starts.
struct Announced<'a> {
    furniture: Option<&'a Furniture>,
    memory: Option<&'a Memory>,
    ready: &'a dyn Fn(),
}

impl Furnish for Announced<'_> {
    fn files(&self, way_out: &[(String, OsString)]) -> Vec<HomeFile> {
        (self.ready)();
        // What comes from outside counts, whatever is remembered.
        let remembered = self.memory.map(Memory::recall).unwrap_or_default();
        remembered.into_iter().chain(self.furniture.map(|furniture| furniture.files(way_out)).unwrap_or_default()).collect()
    }

    fn look_back(&self, inside: &mut Files<'_>) {
        if let Some(memory) = self.memory {
            memory.keep(inside);
        }
    }
}
