//! Templates: fresh sandboxes of one specification, made ahead of demand.
//!
//! ```text
//!            ┌─ maker (thread) ─▶ stock of jails that nothing ran in ─▶ take ─▶ used once ─▶ drop ─▶ reaper (thread)
//! template ──┤                                                            ▲
//!            └──────────── stock empty: cloned on the caller's thread ────┘
//! ```
//!
//! [`Template::prepare`] makes a jail's template ([`JailTemplate`]) and fills the stock. [`Template::take`] hands out a jail that stands, is confined,
//! was read back and judged, and in which nothing ever ran. Each is used once: dropping [`Taken`] kills it, and another thread clears it away.
//! What was seen of the host (system directories, toolchains, files to hide) is what there was when the template was prepared.
//!
//! Everything ends with the process that holds the template, however that ends: the kernel kills the template's pid namespace, which holds
//! all its jails. Directories and control groups of an owner that was killed are swept by the next start, like those of any sandbox.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use stockade_core::escape::escape;
use stockade_core::id::SandboxId;
use stockade_core::spec::{BackendKind, MountMode, SandboxSpec};

use crate::backends::jail::JailTemplate;
use crate::backends::{BackendError, Start};
use crate::connection::{Haste, Passing};
use crate::guard::Guard;
use crate::sandbox::Sandbox;
use crate::state::{self, Kind, Owned, Record, Sandboxes, StateError};

/// How many jails wait, where nobody says otherwise: one for the next call, one while its successor is made.
pub const STOCK: NonZeroUsize = NonZeroUsize::MIN.saturating_add(1);

/// How long the stock is not refilled after a jail was taken, while others wait: what runs in it first needs the processors more.
const AFTER_TAKING: Duration = Duration::from_millis(10);

/// What a template is of.
#[derive(Debug, Clone)]
pub struct Recipe {
    /// What each sandbox is.
    pub spec: SandboxSpec,
    /// The directory that holds all state.
    pub state: PathBuf,
    /// The person's home directory outside.
    pub home: PathBuf,
    /// Values of variables that name toolchain roots.
    pub toolchain_roots: Vec<OsString>,
    /// Directories of ours that nothing inside may see.
    pub hidden: Vec<PathBuf>,
    /// Whether descriptors are passed to programs.
    pub passing: Passing,
    /// How many jails are kept waiting. Each holds about a megabyte.
    pub stock: NonZeroUsize,
}

