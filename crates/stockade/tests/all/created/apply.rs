//! What `apply` brings back, and what it does not.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use serde_json::json;

use super::as_both;

#[test]
fn every_kind_of_change_comes_back() {
    as_both(|yard| {
        for name in ["text", "gone", "moved", "mode"] {
            yard.file(name, &format!("contents of {name}\n"));
        }
        yard.file("dir/inner", "inner\n");
        let id = yard.create(&["--name", "box"]);
        yard.inside(
            "box",
            "echo more >>text; rm gone; mv moved there; chmod 700 mode; printf 'a\\0\\xff' >binary; ln -s text link; mkdir -p new/deep; \
             echo x >new/deep/file; rm -r dir; echo suid >suid; chmod 755 suid",
        );
        // Programs inside cannot set these bits; a layer that has them all the same must not bring them out.
        let suid = yard.state.join("stockade/sandboxes").join(&id).join("layer/upper/suid");
        std::fs::set_permissions(&suid, PermissionsExt::from_mode(0o6755)).expect("mode");
        let outcome = yard.sandbox(&["apply", "box"]);
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), ""), "{outcome:?}");
        assert!(outcome.stderr.contains("applied"), "{outcome:?}");
        assert_eq!(yard.read("text"), "contents of text\nmore\n");
        assert_eq!(yard.read("there"), "contents of moved\n");
        assert_eq!(yard.read("new/deep/file"), "x\n");
        assert_eq!(std::fs::read(yard.work.join("binary")).expect("there"), b"a\0\xff");
        assert_eq!(std::fs::read_link(yard.work.join("link")).expect("a link").to_str(), Some("text"));
        for name in ["gone", "moved", "dir"] {
            assert!(!yard.work.join(name).exists(), "{name}");
        }
        for (name, mode) in [("mode", 0o700), ("suid", 0o755)] {
            let meta = std::fs::metadata(yard.work.join(name)).expect("there");
            assert_eq!((meta.permissions().mode() & 0o7777, meta.uid()), (mode, yard.who.uid()), "{name}");
        }
        // Twice is no conflict with ourselves, and the sandbox goes on.
        assert_eq!(yard.says(&["diff", "box"]), "");
        let outcome = yard.sandbox(&["apply", "box"]);
        assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), "stockade: 0 changes applied\n"));
        yard.inside("box", "echo again >>text; rm binary");
        let told = yard.tells(&["apply", "box"]);
        assert_eq!(told["applied"], json!(["binary", "text"]), "{told}");
        assert_eq!(yard.read("text"), "contents of text\nmore\nagain\n");
    });
}

#[test]
fn only_what_was_shown_is_applied() {
    as_both(|yard| {
        yard.file("a", "host\n");
        let id = yard.create(&["--name", "box"]);
        yard.inside("box", "echo shown >a");
        yard.says(&["diff", "box"]);
        yard.inside("box", "echo sneaked >a");
        yard.rejects(&["apply", "box"], &["not the ones that `diff` showed", &format!("stockade sandbox diff {id}")]);
        assert_eq!(yard.read("a"), "host\n");
        yard.says(&["diff", "box"]);
        assert_eq!(yard.sandbox(&["apply", "box"]).code, Some(0));
        assert_eq!(yard.read("a"), "sneaked\n");
    });
}

#[test]
fn a_change_of_the_host_is_a_conflict() {
    as_both(|yard| {
        for name in ["edited", "removed", "fine"] {
            yard.file(name, "before\n");
        }
        let id = yard.create(&["--name", "box"]);
        yard.inside("box", "for f in edited removed fine made; do echo inside >$f; done");
        yard.host("sleep 0.02; echo host >edited; rm removed; echo host >made");
        let outcome = yard.sandbox(&["apply", "box", "--json"]);
        let told = super::parse(&outcome);
        assert_eq!(outcome.code, Some(1), "{outcome:?}");
        assert_eq!(
            told,
            json!({
                "sandbox_id": id, "applied": ["fine"], "conflicts": ["edited", "made", "removed"],
                "skipped_protected": [], "refused": [], "errors": [],
            })
        );
        assert_eq!((yard.read("edited"), yard.read("made"), yard.read("fine")), ("host\n".into(), "host\n".into(), "inside\n".into()));
        assert!(!yard.work.join("removed").exists());
        let outcome = yard.sandbox(&["apply", "box"]);
        assert!(outcome.code == Some(1) && outcome.stderr.contains("edited: conflict"), "{outcome:?}");
    });
}

#[test]
fn protected_paths_come_only_by_name() {
    as_both(|yard| {
        yard.file(".envrc", "old\n");
        let id = yard.create(&["--name", "box"]);
        yard.inside(
            "box",
            "echo evil >.envrc; mkdir -p .git/hooks .claude; echo evil >.git/hooks/pre-commit; echo x >.claude/s; echo fine >fine",
        );
        let outcome = yard.sandbox(&["apply", "box"]);
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        for says in [".envrc: protected", ".git/hooks/pre-commit: protected", ".claude/s: protected", "--accept-protected PATH"] {
            assert!(outcome.stderr.contains(says), "{says}: {outcome:?}");
        }
        assert_eq!((yard.read(".envrc"), yard.read("fine")), ("old\n".into(), "fine\n".into()));
        assert!(!yard.work.join(".git/hooks").exists() && !yard.work.join(".claude").exists());
        yard.rejects(&["apply", "box", "--accept-protected", "fine"], &["names no protected change"]);
        yard.rejects(&["apply", "box", "--accept-protected", ".husky/x"], &["names no protected change"]);
        let told = yard.tells(&["apply", "box", "--accept-protected", ".envrc"]);
        assert_eq!((&told["applied"], &told["sandbox_id"]), (&json!([".envrc"]), &json!(id)), "{told}");
        assert_eq!(yard.read(".envrc"), "evil\n");
        assert!(!yard.work.join(".git/hooks").exists());
        assert_eq!(yard.sandbox(&["apply", "box", "--accept-protected", ".git/hooks"]).code, Some(0));
        assert_eq!(yard.read(".git/hooks/pre-commit"), "evil\n");
    });
}

#[test]
fn special_files_are_refused_and_the_rest_comes() {
    as_both(|yard| {
        yard.create(&["--name", "box"]);
        yard.inside("box", "mkfifo fifo; echo fine >fine");
        let shown = yard.says(&["diff", "box"]);
        assert!(shown.contains("it cannot be applied"), "{shown}");
        let outcome = yard.sandbox(&["apply", "box"]);
        assert!(outcome.code == Some(1) && outcome.stderr.contains("fifo: refused"), "{outcome:?}");
        assert!(!yard.work.join("fifo").exists());
        assert_eq!(yard.read("fine"), "fine\n");
    });
}

#[test]
fn links_planted_on_the_host_lead_nowhere() {
    as_both(|yard| {
        yard.file("dir/f", "x\n");
        yard.plant(&yard.base.join("outside/f"), "outside\n", 0o644);
        yard.create(&["--name", "box"]);
        yard.inside("box", "echo inside >dir/f; echo new >dir/new");
        yard.host("rm -r dir; ln -s ../outside dir");
        let outcome = yard.sandbox(&["apply", "box"]);
        assert_eq!(outcome.code, Some(1), "{outcome:?}");
        assert_eq!(std::fs::read_to_string(yard.base.join("outside/f")).expect("there"), "outside\n");
        assert!(!yard.base.join("outside/new").exists());
    });
}
