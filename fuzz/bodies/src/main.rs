//! The bodies without libFuzzer: names them, writes their seeds, tries a file. `cargo xtask fuzz` uses the first two; the last is how a
//! finding is looked at on stable Rust.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a tool for developers talks to the terminal")]

use std::path::Path;
use std::process::ExitCode;

use stockade_fuzz::TARGETS;

const USAGE: &str = "usage: stockade-fuzz list | seeds DIRECTORY | try TARGET FILE…";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["list"] => {
            for target in TARGETS {
                println!("{}", target.name);
            }
            Ok(())
        }
        ["seeds", directory] => write_seeds(Path::new(directory)),
        ["try", target, files @ ..] => try_files(target, files),
        _ => Err(USAGE.to_owned()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

/// `DIRECTORY/TARGET/seed-N`.
fn write_seeds(directory: &Path) -> Result<(), String> {
    for target in TARGETS {
        let place = directory.join(target.name);
        std::fs::create_dir_all(&place).map_err(|error| format!("making {}: {error}", place.display()))?;
        for (number, seed) in (target.seeds)().iter().enumerate() {
            let path = place.join(format!("seed-{number:02}"));
            std::fs::write(&path, seed).map_err(|error| format!("writing {}: {error}", path.display()))?;
        }
    }
    Ok(())
}

fn try_files(name: &str, files: &[&str]) -> Result<(), String> {
    let target = TARGETS.iter().find(|target| target.name == name).ok_or_else(|| format!("there is no target `{name}`"))?;
    for file in files {
        let bytes = std::fs::read(file).map_err(|error| format!("reading {file}: {error}"))?;
        (target.body)(&bytes);
        println!("{file}: holds");
    }
    Ok(())
}
