//! How created sandboxes end, and what is left: nothing, or their changes.

use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use super::{Yard, as_both, parse, send};
use crate::wall::Who;
use crate::wall::ground::{ended, eventually, processes, unique_seconds};

/// Leaves a program running in a sandbox, out of reach of signals to groups; the word that finds it.
fn background(yard: &Yard, id: &str) -> String {
    let seconds = unique_seconds();
    yard.inside(id, &format!("setsid bash -c 'trap \"\" TERM HUP INT; sleep {seconds}; :' >/dev/null 2>&1 </dev/null &"));
    let word = format!("sleep\0{seconds}");
    eventually("it runs", || processes(&word).len() == 1);
    word
}

fn gone_within(seconds: u64, what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    eventually(what, holds);
    assert!(begun.elapsed() < Duration::from_secs(seconds), "{what} took {:?}", begun.elapsed());
}

#[test]
fn destroy_leaves_nothing() {
    as_both(|yard| {
        let (first, second) = (yard.create(&["--name", "first"]), yard.create(&[]));
        let word = background(yard, &first);
        yard.inside(&first, "echo x >f; mkdir -p d/e; chmod 0 d");
        if yard.who == Who::Root {
            assert!(yard.remains(&first).iter().any(|path| path.starts_with("/sys/fs/cgroup")), "{:?}", yard.remains(&first));
        }
        yard.says(&["destroy", "first", &second]);
        assert_eq!((processes(&word), yard.sandboxes()), (Vec::new(), Vec::new()));
        for id in [&first, &second] {
            gone_within(1, "nothing is left", || yard.remains(id).is_empty());
        }
        assert!(!yard.work.join("f").exists());
    });
}

#[test]
fn a_sandbox_outlives_its_creator() {
    as_both(|yard| {
        // The creator is one of a group that is killed, as when a terminal is closed.
        let mut shell = yard.outside("bash");
        shell.arg("-c").arg("\"$0\" sandbox create --name box && exec sleep 60").arg(&yard.binary).process_group(0);
        let mut shell = shell.stdout(Stdio::piped()).spawn().expect("started");
        eventually("it stands", || {
            yard.tells(&["list"])["sandboxes"][0]["status"] == "running" && yard.exec("box", "true").code == Some(0)
        });
        let group = rustix::process::Pid::from_child(&shell);
        for signal in [Signal::HUP, Signal::KILL] {
            let _ = rustix::process::kill_process_group(group, signal);
        }
        shell.wait().expect("ended");
        assert_eq!(yard.inside("box", "echo alive"), "alive\n");
        yard.says(&["destroy", "box"]);
    });
}

#[test]
fn a_killed_supervisor_takes_everything_along() {
    as_both(|yard| {
        let id = yard.create(&["--name", "box"]);
        let word = background(yard, &id);
        yard.inside("box", "echo x >f");
        let client = yard.start("box", &["sleep", "60"]);
        std::thread::sleep(Duration::from_millis(50));
        send(yard.supervisor(&id), Signal::KILL);
        gone_within(2, "everything inside is gone", || processes(&word).is_empty());
        assert_eq!(ended(client).code, Some(125));
        assert_eq!(yard.status(&id), None);
        yard.rejects(&["exec", "box", "--", "true"], &["there is no sandbox"]);
        // The name is free again, and what was left goes with the next run.
        assert_ne!(yard.remains(&id), Vec::<String>::new());
        let outcome = yard.run(&[], &["true"]);
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        assert_eq!(yard.remains(&id), Vec::<String>::new());
        let again = yard.create(&["--name", "box"]);
        send(yard.supervisor(&again), Signal::KILL);
        eventually("it is not listed", || yard.status(&again).is_none());
        assert_eq!(yard.tells(&["prune"]), json!({"removed": [again]}));
        assert_eq!(yard.remains(&again), Vec::<String>::new());
    });
}

#[test]
fn a_supervisor_that_is_asked_to_end_keeps_the_changes() {
    as_both(|yard| {
        for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
            let id = yard.create(&["--name", "box"]);
            let word = background(yard, &id);
            yard.inside("box", "echo kept >f");
            send(yard.supervisor(&id), signal);
            gone_within(2, "everything inside is gone", || processes(&word).is_empty());
            eventually("it is kept", || yard.status(&id).as_deref() == Some("kept"));
            assert_eq!(yard.remains(&id), [yard.state.join("stockade/sandboxes").join(&id).display().to_string()]);
            assert_eq!(yard.tells(&["diff", "box"])["changes"], json!([{"path": "f", "kind": "added"}]));
            yard.rejects(&["exec", "box", "--", "true"], &["has ended"]);
            assert_eq!(yard.sandbox(&["discard", "box"]).code, Some(0));
        }
        let id = yard.create(&[]);
        send(yard.supervisor(&id), Signal::TERM);
        eventually("one without changes leaves nothing", || yard.remains(&id).is_empty());
    });
}

#[test]
fn a_kept_sandbox_is_forked_and_goes_on() {
    as_both(|yard| {
        let id = yard.create(&["--name", "box"]);
        yard.inside("box", "echo kept >f");
        send(yard.supervisor(&id), Signal::TERM);
        eventually("it is kept", || yard.status(&id).as_deref() == Some("kept"));
        yard.says(&["fork", "box", "--name", "next"]);
        assert_eq!(yard.inside("next", "cat f"), "kept\n");
        yard.says(&["destroy", "box"]);
        assert_eq!(yard.sandbox(&["apply", "next"]).code, Some(0));
        assert_eq!(yard.read("f"), "kept\n");
    });
}

#[test]
fn a_guest_that_is_killed_from_outside_ends_the_sandbox() {
    as_both(|yard| {
        let id = yard.create(&["--name", "box"]);
        yard.inside("box", "echo kept >f");
        let client = yard.start("box", &["sleep", "60"]);
        let supervisor = yard.supervisor(&id);
        let children = std::fs::read_to_string(format!("/proc/{supervisor}/task/{supervisor}/children")).expect("children");
        let guest: u32 = children.split_whitespace().next().expect("a guest").parse().expect("a number");
        send(guest, Signal::KILL);
        assert_ne!(ended(client).code, Some(0));
        eventually("it is kept", || yard.status(&id).as_deref() == Some("kept"));
        gone_within(1, "only the changes are left", || yard.remains(&id).len() == 1);
        assert_eq!(yard.tells(&["diff", &id])["changes"], json!([{"path": "f", "kind": "added"}]));
    });
}

#[test]
fn a_limit_ends_the_sandbox_and_is_named() {
    // Only root has groups of its own on every machine.
    let yard = &Yard::new(Who::Root);
    let id = yard.create(&["--name", "box", "--memory", "64M"]);
    let word = background(yard, &id);
    yard.inside("box", "echo kept >f");
    let outcome = yard.sandbox(&["exec", "--json", "box", "--", "/usr/bin/python3", "-c", "b'x' * 300_000_000"]);
    let told = parse(&outcome);
    assert_eq!((outcome.code, &told["limit"], &told["signal"], &told["exit_code"]), (Some(137), &json!("memory"), &json!(9), &json!(null)));
    eventually("everything inside is gone", || processes(&word).is_empty());
    // Whoever hears of the end finds everything in order.
    assert_eq!(yard.status(&id).as_deref(), Some("kept"));
    assert_eq!(yard.sandbox(&["destroy", "box"]).code, Some(0));
    assert_eq!(yard.status(&id), None);
}
