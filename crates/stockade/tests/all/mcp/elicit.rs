//! Approval through the client of whoever asks, where rules let it: by a request in one era, by an answer that is called again in the other; and
//! everything that somebody could bring back in the place of what they were given.

use serde_json::{Value, json};

use super::approvals::{person, request_of, words};
use super::client::Client;
use super::{ASKS, receipts, rules, verified};
use crate::wall::Who;
use crate::wall::ground::{Ground, as_both};

/// What a client itself may say yes to.
pub(crate) const OWN_WORD: &str = r#"
@id("own-word") permit (principal is Stockade::Agent, action == Stockade::Action::"approve", resource)
  when { context.method == "elicitation" && context.effect == "write" && context has requesterAgent && context.requesterAgent == principal };
"#;

const QUESTION: &str = "elicitation/create";

fn own_word(ground: &Ground) {
    rules(ground, &format!("{ASKS}{OWN_WORD}"));
}

fn able(ground: &Ground) -> Client {
    Client::known_as(ground, "by hand", &json!({"elicitation": {}}))
}

/// Answers what the server asks.
fn reply(client: &mut Client, question: &Value, answer: &Value) {
    client.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": answer}));
}

#[test]
fn a_client_is_asked_and_its_yes_runs_the_call() {
    as_both(|ground| {
        own_word(ground);
        let mut client = able(ground);
        let call = client.begin("shell", &json!({"script": "touch x; echo 'made\u{202e}'"}));
        let question = client.told(QUESTION);
        let message = question["params"]["message"].as_str().expect("words");
        let listed = person(ground, &["list"]);
        let id = listed["approvals"][0]["id"].as_str().expect("an id").to_owned();
        let shown = person(ground, &["show", &id]);
        assert!(message.contains(shown["shown"].as_str().expect("text")), "all of it is shown: {message}");
        assert!(message.contains(&id) && message.contains("\\u{202e}") && !message.contains('\u{202e}'), "{message}");
        let form = &question["params"]["requestedSchema"];
        assert_eq!((&form["properties"]["approve"]["type"], &form["required"]), (&json!("boolean"), &json!(["approve"])), "{question}");
        reply(&mut client, &question, &json!({"action": "accept", "content": {"approve": true}}));
        let ran = client.answer(call);
        assert_eq!(ran["result"]["structuredContent"]["stdout"], "made\u{202e}\n", "{ran}");
        let after = person(ground, &["show", &id]);
        assert_eq!(
            (&after["state"], &after["decided"]["method"], &after["decided"]["by"]),
            (&json!("used"), &json!("elicitation"), &json!("by-hand/main")),
            "{after}"
        );
        let all = receipts(ground);
        let of: Vec<&Value> = all.iter().filter(|one| one["approval"]["method"] == "elicitation").collect();
        let kinds: Vec<&str> = of.iter().filter_map(|one| one["kind"].as_str()).collect();
        assert_eq!(kinds, ["approval", "intent", "outcome"], "{all:#?}");
        assert!(of.iter().all(|one| one["approval"]["shown_sha256"] == shown["shown_sha256"]), "{of:#?}");
        // Once: the next is asked about again.
        let call = client.begin("shell", &json!({"script": "touch x; echo 'made\u{202e}'"}));
        let question = client.told(QUESTION);
        reply(&mut client, &question, &json!({"action": "decline"}));
        let denied = client.answer(call);
        assert_eq!(denied["result"]["structuredContent"]["approval"]["state"], "denied", "{denied}");
        verified(ground);
    });
}

#[test]
fn whatever_is_no_yes_is_a_no_and_stands() {
    let ground = Ground::new(Who::Ordinary);
    own_word(&ground);
    let mut client = able(&ground);
    let answers = [
        json!({"action": "decline"}),
        json!({"action": "cancel"}),
        json!({"action": "accept"}),
        json!({"action": "accept", "content": {"approve": false}}),
        json!({"action": "accept", "content": {"approve": "yes"}}),
    ];
    for (number, answer) in answers.iter().enumerate() {
        let script = format!("touch n{number}");
        let call = client.begin("shell", &json!({"script": script}));
        let question = client.told(QUESTION);
        reply(&mut client, &question, answer);
        let denied = client.answer(call)["result"].clone();
        assert_eq!(
            (&denied["isError"], &denied["structuredContent"]["approval"]["state"]),
            (&json!(true), &json!("denied")),
            "{answer}: {denied}"
        );
        assert_eq!(denied["structuredContent"]["approval"]["method"], "elicitation", "{denied}");
        // Nobody is worn down: it is not asked again.
        let again = client.shell(&script);
        assert!(words(&again).contains("said no to the request"), "{again}");
    }
    // An error in the place of an answer is none; the request waits.
    let call = client.begin("shell", &json!({"script": "touch e"}));
    let question = client.told(QUESTION);
    client.send(&json!({"jsonrpc": "2.0", "id": question["id"], "error": {"code": -32601, "message": "no"}}));
    request_of(&client.answer(call)["result"]);
    assert_eq!(client.shell("ls")["structuredContent"]["stdout"], "");
}

