//! How the daemon, its launcher and its visitors end, and what is left then: nothing.

use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::json;

use super::{Daemon, receipts, served};
use crate::wall::as_both;
use crate::wall::ground::{Ground, ended, eventually, finish, processes};

/// A run that says so when it runs.
fn under_way(ground: &Ground, script: &str) -> Child {
    let mut command = ground.running(&[], &["bash", "-c", &format!("echo begun; {script}")]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    let mut first = [0; 6];
    std::io::Read::read_exact(child.stdout.as_mut().expect("a pipe"), &mut first).expect("it runs");
    child
}

/// Every sandbox that there is: those in use, and those that wait.
fn standing(ground: &Ground) -> Vec<String> {
    let entries = std::fs::read_dir(ground.state.join("stockade/sandboxes")).expect("the state").flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// How a daemon or its launcher ended.
#[derive(Clone, Copy)]
enum End {
    Told,
    Killed,
}

/// After the end of a daemon that had these.
fn nothing_is_left(ground: &Ground, of: &[String], end: End) {
    assert!(!of.is_empty());
    let word = ground.state.to_string_lossy().into_owned();
    eventually("no process of it is left", || processes(&word).is_empty());
    assert_eq!(ground.run(&[], &["true"]).code, Some(0), "the next run is a run");
    match end {
        End::Told => assert_eq!(ground.sandboxes(), Vec::<String>::new()),
        // What a killed one left is swept by the next run, when that has answered.
        End::Killed => eventually("no sandbox of it is left", || ground.sandboxes().is_empty()),
    }
    let groups = || finish(ground.outside("find").args(["/sys/fs/cgroup", "-type", "d", "-name", "stockade-*"])).stdout;
    eventually("no control group of it is left", || !of.iter().any(|id| groups().contains(id)));
    assert_eq!(finish(&mut ground.stockade(["receipts", "verify"])).code, Some(0));
}

#[test]
fn told_to_end_it_lets_runs_finish() {
    as_both(|ground| {
        let daemon = Daemon::of(ground);
        let child = under_way(ground, "sleep 0.7; echo finished");
        let all = standing(ground);
        daemon.signal(rustix::process::Signal::TERM);
        eventually("its socket is gone", || !daemon.socket.exists());
        assert_eq!(finish(&mut ground.running(&[], &["true"])).code, Some(0), "those who come now do it themselves");
        let outcome = ended(child);
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), "finished\n"), "{outcome:?}");
        assert_eq!(daemon.end(), Some(0));
        nothing_is_left(ground, &all, End::Told);
    });
}

#[test]
fn a_second_word_kills_what_runs() {
    as_both(|ground| {
        let daemon = Daemon::of(ground);
        let child = under_way(ground, "trap '' TERM INT; sleep 1000");
        let all = standing(ground);
        daemon.signal(rustix::process::Signal::TERM);
        eventually("its socket is gone", || !daemon.socket.exists());
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(daemon.end(), Some(0));
        let outcome = ended(child);
        assert!(outcome.code == Some(137) && outcome.stderr.contains("the daemon was told to end"), "{outcome:?}");
        let written = receipts(ground);
        let cut = written.iter().find(|one| one["kind"] == "outcome").expect("an outcome");
        assert!(cut["violations"][0].as_str().expect("a line").starts_with("cancelled: the daemon"), "{cut:#}");
        nothing_is_left(ground, &all, End::Told);
    });
}

#[test]
fn a_client_that_is_killed_takes_its_program_along() {
    as_both(|ground| {
        let _daemon = Daemon::of(ground);
        let mark = format!("sleep 98{}", ground.who.uid());
        let mut child = under_way(ground, &mark);
        eventually("its program runs", || !processes(&mark.replace(' ', "\0")).is_empty());
        child.kill().expect("killed");
        child.wait().expect("waited");
        eventually("its program is gone", || processes(&mark.replace(' ', "\0")).is_empty());
        eventually("its outcome is written", || receipts(ground).iter().any(|one| one["kind"] == "outcome"));
        let all = receipts(ground);
        let outcome = all.iter().find(|one| one["kind"] == "outcome").expect("an outcome");
        assert_eq!(outcome["result"]["signal"], json!(9), "{outcome:#}");
        served(ground, &[], &["true"]);
    });
}

