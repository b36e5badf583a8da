//! Clients that mean harm or make mistakes: bounded, answered, and the server goes on.

use serde_json::{Value, json};

use super::client::Client;
use super::{DEVELOPER, rules};
use crate::wall::Who;
use crate::wall::ground::Ground;

fn ground() -> Ground {
    let ground = Ground::new(Who::Ordinary);
    rules(&ground, DEVELOPER);
    ground
}

#[test]
fn nonsense_is_answered_and_the_server_goes_on() {
    let ground = ground();
    let mut client = Client::new(&ground);
    client.write(b"\xff\xfe not json\n{\"jsonrpc\": \"2.0\"}\n[[[[\n\n");
    client.write(format!("{}\n", "[".repeat(200_000)).as_bytes());
    let unknown = client.ask("tools/call", &json!({"name": "rm\u{202e}", "arguments": {}}));
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    assert!(unknown["error"]["message"].as_str().expect("text").contains("\\u{202e}"), "{unknown}");
    let method = client.ask("tools/nothing", &json!({}));
    assert!(method.get("error").is_some(), "{method}");
    for (tool, bad) in [
        ("shell", json!({})),
        ("shell", json!({"script": ["ls"]})),
        ("shell", json!({"script": "ls", "sudo": true})),
        ("shell", json!({"script": "a\u{0}b"})),
        ("shell", json!({"script": "x".repeat(200_000)})),
        ("shell", json!({"script": "ls", "cwd": "../.."})),
        ("shell", json!({"script": "ls", "timeout_seconds": -1})),
        ("read_file", json!({"path": "../../etc/shadow"})),
        ("write_file", json!({"path": "x"})),
    ] {
        let answer = client.call(tool, &bad);
        assert_eq!(answer["isError"], true, "{tool} {bad}: {answer}");
        assert!(answer["structuredContent"]["error"]["message"].is_string(), "{tool} {bad}: {answer}");
    }
    assert_eq!(client.shell("echo still here")["structuredContent"]["stdout"], "still here\n");
}

/// I10, I11: a name that only looks like one that is permitted, characters that hide others, and scripts beyond every bound.
#[test]
fn what_is_not_what_it_looks_like_or_has_no_end_is_denied() {
    let ground = Ground::new(Who::Ordinary);
    rules(&ground, "permit (principal is Stockade::Agent, action == Stockade::Action::\"exec\", resource == Stockade::Program::\"cat\");");
    ground.plant(&ground.work.join("x"), "seen\n", 0o644);
    let mut client = Client::new(&ground);
    assert_eq!(client.shell("cat x")["structuredContent"]["stdout"], "seen\n");
    let many = "cat x;".repeat(10_000);
    let deep = format!("{}cat x{}", "(".repeat(500), ")".repeat(500));
    for script in ["\u{441}at x", "cat\u{200b} x", "\u{202e}cat x", "cat\rx", many.as_str(), deep.as_str()] {
        let answer = client.shell(script);
        let shown: String = script.chars().take(30).collect();
        assert_eq!(
            (&answer["isError"], &answer["structuredContent"]["decision"]["verdict"]),
            (&json!(true), &json!("deny")),
            "{shown:?}: {answer}"
        );
        assert!(answer["structuredContent"]["receipt_id"].is_string(), "{shown:?}: {answer}");
    }
    assert_eq!(client.shell("cat x")["structuredContent"]["stdout"], "seen\n");
}

/// I12, I13: a directory elsewhere, by whatever way, and arguments that no tool has.
#[test]
fn a_call_stays_in_the_workspace_and_chooses_no_rules() {
    let ground = ground();
    std::os::unix::fs::symlink("/etc", ground.work.join("elsewhere")).expect("a link");
    let mut client = Client::new(&ground);
    for cwd in ["/etc", "..", "elsewhere/..//../etc", "/proc/self/cwd/.."] {
        let answer = client.call("shell", &json!({"script": "cat passwd", "cwd": cwd}));
        assert_eq!(answer["isError"], true, "{cwd}: {answer}");
    }
    let linked = client.call("shell", &json!({"script": "pwd -P", "cwd": "elsewhere"}));
    assert_ne!(linked["structuredContent"]["stdout"], "/etc\n", "{linked}");
    for key in ["policy", "profile", "sandbox", "backend", "allow_hosts", "workspace_mode", "principal"] {
        let answer = client.call("shell", &json!({"script": "true", key: "local"}));
        assert_eq!(answer["isError"], true, "{key}: {answer}");
    }
}

