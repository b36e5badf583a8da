//! Overlays that outlive one call: one per agent and workspace, for as long as a surface serves.
//!
//! ```text
//!  made (first call that may write) ─▶ free ─▶ taken by one call ─▶ free … ─▶ finished: kept where something changed, else removed
//!                                       └─ unchanged, and another agent needs the room ─▶ removed; the next call makes another
//! ```
//!
//! Each call has a jail of its own, with the programs that its verdict names; only the layer of changes beneath the workspace is the same. The
//! kernel does not define what two mounts of one layer do, so calls take turns. Home, `/tmp` and everything else are fresh each time. Whoever is
//! killed leaves its overlay kept, as an agent's is.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use stockade_core::id::SandboxId;
use stockade_core::result::{Change, ChangeKind};
use stockade_core::spec::MountMode;
use stockade_sandbox::once::{self, Done, Extras, JobError, Killed};
use stockade_sandbox::state::{Kind, Owned, Record, Sandboxes};
use stockade_sandbox::workspace::digest::ContentDigest;
use stockade_sandbox::workspace::kept;
use stockade_sandbox::workspace::layer::Layer;

use super::asker::AgentName;
use super::explain;
use crate::assemble::Assembled;
use crate::failure::Failure;

/// Overlays of one surface at most: a client that changes its name with each call gets no more.
const MOST: usize = 16;
/// How often a call that waits looks whether it is still wanted.
const LOOK: Duration = Duration::from_millis(50);

/// The overlays of one surface.
#[derive(Debug, Default)]
pub(crate) struct Overlays {
    known: Mutex<HashMap<Whose, Known>>,
}

/// The agent and its workspace.
type Whose = (AgentName, PathBuf);

#[derive(Debug)]
struct Known {
    overlay: Arc<Overlay>,
    /// When a call last asked for it.
    used: Instant,
}

/// One overlay.
#[derive(Debug)]
pub(crate) struct Overlay {
    owned: Owned,
    workspace: PathBuf,
    turns: Mutex<Turns>,
    free: Condvar,
}

#[derive(Debug, Default)]
struct Turns {
    taken: bool,
    /// What changed so far, as the last call left it.
    changes: Vec<(Change, Option<ContentDigest>)>,
}

/// A call's turn at an overlay; it ends with the value.
#[derive(Debug)]
pub(crate) struct Turn<'t> {
    overlay: &'t Overlay,
}

/// What an overlay holds that differs from the workspace, with the digests of what is there now.
#[derive(Debug)]
pub(crate) struct Written {
    /// What changed.
    pub(crate) changes: Vec<(Change, Option<ContentDigest>)>,
}

/// What is left of an overlay when its surface ends.
#[derive(Debug)]
pub(crate) struct Kept {
    /// Its sandbox.
    pub(crate) id: SandboxId,
    /// How many files changed.
    pub(crate) changed: usize,
}

impl Overlays {
    /// The overlay that a call of this agent is to have; none where it writes nowhere or at once, or could only look at what nobody wrote.
    pub(crate) fn of(&self, agent: &AgentName, assembled: &Assembled) -> Result<Option<Arc<Overlay>>, Failure> {
        let workspace = assembled.spec.workspace.path.as_path();
        let mut known = lock(&self.known);
        let key = (agent.clone(), workspace.to_owned());
        if let Some(Known { overlay, used }) = known.get_mut(&key) {
            let is_wanted = match assembled.spec.workspace.mode {
                MountMode::Overlay => true,
                MountMode::Ro => overlay.shows_something(),
                MountMode::Rw => false,
            };
            *used = Instant::now();
            return Ok(is_wanted.then(|| Arc::clone(overlay)));
        }
        if assembled.spec.workspace.mode != MountMode::Overlay {
            return Ok(None);
        }
        if known.len() >= MOST {
            let spare = spare(&known).ok_or_else(full)?;
            if let Some(Known { overlay, .. }) = known.remove(&spare) {
                overlay.finish()?;
            }
        }
        let overlay = Arc::new(Overlay::make(agent, assembled)?);
        known.insert(key, Known { overlay: Arc::clone(&overlay), used: Instant::now() });
        Ok(Some(overlay))
    }

