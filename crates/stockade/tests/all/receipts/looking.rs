//! `receipts list`, `show`, `tail`, `export`, `replay` and `report`.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use serde_json::Value;

use super::{all, receipts, receipts_json};
use crate::wall::{Ground, Who, as_both};

const HOSTILE: &str = "\u{1b}[2J\u{202e}<script>";

#[test]
fn receipts_are_found_by_what_they_say_and_shown_without_harm() {
    as_both(|ground| {
        assert_eq!(receipts(ground, &["list"]).code, Some(0), "there are none yet");
        assert_eq!(receipts_json(ground, &["list"])["receipts"], serde_json::json!([]));
        ground.run(&[], &["true", HOSTILE]);
        ground.run(&[], &["false"]);
        let count = |words: &[&str]| receipts_json(ground, &[&["list"], words].concat())["receipts"].as_array().map_or(0, Vec::len);
        assert_eq!((count(&[]), count(&["-n", "3"]), count(&["--before", "1"])), (4, 3, 1));
        assert_eq!((count(&["--program", "false"]), count(&["--program", "/usr/bin/true"])), (2, 2));
        assert_eq!((count(&["--kind", "intent"]), count(&["--verdict", "deny"]), count(&["--verdict", "allow"])), (2, 0, 4));
        assert_eq!((count(&["--since", "1h"]), count(&["--until", "1h"])), (4, 0));
        let id = all(ground)[1]["sandbox"]["id"].as_str().expect("an id").to_owned();
        assert_eq!((count(&["--sandbox", &id]), count(&["--host", "x.example"]), count(&["--secret", "T"])), (2, 0, 0));
        let listed = receipts(ground, &["list"]);
        assert!(listed.stdout.contains("code 1") && listed.stdout.contains("\\u{202e}") && !listed.stdout.contains('\u{1b}'), "{listed:?}");
        let receipt = all(ground)[1]["receipt_id"].as_str().expect("an id").to_owned();
        let shown = receipts(ground, &["show", &receipt]);
        assert!(shown.stdout.contains("outcome (receipt 1)") && shown.stdout.contains("spec_digest"), "{shown:?}");
        assert!(!shown.stdout.contains('\u{1b}') && !shown.stdout.contains('\u{202e}'), "{shown:?}");
        let unknown = receipts(ground, &["show", "01900000-0000-7000-8000-000000000000"]);
        assert!(unknown.code == Some(125) && unknown.stderr.contains("there is no receipt"), "{unknown:?}");
        for wrong in [&["list", "--since", "never"][..], &["show", "x"], &["export", "--format", "xml"]] {
            assert_eq!(receipts(ground, wrong).code, Some(125), "{wrong:?}");
        }
    });
}

#[test]
fn who_follows_misses_nothing() {
    let ground = Ground::new(Who::Root);
    let mut tail = ground.stockade(["receipts", "tail", "--follow", "--from", "0", "--json"]);
    let mut tail = tail.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("started");
    for number in 0..3 {
        ground.run(&[], &["true", &number.to_string()]);
    }
    let lines = BufReader::new(tail.stdout.take().expect("a pipe")).lines();
    let seen: Vec<u64> = lines
        .take(6)
        .map(|line| serde_json::from_str::<Value>(&line.expect("a line")).expect("JSON")["seq"].as_u64().expect("a number"))
        .collect();
    tail.kill().expect("killed");
    tail.wait().expect("waited");
    assert_eq!(seen, [0, 1, 2, 3, 4, 5]);
    assert_eq!(receipts(&ground, &["tail", "-n", "2"]).stdout.lines().count(), 2);
    let rest = receipts(&ground, &["tail", "--from", "4", "--json"]);
    assert_eq!(rest.stdout.lines().count(), 2, "{rest:?}");
}

#[test]
fn another_policy_is_asked_about_what_happened() {
    as_both(|ground| {
        ground.run(&[], &["bash", "-c", "true"]);
        let id = all(ground)[0]["receipt_id"].as_str().expect("an id").to_owned();
        let policy = ground.base.join("other");
        let rule = "@id(\"only-ls\")\npermit (principal, action == Stockade::Action::\"exec\", resource == Stockade::Program::\"ls\");\n";
        ground.plant(&policy.join("a.cedar"), rule, 0o600);
        let place = policy.to_str().expect("a path");
        let value = receipts_json(ground, &["replay", &id, "--policy", place]);
        assert_eq!(
            (&value["then"]["verdict"], &value["now"]["verdict"], &value["changed"]),
            (&"allow".into(), &"deny".into(), &true.into())
        );
        let shown = receipts(ground, &["replay", &id, "--policy", place]);
        assert!(shown.code == Some(0) && shown.stdout.contains("then: allow") && shown.stdout.contains("now:  deny"), "{shown:?}");
        assert_eq!(all(ground).len(), 2, "nothing ran");
    });
}

#[test]
fn a_report_tells_calls_and_formats_nothing_of_theirs() {
    as_both(|ground| {
        ground.run(&[], &["bash", "-c", &format!("echo x > made; : '{HOSTILE}'")]);
        let text = receipts(ground, &["report"]).stdout;
        assert!(text.starts_with("# Receipts") && text.contains("1 calls") && text.contains("added made"), "{text}");
        let value: serde_json::Value = serde_json::from_str(&receipts(ground, &["report", "--json"]).stdout).expect("JSON");
        assert!(value["calls"].as_array().is_some_and(|calls| !calls.is_empty()) && value["cut"] == false, "{value:#}");
        let page = ground.base.join("report.html");
        ground.plant(&page, "", 0o600);
        assert_eq!(receipts(ground, &["report", "--format", "html", "--output", page.to_str().expect("a path")]).code, Some(0));
        let page = std::fs::read_to_string(page).expect("a page");
        assert!(page.contains("&lt;script&gt;") && !page.contains("<script") && !page.contains('\u{1b}'), "{page}");
    });
}

#[test]
fn every_form_has_every_receipt() {
    as_both(|ground| {
        ground.run(&[], &["true"]);
        for (format, lines) in [("jsonl", 4), ("ocsf", 2), ("otlp", 2), ("intoto", 2), ("csv", 3)] {
            let outcome = receipts(ground, &["export", "--format", format]);
            assert_eq!((outcome.code, outcome.stdout.lines().count()), (Some(0), lines), "{format}: {outcome:?}");
        }
        let some = receipts(ground, &["export", "--kind", "outcome"]);
        assert_eq!(some.stdout.lines().count(), 3, "{some:?}");
    });
}