#[test]
fn nobody_is_asked_through_a_client_unless_rules_say_so() {
    let ground = Ground::new(Who::Ordinary);
    let not = [
        // No rule lets it.
        String::new(),
        OWN_WORD.replace("\"write\"", "\"read\""),
        OWN_WORD.replace("\"elicitation\"", "\"passphrase\""),
        format!("@approval(\"required\") {OWN_WORD}"),
        format!("{OWN_WORD}\nforbid (principal, action == Stockade::Action::\"approve\", resource == Stockade::Program::\"touch\");"),
        // A person may approve anything; the client is none.
        "permit (principal is Stockade::Human, action == Stockade::Action::\"approve\", resource);".to_owned(),
    ];
    for more in not {
        rules(&ground, &format!("{ASKS}{more}"));
        let mut client = able(&ground);
        request_of(&client.shell("touch x"));
        assert!(client.aside().iter().all(|message| message["method"] != QUESTION), "{more}");
    }
    // One command of two is not enough.
    let both = ASKS.replace(
        "resource == Stockade::Program::\"touch\");",
        "resource) when { [Stockade::Program::\"touch\", Stockade::Program::\"mkdir\"].contains(resource) };",
    );
    let own = OWN_WORD.replace("resource)", "resource == Stockade::Program::\"touch\")");
    rules(
        &ground,
        &format!("{both}{own}").replace(
            "unless { resource == Stockade::Program::\"touch\" }",
            "unless { [Stockade::Program::\"touch\", Stockade::Program::\"mkdir\"].contains(resource) }",
        ),
    );
    let mut client = able(&ground);
    request_of(&client.shell("touch x; mkdir y"));
    // A client that cannot be asked, or only by a page, is not.
    own_word(&ground);
    for capabilities in [json!({}), json!({"elicitation": {"url": {}}})] {
        request_of(&Client::known_as(&ground, "by hand", &capabilities).shell("touch z"));
    }
    // Rules of a project do not count, even trusted ones.
    rules(&ground, ASKS);
    ground.directory(&ground.work.join(".stockade/policy"));
    ground.plant(&ground.work.join(".stockade/policy/own.cedar"), OWN_WORD, 0o644);
    let trusted = crate::wall::ground::finish(&mut ground.stockade(["trust", "project"]));
    assert_eq!(trusted.code, Some(0), "{trusted:?}");
    request_of(&able(&ground).shell("touch p"));
}

#[test]
fn a_person_may_answer_first_and_a_question_that_is_open_gains_nothing() {
    let ground = Ground::new(Who::Ordinary);
    own_word(&ground);
    let mut client = able(&ground);
    let call = client.begin("shell", &json!({"script": "touch x; echo made"}));
    let question = client.told(QUESTION);
    let listed = person(&ground, &["list"]);
    let id = listed["approvals"][0]["id"].as_str().expect("an id").to_owned();
    person(&ground, &["approve", &id]);
    let ran = client.answer(call);
    assert_eq!(ran["result"]["structuredContent"]["stdout"], "made\n", "{ran}");
    // The late answer is to nothing any more.
    reply(&mut client, &question, &json!({"action": "accept", "content": {"approve": true}}));
    assert_eq!(client.shell("ls")["structuredContent"]["stdout"], "x\n");
    let intents = receipts(&ground).into_iter().filter(|one| one["kind"] == "intent" && one["approval"].is_object()).count();
    assert_eq!(intents, 1);
    // Rules that change while the question is open count.
    let call = client.begin("shell", &json!({"script": "touch y"}));
    let question = client.told(QUESTION);
    rules(&ground, ASKS);
    reply(&mut client, &question, &json!({"action": "accept", "content": {"approve": true}}));
    request_of(&client.answer(call)["result"]);
    assert_eq!(client.shell("ls")["structuredContent"]["stdout"], "x\n");
}

