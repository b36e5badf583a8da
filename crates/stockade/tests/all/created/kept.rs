//! What a `run` changed is kept until somebody decides.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use super::{Yard, as_both};

/// Runs a script that changes the workspace; the id of what was kept.
fn changed(yard: &Yard, script: &str) -> String {
    let (code, told) = yard.json(&[], &["bash", "-c", script]);
    assert_eq!(code, 0, "{told}");
    told["sandbox_id"].as_str().expect("an id").to_owned()
}

#[test]
fn a_changed_overlay_is_kept_private_and_applied() {
    as_both(|yard| {
        yard.file("a", "host\n");
        let outcome = yard.sh(&[], "echo inside >a; echo new >n; rm -f none");
        let id = yard.sandboxes().pop().expect("kept");
        let line = format!("stockade: 2 files changed: stockade sandbox diff {id} · apply · discard\n");
        assert!(outcome.stderr.ends_with(&line), "{outcome:?}");
        let mode = std::fs::metadata(yard.state.join("stockade/sandboxes").join(&id)).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        let listed = yard.tells(&["list"]);
        let sandbox = &listed["sandboxes"][0];
        assert_eq!((&sandbox["status"], &sandbox["kind"], &sandbox["name"]), (&json!("kept"), &json!("run"), &Value::Null), "{listed}");
        assert_eq!(sandbox["changes"], json!([{"path": "a", "kind": "modified"}, {"path": "n", "kind": "added"}]), "{listed}");
        assert!(yard.says(&["diff", &id]).contains("-host\n+inside\n"));
        yard.rejects(&["exec", &id, "--", "true"], &["has ended", &format!("hint: stockade sandbox diff {id} · apply · discard")]);
        for verb in ["pause", "resume", "shell"] {
            yard.rejects(&[verb, &id], &["has ended"]);
        }
        yard.rejects(&["fork", &id], &["sandbox create"]);
        assert_eq!(yard.sandbox(&["apply", &id]).code, Some(0));
        assert_eq!((yard.read("a"), yard.read("n")), ("inside\n".into(), "new\n".into()));
        assert_eq!(yard.sandboxes(), Vec::<String>::new());
        yard.rejects(&["apply", &id], &["there is no sandbox"]);
    });
}

#[test]
fn what_was_not_applied_stays() {
    as_both(|yard| {
        let id = changed(yard, "echo x >.envrc; echo y >y");
        assert_eq!(yard.sandbox(&["apply", &id]).code, Some(0));
        assert_eq!(yard.status(&id).as_deref(), Some("kept"));
        assert_eq!(yard.tells(&["diff", &id])["changes"], json!([{"path": ".envrc", "kind": "added", "protected": true}]));
        assert_eq!(yard.sandbox(&["apply", &id, "--accept-protected", ".envrc"]).code, Some(0));
        assert_eq!((yard.read(".envrc"), yard.sandboxes()), ("x\n".into(), Vec::new()));
    });
}

#[test]
fn discard_forgets() {
    as_both(|yard| {
        yard.file("a", "host\n");
        let id = changed(yard, "echo inside >a; mkdir -p d/e; chmod 0 d");
        let outcome = yard.sandbox(&["discard", &id]);
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), ""), "{outcome:?}");
        assert_eq!((yard.read("a"), yard.sandboxes()), ("host\n".into(), Vec::new()));
        let running = yard.create(&["--name", "box"]);
        yard.inside("box", "echo inside >a");
        yard.rejects(&["discard", "box"], &["is running", &format!("hint: stockade sandbox destroy {running}")]);
        assert_eq!(yard.inside("box", "cat a"), "inside\n");
    });
}

#[test]
fn an_unchanged_overlay_leaves_nothing() {
    as_both(|yard| {
        yard.file("a", "host\n");
        for script in ["true", "cat a", "echo x >b; rm b", "touch a; exit 0", "cp a b; mv b a; echo host >a"] {
            yard.sh(&[], script);
            assert_eq!(yard.sandboxes(), Vec::<String>::new(), "{script}");
        }
    });
}

#[test]
fn prune_removes_the_old_and_with_all_the_rest() {
    as_both(|yard| {
        let (old, young) = (changed(yard, "echo 1 >f"), changed(yard, "echo 2 >f"));
        let box_id = yard.create(&["--name", "box"]);
        assert_eq!(yard.tells(&["prune"]), json!({"removed": []}));
        let record = yard.state.join("stockade/sandboxes").join(&old).join("record.json");
        let mut value: Value = serde_json::from_slice(&std::fs::read(&record).expect("read")).expect("JSON");
        let seconds = value["started"]["seconds"].as_i64().expect("a time");
        value["started"]["seconds"] = json!(seconds - 7 * 86_400 - 1);
        std::fs::write(&record, value.to_string()).expect("written");
        assert_eq!(yard.tells(&["prune"]), json!({"removed": [old]}));
        assert_eq!(yard.status(&young).as_deref(), Some("kept"));
        let outcome = yard.sandbox(&["prune", "--all"]);
        assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), "stockade: 1 removed\n"));
        assert_eq!(yard.sandboxes(), [box_id], "what runs is not pruned");
        assert_eq!(yard.inside("box", "echo alive"), "alive\n");
    });
}