/// Why there is no template, or no jail from one.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// Protected paths are looked at when a sandbox starts; one that waits would protect what was there before.
    #[error("`{0}` may be written through, and a sandbox that is made ahead of demand would not protect what appeared there since")]
    WrittenThrough(String),
    /// The state directory.
    #[error(transparent)]
    State(#[from] StateError),
    /// The wall.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// There is no thread to make jails on.
    #[error("starting a thread of the template: {0}")]
    Thread(#[source] std::io::Error),
}

/// Makes fresh jails of one specification, some of them ahead of demand.
#[derive(Debug)]
pub struct Template {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// A fresh jail. Dropping it ends it; nobody waits for that.
pub struct Taken {
    /// Only `None` while it is dropped.
    standing: Option<Standing>,
    id: SandboxId,
    shared: Arc<Shared>,
}

/// A jail and its directory.
struct Standing {
    sandbox: Sandbox,
    owned: Owned,
}

struct Shared {
    recipe: Recipe,
    sandboxes: Sandboxes,
    programs: PathBuf,
    /// The jails' template and its directory; only `None` while both are removed.
    jails: Option<(JailTemplate, Owned)>,
    /// How many are made at once.
    most_at_once: usize,
    stock: Mutex<Stock>,
    /// Something in the stock changed.
    changed: Condvar,
}

#[derive(Default)]
struct Stock {
    ready: VecDeque<Standing>,
    used: Vec<Standing>,
    /// How many are being made, by the maker and by callers.
    making: usize,
    /// Callers that wait for it.
    waiting: usize,
    /// Until then the maker rests, unless the stock is empty.
    rest: Option<Instant>,
    phase: Phase,
}

/// What comes of asking for a jail.
enum Next {
    /// One that waited.
    Ready(Box<Standing>),
    /// The caller makes one.
    Make,
}

/// What the template's threads do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Phase {
    /// They keep the stock full.
    #[default]
    Filling,
    /// Making failed; the next caller tries it and is told why.
    Failing,
    /// They end.
    Closing,
}

impl Template {
    /// Prepares a template and its first jail, so that what cannot be had here is known now.
    pub fn prepare(recipe: Recipe) -> Result<Self, TemplateError> {
        refuse_written_through(&recipe.spec)?;
        let sandboxes = Sandboxes::open(&recipe.state)?;
        let programs = state::programs(&recipe.state);
        let owned = new_directory(&sandboxes, &recipe.spec)?;
        let jails = match JailTemplate::prepare(&start_of(&recipe, &programs, &owned, &Guard::default()), recipe.passing) {
            Ok(jails) => jails,
            Err(error) => {
                owned.remove()?;
                return Err(error.into());
            }
        };
        let most_at_once = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let (stock, changed) = (Mutex::default(), Condvar::new());
        let shared = Shared { recipe, sandboxes, programs, jails: Some((jails, owned)), most_at_once, stock, changed };
        let first = shared.make(Haste::Somebody)?;
        shared.lock().ready.push_back(first);
        let mut template = Self { shared: Arc::new(shared), threads: Vec::new() };
        for (name, work) in [("stockade-maker", Shared::keep_full as fn(&Shared)), ("stockade-reaper", Shared::clear_away)] {
            let shared = Arc::clone(&template.shared);
            let thread = std::thread::Builder::new().name(name.into()).spawn(move || work(&shared));
            template.threads.push(thread.map_err(TemplateError::Thread)?);
        }
        Ok(template)
    }

    /// A fresh jail: one that waits, else one that is made now.
    pub fn take(&self) -> Result<Taken, TemplateError> {
        let standing = match self.shared.next() {
            Next::Ready(standing) => *standing,
            Next::Make => {
                let made = self.shared.make(Haste::Somebody);
                self.shared.lock().making -= 1;
                // Whoever waits may begin one now.
                self.shared.changed.notify_all();
                made?
            }
        };
        let id = standing.owned.id.clone();
        Ok(Taken { standing: Some(standing), id, shared: Arc::clone(&self.shared) })
    }

    /// Whether what jails of it show of the host is still what there is. One that was prepared before something moved is not used again.
    pub fn is_true(&self) -> bool {
        let Shared { recipe, programs, jails, .. } = &*self.shared;
        let Some((jails, owned)) = jails else { return false };
        jails.is_true(&start_of(recipe, programs, owned, &Guard::default()))
    }

    /// How many jails wait at this moment.
    pub fn waiting(&self) -> usize {
        self.shared.lock().ready.len()
    }
}

impl Drop for Template {
    fn drop(&mut self) {
        self.shared.lock().phase = Phase::Closing;
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            // One that panicked left nothing that dropping the rest does not end.
            let _ = thread.join();
        }
        let mut stock = self.shared.lock();
        let rest: Vec<Standing> = std::mem::take(&mut stock.ready).into_iter().chain(std::mem::take(&mut stock.used)).collect();
        drop(stock);
        rest.into_iter().for_each(Standing::clear);
    }
}

impl Taken {
    /// Its id.
    pub fn id(&self) -> &SandboxId {
        &self.id
    }

    /// The jail and its directory, for whoever hands them on. The template stays at least as long as the last value: jails end with it.
    pub(crate) fn part(mut self) -> Option<(Sandbox, Owned, Keep)> {
        let Standing { sandbox, owned } = self.standing.take()?;
        Some((sandbox, owned, Keep(Arc::clone(&self.shared))))
    }
}

/// Keeps a template, though nobody takes jails from it any more.
pub(crate) struct Keep(Arc<Shared>);

