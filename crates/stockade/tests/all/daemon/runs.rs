//! Runs through the daemon are runs.

use std::process::Stdio;

use serde_json::json;

use super::{Daemon, SERVED, receipts, served};
use crate::wall::ground::{ended, finish, finish_with};
use crate::wall::{Ground, as_both};

#[test]
fn a_run_is_the_same_with_it_as_without() {
    as_both(|ground| {
        ground.file("x", "one\n");
        // What is said once is said here.
        ground.run(&[], &["true"]);
        let lines: &[(&[&str], &[&str])] = &[
            (&[], &["true"]),
            (&[], &["false"]),
            (&[], &["bash", "-c", "echo out; echo err >&2; exit 7"]),
            (&[], &["bash", "-c", "kill -9 $$"]),
            (&[], &["env"]),
            (&["--env", "A=b"], &["bash", "-c", "echo $A; pwd; id -u; hostname; ls /; set -- /proc/[0-9]*; echo $#"]),
            (&["--workspace-mode", "ro"], &["bash", "-c", "cat x; echo two > x"]),
            (&["--exec-allow", "cat"], &["cat", "x"]),
            (&["--exec-allow", "cat"], &["ls"]),
            (&[], &["no-such-program"]),
            (&["--timeout", "300ms"], &["sleep", "10"]),
            (&["--output-limit", "1K"], &["bash", "-c", "head -c 5000 /dev/zero | tr '\\0' x"]),
            (&["--shell", "echo $((1 + 2)); false"], &[]),
        ];
        let line = |flags: &[&str], argv: &[&str]| {
            let words = ["run"].iter().chain(flags).chain(if argv.is_empty() { &[][..] } else { &["--"] }).chain(argv);
            ground.stockade(words)
        };
        let without: Vec<_> = lines.iter().map(|(flags, argv)| finish(&mut line(flags, argv))).collect();
        let daemon = Daemon::of(ground);
        for ((flags, argv), expected) in lines.iter().zip(without) {
            assert_eq!(finish(&mut line(flags, argv)), expected, "{flags:?} {argv:?}");
            let told = finish(&mut line(&[&["-v"], *flags].concat(), argv));
            assert!(told.stderr.contains(SERVED), "{flags:?} {argv:?}: {told:?}");
        }
        assert_eq!(daemon.end(), Some(0));
        assert_eq!(ground.sandboxes(), Vec::<String>::new());
        assert_eq!(finish(&mut ground.stockade(["receipts", "verify"])).code, Some(0));
    });
}

#[test]
fn results_receipts_and_changes_are_those_of_a_run() {
    as_both(|ground| {
        ground.file("x", "one\n");
        let _daemon = Daemon::of(ground);
        served(ground, &[], &["true"]);
        let outcome = finish(&mut ground.running(&["--json"], &["bash", "-c", "echo hello; echo two > x; echo new > y"]));
        let value: serde_json::Value = serde_json::from_str(&outcome.stdout).expect("JSON");
        assert_eq!((outcome.code, &value["exit_code"], &value["stdout"]), (Some(0), &json!(0), &json!("hello\n")), "{outcome:?}");
        let id = value["sandbox_id"].as_str().expect("an id");
        let diff = finish(&mut ground.stockade(["sandbox", "diff", id]));
        assert!(diff.stdout.contains("+two") && diff.stdout.contains('y'), "{diff:?}");
        assert_eq!(ground.read("x"), "one\n");
        assert_eq!(finish(&mut ground.stockade(["sandbox", "apply", id])).code, Some(0));
        assert_eq!(ground.read("x"), "two\n");
        // Also with what says how to print before the verb.
        let before = finish(&mut ground.stockade(["--json", "-v", "--color", "never", "run", "--", "echo", "hello"]));
        let value: serde_json::Value = serde_json::from_str(&before.stdout).expect("JSON");
        assert!(value["stdout"] == "hello\n" && before.stderr.contains(SERVED), "{before:?}");
        let applied = served(ground, &["--apply"], &["bash", "-c", "echo three > x"]);
        assert_eq!((applied.code, ground.read("x").as_str()), (Some(0), "three\n"), "{applied:?}");
        let all = receipts(ground);
        let of = |kind: &str| all.iter().filter(|one| one["kind"] == kind).count();
        assert_eq!((of("intent"), of("outcome")), (5, 5), "{all:#?}");
        let last = all.iter().rev().find(|one| one["kind"] == "outcome").expect("an outcome");
        assert_eq!((&last["result"]["exit_code"], &last["sandbox"]["backend"]), (&json!(0), &json!("jail")), "{last:#}");
        assert!(last["program"]["sha256"].is_string() && last["sandbox"]["enforcement"]["files"] == "enforced", "{last:#}");
        assert_eq!(finish(&mut ground.stockade(["receipts", "verify", "--binaries"])).code, Some(0));
    });
}

