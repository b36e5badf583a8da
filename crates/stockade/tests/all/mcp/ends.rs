//! How calls end before their time: the clock, the client, the end of input, a signal.

use serde_json::{Value, json};

use super::client::Client;
use super::{DEVELOPER, receipts, rules, verified};
use crate::wall::Who;
use crate::wall::ground::{Ground, as_both, eventually, processes, unique_seconds};

fn outcomes(ground: &Ground) -> Vec<Value> {
    receipts(ground).into_iter().filter(|receipt| receipt["kind"] == "outcome").collect()
}

/// Whether the script has come to its `sleep`: its own text is among the arguments of its shell.
fn sleeps(seconds: &str) -> bool {
    !processes(&format!("sleep\0{seconds}")).is_empty()
}

#[test]
fn a_call_that_takes_too_long_is_killed_and_says_so() {
    as_both(|ground| {
        rules(ground, DEVELOPER);
        let mut client = Client::new(ground);
        let seconds = unique_seconds();
        let script = format!("echo begun > begun; sleep {seconds} & sleep {seconds}");
        let slow = client.call("shell", &json!({"script": script, "timeout_seconds": 0.5}));
        let told = &slow["structuredContent"];
        assert_eq!((&slow["isError"], &told["timed_out"], &told["exit_code"]), (&json!(true), &json!(true), &Value::Null), "{slow}");
        eventually("everything is killed", || processes(&seconds).is_empty());
        assert_eq!(client.shell("cat begun")["structuredContent"]["stdout"], "begun\n", "what it did until then stays");
        assert_eq!(outcomes(ground)[0]["result"]["limit"], "time");
    });
}

#[test]
fn a_caller_may_shorten_the_time_but_not_lengthen_it() {
    let ground = Ground::new(Who::Ordinary);
    rules(&ground, DEVELOPER);
    ground.plant(&ground.home.join(".config/stockade/settings.json"), "{\"sandbox\": {\"timeoutSeconds\": 1}}", 0o600);
    let mut client = Client::new(&ground);
    let slow = client.call("shell", &json!({"script": "sleep 600", "timeout_seconds": 900}));
    assert_eq!(slow["structuredContent"]["timed_out"], true, "{slow}");
}

#[test]
fn a_withdrawn_call_is_killed_and_leaves_an_outcome() {
    as_both(|ground| {
        rules(ground, DEVELOPER);
        let mut client = Client::new(ground);
        let seconds = unique_seconds();
        let id = client.begin("shell", &json!({"script": format!("trap '' TERM INT; sleep {seconds}")}));
        eventually("it runs", || sleeps(&seconds));
        let waiting = client.begin("shell", &json!({"script": "echo never > never"}));
        for id in [waiting, id] {
            client.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id, "reason": "enough"}}));
        }
        eventually("it is killed", || processes(&seconds).is_empty());
        let after = client.shell("ls; echo still here");
        assert_eq!(after["structuredContent"]["stdout"], "still here\n", "{after}");
        assert!(!client.aside().iter().any(|message| message["id"] == id), "a withdrawn call has no answer: {:?}", client.aside());
        eventually("the outcome is written", || outcomes(ground).len() == 2);
        let outcome = &outcomes(ground)[0];
        assert_eq!(outcome["result"]["signal"], 9, "{outcome}");
        assert!(outcome["violations"][0].as_str().expect("a line").contains("cancelled: the client withdrew"), "{outcome}");
        verified(ground);
    });
}

#[test]
fn the_end_of_input_ends_what_runs_and_keeps_what_was_done() {
    as_both(|ground| {
        rules(ground, DEVELOPER);
        let mut client = Client::new(ground);
        let seconds = unique_seconds();
        client.begin("shell", &json!({"script": format!("echo half > half; sleep {seconds}")}));
        eventually("it runs", || sleeps(&seconds));
        let (code, said) = client.close();
        assert!(code == Some(0) && said.contains("1 file changed"), "{code:?} {said}");
        assert_eq!(processes(&seconds), [] as [u32; 0]);
        let outcome = &outcomes(ground)[0];
        assert_eq!(outcome["result"]["signal"], 9, "{outcome}");
        verified(ground);
    });
}

#[test]
fn a_signal_ends_it_the_same_way() {
    let ground = Ground::new(Who::Ordinary);
    rules(&ground, DEVELOPER);
    let mut client = Client::new(&ground);
    let seconds = unique_seconds();
    client.begin("shell", &json!({"script": format!("echo half > half; sleep {seconds}")}));
    eventually("it runs", || sleeps(&seconds));
    let pid = rustix::process::Pid::from_raw(i32::try_from(client.pid()).expect("a pid")).expect("a pid");
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("sent");
    let (code, said) = client.ended();
    assert!(code == Some(143) && said.contains("1 file changed"), "{code:?} {said}");
    assert_eq!(processes(&seconds), [] as [u32; 0]);
    assert_eq!(outcomes(&ground)[0]["result"]["signal"], 9);
}

#[test]
fn progress_is_told_to_whoever_asks() {
    let ground = Ground::new(Who::Ordinary);
    rules(&ground, DEVELOPER);
    let mut client = Client::new(&ground);
    let id = client.request(
        "tools/call",
        &json!({
            "name": "shell", "arguments": {"script": "sleep 1.5"}, "_meta": {"progressToken": "tok"},
        }),
    );
    let answer = client.answer(id);
    assert_eq!(answer["result"]["structuredContent"]["exit_code"], 0, "{answer}");
    let told: Vec<f64> = client
        .aside()
        .iter()
        .filter(|message| message["method"] == "notifications/progress")
        .inspect(|message| assert_eq!(message["params"]["progressToken"], "tok"))
        .filter_map(|message| message["params"]["progress"].as_f64())
        .collect();
    assert!(told.len() >= 2 && told.is_sorted(), "{told:?}");
    client.shell("sleep 1.2");
    assert_eq!(client.aside().iter().filter(|message| message["method"] == "notifications/progress").count(), told.len());
}
