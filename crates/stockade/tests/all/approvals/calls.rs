//! Calls that rules ask about, where nobody is at a terminal: filed, approved, used once; and what changes in between.

use std::process::Command;

use serde_json::{Value, json};

use super::{PASSPHRASE, ask_for, json, receipts, request_of, rules, set_credential, tell, with_passphrase};
use crate::mcp::{ASKS, Client};
use crate::wall::ground::{finish, finish_with};
use crate::wall::terminal::stockade_on_terminal;
use crate::wall::{Ground, Who, as_both};

#[test]
fn what_was_approved_runs_once() {
    as_both(|ground| {
        ask_for(ground, "cat");
        ground.file("x", "one\n");
        let refused = ground.run(&[], &["cat", "x"]);
        assert_eq!((refused.code, refused.stdout.as_str()), (Some(126), ""), "{refused:?}");
        let id = request_of(&refused.stderr);
        assert!(
            refused.stderr.contains("look first") && refused.stderr.contains(&format!("stockade approvals approve {id}")),
            "{refused:?}"
        );
        // Asked again it is the same request, counted.
        assert_eq!(request_of(&ground.run(&[], &["cat", "x"]).stderr), id);
        let listed = json(ground, &["approvals", "list"]);
        let one = &listed["approvals"][0];
        assert_eq!((&one["id"], &one["state"], &one["times"], &one["call"]), (&json!(id), &json!("pending"), &json!(2), &json!("cat x")));
        let shown = json(ground, &["approvals", "show", &id]);
        let text = shown["shown"].as_str().expect("text");
        for part in ["runs        | cat\n            | x\n", "cat (sha256 ", "/work/x (sha256 ", "workspace ", "look first"] {
            assert!(text.contains(part), "{part:?} is not in {text}");
        }
        let approved = json(ground, &["approvals", "approve", &id]);
        assert_eq!((&approved["state"], &approved["decided"]["method"]), (&json!("approved"), &json!("same-uid")));
        let ran = ground.run(&[], &["cat", "x"]);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "one\n"), "{ran:?}");
        let next = ground.run(&[], &["cat", "x"]);
        assert_eq!(next.code, Some(126), "used up: {next:?}");
        assert_ne!(request_of(&next.stderr), id);
        assert_eq!(tell(ground, &["approvals", "approve", &id]).code, Some(125), "what was used cannot be approved again");
        assert_eq!(tell(ground, &["receipts", "verify"]).code, Some(0));
    });
}

#[test]
fn all_that_wait_are_denied_at_once_or_those_of_one_agent() {
    as_both(|ground| {
        rules(ground, ASKS.trim_start().split_once('\n').expect("people are free by the first line").1);
        let people = "@id(\"ask-people\") @approval(\"required\") permit (principal is Stockade::Human, action, resource);";
        ground.plant(&ground.home.join(".config/stockade/policy/people.cedar"), people, 0o600);
        let mut client = Client::new(ground);
        let theirs: Vec<String> = ["touch a", "touch b"]
            .map(|script| client.shell(script)["structuredContent"]["decision"]["approval_id"].as_str().expect("a request").to_owned())
            .into();
        let own = request_of(&ground.run(&[], &["cat", "x"]).stderr);
        assert_eq!(json(ground, &["approvals", "deny", "--all", "--agent", "other/main"]), json!({"denied": []}));
        let denied = json(ground, &["approvals", "deny", "--all", "--agent", "by-hand/main"]);
        let of = |value: &Value, field: &str| {
            value["denied"].as_array().expect("a list").iter().map(|one| one[field].clone()).collect::<Vec<_>>()
        };
        assert_eq!(
            (of(&denied, "id"), of(&denied, "state")),
            (vec![json!(theirs[0]), json!(theirs[1])], vec![json!("denied"); 2]),
            "{denied}"
        );
        let again = client.shell("touch a").to_string();
        assert!(again.contains(&format!("said no to the request {}", theirs[0])), "{again}");
        let rest = tell(ground, &["approvals", "deny", "--all"]);
        assert_eq!((rest.code, rest.stdout.starts_with(&own), rest.stdout.lines().count()), (Some(0), true, 1), "{rest:?}");
        let nothing = tell(ground, &["approvals", "deny", "--all"]);
        assert!(nothing.code == Some(0) && nothing.stdout.is_empty() && nothing.stderr.contains("nothing was denied"), "{nothing:?}");
        let said =
            receipts(ground).iter().filter(|one| one["kind"] == "approval" && one["capability"] == "stockade.approvals.deny").count();
        assert!(said >= 3, "each is written down: {said}");
        for words in [&["approvals", "deny"][..], &["approvals", "deny", &own, "--all"], &["approvals", "deny", &own, "--agent", "a/b"]] {
            assert_eq!(tell(ground, words).code, Some(125), "{words:?}");
        }
        client.close();
    });
}

