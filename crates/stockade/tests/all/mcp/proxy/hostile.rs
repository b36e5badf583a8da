//! Servers that mean harm or make mistakes: they get an error in their place, and nothing hangs, grows or stays.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{PERMIT, offered, plant, proxy, ready, receipts, rules, started, verified, words};
use crate::wall::Who;
use crate::wall::ground::{Ground, as_both, eventually, processes};

/// Longer than any of these may take.
const SOON: Duration = Duration::from_secs(40);

/// How much memory the proxy ever had.
fn peak(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("alive");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    peak.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[test]
fn a_call_that_goes_wrong_is_an_error_and_the_next_one_works() {
    let ground = Ground::new(Who::Ordinary);
    let mut client = ready(&ground, &["--timeout", "3s"]);
    for (tool, says) in [("hang", "did not answer within 3s"), ("wrong", "did not answer within 3s"), ("huge", "did not answer within 3s")]
    {
        let begun = Instant::now();
        let failed = client.call(tool, &json!({}));
        assert_eq!(failed["isError"], true, "{tool}: {failed}");
        assert!(words(&failed).contains(says) && begun.elapsed() < SOON, "{tool}: {failed}");
    }
    assert_eq!(words(&client.call("garbage", &json!({}))), "after all that");
    assert_eq!(words(&client.call("noise", &json!({}))), "said");
    assert_eq!(words(&client.call("echo", &json!({"message": "still here"}))), "still here");
    assert!(peak(client.pid()) < 200 << 10, "{} kB", peak(client.pid()));
    let (code, said) = client.close();
    assert_eq!(code, Some(0), "{said}");
    // Nobody read it, so most of it is left out.
    assert!(said.contains("demo: \\u{1b}[2J loud") && said.len() < 2 << 20, "{} {}", said.len(), said.get(..2000).unwrap_or(&said));
    let failures = receipts(&ground).into_iter().filter(|receipt| receipt["result"]["failure"].is_string()).count();
    assert_eq!(failures, 3);
    verified(&ground);
}

#[test]
fn a_server_that_dies_ends_its_calls_and_the_proxy() {
    as_both(|ground| {
        let mut client = ready(ground, &[]);
        let waiting = client.begin("hang", &json!({}));
        let dying = client.begin("die", &json!({}));
        for id in [waiting, dying] {
            let answer = client.answer(id);
            assert_eq!(answer["result"]["isError"], true, "{answer}");
        }
        let (code, said) = client.ended();
        assert!(code == Some(125) && said.contains("the MCP server has ended"), "{code:?} {said}");
        let outcome = receipts(ground).into_iter().rfind(|receipt| receipt["kind"] == "outcome" && receipt["capability"].is_null());
        assert_eq!(outcome.expect("its own receipt")["result"]["exit_code"], 7);
        verified(ground);
    });
}

#[test]
fn a_flood_is_cut_off() {
    let ground = Ground::new(Who::Ordinary);
    let mut client = ready(&ground, &[]);
    let begun = Instant::now();
    let failed = client.call("flood", &json!({}));
    assert!(failed["isError"] == true && begun.elapsed() < SOON, "{failed}");
    let (code, _) = client.ended();
    assert_eq!(code, Some(125));
}

#[test]
fn a_server_that_cannot_be_spoken_to_ends_the_proxy_and_leaves_nothing() {
    let ground = Ground::new(Who::Ordinary);
    for (mode, says) in [
        ("silent", "did not answer within 4s"),
        ("rubbish", "of no use"),
        ("dies", "of no use"),
        ("endless", "more than 64 pages"),
        ("many", "more than 256 tools"),
    ] {
        plant(&ground, mode);
        let begun = Instant::now();
        let (code, said) = started(&ground, &["--timeout", "4s"]).ended();
        assert!(code == Some(125) && said.contains(says) && begun.elapsed() < SOON, "{mode}: {code:?} {said}");
        assert_eq!(ground.sandboxes(), Vec::<String>::new(), "{mode}");
    }
    let missing = super::Client::bare(&ground, &["proxy", "--server", "demo", "--", "no-such-program"]).ended();
    assert_eq!(missing.0, Some(127), "{missing:?}");
    let unnamed = super::Client::bare(&ground, &["proxy", "--server", "De mo", "--", "true"]).ended();
    assert!(unnamed.0 == Some(125) && unnamed.1.contains("not the name of an MCP server"), "{unnamed:?}");
}

#[test]
fn what_a_server_asks_of_its_client_is_refused() {
    let ground = Ground::new(Who::Ordinary);
    let mut client = ready(&ground, &[]);
    assert_eq!(words(&client.call("ask", &json!({}))), "[true, true, true, true]");
    let asked: Vec<&Value> = client.aside().iter().filter(|message| message.get("method").is_some()).collect();
    assert_eq!(asked, Vec::<&Value>::new(), "nothing of it reaches the client");
    let greeting = client
        .ask("initialize", &json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}));
    assert!(!greeting.to_string().contains("Ignore all rules"), "words that nobody accepted: {greeting}");
}

