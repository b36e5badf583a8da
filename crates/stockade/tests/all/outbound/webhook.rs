//! Requests that wait for a person, told by a signed POST.

use serde_json::{Value, json};

use super::{KEY, Receiver, has_in_memory, keep_secret, set};
use crate::approvals::ask_for;
use crate::daemon::Daemon;
use crate::http::server::Server;
use crate::mcp::{ASKS, Client, rules};
use crate::wall::ground::{eventually, finish, processes};
use crate::wall::{Ground, Who, as_both};

/// Somebody who is told of requests.
fn told(ground: &Ground) -> Receiver {
    let receiver = Receiver::new(ground);
    keep_secret(ground, "HOOK", KEY);
    set(ground, "approvals.webhook.secret", "HOOK");
    set(ground, "approvals.webhook.url", &format!("http://127.0.0.1:{}/in?x=1", receiver.port));
    receiver
}

fn person(ground: &Ground, verb: &str, id: &str) {
    let done = finish(&mut ground.stockade(["approvals", verb, id]));
    assert_eq!(done.code, Some(0), "{done:?}");
}

fn request_of(result: &Value) -> String {
    result["structuredContent"]["decision"]["approval_id"].as_str().unwrap_or_else(|| panic!("no request: {result}")).to_owned()
}

/// What a message says of one request.
fn said(row: &Value) -> (String, String, String) {
    let text = |value: &Value| value.as_str().unwrap_or_else(|| panic!("{row}")).to_owned();
    (text(&row["body"]["type"]), text(&row["body"]["data"]["request"]), text(&row["body"]["data"]["state"]))
}

fn expected(kind: &str, id: &str, state: &str) -> (String, String, String) {
    (format!("approval.{kind}"), id.to_owned(), state.to_owned())
}

#[test]
fn what_waits_and_what_was_decided_is_told_signed_and_by_nobody_who_has_the_key() {
    as_both(|ground| {
        rules(ground, ASKS);
        let receiver = told(ground);
        let mut client = Client::new(ground);
        let id = request_of(&client.shell("touch x\u{202e}; echo '<b>'"));
        let first = receiver.gets(1).remove(0);
        assert_eq!(said(&first), expected("requested", &id, "pending"), "{first}");
        let (headers, data) = (&first["headers"], &first["body"]["data"]);
        assert_eq!((&first["holds"], &first["path"]), (&json!(true), &json!("/in?x=1")), "{first}");
        assert_eq!(headers["webhook-id"], format!("msg_{id}_pending"), "{first}");
        let age =
            jiff::Timestamp::now().as_second() - headers["webhook-timestamp"].as_str().expect("text").parse::<i64>().expect("seconds");
        assert!((0..60).contains(&age), "{first}");
        assert_eq!(
            (&data["title"], &data["principal"]),
            (&json!("touch x\\u{202e}; echo '<b>'"), &json!("Agent::\"by-hand/main\"")),
            "{first}"
        );
        assert!(data["shown_sha256"].as_str().is_some_and(|digest| digest.len() == 64) && data["expires"].is_string(), "{first}");
        person(ground, "approve", &id);
        let second = receiver.gets(2).remove(1);
        assert_eq!((said(&second), &second["holds"]), (expected("decided", &id, "approved"), &json!(true)), "{second}");
        assert_eq!(
            (&second["body"]["data"]["method"], &second["body"]["data"]["by"]),
            (&json!("same-uid"), &json!(ground.host("id -un").trim()))
        );
        let other = request_of(&client.shell("touch y"));
        person(ground, "deny", &other);
        eventually("the no is told", || receiver.got().last().is_some_and(|row| said(row) == expected("decided", &other, "denied")));
        // Neither the key nor what it is in base64 was ever in the server; egress has no use for it either.
        assert!(!has_in_memory(client.pid(), KEY.as_bytes()) && !has_in_memory(client.pid(), b"stockade-test-key-0123456789"));
        let (code, said) = client.close();
        assert!(code == Some(0) && !said.contains("outbound"), "{code:?} {said}");
        eventually("nothing is left", || ground.sandboxes().is_empty());
    });
}

#[test]
fn the_daemon_tells_of_what_people_asked_for_and_one_server_is_enough() {
    as_both(|ground| {
        ask_for(ground, "cat");
        let receiver = told(ground);
        let daemon = Daemon::of(ground);
        let server = Server::new(ground);
        let asked = ground.run(&[], &["cat", "x"]);
        assert_eq!(asked.code, Some(126), "{asked:?}");
        let row = receiver.gets(1).remove(0);
        let (_, id, _) = said(&row);
        assert_eq!((said(&row), &row["holds"]), (expected("requested", &id, "pending"), &json!(true)));
        person(ground, "deny", &id);
        receiver.gets(2);
        std::thread::sleep(std::time::Duration::from_secs(2));
        assert_eq!(receiver.got().len(), 2, "two servers of one person tell once");
        drop(server);
        assert_eq!(daemon.end(), Some(0));
    });
}

