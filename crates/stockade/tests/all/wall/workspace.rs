//! The workspace in its three modes, and where it may lie.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use serde_json::{Value, json};

use super::ground::finish;
use super::{Ground, Who, as_both};

/// A workspace with something of everything.
fn furnish(ground: &Ground) {
    ground.file("keep", "keep\n");
    ground.file("change", "before\n");
    ground.file("delete", "delete\n");
    ground.file("mode", "mode\n");
    ground.file("old-name", &"long enough to be recognised\n".repeat(20));
    ground.file("directory/one", "one\n");
    ground.file("directory/two", "two\n");
    ground.file("emptied/inner", "inner\n");
}

const CHANGES: &str = "echo after >change; rm delete; chmod 600 mode; mv old-name new-name; echo new >added; rm -r emptied; \
                       mkdir -p new/deep && echo x >new/deep/file; ln -s keep link; echo three >directory/three";

#[test]
fn an_overlay_leaves_the_host_untouched_and_says_what_changed() {
    as_both(|ground| {
        furnish(ground);
        let before = ground.snapshot();
        let (code, value) = ground.json(&[], &["bash", "-c", CHANGES]);
        assert_eq!(code, 0, "{value}");
        assert_eq!(ground.snapshot(), before);
        let mut changes = value["changes"].as_array().expect("an array").clone();
        changes.sort_by_key(|change| change["path"].to_string());
        let expected = json!([
            {"path": "added", "kind": "added"},
            {"path": "change", "kind": "modified"},
            {"path": "delete", "kind": "deleted"},
            {"path": "directory/three", "kind": "added"},
            {"path": "emptied/inner", "kind": "deleted"},
            {"path": "link", "kind": "added"},
            {"path": "mode", "kind": "mode"},
            {"path": "new-name", "kind": "renamed", "from": "old-name"},
            {"path": "new/deep/file", "kind": "added"},
        ]);
        assert_eq!(Value::from(changes), expected);
        let id = value["sandbox_id"].as_str().expect("an id");
        assert_eq!(ground.sandboxes(), [id]);
        let mode = std::fs::metadata(ground.state.join("stockade/sandboxes").join(id)).expect("kept").permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    });
}

#[test]
fn one_line_says_that_something_changed() {
    as_both(|ground| {
        ground.sh(&[], "true");
        let outcome = ground.sh(&[], "echo a >a; echo b >b");
        assert_eq!(outcome.stdout, "");
        let [id] = ground.sandboxes().try_into().expect("one is kept");
        assert_eq!(outcome.stderr, format!("stockade: 2 files changed: stockade sandbox diff {id} · apply · discard\n"));
    });
}

#[test]
fn without_changes_nothing_stays() {
    as_both(|ground| {
        furnish(ground);
        for script in ["cat keep; ls -lR; find . >/dev/null", "echo x >temporary; rm temporary", "exit 3", "touch /tmp/x ~/x"] {
            let (_, value) = ground.json(&[], &["bash", "-c", script]);
            assert_eq!((&value["changes"], ground.sandboxes()), (&json!([]), Vec::new()), "{script}");
        }
    });
}

#[test]
fn read_only_refuses_every_write() {
    as_both(|ground| {
        furnish(ground);
        let before = ground.snapshot();
        let script =
            "cat keep; echo x >new; echo x >keep; rm delete; mkdir d; mv keep kept; chmod 777 keep; ln keep hard; touch keep; exit 5";
        let (code, value) = ground.json(&["--workspace-mode", "ro"], &["bash", "-c", script]);
        assert_eq!((code, value["stdout"].as_str(), &value["changes"]), (5, Some("keep\n"), &json!([])), "{value}");
        assert_eq!(value["stderr"].as_str().expect("text").matches("Read-only file system").count(), 8, "{value}");
        assert_eq!((ground.snapshot(), ground.sandboxes()), (before, Vec::new()));
    });
}

#[test]
fn writable_means_at_once_and_as_the_caller() {
    as_both(|ground| {
        furnish(ground);
        let outcome = ground.sh(&["--workspace-mode", "rw"], CHANGES);
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        assert_eq!((ground.read("change"), ground.read("new/deep/file")), ("after\n".into(), "x\n".into()));
        assert!(!ground.work.join("delete").exists() && !ground.work.join("emptied").exists());
        for name in ["added", "new", "new/deep/file", "change", "new-name"] {
            let meta = std::fs::metadata(ground.work.join(name)).expect("there");
            assert_eq!((meta.uid(), meta.gid()), (ground.who.uid(), ground.who.uid()), "{name}");
        }
        assert_eq!(ground.sandboxes(), Vec::<String>::new());
    });
}

