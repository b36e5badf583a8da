//! The program that runs behind the wall, and the judgement of what it saw there.
//!
//! It first says in one line what holds it, then writes. A run may be refused or cut short, but a line that shows less wall than a run
//! without any fault is a finding.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::bounded::{End, Outcome};

/// Namespaces that must not be shared with the machine.
const NAMESPACES: [&str; 6] = ["user", "mnt", "pid", "net", "ipc", "uts"];
/// Every line begins with this word and ends with the next.
const FIRST: &str = "wall";
const LAST: &str = "end";

/// A shell script that says what holds it and then does this. One that cannot look (its `readlink` was killed) says nothing.
pub fn script(secret: &Path, then: &str) -> String {
    let namespaces = NAMESPACES.map(|name| format!("/proc/self/ns/{name}")).join(" ");
    format!(
        "set -f; status=; while read -r key value; do case $key in NoNewPrivs:|Seccomp:|CapEff:|CapBnd:) status=\"$status $key$value\";; esac; \
         done </proc/self/status; seen=hidden; [ -e {secret} ] && seen=SEEN; \
         spaces=$(readlink {namespaces}) || kill -9 $$; echo {FIRST}$status $spaces $seen {LAST}; {then}",
        secret = secret.display()
    )
}

/// What is wrong with what a program said about its wall; nothing where it said nothing, because it did not get that far.
pub fn judge(said: &str) -> Vec<String> {
    let lines = said.lines().filter(|line| line.starts_with(FIRST) && line.ends_with(LAST));
    lines.flat_map(judge_line).collect()
}

/// Whether a program said anything: it ran.
pub fn has_run(said: &str) -> bool {
    said.lines().any(|line| line.starts_with(FIRST) && line.ends_with(LAST))
}

fn judge_line(line: &str) -> Vec<String> {
    let words: Vec<&str> = line.split(' ').collect();
    let mut wrong = Vec::new();
    for wanted in ["NoNewPrivs:1", "Seccomp:2", "CapEff:0000000000000000", "CapBnd:0000000000000000", "hidden"] {
        if !words.contains(&wanted) {
            wrong.push(format!("a program ran without `{wanted}`: {line}"));
        }
    }
    for name in NAMESPACES {
        let own = fs::read_link(format!("/proc/self/ns/{name}")).map(|to| to.to_string_lossy().into_owned()).unwrap_or_default();
        let inside = words.iter().find(|word| word.starts_with(&format!("{name}:[")));
        if inside.is_none_or(|inside| *inside == own) {
            wrong.push(format!("a program ran in the machine's own `{name}` namespace: {line}"));
        }
    }
    wrong
}

/// A run that a fault came to in the middle: it ends by itself, in the program's way or in Stockade's own with a word about the step.
pub fn judge_end(outcome: &Outcome, through: &[i32]) -> Vec<String> {
    let mut wrong = judge(&outcome.stdout);
    match &outcome.end {
        End::Code(code) if through.contains(code) && has_run(&outcome.stdout) => {}
        End::Code(_) | End::Signal(_) | End::Hung(_) => wrong.extend(judge_refusal(outcome)),
    }
    wrong
}

/// A run with `--json` under a fault from its beginning: what held is what holds without a fault, or it was refused.
pub fn judge_result(outcome: &Outcome, sound: &Value) -> Vec<String> {
    let told: Value = serde_json::from_str(&outcome.stdout).unwrap_or(Value::Null);
    let Some(enforcement) = told.get("enforcement") else {
        return judge_refusal(outcome);
    };
    let mut wrong = judge(told.get("stdout").and_then(Value::as_str).unwrap_or_default());
    if enforcement != sound {
        wrong.push(format!("it ran with less wall than without a fault: {enforcement} instead of {sound}"));
    }
    if let End::Hung(story) = &outcome.end {
        wrong.push(format!("it hung: {story}"));
    }
    wrong
}

/// A refusal has a code of Stockade's own, and says why: as text, or with `--json` as an error with its step.
fn judge_refusal(outcome: &Outcome) -> Vec<String> {
    let told: Value = serde_json::from_str(&outcome.stdout).unwrap_or(Value::Null);
    let has_step =
        told.pointer("/error/step").is_some_and(Value::is_string) && told.pointer("/error/message").is_some_and(Value::is_string);
    match &outcome.end {
        End::Hung(story) => vec![format!("it hung: {story}")],
        _ if outcome.stderr.contains("panicked") => vec![format!("it panicked: {}", outcome.stderr.trim_end())],
        // The C library stops a program whose libraries it cannot load, with 127 and its own words.
        End::Code(125..=127) if has_step || !outcome.stderr.trim().is_empty() => Vec::new(),
        end => vec![format!("{end:?} with `{}` and `{}`", outcome.stdout.trim_end(), outcome.stderr.trim_end())],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wall_with_a_hole_is_a_finding() {
        let spaces = NAMESPACES.map(|name| format!("{name}:[1]")).join(" ");
        let good = format!("wall NoNewPrivs:1 Seccomp:2 CapEff:0000000000000000 CapBnd:0000000000000000 {spaces} hidden end");
        assert_eq!(judge(&good), Vec::<String>::new());
        for (from, to) in [("Seccomp:2", "Seccomp:0"), ("NoNewPrivs:1", "NoNewPrivs:0"), ("hidden", "SEEN"), ("net:[1] ", "")] {
            assert_eq!(judge(&good.replace(from, to)).len(), 1, "{from} → {to}");
        }
        let own = fs::read_link("/proc/self/ns/net").expect("a namespace");
        assert_eq!(judge(&good.replace("net:[1]", &own.to_string_lossy())).len(), 1);
        // Cut in the middle of the line, nothing can be said.
        assert_eq!(judge("wall NoNewPrivs:0"), Vec::<String>::new());
    }
}
