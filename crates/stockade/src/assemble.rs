//! From flags and settings to a sandbox specification: the one place where all layers meet.
//!
//! Refuses what this version cannot hold (checkpoints) rather than running without it.

mod reach;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use stockade_core::host::HostPattern;
use stockade_core::path::SafePath;
use stockade_core::reach::{Login, Reach, SecretUse, Unlisted};
use stockade_core::result::Decision;
use stockade_core::spec::{BackendKind, Mount, MountMode, SandboxSpec, Workspace};
use stockade_ledger::receipt::Trace;
use stockade_ledger::redact::Redact;
use stockade_sandbox::backends::Backend;
use stockade_sandbox::backends::local::{self, Local};
use stockade_sandbox::connection::Passing;
use stockade_sandbox::environment::{self, Given, TOOLCHAIN_ROOTS};
use stockade_sandbox::launch::remote::RemoteWall;
use stockade_sandbox::workspace::locate;
use stockade_store::places::Places;
use stockade_store::private_dir::ensure_private_dir;
use stockade_store::settings::{Flags, Settings, Source};

use crate::Context;
use crate::admission::{Admission, Answer, Ground, Rules, Wanted};
use crate::approval::{self, Manner, Question, Refusal, Witness};
use crate::cli::{BackendChoice, SandboxFlags};
use crate::engine::asker::Asker;
use crate::failure::Failure;
use crate::receipts::Keeping;

/// Home inside, where home outside is a part of the system.
const OTHER_HOME: &str = "/home/sandbox";
/// Open files per process where nobody said otherwise.
const OPEN_FILES: u64 = 65_536;

/// Everything a sandbox is started from.
pub(crate) struct Assembled {
    /// What it is.
    pub(crate) spec: SandboxSpec,
    /// The wall.
    pub(crate) backend: Box<dyn Backend>,
    /// The person's home directory outside.
    pub(crate) home: PathBuf,
    /// Values of variables that name toolchain roots.
    pub(crate) toolchain_roots: Vec<OsString>,
    /// Where state lives.
    pub(crate) state: PathBuf,
    /// Where sockets live.
    pub(crate) runtime: PathBuf,
    /// What it may reach.
    pub(crate) reach: Reach,
    /// Variables that a person set.
    pub(crate) given: Vec<String>,
    /// The rules in force.
    pub(crate) rules: Rules,
    /// What they said to what runs in it.
    pub(crate) told: Decision,
    /// How receipts are kept.
    pub(crate) keeping: Keeping,
    /// Its changes are brought back when the program returns 0.
    pub(crate) applies: bool,
    /// Whether the next call is to find a daemon.
    pub(crate) daemon: Autostart,
    /// The program that tells a person that something waits for them.
    pub(crate) notify: Option<String>,
    /// What the caller was doing when they asked.
    pub(crate) trace: Option<Trace>,
}

/// Whether something may run.
#[derive(Debug)]
#[must_use = "a question that nobody answers must not run"]
pub(crate) enum Admitted {
    /// It may.
    Yes,
    /// If somebody says so.
    Asked(Box<Question>),
    /// It may not.
    No(Decision),
}

impl Admitted {
    /// Settles what is asked, if anything is; gives the refusal where it may not run.
    pub(crate) fn settle(
        self,
        assembled: &Assembled,
        receipt: &dyn Witness,
        manner: &Manner<'_>,
        redactor: &dyn Redact,
        context: &Context,
    ) -> Result<Option<Refusal>, Failure> {
        match self {
            Self::Yes => Ok(None),
            Self::No(told) => Ok(Some(told.into())),
            Self::Asked(question) => approval::answer(&question, assembled, receipt, manner, redactor, context),
        }
    }
}

impl Assembled {
    /// Asks the rules whether something may run here, and takes over which programs they name.
    pub(crate) fn admit(&mut self, wanted: Wanted<'_>, context: &Context) -> Result<Admitted, Failure> {
        // As the sandbox will look programs up: `--env PATH=…` counts.
        let path = self.spec.env.iter().find(|(name, _)| name == "PATH").map(|(_, value)| std::env::split_paths(value).collect());
        let path: Vec<PathBuf> = path.unwrap_or_default();
        match self.rules.admit(wanted, &self.ground(&path), context)? {
            Answer::Denied(told) => Ok(Admitted::No(told)),
            Answer::Admitted(admission) => {
                self.take_over(admission);
                Ok(Admitted::Yes)
            }
            Answer::Asked(admission, question) => {
                self.take_over(admission);
                Ok(Admitted::Asked(question))
            }
        }
    }

    fn take_over(&mut self, admission: Admission) {
        self.spec.exec_list = admission.narrow(self.spec.exec_list.take());
        self.told = admission.told;
    }

