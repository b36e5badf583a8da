//! Whoever is killed leaves an open intent, which the next one closes; and nothing ever ran without one.

use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;

use super::{all, holds, kinds};
use crate::wall::ground::{eventually, unique_seconds};
use crate::wall::{Ground, Who, as_both};

#[test]
fn a_killed_run_shows_as_an_open_intent_and_is_closed_as_interrupted() {
    as_both(|ground| {
        let seconds = unique_seconds();
        let mut child = ground.running(&[], &["sleep", &seconds]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("started");
        eventually("the intent is there", || kinds(ground) == ["intent"]);
        child.kill().expect("killed");
        child.wait().expect("waited");
        assert_eq!(kinds(ground), ["intent"], "looking at receipts writes none");
        let after = ground.run(&[], &["true"]);
        assert_eq!(after.code, Some(0), "{after:?}");
        let found = all(ground);
        assert_eq!(kinds(ground), ["intent", "outcome", "intent", "outcome"]);
        assert_eq!(found[1]["receipt_id"], found[0]["receipt_id"]);
        assert_eq!(found[1]["result"]["interrupted"], true);
        assert_eq!(found[1]["argv"], serde_json::json!(["sleep", seconds]));
        assert_eq!(found[3]["result"]["exit_code"], 0);
        assert_eq!(holds(ground), 4);
    });
}

/// Kills at moments that differ. What ran left a file outside, so that a run without an intent would show.
#[test]
fn nothing_ran_without_an_intent_whenever_it_was_killed() {
    let ground = Ground::new(Who::Root);
    let marks = ground.base.join("marks");
    ground.directory(&marks);
    let mount = format!("{}:/marks:rw", marks.display());
    for round in 0_u64..12 {
        let name = format!("m{round}");
        let script = format!("echo x > /marks/{name}; sleep 60");
        let mut child = ground.running(&["--mount", &mount], &["bash", "-c", &script]);
        let mut child = child.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("started");
        std::thread::sleep(Duration::from_micros(round * 1700));
        child.kill().expect("killed");
        child.wait().expect("waited");
    }
    assert_eq!(ground.run(&[], &["true"]).code, Some(0));
    let found = all(&ground);
    let of = |kind: &str| found.iter().filter(|receipt| receipt["kind"] == kind).collect::<Vec<&Value>>();
    for mark in std::fs::read_dir(&marks).expect("marks").flatten() {
        let name = mark.file_name().to_string_lossy().into_owned();
        let intents = of("intent").iter().filter(|receipt| receipt["argv"].to_string().contains(&format!("/marks/{name};"))).count();
        assert_eq!(intents, 1, "{name} ran");
    }
    let mut begun: Vec<&str> = of("intent").iter().filter_map(|receipt| receipt["receipt_id"].as_str()).collect();
    let mut ended: Vec<&str> = of("outcome").iter().filter_map(|receipt| receipt["receipt_id"].as_str()).collect();
    begun.sort_unstable();
    ended.sort_unstable();
    assert_eq!(begun, ended, "every intent has one outcome");
    holds(&ground);
}
