//! Tests of [`super`]: real overlays, honest and hostile ones.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use super::*;
use crate::workspace::testing::{Overlay, as_ordinary_user, base_of_ordinary_user, listing, run};

struct Case {
    overlay: Overlay,
    baseline: Baseline,
}

impl Case {
    fn new(prepare: &str, script: &str) -> Self {
        let overlay = Overlay::new(prepare);
        let baseline = Baseline::new(Moment::now());
        overlay.inside(script);
        Self { overlay, baseline }
    }

    fn changes(&self) -> Vec<LayerChange> {
        self.overlay.layer().changes().unwrap()
    }

    fn apply(&self, changes: &[LayerChange], accept: &[&str]) -> Report {
        let accept: Vec<PathBuf> = accept.iter().map(PathBuf::from).collect();
        let workspace = beneath::open_root(&self.overlay.lower).unwrap();
        let plan = Plan::from(changes, &accept);
        let report = apply(&plan, &self.overlay.layer(), workspace.as_fd(), &self.baseline, Durability::Synced);
        let left: Vec<_> = listing(&self.overlay.lower).into_iter().filter(|line| line.contains(TEMPORARY)).collect();
        assert_eq!(left, [] as [&str; 0], "nothing half made is left");
        report
    }

    fn now(&self) -> Vec<String> {
        listing(&self.overlay.lower)
    }
}

/// Applies everything and expects no complaint; the workspace must then be what the sandbox saw.
#[track_caller]
fn check(prepare: &str, script: &str, expected: &[&str]) {
    let case = Case::new(prepare, script);
    let report = case.apply(&case.changes(), &[]);
    assert!(report.conflicts.is_empty() && report.errors.is_empty(), "{report:?}");
    assert_eq!(case.now(), expected);
    assert_eq!(case.overlay.listed(), [] as [&str; 0], "applied twice is applied once");
}

#[track_caller]
fn conflicts(case: &Case, changes: &[LayerChange], expected: &[(&str, ConflictReason)]) {
    let before = case.now();
    let report = case.apply(changes, &[]);
    let found: Vec<_> = report.conflicts.iter().map(|conflict| (conflict.path.to_str().unwrap(), conflict.why.clone())).collect();
    assert_eq!(found, expected, "{report:?}");
    assert!(report.errors.is_empty() && report.applied.is_empty(), "{report:?}");
    assert_eq!(case.now(), before, "a conflict changes nothing");
}

#[test]
fn every_kind_of_change_comes_back() {
    check(
        "echo a >a; echo b >b; echo c >c; echo d >d; mkdir -p e/s; echo f >e/s/f; ln -s a l; echo k >k",
        "echo x >>a; rm b; chmod 755 c; mv d moved; mkdir -p new/deep; echo n >new/deep/n; ln -sfn /etc/passwd l; rm -r e; chmod 750 new",
        &["a 644 a\nx", "c 755 c", "k 644 k", "l -> /etc/passwd", "moved 644 d", "new/ 750", "new/deep/ 755", "new/deep/n 644 n"],
    );
}

#[test]
fn types_may_change() {
    check(
        "mkdir d; echo a >d/a; echo f >f; ln -s x l; mkdir s; echo g >s/g",
        "mv d/a moved; rmdir d; echo file >d; rm f; mkdir f; echo in >f/in; rm l; mkdir l; rm -r s; ln -s /tmp s",
        &["d 644 file", "f/ 755", "f/in 644 in", "l/ 755", "moved 644 a", "s -> /tmp"],
    );
    check("mkdir d; echo a >d/a; mkdir e", "mv d/a e/a; rmdir d", &["e/ 755", "e/a 644 a"]);
}

#[test]
fn a_directory_without_write_permission_is_filled_first() {
    check("true", "mkdir d; echo x >d/x; chmod 555 d", &["d/ 555", "d/x 644 x"]);
}

#[test]
fn hard_links_become_files_and_holes_stay() {
    let case = Case::new("true", "echo one >a; ln a b; truncate -s 16M sparse; echo end >>sparse");
    assert!(case.apply(&case.changes(), &[]).errors.is_empty());
    let at = |name: &str| fs::metadata(case.overlay.lower.join(name)).unwrap();
    assert_ne!(at("a").ino(), at("b").ino());
    assert_eq!(at("sparse").len(), (16 << 20) + 4);
    assert!(at("sparse").blocks() * 512 < 1 << 20, "holes were written out");
}