    /// Where it runs, for the rules.
    fn ground<'a>(&'a self, path: &'a [PathBuf]) -> Ground<'a> {
        Ground { path, current: self.spec.cwd.as_path(), writable: writable(&self.spec) }
    }
}

/// Directories that a sandbox can write to, as far as programs in them could be taken for others.
pub(crate) fn writable(spec: &SandboxSpec) -> Vec<PathBuf> {
    let mounts = spec.mounts.iter().filter(|mount| mount.mode != MountMode::Ro);
    let mounts = mounts.flat_map(|mount| [&mount.host, &mount.guest]).map(|path| path.as_path().to_owned());
    std::iter::once(spec.workspace.path.as_path().to_owned()).chain(mounts).collect()
}

/// Whether a daemon is started by whoever finds none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Autostart {
    /// It is, once the caller has its answer.
    Yes,
    /// Only by hand.
    No,
}

/// What somebody else than flags and settings adds: the profile of an agent.
#[derive(Debug, Default)]
pub(crate) struct Additions {
    /// Who, for messages.
    pub(crate) who: String,
    /// Who asks for what runs in it.
    pub(crate) asker: Asker,
    /// Hosts it may reach.
    pub(crate) hosts: Vec<HostPattern>,
    /// Secrets, each with the hosts it may go to.
    pub(crate) secrets: Vec<SecretUse>,
    /// Hosts of models.
    pub(crate) metered: Vec<HostPattern>,
    /// How many tokens of them may be used.
    pub(crate) tokens: Option<u64>,
    /// Logins whose tokens are among the secrets.
    pub(crate) logins: Vec<Login>,
    /// What the call is, where it is a capability's.
    pub(crate) purpose: String,
    /// Variables; those of flags come first.
    pub(crate) variables: Vec<(String, OsString)>,
    /// How the workspace is where nobody said so.
    pub(crate) mode: Option<MountMode>,
    /// A workspace in the place of the flags' or the caller's, to be written to at once.
    pub(crate) workspace: Option<PathBuf>,
}

/// Puts a sandbox together from flags, settings and the caller's surroundings.
pub(crate) fn assemble(flags: &SandboxFlags, context: &Context) -> Result<Assembled, Failure> {
    assemble_with(flags, &Additions::default(), context)
}

/// The same with what somebody adds.
pub(crate) fn assemble_with(flags: &SandboxFlags, additions: &Additions, context: &Context) -> Result<Assembled, Failure> {
    refuse_unknown_ground(flags)?;
    let places = context.places()?;
    let cwd = context.environment.current_dir()?;
    let named = additions.workspace.as_deref().or(flags.workspace.as_deref());
    let located = locate::locate(cwd, named, &places.home).map_err(|error| {
        let failure = Failure::from_error("workspace", &error);
        match error.hint() {
            Some(hint) => failure.with_hint(hint),
            None => failure,
        }
    })?;
    let rules = Rules::load_for(additions.asker.clone(), places, located.path.as_path())?;
    let own_mode = additions.workspace.as_ref().map(|_| MountMode::Rw);
    let settings = settings(flags, own_mode, context, places, located.path.as_path())?;
    if !settings.enabled().value {
        return Err(Failure::new("settings", "`sandbox.enabled` is false, and nothing ever runs unprotected")
            .with_hint("stockade config set sandbox.enabled true"));
    }
    let backend = raised(backend(&settings)?, context);
    let mut reach = reach::of(flags, additions, &settings, backend.kind())?;
    if reach.unlisted == Unlisted::Learn && !rules.permits_every_host()? {
        return Err(Failure::new("policy", "the rules say which hosts may be reached, so `--learn` cannot let others through"));
    }
    reach.hosts = rules.permitted_hosts(reach.hosts, context)?;
    reach.requests = rules.about_requests(&reach)?;
    let said = settings.workspace_mode();
    let mode = match additions.mode {
        _ if backend.kind() == local::KIND => mode_without_a_wall(flags)?,
        Some(mode) if said.source == Source::Default => mode,
        Some(_) | None => said.value,
    };
    let workspace = located.path.clone();
    refuse_unwritable(&workspace, mode)?;
    let home = home_inside(&places.home)?;
    let mut limits = settings.limits(additions.asker.caller(), memory_total());
    limits.open_files = Some(stockade_core::limits::Limit::default_of(OPEN_FILES));
    if flags.output_limit.is_none() && !context.printer.is_json() {
        // Output that is not captured is not limited unless somebody asked.
        limits.output = limits.output.filter(|l| l.origin == stockade_core::limits::Origin::Asked);
    }
    let path_dirs: Vec<PathBuf> = context.environment.variable("PATH").map(|p| std::env::split_paths(&p).collect()).unwrap_or_default();
    let toolchain_roots: Vec<OsString> = TOOLCHAIN_ROOTS.iter().filter_map(|name| context.environment.variable(name)).collect();
    let added = additions.variables.iter().map(|(name, value)| Given { name: name.clone(), value: Some(value.clone()) });
    let given: Vec<Given> = added.chain(flags.env.iter().map(|e| Given { name: e.name.clone(), value: e.value.clone() })).collect();
    let outside_home = places.home.clone();
    let caller = |name: &str| match name {
        "HOME" if home.as_path() == Path::new(OTHER_HOME) => Some(OTHER_HOME.into()),
        _ => context.environment.variable(name),
    };
    let env = environment::build(caller, &given, |path| path.is_dir() && !outside_home.starts_with(path));
    let spec = SandboxSpec {
        cwd: working_directory(flags, cwd, &workspace)?,
        workspace: Workspace { path: workspace, mode, git_common: located.git_common },
        mounts: mounts(flags, cwd)?,
        env,
        home,
        exec_list: (!flags.exec_allow.is_empty()).then(|| flags.exec_allow.clone()),
        limits,
        allow_degraded: flags.allow_degraded.iter().copied().collect(),
        path_dirs,
    };
    ensure_private_dir(&places.state).map_err(|error| Failure::from_error("state", &error))?;
    Ok(Assembled {
        spec,
        backend,
        home: places.home.clone(),
        toolchain_roots,
        state: places.state.clone(),
        runtime: places.runtime.clone(),
        reach,
        given: flags.env.iter().map(|env| env.name.clone()).collect(),
        rules,
        told: Decision::no_policy(),
        keeping: Keeping::of(&settings),
        applies: flags.apply,
        daemon: if settings.autostart().value { Autostart::Yes } else { Autostart::No },
        notify: settings.notify().value,
        trace: None,
    })
}

