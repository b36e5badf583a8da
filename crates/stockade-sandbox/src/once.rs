//! One command in a fresh sandbox, from an empty directory to a result: what `stockade run` does.
//!
//! ```text
//! directory + lock ─▶ start, intent ─▶ drive ─▶ killed ─▶ changes read ─▶ kept (changed) or buried (unchanged) ─▶ result
//!                                                                                                       └▶ remains
//! ```
//!
//! The result is there before everything is cleared away: taking namespaces and control groups down waits for the kernel, for milliseconds on
//! a busy machine, and the caller need not. [`Remains`] is what is left to do.
//!
//! Whatever goes wrong on the way, dropping the pieces kills the sandbox and the next start removes its directory.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use stockade_core::demand::Enforcement;
use stockade_core::id::{SandboxId, SandboxName};
use stockade_core::path::SafePath;
use stockade_core::result::Change;
use stockade_core::spec::{MountMode, SandboxSpec};
use stockade_sys::signals::Signals;

use crate::backends::{Backend, BackendError, Start, local};
use crate::connection::ConnectionError;
use crate::drive::{self, Outcome, Streams};
use crate::files::{FileError, Files};
use crate::gate::{Gate, GateError, Opened};
use crate::guard::Guard;
use crate::intent::{Intent, IntentError, Pledge};
use crate::launch::remote::Ready;
use crate::sandbox::Sandbox;
use crate::state::{Grave, Kind, Owned, Record, Sandboxes, StateError};
use crate::workspace::change::{EntryType, LayerChange, Moment};
use crate::workspace::digest::ContentDigest;
use crate::workspace::layer::{Layer, LayerError};
use crate::workspace::{apply, kept, plan, remove, strays};

/// An upper layer that is held in memory, as a wall exports it.
const UPPER: &str = "layers/layer/upper";
/// Signals after which nobody waits for a program that does not run yet.
const ENDING: [i32; 5] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGKILL];

/// What to run, and where.
pub struct Job<'a> {
    /// The wall.
    pub backend: &'a dyn Backend,
    /// What the sandbox is.
    pub spec: &'a SandboxSpec,
    /// The directory that holds all state.
    pub state: &'a Path,
    /// The directory that holds sockets.
    pub runtime: &'a Path,
    /// The person's home directory outside.
    pub home: &'a Path,
    /// Values of variables that name toolchain roots.
    pub toolchain_roots: &'a [OsString],
    /// Program and arguments.
    pub argv: &'a [OsString],
    /// What to do with changes when the program returns 0.
    pub on_success: OnSuccess,
    /// Opens its way out; `None`: it has none.
    pub gate: Option<&'a dyn Gate>,
    /// Writes down that it is about to run; `None`: nobody does.
    pub intent: Option<&'a dyn Intent>,
}

/// What happens to an overlay's changes after a program that returned 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnSuccess {
    /// Kept until somebody decides.
    Keep,
    /// Brought back at once.
    Apply,
}

/// What a job may have beyond a plain run.
#[derive(Default)]
pub struct Extras<'a> {
    /// Its directory, where that was made already.
    pub owned: Option<Owned>,
    /// A jail of this very specification that stands already, with its directory; it has no way out.
    pub ready: Option<Ready>,
    /// The name a person gave it.
    pub name: Option<SandboxName>,
    /// What is put into home before the program starts.
    pub furniture: Option<&'a dyn Furnish>,
    /// What becomes of an overlay when whoever runs the job is killed.
    pub killed: Killed,
    /// What becomes of it when the job ends. Only a directory that was made already can have one that stays.
    pub overlay: Overlay,
}

/// What becomes of an overlay when a job ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Overlay {
    /// It is kept, brought back, or buried with the directory.
    #[default]
    OfTheJob,
    /// It stays where it is, for the next job in this directory. One at a time: two mounts of one layer are undefined.
    Stays,
}

/// What is done in a sandbox that stands.
pub enum Work<'a, 'w> {
    /// The job's program runs to its end.
    Program(Streams<'a>, Option<&'a Signals>),
    /// Files are looked at or written, and no program runs. Whoever does it keeps what came of it.
    Files(&'w mut dyn FnMut(&mut Files<'_>)),
}

/// What becomes of an overlay when whoever runs a job is killed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Killed {
    /// The next start removes it.
    #[default]
    Forgets,
    /// It is kept as if the job had ended: work of an hour may be in it.
    Keeps,
}

