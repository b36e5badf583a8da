//! Measures the ledger: `cargo run --release -p stockade-ledger --example measure -- DIRECTORY RECEIPTS`.
//!
//! Opening and writing as a short `run` does, writing as a busy server does against what the disk gives, then a ledger of the given size: checking it and
//! looking for things in it. Prints what it saw; judges nothing.

#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::disallowed_methods, reason = "a measurement, not part of the product")]

use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use stockade_core::result::Reached;
use stockade_ledger::query::{Filter, Page};
use stockade_ledger::receipt::{Draft, Kind, Outcome, Policy, Principal, Program, ReceiptId, SandboxFacts};
use stockade_ledger::redact::Redactor;
use stockade_ledger::{Durability, Ledger, Options, Reader, Weight, verify};

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let (Some(directory), Some(count)) = (words.get(1), words.get(2).and_then(|count| count.parse::<usize>().ok())) else {
        println!("usage: measure DIRECTORY RECEIPTS");
        return;
    };
    let root = Path::new(directory);
    short_runs(&root.join("short"));
    warm_calls(&root.join("warm"));
    busy_server(root);
    large_ledger(&root.join("large"), count);
}

fn draft(number: usize, kind: Kind) -> Draft {
    let mut draft = Draft::new(ReceiptId::new(), kind);
    draft.principal = Some(Principal { agent: Some(format!("claude/{}", number % 40)), human: Some("ada".into()), ..Principal::default() });
    draft.argv = Some(vec!["git".into(), "log".into(), "--oneline".into(), format!("-{number}")]);
    draft.argv_executed = draft.argv.clone();
    draft.program = Some(Program { path: format!("/usr/bin/tool{}", number % 100), sha256: Some("ab".repeat(32)) });
    draft.cwd = Some("/home/ada/work/project".into());
    draft.env_names = Some(["HOME", "LANG", "PATH", "TERM", "USER"].map(str::to_owned).to_vec());
    let verdict = if number.is_multiple_of(500) { "deny" } else { "allow" };
    draft.policy = Some(Policy { digest: Some("cd".repeat(32)), rule: "no-policy".into(), verdict: verdict.into(), reasons: Vec::new() });
    let id = Some(format!("{:016x}", number % 1000));
    draft.sandbox =
        Some(SandboxFacts { id, backend: "jail".into(), spec_digest: Some("ef".repeat(32)), enforcement: [].into(), limits: [].into() });
    draft
}

fn outcome(intent: &Draft, number: usize) -> Draft {
    let result = Some(Outcome { exit_code: Some(0), duration_ms: Some(4), capture: Some("none".into()), ..Outcome::default() });
    let mut draft = Draft { kind: Kind::Outcome, result, ..intent.clone() };
    if number.is_multiple_of(50) {
        let host = format!("host{}.example", number % 64);
        draft.network =
            vec![Reached { host, port: 443, method: None, path: None, verdict: "allow".into(), rule: "x".into(), secret: None }];
    }
    draft
}

fn show(name: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |part: usize| times.get(times.len() * part / 100).copied().unwrap_or_default().as_secs_f64() * 1e6;
    println!("{name:44} p50 {:9.1} µs   p95 {:9.1} µs", at(50), at(95));
}

/// What each `run` pays: open, intent, outcome, close, with nobody else there.
fn short_runs(directory: &Path) {
    let none = Redactor::none();
    let options = || Options { durability: Durability::Process, ..Options::default() };
    let [mut opening, mut before, mut after, mut closing] = [const { Vec::new() }; 4];
    for number in 0..300 {
        let start = Instant::now();
        let ledger = Ledger::open(directory, options()).unwrap();
        opening.push(start.elapsed());
        let begun = draft(number, Kind::Intent);
        let start = Instant::now();
        ledger.append(&begun, Weight::Read, &none).unwrap();
        before.push(start.elapsed());
        let ended = outcome(&begun, number);
        let start = Instant::now();
        ledger.append(&ended, Weight::Read, &none).unwrap();
        after.push(start.elapsed());
        let start = Instant::now();
        ledger.close().unwrap();
        closing.push(start.elapsed());
    }
    show("short run: open", opening);
    show("short run: intent", before);
    show("short run: outcome", after);
    show("short run: close with checkpoint", closing);
}