    /// The sandbox that an agent has in a workspace, if it has one yet.
    pub(crate) fn sandbox_of(&self, agent: &AgentName, workspace: &Path) -> Option<SandboxId> {
        lock(&self.known).get(&(agent.clone(), workspace.to_owned())).map(|known| known.overlay.owned.id.clone())
    }

    /// Ends them all. What changed is kept like the overlay of a run; what did not leaves nothing.
    pub(crate) fn finish(&self) -> Vec<Result<Kept, Failure>> {
        let known = std::mem::take(&mut *lock(&self.known));
        known.into_values().filter_map(|known| known.overlay.finish().transpose()).collect()
    }
}

/// The overlay that was not asked for the longest, of those that no call has and that hold nothing.
fn spare(known: &HashMap<Whose, Known>) -> Option<Whose> {
    // Calls come to one through the lock on all of them, so one that nobody else has stays so.
    let is_unused = |known: &Known| Arc::strong_count(&known.overlay) == 1;
    let mut unused: Vec<_> = known.iter().filter(|(_, known)| is_unused(known)).collect();
    unused.sort_by_key(|(_, known)| known.used);
    let empty = unused.into_iter().find(|(_, known)| known.overlay.changes().is_ok_and(|changes| changes.is_empty()));
    empty.map(|(whose, _)| whose.clone())
}

fn full() -> Failure {
    Failure::full("sandbox", format!("{MOST} agents have changes or calls of theirs here already"))
        .with_hint("use one of their names, or end the server: what they changed is kept (`stockade sandbox list`, `apply`)")
}

impl Overlay {
    fn make(agent: &AgentName, assembled: &Assembled) -> Result<Self, Failure> {
        let workspace = assembled.spec.workspace.path.as_path();
        let failed = |error| explain(&JobError::State(error));
        let owned = Sandboxes::open(&assembled.state).and_then(|sandboxes| sandboxes.create()).map_err(failed)?;
        let mut record = Record::new(owned.id.clone(), Kind::Run, assembled.backend.kind().name(), workspace, MountMode::Overlay);
        record.command = vec!["stockade".to_owned(), "mcp".to_owned(), agent.whole()];
        // Should we be killed, what was done until then is there to be looked at.
        record.kept = Some(Vec::new());
        owned.write_record(&record).map_err(failed)?;
        Ok(Self { owned, workspace: workspace.to_owned(), turns: Mutex::default(), free: Condvar::new() })
    }

    /// Waits for a turn; none where the call is not wanted any more.
    pub(crate) fn turn(&self, is_wanted: &dyn Fn() -> bool) -> Option<Turn<'_>> {
        let mut turns = lock(&self.turns);
        while turns.taken && is_wanted() {
            turns = self.free.wait_timeout(turns, LOOK).map_or_else(|poisoned| poisoned.into_inner().0, |(turns, _)| turns);
        }
        if turns.taken || !is_wanted() {
            // Whoever else waits may have been woken for nothing.
            self.free.notify_one();
            return None;
        }
        turns.taken = true;
        Some(Turn { overlay: self })
    }

    /// Whether who looks through it may see something else than the workspace.
    fn shows_something(&self) -> bool {
        // What cannot be looked into may hold anything.
        let upper = self.upper();
        lock(&self.turns).taken || (upper.exists() && kept::is_empty_layer(&upper) != Ok(true))
    }

    fn upper(&self) -> PathBuf {
        self.owned.directory.join("layer/upper")
    }

    fn changes(&self) -> Result<Vec<(Change, Option<ContentDigest>)>, Failure> {
        let upper = self.upper();
        let failed = |error: &JobError| explain(error);
        if !upper.is_dir() || kept::is_empty_layer(&upper).map_err(|error| failed(&JobError::Keep(error.to_string())))? {
            return Ok(Vec::new());
        }
        let changes = Layer::new(&upper, &self.workspace).changes().map_err(|error| failed(&error.into()))?;
        Ok(once::listed(&changes).into_iter().zip(once::digests(&changes)).collect())
    }

    fn finish(&self) -> Result<Option<Kept>, Failure> {
        let failed = |error| explain(&JobError::State(error));
        let changes = self.changes()?;
        let owned = self.owned.share().map_err(failed)?;
        if changes.is_empty() {
            owned.remove().map_err(failed)?;
            return Ok(None);
        }
        let mut record = owned.record().map_err(failed)?;
        let kept = Kept { id: owned.id.clone(), changed: changes.len() };
        record.kept = Some(changes.into_iter().map(|(change, _)| change).collect());
        owned.write_record(&record).map_err(failed)?;
        Ok(Some(kept))
    }
}