#[test]
fn apply_keeps_the_changes_of_a_success() {
    as_both(|ground| {
        furnish(ground);
        let outcome = ground.sh(&["--apply"], CHANGES);
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        assert_eq!(
            (ground.read("change"), ground.read("new/deep/file"), ground.read("directory/three")),
            ("after\n".into(), "x\n".into(), "three\n".into())
        );
        for gone in ["delete", "old-name", "emptied/inner"] {
            assert!(!ground.work.join(gone).exists(), "{gone}");
        }
        let meta = std::fs::metadata(ground.work.join("added")).expect("there");
        assert_eq!((meta.uid(), meta.gid()), (ground.who.uid(), ground.who.uid()));
        assert_eq!(std::fs::metadata(ground.work.join("mode")).expect("there").permissions().mode() & 0o7777, 0o600);
        assert_eq!(ground.sandboxes(), Vec::<String>::new(), "{outcome:?}");
    });
}

#[test]
fn apply_leaves_a_failure_alone() {
    as_both(|ground| {
        furnish(ground);
        let before = ground.snapshot();
        let outcome = ground.sh(&["--apply"], "echo after >change; exit 4");
        assert_eq!((outcome.code, ground.snapshot(), ground.sandboxes().len()), (Some(4), before, 1), "{outcome:?}");
    });
}

#[test]
fn apply_passes_over_what_runs_code_later() {
    as_both(|ground| {
        ground.host("git init -q .");
        let outcome = ground.sh(
            &["--apply"],
            "echo good >good; echo evil >.envrc; echo '#!/bin/sh' >.git/hooks/pre-commit; mkdir .vscode; echo {} >.vscode/tasks.json",
        );
        assert_eq!((outcome.code, ground.read("good").as_str()), (Some(0), "good\n"), "{outcome:?}");
        for name in [".envrc", ".git/hooks/pre-commit", ".vscode/tasks.json"] {
            assert!(!ground.work.join(name).exists() && outcome.stderr.contains(name), "{name}: {outcome:?}");
        }
    });
}

/// Runs in a mount namespace where root mounted something over the workspace first.
fn with_mounted(ground: &Ground, mount: &str, flags: &[&str], inside: &str, afterwards: &str) -> crate::Outcome {
    let uid = ground.who.uid().to_string();
    let script = format!(
        "set -eu; {mount}; chown -R {uid}:{uid} \"$WORK\"; cd \"$WORK\"\n\
         code=0; setpriv --reuid {uid} --regid {uid} --clear-groups \"$@\" || code=$?\n{afterwards}\nexit $code"
    );
    let root = Ground::new(Who::Root);
    let mut command = root.outside("unshare");
    command.env("HOME", &ground.home).env("XDG_STATE_HOME", &ground.state).env("WORK", &ground.work).env("BASE", &ground.base);
    command.args(["--mount", "bash", "-c", &script, "bash"]).arg(&ground.binary).args(["run"]).args(flags);
    finish(command.args(["--", "bash", "-c", inside]))
}

const ON_TMPFS: &str = "mount -t tmpfs none \"$WORK\"; echo below >\"$WORK/below\"";
const ON_OVERLAY: &str = "mkdir \"$BASE/l\" \"$BASE/u\" \"$BASE/w\"; echo below >\"$BASE/l/below\"; \
                          mount -t overlay none -o \"lowerdir=$BASE/l,upperdir=$BASE/u,workdir=$BASE/w\" \"$WORK\"";

#[test]
fn an_overlay_works_on_tmpfs_and_on_overlayfs() {
    as_both(|ground| {
        for mount in [ON_TMPFS, ON_OVERLAY] {
            let outcome = with_mounted(ground, mount, &["--json"], "cat below; echo new >new; echo changed >below; rm -f gone", "ls >&2");
            assert_eq!(outcome.code, Some(0), "{outcome:?}");
            let value: Value = serde_json::from_str(&outcome.stdout).expect("JSON");
            assert_eq!(value["stdout"], "below\n", "{value}");
            assert_eq!(value["changes"], json!([{"path": "below", "kind": "modified"}, {"path": "new", "kind": "added"}]), "{value}");
            assert!(outcome.stderr.lines().any(|line| line == "below") && !outcome.stderr.lines().any(|line| line == "new"), "{outcome:?}");
        }
    });
}