/// Flags whose ground is not there yet: an error, never a silent nothing.
fn refuse_unknown_ground(flags: &SandboxFlags) -> Result<(), Failure> {
    let refuse =
        |flag: &str, what: &str| Err(Failure::new("arguments", format!("`{flag}` needs {what}, which this version does not have")));
    if flags.checkpoint.is_some() {
        return refuse("--checkpoint", "checkpoints");
    }
    if flags.image.is_some() {
        return refuse("--image", "a container backend");
    }
    if flags.require.is_some() {
        return Err(Failure::new("arguments", "no backend of this version is a hardware virtual machine"));
    }
    Ok(())
}

fn settings(
    flags: &SandboxFlags,
    own_mode: Option<MountMode>,
    context: &Context,
    places: &Places,
    workspace: &Path,
) -> Result<Settings, Failure> {
    let settings = Settings::load(places, Some(workspace)).map_err(|error| {
        let failure = Failure::from_error("settings", &error);
        match error.hint() {
            Some(hint) => failure.with_hint(hint),
            None => failure,
        }
    })?;
    let settings = settings.with_flags(&Flags {
        backend: flags.backend.map(|b| match b {
            BackendChoice::Auto => stockade_store::settings::Backend::Auto,
            BackendChoice::Named(kind) => stockade_store::settings::Backend::Wall(kind),
        }),
        image: flags.image.clone(),
        workspace_mode: own_mode.or(flags.workspace_mode),
        allowed_hosts: flags.allow_hosts.clone(),
        timeout: flags.timeout,
        cpu_millis: flags.cpus,
        memory: flags.memory,
        pids: flags.pids,
        disk: flags.disk,
        output: flags.output_limit,
    });
    for overruled in settings.overruled() {
        context.printer.warning(format!("the machine's settings overrule `{}`: {} is {}", overruled.flag, overruled.key, overruled.value));
    }
    Ok(settings)
}

/// The wall that settings name; `auto` is the jail, and never `local`.
fn backend(settings: &Settings) -> Result<Box<dyn Backend>, Failure> {
    backend_of(settings.backend().value)
}

/// The wall behind a choice.
pub(crate) fn backend_of(choice: stockade_store::settings::Backend) -> Result<Box<dyn Backend>, Failure> {
    use stockade_store::settings::Backend as Choice;
    match choice {
        Choice::Auto | Choice::Wall(BackendKind::Jail) => Ok(Box::new(stockade_sandbox::backends::jail::Jail::default())),
        Choice::Wall(BackendKind::Local) => Ok(Box::new(Local { passing: Passing::Possible })),
        #[cfg(not(target_os = "linux"))]
        Choice::Auto => {
            Err(Failure::new("backend", "this version has no wall for this system").with_hint("use a Linux machine or virtual machine"))
        }
        Choice::Wall(kind) => {
            Err(Failure::new("backend", format!("the `{kind}` backend is not part of this version")).with_hint("stockade sandbox use auto"))
        }
    }
}

