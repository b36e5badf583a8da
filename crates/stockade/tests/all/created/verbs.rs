//! Making, naming, listing, forking and destroying.

use serde_json::json;

use super::as_both;

#[test]
fn a_sandbox_is_made_listed_and_destroyed() {
    as_both(|yard| {
        assert_eq!(yard.tells(&["list"]), json!({"sandboxes": []}));
        let id = yard.create(&["--name", "box"]);
        let listed = yard.tells(&["list"]);
        let mut sandbox = listed["sandboxes"][0].clone();
        let started = sandbox.as_object_mut().expect("an object").remove("started").expect("a time");
        assert!(started.as_str().is_some_and(|time| time.starts_with("20") && time.ends_with('Z')), "{started}");
        assert_eq!(
            sandbox,
            json!({
                "sandbox_id": id, "name": "box", "status": "running", "kind": "created", "backend": "jail", "command": [],
                "workspace": yard.work, "workspace_mode": "overlay", "changes": null,
            })
        );
        let table = yard.says(&["list"]);
        let row = table.lines().nth(1).expect("a row");
        let words: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(words[..4], [id.as_str(), "box", "running", "jail"], "{table}");
        assert_eq!(yard.says(&["destroy", "box"]), "");
        assert_eq!(yard.tells(&["list"]), json!({"sandboxes": []}));
    });
}

#[test]
fn create_tells_what_is_enforced() {
    as_both(|yard| {
        let told = yard.tells(&["create", "--name", "box"]);
        let id = told["sandbox_id"].as_str().expect("an id");
        assert_eq!((&told["name"], &told["enforcement"]["files"]), (&json!("box"), &json!("enforced")), "{told}");
        assert_eq!(told["enforcement"].as_object().expect("an object").len(), 13, "{told}");
        assert_eq!(yard.status(id).as_deref(), Some("running"));
    });
}

#[test]
fn sandboxes_are_called_by_name_id_or_beginning_of_an_id() {
    as_both(|yard| {
        let id = yard.create(&["--name", "box"]);
        for reference in ["box", &id, &id[..15], &id[..4]] {
            assert_eq!(yard.inside(reference, "echo here"), "here\n", "{reference}");
        }
        let other = yard.create(&[]);
        let common: String = id.chars().zip(other.chars()).take_while(|(a, b)| a == b).map(|(a, _)| a).collect();
        assert!(common.len() >= 4, "{id} {other}");
        yard.rejects(&["exec", &common, "--", "true"], &["more than one sandbox", &common, "hint: stockade sandbox list"]);
        yard.rejects(&["exec", &id[..3], "--", "true"], &["there is no sandbox"]);
    });
}

#[test]
fn what_is_not_there_is_said_with_a_hint() {
    as_both(|yard| {
        let path = yard.inner("x");
        let words: [&[&str]; 13] = [
            &["exec", "nobox", "--", "true"],
            &["shell", "nobox"],
            &["read", "nobox", &path],
            &["write", "nobox", &path],
            &["cp", "nobox:/x", "here"],
            &["diff", "nobox"],
            &["apply", "nobox"],
            &["discard", "nobox"],
            &["network", "nobox"],
            &["pause", "nobox"],
            &["resume", "nobox"],
            &["fork", "nobox"],
            &["destroy", "nobox"],
        ];
        for words in words {
            yard.rejects(words, &["there is no sandbox `nobox`", "hint: stockade sandbox list"]);
        }
        assert_eq!(yard.sandboxes(), Vec::<String>::new());
        assert!(!yard.work.join("here").exists());
    });
}

#[test]
fn bad_names_make_nothing() {
    as_both(|yard| {
        let long = "x".repeat(64);
        for name in ["", "-x", "../x", "a b", "a/b", "\u{1b}[2J", "ünder", "0123456789abcdef", &long] {
            yard.rejects(&["create", &format!("--name={name}")], &["not a sandbox id or name"]);
        }
        assert_eq!(yard.sandboxes(), Vec::<String>::new());
    });
}

