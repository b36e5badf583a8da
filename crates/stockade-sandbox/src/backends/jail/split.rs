//! A jail's plan in two: what all clones of a template share, and what each builds for itself. Pure, like the plan.
//!
//! An item is a clone's own when it can be written or belongs to its namespaces (scratch directories, overlays, `/proc`, a part of `/dev`), and
//! when it lies beneath such an item. Everything else is shared and read-only. Masks are in both: the template hides what it shows, and tells
//! its clones by what it did; they hide the rest.

use stockade_wire::codec::Bytes;
use stockade_wire::plan::{Item, KEPT, Source};

/// A plan's items in two parts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Split {
    /// Built once.
    pub(super) shared: Vec<Item>,
    /// Built by each clone. Sources of the host are named by where the template keeps them, but for layers, which are a clone's own.
    pub(super) own: Vec<Item>,
    /// What the template keeps for its clones.
    pub(super) kept: Vec<Source>,
}

/// Splits the items of a plan; the path of one that cannot be, because something shared would cover something of a clone's own.
pub(super) fn split<'a>(items: impl IntoIterator<Item = &'a Item>) -> Result<Split, Bytes> {
    let mut split = Split::default();
    // Where clones have something of their own.
    let mut places: Vec<Bytes> = Vec::new();
    for item in items {
        let target = match item {
            // What is put into a scratch directory has no place in the root.
            Item::Seed { .. } => {
                split.add_own(item);
                continue;
            }
            Item::Directory { path, .. }
            | Item::Symlink { path, .. }
            | Item::File { path, .. }
            | Item::Mask { path, .. }
            | Item::Redirect { path, .. }
            | Item::Proc { path }
            | Item::Devices { path }
            | Item::Agent { path } => path,
            Item::Bind { target, .. } | Item::Overlay { target, .. } => target,
        };
        let beneath = places.iter().any(|place| is_beneath(target, place));
        let around = places.iter().any(|place| is_beneath(place, target));
        match item {
            // Each would listen at one of its own, in a root that nothing can be added to; nobody plans one, for clones have no way out.
            Item::Agent { .. } => return Err(target.clone()),
            Item::Bind { source: Source::Scratch { .. }, .. } | Item::Overlay { .. } | Item::Proc { .. } | Item::Devices { .. } => {
                if !beneath {
                    // The template makes the place: nothing can be added to what clones share.
                    let mode = if matches!(item, Item::Proc { .. }) { 0o555 } else { 0o755 };
                    split.shared.push(Item::Directory { path: target.clone(), mode });
                    split.shared.extend(matches!(item, Item::Devices { .. }).then(|| item.clone()));
                }
                places.push(target.clone());
                split.add_own(item);
            }
            Item::Mask { .. } => {
                if !beneath && !around {
                    split.shared.push(item.clone());
                }
                split.add_own(item);
            }
            _ if beneath => split.add_own(item),
            // A directory that is only there to hold others covers nothing.
            Item::Directory { .. } => split.shared.push(item.clone()),
            _ if around => return Err(target.clone()),
            _ => split.shared.push(item.clone()),
        }
    }
    Ok(split)
}

impl Split {
    /// Adds an item for clones, with its sources where the template keeps them.
    fn add_own(&mut self, item: &Item) {
        let mut item = item.clone();
        match &mut item {
            Item::Bind { source, .. } | Item::Overlay { lower: source, .. } => {
                if !matches!(source, Source::Scratch { .. }) {
                    let place = kept_at(self.kept.len());
                    self.kept.push(std::mem::replace(source, Source::Host { path: place.into(), dev: 0, ino: 0 }));
                }
            }
            Item::Directory { .. }
            | Item::Symlink { .. }
            | Item::File { .. }
            | Item::Mask { .. }
            | Item::Redirect { .. }
            | Item::Proc { .. }
            | Item::Devices { .. }
            | Item::Agent { .. }
            | Item::Seed { .. } => {}
        }
        self.own.push(item);
    }
}

/// Where clones find the n-th kept source.
pub(super) fn kept_at(number: usize) -> String {
    format!("{KEPT}/{number}")
}

