//! The repository's own tool. `cargo xtask` lists what it does.
//!
//! One file per subcommand, std only. It runs programs on the developer's machine and prints to its terminal; nothing in
//! it is part of what users install.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a build tool talks to the terminal")]
#![expect(clippy::disallowed_methods, reason = "a build tool runs cargo and reads the environment of its developer")]

mod advisories;
mod agents;
mod bench;
mod conformance;
mod deny;
mod docs;
mod failure;
mod fuzz;
mod process;
mod soak;
mod terminal;
mod test;
mod tidy;
mod workspace;

use std::process::ExitCode;

use failure::Failure;
use workspace::Workspace;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  test [--fast]    everything that must hold: format, house rules, lints, tests, reference, supply chain
                   --fast leaves out the reference and the supply chain
  soak [--short] [--rounds N] [--seed S] [--round N] [LOOP…]
                   fault loops as root: kills, shortages, and a count of what is left
  tidy             the house rules alone
  docs [--check]   write docs/reference from the built binary; --check fails where it differs
  conformance [--check]
                   run the suite of conformance/ on every wall and write its RESULTS.md; --check fails where it differs
  deny             bans, licences, sources and advisories of the dependencies
  agents           install the agents that tests drive (npm, PyPI), and say where they are
  bench [--help]   measure against peers; writes benches/RESULTS.md
  fuzz [TARGET…] [--minutes M]
                   libFuzzer on each target, ten minutes each unless told otherwise; needs a nightly toolchain";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match dispatch(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{} {failure}", terminal::red("error:"));
            ExitCode::FAILURE
        }
    }
}

fn dispatch(words: &[&str]) -> Result<(), Failure> {
    let workspace = Workspace::find()?;
    match words {
        ["test"] => test::run(&workspace, test::Extent::Full),
        ["test", "--fast"] => test::run(&workspace, test::Extent::Fast),
        ["tidy"] => tidy::run(&workspace).map(|summary| println!("{summary}")),
        ["docs"] => docs::run(&workspace, docs::Mode::Write).map(|summary| println!("{summary}")),
        ["docs", "--check"] => docs::run(&workspace, docs::Mode::Check).map(|summary| println!("{summary}")),
        ["agents"] => {
            agents::install(&workspace).map(|all| all.iter().for_each(|one| println!("{} {}", one.name, one.directory.display())))
        }
        ["bench", words @ ..] => bench::run(&workspace, words),
        ["fuzz", rest @ ..] => fuzz::run(&workspace, &fuzz::Wish::parse(rest)?),
        ["conformance"] => conformance::run(&workspace, conformance::Mode::Write),
        ["conformance", "--check"] => conformance::run(&workspace, conformance::Mode::Check),
        ["soak", rest @ ..] => soak::run(&workspace, rest),
        ["deny"] => deny::run(&workspace).map(|summary| println!("{summary}")),
        ["help" | "--help" | "-h"] | [] => {
            println!("{USAGE}");
            Ok(())
        }
        other => Err(Failure::new(format!("unknown arguments `{}`\n\n{USAGE}", other.join(" ")))),
    }
}
