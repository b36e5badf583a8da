//! A hostile program: tries one thing after another and says, one JSON line each, what was open and what held.
//!
//! ```text
//! stockade-probe try FACT=VALUE… -- ATTEMPT…    each attempt in a process of its own, so that none disturbs the next
//! stockade-probe decoy FACT=VALUE…              the victim: runs OUTSIDE the wall and offers what must not be reached
//! stockade-probe swap ONE OTHER                 exchanges two names without end, for races against whoever looks at them
//! stockade-probe list                           the names of all attempts
//! ```
//!
//! Static and without any library from outside, so that it can be copied into every Linux root. It knows nothing of walls and expects
//! nothing: what ought to hold is in the cases. Every attempt is harmless where it gets through: it acts on the decoy, on itself, or on
//! directories that were made for it. Even so: never run it as root outside a sandbox.

#![expect(clippy::print_stdout, reason = "its output is what it is for")]
#![expect(clippy::disallowed_methods, reason = "an attacker connects, listens and starts programs as it can")]
#![cfg_attr(not(target_os = "linux"), expect(unused, reason = "it is a Linux program"))]

mod attempts;
mod call;
mod decoy;
mod facts;
mod finding;
mod isolate;

use std::process::ExitCode;

use facts::Facts;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["list"] => {
            for (name, _) in attempts::all() {
                println!("{name}");
            }
            ExitCode::SUCCESS
        }
        ["swap", one, other] => {
            swap(one, other);
            ExitCode::SUCCESS
        }
        ["decoy", given @ ..] => decoy::run(&Facts::parse(given)),
        ["try", rest @ ..] => {
            let cut = rest.iter().position(|word| *word == "--").unwrap_or(rest.len());
            let (given, names) = rest.split_at(cut);
            let facts = Facts::parse(given);
            for name in names.iter().skip(1) {
                let finding = match attempts::find(name) {
                    Some(attempt) => isolate::run(attempt, &facts),
                    None => finding::Finding::Broken("there is no such attempt".into()),
                };
                println!("{}", finding.to_json(name));
            }
            ExitCode::SUCCESS
        }
        _ => {
            println!("usage: stockade-probe try FACT=VALUE… -- ATTEMPT… | decoy FACT=VALUE… | swap ONE OTHER | list");
            ExitCode::from(2)
        }
    }
}

/// Ends when one of the names is gone, or after a minute and a half.
fn swap(one: &str, other: &str) {
    let here = i64::from(libc::AT_FDCWD);
    let (one, other) = (call::text(one), call::text(other));
    call::alarm(90);
    while call::raw(libc::SYS_renameat2, &[here, call::pointer(&one), here, call::pointer(&other), i64::from(libc::RENAME_EXCHANGE)])
        .is_ok()
    {}
}