/// Whether a path is another or lies beneath it.
fn is_beneath(path: &Bytes, other: &Bytes) -> bool {
    let rest = path.0.strip_prefix(other.0.as_slice());
    other.0 == b"/" || rest.is_some_and(|rest| rest.is_empty() || rest.first() == Some(&b'/'))
}

#[cfg(test)]
mod tests {
    use stockade_wire::plan::{Access, Execution};

    use super::*;

    fn host(path: &str) -> Source {
        Source::Host { path: path.into(), dev: 1, ino: 2 }
    }

    fn kept(number: usize) -> Source {
        Source::Host { path: kept_at(number).into(), dev: 0, ino: 0 }
    }

    fn scratch(name: &str) -> Source {
        Source::Scratch { name: name.into(), mode: 0o755 }
    }

    fn bind(source: Source, target: &str) -> Item {
        Item::Bind { source, target: target.into(), access: Access::ReadOnly {}, execution: Execution::Allowed {} }
    }

    fn overlay(lower: Source, layer: Source, target: &str) -> Item {
        Item::Overlay { lower, layer, target: target.into(), access: Access::ReadWrite {}, execution: Execution::Allowed {} }
    }

    fn directory(path: &str, mode: u32) -> Item {
        Item::Directory { path: path.into(), mode }
    }

    fn mask(path: &str) -> Item {
        Item::Mask { path: path.into(), mode: 0 }
    }

    #[test]
    fn what_can_be_written_and_what_lies_in_it_is_each_clones_own() {
        let items = [
            bind(host("/usr"), "/usr"),
            directory("/home", 0o755),
            bind(scratch("home"), "/home/a"),
            Item::Seed { directory: "home".into(), name: ".gitconfig".into(), contents: "".into(), mode: 0o644 },
            bind(host("/home/a/.cargo"), "/home/a/.cargo"),
            overlay(Source::Passed { index: 3 }, host("/state/id/layer"), "/home/a/work"),
            bind(host("/opt/tool"), "/opt/tool"),
            Item::Proc { path: "/proc".into() },
            Item::Devices { path: "/dev".into() },
        ];
        let split = split(&items).unwrap();
        let shared = [
            bind(host("/usr"), "/usr"),
            directory("/home", 0o755),
            directory("/home/a", 0o755),
            bind(host("/opt/tool"), "/opt/tool"),
            directory("/proc", 0o555),
            directory("/dev", 0o755),
            Item::Devices { path: "/dev".into() },
        ];
        let own = [
            bind(scratch("home"), "/home/a"),
            Item::Seed { directory: "home".into(), name: ".gitconfig".into(), contents: "".into(), mode: 0o644 },
            bind(kept(0), "/home/a/.cargo"),
            overlay(kept(1), host("/state/id/layer"), "/home/a/work"),
            Item::Proc { path: "/proc".into() },
            Item::Devices { path: "/dev".into() },
        ];
        assert_eq!(
            split,
            Split { shared: shared.into(), own: own.into(), kept: vec![host("/home/a/.cargo"), Source::Passed { index: 3 }] }
        );
    }

    #[test]
    fn a_mask_is_never_only_the_templates() {
        let items = [bind(host("/etc"), "/etc"), bind(scratch("home"), "/home/a"), mask("/etc/shadow"), mask("/home/a/x"), mask("/home")];
        let split = split(&items).unwrap();
        assert_eq!(split.shared, [bind(host("/etc"), "/etc"), directory("/home/a", 0o755), mask("/etc/shadow")]);
        assert_eq!(split.own, [bind(scratch("home"), "/home/a"), mask("/etc/shadow"), mask("/home/a/x"), mask("/home")]);
    }

    #[test]
    fn what_would_cover_a_clones_own_cannot_be_shared() {
        let items = [bind(scratch("tmp"), "/a/tmp"), bind(host("/a"), "/a")];
        assert_eq!(split(&items), Err("/a".into()));
        // Names that begin alike are not beneath each other.
        assert!(split(&[bind(scratch("tmp"), "/a/tmp"), bind(host("/a/t"), "/a/t"), bind(host("/a/tmp2"), "/a/tmp2")]).is_ok());
    }
}