/// Knows what is put into home before a program starts.
pub trait Furnish {
    /// The files, given the variables that the way out brought along: placeholders among them.
    fn files(&self, way_out: &[(String, OsString)]) -> Vec<HomeFile>;

    /// Looks at home when the program has ended and the sandbox still stands. Whatever comes of that, the job's outcome is the same.
    fn look_back(&self, inside: &mut Files<'_>) {
        let _ = inside;
    }
}

/// One file for the inside. It belongs to the sandbox from then on, and goes with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HomeFile {
    /// Where.
    pub path: SafePath,
    /// What is in it.
    pub contents: Vec<u8>,
    /// Its mode.
    pub mode: u32,
}

/// Why a job has no outcome.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// The state directory.
    #[error(transparent)]
    State(#[from] StateError),
    /// The wall.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// The way out.
    #[error(transparent)]
    Gate(#[from] GateError),
    /// The intent was not written, so nothing ran.
    #[error(transparent)]
    Intent(#[from] IntentError),
    /// The stream to the guest.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// A file cannot be put into home.
    #[error("writing `{path}` inside: {source}")]
    Furnish {
        /// Which.
        path: String,
        /// Why.
        source: FileError,
    },
    /// The changes cannot be read.
    #[error(transparent)]
    Layer(#[from] LayerError),
    /// The changes cannot be kept.
    #[error("keeping the changes: {0}")]
    Keep(String),
    /// The changes would be gone when the job ends, and the next one needs them.
    #[error("changes are held in memory here, so they would not last from one call to the next")]
    Fleeting,
}

/// What came of a job.
#[derive(Debug)]
pub struct Done {
    /// The sandbox.
    pub id: SandboxId,
    /// How the program ended.
    pub outcome: Outcome,
    /// What held.
    pub enforcement: Enforcement,
    /// How long each step of the start took.
    pub steps: Vec<(String, u32)>,
    /// What changed in the workspace.
    pub changes: Vec<Change>,
    /// For each change, the digest of what is there now, where it is a file that was read.
    pub digests: Vec<Option<ContentDigest>>,
    /// How many changes were kept; `None`: no overlay was.
    pub kept: Option<usize>,
    /// How many changes were brought back.
    pub applied: usize,
    /// What a person should know about how the sandbox was made.
    pub notes: Vec<String>,
    /// What was not right: protected paths that appeared, changes that could not be applied.
    pub violations: Vec<String>,
    /// Names of programs that still ran when the one that was asked for had ended; looked for where somebody furnished the sandbox.
    pub left_running: Vec<String>,
}

/// What is left of a job whose result is known: a guest that dies, control groups, a directory. Dropping clears it away too.
#[must_use = "dropping it waits until everything is gone"]
pub struct Remains {
    sandbox: Option<Sandbox>,
    grave: Option<Grave>,
}

impl Remains {
    /// Nothing is left.
    pub fn nothing() -> Self {
        Self { sandbox: None, grave: None }
    }

    /// Clears it away, and waits until it is gone.
    pub fn clear(self) -> Result<(), StateError> {
        if let Some(sandbox) = self.sandbox {
            sandbox.destroy();
        }
        self.grave.map_or(Ok(()), Grave::clear)
    }
}

/// Runs a job to its end.
pub fn run(job: &Job<'_>, streams: Streams<'_>, signals: Option<&Signals>) -> Result<(Done, Remains), JobError> {
    run_with(job, Extras::default(), streams, signals)
}

/// Runs a job with what it has beyond a plain run.
pub fn run_with(job: &Job<'_>, extras: Extras<'_>, streams: Streams<'_>, signals: Option<&Signals>) -> Result<(Done, Remains), JobError> {
    work_with(job, extras, Work::Program(streams, signals))
}

/// Does something in a fresh sandbox, from its beginning to its end.
pub fn work_with(job: &Job<'_>, extras: Extras<'_>, work: Work<'_, '_>) -> Result<(Done, Remains), JobError> {
    let Extras { owned, ready, name, furniture, killed, overlay } = extras;
    let stays = overlay == Overlay::Stays && owned.is_some();
    let (owned, standing) = match ready {
        Some(Ready { owned, sandbox }) => (owned, Some(sandbox)),
        None => (owned.map_or_else(|| Sandboxes::open(job.state)?.create(), Ok)?, None),
    };
    let spec = job.spec;
    let workspace = spec.workspace.path.as_path();
    let mut record = Record::new(owned.id.clone(), Kind::Run, job.backend.kind().name(), workspace, spec.workspace.mode);
    record.name = name;
    if killed == Killed::Keeps && spec.workspace.mode == MountMode::Overlay {
        record.kept = Some(Vec::new());
    }
    record.command = job.argv.iter().map(|a| a.to_string_lossy().into_owned()).collect();
    if !stays {
        owned.write_record(&record)?;
    }
    // What stands already writes through nowhere.
    let guard = if standing.is_some() { Guard::default() } else { guard_of(job, &owned)? };
    let started = match standing {
        Some(sandbox) => Pledge::new(job.intent, &owned.id, spec).redeem().map(|()| (sandbox, Vec::new())).map_err(JobError::from),
        None => raise(job, &owned, &guard, furniture, &work),
    };
    let started = started.and_then(|(mut sandbox, files)| {
        put_in(&mut sandbox, &files)?;
        let exports = sandbox.take_exports();
        if stays && exports.iter().any(|(name, _)| name == UPPER) {
            return Err(JobError::Fleeting);
        }
        Ok((sandbox, exports))
    });
    let (mut sandbox, mut exports) = match started {
        Ok(started) => started,
        Err(error) => {
            if stays {
                owned.clear_job(job.state)?;
            } else {
                owned.remove()?;
            }
            return Err(error);
        }
    };
    let enforcement = sandbox.enforcement().clone();
    let steps = sandbox.steps().to_vec();
    let notes = sandbox.notes().to_vec();
    let driven = match work {
        Work::Program(streams, signals) => sandbox.exec(job.argv, streams, signals),
        Work::Files(act) => {
            act(&mut sandbox.files());
            Ok(Outcome::of_no_program())
        }
    };
    let mut left_running = Vec::new();
    if let (Ok(_), Some(furniture)) = (&driven, furniture) {
        left_running = sandbox.programs();
        furniture.look_back(&mut sandbox.files());
    }
    exports.extend(sandbox.take_exports());
    // From here on nothing inside runs any more, so what is read is what there is.
    sandbox.silence();
    let mut violations = guard.quarantine(&owned.directory.join("quarantine"));
    violations.extend(guard.changed_configs(&exports));
    let upper = bring_upper(&owned, &exports, spec)?;
    let outcome = match driven {
        Ok(outcome) => outcome,
        Err(error) => {
            // The stream broke: somebody killed the guest. Work that was done until then is kept where it would be if we had been killed.
            let is_kept = stays || killed == Killed::Keeps && upper.is_some_and(|upper| kept::is_empty_layer(&upper) == Ok(false));
            if !is_kept {
                owned.remove()?;
            }
            return Err(error.into());
        }
    };
    let mut done = Done {
        id: owned.id.clone(),
        outcome,
        enforcement,
        steps,
        changes: Vec::new(),
        digests: Vec::new(),
        kept: None,
        applied: 0,
        notes,
        violations,
        left_running,
    };
    let grave = match upper {
        _ if stays => {
            owned.clear_job(job.state)?;
            None
        }
        Some(upper) if !kept::is_empty_layer(&upper).map_err(|e| JobError::Keep(e.to_string()))? => {
            finish_overlay(job, &mut done, owned, record, &upper)?
        }
        _ if has_quarantine(&owned.directory) => {
            record.kept = Some(Vec::new());
            owned.write_record(&record)?;
            None
        }
        _ => Some(owned.bury()?),
    };
    Ok((done, Remains { sandbox: Some(sandbox), grave }))
}

/// Looks at protected paths and writes down what there is, before anything can change it.
fn guard_of(job: &Job<'_>, owned: &Owned) -> Result<Guard, JobError> {
    // Without a wall nothing is guarded, and nothing is claimed.
    if job.backend.kind() == local::KIND {
        return Ok(Guard::default());
    }
    let guard = Guard::take(job.spec).map_err(|e| JobError::Keep(e.to_string()))?;
    guard.write(&owned.directory).map_err(|e| JobError::Keep(format!("writing down the protected paths: {e}")))?;
    Ok(guard)
}

/// Writes files before anything else is there.
fn put_in(sandbox: &mut Sandbox, files: &[HomeFile]) -> Result<(), JobError> {
    for HomeFile { path, contents, mode } in files {
        let failed = |source| JobError::Furnish { path: path.to_string(), source };
        sandbox.write_file(path, *mode, &mut contents.as_slice()).map_err(failed)?;
    }
    Ok(())
}

/// Opens the way out and raises the wall while the intent is written; with it come files that are to be put in.
fn raise(
    job: &Job<'_>,
    owned: &Owned,
    guard: &Guard,
    furniture: Option<&dyn Furnish>,
    work: &Work<'_, '_>,
) -> Result<(Sandbox, Vec<HomeFile>), JobError> {
    let is_wanted = || match work {
        // Nothing runs yet that another signal could be meant for.
        Work::Program(_, Some(signals)) => !std::iter::from_fn(|| signals.next()).any(|signal| ENDING.contains(&signal)),
        Work::Program(_, None) | Work::Files(_) => true,
    };
    let opened = job.gate.map(|gate| gate.open(&owned.id, &owned.directory, &is_wanted)).transpose()?;
    let furnished = opened.as_ref().map(|opened| opened.furnish(job.spec));
    let spec = furnished.as_ref().unwrap_or(job.spec);
    let pledge = Pledge::new(job.intent, &owned.id, spec);
    let sandbox = start(job, owned, guard, opened.as_ref(), spec, &pledge)?;
    pledge.redeem()?;
    let way_out = opened.as_ref().map(|opened| opened.environment.as_slice()).unwrap_or_default();
    Ok((sandbox, furniture.map(|furniture| furniture.files(way_out)).unwrap_or_default()))
}

fn start(
    job: &Job<'_>,
    owned: &Owned,
    guard: &Guard,
    opened: Option<&Opened>,
    spec: &SandboxSpec,
    pledge: &Pledge<'_>,
) -> Result<Sandbox, BackendError> {
    // What comes of it is asked for when the sandbox stands.
    let meanwhile = || drop(pledge.redeem());
    let hidden = [job.state.to_owned(), job.runtime.to_owned()];
    let programs = crate::state::programs(job.state);
    let start = Start {
        spec,
        id: &owned.id,
        directory: &owned.directory,
        home: job.home,
        toolchain_roots: job.toolchain_roots,
        hidden: &hidden,
        guard,
        programs: Some(&programs),
        way_out: opened.map(|opened| &opened.way_out),
        meanwhile: Some(&meanwhile),
    };
    Sandbox::start(job.backend, &start)
}

/// Where the workspace's upper layer is on disk, after bringing it out of memory if it was there.
fn bring_upper(owned: &Owned, exports: &[(String, std::os::fd::OwnedFd)], spec: &SandboxSpec) -> Result<Option<PathBuf>, JobError> {
    if spec.workspace.mode != MountMode::Overlay {
        return Ok(None);
    }
    let upper = owned.directory.join("layer/upper");
    if let Some((_, fd)) = exports.iter().find(|(name, _)| name == UPPER) {
        bring_out(fd.as_fd(), &upper).map_err(JobError::Keep)?;
    }
    Ok(upper.is_dir().then_some(upper))
}

/// Copies an upper layer out of memory, replacing an earlier copy.
pub fn bring_out(from: std::os::fd::BorrowedFd<'_>, upper: &Path) -> Result<(), String> {
    if upper.exists() {
        remove::remove_tree(upper).map_err(|e| e.to_string())?;
    }
    if let Some(parent) = upper.parent() {
        crate::state::private_directory(parent).map_err(|e| e.to_string())?;
    }
    kept::copy_tree(from, upper, kept::Ownership::Caller).map(drop).map_err(|e| e.to_string())
}

/// Keeps the changes, or brings them back. What is buried holds nothing that anybody needs.
fn finish_overlay(job: &Job<'_>, done: &mut Done, owned: Owned, mut record: Record, upper: &Path) -> Result<Option<Grave>, JobError> {
    let layer = Layer::new(upper, job.spec.workspace.path.as_path());
    let mut changes = layer.changes()?;
    if changes.is_empty() {
        return Ok(Some(owned.bury()?));
    }
    done.changes = listed(&changes);
    done.digests = digests(&changes);
    if job.on_success == OnSuccess::Apply && done.outcome.ending == drive::Ending::Code(0) {
        let plan = plan::Plan::from(&changes, &[]);
        // Killed on the way, what was not brought back yet is still there to be.
        record.kept = Some(done.changes.clone());
        record.applying = true;
        owned.write_record(&record)?;
        let report = bring_back(&plan, &layer, &record)?;
        done.applied = report.applied.len();
        done.violations.extend(problems(&report));
        remember_applied(&mut record, &report);
        match layer.changes() {
            Ok(left) if left.is_empty() => return Ok(Some(owned.bury()?)),
            Ok(left) => changes = left,
            // What was applied is applied; the rest is kept for a person to look at.
            Err(error) => done.violations.push(format!("what is left cannot be compared with the workspace: {error}")),
        }
    }
    let left = listed(&changes);
    record.applying = false;
    done.kept = Some(left.len());
    record.kept = Some(left);
    owned.write_record(&record)?;
    Ok(None)
}

/// Changes as people list them: a directory is named only when nothing beneath it is.
pub fn listed(changes: &[LayerChange]) -> Vec<Change> {
    worth_listing(changes).map(LayerChange::to_change).collect()
}

/// The digests of what [`listed`] lists, in the same order.
pub fn digests(changes: &[LayerChange]) -> Vec<Option<ContentDigest>> {
    worth_listing(changes).map(|change| change.new.as_ref().and_then(|entry| entry.digest)).collect()
}

fn worth_listing(changes: &[LayerChange]) -> impl Iterator<Item = &LayerChange> {
    let is_directory = move |c: &LayerChange| c.new.as_ref().or(c.old.as_ref()).is_some_and(|e| e.kind == EntryType::Directory);
    // Paths are sorted, so what lies beneath a directory follows it, though perhaps not at once (`a`, `a-b`, `a/c`).
    let covered = move |at: usize, c: &LayerChange| {
        changes
            .iter()
            .skip(at + 1)
            .take_while(|o| o.path.as_os_str().as_bytes().starts_with(c.path.as_os_str().as_bytes()))
            .any(|o| o.path.starts_with(&c.path))
    };
    changes.iter().enumerate().filter(move |(at, c)| !(is_directory(c) && covered(*at, c))).map(|(_, c)| c)
}

/// Remembers what an apply wrote, so that a second one does not take it for somebody else's change.
pub fn remember_applied(record: &mut Record, report: &apply::Report) {
    record.applied.extend(report.applied.iter().filter_map(|a| a.stamp.map(|stamp| (a.path.clone().into_os_string(), stamp))));
}

/// Applies a plan to the workspace that a record names.
pub fn bring_back(plan: &plan::Plan, layer: &Layer, record: &Record) -> Result<apply::Report, JobError> {
    let workspace = std::fs::File::open(record.workspace_path()).map_err(|e| JobError::Keep(format!("opening the workspace: {e}")))?;
    if !record.is_workspace(&workspace) {
        let path = stockade_core::escape::escape(&record.workspace);
        return Err(JobError::Keep(format!("`{path}` is not the directory any more that the sandbox began with; nothing was applied")));
    }
    // A beginning that lies ahead: the clock was put back since, and no file's time says whether it changed after the beginning.
    let nothing_is_certain = Moment { seconds: i64::MIN, nanoseconds: 0 };
    let started = if record.started > Moment::now() { nothing_is_certain } else { record.started };
    let mut baseline = apply::Baseline::new(started);
    baseline.temporary = strays::prefix(&record.id);
    strays::remove(workspace.as_fd(), &layer.upper, &baseline.temporary)
        .map_err(|e| JobError::Keep(format!("removing what an earlier apply left: {e}")))?;
    baseline.applied.extend(record.applied.iter().map(|(path, stamp)| (PathBuf::from(path), *stamp)));
    Ok(apply::apply(plan, layer, workspace.as_fd(), &baseline, apply::Durability::Synced))
}

/// What an apply left undone, one line each.
pub fn problems(report: &apply::Report) -> Vec<String> {
    let shown = |path: &Path| stockade_core::escape::escape_bytes(path.as_os_str().as_bytes());
    let mut lines = Vec::new();
    lines.extend(report.skipped_protected.iter().map(|s| format!("{}: protected ({}), not applied", shown(&s.path), s.why)));
    lines.extend(report.conflicts.iter().map(|c| format!("{}: conflict, {}", shown(&c.path), c.why)));
    lines.extend(report.refused.iter().map(|r| format!("{}: refused, {}", shown(&r.path), r.why)));
    lines.extend(report.errors.iter().map(|e| format!("{}: {}: {}", shown(&e.path), e.step, e.source)));
    lines
}

fn has_quarantine(directory: &Path) -> bool {
    std::fs::read_dir(directory.join("quarantine")).is_ok_and(|mut entries| entries.next().is_some())
}

/// A duration in milliseconds, as results give it.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
