//! State on disk that is not what it should be.

use serde_json::json;

use super::{Yard, as_both};
use crate::wall::ground::{eventually, processes, unique_seconds};

fn place(yard: &Yard, id: &str, name: &str) -> std::path::PathBuf {
    yard.state.join("stockade/sandboxes").join(id).join(name)
}

#[test]
fn a_damaged_record_hides_nothing_and_harms_no_other() {
    as_both(|yard| {
        let (good, bad) = (yard.create(&["--name", "good"]), yard.create(&["--name", "bad"]));
        for contents in ["", "{\"version\": 1", "[]", "null", "{\"version\":1,\"id\":\"../../x\"}", "\0\u{1b}[2J"] {
            std::fs::write(place(yard, &bad, "record.json"), contents).expect("written");
            let outcome = yard.sandbox(&["list", "--json"]);
            let told = super::parse(&outcome);
            let ids: Vec<_> = told["sandboxes"].as_array().expect("an array").iter().map(|s| s["sandbox_id"].clone()).collect();
            assert_eq!((outcome.code, ids), (Some(0), vec![json!(good)]), "{contents:?}: {outcome:?}");
            assert!(outcome.stderr.contains(&format!("the record of sandbox {bad} is damaged")), "{contents:?}: {outcome:?}");
            assert!(!outcome.stderr.contains('\u{1b}'), "{outcome:?}");
        }
        assert_eq!(yard.inside("good", "echo alive"), "alive\n");
        assert_eq!(yard.run(&[], &["true"]).code, Some(0));
        assert_eq!(yard.tells(&["prune", "--all"]), json!({"removed": []}), "it runs, so it is not removed");
        yard.rejects(&["exec", &bad, "--", "true"], &["is damaged", &format!("hint: stockade sandbox destroy {bad}")]);
        yard.says(&["destroy", &bad]);
        eventually("nothing is left", || yard.remains(&bad).is_empty());
    });
}

#[test]
fn a_kept_one_with_a_damaged_record_is_removed_by_id() {
    as_both(|yard| {
        assert_eq!(yard.sh(&[], "echo x >f").code, Some(0));
        let id = yard.sandboxes().pop().expect("kept");
        std::fs::write(place(yard, &id, "record.json"), "{").expect("written");
        yard.rejects(&["apply", &id], &["is damaged"]);
        assert!(!yard.work.join("f").exists());
        yard.says(&["destroy", &id]);
        assert_eq!(yard.sandboxes(), Vec::<String>::new());
    });
}

#[test]
fn a_missing_lock_ends_the_sandbox_with_its_changes_kept() {
    as_both(|yard| {
        let id = yard.create(&["--name", "box"]);
        let seconds = unique_seconds();
        yard.inside("box", &format!("echo kept >f; setsid sleep {seconds} >/dev/null 2>&1 </dev/null &"));
        std::fs::remove_file(place(yard, &id, "lock")).expect("removed");
        eventually("nothing runs that nobody can see", || processes(&super::hold_of(&id)).is_empty());
        assert_eq!(processes(&format!("sleep\0{seconds}")), Vec::<u32>::new());
        assert_eq!(yard.status(&id).as_deref(), Some("kept"));
        assert_eq!(yard.sandbox(&["apply", "box"]).code, Some(0));
        assert_eq!(yard.read("f"), "kept\n");
    });
}

#[test]
fn state_that_is_removed_altogether_leaves_no_orphan() {
    as_both(|yard| {
        let id = yard.create(&[]);
        std::fs::remove_dir_all(yard.state.join("stockade")).expect("removed");
        eventually("its supervisor ends", || processes(&super::hold_of(&id)).is_empty());
        eventually("nothing is left", || yard.remains(&id).is_empty());
        assert_eq!(yard.tells(&["list"]), json!({"sandboxes": []}));
    });
}

#[test]
fn a_damaged_charge_stops_only_forks() {
    as_both(|yard| {
        let id = yard.create(&["--name", "box"]);
        for contents in ["", "{\"spec\"", "{}"] {
            std::fs::write(place(yard, &id, "charge.json"), contents).expect("written");
            assert_eq!(yard.inside("box", "echo alive >f; cat f"), "alive\n");
            yard.rejects(&["fork", "box"], &["charge.json is damaged"]);
            assert_eq!(yard.sandboxes(), [id.as_str()]);
            assert_eq!(yard.inside("box", "echo thawed"), "thawed\n");
        }
        assert_eq!(yard.sandbox(&["apply", "box"]).code, Some(0));
        yard.says(&["destroy", "box"]);
    });
}

#[test]
fn strangers_in_the_state_directory_are_left_alone() {
    as_both(|yard| {
        yard.run(&[], &["true"]);
        let root = yard.state.join("stockade/sandboxes");
        for name in ["README", "../outside", "0123456789abcdeg"] {
            yard.plant(&root.join(name), "mine\n", 0o600);
        }
        yard.host(&format!("ln -s /etc {}/0123456789abcdef; sleep 0.01", root.display()));
        assert_eq!(yard.tells(&["list"])["sandboxes"], json!([]));
        yard.sandbox(&["prune", "--all"]);
        assert!(std::path::Path::new("/etc/passwd").exists());
        assert_eq!(std::fs::read_to_string(root.join("README")).expect("there"), "mine\n");
    });
}

#[test]
fn a_state_directory_that_cannot_be_used_is_named() {
    as_both(|yard| {
        yard.plant(&yard.state.join("stockade"), "a file\n", 0o600);
        for words in [&["list"][..], &["create"], &["prune"]] {
            yard.rejects(words, &["state/stockade"]);
        }
        assert_eq!(std::fs::read_to_string(yard.state.join("stockade")).expect("there"), "a file\n");
    });
}

#[test]
fn a_stale_socket_is_replaced_and_a_missing_one_is_said() {
    as_both(|yard| {
        let id = yard.create(&["--name", "box"]);
        std::fs::remove_file(yard.state.join(format!("stockade/run/{id}.sock"))).expect("there");
        yard.rejects(&["exec", "box", "--", "true"], &["connecting to the sandbox"]);
        assert_eq!(yard.status(&id).as_deref(), Some("running"));
    });
}
