//! RESULTS.md: cases by walls, made from what was observed, and read back so that each target can be checked on its own.

use std::fmt::Write as _;
use std::process::Command;

use crate::case::{Case, Family, Verdict};
use crate::stage::Observation;
use crate::target::Target;

/// One wall's verdicts, in the order of the cases; `None` where nothing was seen.
pub type Column = Vec<Option<Verdict>>;

/// Begins the one line that differs from machine to machine.
const MADE_ON: &str = "Made on ";
const HEAD: &str = "\
# Results

Written by the suite itself (`cargo xtask conformance`); do not edit. Each case is one attempt; the words say what came of it:
**held**: the attempt was refused or led nowhere. **OPEN**: the attacker had what it wanted. **n/a**: the case makes no sense there.

`local` is no wall at all, run as an ordinary user: an attempt that is held even there says why in the last column. `bubblewrap` is
`bwrap --unshare-all --ro-bind / / --dev /dev --proc /proc --tmpfs /tmp --bind WORKSPACE WORKSPACE` by an ordinary user: a control that tests the
suite, and not a verdict on bubblewrap, which does what its options say. The two `stream` columns are the jail with descriptor passing
switched off: nothing but one byte stream between host and guest, as containers and virtual machines will have it.
The two `template` columns are jails that were cloned from a template.
";

/// What the tests of the binary counted.
const POLICY: &str = include_str!("../policy/results.md");

/// A target's column.
pub fn column(cases: &[Case], observed: &[Observation]) -> Column {
    cases.iter().map(|case| observed.iter().find(|o| o.id == case.id).and_then(|o| o.seen.verdict())).collect()
}

/// The page.
pub fn render(cases: &[Case], columns: &[Column], versions: &str) -> String {
    let mut page = format!("{HEAD}\n{MADE_ON}{versions}.\n\n");
    page.push_str("| | held | open | n/a |\n|---|---|---|---|\n");
    for (target, column) in Target::ALL.iter().zip(columns) {
        let attempts = || cases.iter().zip(column).filter(|(case, _)| case.family != Family::Allowed);
        let count = |verdict| attempts().filter(|(_, seen)| **seen == Some(verdict)).count();
        let (held, open, none) = (count(Verdict::Held), count(Verdict::Open), count(Verdict::NotApplicable));
        let _ = writeln!(page, "| {} | {held} | {open} | {none} |", target.name());
    }
    let controls = cases.iter().filter(|case| case.family == Family::Allowed).count();
    let _ = writeln!(page, "\n{} cases, and {controls} controls: what is allowed gets through.", cases.len() - controls);
    for family in [Family::Escape, Family::Limits, Family::Files, Family::Lifecycle, Family::BadInput, Family::Allowed] {
        let _ = write!(page, "\n## {}\n\n| case | attempt | source |", family.title());
        for target in Target::ALL {
            let _ = write!(page, " {} |", target.name());
        }
        let _ = writeln!(page, " why |\n|---|---|---|{}---|", "---|".repeat(Target::ALL.len()));
        for (index, case) in cases.iter().enumerate().filter(|(_, case)| case.family == family) {
            let _ = write!(page, "| `{}` | {} | {} |", case.id, cell(&case.title), cell(&case.source));
            for column in columns {
                let verdict = column.get(index).copied().flatten();
                let _ = write!(page, " {} |", verdict.map_or("?", |verdict| shown(verdict, family)));
            }
            let _ = writeln!(page, " {} |", cell(&reasons(case)));
        }
    }
    page.push('\n');
    page.push_str(POLICY);
    page
}

fn shown(verdict: Verdict, family: Family) -> &'static str {
    match verdict {
        Verdict::Open if family != Family::Allowed => "**OPEN**",
        _ => verdict.name(),
    }
}

/// Reasons that a case gives, each wall once.
fn reasons(case: &Case) -> String {
    let all = case.expectations().iter().filter(|(_, e)| !e.why.is_empty());
    all.map(|(name, e)| format!("{name}: {}", e.why)).collect::<Vec<_>>().join("; ")
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

/// A target's column as the page has it.
pub fn read_column(page: &str, cases: &[Case], target: Target) -> Column {
    let place = Target::ALL.iter().position(|t| *t == target).unwrap_or(0);
    let of = |case: &Case| {
        let begin = format!("| `{}` |", case.id);
        let line = page.lines().find(|line| line.starts_with(&begin))?;
        // Escaped bars are in the texts before the verdicts only.
        let cells: Vec<&str> = line.split(" | ").collect();
        let word = cells.get(3 + place)?.trim_matches(|c: char| c == '*' || c == ' ' || c == '|').to_lowercase();
        Verdict::named(&word)
    };
    cases.iter().map(of).collect()
}

/// The page without the line that tells one machine from another.
pub fn without_versions(page: &str) -> String {
    page.lines().filter(|line| !line.starts_with(MADE_ON)).collect::<Vec<_>>().join("\n")
}

/// The line of a page that tells one machine from another, so that a page can be rendered again from what it says.
pub fn versions_of(page: &str) -> String {
    let line = page.lines().find_map(|line| line.strip_prefix(MADE_ON)).unwrap_or_default();
    line.strip_suffix('.').unwrap_or(line).to_owned()
}

/// Kernel, machine and the version of the control.
#[expect(clippy::disallowed_methods, reason = "asks the control for its version")]
pub fn versions() -> String {
    let system = rustix::system::uname();
    let kernel: String = system.release().to_string_lossy().split('.').take(2).collect::<Vec<_>>().join(".");
    let bubblewrap = Command::new("bwrap").arg("--version").output();
    let bubblewrap = bubblewrap.map_or_else(|_| "no bubblewrap".into(), |o| String::from_utf8_lossy(&o.stdout).trim().to_owned());
    format!("Linux {kernel}, {}, Stockade {}, {bubblewrap}", system.machine().to_string_lossy(), env!("CARGO_PKG_VERSION"))
}
