//! Calls of capabilities: what they get, what they cannot do, and what rules say to them.

use serde_json::{Value, json};

use super::{ECHO, installed, json, nothing_is_left, tell};
use crate::wall::ground::{finish, finish_with};
use crate::wall::{Ground, Who, as_both};

const SHELL: &str = r#"
name = "demo.shell"
description = "Run a script: what a pack would do that lies about itself."
effect = "EFFECT"
program = "bash"
args = ["-c", "{script}"]
input = { required = ["script"], properties = { script = { type = "string" } } }
[sandbox]
exec = EXEC
[[examples]]
input = { script = "x" }
argv = ["bash", "-c", "x"]
"#;

fn shell(effect: &str, exec: &str) -> String {
    SHELL.replace("EFFECT", effect).replace("EXEC", exec)
}

fn rules(ground: &Ground, text: &str) {
    ground.plant(&ground.home.join(".config/stockade/policy/rules.cedar"), text, 0o600);
}

fn script(ground: &Ground, script: &str) -> crate::Outcome {
    finish(&mut ground.stockade(["cap", "run", "demo.shell", "--input", &format!("script={script}")]))
}

#[test]
fn git_log_runs_behind_the_wall() {
    as_both(|ground| {
        ground.host("git init -q . && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m first && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m second");
        let before = ground.snapshot();
        let value = json(ground, &["cap", "run", "git.log", "--input", "max_count=1", "--input", "oneline=true"]);
        assert!(value["stdout"].as_str().is_some_and(|out| out.contains("second") && !out.contains("first")), "{value}");
        assert_eq!((&value["exit_code"], &value["decision"]["rule"]), (&json!(0), &json!("no-policy")));
        assert_eq!((&value["enforcement"]["exec"], &value["changes"]), (&json!("enforced"), &json!([])));
        assert_eq!(ground.snapshot(), before);
        nothing_is_left(ground);
    });
}

#[test]
fn read_is_held_by_the_wall_and_not_by_the_packs_word() {
    as_both(|ground| {
        ground.file("f", "old");
        installed(ground, &shell("read", "\"any\""));
        let outcome = script(ground, "echo new > f; rm f; touch g; cat f");
        assert!(outcome.stdout.ends_with("old"), "{outcome:?}");
        assert_eq!((ground.read("f"), ground.work.join("g").exists()), ("old".to_owned(), false));
        nothing_is_left(ground);
    });
}

#[test]
fn only_the_packs_programs_exist() {
    as_both(|ground| {
        installed(ground, &shell("read", "[]"));
        let outcome = script(ground, "echo in; /usr/bin/id; touch x; exec /bin/ls");
        assert!(outcome.stdout == "in\n" && outcome.code != Some(0), "{outcome:?}");
    });
}

#[test]
fn a_capability_has_no_network_of_the_settings() {
    let ground = Ground::new(Who::Ordinary);
    assert_eq!(tell(&ground, &["config", "set", "sandbox.allowedHosts", "[\"example.org\"]"]).code, Some(0));
    installed(&ground, ECHO);
    let dry = json(&ground, &["cap", "run", "demo.echo", "-i", "word=x", "--dry-run"]);
    assert_eq!(dry["sandbox"]["hosts"], json!([]));
    let dry = json(&ground, &["cap", "run", "http.get", "-i", "url=https://example.org/", "--dry-run"]);
    assert_eq!(dry["sandbox"]["hosts"], json!(["example.org"]), "unless it says so");
}

#[test]
fn a_dry_run_says_what_would_run_and_runs_nothing() {
    as_both(|ground| {
        ground.file("f", "x");
        let value = json(ground, &["cap", "run", "files.read", "-i", "path=./f", "--dry-run"]);
        let work = ground.work.display().to_string();
        assert_eq!(value["argv"], json!(["/usr/bin/cat", "--", format!("{work}/f")]));
        assert_eq!((&value["inputs"], &value["sandbox"]["workspace_mode"]), (&json!({ "path": "f" }), &json!("ro")));
        assert_eq!(value["decision"]["verdict"], "allow");
        assert_eq!(value["program"]["sha256"].as_str().map(str::len), Some(64));
        assert_eq!(value["standing"], "built-in");
        nothing_is_left(ground);
    });
}

