//! What `apply` will do, decided before anything is touched.
//!
//! Pure: a list of changes and the protected paths that a person named go in, a plan comes out. Protected paths are left
//! out unless named, special files and what could not be read are refused.

use std::path::{Component, Path, PathBuf};

use stockade_core::result::ChangeKind;

use super::change::{Entry, EntryType, LayerChange};
use super::shown;

/// A change that is left out because it is protected and was not named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// The path.
    pub path: PathBuf,
    /// Why it is protected.
    pub why: &'static str,
}

/// A change that is never applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The path.
    pub path: PathBuf,
    /// Why.
    pub why: RefusedReason,
}

/// Why a change is never applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RefusedReason {
    /// A FIFO, socket or device.
    #[error("it is a FIFO, socket or device")]
    Special,
    /// There is no digest to hold it to.
    #[error("it is too large or unreadable, so what was shown cannot be verified")]
    Unread,
    /// Not a path of plain names.
    #[error("it is not a plain relative path")]
    BadPath,
}

/// What will be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub(crate) steps: Vec<LayerChange>,
    pub(crate) skipped: Vec<Skipped>,
    pub(crate) refused: Vec<Refused>,
    unmatched: Vec<PathBuf>,
}

impl Plan {
    /// Sorts out what may be applied. `accept_protected` are paths relative to the workspace; a directory accepts all in it.
    pub fn from(changes: &[LayerChange], accept_protected: &[PathBuf]) -> Self {
        let accepted: Vec<PathBuf> = accept_protected.iter().map(|path| normal(path)).filter(|path| !path.as_os_str().is_empty()).collect();
        let mut plan = Self { steps: Vec::new(), skipped: Vec::new(), refused: Vec::new(), unmatched: Vec::new() };
        for change in changes {
            if let Some(why) = change.protected
                && !is_accepted(change, &accepted)
            {
                plan.skipped.push(Skipped { path: change.path.clone(), why });
            } else if let Some(why) = refusal(change) {
                plan.refused.push(Refused { path: change.path.clone(), why });
            } else {
                plan.steps.push(change.clone());
            }
        }
        let used = |accepted: &PathBuf| changes.iter().any(|change| change.protected.is_some() && change.path.starts_with(accepted));
        plan.unmatched =
            accept_protected.iter().filter(|path| !used(&normal(path)) || normal(path).as_os_str().is_empty()).cloned().collect();
        plan
    }

    /// Changes that will be applied.
    pub fn steps(&self) -> &[LayerChange] {
        &self.steps
    }

    /// Protected changes that were not named.
    pub fn skipped(&self) -> &[Skipped] {
        &self.skipped
    }

    /// Changes that are never applied.
    pub fn refused(&self) -> &[Refused] {
        &self.refused
    }

    /// Names given for protected paths that fit no protected change: most likely a slip of the pen.
    pub fn unmatched(&self) -> Vec<String> {
        self.unmatched.iter().map(|path| shown(path)).collect()
    }
}

fn is_accepted(change: &LayerChange, accepted: &[PathBuf]) -> bool {
    let becomes_directory = change.kind == ChangeKind::Added && change.new.as_ref().is_some_and(|new| new.kind == EntryType::Directory);
    accepted.iter().any(|accepted| {
        // Accepting a file in a new directory accepts the directory, or there would be no place for it.
        change.path.starts_with(accepted) || (becomes_directory && accepted.starts_with(&change.path))
    })
}

fn refusal(change: &LayerChange) -> Option<RefusedReason> {
    let plain = |path: &Path| path.file_name().is_some() && path.components().all(|part| matches!(part, Component::Normal(_)));
    if !plain(&change.path) || change.from.as_deref().is_some_and(|from| !plain(from)) {
        return Some(RefusedReason::BadPath);
    }
    let Entry { kind, digest, .. } = change.new.as_ref()?;
    match kind {
        EntryType::Special => Some(RefusedReason::Special),
        EntryType::File | EntryType::Symlink if digest.is_none() => Some(RefusedReason::Unread),
        EntryType::File | EntryType::Symlink | EntryType::Directory => None,
    }
}

/// A path without `.` and doubled slashes; one with `..` becomes one that fits nothing.
fn normal(path: &Path) -> PathBuf {
    path.components().filter(|part| !matches!(part, Component::CurDir)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::testing::Overlay;

    #[track_caller]
    fn check(script: &str, accept: &[&str], expected: [&[&str]; 4]) {
        let overlay = Overlay::new("mkdir -p .git/hooks");
        overlay.inside(script);
        let accept: Vec<PathBuf> = accept.iter().map(PathBuf::from).collect();
        let plan = Plan::from(&overlay.layer().changes().unwrap(), &accept);
        let texts = |paths: Vec<&PathBuf>| paths.into_iter().map(|path| path.display().to_string()).collect::<Vec<_>>();
        assert_eq!(
            [
                texts(plan.steps().iter().map(|step| &step.path).collect()),
                texts(plan.skipped().iter().map(|step| &step.path).collect()),
                texts(plan.refused().iter().map(|step| &step.path).collect()),
                plan.unmatched(),
            ],
            expected.map(|list| list.iter().map(ToString::to_string).collect::<Vec<_>>())
        );
    }

    #[test]
    fn protected_paths_need_to_be_named() {
        let script = "echo a >a; echo x >.git/hooks/pre-commit; mkdir -p .claude/s; echo y >.claude/s/y; echo z >.claude/z; mkfifo p";
        check(script, &[], [&["a"], &[".claude", ".claude/s", ".claude/s/y", ".claude/z", ".git/hooks/pre-commit"], &["p"], &[]]);
        check(
            script,
            &["./.git/hooks/pre-commit", ".claude/s/y"],
            [&[".claude", ".claude/s", ".claude/s/y", ".git/hooks/pre-commit", "a"], &[".claude/z"], &["p"], &[]],
        );
        check(
            script,
            &[".claude/", "typo", ".", "../.git"],
            [&[".claude", ".claude/s", ".claude/s/y", ".claude/z", "a"], &[".git/hooks/pre-commit"], &["p"], &["typo", ".", "../.git"]],
        );
    }

    #[test]
    fn what_could_not_be_verified_is_refused() {
        let overlay = Overlay::new("true");
        overlay.inside("echo hello >a");
        let mut layer = overlay.layer();
        layer.bounds.read_bytes = 3;
        let plan = Plan::from(&layer.changes().unwrap(), &[]);
        assert_eq!(plan.refused(), [Refused { path: "a".into(), why: RefusedReason::Unread }]);
    }
}