/// With a credential set up, rules may still let a client answer for what can be undone; what they say of the rest is theirs to say.
#[test]
fn without_a_credential_no_client_approves_what_cannot_be_undone() {
    let ground = Ground::new(Who::Ordinary);
    let all = OWN_WORD.replace("context.effect == \"write\" && ", "");
    let asks =
        "@id(\"caps\") @approval(\"required\") permit (principal is Stockade::Agent, action in Stockade::Action::\"invoke\", resource);";
    rules(&ground, &format!("{ASKS}{all}{asks}"));
    ground.host("git init -q -b main . && git config user.name h && git config user.email h@x.org && git commit -q --allow-empty -m only");
    let mut client = able(&ground);
    let call = client.begin("capability_run", &json!({"name": "git.restore", "input": {"paths": ["x"]}}));
    // Nobody is asked: a yes would not count. What is needed first is said.
    let refused = client.answer(call);
    let id = request_of(&refused["result"]);
    let step = format!("A person may say: stockade approvals credential set && stockade approvals approve {id}");
    assert!(words(&refused["result"]).contains(&step), "{refused}");
    assert!(receipts(&ground).iter().all(|one| one["kind"] != "intent"), "nothing ran");
}

/// The era without a handshake.
struct Modern {
    client: Client,
    name: &'static str,
}

impl Modern {
    fn new(ground: &Ground, name: &'static str) -> Self {
        Self { client: Client::bare(ground, &[]), name }
    }

    fn call(&mut self, script: &str, more: &Value) -> Value {
        let mut params = json!({"name": "shell", "arguments": {"script": script}, "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": self.name, "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
        }});
        params.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        let answer = self.client.ask("tools/call", &params);
        answer.get("result").cloned().unwrap_or_else(|| panic!("{script}: {answer}"))
    }

    /// Calls, and gives the state that it is to bring back.
    fn asked(&mut self, script: &str) -> String {
        let asked = self.call(script, &json!({}));
        assert_eq!(asked["resultType"], "input_required", "{asked}");
        let question = &asked["inputRequests"]["approval"];
        assert_eq!(question["method"], QUESTION, "{asked}");
        assert!(question["params"]["message"].as_str().expect("words").contains(&format!("script      | {script}")), "{asked}");
        asked["requestState"].as_str().expect("a state").to_owned()
    }

    fn says(&mut self, script: &str, state: &str, answer: &Value) -> Value {
        self.call(script, &json!({"requestState": state, "inputResponses": {"approval": answer}}))
    }

    fn says_yes(&mut self, script: &str, state: &str) -> Value {
        self.says(script, state, &json!({"action": "accept", "content": {"approve": true}}))
    }

    fn files(&mut self) -> String {
        self.call("ls", &json!({}))["structuredContent"]["stdout"].as_str().expect("text").to_owned()
    }
}

fn refused(result: &Value, why: &str) {
    assert!(result["isError"] == true && words(result).contains(why), "{why}: {result}");
}

#[test]
fn without_a_handshake_the_call_comes_again_with_its_answer() {
    as_both(|ground| {
        own_word(ground);
        let mut client = Modern::new(ground, "modern");
        let state = client.asked("touch x");
        assert_eq!(client.files(), "", "nothing ran yet");
        let ran = client.says_yes("touch x", &state);
        assert_eq!((&ran["resultType"], &ran["structuredContent"]["exit_code"]), (&json!("complete"), &json!(0)), "{ran}");
        assert_eq!(client.files(), "x\n");
        // Brought back again, here and after a restart, it opens nothing.
        refused(&client.says_yes("touch x", &state), "used before");
        let mut next = Modern::new(ground, "modern");
        refused(&next.says_yes("touch x", &state), "used before");
        assert_eq!(next.files(), "");
        // A no.
        let state = client.asked("touch y");
        let denied = client.says("touch y", &state, &json!({"action": "decline"}));
        assert_eq!(denied["structuredContent"]["approval"]["state"], "denied", "{denied}");
        refused(&client.says_yes("touch y", &state), "used before");
        assert_eq!(client.files(), "x\n");
        let all = receipts(ground);
        let of: Vec<&str> =
            all.iter().filter(|one| one["approval"]["method"] == "elicitation").filter_map(|one| one["kind"].as_str()).collect();
        assert_eq!(of, ["approval", "intent", "outcome", "approval"], "{all:#?}");
        verified(ground);
    });
}