#[test]
fn setuid_and_attributes_are_dropped() {
    let case = Case::new("echo a >a", "echo x >s; chmod 6755 s; mkdir d; chmod 3777 d; chmod 4755 a");
    rustix::fs::setxattr(case.overlay.upper.join("s"), "user.evil", b"x", rustix::fs::XattrFlags::empty()).unwrap();
    let report = case.apply(&case.changes(), &[]);
    assert_eq!(report.applied.len(), 3, "{report:?}");
    assert_eq!(case.now(), ["a 755 a", "d/ 777", "s 755 x"]);
    let mut value = [0_u8; 8];
    let found = rustix::fs::getxattr(case.overlay.lower.join("s"), "user.evil", value.as_mut_slice());
    assert_eq!(found, Err(Errno::NODATA));
}

#[test]
fn special_files_are_refused() {
    let case = Case::new("true", "mkfifo p; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"s\")'");
    run("mknod", &[case.overlay.upper.join("null").to_str().unwrap(), "c", "1", "3"]);
    let report = case.apply(&case.changes(), &[]);
    let refused: Vec<_> = report.refused.iter().map(|refused| refused.path.to_str().unwrap()).collect();
    assert_eq!(refused, ["null", "p", "s"]);
    assert_eq!(case.now(), [] as [&str; 0]);
}

#[test]
fn protected_paths_are_skipped_unless_named() {
    let case = Case::new("mkdir -p .git/hooks", "echo evil >.git/hooks/pre-commit; echo ok >ok; mkdir .claude; echo s >.claude/s");
    let report = case.apply(&case.changes(), &[]);
    assert_eq!(report.skipped_protected.len(), 3);
    assert_eq!(case.now(), [".git/ 755", ".git/hooks/ 755", "ok 644 ok"]);
    let report = case.apply(&case.changes(), &[".git/hooks/pre-commit", ".claude"]);
    assert_eq!((report.applied.len(), report.skipped_protected.len()), (3, 0), "{report:?}");
}

#[test]
fn a_parent_swapped_for_a_link_is_protected() {
    let case = Case::new("mkdir -p .git/hooks evil; echo x >.git/config", "rm -rf .git; ln -s evil .git");
    let report = case.apply(&case.changes(), &[]);
    assert_eq!(report.applied, []);
    assert!(fs::symlink_metadata(case.overlay.lower.join(".git")).unwrap().is_dir());
}

#[test]
fn what_the_host_changed_is_a_conflict() {
    let case = Case::new("for f in a b c d e; do echo $f >$f; done", "echo x >>a; rm b; chmod 755 c; mv d z; echo x >>e");
    for name in ["a", "b", "c"] {
        fs::write(case.overlay.lower.join(name), format!("host {name}")).unwrap();
    }
    // The rename is no rename any more: its source changed.
    fs::write(case.overlay.lower.join("d"), "host d").unwrap();
    fs::set_permissions(case.overlay.lower.join("e"), fs::Permissions::from_mode(0o600)).unwrap();
    let report = case.apply(&case.changes(), &[]);
    let found: Vec<_> = report.conflicts.iter().map(|conflict| conflict.path.to_str().unwrap()).collect();
    assert_eq!(found, ["a", "c", "e", "d", "b"], "{report:?}");
    assert_eq!(case.now(), ["a 644 host a", "b 644 host b", "c 644 host c", "d 644 host d", "e 600 e", "z 644 d"]);
}

#[test]
fn what_changes_between_listing_and_applying_is_a_conflict() {
    let case = Case::new("echo a >a; echo b >b; echo c >c", "echo x >>a; rm b; echo n >n; echo y >>c");
    let changes = case.changes();
    let lower = &case.overlay.lower;
    fs::write(lower.join("a"), "host").unwrap();
    fs::write(lower.join("b"), "host").unwrap();
    fs::write(lower.join("n"), "host").unwrap();
    fs::remove_file(lower.join("c")).unwrap();
    conflicts(
        &case,
        &changes,
        &[
            ("a", ConflictReason::HostChanged),
            ("c", ConflictReason::HostRemoved),
            ("n", ConflictReason::HostAppeared),
            ("b", ConflictReason::HostChanged),
        ],
    );
}

#[test]
fn a_file_that_the_host_removed_does_not_come_back() {
    let case = Case::new("echo a >a; echo keep >k", "echo x >>a");
    fs::remove_file(case.overlay.lower.join("a")).unwrap();
    conflicts(&case, &case.changes(), &[("a", ConflictReason::HostRemoved)]);
}

