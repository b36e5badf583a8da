//! The guest as the first process of a pid namespace.

use std::process::Command;

use stockade_wire::message::{Exit, Reply, Request};

use crate::client::{Guest, eventually};

fn start() -> Guest {
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child", "--mount-proc", env!("CARGO_BIN_EXE_stockade-shim")]);
    let mut guest = Guest::started(command);
    guest.greet();
    guest
}

#[test]
fn orphans_are_reaped() {
    let mut guest = start();
    let output = guest.shell("(setsid sh -c 'sleep 0.05; exit 3' &) ; echo $$");
    assert_eq!(output.exit, Some(Exit::Code { code: 0 }));
    eventually("no zombies", || {
        let processes = guest.shell("cat /proc/[0-9]*/stat 2>/dev/null").text();
        !processes.contains(") Z ") && !processes.contains("(sleep)")
    });
}

#[test]
fn programs_cannot_end_it() {
    let mut guest = start();
    for signal in ["TERM", "INT", "HUP", "KILL", "SEGV", "STOP", "CHLD"] {
        guest.shell(&format!("kill -{signal} 1"));
    }
    assert_eq!(guest.ask(&Request::Ping {}), Reply::Pong {});
}

/// The state of `sleep SECONDS` as the outside sees it, if it runs.
fn state_of_sleep(seconds: &str) -> Option<char> {
    std::fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        if !line.starts_with(format!("sleep\0{seconds}\0").as_bytes()) {
            return None;
        }
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        stat.split(") ").nth(1)?.chars().next()
    })
}

#[test]
fn freezing_reaches_those_that_left_their_session() {
    let mut guest = start();
    let seconds = format!("20{}", std::process::id());
    guest.shell(&format!("setsid sleep {seconds} >/dev/null 2>&1 &"));
    eventually("it sleeps", || state_of_sleep(&seconds) == Some('S'));
    assert_eq!(guest.ask(&Request::Freeze { frozen: true }), Reply::Done {});
    eventually("it is stopped", || state_of_sleep(&seconds) == Some('T'));
    assert_eq!(guest.ask(&Request::Freeze { frozen: false }), Reply::Done {});
    eventually("it goes on", || state_of_sleep(&seconds) == Some('S'));
}

#[test]
fn the_end_of_the_stream_ends_everything_inside() {
    let mut guest = start();
    let seconds = format!("10{}", std::process::id());
    guest.shell(&format!("setsid sleep {seconds} >/dev/null 2>&1 &"));
    eventually("it sleeps", || state_of_sleep(&seconds) == Some('S'));
    guest.stream.shutdown(std::net::Shutdown::Both).unwrap();
    guest.wait();
    assert_eq!(state_of_sleep(&seconds), None);
}
