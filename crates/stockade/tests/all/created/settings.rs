//! `stockade config`: files, layers, sources and errors.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::{Yard, as_both, parse, run};
use crate::Outcome;

fn config(yard: &Yard, words: &[&str]) -> Outcome {
    run(yard, &[&["config"], words].concat())
}

fn get(yard: &Yard, key: &str) -> String {
    let outcome = config(yard, &["get", key]);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{key}: {outcome:?}");
    outcome.stdout.trim_end().to_owned()
}

fn set(yard: &Yard, words: &[&str]) {
    let outcome = config(yard, &[&["set"], words].concat());
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), ""), "{words:?}: {outcome:?}");
}

fn fails(yard: &Yard, words: &[&str], says: &[&str]) {
    let outcome = config(yard, words);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(125), ""), "{words:?}: {outcome:?}");
    for word in says {
        assert!(outcome.stderr.contains(word), "{words:?}: {word:?} is not in {:?}", outcome.stderr);
    }
}

fn user_file(yard: &Yard) -> PathBuf {
    yard.home.join(".config/stockade/settings.json")
}

#[test]
fn values_are_set_read_and_unset() {
    as_both(|yard| {
        for (key, value, shown) in [
            ("sandbox.limits.memory", "2048", "2048"),
            ("sandbox.limits.cpus", "1.5", "1.5"),
            ("sandbox.backend", "jail", "jail"),
            ("sandbox.enabled", "false", "false"),
            ("sandbox.workspaceMode", "ro", "ro"),
        ] {
            let before = get(yard, key);
            assert_ne!(before, shown, "{key}");
            set(yard, &[key, value]);
            assert_eq!(get(yard, key), shown, "{key}");
            let outcome = config(yard, &["unset", key]);
            assert_eq!(outcome.code, Some(0), "{outcome:?}");
            assert_eq!(get(yard, key), before, "{key}");
        }
        set(yard, &["sandbox.allowedHosts", "a.example", "*.b.example"]);
        assert_eq!(get(yard, "sandbox.allowedHosts"), r#"["a.example","*.b.example"]"#);
        let told = parse(&config(yard, &["set", "sandbox.limits.pids", "10", "--json"]));
        assert_eq!(told, json!({"key": "sandbox.limits.pids", "changed": true, "file": user_file(yard)}));
        let told = parse(&config(yard, &["set", "sandbox.limits.pids", "10", "--json"]));
        assert_eq!(told["changed"], false);
    });
}

#[test]
fn list_says_where_values_come_from() {
    as_both(|yard| {
        yard.plant(&user_file(yard), "// mine\n{\n  \"sandbox\": {\n    \"limits\": {\"pids\": 100, \"memory\": 900}\n  }\n}\n", 0o600);
        yard.file(".stockade/settings.json", "{\"sandbox\": {\"limits\": {\"memory\": 300}, \"workspaceMode\": \"ro\"}}\n");
        let told = parse(&config(yard, &["list", "--json"]));
        let rows = told["settings"].as_array().expect("an array");
        let row = |key: &str| rows.iter().find(|row| row["key"] == key).unwrap_or_else(|| panic!("no {key} in {told}")).clone();
        let facts = |key: &str| (row(key)["value"].clone(), row(key)["source"].clone(), row(key)["line"].clone());
        assert_eq!(facts("sandbox.limits.pids"), (json!(100), json!("user"), json!(4)));
        assert_eq!(facts("sandbox.limits.memory"), (json!(300), json!("project"), json!(1)));
        assert_eq!(facts("sandbox.workspaceMode"), (json!("ro"), json!("project"), json!(1)));
        assert_eq!(facts("sandbox.backend"), (json!("auto"), json!("default"), Value::Null));
        assert_eq!(row("sandbox.limits.pids")["file"], json!(user_file(yard)));
        let table = config(yard, &["list"]).stdout;
        assert!(table.contains("sandbox.limits.pids") && table.contains("settings.json:4"), "{table}");
        // An ordinary user has no groups to hold limits with, so only the mode is tried out.
        std::fs::remove_file(user_file(yard)).expect("removed");
        yard.file(".stockade/settings.json", "{\"sandbox\": {\"workspaceMode\": \"ro\"}}\n");
        assert_eq!(run(yard, &["run", "--", "bash", "-c", "echo x >new"]).code, Some(1), "the project made it read-only");
    });
}

#[test]
fn a_project_may_only_tighten() {
    as_both(|yard| {
        set(yard, &["sandbox.limits.memory", "500"]);
        let file = |text: &str| yard.file(".stockade/settings.json", text);
        file("{\"sandbox\": {\"limits\": {\"memory\": 400}}}");
        assert_eq!(get(yard, "sandbox.limits.memory"), "400");
        for (text, says) in [
            ("{\n\"sandbox\": {\"limits\": {\"memory\": 600}}}", &["may only tighten", "sandbox.limits.memory", "settings.json:2"][..]),
            ("{\"sandbox\": {\"backend\": \"local\"}}", &["may not be set by a project", "sandbox.backend"]),
            ("{\"daemon\": {\"autostart\": true}}", &["may not be set by a project", "daemon.autostart"]),
            ("{\"sandbox\": {\"workspaceMode\": \"rw\"}}", &["may only tighten", "sandbox.workspaceMode"]),
            ("{\"sandbox\": {\"limits\": {\"pids\": 100000}}}", &["may only tighten", "sandbox.limits.pids"]),
        ] {
            file(text);
            fails(yard, &["list"], says);
            yard.refused(125, &[], &["true"], says);
            yard.rejects(&["create"], says);
        }
        file("{}");
        fails(yard, &["set", "--layer", "project", "sandbox.limits.memory", "600"], &["may only tighten"]);
        fails(yard, &["set", "--layer", "project", "sandbox.backend", "local"], &["may not be set by a project"]);
        assert_eq!(yard.read(".stockade/settings.json"), "{}");
        set(yard, &["--layer", "project", "sandbox.limits.memory", "200"]);
        assert_eq!(get(yard, "sandbox.limits.memory"), "200");
        assert_eq!(config(yard, &["unset", "--layer", "project", "sandbox.limits.memory"]).code, Some(0));
        assert_eq!(get(yard, "sandbox.limits.memory"), "500");
    });
}

#[test]
fn unknown_keys_and_bad_values_are_named() {
    as_both(|yard| {
        for verb in [&["get", "sandbox.bakend"][..], &["set", "sandbox.bakend", "jail"], &["unset", "sandbox.bakend"]] {
            fails(yard, verb, &["unknown setting `sandbox.bakend`", "the nearest known one is `sandbox.backend`", "hint: "]);
        }
        for (key, value) in [
            ("sandbox.limits.memory", "lots"),
            ("sandbox.limits.memory", "-1"),
            ("sandbox.limits.pids", "1.5"),
            ("sandbox.enabled", "perhaps"),
            ("sandbox.backend", "chroot"),
            ("sandbox.workspaceMode", "wx"),
            ("sandbox.allowedHosts", "http://x"),
        ] {
            fails(yard, &["set", key, value], &[key]);
        }
        fails(yard, &["set", "sandbox.backend", "jail", "docker"], &["takes one value"]);
        assert!(!user_file(yard).exists(), "nothing was written");
    });
}

#[test]
fn damaged_files_are_named_with_the_line_and_nothing_runs() {
    as_both(|yard| {
        for (text, says) in [
            ("{\n  \"sandbox\": {\n    \"enabled\": tru\n  }\n}\n", &["settings.json:3"][..]),
            ("{\n\"sandbox\": {\"enabled\": true}", &["settings.json:"]),
            ("[]", &["must be an object"]),
            ("{\"sandbox\": {\"enabled\": true, \"enabled\": false}}", &["is there twice"]),
            ("{\n\n\"sandbx\": {}}", &["settings.json:3", "unknown setting `sandbx`", "sandbox"]),
            ("{\"sandbox\": {\"limits\": {\"memory\": \"512M\"}}}", &["sandbox.limits.memory", "MiB"]),
        ] {
            yard.plant(&user_file(yard), text, 0o600);
            fails(yard, &["list"], says);
            fails(yard, &["set", "sandbox.limits.pids", "10"], &says[..1]);
            assert_eq!(std::fs::read_to_string(user_file(yard)).expect("there"), text, "nothing was half-written");
            yard.refused(125, &[], &["true"], says);
            yard.rejects(&["create"], says);
        }
        std::fs::write(user_file(yard), "").expect("written");
        fails(yard, &["list"], &["is empty"]);
        std::fs::write(user_file(yard), b"{\"sandbox\"\xff}").expect("written");
        fails(yard, &["list"], &["UTF-8"]);
        std::fs::write(user_file(yard), format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000))).expect("written");
        fails(yard, &["list"], &["deep"]);
        std::fs::write(user_file(yard), vec![b' '; 2 << 20]).expect("written");
        fails(yard, &["list"], &["1 MiB"]);
    });
}

#[test]
fn comments_survive_a_change() {
    as_both(|yard| {
        yard.plant(&user_file(yard), "{\n  // why\n  \"sandbox\": {\"limits\": {\"pids\": 7}} /* kept */\n}\n", 0o600);
        set(yard, &["sandbox.limits.pids", "8"]);
        let text = std::fs::read_to_string(user_file(yard)).expect("there");
        assert!(text.contains("// why") && text.contains("/* kept */") && text.contains("\"pids\": 8"), "{text}");
    });
}

#[test]
fn a_disabled_sandbox_refuses_to_run() {
    as_both(|yard| {
        set(yard, &["sandbox.enabled", "false"]);
        yard.refused(125, &[], &["true"], &["sandbox.enabled"]);
        yard.rejects(&["create"], &["sandbox.enabled"]);
    });
}
