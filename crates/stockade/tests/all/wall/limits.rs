//! Limits: what happens at them, and that nothing is left afterwards.

use serde_json::json;

use super::ground::{ended, eventually, processes, unique_seconds};
use super::{Ground, Who, as_both};

/// Nothing of this run is left, in processes or in the state directory.
fn gone(ground: &Ground, word: &str) {
    eventually("everything is gone", || processes(word).is_empty());
    assert_eq!(ground.sandboxes(), Vec::<String>::new());
}

#[test]
fn a_timeout_kills_everything() {
    as_both(|ground| {
        let seconds = unique_seconds();
        let script = format!(
            "sleep {seconds} & setsid sleep {seconds} & (setsid bash -c 'trap \"\" TERM INT HUP; sleep {seconds}' &) ; trap '' TERM; sleep {seconds}; sleep {seconds}"
        );
        let outcome = ground.sh(&["--timeout", "500ms"], &script);
        assert_eq!(outcome.code, Some(124), "{outcome:?}");
        assert!(outcome.stderr.contains("time limit"), "{outcome:?}");
        gone(ground, &seconds);
        let (code, value) = ground.json(&["--timeout", "0.5s"], &["sleep", &seconds]);
        assert_eq!(
            (code, &value["timed_out"], &value["exit_code"], &value["limit"]),
            (124, &json!(true), &json!(null), &json!("time")),
            "{value}"
        );
        gone(ground, &seconds);
    });
}

#[test]
fn descendants_end_with_the_program() {
    as_both(|ground| {
        let seconds = unique_seconds();
        let script = format!(
            "setsid sleep {seconds} >/dev/null 2>&1 & (setsid nohup bash -c 'sleep {seconds} & sleep {seconds}' >/dev/null 2>&1 &); sleep 0.1; exit 9"
        );
        assert_eq!(ground.sh(&[], &script).code, Some(9));
        gone(ground, &seconds);
        // A descendant that holds stdout open does not hold the caller up either.
        assert_eq!(ground.sh(&[], &format!("sleep {seconds} & exit 8")).code, Some(8));
        gone(ground, &seconds);
        let (code, value) = ground.json(&[], &["bash", "-c", &format!("echo said; sleep {seconds} & exit 7")]);
        assert_eq!((code, &value["stdout"]), (7, &json!("said\n")), "{value}");
        gone(ground, &seconds);
    });
}

const MEMORY_BOMB: &str = "blocks = []\nwhile True: blocks.append(bytearray(8 << 20))";

#[test]
fn a_memory_bomb_dies_at_its_limit() {
    let ground = Ground::new(Who::Root);
    let (code, value) = ground.json(&["--memory", "96M"], &["/usr/bin/python3", "-c", MEMORY_BOMB]);
    assert_eq!((code, &value["limit"], &value["exit_code"], &value["signal"]), (137, &json!("memory"), &json!(null), &json!(9)), "{value}");
    assert_eq!(value["enforcement"]["memory"], "enforced");
    // The whole sandbox dies, though another process is the large one.
    let seconds = unique_seconds();
    let (code, value) = ground.json(&["--memory", "96M"], &["bash", "-c", &format!("python3 -c '{MEMORY_BOMB}'; sleep {seconds}")]);
    assert_eq!((code, &value["limit"]), (137, &json!("memory")), "{value}");
    gone(&ground, &seconds);
}

#[test]
fn memory_that_cannot_be_held_is_refused() {
    let ground = Ground::new(Who::Ordinary);
    ground.refused(125, &["--memory", "512M"], &["true"], &["memory", "hint: "]);
    let (code, value) = ground.json(&["--memory", "512M"], &["true"]);
    assert!(code == 125 && value["error"]["hint"].is_string(), "{value}");
}

#[test]
fn memory_that_is_held_in_part_still_stops_a_bomb() {
    let ground = Ground::new(Who::Ordinary);
    let (code, value) = ground.json(&["--memory", "96M", "--allow-degraded", "memory"], &["/usr/bin/python3", "-c", MEMORY_BOMB]);
    assert_eq!((code, &value["limit"], &value["enforcement"]["memory"]), (137, &json!("memory"), &json!("partial")), "{value}");
}

#[test]
fn a_fork_bomb_is_bounded() {
    as_both(|ground| {
        let seconds = unique_seconds();
        let program = format!(
            "import os, sys\nmade = 0\nwhile True:\n  try: pid = os.fork()\n  except OSError: break\n  if pid == 0: os.execvp('sleep', ['sleep', '{seconds}'])\n  made += 1\n  if made > 500: break\nprint(made)"
        );
        let mut child = ground.running(&["--pids", "40"], &["/usr/bin/python3", "-c", &program]);
        let outcome = ended(child.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().expect("started"));
        // At the limit the sandbox may be killed, or the call refused; either way it is bounded.
        match outcome.code {
            Some(0) => {
                let made: u32 = outcome.stdout.trim().parse().expect("a number");
                assert!((10..=40).contains(&made), "{outcome:?}");
            }
            code => assert!(code == Some(137) && outcome.stderr.contains("pids"), "{outcome:?}"),
        }
        gone(ground, &seconds);
    });
}