#[test]
fn inputs_that_do_not_fit_run_nothing() {
    let ground = Ground::new(Who::Ordinary);
    ground.host("ln -s /etc out");
    let check = |words: &[&str], says: &str| {
        let outcome = tell(&ground, &[&["cap", "run"], words].concat());
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(125), ""), "{words:?}: {outcome:?}");
        assert!(outcome.stderr.contains(says), "{says:?} is not in {:?}", outcome.stderr);
    };
    check(&["files.read"], "path");
    check(&["files.read", "-i", "pth=x"], "there is no input `pth`");
    check(&["files.read", "-i", "path=../x"], "out of the workspace");
    check(&["files.read", "-i", "path=out/passwd"], "out of the workspace");
    check(&["files.read", "-i", "path=/etc/passwd"], "out of the workspace");
    check(&["files.head", "-i", "path=x", "-i", "lines=many"], "number");
    check(&["files.head", "--input-json", "{\"path\": \"x\", \"lines\": 0}"], "lines");
    check(&["files.head", "--input-json", "[]"], "object");
    check(&["files.head", "--input-json", "{"], "not JSON");
    check(&["git.log", "-i", "revision=--output=x"], "dash");
    check(&["no.such"], "no capability");
    check(&["git.lgo"], "did you mean `git.log`?");
    check(&["../x"], "no capability");
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let outcome = finish_with(&mut ground.stockade(["cap", "run", "files.read", "--input-json", "-"]), deep.as_bytes());
    assert_eq!(outcome.code, Some(125), "{outcome:?}");
    let outcome = finish_with(&mut ground.stockade(["cap", "run", "files.read", "--input-json", "-"]), &vec![b' '; 2 << 20]);
    assert!(outcome.code == Some(125) && outcome.stderr.contains("more than"), "{outcome:?}");
    nothing_is_left(&ground);
}

#[test]
fn values_reach_the_program_as_they_are() {
    as_both(|ground| {
        installed(ground, ECHO);
        for word in ["a b", "$HOME `id` $(id)", "a;b|c&d", "*", "\"'\\", "{word} {{", "ü\n\tx"] {
            let outcome = tell(ground, &["cap", "run", "demo.echo", "--input", &format!("word={word}")]);
            assert_eq!((outcome.code, outcome.stdout), (Some(0), format!("{word}\n")), "{}", outcome.stderr);
        }
    });
}

#[test]
fn rules_decide_about_calls() {
    as_both(|ground| {
        ground.file("src/a", "in src\n");
        ground.file("b", "outside\n");
        rules(
            ground,
            "// allow: files.read path=src/a\n// deny: files.read path=b\n@id(\"read-src\")\npermit (principal, action == Stockade::Action::\"files.read\", resource) when { context.args.path like \"src/*\" };\n\
             @id(\"no-destruction\") @reason(\"nothing is destroyed here\")\nforbid (principal, action in Stockade::Action::\"invoke\", resource) when { resource.effect == \"destructive\" };\n",
        );
        assert_eq!(tell(ground, &["cap", "run", "files.read", "-i", "path=src/a"]).stdout, "in src\n");
        let denied = tell(ground, &["cap", "run", "files.read", "-i", "path=src/../b"]);
        assert_eq!((denied.code, denied.stdout.as_str()), (Some(126), ""), "{denied:?}");
        assert!(denied.stderr.contains("no rule permits `files.read`") && denied.stderr.contains("permit ("), "{denied:?}");
        let outcome = finish(&mut ground.stockade(["cap", "run", "git.restore", "-i", "paths=b", "--json"]));
        let value: Value = serde_json::from_str(&outcome.stdout).expect("JSON");
        assert_eq!((outcome.code, &value["decision"]["rule"], &value["exit_code"]), (Some(126), &json!("no-destruction"), &Value::Null));
        let dry = finish(&mut ground.stockade(["cap", "run", "files.read", "-i", "path=b", "--dry-run", "--json"]));
        let value: Value = serde_json::from_str(&dry.stdout).expect("JSON");
        assert_eq!((dry.code, &value["decision"]["verdict"]), (Some(126), &json!("deny")));
        // The suggestion allows it.
        rules(ground, value["decision"]["suggest"].as_str().expect("a suggestion"));
        assert_eq!(tell(ground, &["cap", "run", "files.read", "-i", "path=b"]).stdout, "outside\n");
        assert_eq!(tell(ground, &["policy", "check"]).code, Some(0));
    });
}

