//! How runs begin and end: signals, kills, many at once, exit codes, streams.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::ground::{ended, eventually, finish, finish_with, processes, unique_seconds};
use super::{Ground, as_both};

/// Starts a script and waits for its first line.
fn started(ground: &Ground, script: &str) -> (Child, BufReader<ChildStdout>) {
    let mut command = ground.running(&[], &["bash", "-c", script]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
    let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    stdout.read_line(&mut line).expect("read");
    assert_eq!(line, "ready\n");
    (child, stdout)
}

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).expect("sent");
}

#[test]
fn signals_end_the_program_and_the_run() {
    as_both(|ground| {
        for (signal, code) in [(Signal::TERM, 143), (Signal::HUP, 129), (Signal::INT, 130), (Signal::QUIT, 131), (Signal::USR1, 138)] {
            let seconds = unique_seconds();
            let (child, _stdout) = started(ground, &format!("setsid sleep {seconds} & echo ready; exec sleep {seconds}"));
            send(&child, signal);
            assert_eq!(ended(child).code, Some(code), "{signal:?}");
            eventually("everything is gone", || processes(&seconds).is_empty());
        }
        assert_eq!(ground.sandboxes(), Vec::<String>::new());
    });
}

#[test]
fn signals_are_passed_on() {
    as_both(|ground| {
        for (signal, name) in [(Signal::TERM, "TERM"), (Signal::HUP, "HUP"), (Signal::INT, "INT"), (Signal::USR2, "USR2")] {
            let (child, mut stdout) = started(ground, &format!("trap 'echo got; exit 7' {name}; echo ready; while :; do sleep 0.05; done"));
            send(&child, signal);
            let mut rest = String::new();
            stdout.read_to_string(&mut rest).expect("read");
            assert_eq!((ended(child).code, rest.as_str()), (Some(7), "got\n"), "{name}");
        }
    });
}

/// Control groups of a sandbox, in every hierarchy of this machine.
fn groups(id: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut queue = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(directory) = queue.pop() {
        for entry in std::fs::read_dir(&directory).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if entry.file_name().to_string_lossy().contains(id) {
                    found.push(entry.path());
                }
                queue.push(entry.path());
            }
        }
    }
    found
}

#[test]
fn a_kill_of_stockade_ends_everything_and_the_next_run_cleans_up() {
    as_both(|ground| {
        let seconds = unique_seconds();
        let (mut child, _stdout) = started(
            ground,
            &format!("echo x >changed; setsid sleep {seconds} & trap '' TERM INT HUP; echo ready; sleep {seconds}; sleep {seconds}"),
        );
        let [id] = ground.sandboxes().try_into().expect("one runs");
        send(&child, Signal::KILL);
        child.wait().expect("ended");
        eventually("everything is gone", || processes(&seconds).is_empty());
        assert_eq!(ground.run(&[], &["true"]).code, Some(0));
        assert_eq!(ground.sandboxes(), Vec::<String>::new());
        assert_eq!(groups(&id), Vec::<PathBuf>::new());
    });
}

/// Killed at any moment of its start, run and end.
#[test]
fn a_kill_at_any_moment_leaves_nothing_that_stays() {
    as_both(|ground| {
        let seconds = unique_seconds();
        for moment in 0..20 {
            let mut command = ground.running(&[], &["bash", "-c", &format!("echo x >new; setsid sleep {seconds} & sleep 0.02")]);
            let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("started");
            std::thread::sleep(std::time::Duration::from_millis(moment * 4));
            send(&child, Signal::KILL);
            child.wait().expect("ended");
        }
        eventually("everything is gone", || processes(&seconds).is_empty());
        let left = ground.sandboxes();
        assert_eq!(ground.run(&[], &["true"]).code, Some(0));
        // Those that had ended with changes are kept; all others are gone, and so are their groups.
        // The caller has its answer before that is done.
        let is_kept = |id: &String| {
            let record = std::fs::read_to_string(ground.state.join("stockade/sandboxes").join(id).join("record.json"));
            record.is_ok_and(|text| !text.contains("\"kept\":null"))
        };
        eventually("what has no changes is gone", || ground.sandboxes().iter().all(is_kept));
        eventually("the groups are gone", || left.iter().all(|id| groups(id).is_empty()));
    });
}

#[test]
fn a_run_leaves_no_group() {
    as_both(|ground| {
        let (_, value) = ground.json(&["--timeout", "200ms"], &["sleep", "60"]);
        let id = value["sandbox_id"].as_str().expect("an id").to_owned();
        eventually("the group is gone", || groups(&id).is_empty());
    });
}

#[test]
fn a_running_sandbox_is_not_swept_away() {
    as_both(|ground| {
        let (child, _stdout) = started(ground, "echo ready; trap 'cat kept; exit 3' TERM; echo kept >kept; while :; do sleep 0.05; done");
        for _ in 0..3 {
            assert_eq!(ground.run(&[], &["true"]).code, Some(0));
        }
        assert_eq!(ground.sandboxes().len(), 1);
        send(&child, Signal::TERM);
        assert_eq!(ended(child).code, Some(3));
    });
}