#[test]
fn a_wild_fork_bomb_leaves_the_host_and_its_siblings_working() {
    as_both(|ground| {
        let bomb = ":(){ :|:& };:; wait; sleep 60";
        let mut child = ground.running(&["--pids", "200", "--timeout", "2s"], &["bash", "-c", bomb]).spawn().expect("started");
        for _ in 0..5 {
            assert_eq!(ground.good(&[], "echo sibling"), "sibling\n");
        }
        let code = child.wait().expect("ended").code();
        assert!(code == Some(124) || code == Some(137), "{code:?}");
        assert_eq!(ground.sandboxes(), Vec::<String>::new());
    });
}

#[test]
fn captured_output_is_cut_and_marked() {
    as_both(|ground| {
        let (code, value) =
            ground.json(&["--output-limit", "1M"], &["bash", "-c", "yes | head -c 30000000; yes no | head -c 5000 >&2; exit 3"]);
        assert_eq!((code, &value["truncated"]), (3, &json!({"stdout": true, "stderr": false})), "{}", value["truncated"]);
        assert_eq!((value["stdout"].as_str().map(str::len), value["stderr"].as_str().map(str::len)), (Some(1 << 20), Some(5000)));
    });
}

#[test]
fn captured_output_has_a_limit_by_default() {
    as_both(|ground| {
        let (code, value) = ground.json(&[], &["bash", "-c", "yes | head -c 12000000"]);
        assert_eq!((code, value["truncated"]["stdout"].as_bool(), value["stdout"].as_str().map(str::len)), (0, Some(true), Some(10 << 20)));
        let outcome = ground.sh(&[], "yes | head -c 12000000");
        assert_eq!((outcome.code, outcome.stdout.len()), (Some(0), 12_000_000), "not captured, not limited");
        let outcome = ground.sh(&["--output-limit", "1000"], "yes | head -c 12000000");
        assert_eq!((outcome.code, outcome.stdout.len()), (Some(0), 1000), "asked for: {}", outcome.stderr);
    });
}

#[test]
fn output_that_never_ends_ends_with_the_time() {
    as_both(|ground| {
        let (code, value) = ground.json(&["--timeout", "500ms", "--output-limit", "1M"], &["yes"]);
        assert_eq!((code, value["stdout"].as_str().map(str::len)), (124, Some(1 << 20)), "{}", value["error"]);
    });
}

#[test]
fn a_full_disk_is_a_limit() {
    as_both(|ground| {
        for place in ["file", "/tmp/file", "~/file"] {
            let (code, value) = ground.json(&["--disk", "16M"], &["bash", "-c", &format!("head -c 200M /dev/zero >{place}; sleep 5")]);
            assert_eq!((code, &value["limit"]), (137, &json!("disk")), "{place}: {value}");
        }
        // What fits is kept.
        let (code, value) = ground.json(&["--disk", "64M"], &["bash", "-c", "head -c 5M /dev/zero >fits"]);
        assert_eq!((code, &value["limit"], &value["changes"][0]["path"]), (0, &json!(null), &json!("fits")), "{value}");
    });
}

#[test]
fn processors_are_limited_or_the_limit_is_refused() {
    let ground = Ground::new(Who::Root);
    let (code, value) = ground.json(&["--cpus", "0.5"], &["true"]);
    assert_eq!((code, &value["enforcement"]["cpu"]), (0, &json!("enforced")), "{value}");
    let ground = Ground::new(Who::Ordinary);
    ground.refused(125, &["--cpus", "0.5"], &["true"], &["cpu", "hint: "]);
}

#[test]
fn a_plain_run_works_for_anyone_and_says_once_what_is_partial() {
    as_both(|ground| {
        let first = ground.run(&[], &["true"]);
        assert_eq!((first.code, first.stdout.as_str()), (Some(0), ""), "{first:?}");
        assert!(first.stderr.lines().count() <= 1, "{first:?}");
        let second = ground.run(&[], &["true"]);
        assert_eq!((second.code, second.stderr.as_str()), (Some(0), ""), "{second:?}");
    });
}

#[test]
fn open_files_are_limited() {
    as_both(|ground| {
        let limit: u64 = ground.good(&[], "ulimit -Hn").trim().parse().expect("a number");
        assert!(limit <= 65_536, "{limit}");
    });
}

#[test]
fn more_processes_than_asked_for_end_everything_and_as_many_do_not() {
    as_both(|ground| {
        let (code, value) = ground.json(&["--pids", "20"], &["bash", "-c", "for i in {1..60}; do sleep 30 & done; wait; sleep 30"]);
        assert_eq!((code, value["limit"].as_str(), value["exit_code"].as_i64()), (137, Some("pids"), None), "{value}");
        assert_eq!(ground.good(&["--pids", "20"], "for i in {1..15}; do sleep 0.2 & done; wait; echo fine"), "fine\n");
    });
}

#[test]
fn without_a_wall_what_was_asked_for_is_refused() {
    as_both(|ground| {
        for flags in [["--memory", "100M"], ["--cpus", "1"], ["--pids", "10"], ["--disk", "10M"], ["--exec-allow", "true"]] {
            ground.refused(125, &["--backend", "local", flags[0], flags[1]], &["true"], &["local"]);
        }
        for mode in ["ro", "overlay"] {
            ground.refused(125, &["--backend", "local", "--workspace-mode", mode], &["true"], &["local", mode]);
        }
        let outcome = ground.run(&["--backend", "local"], &["true"]);
        assert!(outcome.code == Some(0) && outcome.stderr.contains("SANDBOX DISABLED"), "{outcome:?}");
    });
}