#[test]
fn receipts_say_who_approved_what_was_shown() {
    as_both(|ground| {
        ask_for(ground, "cat");
        ground.file("x", "one\n");
        let id = request_of(&ground.run(&[], &["cat", "x"]).stderr);
        let shown = json(ground, &["approvals", "show", &id]);
        let sha256 = &shown["shown_sha256"];
        assert_eq!(tell(ground, &["approvals", "approve", &id]).code, Some(0));
        assert_eq!(ground.run(&[], &["cat", "x"]).code, Some(0));
        let all = receipts(ground);
        let of = |kind: &str| all.iter().filter(|one| one["kind"] == kind).collect::<Vec<_>>();
        let denied = of("denied");
        assert_eq!((denied.len(), &denied[0]["policy"]["verdict"]), (1, &json!("ask")), "{all:#?}");
        let approval = of("approval");
        assert_eq!(approval.len(), 1, "{all:#?}");
        assert_eq!((&approval[0]["approval"]["method"], &approval[0]["approval"]["shown_sha256"]), (&json!("same-uid"), sha256));
        assert_eq!(approval[0]["capability"], "stockade.approvals.approve");
        assert_eq!(approval[0]["principal"]["parent"], denied[0]["receipt_id"], "{all:#?}");
        let intent = of("intent");
        assert_eq!(&intent.last().expect("an intent")["approval"]["shown_sha256"], sha256, "{all:#?}");
    });
}

/// I05, I17: approve, then change something.
#[test]
fn whatever_changes_before_the_run_asks_again() {
    as_both(|ground| {
        ask_for(ground, "cat");
        ground.file("x", "one\n");
        ground.file("y", "other\n");
        ground.directory(&ground.work.join("sub"));
        ground.plant(&ground.work.join("sub/x"), "one\n", 0o644);
        let approve = || {
            let id = request_of(&ground.run(&[], &["cat", "x"]).stderr);
            assert_eq!(tell(ground, &["approvals", "approve", &id]).code, Some(0));
            id
        };
        let first = approve();
        let not = |what: &str, command: &mut Command| {
            let refused = finish(command);
            assert_eq!((refused.code, refused.stdout.as_str()), (Some(126), ""), "{what}: {refused:?}");
            assert_ne!(request_of(&refused.stderr), first, "{what}");
        };
        not("other words", &mut ground.running(&[], &["cat", "y"]));
        not("more words", &mut ground.running(&[], &["cat", "x", "x"]));
        not("a variable", &mut ground.running(&["--env", "A=1"], &["cat", "x"]));
        not("the language", ground.running(&[], &["cat", "x"]).env("LANG", "C"));
        not("the mode", &mut ground.running(&["--workspace-mode", "rw"], &["cat", "x"]));
        not("a limit", &mut ground.running(&["--timeout", "7s"], &["cat", "x"]));
        not("--apply", &mut ground.running(&["--apply"], &["cat", "x"]));
        not("the directory", ground.running(&[], &["cat", "x"]).current_dir(ground.work.join("sub")));
        not("a script", &mut ground.stockade(["run", "--shell", "cat x"]));
        let piped = finish_with(&mut ground.running(&[], &["cat", "x"]), b"something to read");
        assert!(piped.code == Some(126) && request_of(&piped.stderr) != first, "{piped:?}");
        ground.file("x", "two\n");
        not("the file", &mut ground.running(&[], &["cat", "x"]));
        ground.file("x", "one\n");
        // A link of the same name that leads to the same bytes elsewhere.
        ground.host("mv x real && ln -s real x");
        not("a link", &mut ground.running(&[], &["cat", "x"]));
        ground.host("rm x && mv real x");
        ask_for(ground, "cat\" || resource == Stockade::Program::\"true");
        not("the rules", &mut ground.running(&[], &["cat", "x"]));
        ask_for(ground, "cat");
        // All as it was: the approval is still there.
        let ran = ground.run(&[], &["cat", "x"]);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "one\n"), "{ran:?}");
    });
}

