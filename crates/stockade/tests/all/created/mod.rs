//! Sandboxes that outlive one command, and settings: every verb, as root and as an ordinary user, and what is left afterwards.
//!
//! The ground and the ways to run the program are those of the wall's tests.

#![allow(clippy::indexing_slicing, clippy::panic, clippy::print_stderr, clippy::string_slice, reason = "tests")]

mod apply;
mod changes;
mod damage;
mod ends;
mod exec;
mod files;
mod freeze;
mod kept;
mod many;
mod settings;
mod shell;
mod verbs;

use std::ffi::OsStr;
use std::ops::Deref;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::Outcome;
use crate::wall::ground::{eventually, finish, processes};
use crate::wall::{Ground, Who};

/// Runs a test as root and as an ordinary user.
fn as_both(test: impl Fn(&Yard)) {
    for who in [Who::Root, Who::Ordinary] {
        eprintln!("as {who:?}");
        test(&Yard::new(who));
    }
}

/// A ground whose supervisors end with it, also when a test fails.
struct Yard {
    ground: Ground,
}

impl Deref for Yard {
    type Target = Ground;
    fn deref(&self) -> &Ground {
        &self.ground
    }
}

impl Drop for Yard {
    fn drop(&mut self) {
        let supervisors = || self.sandboxes().iter().flat_map(|id| processes(&hold_of(id))).collect::<Vec<u32>>();
        // Asked to end, they take their control groups along; those that do not listen are killed.
        let end = Instant::now() + Duration::from_secs(5);
        for pid in supervisors() {
            send(pid, Signal::TERM);
        }
        while !supervisors().is_empty() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        for pid in supervisors() {
            send(pid, Signal::KILL);
        }
    }
}

impl Yard {
    fn new(who: Who) -> Self {
        Self { ground: Ground::new(who) }
    }

    /// Runs `stockade sandbox WORDS`.
    fn sandbox(&self, words: &[&str]) -> Outcome {
        finish(&mut self.stockade(["sandbox"].iter().chain(words)))
    }

    /// Must succeed and say nothing on stderr; its stdout.
    fn says(&self, words: &[&str]) -> String {
        let outcome = self.sandbox(words);
        assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{words:?}: {outcome:?}");
        outcome.stdout
    }

    /// Must succeed; its JSON.
    fn tells(&self, words: &[&str]) -> Value {
        let outcome = self.sandbox(&[words, &["--json"]].concat());
        assert_eq!(outcome.code, Some(0), "{words:?}: {outcome:?}");
        parse(&outcome)
    }

    /// Fails with 125, says all of these words, and has the same in JSON.
    fn rejects(&self, words: &[&str], says: &[&str]) {
        let outcome = self.sandbox(words);
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(125), ""), "{words:?}: {outcome:?}");
        for word in says {
            assert!(outcome.stderr.contains(word), "{words:?}: {word:?} is not in {:?}", outcome.stderr);
        }
        let told = finish(&mut self.stockade(["--json", "sandbox"].iter().chain(words)));
        let value = parse(&told);
        assert_eq!(told.code, Some(125), "{words:?}: {told:?}");
        assert!(value["error"]["step"].is_string() && value["error"]["message"].is_string(), "{words:?}: {value}");
    }

    /// Creates a sandbox; its id.
    fn create(&self, flags: &[&str]) -> String {
        let id = self.says(&[&["create"], flags].concat()).trim_end().to_owned();
        assert_eq!(id.len(), 16, "{id}");
        id
    }

    /// Runs a shell script in a sandbox.
    fn exec(&self, sandbox: &str, script: &str) -> Outcome {
        self.sandbox(&["exec", sandbox, "--", "bash", "-c", script])
    }

    /// A script in a sandbox must succeed; its stdout.
    fn inside(&self, sandbox: &str, script: &str) -> String {
        let outcome = self.exec(sandbox, script);
        assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{script}: {outcome:?}");
        outcome.stdout
    }

    /// Starts a program in a sandbox.
    fn start(&self, sandbox: &str, words: &[&str]) -> Child {
        let mut command = self.stockade(["sandbox", "exec", sandbox, "--"].iter().chain(words));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts")
    }

    /// What `list` says of a sandbox, if anything.
    fn status(&self, id: &str) -> Option<String> {
        let listed = self.tells(&["list"]);
        let all = listed["sandboxes"].as_array().unwrap_or_else(|| panic!("no array in {listed}"));
        let found = all.iter().find(|sandbox| sandbox["sandbox_id"] == id)?;
        Some(found["status"].as_str().expect("a status").to_owned())
    }

    /// The process that owns a sandbox.
    fn supervisor(&self, id: &str) -> u32 {
        assert!(self.sandboxes().contains(&id.to_owned()), "{id}");
        // While a sandbox is new a child of its supervisor may still be about to end; it has the same words.
        eventually(&format!("one supervisor of {id}"), || processes(&hold_of(id)).len() == 1);
        processes(&hold_of(id))[0]
    }

    /// A path of the workspace as the sandbox sees it.
    fn inner(&self, name: &str) -> String {
        self.work.join(name).display().to_string()
    }

    /// Whatever of a sandbox is on this machine: its directory, socket, control groups, supervisor.
    fn remains(&self, id: &str) -> Vec<String> {
        let mut found: Vec<String> = processes(&hold_of(id)).iter().map(|pid| format!("process {pid}")).collect();
        let places = [format!("sandboxes/{id}"), format!("run/{id}.sock")].map(|name| self.state.join("stockade").join(name));
        found.extend(places.iter().filter(|path| path.symlink_metadata().is_ok()).map(|path| path.display().to_string()));
        found.extend(groups_of(id));
        found
    }
}

/// The part of a supervisor's command line that names its sandbox.
fn hold_of(id: &str) -> String {
    format!("hold\0{id}")
}

/// Control groups of a sandbox, wherever they are.
#[expect(clippy::disallowed_methods, reason = "looks at the host's control groups")]
fn groups_of(id: &str) -> Vec<String> {
    let mut find = std::process::Command::new("find");
    find.args(["/sys/fs/cgroup", "-type", "d", "-name", &format!("*{id}*")]);
    // Groups of other tests come and go while it looks.
    finish(&mut find).stdout.lines().map(str::to_owned).collect()
}

fn send(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid.cast_signed()).expect("a process");
    // It may have ended by itself.
    let _ = kill_process(pid, signal);
}

fn parse(outcome: &Outcome) -> Value {
    serde_json::from_str(&outcome.stdout).unwrap_or_else(|e| panic!("{e}: {outcome:?}"))
}

/// Runs `stockade` with these words in the workspace.
fn run(yard: &Yard, words: &[&str]) -> Outcome {
    finish(&mut yard.stockade(words.iter().map(OsStr::new)))
}
