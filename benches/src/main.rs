//! Measures Stockade and its peers, all in one run on one machine, and writes down what came of it.
//!
//! ```text
//! peers installed ─▶ ground made ─▶ each measure: warm-up, rounds, idle and busy ─▶ RESULTS.md, results.json, field.svg
//! ```
//!
//! `cargo xtask bench` builds this and the `stockade` that is measured, and passes their places. Nothing here is part of what users
//! install. No figure is ever filled in: what cannot be measured is told with its message.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a measuring tool talks to the terminal")]
#![expect(clippy::disallowed_methods, reason = "a measuring tool runs the programs that it measures, on the developer's machine")]

mod arguments;
mod contest;
mod failure;
mod floor;
mod ground;
mod load;
mod machine;
mod measures;
mod peers;
mod report;
mod results;
mod spawn;
mod statistics;
mod traffic;

use std::process::ExitCode;
use std::time::Instant;

use arguments::Arguments;
use failure::Failure;
use ground::Ground;
use machine::Machine;
use measures::Course;
use results::Results;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.first().is_some_and(|w| w == load::SPIN) {
        load::spin();
        return ExitCode::SUCCESS;
    }
    if let Some((first, argv)) = words.split_first()
        && first == peers::relay::RELAY
    {
        peers::relay::serve(argv);
        return ExitCode::SUCCESS;
    }
    if let Some((first, role)) = words.split_first()
        && first == traffic::ROLE
    {
        return told(traffic::play(role));
    }
    if words.iter().any(|w| w == "--help" || w == "-h") {
        println!("{}", arguments::USAGE);
        return ExitCode::SUCCESS;
    }
    told(run(words))
}

fn told(result: Result<(), impl std::fmt::Display>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: Vec<String>) -> Result<(), Failure> {
    let begin = Instant::now();
    let arguments = Arguments::read(words.into_iter())?;
    let ground = Ground::make(&arguments.stockade)?;
    let mut results = Results::new(Machine::look(&arguments.repository, ground.path()), arguments.extent);
    let course = Course::prepare(&arguments, &ground);
    results.peers = course.notes();
    for measure in &arguments.measures {
        say(&format!("{}: {}", measure.name(), measure.title()));
        let (section, verdicts) = measure.take(&course)?;
        results.sections.push(section);
        results.verdicts.extend(verdicts);
    }
    drop(course);
    results.seconds = begin.elapsed().as_secs();
    report::write(&results, &arguments.out)?;
    println!("{}", report::summary(&results));
    println!("\nwritten to {} in {} s", arguments.out.display(), results.seconds);
    Ok(())
}

/// Tells the person at the terminal what is going on.
pub(crate) fn say(text: &str) {
    eprintln!("{text}");
}