/// A server that may start nothing has its launcher raise the same wall.
fn raised(wall: Box<dyn Backend>, context: &Context) -> Box<dyn Backend> {
    match &context.standing {
        Some(standing) => Box::new(RemoteWall::new(Arc::clone(&standing.launcher), wall.kind())),
        None => wall,
    }
}

/// Says, at every start, that there is no wall.
pub(crate) fn warn_if_local(backend: &dyn Backend, context: &Context) {
    if backend.kind() == local::KIND {
        context.printer.banner(local::BANNER);
    }
}

/// Without a wall the workspace is what it is: writable. Somebody who asked for less is told, not ignored.
fn mode_without_a_wall(flags: &SandboxFlags) -> Result<MountMode, Failure> {
    match flags.workspace_mode {
        None | Some(MountMode::Rw) => Ok(MountMode::Rw),
        Some(mode) => {
            Err(Failure::new("workspace", format!("the `local` backend cannot hold a workspace in mode `{mode}`: it isolates nothing"))
                .with_hint("use another backend, or --workspace-mode rw"))
        }
    }
}

fn refuse_unwritable(workspace: &SafePath, mode: MountMode) -> Result<(), Failure> {
    let writable = || rustix::fs::access(workspace.as_path(), rustix::fs::Access::WRITE_OK).is_ok();
    if mode == MountMode::Rw && !writable() {
        return Err(Failure::new("workspace", format!("`{workspace}` is read-only")).with_hint("use --workspace-mode overlay or ro"));
    }
    Ok(())
}

/// Home inside is home outside, unless that is no place of its own.
fn home_inside(home: &Path) -> Result<SafePath, Failure> {
    let usable = home.components().count() > 1 && !["/usr", "/etc", "/bin", "/dev", "/proc", "/sys"].iter().any(|p| home == Path::new(p));
    let home = std::fs::canonicalize(home).unwrap_or_else(|_| home.to_owned());
    let chosen = if usable { home.as_path() } else { Path::new(OTHER_HOME) };
    SafePath::new(chosen).map_err(|e| Failure::from_error("home", &e))
}

/// `--cwd`, else where the caller stands if the sandbox has that place, else the workspace.
fn working_directory(flags: &SandboxFlags, cwd: &Path, workspace: &SafePath) -> Result<SafePath, Failure> {
    if let Some(path) = &flags.cwd {
        let absolute = if path.is_absolute() { path.clone() } else { workspace.as_path().join(path) };
        return SafePath::new(absolute).map_err(|e| Failure::from_error("working directory", &e));
    }
    let here = std::fs::canonicalize(cwd).unwrap_or_else(|_| cwd.to_owned());
    let inside = SafePath::new(&here).ok().filter(|h| h.is_beneath(workspace));
    Ok(inside.unwrap_or_else(|| workspace.clone()))
}

fn mounts(flags: &SandboxFlags, cwd: &Path) -> Result<Vec<Mount>, Failure> {
    let mut mounts = Vec::new();
    for flag in &flags.mounts {
        let absolute = if flag.host.is_absolute() { flag.host.clone() } else { cwd.join(&flag.host) };
        let failed =
            |why: String| Failure::new("mounts", format!("`{}`: {why}", stockade_core::escape::escape(&flag.host.to_string_lossy())));
        if flag.host.components().any(|c| c == std::path::Component::ParentDir) {
            return Err(failed("the path has a `..` in it".into()).with_hint("name the source without `..`"));
        }
        let real = std::fs::canonicalize(&absolute).map_err(|e| failed(e.to_string()))?;
        let meta = std::fs::symlink_metadata(&real).map_err(|e| failed(e.to_string()))?;
        if real == Path::new("/") {
            return Err(failed("that is the whole machine".into()).with_hint("mount the directories that are needed"));
        }
        if !meta.is_dir() && !meta.is_file() {
            return Err(failed("it is neither a file nor a directory".into()));
        }
        if meta.is_file() && flag.mode == MountMode::Overlay {
            return Err(failed("only a directory can be an overlay".into()).with_hint("use :ro or :rw for a file"));
        }
        let host = SafePath::new(&real).map_err(|e| failed(e.to_string()))?;
        mounts.push(Mount { host, guest: flag.guest.clone(), mode: flag.mode });
    }
    Ok(mounts)
}

fn memory_total() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram.saturating_mul(u64::from(info.mem_unit))
}