#[test]
fn the_programs_own_file_is_bound() {
    as_both(|ground| {
        let tool = ground.base.join("tools/tool");
        ground.plant(&tool, "#!/bin/sh\necho one\n", 0o755);
        ask_for(ground, "tool");
        let mount = format!("{}:/opt/tools:ro", ground.base.join("tools").display());
        let run = || {
            finish(
                ground
                    .running(&["--mount", &mount, "--env", "PATH=/opt/tools:/usr/bin:/bin"], &["tool"])
                    .stdin(std::process::Stdio::null()),
            )
        };
        let first = run();
        assert_eq!(first.code, Some(126), "{first:?}");
        let id = request_of(&first.stderr);
        assert_eq!(tell(ground, &["approvals", "approve", &id]).code, Some(0));
        ground.plant(&tool, "#!/bin/sh\necho two\n", 0o755);
        let changed = run();
        assert_eq!((changed.code, changed.stdout.as_str()), (Some(126), ""), "{changed:?}");
        assert_ne!(request_of(&changed.stderr), id);
    });
}

/// After approval rules are evaluated again, and the stricter wins.
#[test]
fn a_forbid_that_came_after_wins() {
    as_both(|ground| {
        ask_for(ground, "ls");
        let id = request_of(&ground.run(&[], &["ls"]).stderr);
        assert_eq!(tell(ground, &["approvals", "approve", &id, "--until", "1h"]).code, Some(0));
        assert_eq!(ground.run(&[], &["ls"]).code, Some(0));
        ground.file(
            ".stockade/policy/no.cedar",
            "forbid (principal, action == Stockade::Action::\"exec\", resource == Stockade::Program::\"ls\");",
        );
        let denied = ground.json(&[], &["ls"]).1;
        assert_eq!(denied["decision"]["verdict"], "deny", "{denied}");
    });
}

#[test]
fn json_has_the_verdict_and_the_request() {
    as_both(|ground| {
        ask_for(ground, "ls");
        let (code, value) = ground.json(&[], &["ls"]);
        let id = value["decision"]["approval_id"].as_str().unwrap_or_else(|| panic!("{value}")).to_owned();
        assert_eq!((code, &value["decision"]["verdict"], &value["exit_code"]), (126, &json!("ask"), &Value::Null));
        assert_eq!(value["decision"]["suggest"], json!(format!("stockade approvals approve {id}")));
        assert_eq!(tell(ground, &["approvals", "deny", &id]).code, Some(0));
        let (code, value) = ground.json(&[], &["ls"]);
        assert_eq!((code, &value["decision"]["approval_id"]), (126, &json!(id)), "a no stands: {value}");
        assert!(value["decision"]["reason"].as_str().is_some_and(|reason| reason.contains("said no")), "{value}");
        assert_eq!(json(ground, &["approvals", "list"])["approvals"], json!([]));
        assert_eq!(json(ground, &["approvals", "list", "--all"])["approvals"][0]["state"], "denied");
    });
}

