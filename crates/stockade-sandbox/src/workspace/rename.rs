//! Telling that a file was renamed, from one that is gone and one that is new.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;

use stockade_core::result::ChangeKind;

use super::change::{Entry, EntryType, LayerChange};
use super::digest::ContentDigest;

/// Joins a deleted and an added file of the same contents to one rename. The same name elsewhere goes first. Protected
/// paths stay apart, so that skipping one of them does not hold back the other.
pub(super) fn join_renames(changes: Vec<LayerChange>) -> Vec<LayerChange> {
    let key = |change: &LayerChange, entry: Option<&Entry>| {
        entry.filter(|entry| change.protected.is_none() && entry.kind == EntryType::File && entry.size > 0).and_then(|entry| entry.digest)
    };
    let mut gone: HashMap<ContentDigest, Vec<usize>> = HashMap::new();
    for (at, change) in changes.iter().enumerate().rev() {
        if let (ChangeKind::Deleted, Some(digest)) = (change.kind, key(change, change.old.as_ref())) {
            gone.entry(digest).or_default().push(at);
        }
    }
    let mut partner: HashMap<usize, usize> = HashMap::new();
    for (at, change) in changes.iter().enumerate() {
        let candidates = match (change.kind, key(change, change.new.as_ref())) {
            (ChangeKind::Added, Some(digest)) => gone.get_mut(&digest),
            _ => None,
        };
        if let Some(candidates) = candidates {
            // Looking through a long list for each of a long list would be quadratic; the first few are enough.
            let same_name = candidates
                .iter()
                .rev()
                .take(64)
                .position(|from| changes.get(*from).is_some_and(|from| from.path.file_name() == change.path.file_name()));
            let from = match same_name {
                Some(back) => Some(candidates.remove(candidates.len() - 1 - back)),
                None => candidates.pop(),
            };
            if let Some(from) = from {
                partner.insert(at, from);
            }
        }
    }
    let sources: BTreeSet<usize> = partner.values().copied().collect();
    let from: HashMap<usize, (PathBuf, Option<Entry>)> =
        partner.iter().filter_map(|(at, from)| changes.get(*from).map(|change| (*at, (change.path.clone(), change.old.clone())))).collect();
    let kept = changes.into_iter().enumerate().filter(|(at, _)| !sources.contains(at));
    kept.map(|(at, change)| match from.get(&at) {
        Some((path, old)) => LayerChange { kind: ChangeKind::Renamed, from: Some(path.clone()), old: old.clone(), ..change },
        None => change,
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use crate::workspace::testing::Overlay;

    #[track_caller]
    fn check(prepare: &str, script: &str, expected: &[&str]) {
        let overlay = Overlay::new(prepare);
        overlay.inside(script);
        assert_eq!(overlay.listed(), expected);
    }

    #[test]
    fn the_same_name_elsewhere_goes_first() {
        check(
            "mkdir d; for f in a b c; do echo same >d/$f; done",
            "mkdir e; mv d/c e/c; mv d/b e/b; mv d/a z",
            &["added e", "renamed e/b from d/b", "renamed e/c from d/c", "renamed z from d/a"],
        );
    }

    #[test]
    fn empty_files_copies_and_links_are_no_renames() {
        check(">a; echo b >b; ln -s x l", "mv a c; cp b d; mv l k", &["deleted a", "added c", "added d", "added k", "deleted l"]);
        check("echo one >a", "mv a b; echo two >>b", &["deleted a", "added b"]);
        check("echo one >a", "cp a b; cp a c; rm a", &["renamed b from a", "added c"]);
    }
}