#[test]
fn a_name_is_given_once_even_when_many_ask_at_once() {
    as_both(|yard| {
        let codes: Vec<Option<i32>> = std::thread::scope(|scope| {
            let tries: Vec<_> = (0..6).map(|_| scope.spawn(|| yard.sandbox(&["create", "--name", "one"]).code)).collect();
            tries.into_iter().map(|each| each.join().expect("joined")).collect()
        });
        assert_eq!(codes.iter().filter(|code| **code == Some(0)).count(), 1, "{codes:?}");
        assert_eq!(codes.iter().filter(|code| **code == Some(125)).count(), 5, "{codes:?}");
        yard.rejects(&["create", "--name", "one"], &["a sandbox named `one` exists already", "choose another name"]);
        assert_eq!(yard.tells(&["list"])["sandboxes"].as_array().map(Vec::len), Some(1));
        yard.says(&["destroy", "one"]);
        yard.create(&["--name", "one"]);
    });
}

#[test]
fn what_cannot_start_leaves_nothing() {
    as_both(|yard| {
        yard.rejects(&["create", "--workspace", "/"], &["stockade: "]);
        yard.rejects(&["create", "--workspace", "missing"], &["missing"]);
        yard.rejects(&["create", "--apply"], &["sandbox apply"]);
        yard.rejects(&["create", "--backend", "docker"], &["docker"]);
        assert_eq!(yard.sandboxes(), Vec::<String>::new());
    });
}

#[test]
fn a_fork_has_the_same_contents_and_a_life_of_its_own() {
    as_both(|yard| {
        yard.file("a", "host\n");
        yard.plant(&yard.base.join("other/o"), "o\n", 0o644);
        let mount = format!("{}:/mnt/other:overlay", yard.base.join("other").display());
        yard.create(&["--name", "first", "--env", "WORD=said", "--mount", &mount]);
        yard.inside("first", "echo inside >>a; echo new >n; mkdir d; ln -s ../n d/l; echo z >/mnt/other/z");
        let fork = yard.says(&["fork", "first", "--name", "second"]);
        yard.rejects(&["fork", "first", "--name", "second"], &["exists already"]);
        assert_eq!(yard.inside("second", "cat a n d/l /mnt/other/z; echo $WORD"), "host\ninside\nnew\nnew\nz\nsaid\n");
        yard.inside("second", "echo two >n; rm a");
        assert_eq!(yard.inside("first", "cat a n"), "host\ninside\nnew\n");
        assert_eq!(yard.status(fork.trim_end()).as_deref(), Some("running"));
        yard.says(&["destroy", "first"]);
        assert_eq!(yard.inside("second", "cat n; ls"), "two\nd\nn\n");
        assert_eq!(yard.read("a"), "host\n");
        assert!(!yard.base.join("other/z").exists());
    });
}

#[test]
fn the_walls_are_shown_and_chosen() {
    as_both(|yard| {
        let shown = yard.says(&[]);
        assert!(shown.starts_with("active: jail (sandbox.backend = auto)\n"), "{shown}");
        let told = yard.tells(&[]);
        assert_eq!((&told["active"], &told["chosen"]), (&json!("jail"), &json!("auto")), "{told}");
        let jail = told["backends"].as_array().expect("an array").iter().find(|wall| wall["backend"] == "jail").expect("a jail");
        assert_eq!(jail["available"], true, "{jail}");
        let outcome = yard.sandbox(&["use", "jail"]);
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), ""), "{outcome:?}");
        assert_eq!(yard.tells(&[])["chosen"], "jail");
        let outcome = yard.sandbox(&["use", "local"]);
        assert!(outcome.code == Some(0) && outcome.stderr.contains("SANDBOX DISABLED"), "{outcome:?}");
        let outcome = yard.run(&[], &["true"]);
        assert!(outcome.code == Some(0) && outcome.stderr.contains("SANDBOX DISABLED"), "{outcome:?}");
        yard.sandbox(&["use", "auto"]);
        assert_eq!(yard.tells(&[])["active"], "jail");
        yard.rejects(&["use", "chroot"], &["chroot"]);
        assert_eq!(yard.sandboxes(), Vec::<String>::new());
    });
}

#[test]
fn nothing_is_reached_so_the_network_is_empty() {
    as_both(|yard| {
        let id = yard.create(&["--name", "box"]);
        assert_eq!(yard.tells(&["network", "box"]), json!({"sandbox_id": id, "network": []}));
    });
}