#[test]
fn a_message_without_end_is_dropped_and_memory_is_bounded() {
    let ground = ground();
    let mut client = Client::new(&ground);
    let chunk = vec![b'x'; 1 << 20];
    for _ in 0..40 {
        client.write(&chunk);
    }
    client.write(b"\n");
    assert_eq!(client.shell("echo still here")["structuredContent"]["stdout"], "still here\n");
    let status = std::fs::read_to_string(format!("/proc/{}/status", client.pid())).expect("alive");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().expect("a number");
    assert!(peak < 160 << 10, "{peak} kB");
}

#[test]
fn huge_output_is_cut_and_marked() {
    let ground = ground();
    let mut client = Client::new(&ground);
    let huge = client.shell("head -c 12000000 /dev/zero | tr '\\0' a; echo end >&2");
    let told = &huge["structuredContent"];
    assert_eq!(told["stdout"].as_str().expect("text").len(), 10 << 20);
    assert_eq!((&told["truncated"], &told["exit_code"]), (&json!({"stdout": true, "stderr": false}), &json!(0)));
    let words = huge["content"][0]["text"].as_str().expect("text");
    assert!(words.len() < 128 << 10 && words.contains("left out"), "{}", words.len());
    let bytes = client.shell("printf '\\377'");
    assert_eq!(bytes["structuredContent"]["stdout_base64"], "/w==", "{bytes}");
}

#[test]
fn calls_at_once_take_turns_on_one_overlay_and_too_many_are_refused() {
    let ground = ground();
    let mut client = Client::new(&ground);
    let calls: Vec<i64> = (0..12).map(|n| client.begin("shell", &json!({"script": format!("echo {n} >> list; sleep 0.05")}))).collect();
    for id in calls {
        let answer = client.answer(id);
        assert_eq!(answer["result"]["structuredContent"]["exit_code"], 0, "{answer}");
    }
    let lines = client.shell("wc -l < list; sort -un list | wc -l");
    assert_eq!(lines["structuredContent"]["stdout"], "12\n12\n", "{lines}");
    let many: Vec<i64> = (0..80).map(|_| client.begin("shell", &json!({"script": "sleep 0.01"}))).collect();
    let answers: Vec<Value> = many.into_iter().map(|id| client.answer(id)).collect();
    let refused = answers.iter().filter(|answer| answer["result"]["isError"] == true).count();
    let ran = answers.iter().filter(|answer| answer["result"]["structuredContent"]["exit_code"] == 0).count();
    // A call that was answered has its place for a moment longer.
    assert!(refused > 0 && ran >= 48 && ran + refused == 80, "{ran} ran, {refused} were refused");
}

#[test]
fn the_era_without_a_handshake_is_served_too() {
    let ground = ground();
    let mut client = Client::bare(&ground, &["--name", "review"]);
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "new/er", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let discovered = client.ask("server/discover", &json!({"_meta": meta}));
    assert!(discovered["result"]["supportedVersions"].as_array().is_some_and(|all| all.contains(&json!("2026-07-28"))), "{discovered}");
    let answer = client.ask("tools/call", &json!({"name": "shell", "arguments": {"script": "echo hi"}, "_meta": meta}));
    assert_eq!(answer["result"]["structuredContent"]["stdout"], "hi\n", "{answer}");
    assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
    let status = client.ask("tools/call", &json!({"name": "sandbox_status", "arguments": {}, "_meta": meta}));
    assert_eq!(status["result"]["structuredContent"]["principal"], "new-er/review", "{status}");
}