#[test]
fn input_and_signals_reach_the_program() {
    as_both(|ground| {
        let _daemon = Daemon::of(ground);
        let read = finish_with(&mut ground.running(&[], &["cat"]), b"some\ninput\n");
        assert_eq!((read.code, read.stdout.as_str()), (Some(0), "some\ninput\n"), "{read:?}");
        let script = "trap 'echo told; exit 9' TERM; echo ready; while :; do sleep 0.05; done";
        let mut command = ground.running(&["-v"], &["bash", "-c", script]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
        let mut first = [0; 6];
        std::io::Read::read_exact(child.stdout.as_mut().expect("a pipe"), &mut first).expect("read");
        rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM).expect("told");
        let outcome = ended(child);
        assert_eq!((&first, outcome.code, outcome.stdout.as_str()), (b"ready\n", Some(9), "told\n"), "{outcome:?}");
        assert!(outcome.stderr.contains(SERVED), "{outcome:?}");
    });
}

#[test]
fn rules_hold_and_a_question_is_asked_by_the_client() {
    as_both(|ground| {
        let rules = "@id(\"ask\") @approval(\"required\")\npermit (principal, action == Stockade::Action::\"exec\", resource == Stockade::Program::\"ls\");
            permit (principal, action == Stockade::Action::\"exec\", resource == Stockade::Program::\"cat\");";
        ground.plant(&ground.home.join(".config/stockade/policy/rules.cedar"), rules, 0o600);
        ground.file("x", "one\n");
        let _daemon = Daemon::of(ground);
        assert_eq!(served(ground, &[], &["cat", "x"]).stdout, "one\n");
        let denied = finish(&mut ground.running(&[], &["id"]));
        assert!(denied.code == Some(126) && denied.stderr.contains("id"), "{denied:?}");
        let asked = finish(&mut ground.running(&[], &["ls"]));
        assert!(asked.code == Some(126) && asked.stderr.contains("stockade approvals approve "), "{asked:?}");
        let id = asked.stderr.split("approvals approve ").nth(1).and_then(|rest| rest.split_whitespace().next()).expect("an id").to_owned();
        assert_eq!(finish(&mut ground.stockade(["approvals", "approve", &id])).code, Some(0));
        assert_eq!(finish(&mut ground.running(&[], &["ls"])).stdout, "x\n");
        assert_eq!(finish(&mut ground.running(&[], &["ls"])).code, Some(126), "once");
        // What the rules name alone is what can be executed.
        let inside = finish(&mut ground.running(&["--exec-allow", "cat,bash"], &["cat", "/bin/true"]));
        assert_eq!(inside.code, Some(0), "{:?}", inside.stderr);
        let all = receipts(ground);
        let kinds: Vec<&str> = all.iter().filter_map(|one| one["kind"].as_str()).collect();
        assert_eq!(kinds.iter().filter(|kind| **kind == "denied").count(), 3, "{kinds:?}");
    });
}

#[test]
fn what_does_not_fit_is_done_by_the_client() {
    as_both(|ground| {
        ground.file("x", "one\n");
        let elsewhere = ground.base.join("elsewhere");
        ground.directory(&elsewhere);
        let _daemon = Daemon::with(ground, &["--root", &ground.work.to_string_lossy()]);
        let own = |flags: &[&str], argv: &[&str]| {
            let outcome = finish(&mut ground.running(&[&["-v"], flags].concat(), argv));
            assert!(!outcome.stderr.contains(SERVED), "{flags:?}: {outcome:?}");
            outcome
        };
        assert_eq!(own(&["--workspace-mode", "rw"], &["bash", "-c", "echo two > x"]).code, Some(0));
        assert_eq!(ground.read("x"), "two\n");
        assert_eq!(own(&["--workspace", &elsewhere.to_string_lossy()], &["true"]).code, Some(0), "outside the roots");
        assert_eq!(own(&["--env", "HOME"], &["true"]).code, Some(0));
        assert_eq!(own(&["--allow-host", "localhost:1"], &["true"]).code, Some(0));
        assert_eq!(own(&["--memory", "x"], &["true"]).code, Some(125));
        let other = finish(ground.running(&["-v"], &["true"]).env("XDG_CONFIG_HOME", ground.base.join("other")));
        assert!(other.code == Some(0) && !other.stderr.contains(SERVED), "other settings: {other:?}");
        served(ground, &[], &["true"]);
    });
}

/// Sixteen at once, each its own jail.
#[test]
fn many_at_once_lose_nothing() {
    as_both(|ground| {
        let _daemon = Daemon::of(ground);
        served(ground, &[], &["true"]);
        std::thread::scope(|scope| {
            let callers: Vec<_> = (0..16)
                .map(|caller| {
                    scope.spawn(move || {
                        for turn in 0..5 {
                            let word = format!("{caller}-{turn}");
                            let script = format!("test ! -e mark && echo > mark && echo {word}");
                            let outcome = finish(&mut ground.running(&["--quiet"], &["bash", "-c", &script]));
                            assert_eq!((outcome.code, outcome.stdout), (Some(0), format!("{word}\n")), "{}", outcome.stderr);
                        }
                    })
                })
                .collect();
            for caller in callers {
                caller.join().expect("a caller");
            }
        });
        let all = receipts(ground);
        let of = |kind: &str| all.iter().filter(|one| one["kind"] == kind).count();
        assert_eq!((of("intent"), of("outcome")), (81, 81));
        assert_eq!(finish(&mut ground.stockade(["receipts", "verify"])).code, Some(0));
        assert!(ground.sandboxes().iter().filter(|name| !name.starts_with(".dead-")).count() >= 80, "each kept its change");
    });
}

/// A jail that was made before something changed is never used.
#[test]
fn what_changed_since_is_what_is_seen() {
    as_both(|ground| {
        let bin = ground.base.join("bin");
        let tool = bin.join("tool");
        let say = |word: &str| ground.plant(&tool, &format!("#!/bin/bash\necho {word}\n"), 0o755);
        say("first");
        let _daemon = Daemon::of(ground);
        let mount = format!("{}:{}:ro", bin.display(), bin.display());
        let tool_text = tool.to_string_lossy().into_owned();
        let flags = ["--mount", mount.as_str(), "--exec-allow", tool_text.as_str()];
        for _ in 0..3 {
            assert_eq!(served(ground, &flags, &[&tool_text]).stdout, "first\n");
        }
        say("second");
        assert_eq!(served(ground, &flags, &[&tool_text]).stdout, "second\n", "written anew");
        std::fs::remove_file(&tool).expect("removed");
        say("third");
        assert_eq!(served(ground, &flags, &[&tool_text]).stdout, "third\n", "another file");
        // The workspace is another directory of the same name.
        ground.file("x", "old\n");
        assert_eq!(served(ground, &[], &["cat", "x"]).stdout, "old\n");
        std::fs::rename(&ground.work, ground.base.join("gone")).expect("renamed");
        ground.directory(&ground.work);
        ground.file("x", "new\n");
        assert_eq!(served(ground, &[], &["cat", "x"]).stdout, "new\n");
        // A credential that appears in a toolchain is hidden from the next, as from any.
        let cargo = ground.home.join(".cargo");
        ground.plant(&cargo.join("bin/x"), "", 0o755);
        let look = |ground: &Ground| {
            let script = format!("cat {}/credentials.toml", cargo.display());
            let path = format!("{}:/usr/bin:/bin", cargo.join("bin").display());
            finish(ground.running(&["-v"], &["bash", "-c", &script]).env("PATH", path))
        };
        assert!(look(ground).stderr.contains(SERVED));
        ground.plant(&cargo.join("credentials.toml"), "token = \"secret-of-test\"", 0o600);
        let outcome = look(ground);
        assert!(outcome.stderr.contains(SERVED) && !outcome.stdout.contains("secret-of-test"), "{outcome:?}");
    });
}
