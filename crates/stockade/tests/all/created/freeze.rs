//! Standing still: on request, and while somebody looks.

use std::io::{BufRead, BufReader, Read};
use std::time::Duration;

use rustix::process::Signal;

use super::{Yard, as_both, parse, send};
use crate::wall::ground::{ended, eventually, finish_with};

/// Starts a program that counts into a file until the sandbox ends.
fn counting(yard: &Yard, id: &str) {
    yard.inside(id, "setsid bash -c 'i=0; while :; do i=$((i+1)); echo $i >counter.new; mv counter.new counter; sleep 0.01; done' >/dev/null 2>&1 </dev/null &");
    eventually("it counts", || count(yard, id) > 3);
}

/// The counter as the overlay on disk has it, without asking the sandbox.
fn count(yard: &Yard, id: &str) -> u64 {
    let path = yard.state.join("stockade/sandboxes").join(id).join("layer/upper/counter");
    std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or_default()
}

/// Whether the counter grows within a while.
fn grows(yard: &Yard, id: &str) -> bool {
    let before = count(yard, id);
    std::thread::sleep(Duration::from_millis(150));
    count(yard, id) > before
}

#[test]
fn a_paused_sandbox_stands_still_until_it_is_resumed() {
    as_both(|yard| {
        let id = yard.create(&["--name", "box"]);
        counting(yard, &id);
        for _ in 0..2 {
            assert_eq!(yard.says(&["pause", "box"]), "");
            assert_eq!(yard.status(&id).as_deref(), Some("paused"));
            assert!(!grows(yard, &id));
            // Again is no error, and changes nothing.
            assert_eq!(yard.says(&["pause", "box"]), "");
            let shown = yard.says(&["diff", "box"]);
            assert!(shown.contains("b/counter"), "{shown}");
            assert_eq!(yard.status(&id).as_deref(), Some("paused"), "diff leaves it as it was");
            assert!(!grows(yard, &id));
            assert_eq!(yard.says(&["resume", "box"]), "");
            assert_eq!(yard.status(&id).as_deref(), Some("running"));
            eventually("it goes on", || grows(yard, &id));
        }
        assert_eq!(yard.says(&["resume", "box"]), "");
        assert_eq!(yard.inside("box", "echo alive"), "alive\n");
    });
}

#[test]
fn a_paused_sandbox_refuses_at_once_and_is_not_hurt() {
    as_both(|yard| {
        let id = yard.create(&["--name", "box"]);
        yard.says(&["pause", "box"]);
        for words in
            [&["exec", "box", "--", "true"][..], &["read", "box", "/etc/passwd"], &["cp", "box:/etc/passwd", "x"], &["shell", "box"]]
        {
            let outcome = yard.sandbox(words);
            assert!(outcome.code != Some(0) && outcome.stderr.contains("the sandbox is paused"), "{words:?}: {outcome:?}");
        }
        let big = vec![0; 20_000_000];
        let outcome = finish_with(&mut yard.stockade(["sandbox", "write", "box", "/tmp/big"]), &big);
        assert!(outcome.code == Some(125) && outcome.stderr.contains("the sandbox is paused"), "{outcome:?}");
        yard.says(&["resume", "box"]);
        assert_eq!(yard.inside("box", "ls -A /tmp; echo alive"), "alive\n");
        yard.says(&["pause", "box"]);
        yard.says(&["destroy", "box"]);
        eventually("nothing is left", || yard.remains(&id).is_empty());
    });
}

#[test]
fn a_paused_program_goes_on_where_it_was() {
    as_both(|yard| {
        yard.create(&["--name", "box"]);
        let mut child = yard.start("box", &["bash", "-c", "for i in {1..40}; do echo $i; sleep 0.01; done; exit 6"]);
        let mut output = BufReader::new(child.stdout.take().expect("piped"));
        let mut said = String::new();
        output.read_line(&mut said).expect("read");
        for _ in 0..4 {
            yard.says(&["pause", "box"]);
            std::thread::sleep(Duration::from_millis(20));
            yard.says(&["resume", "box"]);
        }
        output.read_to_string(&mut said).expect("read");
        let expected = (1..=40).map(|i| i.to_string()).collect::<Vec<_>>().join("\n") + "\n";
        assert_eq!((ended(child).code, said), (Some(6), expected));
    });
}

#[test]
fn looking_disturbs_nobody() {
    as_both(|yard| {
        yard.create(&["--name", "box"]);
        std::thread::scope(|scope| {
            let looks = scope.spawn(|| {
                for _ in 0..15 {
                    let outcome = yard.sandbox(&["diff", "box", "--stat"]);
                    assert_eq!(outcome.code, Some(0), "{outcome:?}");
                }
            });
            let captured = scope.spawn(|| {
                let script = "for ((i = 0; i < 6000; i++)); do echo line $i; done";
                let outcome = yard.sandbox(&["exec", "--json", "box", "--", "bash", "-c", script]);
                let lines = parse(&outcome)["stdout"].as_str().map(|text| text.lines().count());
                assert_eq!((outcome.code, lines), (Some(0), Some(6000)));
            });
            let written = scope.spawn(|| {
                let outcome = finish_with(&mut yard.stockade(["sandbox", "write", "box", "/tmp/big"]), &vec![7; 20_000_000]);
                assert_eq!(outcome.code, Some(0), "{outcome:?}");
            });
            for i in 0..15 {
                assert_eq!(yard.inside("box", &format!("echo {i} >>log; echo ok")), "ok\n");
            }
            for each in [looks, captured, written] {
                each.join().expect("joined");
            }
        });
        assert_eq!(yard.inside("box", "stat -c %s /tmp/big; wc -l <log"), "20000000\n15\n");
    });
}

#[test]
fn one_who_dies_while_looking_leaves_the_sandbox_running() {
    as_both(|yard| {
        let id = yard.create(&["--name", "box"]);
        // Enough to look at that the look can be interrupted.
        yard.inside("box", "mkdir many; for ((i = 0; i < 3000; i++)); do echo $i >many/$i; done");
        counting(yard, &id);
        for delay in [5, 20, 40, 80] {
            let mut looking = yard.stockade(["sandbox", "diff", "box"]);
            let mut looking = looking.stdout(std::process::Stdio::null()).spawn().expect("started");
            std::thread::sleep(Duration::from_millis(delay));
            send(looking.id(), Signal::KILL);
            looking.wait().expect("ended");
            assert_eq!(yard.status(&id).as_deref(), Some("running"));
            eventually("it goes on", || grows(yard, &id));
        }
        assert_eq!(yard.inside("box", "echo alive"), "alive\n");
    });
}