#[test]
fn an_overlay_on_tmpfs_and_on_overlayfs_can_be_applied() {
    as_both(|ground| {
        for mount in [ON_TMPFS, ON_OVERLAY] {
            let outcome = with_mounted(ground, mount, &["--apply"], "echo new >new; rm below", "ls; cat new; stat -c %u new");
            assert_eq!((outcome.code, outcome.stdout), (Some(0), format!("new\nnew\n{}\n", ground.who.uid())), "{}", outcome.stderr);
        }
    });
}

#[test]
fn read_only_works_on_tmpfs_and_on_overlayfs() {
    as_both(|ground| {
        for mount in [ON_TMPFS, ON_OVERLAY] {
            let outcome = with_mounted(ground, mount, &["--workspace-mode", "ro"], "cat below; echo x >x || echo refused", "ls");
            assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), "below\nrefused\nbelow\n"), "{}", outcome.stderr);
        }
    });
}

#[test]
fn writable_on_overlayfs_works_or_says_why_not() {
    as_both(|ground| {
        let outcome = with_mounted(ground, ON_OVERLAY, &["--workspace-mode", "rw"], "echo new >new", "ls; stat -c %u new || true");
        match outcome.code {
            Some(0) => assert_eq!(outcome.stdout, format!("below\nnew\n{}\n", ground.who.uid())),
            code => {
                assert_eq!((code, outcome.stdout.as_str()), (Some(125), "below\n"), "{outcome:?}");
                assert!(outcome.stderr.contains("cannot map owners") && outcome.stderr.contains("hint: "), "{outcome:?}");
            }
        }
    });
}

#[test]
fn our_state_may_lie_inside_the_workspace() {
    as_both(|ground| {
        ground.file("keep", "keep\n");
        for (mode, changes) in [("overlay", json!([{"path": "new", "kind": "added"}])), ("rw", json!([])), ("ro", json!([]))] {
            ground.plant(&ground.work.join(".state/stockade/secret"), "PLANTED", 0o644);
            let script = "cat .state/stockade/secret; find .state -mindepth 2; echo new >new; cat keep";
            let mut command = ground.running(&["--json", "--workspace-mode", mode], &["bash", "-c", script]);
            let outcome = finish(command.env("XDG_STATE_HOME", ground.work.join(".state")));
            assert_eq!(outcome.code, Some(0), "{mode}: {outcome:?}");
            let value: Value = serde_json::from_str(&outcome.stdout).expect("JSON");
            assert_eq!((value["stdout"].as_str(), &value["changes"]), (Some("keep\n"), &changes), "{mode}: {value}");
        }
    });
}

#[test]
fn a_temporary_directory_can_be_the_workspace() {
    as_both(|ground| {
        // Not /tmp itself, where every test would meet: a mount over the sandbox's own stands for it.
        let mount = format!("{}:/tmp:overlay", ground.work.display());
        ground.file("mine", "mine\n");
        let other = ground.base.join("other");
        ground.directory(&other);
        let mut command = ground.running(&["--workspace", other.to_str().expect("text"), "--mount", &mount], &["cat", "/tmp/mine"]);
        assert_eq!(finish(&mut command).stdout, "mine\n");
    });
}

#[test]
fn names_that_are_not_text_are_changes_too() {
    as_both(|ground| {
        let (code, value) = ground.json(&[], &["bash", "-c", "touch $'bad\\xff' $'new\\nline' $'\\e[31mred'"]);
        // Programs get the names as they are; one that is not UTF-8 comes as bytes too.
        let changes = serde_json::json!([
            { "path": "\u{1b}[31mred", "kind": "added" },
            { "path": "bad\\xff", "path_base64": "YmFk/w==", "kind": "added" },
            { "path": "new\nline", "kind": "added" },
        ]);
        assert_eq!((code, &value["changes"]), (0, &changes), "{value}");
        // People get them escaped.
        let id = value["sandbox_id"].as_str().expect("an id").to_owned();
        let shown = finish(&mut ground.stockade(["sandbox", "diff", "--stat", &id])).stdout;
        assert!(!shown.contains('\u{1b}') && shown.contains("new\\nline"), "{shown}");
    });
}

#[test]
fn large_files_and_many_files_pass() {
    as_both(|ground| {
        let script = "head -c 20000000 /dev/zero >large; mkdir many; for i in {1..1000}; do echo $i >many/$i; done";
        let outcome = ground.sh(&["--apply"], script);
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        assert_eq!(std::fs::metadata(ground.work.join("large")).expect("there").len(), 20_000_000);
        assert_eq!(std::fs::read_dir(ground.work.join("many")).expect("there").count(), 1000);
    });
}