#[test]
fn scripts_and_capabilities_wait_as_well() {
    as_both(|ground| {
        rules(
            ground,
            "@approval(\"required\")\npermit (principal, action, resource);\n@id(\"echo\")\npermit (principal, action == Stockade::Action::\"exec\", resource == Stockade::Program::\"echo\");",
        );
        let script = || finish(&mut ground.stockade(["run", "--shell", "echo a; ls /usr/bin/env"]));
        let id = request_of(&script().stderr);
        let shown = tell(ground, &["approvals", "show", &id]).stdout;
        assert!(shown.contains("script      | echo a; ls /usr/bin/env") && shown.contains("/bash (sha256"), "{shown}");
        assert_eq!(tell(ground, &["approvals", "approve", &id]).code, Some(0));
        let ran = script();
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "a\n/usr/bin/env\n"), "{ran:?}");
        assert_eq!(script().code, Some(126));
        ground.host("git init -q . && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m first");
        let log = || finish(&mut ground.stockade(["cap", "run", "git.log", "--input", "max_count=1"]));
        let refused = log();
        assert_eq!(refused.code, Some(126), "{refused:?}");
        let id = request_of(&refused.stderr);
        let shown = tell(ground, &["approvals", "show", &id]).stdout;
        assert!(shown.contains("capability  git.log") && shown.contains("max_count"), "{shown}");
        assert_eq!(tell(ground, &["approvals", "approve", &id]).code, Some(0));
        let ran = log();
        assert!(ran.code == Some(0) && ran.stdout.contains("first"), "{ran:?}");
        assert_eq!(log().code, Some(126));
    });
}

const REMOVE: &str = "name = \"demo.remove\"\ndescription = \"Remove.\"\neffect = \"destructive\"\nprogram = \"echo\"\nargs = [\"gone\"]\n[[examples]]\ninput = {}\nargv = [\"echo\", \"gone\"]\n";

#[test]
fn destructive_calls_need_a_credential() {
    as_both(|ground| {
        ground.file("demo/pack.toml", "name = \"demo\"\nversion = \"1.0.0\"\ndescription = \"A demonstration.\"\npublisher = \"acme\"\n");
        ground.file("demo/capabilities/demo.remove.toml", REMOVE);
        let installed = tell(ground, &["pack", "install", "demo", "--unsigned", "--yes"]);
        assert_eq!(installed.code, Some(0), "{installed:?}");
        rules(ground, "@approval(\"required\")\npermit (principal, action in Stockade::Action::\"invoke\", resource);");
        let call = || finish(&mut ground.stockade(["cap", "run", "demo.remove"]));
        let asked = call().stderr;
        let id = request_of(&asked);
        assert!(asked.contains("a person may now say: stockade approvals credential set && stockade"), "the first step is said: {asked}");
        for scope in [&[][..], &["--until", "1h"]] {
            let refused = tell(ground, &[&["approvals", "approve", &id], scope].concat());
            assert!(refused.code == Some(125) && refused.stderr.contains("approver credential"), "{refused:?}");
        }
        let at_terminal = stockade_on_terminal(ground, &["cap", "run", "demo.remove"], "");
        assert!(at_terminal.contains("approver credential") && at_terminal.contains("code 126"), "{at_terminal}");
        set_credential(ground);
        let id = request_of(&call().stderr);
        let approved = with_passphrase(ground, PASSPHRASE, &["approvals", "approve", &id]);
        assert_eq!(approved.code, Some(0), "{approved:?}");
        let ran = call();
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "gone\n"), "{ran:?}");
    });
}