#[test]
fn fifty_at_once() {
    as_both(|ground| {
        let start = |i: usize| {
            let mut command = ground.running(&[], &["bash", "-c", &format!("sleep 0.3; echo {i}; exit {i}")]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started")
        };
        let children: Vec<Child> = (0..50).map(start).collect();
        for (i, child) in children.into_iter().enumerate() {
            let outcome = ended(child);
            assert_eq!((outcome.code, outcome.stdout), (Some(i32::try_from(i).expect("small")), format!("{i}\n")), "{}", outcome.stderr);
        }
        assert_eq!(ground.sandboxes(), Vec::<String>::new());
    });
}

#[test]
fn exit_codes_are_the_programs_own() {
    as_both(|ground| {
        for code in [0, 1, 2, 42, 124, 125, 126, 127, 255] {
            assert_eq!(ground.sh(&[], &format!("exit {code}")).code, Some(code));
        }
        let (code, value) = ground.json(&[], &["bash", "-c", "exit 42"]);
        assert_eq!((code, &value["exit_code"], &value["signal"], &value["timed_out"]), (42, &json!(42), &json!(null), &json!(false)));
        for (name, signal) in [("KILL", 9), ("SEGV", 11), ("TERM", 15)] {
            let (code, value) = ground.json(&[], &["bash", "-c", &format!("kill -{name} $$")]);
            assert_eq!(
                (code, &value["exit_code"], &value["signal"], &value["limit"]),
                (128 + signal, &json!(null), &json!(signal), &json!(null)),
                "{value}"
            );
        }
    });
}

#[test]
fn stdin_is_passed_through() {
    as_both(|ground| {
        assert_eq!(finish_with(&mut ground.running(&[], &["cat"]), b"one\ntwo").stdout, "one\ntwo");
        let large: Vec<u8> = (0..8_000_000u32).map(|i| (i % 251) as u8).collect();
        assert_eq!(finish_with(&mut ground.running(&[], &["wc", "-c"]), &large).stdout, "8000000\n");
        let outcome = finish_with(&mut ground.running(&["--json"], &["wc", "-c"]), &large);
        assert!(outcome.stdout.contains("8000000\\n"), "{outcome:?}");
        // A program that does not read all of it ends all the same.
        assert_eq!(finish_with(&mut ground.running(&["--json"], &["head", "-c", "1"]), &large).code, Some(0));
        assert_eq!(ground.run(&[], &["cat"]).code, Some(0));
    });
}

#[test]
fn stdin_is_a_plain_file_where_it_was_one() {
    as_both(|ground| {
        ground.file("input", "line one\nline two\n");
        let file = std::fs::File::open(ground.work.join("input")).expect("open");
        let mut command = ground.running(&[], &["bash", "-c", "read -r line; echo \"$line\""]);
        assert_eq!(finish(command.stdin(file)).stdout, "line one\n");
    });
}

#[test]
fn a_reader_that_goes_away_ends_the_program() {
    as_both(|ground| {
        let (mut child, stdout) = started(ground, "echo ready; exec yes");
        drop(stdout);
        let code = child.wait().expect("ended").code();
        assert_eq!(code, Some(141));
        assert_eq!(ground.sandboxes(), Vec::<String>::new());
    });
}

#[test]
fn closed_streams_are_no_trouble() {
    as_both(|ground| {
        for redirects in ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"] {
            let script = format!("\"$0\" run -- bash -c 'exit 6' {redirects}");
            let outcome = finish(ground.outside("bash").arg("-c").arg(&script).arg(&ground.binary));
            assert_eq!(outcome.code, Some(6), "{redirects}: {outcome:?}");
        }
    });
}

#[test]
fn streams_are_not_mixed() {
    as_both(|ground| {
        let outcome = ground.sh(&[], "echo out; echo err >&2");
        assert!(outcome.stdout == "out\n" && outcome.stderr.starts_with("err\n"), "{outcome:?}");
        let (_, value) = ground.json(&[], &["bash", "-c", "echo out; echo err >&2; printf '\\xff\\x00'"]);
        assert_eq!(
            (&value["stdout_base64"], &value["stderr"], &value["stdout"]),
            (&json!("b3V0Cv8A"), &json!("err\n"), &json!(null)),
            "{value}"
        );
    });
}

#[test]
fn a_working_directory_that_is_gone_is_an_error() {
    as_both(|ground| {
        let script = "mkdir gone && cd gone && rmdir ../gone && \"$0\" run -- true";
        let outcome = finish(ground.outside("bash").arg("-c").arg(script).arg(&ground.binary));
        assert!(outcome.code == Some(125) && outcome.stderr.contains("directory"), "{outcome:?}");
    });
}
