//! `fuzz`: runs the libFuzzer targets of `fuzz/`, one after the other, and says what came of each.
//!
//! Needs a nightly toolchain (libFuzzer's instrumentation is unstable); cargo-fuzz is built once into the cache outside the clone. Started by
//! root, the fuzzers run as an ordinary user in a directory of their own: what an input breaks must not be the machine. New inputs go to
//! `fuzz/corpus`, those that break a promise to `fuzz/artifacts`; neither is committed.

mod stage;
mod summary;

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::Failure;
use crate::process::{self, Watched};
use crate::terminal;
use crate::workspace::{Workspace, cache_directory};
use stage::Stage;
use summary::Summary;

const VERSION: &str = "0.13.2";
/// The longest input: what a socket holds without anybody reading.
const LONGEST_INPUT: usize = 64 << 10;
/// A single input that takes longer is a finding.
const SECONDS_PER_INPUT: u32 = 20;
/// So is one that makes the code ask for more memory than this at once.
const MEBIBYTES_AT_ONCE: u32 = 256;

/// What to run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Wish {
    targets: Vec<String>,
    minutes: u32,
}

impl Wish {
    /// Reads `[TARGET…] [--minutes M]`.
    pub(crate) fn parse(words: &[&str]) -> Result<Self, Failure> {
        let mut wish = Self { targets: Vec::new(), minutes: 10 };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if *word == "--minutes" {
                let minutes = words.next().and_then(|text| text.parse().ok()).filter(|minutes| *minutes > 0);
                wish.minutes = minutes.ok_or_else(|| Failure::new("`--minutes` needs a whole number above 0"))?;
            } else if word.starts_with('-') {
                return Err(Failure::new(format!("unknown flag `{word}`: cargo xtask fuzz [TARGET…] [--minutes M]")));
            } else {
                wish.targets.push((*word).to_owned());
            }
        }
        Ok(wish)
    }
}

/// Builds and runs; fails if any target found something.
pub(crate) fn run(workspace: &Workspace, wish: &Wish) -> Result<(), Failure> {
    let bodies = |words: &[&str]| {
        let mut command = workspace.cargo();
        command.args(["run", "--quiet", "--locked", "--profile", "ci", "--package", "stockade-fuzz", "--"]).args(words);
        command
    };
    let known = process::output(&mut bodies(&["list"]))?;
    let known: Vec<&str> = known.lines().collect();
    if let Some(unknown) = wish.targets.iter().find(|target| !known.contains(&target.as_str())) {
        return Err(Failure::new(format!("there is no target `{unknown}`; there are {}", known.join(", "))));
    }
    let directory = build(workspace)?;
    let stage = Stage::new(&workspace.root().join("fuzz"))?;
    process::run(bodies(&["seeds"]).arg(stage.seeds()))?;
    let mut summaries = Vec::new();
    for target in known.iter().filter(|target| wish.targets.is_empty() || wish.targets.iter().any(|wanted| wanted == *target)) {
        println!("\n{}", terminal::bold(&format!("── {target}")));
        summaries.push(fuzz(&stage, &directory, target, wish.minutes)?);
    }
    println!("\n{}", summary::table(&summaries));
    match summaries.iter().filter(|summary| summary.findings > 0).count() {
        0 => Ok(()),
        count => {
            Err(Failure::new(format!("{count} targets found something: look at it with `cargo run -p stockade-fuzz -- try TARGET FILE`")))
        }
    }
}

fn fuzz(stage: &Stage, binaries: &Path, target: &str, minutes: u32) -> Result<Summary, Failure> {
    let place = stage.prepare(target, &binaries.join(target))?;
    let mut command = stage.command(&place.program);
    command.args([&place.corpus, &place.regressions]);
    command.arg(format!("-max_total_time={}", u64::from(minutes) * 60));
    command.arg(format!("-max_len={LONGEST_INPUT}")).arg(format!("-timeout={SECONDS_PER_INPUT}"));
    command.arg(format!("-malloc_limit_mb={MEBIBYTES_AT_ONCE}")).arg(format!("-artifact_prefix={}/", place.artifacts.display()));
    command.arg(format!("-report_slow_units={SECONDS_PER_INPUT}")).arg("-print_final_stats=1");
    let mut summary = Summary::new(target);
    // It ends with an error where it found something; the files say what.
    let ended = process::watch(&mut command, Watched::Stderr, |line| summary.read(line));
    summary.findings = stage.take_back(target, &place)?;
    match ended {
        Err(failure) if summary.findings == 0 => Err(failure),
        Ok(()) | Err(_) => Ok(summary),
    }
}

/// Builds every target and returns where the programs are.
fn build(workspace: &Workspace) -> Result<PathBuf, Failure> {
    let tool = installed_tool(workspace)?;
    let target = workspace.target_directory().join("fuzz");
    // Through rustup, which knows what `+nightly` is; the cargo that runs this tool does not.
    let mut command = Command::new("rustup");
    command.current_dir(workspace.root()).env("CARGO_TARGET_DIR", &target);
    command.args(["run", "nightly"]).arg(tool).args(["build", "--fuzz-dir", "fuzz"]);
    process::run(&mut command)?;
    Ok(target.join(format!("{}-unknown-linux-gnu", std::env::consts::ARCH)).join("release"))
}

/// The tool from the cache, built there first if this machine has not got it.
fn installed_tool(workspace: &Workspace) -> Result<PathBuf, Failure> {
    let cache = cache_directory()?;
    let root = cache.join("tools").join(format!("cargo-fuzz-{VERSION}"));
    let tool = root.join("bin").join("cargo-fuzz");
    if !tool.is_file() {
        println!("building cargo-fuzz {VERSION} into {} (once per machine)", root.display());
        let mut install = workspace.cargo();
        install.env("CARGO_TARGET_DIR", cache.join("tools").join("target"));
        install.args(["install", "--quiet", "--locked", "cargo-fuzz", "--version", VERSION, "--root"]).arg(&root);
        process::run(&mut install)?;
    }
    Ok(tool)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_and_minutes_are_read() {
        let check = |words: &[&str], targets: &[&str], minutes| {
            let targets = targets.iter().map(|target| (*target).to_owned()).collect();
            assert_eq!(Wish::parse(words).unwrap(), Wish { targets, minutes });
        };
        check(&[], &[], 10);
        check(&["wire", "--minutes", "3", "host"], &["wire", "host"], 3);
        for bad in [&["--minutes"][..], &["--minutes", "0"], &["--jobs"]] {
            assert!(Wish::parse(bad).is_err(), "{bad:?}");
        }
    }
}