#[test]
fn the_server_is_behind_the_wall_and_its_changes_are_kept_apart() {
    as_both(|ground| {
        ground.plant(&ground.home.join(".ssh/id_rsa"), "the key", 0o600);
        let mut client = ready(ground, &[]);
        let seen: Value = serde_json::from_str(words(&client.call("look", &json!({})))).expect("JSON");
        assert!(!seen["home"].as_array().expect("names").contains(&json!(".ssh")), "{seen}");
        assert_ne!(seen["network"], "reached", "{seen}");
        assert!(!seen["environment"].as_array().expect("names").contains(&json!("XDG_STATE_HOME")), "{seen}");
        assert_eq!(words(&client.call("write", &json!({}))), "written");
        let (code, said) = client.close();
        assert!(code == Some(0) && said.contains("1 file changed: stockade sandbox diff"), "{code:?} {said}");
        assert!(!ground.work.join("written").exists());
    });
}

/// So many calls of `wait` have begun.
fn waits(ground: &Ground, count: usize) {
    let begun = |one: &&Value| one["kind"] == "intent" && one["capability"] == "mcp.demo.wait";
    eventually("the call has begun", || receipts(ground).iter().filter(begun).count() == count);
}

#[test]
fn nothing_stays_whoever_goes() {
    as_both(|ground| {
        let marker = format!("server-{}.py", crate::wall::ground::unique_seconds());
        let begin = || {
            ground.file(&marker, super::SERVER);
            let flags = ["proxy", "--server", "demo", "--", "/usr/bin/python3", marker.as_str()];
            let client = super::Client::greeted(super::Client::bare(ground, &flags));
            assert!(!processes(&format!("python3\0{marker}")).is_empty());
            client
        };
        let gone = || eventually("the server is gone", || processes(&marker).is_empty());
        let mut client = begin();
        assert_eq!(offered(&mut client), Vec::<String>::new());
        super::accept(ground, &[]);
        rules(ground, PERMIT);
        let begun = Instant::now();
        // One that does not look at its input must be killed.
        client.begin("wait", &json!({}));
        waits(ground, 1);
        let (code, said) = client.close();
        assert!(code == Some(0) && begun.elapsed() < Duration::from_secs(20), "{code:?} {said}");
        gone();
        for (count, signal) in [(2, rustix::process::Signal::TERM), (3, rustix::process::Signal::KILL)] {
            let mut client = begin();
            client.begin("wait", &json!({}));
            waits(ground, count);
            let pid = rustix::process::Pid::from_raw(i32::try_from(client.pid()).expect("a pid")).expect("a pid");
            rustix::process::kill_process(pid, signal).expect("sent");
            let (code, _) = client.ended();
            assert_eq!(code, (signal == rustix::process::Signal::TERM).then_some(143));
            gone();
        }
        // A killed proxy leaves an interrupted call, which the next command writes down.
        let withdrawn = receipts(ground)
            .into_iter()
            .filter(|one| one["result"]["failure"].as_str().is_some_and(|why| why.contains("cancelled")))
            .count();
        assert_eq!(withdrawn, 2);
        verified(ground);
        plant(ground, "");
        assert_eq!(offered(&mut proxy(ground, &["--workspace-mode", "ro"])).len(), 0, "another server, by its words");
    });
}