impl Turn<'_> {
    /// What others wrote here before, looked at now; nobody else writes while the turn lasts.
    pub(super) fn written(&self) -> Result<Written, Failure> {
        self.overlay.changes().map(|changes| Written { changes })
    }

    /// Whether somebody wrote here before.
    pub(super) fn is_used(&self) -> bool {
        !lock(&self.overlay.turns).changes.is_empty()
    }

    /// What makes a job take place here.
    pub(super) fn extras<'a>(&self) -> Result<Extras<'a>, Failure> {
        let owned = self.overlay.owned.share().map_err(|error| explain(&JobError::State(error)))?;
        Ok(Extras { owned: Some(owned), killed: Killed::Keeps, overlay: once::Overlay::Stays, ..Extras::default() })
    }

    /// Says what this call changed: of what differs from the workspace now, that which did not before.
    pub(super) fn take_changes(self, done: &mut Done, assembled: &Assembled) -> Result<(), Failure> {
        if assembled.spec.workspace.mode != MountMode::Overlay {
            return Ok(());
        }
        let now = self.overlay.changes()?;
        let before = std::mem::replace(&mut lock(&self.overlay.turns).changes, now.clone());
        (done.changes, done.digests) = since(&before, &now).into_iter().unzip();
        Ok(())
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        lock(&self.overlay.turns).taken = false;
        self.overlay.free.notify_one();
    }
}

type Listed = (Change, Option<ContentDigest>);

/// What is new or different, and what is as it was in the workspace again.
fn since(before: &[Listed], now: &[Listed]) -> Vec<Listed> {
    let mut changed: Vec<Listed> = now.iter().filter(|entry| !before.contains(entry)).cloned().collect();
    let gone = before.iter().filter(|(old, _)| !now.iter().any(|(new, _)| new.path == old.path));
    changed.extend(gone.map(|(old, _)| {
        // What had been added is gone; what had been changed is again what the workspace has.
        let kind = if old.kind == ChangeKind::Added { ChangeKind::Deleted } else { ChangeKind::Modified };
        (Change { kind, from: None, ..old.clone() }, None)
    }));
    changed.sort_by(|(one, _), (other, _)| one.path.cmp(&other.path));
    changed
}

/// A thread that failed while it had the lock left whole values.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(path: &str, kind: ChangeKind) -> Listed {
        (Change { path: path.into(), path_base64: None, kind, from: None, protected: false }, None)
    }

    #[test]
    fn a_call_lists_what_it_changed_itself() {
        use ChangeKind::{Added, Deleted, Modified};
        let before = [change("a", Added), change("b", Modified), change("c", Added)];
        let now = [change("a", Added), change("b", Deleted), change("d", Added)];
        assert_eq!(since(&before, &now), [change("b", Deleted), change("c", Deleted), change("d", Added)]);
        assert_eq!(since(&before, &before), []);
        assert_eq!(since(&[change("b", Deleted)], &[]), [change("b", Modified)]);
    }
}