#[test]
fn grants_last_until_they_are_taken_back() {
    as_both(|ground| {
        ask_for(ground, "ls");
        let id = request_of(&ground.run(&[], &["ls"]).stderr);
        let granted = json(ground, &["approvals", "approve", &id, "--until", "1h"]);
        assert_eq!(granted["state"], "granted");
        for _ in 0..3 {
            assert_eq!(ground.run(&[], &["ls"]).code, Some(0));
        }
        let listed = json(ground, &["grants", "list"]);
        assert_eq!((&listed["grants"][0]["id"], &listed["grants"][0]["uses"]), (&json!(id), &json!(3)), "{listed}");
        assert_eq!(json(ground, &["grants", "revoke", &id])["revoked"], json!([id]));
        assert_eq!(ground.run(&[], &["ls"]).code, Some(126));
        assert_eq!(tell(ground, &["grants", "revoke", &id]).code, Some(125));
        assert_eq!(json(ground, &["grants", "list"])["grants"], json!([]));
    });
}

#[test]
fn a_grant_for_a_session_is_for_that_session() {
    as_both(|ground| {
        ask_for(ground, "ls");
        let in_session = |script: &str| finish(ground.outside("setsid").args(["--wait", "bash", "-c", script]).arg(&ground.binary));
        let outcome = in_session(
            "id=$(\"$0\" run -- ls </dev/null 2>&1 | grep -o 'approve [0-9a-f]*' | cut -d' ' -f2)
             \"$0\" approvals approve $id --for-session 2>/dev/null || exit 3
             \"$0\" run -- ls </dev/null && \"$0\" run -- ls </dev/null && echo twice",
        );
        assert!(outcome.code == Some(0) && outcome.stdout.ends_with("twice\n"), "{outcome:?}");
        assert_eq!(in_session("\"$0\" run -- ls </dev/null; exit $?").code, Some(126), "another session");
    });
}

/// As in a container that was joined from a terminal: the session has no number there.
#[test]
fn where_the_session_is_of_another_pid_namespace_only_it_cannot_be_approved() {
    let ground = Ground::new(Who::Root);
    ask_for(&ground, "ls");
    let outcome = finish(ground.outside("unshare").args(["--pid", "--fork", "--mount-proc", "bash", "-c"]).args([
        "id=$(\"$0\" run -- ls </dev/null 2>&1 | grep -o 'approve [0-9a-f]*' | cut -d' ' -f2)
         \"$0\" approvals approve $id --for-session && exit 3
         \"$0\" approvals approve $id && \"$0\" run -- ls </dev/null && echo once
         \"$0\" run -- ls </dev/null; exit $?",
        &ground.binary.to_string_lossy(),
    ]));
    assert!(outcome.code == Some(126) && outcome.stdout.ends_with("once\n"), "{outcome:?}");
    assert!(outcome.stderr.contains("session"), "{outcome:?}");
}

#[test]
fn a_rule_is_shown_before_it_is_written() {
    as_both(|ground| {
        ask_for(ground, "ls");
        let id = request_of(&ground.run(&[], &["ls", "-l"]).stderr);
        let unseen = tell(ground, &["approvals", "approve", &id, "--as-rule"]);
        assert!(unseen.code == Some(125) && unseen.stderr.contains("permit (") && unseen.stderr.contains("--yes"), "{unseen:?}");
        let no = stockade_on_terminal(ground, &["approvals", "approve", &id, "--as-rule"], "until(b'[y/N]'); os.write(fd, b'n\\r')\n");
        assert!(no.contains("permit (") && no.contains("code 125"), "{no}");
        assert_eq!(ground.run(&[], &["ls", "-l"]).code, Some(126));
        let yes = stockade_on_terminal(ground, &["approvals", "approve", &id, "--as-rule"], "until(b'[y/N]'); os.write(fd, b'y\\r')\n");
        assert!(yes.contains("code 0"), "{yes}");
        assert_eq!(ground.run(&[], &["ls", "-l"]).code, Some(0));
        assert_eq!(ground.run(&[], &["ls", "-l"]).code, Some(0));
        assert_eq!(ground.run(&[], &["ls", "/"]).code, Some(126), "no more than that");
    });
}