#[test]
fn what_was_not_shown_is_not_applied() {
    let case = Case::new(
        "echo a >a; echo m >m; ln -s x l",
        "echo shown >>a; echo n >n; ln -sfn y l; chmod 700 m; echo g >g; mkdir d; echo e >d/e",
    );
    let changes = case.changes();
    let upper = &case.overlay.upper;
    fs::write(upper.join("a"), "evil").unwrap();
    fs::set_permissions(upper.join("n"), fs::Permissions::from_mode(0o777)).unwrap();
    for (name, target) in [("l", "/etc/shadow"), ("g", "/etc/passwd")] {
        fs::remove_file(upper.join(name)).unwrap();
        symlink(target, upper.join(name)).unwrap();
    }
    fs::remove_dir_all(upper.join("d")).unwrap();
    symlink("/etc", upper.join("d")).unwrap();
    let report = case.apply(&changes, &[]);
    let found: Vec<_> = report.conflicts.iter().map(|conflict| (conflict.path.to_str().unwrap(), &conflict.why)).collect();
    let shown = &ConflictReason::ChangedSinceShown;
    assert_eq!(found, [("a", shown), ("d/e", shown), ("g", shown), ("l", shown), ("n", shown)], "{report:?}");
    assert_eq!(case.now(), ["a 644 a", "d/ 755", "l -> x", "m 700 m"]);
}

#[test]
fn a_directory_that_became_a_link_on_the_host_leads_nowhere() {
    let case = Case::new("mkdir d; echo a >d/a; echo r >d/r", "echo evil >d/new; echo x >>d/a; rm d/r");
    let changes = case.changes();
    let outside = case.overlay.base.path().join("outside");
    fs::rename(case.overlay.lower.join("d"), &outside).unwrap();
    symlink(&outside, case.overlay.lower.join("d")).unwrap();
    let before = listing(&outside);
    let reason = ConflictReason::NoParent;
    conflicts(&case, &changes, &[("d/a", reason.clone()), ("d/new", reason.clone()), ("d/r", reason)]);
    assert_eq!(listing(&outside), before);
}

#[test]
fn a_directory_with_new_files_of_the_host_stays() {
    let case = Case::new("mkdir d; echo a >d/a; mkdir e; echo b >e/b", "rm -r d; rm -r e; echo file >e");
    let changes = case.changes();
    fs::write(case.overlay.lower.join("d/mine"), "host").unwrap();
    fs::write(case.overlay.lower.join("e/mine"), "host").unwrap();
    let report = case.apply(&changes, &[]);
    let found: Vec<_> = report.conflicts.iter().map(|conflict| (conflict.path.to_str().unwrap(), &conflict.why)).collect();
    assert_eq!(found, [("d", &ConflictReason::NotEmpty), ("e", &ConflictReason::NotEmpty)], "{report:?}");
    assert_eq!(case.now(), ["d/ 755", "d/mine 644 host", "e/ 755", "e/mine 644 host"]);
}

#[test]
fn a_swap_that_brings_out_something_else_is_swapped_back() {
    let case = Case::new("echo a >a", "echo x >>a");
    let changes = case.changes();
    let old = changes[0].old.as_ref().unwrap();
    let workspace = beneath::open_root(&case.overlay.lower).unwrap();
    let parent = beneath::resolve_dir(workspace.as_fd(), Path::new("")).unwrap();
    let before = beneath::stat(&parent, OsStr::new("a")).unwrap();
    let around = rustix::fs::fstat(&parent).unwrap();
    let mut applier = Applier {
        workspace: workspace.as_fd(),
        upper: beneath::open_root(&case.overlay.upper).unwrap(),
        around,
        baseline: &case.baseline,
        durability: Durability::Lazy,
        touched: BTreeSet::new(),
        made: BTreeSet::new(),
        removed: BTreeSet::new(),
        report: Report::default(),
    };
    // The host's file changes after it was looked at and before the swap: the same size, even the same time of writing.
    let times = run("stat", &["-c", "%y", case.overlay.lower.join("a").to_str().unwrap()]);
    fs::write(case.overlay.lower.join("a"), "h\n").unwrap();
    run("touch", &["-d", times.trim(), case.overlay.lower.join("a").to_str().unwrap()]);
    let temporary = Temporary::new(&parent, TEMPORARY);
    fs::write(case.overlay.lower.join(&temporary.name), "ours").unwrap();
    let done = applier.exchange(&parent, OsStr::new("a"), temporary, old, &before);
    assert!(matches!(done, Err(Trouble::Conflict(ConflictReason::HostChanged))));
    assert_eq!(case.now(), ["a 644 h"]);
}

