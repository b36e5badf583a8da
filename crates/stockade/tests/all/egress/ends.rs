//! Ends: egress goes with its owner however that ends, and where egress goes first nothing goes out any more.

use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use super::as_both;
use super::world::words;
use crate::wall::ground::{ended, eventually, finish};

fn kill(pid: u32) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process");
    kill_process(pid, Signal::KILL).expect("killed");
}

#[test]
fn a_killed_owner_takes_egress_along() {
    as_both(|world| {
        let mut command = world.command([world.binary.as_os_str()]);
        command.args(["run"]).args(world.plain_flags()).args(["--", "sleep", "60"]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
        eventually("egress stands", || world.egress().len() == 1);
        kill(child.id());
        ended(child);
        world.all_ended();
    });
}

#[test]
fn a_killed_egress_lets_nothing_out_and_harms_nobody() {
    as_both(|world| {
        let script = format!(
            "curl -sS --fail http://api.test:{0}/hello && touch answered && until test -e go; do sleep 0.05; done;
             curl -sS --max-time 5 http://api.test:{0}/hello || echo no",
            world.plain
        );
        let mut command = world.command([world.binary.as_os_str()]);
        command.args(["run", "--workspace-mode", "rw"]).args(world.plain_flags()).args(["--", "bash", "-c", &script]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
        eventually("the first answer arrives", || world.work.join("answered").exists());
        for pid in world.egress() {
            kill(pid);
        }
        world.all_ended();
        world.file("go", "");
        let outcome = ended(child);
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), "hello from outside\nno\n"), "{outcome:?}");
        assert_eq!(world.seen().len(), 1);
        // What went before is in the receipt, and so is that there was no more of it.
        let told = "egress-ended: the way out ended before the sandbox did: after that nothing went out";
        assert!(outcome.stderr.contains(told), "{outcome:?}");
        let receipt = world.receipt();
        let violations = receipt["violations"].as_array().expect("violations");
        assert!(violations.iter().any(|violation| violation.as_str().is_some_and(|text| text.starts_with(told))), "{receipt}");
        assert_eq!(receipt["network"].as_array().map(Vec::len), Some(1), "{receipt}");
    });
}

#[test]
fn a_killed_egress_of_a_created_sandbox_is_told_by_every_program_in_it() {
    as_both(|world| {
        let flags = world.plain_flags();
        let made = world.stockade(&[&["sandbox", "create", "--name", "box"], &words(&flags)[..]].concat());
        assert_eq!(made.code, Some(0), "{made:?}");
        let url = format!("http://api.test:{}/hello", world.plain);
        let fetch = || world.stockade(&["sandbox", "exec", "box", "--", "curl", "-sS", "--max-time", "5", &url]);
        let whole = fetch();
        assert!(whole.code == Some(0) && !whole.stderr.contains("egress-ended"), "{whole:?}");
        world.egress().into_iter().for_each(kill);
        eventually("egress is gone", || world.egress().is_empty());
        for _ in 0..2 {
            let outcome = fetch();
            let told = "egress-ended: the way out ended before the sandbox did: after that nothing went out";
            assert!(outcome.code != Some(0) && outcome.stderr.matches(told).count() == 1, "{outcome:?}");
            let receipt = world.receipt();
            let violations = receipt["violations"].as_array().expect("violations");
            assert!(violations.len() == 1 && violations[0].as_str().is_some_and(|text| text.starts_with(told)), "{receipt}");
        }
        assert_eq!(world.stockade(&["sandbox", "destroy", "box"]).code, Some(0));
        world.all_ended();
    });
}

#[test]
fn a_killed_broker_is_told_and_the_receipt_says_what_it_lacks() {
    as_both(|world| {
        let secret = format!("TOKEN@api.test:{}", world.secure);
        let mut command = world.command([world.binary.as_os_str()]);
        command.args(["run", "--workspace-mode", "rw"]).args(world.secure_flags()).args(["--secret", &secret, "--"]);
        command.args(["bash", "-c", "touch stands; until test -e go; do sleep 0.05; done"]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
        eventually("the program runs", || world.work.join("stands").exists());
        assert_eq!(world.brokers().len(), 1);
        world.brokers().into_iter().for_each(kill);
        eventually("the broker is gone", || world.brokers().is_empty());
        world.file("go", "");
        let outcome = ended(child);
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        assert!(outcome.stderr.contains("the receipt says how it ended and nothing more: "), "{outcome:?}");
        let receipt = world.receipt();
        assert!(receipt["violations"][0].as_str().is_some_and(|text| text.starts_with("receipt-bare: ")), "{receipt}");
    });
}

#[test]
fn egress_keeps_to_itself() {
    as_both(|world| {
        let mut command = world.command([world.binary.as_os_str()]);
        let secret = format!("TOKEN@api.test:{}", world.secure);
        command.args(["run"]).args(world.secure_flags()).args(["--secret", &secret, "--", "sleep", "60"]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
        eventually("egress stands", || world.egress().len() == 1);
        let pid = world.egress()[0];
        let read = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
        eventually("it confines itself", || read("status").contains("NoNewPrivs:\t1"));
        assert!(read("limits").lines().any(|line| line.starts_with("Max core file size") && line.contains(" 0 ")), "{}", read("limits"));
        assert!(!read("environ").contains("TOKEN") && !read("cmdline").contains("TOKEN"));
        // Undumpable: not even its own user may look into it.
        let look = format!("cat /proc/{pid}/environ /proc/{pid}/maps");
        let outcome = finish(world.outside("bash").args(["-c", &look]));
        assert!(world.who == crate::wall::Who::Root || outcome.code != Some(0), "{outcome:?}");
        kill(child.id());
        ended(child);
        world.all_ended();
    });
}
