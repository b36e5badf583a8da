//! The soak as a program: makes the cage, runs the loops in it, prints the table. `cargo xtask soak` builds and starts it.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a tool of the repository talks to the terminal")]

use std::cell::RefCell;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use stockade_soak::arguments::{Arguments, USAGE};
use stockade_soak::cage::{self, Cage};
use stockade_soak::failure::Failure;
use stockade_soak::groups::Groups;
use stockade_soak::loops::{Bench, Loop};
use stockade_soak::report::{self, Finding, Tally};

fn main() -> ExitCode {
    match start() {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn start() -> Result<ExitCode, Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let arguments = Arguments::parse(words.iter().cloned(), now.as_micros() as u64 % 1_000_000_000)?;
    if let Some((base, groups)) = &arguments.inside {
        let cage = Cage { base: base.clone(), groups: Groups::named(groups) };
        cage.settle_in()?;
        return inside(&cage, &arguments);
    }
    let binary = arguments.binary.as_ref().ok_or_else(|| Failure::Usage(USAGE.into()))?;
    eprintln!("seed {}", arguments.seed);
    // The seed is decided here, so that it is the one that was printed.
    let seed = ["--seed".to_owned(), arguments.seed.to_string()];
    let passed: Vec<OsString> = words.iter().cloned().chain(seed).map(OsString::from).collect();
    let status = cage::run_inside(binary, &passed)?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn inside(cage: &Cage, arguments: &Arguments) -> Result<ExitCode, Failure> {
    let is_terminal = std::io::stderr().is_terminal();
    let progress = move |text: &str| {
        if is_terminal {
            eprint!("\r\x1b[K{text}");
        }
    };
    let bench = Bench { cage, arguments, progress: &progress, told: RefCell::default() };
    let mut tallies: Vec<(&str, Tally)> = Vec::new();
    for one in arguments.wanted() {
        let tally = run(&one, &bench)?;
        tallies.push((one.name, tally));
    }
    println!("{}", report::table(&tallies));
    let findings: usize = tallies.iter().map(|(_, tally)| tally.findings.len()).sum();
    println!("{findings} findings, seed {}", arguments.seed);
    Ok(if findings == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn run(one: &Loop, bench: &Bench<'_>) -> Result<Tally, Failure> {
    eprintln!("── {}: {}", one.name, one.about);
    let since = Instant::now();
    let mut tally = (one.run)(bench)?;
    tally.time = since.elapsed();
    (bench.progress)("");
    let again = |finding: &Finding| format!("cargo xtask soak --seed {} --round {} {}", bench.arguments.seed, finding.round, one.name);
    if !tally.findings.is_empty() {
        eprintln!("findings in {}, by kind:\n{}", one.name, report::findings(&tally, again));
    }
    for proof in &tally.proofs {
        eprintln!("   {proof}");
    }
    eprintln!("   {} runs, {} findings in {:.1} s", tally.runs, tally.findings.len(), tally.time.as_secs_f64());
    Ok(tally)
}