impl Keep {
    /// The jail is not needed any more: now is the time to make its successor.
    pub(crate) fn give_back(&self) {
        self.0.lock().rest = None;
        self.0.changed.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Stock> {
        self.stock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, stock: MutexGuard<'a, Stock>) -> MutexGuard<'a, Stock> {
        self.changed.wait(stock).unwrap_or_else(PoisonError::into_inner)
    }

    /// The next of the stock, unless the caller had better make one itself. That counts as under way from here on.
    fn next(&self) -> Next {
        let mut stock = self.lock();
        loop {
            while let Some(standing) = stock.ready.pop_front() {
                if standing.sandbox.is_running() {
                    stock.rest = Some(Instant::now() + AFTER_TAKING);
                    self.changed.notify_all();
                    return Next::Ready(Box::new(standing));
                }
                // Somebody outside ended it.
                stock.used.push(standing);
            }
            // One that is under way is there sooner than one that is begun now; and more at once than there are processors only slow each other down.
            if stock.making <= stock.waiting && stock.making < self.most_at_once {
                if stock.phase == Phase::Failing {
                    stock.phase = Phase::Filling;
                }
                stock.making += 1;
                self.changed.notify_all();
                return Next::Make;
            }
            stock.waiting += 1;
            stock = self.wait(stock);
            stock.waiting -= 1;
        }
    }

    /// The maker's work.
    fn keep_full(&self) {
        let mut stock = self.lock();
        loop {
            match stock.phase {
                Phase::Closing => return,
                Phase::Filling if stock.ready.len() < self.recipe.stock.get() && stock.making < self.most_at_once => {
                    let rest = stock.rest.filter(|_| !stock.ready.is_empty());
                    if let Some(left) = rest.and_then(|until| until.checked_duration_since(Instant::now())) {
                        stock = self.changed.wait_timeout(stock, left).unwrap_or_else(PoisonError::into_inner).0;
                        continue;
                    }
                }
                Phase::Filling | Phase::Failing => {
                    stock = self.wait(stock);
                    continue;
                }
            }
            stock.making += 1;
            let stock_is_awaited = stock.waiting > 0;
            drop(stock);
            let made = self.make(if stock_is_awaited { Haste::Somebody } else { Haste::Nobody });
            stock = self.lock();
            stock.making -= 1;
            match made {
                Ok(standing) => stock.ready.push_back(standing),
                Err(_) if stock.phase == Phase::Filling => stock.phase = Phase::Failing,
                Err(_) => {}
            }
            self.changed.notify_all();
        }
    }

    /// The reaper's work.
    fn clear_away(&self) {
        let mut stock = self.lock();
        loop {
            let used = std::mem::take(&mut stock.used);
            if used.is_empty() {
                if stock.phase == Phase::Closing {
                    return;
                }
                stock = self.wait(stock);
                continue;
            }
            drop(stock);
            used.into_iter().for_each(Standing::clear);
            stock = self.lock();
        }
    }

    /// A jail in a new directory.
    fn make(&self, haste: Haste) -> Result<Standing, TemplateError> {
        let owned = new_directory(&self.sandboxes, &self.recipe.spec)?;
        let guard = Guard::default();
        let start = start_of(&self.recipe, &self.programs, &owned, &guard);
        let gone = || BackendError::Step { step: "cloning".into(), detail: "the template has ended".into(), fix: String::new() };
        let made = match &self.jails {
            Some((jails, _)) => {
                jails.start(&start, haste).and_then(|running| Sandbox::around(running, BackendKind::Jail, &self.recipe.spec))
            }
            None => Err(gone()),
        };
        match made {
            Ok(sandbox) => Ok(Standing { sandbox, owned }),
            Err(error) => {
                owned.remove()?;
                Err(error.into())
            }
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some((jails, owned)) = self.jails.take() {
            drop(jails);
            // What stays is for the next sweep.
            let _ = owned.remove();
        }
    }
}

impl Standing {
    /// Ends it and removes everything that was made for it.
    fn clear(self) {
        self.sandbox.destroy();
        // What stays is for the next sweep.
        let _ = self.owned.remove();
    }
}

impl Deref for Taken {
    type Target = Sandbox;

    #[expect(clippy::expect_used, reason = "it is taken out only by `drop`, after which nothing can ask")]
    fn deref(&self) -> &Sandbox {
        &self.standing.as_ref().expect("there until it is dropped").sandbox
    }
}

impl DerefMut for Taken {
    #[expect(clippy::expect_used, reason = "it is taken out only by `drop`, after which nothing can ask")]
    fn deref_mut(&mut self) -> &mut Sandbox {
        &mut self.standing.as_mut().expect("there until it is dropped").sandbox
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let Some(standing) = self.standing.take() else { return };
        standing.sandbox.kill();
        let mut stock = self.shared.lock();
        if stock.phase == Phase::Closing {
            drop(stock);
            standing.clear();
        } else {
            stock.used.push(standing);
            stock.rest = None;
            drop(stock);
            self.shared.changed.notify_all();
        }
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("recipe", &self.recipe).finish_non_exhaustive()
    }
}

/// A directory and a record of what it is for, so that others do not take it for a damaged one.
fn new_directory(sandboxes: &Sandboxes, spec: &SandboxSpec) -> Result<Owned, StateError> {
    let owned = sandboxes.create()?;
    let workspace = &spec.workspace;
    let record = Record::new(owned.id.clone(), Kind::Run, BackendKind::Jail.name(), workspace.path.as_path(), workspace.mode);
    owned.write_record(&record)?;
    Ok(owned)
}

fn start_of<'a>(recipe: &'a Recipe, programs: &'a Path, owned: &'a Owned, guard: &'a Guard) -> Start<'a> {
    Start {
        spec: &recipe.spec,
        id: &owned.id,
        directory: &owned.directory,
        home: &recipe.home,
        toolchain_roots: &recipe.toolchain_roots,
        hidden: &recipe.hidden,
        guard,
        programs: Some(programs),
        way_out: None,
        meanwhile: None,
    }
}

fn refuse_written_through(spec: &SandboxSpec) -> Result<(), TemplateError> {
    let workspace = (&spec.workspace.path, spec.workspace.mode);
    let mut places = spec.mounts.iter().map(|mount| (&mount.host, mount.mode)).chain([workspace]);
    match places.find(|(_, mode)| *mode == MountMode::Rw) {
        Some((path, _)) => Err(TemplateError::WrittenThrough(escape(&path.as_path().to_string_lossy()))),
        None => Ok(()),
    }
}
