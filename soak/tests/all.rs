//! The short form of every loop: few kills, every shortage in strides, every fault once; as root and as an ordinary user.
//!
//! One test per loop, so that one that fails has a name. The seed is fixed: a test that fails is to fail again.

#![allow(clippy::expect_used, reason = "tests")]

use std::path::PathBuf;
use std::process::Command;

/// The program under test: named by `cargo xtask test`, else the one that was built beside this test.
#[expect(clippy::disallowed_methods, reason = "which program to test is the caller's to say")]
fn binary() -> PathBuf {
    let beside = || {
        let own = std::env::current_exe().expect("this test's path");
        own.ancestors().nth(2).expect("the profile's directory").join("stockade")
    };
    let binary = std::env::var_os("STOCKADE_TEST_BINARY").map_or_else(beside, PathBuf::from);
    assert!(binary.is_file(), "{} is missing\nhint: cargo build --profile ci --package stockade", binary.display());
    binary
}

#[expect(clippy::disallowed_methods, reason = "the program that holds the loops")]
fn check(name: &str) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stockade-soak"));
    let output = command.arg("--binary").arg(binary()).args(["--short", "--seed", "3", name]).output().expect("it starts");
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && stdout.contains("0 findings"), "{}\n{stderr}\n{stdout}", output.status);
}

macro_rules! loops {
    ($($name:ident $word:literal)*) => { $(
        #[test]
        fn $name() {
            check($word);
        }
    )* };
}

loops! {
    kills_of_a_run_leave_nothing "kill-run"
    kills_of_a_created_sandbox_leave_nothing "kill-created"
    kills_of_an_agent_leave_nothing_and_lose_no_work "kill-agent"
    kills_of_writers_lose_no_receipt "kill-receipts"
    a_daemon_under_load_loses_nothing_and_leaves_nothing "daemon"
    many_at_once_leave_nothing "parallel"
    a_full_disk_is_told_and_leaves_nothing "disk"
    no_descriptors_are_told_and_leave_nothing "descriptors"
    no_memory_leaves_nothing "memory"
    no_processes_are_told_and_leave_nothing "pids"
    a_read_only_state_is_told_and_leaves_nothing "read-only"
    clock_jumps_lose_nothing_and_overwrite_nothing "clock"
    a_workspace_that_vanishes_is_told_and_nothing_else_is_written "workspace"
    a_state_that_vanishes_leaves_nothing "state"
}

#[test]
fn every_loop_has_its_test() {
    let source = include_str!("all.rs");
    for known in stockade_soak::loops::ALL {
        assert!(source.contains(&format!(" \"{}\"\n", known.name)), "{}", known.name);
    }
}
