//! Writers that are killed at any moment: what was answered is there, what was begun is closed, and the chain holds.

use std::collections::HashSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use stockade_ledger::Weight;
use stockade_ledger::receipt::Kind;
use stockade_ledger::redact::Redactor;

use crate::support::{intent, open, outcome, verified};

const DIRECTORY: &str = "STOCKADE_LEDGER_TEST_DIRECTORY";

/// Where a test that another one started is to work.
pub(crate) fn given_directory() -> PathBuf {
    std::env::var_os(DIRECTORY).map(PathBuf::from).expect("started by another test")
}

/// This test binary again, to run one of its ignored tests.
pub(crate) fn inner_half(words: [&str; 3], directory: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(words).args(["--nocapture", "--test-threads=1"]).env(DIRECTORY, directory);
    command
}

#[test]
fn killed_writers_lose_nothing_that_was_answered() {
    kill_loop(6);
}

/// Kills two writers at a time, `rounds` times, at moments that differ; the long form is a matter of the number.
fn kill_loop(rounds: u32) {
    let root = tempfile::tempdir().unwrap();
    drop(open(root.path()));
    let mut answered = HashSet::new();
    for round in 0..rounds {
        let mut writers: Vec<_> = (0..2)
            .map(|_| {
                inner_half(["--ignored", "--exact", "killing::writes_until_it_is_killed"], root.path())
                    .stdout(Stdio::piped())
                    .stderr(Stdio::null())
                    .spawn()
                    .unwrap()
            })
            .collect();
        let moment = Duration::from_micros(u64::from(round * 7919 % 97) * 1000);
        for writer in &mut writers {
            let mut lines = BufReader::new(writer.stdout.take().unwrap()).lines().map_while(Result::ok);
            // The first answer says that it is under way; then it is killed a while later.
            answered.extend(lines.by_ref().find_map(|line| acknowledged(&line)));
            std::thread::sleep(moment);
            writer.kill().unwrap();
            writer.wait().unwrap();
            // A line that was cut is no answer.
            answered.extend(lines.filter_map(|line| acknowledged(&line)));
        }
        drop(open(root.path()));
        let written = ledger_contents(root.path());
        for one in &answered {
            assert!(written.contains(one), "round {round}: {one:?} was answered and is not there");
        }
        let intents = written.iter().filter(|(_, kind)| *kind == Kind::Intent);
        for (id, _) in intents {
            assert!(written.contains(&(id.clone(), Kind::Outcome)), "round {round}: {id} has no outcome");
        }
        verified(root.path());
    }
    assert!(answered.len() >= rounds as usize * 2, "the writers wrote");
}

fn acknowledged(line: &str) -> Option<(String, Kind)> {
    let (kind, rest) = line.split_once(' ')?;
    let id = rest.strip_suffix(" .")?.to_owned();
    match kind {
        "intent" => Some((id, Kind::Intent)),
        "outcome" => Some((id, Kind::Outcome)),
        _ => None,
    }
}

fn ledger_contents(directory: &Path) -> HashSet<(String, Kind)> {
    let reader = stockade_ledger::Reader::open(directory).unwrap();
    let (mut written, mut next) = (HashSet::new(), 0);
    loop {
        let entries = reader.from(next, 1000).unwrap();
        let Some(last) = entries.last() else { return written };
        next = last.seq + 1;
        written.extend(entries.iter().map(|entry| {
            let content = entry.receipt().unwrap().content;
            (content.receipt_id.to_string(), content.kind)
        }));
    }
}

#[test]
#[ignore = "started by another test, which kills it"]
fn writes_until_it_is_killed() {
    let ledger = open(&given_directory());
    // The harness buffers its own output; answers go out at once.
    let mut out = std::io::stdout();
    for number in 0.. {
        let begun = intent(number);
        let weight = if number % 5 == 0 { Weight::Effect } else { Weight::Read };
        ledger.append(&begun, weight, &Redactor::none()).unwrap();
        writeln!(out, "\nintent {} .", begun.receipt_id).unwrap();
        ledger.append(&outcome(&begun, number), weight, &Redactor::none()).unwrap();
        writeln!(out, "\noutcome {} .", begun.receipt_id).unwrap();
        out.flush().unwrap();
    }
}