#[test]
fn a_state_survives_a_restart_but_not_a_change() {
    let ground = Ground::new(Who::Ordinary);
    own_word(&ground);
    let state = Modern::new(&ground, "modern").asked("touch x");
    let mut client = Modern::new(&ground, "modern");
    let ran = client.says_yes("touch x", &state);
    assert_eq!(ran["structuredContent"]["exit_code"], 0, "{ran}");
    // Something else is there now: the answer was about another call.
    let state = client.asked("touch y");
    assert_eq!(client.call("echo > z", &json!({}))["structuredContent"]["exit_code"], 0);
    request_of(&client.says_yes("touch y", &state));
    // A person said no meanwhile.
    let state = client.asked("touch w");
    let listed = person(&ground, &["list"]);
    let waits = listed["approvals"].as_array().expect("requests");
    let id = waits.iter().find(|one| one["call"] == "touch w").expect("a request")["id"].as_str().expect("an id").to_owned();
    person(&ground, &["deny", &id]);
    refused(&client.says_yes("touch w", &state), "said no to the request");
    assert_eq!(client.files(), "x\nz\n");
}

#[test]
fn what_was_not_given_to_this_agent_for_this_call_opens_nothing() {
    let ground = Ground::new(Who::Ordinary);
    own_word(&ground);
    let mut client = Modern::new(&ground, "modern");
    let state = client.asked("touch x");
    let foreign = "was not made here for this agent, or was changed";
    // Altered: every place of it counts.
    for at in [0, 1, state.len() / 2, state.len() - 2] {
        let mut altered = state.clone().into_bytes();
        altered[at] = if altered[at] == b'A' { b'B' } else { b'A' };
        refused(&client.says_yes("touch x", &String::from_utf8(altered).expect("text")), foreign);
    }
    for nonsense in [
        "",
        "x",
        "====",
        "\u{202e}",
        &"A".repeat(100_000),
        state.strip_suffix(|_: char| true).expect("it is long"),
        &format!("{state}AAAA"),
    ] {
        refused(&client.says_yes("touch x", nonsense), foreign);
    }
    // Another agent's, though it asks for the same.
    let mut other = Modern::new(&ground, "other");
    other.asked("touch x");
    refused(&other.says_yes("touch x", &state), foreign);
    // Of another store.
    let elsewhere = Ground::new(Who::Ordinary);
    own_word(&elsewhere);
    refused(&client.says_yes("touch x", &Modern::new(&elsewhere, "modern").asked("touch x")), foreign);
    let all = receipts(&ground);
    let tried = all.iter().filter(|one| one["capability"] == "stockade.approvals.answer" && one["kind"] == "denied");
    let who: Vec<&Value> = tried.map(|one| &one["principal"]["agent"]).collect();
    assert_eq!((who.len(), who.iter().filter(|who| **who == "other/main").count()), (13, 1), "each is written down: {all:#?}");
    verified(&ground);
    // An answer without the state, or a state without an answer, is none.
    let alone = client.call("touch x", &json!({"inputResponses": {"approval": {"action": "accept", "content": {"approve": true}}}}));
    assert_eq!(alone["resultType"], "input_required", "{alone}");
    refused(&client.call("touch x", &json!({"requestState": state})), "has no answer");
    // For another call: that is asked about itself, and what was given is spent.
    request_of(&client.says_yes("touch other", &state));
    refused(&client.says_yes("touch x", &state), "used before");
    assert_eq!(client.files(), "", "nothing of it ran");
    assert!(receipts(&ground).iter().all(|one| one["kind"] != "intent" || one["approval"].is_null()));
}

#[test]
fn of_many_that_bring_the_same_state_one_runs() {
    let ground = Ground::new(Who::Ordinary);
    own_word(&ground);
    let state = Modern::new(&ground, "modern").asked("touch x");
    let ran: usize = std::thread::scope(|scope| {
        let tries: Vec<_> = (0..6)
            .map(|_| {
                let (ground, state) = (&ground, &state);
                scope.spawn(move || Modern::new(ground, "modern").says_yes("touch x", state)["structuredContent"]["exit_code"] == 0)
            })
            .collect();
        tries.into_iter().map(|one| usize::from(one.join().expect("an answer"))).sum()
    });
    assert_eq!(ran, 1);
}