/// What a call pays in a process that has the ledger open.
fn warm_calls(directory: &Path) {
    let none = Redactor::none();
    let ledger = Ledger::open(directory, Options { durability: Durability::Process, ..Options::default() }).unwrap();
    let mut times = Vec::new();
    for number in 0..5000 {
        let begun = draft(number, Kind::Intent);
        let ended = outcome(&begun, number);
        let start = Instant::now();
        ledger.append(&begun, Weight::Read, &none).unwrap();
        ledger.append(&ended, Weight::Read, &none).unwrap();
        times.push(start.elapsed());
    }
    show("warm call: intent and outcome, process", times);
}

/// Sixteen writers whose every receipt must be on the disk, against the disk itself.
fn busy_server(root: &Path) {
    let patience = Duration::from_secs(5);
    let file_path = root.join("fsync");
    let mut file = std::fs::File::create(&file_path).unwrap();
    let (start, mut loops) = (Instant::now(), 0_u32);
    while start.elapsed() < patience {
        file.write_all(&vec![7; 16 * 1100]).unwrap();
        file.sync_data().unwrap();
        loops += 1;
    }
    println!("{:44} {:9.0} receipts/s", "fsync loop, 16 receipts at a time", f64::from(loops) * 16.0 / patience.as_secs_f64());
    for writers in [1, 16] {
        let options = Options { durability: Durability::Always, ..Options::default() };
        let ledger = Ledger::open(&root.join(format!("busy-{writers}")), options).unwrap();
        let start = Instant::now();
        let written: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..writers)
                .map(|_| {
                    scope.spawn(|| {
                        let mut written = 0;
                        while start.elapsed() < patience {
                            ledger.append(&draft(written, Kind::Denied), Weight::Effect, &Redactor::none()).unwrap();
                            written += 1;
                        }
                        written
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        println!("{:44} {:9.0} receipts/s", format!("durability always, {writers} writers"), written as f64 / patience.as_secs_f64());
    }
}

fn large_ledger(directory: &Path, count: usize) {
    let none = Redactor::none();
    let ledger = Ledger::open(directory, Options { durability: Durability::Process, ..Options::default() }).unwrap();
    let there = usize::try_from(ledger.reader().unwrap().size().unwrap()).unwrap();
    let start = Instant::now();
    std::thread::scope(|scope| {
        for part in 0..16 {
            let (ledger, none) = (&ledger, &none);
            scope.spawn(move || {
                for number in (there..count).filter(|number| number % 32 == part * 2) {
                    let begun = draft(number, Kind::Intent);
                    ledger.append(&begun, Weight::Read, none).unwrap();
                    ledger.append(&outcome(&begun, number), Weight::Read, none).unwrap();
                }
            });
        }
    });
    println!("wrote {} receipts in {:.1} s", count.saturating_sub(there), start.elapsed().as_secs_f64());
    ledger.close().unwrap();
    let reader = Reader::open(directory).unwrap();
    let text = |value: &str| Some(value.to_owned());
    let filters = [
        ("no filter", Filter::default()),
        ("agent", Filter { agent: text("claude/4"), ..Filter::default() }),
        ("verdict deny", Filter { verdict: text("deny"), ..Filter::default() }),
        ("agent and verdict that rarely meet", Filter { agent: text("claude/4"), verdict: text("deny"), ..Filter::default() }),
        ("program and host", Filter { program: text("tool50"), host: text("host50.example"), ..Filter::default() }),
        ("agent and program that never meet", Filter { agent: text("claude/4"), program: text("tool2"), ..Filter::default() }),
        ("sandbox", Filter { sandbox: text("0000000000000008"), ..Filter::default() }),
        ("until long ago", Filter { until: Some(jiff::Timestamp::from_second(1).unwrap()), ..Filter::default() }),
        ("nobody", Filter { agent: text("nobody"), ..Filter::default() }),
    ];
    for (name, filter) in filters {
        let start = Instant::now();
        let found = reader.list(&filter, Page { before: None, most: 50 }).unwrap();
        println!("list by {name:36} {:9.2} ms   {} found", start.elapsed().as_secs_f64() * 1e3, found.len());
    }
    let start = Instant::now();
    let verified = verify::verify(&reader, &[reader.local_key().unwrap()], None).unwrap();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default();
    println!("verified {} receipts in {:.1} s; {peak}", verified.size, start.elapsed().as_secs_f64());
}