#[test]
fn a_person_at_a_terminal_is_asked_and_the_answer_is_written_down() {
    as_both(|ground| {
        ask_for(ground, "ls");
        ground.file("x", "");
        let answer =
            |key: &str| stockade_on_terminal(ground, &["run", "--", "ls"], &format!("until(b'[y/N]'); os.write(fd, b'{key}\\r')\n"));
        let yes = answer("y");
        assert!(yes.contains("look first") && yes.contains("\nx\n") && yes.contains("code 0"), "{yes}");
        let no = answer("n");
        assert!(no.contains("code 126"), "{no}");
        assert_eq!(json(ground, &["approvals", "list", "--all"])["approvals"], json!([]), "nothing is filed");
        let all = receipts(ground);
        let verbs: Vec<&Value> = all.iter().filter(|one| one["kind"] == "approval").map(|one| &one["capability"]).collect();
        assert_eq!(verbs, [&json!("stockade.approvals.approve"), &json!("stockade.approvals.deny")], "{all:#?}");
        assert_eq!(tell(ground, &["receipts", "verify"]).code, Some(0));
    });
}

#[test]
fn with_a_credential_a_yes_at_the_terminal_is_its_passphrase() {
    as_both(|ground| {
        ask_for(ground, "ls");
        ground.file("x", "");
        set_credential(ground);
        let answer = |passphrase: &str| {
            let act = format!(
                "until(b'[y/N]'); os.write(fd, b'y\\r'); until(b'passphrase'); time.sleep(0.3); os.write(fd, b'{passphrase}\\r')\n"
            );
            stockade_on_terminal(ground, &["run", "--", "ls"], &act)
        };
        let wrong = answer("wrong horse battery");
        assert!(wrong.contains("does not fit") && wrong.contains("code 126"), "{wrong}");
        let right = answer(PASSPHRASE);
        assert!(right.contains("\nx\n") && right.contains("code 0") && !right.contains(PASSPHRASE), "{right}");
    });
}

#[test]
fn input_is_part_of_the_call() {
    as_both(|ground| {
        ask_for(ground, "cat");
        let cat = |input: &[u8]| finish_with(&mut ground.running(&[], &["cat"]), input);
        let id = request_of(&cat(b"one").stderr);
        assert_eq!(tell(ground, &["approvals", "approve", &id]).code, Some(0));
        assert_ne!(request_of(&cat(b"two").stderr), id);
        let ran = cat(b"one");
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "one"), "{ran:?}");
        let script = "mkfifo pipe && exec 3<>pipe && \"$0\" run -- cat <&3";
        let endless = finish(ground.outside("bash").args(["-c", script]).arg(&ground.binary));
        assert!(endless.stderr.contains("does not end"), "{endless:?}");
        let device = finish(ground.outside("bash").args(["-c", "\"$0\" run -- cat </dev/zero"]).arg(&ground.binary));
        assert!(device.code == Some(126) && device.stderr.contains("device"), "{device:?}");
    });
}

/// I20: many race the same approval.
#[test]
fn of_a_hundred_processes_one_runs() {
    let ground = Ground::new(Who::Ordinary);
    ask_for(&ground, "ls");
    ground.file("x", "");
    let id = request_of(&ground.run(&[], &["ls"]).stderr);
    assert_eq!(tell(&ground, &["approvals", "approve", &id]).code, Some(0));
    let script = "for i in $(seq 100); do { \"$0\" run -- ls </dev/null 2>/dev/null; echo \"code $?\"; } & done; wait";
    let raced = crate::wall::ground::finish_within(
        ground.outside("bash").args(["-c", script]).arg(&ground.binary),
        std::time::Duration::from_mins(5),
    );
    let count = |line: &str| raced.stdout.lines().filter(|found| *found == line).count();
    assert_eq!((count("x"), count("code 0"), count("code 126")), (1, 1, 99), "{raced:?}");
    let all = json(&ground, &["approvals", "list", "--all"]);
    let states: Vec<&Value> = all["approvals"].as_array().expect("a list").iter().map(|one| &one["state"]).collect();
    assert_eq!(states, [&json!("pending"), &json!("used")], "the others are one request: {all}");
}