#[test]
fn explain_and_allow_take_capabilities() {
    as_both(|ground| {
        ground.file("a", "x");
        rules(
            ground,
            "@id(\"look\")\npermit (principal is Stockade::Human, action in Stockade::Action::\"invoke\", resource) when { resource.effect == \"read\" };",
        );
        let value = json(ground, &["policy", "explain", "--cap", "files.read", "-i", "path=a"]);
        assert_eq!((&value["decision"]["rule"], &value["exec_list"]), (&json!("look"), &json!(["/usr/bin/cat"])));
        let agent = ["--agent", "claude/main", "--cap", "files.read", "-i", "path=a"];
        let value = json(ground, &[&["policy", "explain"], &agent[..]].concat());
        assert_eq!(value["decision"]["verdict"], "deny");
        assert_eq!(tell(ground, &[&["policy", "allow"], &agent[..]].concat()).code, Some(0));
        let value = json(ground, &[&["policy", "explain"], &agent[..]].concat());
        assert_eq!(value["decision"]["verdict"], "allow");
    });
}

#[test]
fn a_packs_rules_forbid_its_own_calls() {
    let ground = Ground::new(Who::Ordinary);
    super::pack(&ground, "demo", "1.0.0", ECHO);
    ground.file(
        "demo/policy/rules.cedar",
        "@id(\"polite\") @reason(\"be polite\")\nforbid (principal, action == Stockade::Action::\"demo.echo\", resource) when { context.args.word like \"*damn*\" };",
    );
    let outcome = tell(&ground, &["pack", "install", "demo", "--unsigned", "--yes"]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_eq!(tell(&ground, &["cap", "run", "demo.echo", "-i", "word=hello"]).stdout, "hello\n");
    let denied = tell(&ground, &["cap", "run", "demo.echo", "-i", "word=damn it"]);
    assert!(denied.code == Some(126) && denied.stderr.contains("be polite"), "{denied:?}");
}

#[test]
fn a_program_that_is_missing_or_in_the_workspace_is_not_run() {
    let ground = Ground::new(Who::Ordinary);
    installed(&ground, &ECHO.replace("\"echo\"", "\"no-such-program\""));
    assert_eq!(tell(&ground, &["cap", "run", "demo.echo", "-i", "word=x"]).code, Some(127));
    ground.script("no-such-program", "#!/bin/sh\necho evil\n");
    let path = format!("{}:/usr/bin:/bin", ground.work.display());
    let outcome = finish(ground.stockade(["cap", "run", "demo.echo", "-i", "word=x"]).env("PATH", path));
    assert!(outcome.code == Some(125) && outcome.stderr.contains("in the workspace"), "{outcome:?}");
}

#[test]
fn changes_of_a_writing_capability_are_kept_apart() {
    as_both(|ground| {
        ground.host("git init -q . && git config user.name a && git config user.email a@b && git commit -q --allow-empty -m first && echo x > f && git add f");
        let value = json(ground, &["cap", "run", "git.commit", "-i", "message=- second; $(id)\n\nwhy"]);
        assert_eq!(value["exit_code"], 0, "{value}");
        assert_eq!(ground.host("git log --format=%s"), "first\n");
        let applied = tell(ground, &["cap", "run", "git.commit", "-i", "message=- second; $(id)", "--apply"]);
        assert_eq!(applied.code, Some(0), "{applied:?}");
        assert_eq!(ground.host("git log --format=%s"), "- second; $(id)\nfirst\n");
    });
}