#[test]
fn killed_it_leaves_nothing_that_runs_and_no_lie() {
    as_both(|ground| {
        let mut daemon = Daemon::of(ground);
        let mark = format!("sleep 97{}", ground.who.uid());
        let child = under_way(ground, &mark);
        let all = standing(ground);
        daemon.child.kill().expect("killed");
        daemon.child.wait().expect("waited");
        let outcome = ended(child);
        assert!(outcome.code == Some(125) && outcome.stderr.contains("the daemon ended"), "{outcome:?}");
        eventually("its program is gone", || processes(&mark.replace(' ', "\0")).is_empty());
        nothing_is_left(ground, &all, End::Killed);
        let all = receipts(ground);
        let interrupted = all.iter().filter(|one| one["result"]["interrupted"] == true);
        assert_eq!(interrupted.count(), 1, "{all:#?}");
        let _again = Daemon::of(ground);
        served(ground, &[], &["true"]);
    });
}

#[test]
fn without_its_launcher_it_ends_and_runs_go_on() {
    as_both(|ground| {
        let mut daemon = Daemon::of(ground);
        served(ground, &[], &["true"]);
        let all = standing(ground);
        let pid = daemon.child.id();
        let launcher = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("children");
        ground.host(&format!("kill -9 {launcher}"));
        eventually("it ends", || daemon.child.try_wait().expect("waited").is_some());
        nothing_is_left(ground, &all, End::Killed);
    });
}

/// A ledger that could not be written to for a while is opened anew.
#[test]
fn a_ledger_that_can_be_written_again_is() {
    let ground = Ground::new(crate::wall::Who::Ordinary);
    assert_eq!(ground.run(&[], &["true"]).code, Some(0));
    let chmod = |mode: &str| ground.host(&format!("chmod {mode} {}/stockade/receipts/ledger.db*", ground.state.display()));
    chmod("400");
    let _daemon = Daemon::of(&ground);
    let refused = finish(&mut ground.running(&[], &["true"]));
    assert!(refused.code == Some(125) && refused.stderr.contains("read-only"), "{refused:?}");
    chmod("600");
    assert_eq!(served(&ground, &[], &["true"]).code, Some(0));
}

#[test]
fn settings_start_it_and_the_next_run_finds_it() {
    as_both(|ground| {
        assert_eq!(finish(&mut ground.stockade(["config", "set", "daemon.autostart", "true"])).code, Some(0));
        assert_eq!(finish(&mut ground.running(&[], &["true"])).code, Some(0));
        let socket = ground.state.join("stockade/run/daemon.sock");
        eventually("it is there", || socket.exists());
        served(ground, &[], &["true"]);
        let daemon = processes("serve\0--root").into_iter().find(|pid| {
            std::fs::read(format!("/proc/{pid}/cmdline"))
                .is_ok_and(|line| String::from_utf8_lossy(&line).contains(&*ground.home.to_string_lossy()))
        });
        let daemon = daemon.expect("a daemon");
        let environment = std::fs::read_to_string(format!("/proc/{daemon}/environ")).expect("its environment");
        assert!(!environment.contains("PATH="), "{environment:?}");
        ground.host(&format!("kill {daemon}"));
        eventually("it is gone", || !socket.exists());
    });
}

/// The server for agents has the daemon in a process of its own.
#[test]
fn a_server_over_http_has_a_daemon_beside_it_that_goes_with_it() {
    as_both(|ground| {
        let base = ground.base.to_string_lossy().into_owned();
        let socket = ground.state.join("stockade/run/daemon.sock");
        let answers = || std::os::unix::net::UnixStream::connect(&socket).is_ok();
        for signal in [rustix::process::Signal::TERM, rustix::process::Signal::KILL] {
            let mut command = ground.stockade(["serve", "--listen", "127.0.0.1:0", "--root", &base]);
            let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts");
            eventually("the daemon is there", answers);
            served(ground, &[], &["true"]);
            rustix::process::kill_process(rustix::process::Pid::from_child(&child), signal).expect("told");
            child.wait().expect("waited");
            eventually("the daemon is gone", || !answers());
        }
    });
}
