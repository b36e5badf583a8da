//! The runner: `run TARGET [ID]`, `write`, `check`. `cargo xtask conformance` calls it.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a developer's tool talks to the terminal")]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use stockade_conformance::target::Target;
use stockade_conformance::{SuiteError, case, deviations, observe, page, worker};

const USAGE: &str = "\
usage: stockade-conformance COMMAND

  run TARGET [PREFIX]   run the cases whose id begins with PREFIX, print each, fail if one deviates
  write                 run everything and write RESULTS.md
  check                 run everything and fail where RESULTS.md differs
  list                  the targets";

/// This package in the clone that it was called in, which need not be the one it was compiled in.
#[expect(clippy::disallowed_methods, reason = "cargo says where the package is")]
fn directory() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match dispatch(&words) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(words: &[&str]) -> Result<bool, SuiteError> {
    match words {
        ["worker", target, base, only] => {
            let target = named(target)?;
            worker::work(target, Path::new(base), only, &mut std::io::stdout().lock()).map(|()| true)
        }
        ["owner", target, base, work, script] => worker::own(named(target)?, Path::new(base), Path::new(work), script).map(|()| true),
        ["run", target] => run(named(target)?, ""),
        ["run", target, only] => run(named(target)?, only),
        ["write"] => everything(Mode::Write),
        ["check"] => everything(Mode::Check),
        ["list"] => {
            for target in Target::ALL {
                println!("{}", target.name());
            }
            Ok(true)
        }
        _ => {
            println!("{USAGE}");
            Ok(words.is_empty())
        }
    }
}

fn named(name: &str) -> Result<Target, SuiteError> {
    Target::named(name).ok_or_else(|| SuiteError::Program { step: "arguments", why: format!("`{name}` is no target; `list` names them") })
}

fn runner() -> Result<PathBuf, SuiteError> {
    std::env::current_exe().map_err(|e| SuiteError::Program { step: "finding this program", why: e.to_string() })
}

fn run(target: Target, only: &str) -> Result<bool, SuiteError> {
    let observed = observe(target, &runner()?, only)?;
    for one in &observed {
        println!("{:<44} {:?}: {}", one.id, one.seen, one.detail.replace('\n', " "));
    }
    let cases: Vec<_> = case::all()?.into_iter().filter(|c| c.id.starts_with(only)).collect();
    let wrong = deviations(&cases, target, &observed);
    for line in &wrong {
        println!("DEVIATES {line}");
    }
    println!("{}: {} cases, {} deviate", target.name(), cases.len(), wrong.len());
    Ok(wrong.is_empty())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Write,
    Check,
}

fn everything(mode: Mode) -> Result<bool, SuiteError> {
    let cases = case::all()?;
    let mut columns = Vec::new();
    let mut fine = true;
    for target in Target::ALL {
        let observed = observe(target, &runner()?, "")?;
        for line in deviations(&cases, target, &observed) {
            println!("{}: {line}", target.name());
            fine = false;
        }
        println!("{}: {} cases", target.name(), observed.len());
        columns.push(page::column(&cases, &observed));
    }
    let text = page::render(&cases, &columns, &page::versions());
    let path = directory().join("RESULTS.md");
    let old = std::fs::read_to_string(&path).unwrap_or_default();
    match mode {
        Mode::Write => std::fs::write(&path, text).map_err(|source| SuiteError::File { step: "write", path, source })?,
        Mode::Check if page::without_versions(&old) != page::without_versions(&text) => {
            println!("conformance/RESULTS.md is not what was observed: cargo xtask conformance");
            fine = false;
        }
        Mode::Check => {}
    }
    Ok(fine)
}