#[test]
fn what_fails_is_tried_again_under_the_same_id_and_what_is_refused_is_given_up() {
    let ground = Ground::new(Who::Ordinary);
    rules(&ground, ASKS);
    let receiver = told(&ground);
    receiver.will_answer(&ground, &[503, 429, 200, 302, 400]);
    let server = Server::new(&ground);
    // Its daemon could tell, too, and would count it where nobody looks.
    eventually("its daemon is there", || ground.state.join("stockade/run/daemon.sock").exists());
    server.call("shell", &json!({"script": "touch a"}));
    let got = receiver.gets(3);
    let ids: Vec<&Value> = got.iter().map(|row| &row["headers"]["webhook-id"]).collect();
    assert!(ids[0] == ids[1] && ids[1] == ids[2] && got.iter().all(|row| row["holds"] == true), "{got:#?}");
    for script in ["touch b", "touch c"] {
        server.call("shell", &json!({"script": script}));
    }
    let counted = || {
        let text = server.request("GET /metrics", &[("Authorization", "Bearer TOKEN")], "").body;
        let rows = text.lines().filter_map(|line| line.strip_prefix("stockade_outbound_total{kind=\"webhook\",result="));
        rows.map(str::to_owned).collect::<Vec<_>>()
    };
    receiver.gets(5);
    eventually("all three are settled, and it is this server that says so", || counted() == [r#""sent"} 1"#, r#""dropped"} 2"#]);
    let got = receiver.got();
    assert_eq!(got.len(), 5, "neither followed nor repeated: {got:#?}");
    assert!(got.iter().all(|row| row["path"] == "/in?x=1"), "{got:#?}");
    assert_eq!(tellers(&ground), [server.pid()], "the daemon beside it has nobody to tell");
}

/// The servers of this ground that would tell of what waits.
fn tellers(ground: &Ground) -> Vec<u32> {
    let home = format!("HOME={}\0", ground.home.display());
    let text = |path: String| std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let tells = |pid: &u32| {
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        // The kernel keeps fifteen letters of a name.
        threads.into_iter().any(|thread| text(format!("{}/comm", thread.path().display())).trim() == "stockade-webhoo")
    };
    let servers = processes("serve\0").into_iter().filter(|pid| text(format!("/proc/{pid}/environ")).contains(&home));
    servers.filter(tells).collect()
}

#[test]
fn who_is_named_later_hears_what_waits_and_nothing_that_was_over() {
    let ground = Ground::new(Who::Ordinary);
    rules(&ground, ASKS);
    let mut client = Client::new(&ground);
    let over = request_of(&client.shell("touch a"));
    person(&ground, "deny", &over);
    let open = request_of(&client.shell("touch b"));
    assert_eq!(client.close().0, Some(0));
    // Times are kept in seconds.
    std::thread::sleep(std::time::Duration::from_secs(1));
    let receiver = told(&ground);
    let client = Client::new(&ground);
    assert_eq!(said(&receiver.gets(1)[0]), expected("requested", &open, "pending"));
    person(&ground, "deny", &open);
    assert_eq!(said(&receiver.gets(2)[1]), expected("decided", &open, "denied"));
    assert_eq!(client.close().0, Some(0));
    assert_eq!(receiver.got().len(), 2, "{:#?}", receiver.got());
}

#[test]
fn calls_do_not_wait_for_who_does_not_answer() {
    let ground = Ground::new(Who::Ordinary);
    rules(&ground, ASKS);
    let receiver = told(&ground);
    let port = receiver.port;
    drop(receiver);
    let mut client = Client::new(&ground);
    let begun = std::time::Instant::now();
    for script in ["touch a", "touch b", "echo still here"] {
        client.shell(script);
    }
    assert!(begun.elapsed() < std::time::Duration::from_secs(15), "{:?}", begun.elapsed());
    // It comes back, and is told then.
    let receiver = Receiver::at(&ground, port);
    let got = receiver.gets(1);
    assert!(got[0]["holds"] == true && got[0]["body"]["type"] == "approval.requested", "{got:#?}");
    let begun = std::time::Instant::now();
    assert_eq!(client.close().0, Some(0));
    assert!(begun.elapsed() < std::time::Duration::from_secs(15), "{:?}", begun.elapsed());
}

#[test]
fn nothing_is_served_where_it_could_not_be_told_as_it_should() {
    as_both(|ground| {
        rules(ground, ASKS);
        let refused = |words: &[&str], says: &str| {
            let outcome = finish(&mut ground.stockade(words));
            assert!(outcome.code == Some(125) && outcome.stderr.contains(says), "{says}: {outcome:?}");
        };
        set(ground, "approvals.webhook.url", "https://hooks.example.com/");
        refused(&["mcp"], "needs `approvals.webhook.secret`");
        refused(&["serve"], "needs `approvals.webhook.secret`");
        set(ground, "approvals.webhook.secret", "HOOK");
        refused(&["mcp"], "stockade secret set HOOK");
        keep_secret(ground, "HOOK", KEY);
        for url in ["http://hooks.example.com/", "http://10.0.0.1/", "hooks.example.com", "https://me:pw@hooks.example.com/"] {
            // By whoever sets it and, where it was written by hand, by whoever would use it.
            let says = |key: &str| format!("`{key}`: `{url}`: ");
            refused(&["config", "set", "telemetry.otlp.url", url], &says("telemetry.otlp.url"));
            refused(&["config", "set", "approvals.webhook.url", url], &says("approvals.webhook.url"));
            let text = json!({"approvals": {"webhook": {"url": url, "secret": "HOOK"}}}).to_string();
            ground.plant(&ground.home.join(".config/stockade/settings.json"), &text, 0o600);
            refused(&["mcp"], &says("approvals.webhook.url"));
        }
        refused(&["config", "set", "approvals.webhook.secret", KEY], "it is a name, not the value itself");
        set(ground, "approvals.webhook.url", "null");
        set(ground, "approvals.webhook.url", "https://hooks.example.com/");
        assert_eq!(ground.sandboxes(), Vec::<String>::new());
        // A repository cannot have anything told to anybody.
        ground.directory(&ground.work.join(".stockade"));
        ground.plant(&ground.work.join(".stockade/settings.json"), "{\"approvals\": {\"webhook\": {\"url\": \"https://a.com/\"}}}", 0o644);
        refused(&["run", "--", "true"], "may not be set by a project");
    });
}