#[test]
fn our_own_applies_are_no_conflicts_the_next_time() {
    let mut case = Case::new("echo a >a", "echo one >>a");
    let report = case.apply(&case.changes(), &[]);
    assert_eq!(report.applied.len(), 1);
    fs::write(case.overlay.upper.join("a"), "two").unwrap();
    let report_without = case.apply(&case.changes(), &[]);
    assert_eq!(report_without.conflicts.len(), 1);
    case.baseline.applied = report.applied.into_iter().filter_map(|done| Some((done.path, done.stamp?))).collect();
    let report = case.apply(&case.changes(), &[]);
    assert_eq!((report.applied.len(), report.conflicts.len()), (1, 0), "{report:?}");
    assert_eq!(case.now(), ["a 644 two"]);
}

#[test]
fn new_files_belong_to_the_owner_of_the_workspace() {
    let case = Case::new("echo a >a; chown 1234:1235 a; chown 4321:4322 .", "true");
    // A user namespace with one user in it cannot write to such files, so the layer is made by hand.
    run("bash", &["-ec", &format!("cd '{}'; echo x >a; echo n >n; mkdir d; ln -s a l", case.overlay.upper.display())]);
    assert!(case.apply(&case.changes(), &[]).errors.is_empty());
    let owner = |name: &str| {
        let found = fs::symlink_metadata(case.overlay.lower.join(name)).unwrap();
        (found.uid(), found.gid())
    };
    assert_eq!([owner("a"), owner("n"), owner("d"), owner("l")], [(1234, 1235), (4321, 4322), (4321, 4322), (4321, 4322)]);
}

#[test]
fn names_linked_twice_on_the_host_can_both_change() {
    let case = Case::new("echo a >a; ln a b", "rm b; echo x >a2; mv a2 a");
    let report = case.apply(&case.changes(), &[]);
    assert_eq!((report.applied.len(), report.conflicts.len()), (2, 0), "{report:?}");
    assert_eq!(case.now(), ["a 644 x"]);
}

#[test]
fn long_and_odd_names_and_deep_paths_come_back() {
    let long = "n".repeat(255);
    let deep = format!("{}/", "d".repeat(200)).repeat(30);
    let case = Case::new(
        "true",
        &format!("echo 1 >{long}; echo 2 >$'\\xff\\n'; for d in $(seq 30); do mkdir {0}; cd {0}; done; echo 3 >x", "d".repeat(200)),
    );
    let report = case.apply(&case.changes(), &[]);
    assert!(report.errors.is_empty() && report.conflicts.is_empty(), "{report:?}");
    assert_eq!(fs::read_to_string(case.overlay.lower.join(&long)).unwrap(), "1\n");
    assert_eq!(fs::read_to_string(case.overlay.lower.join(OsStr::from_bytes(b"\xff\n"))).unwrap(), "2\n");
    let workspace = beneath::open_root(&case.overlay.lower).unwrap();
    assert!(deep.len() > 4096);
    let innermost = beneath::resolve_dir(workspace.as_fd(), Path::new(&deep)).unwrap();
    assert!(beneath::open_file(&innermost, OsStr::new("x"), Locked::Leave).is_ok());
    // `tempfile` cannot remove paths that long.
    crate::workspace::remove::remove_tree(&case.overlay.lower).unwrap();
    crate::workspace::remove::remove_tree(&case.overlay.upper).unwrap();
}

#[test]
fn an_ordinary_user_applies_what_the_sandbox_locked() {
    let overlay = Overlay::new("echo a >a; mkdir d; echo b >d/b");
    overlay.inside("echo x >>a; rm d/b; mkdir -p n/m; echo y >n/m/y; chmod 400 n/m/y; chmod 0 a; chmod 500 n/m; chmod 0 n");
    as_ordinary_user(&["workspace::apply::tests::as_an_ordinary_user", "--ignored"], overlay.base.path());
    assert_eq!(listing(&overlay.lower), ["a 0 a\nx", "d/ 755", "n/ 0", "n/m/ 500", "n/m/y 400 y"]);
    assert_eq!(fs::metadata(overlay.lower.join("n/m/y")).unwrap().uid(), 65534);
}

#[test]
#[ignore = "started by another test, as another user"]
fn as_an_ordinary_user() {
    let base = base_of_ordinary_user();
    let layer = Layer::new(base.join("upper"), base.join("lower"));
    let workspace = beneath::open_root(&layer.lower).unwrap();
    let plan = Plan::from(&layer.changes().unwrap(), &[]);
    let report = apply(&plan, &layer, workspace.as_fd(), &Baseline::new(Moment::now()), Durability::Lazy);
    assert!(report.conflicts.is_empty() && report.errors.is_empty(), "{report:?}");
}
