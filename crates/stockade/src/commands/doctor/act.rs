//! Does what a plan of changes says: shows it, asks, does it, and says what came of each change.
//!
//! The only place in the program that runs programs of the host or writes outside the person's own directories, and only after
//! `--fix` and a yes. What needs root is not tried without it: the one command that does it is printed.

use std::io::{BufRead, IsTerminal, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::Stdio;

use serde::Serialize;
use stockade_sandbox::surroundings::facts::Facts;
use stockade_store::private_dir::ensure_private_dir;

use super::change::{self, Change, Deed, Machine, Needs};
use crate::Context;
use crate::failure::Failure;

/// More of an answer than this is no answer.
const MOST_ANSWER: u64 = 16;

/// What came of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "state", content = "error")]
enum Outcome {
    Done,
    NeedsRoot,
    Failed(String),
}

/// A change and what came of it.
#[derive(Debug, Serialize)]
pub(super) struct Fixed {
    #[serde(flatten)]
    change: Change,
    #[serde(flatten)]
    outcome: Outcome,
}

/// Plans, shows, asks and changes.
pub(super) fn fix(yes: bool, context: &Context) -> Result<Vec<Fixed>, Failure> {
    let places = context.places()?;
    let failed = |message: String| Failure::new("fix", message);
    let program = std::env::current_exe().map_err(|e| failed(format!("finding this program: {e}")))?;
    let user = context.environment.variable("SUDO_UID").and_then(|id| id.to_str()?.parse().ok());
    let mut changes = change::own(places, is_private);
    changes.extend(change::plan(&Facts::gather(), &program, user, &Machine).map_err(failed)?);
    if changes.is_empty() {
        context.printer.note("nothing to fix");
        return Ok(Vec::new());
    }
    show(&changes, &program, context);
    if !yes && !confirmed(context)? {
        return Err(failed("nothing was changed".into()).with_hint("stockade doctor --fix --yes"));
    }
    let root = rustix::process::geteuid().is_root();
    let mut fixed = Vec::new();
    for change in changes {
        let outcome = match (change.needs, root) {
            (Needs::Root, false) => Outcome::NeedsRoot,
            (Needs::Root, true) | (Needs::Anybody, _) => match act(&change.deed) {
                Ok(()) => Outcome::Done,
                Err(why) => {
                    context.printer.warning(format!("{}: {why}", title(&change.deed)));
                    Outcome::Failed(why)
                }
            },
        };
        fixed.push(Fixed { change, outcome });
    }
    if fixed.iter().any(|f| f.outcome == Outcome::NeedsRoot) {
        context.printer.note(format!("the rest needs root: sudo {} doctor --fix", program.display()));
    }
    Ok(fixed)
}

fn show(changes: &[Change], program: &Path, context: &Context) {
    for change in changes {
        let who = if change.needs == Needs::Root { " (as root)" } else { "" };
        context.printer.note(format!("{}{who}: {}", title(&change.deed), change.why));
        if let Deed::Write { contents, .. } = &change.deed {
            for line in contents.lines() {
                context.printer.note(format!("  | {line}"));
            }
        }
    }
    let profiled = changes.iter().any(|c| matches!(&c.deed, Deed::Run { argv } if argv.iter().any(|word| word == "-r")));
    if profiled && is_writable_by_others(program) {
        context
            .printer
            .warning(format!("whoever can replace `{}` gets what the profile gives; /usr/local/bin is a better place", program.display()));
    }
}

fn title(deed: &Deed) -> String {
    match deed {
        Deed::Write { path, .. } => format!("write {}", path.display()),
        Deed::Set { path, value } => format!("set {} to {value}", path.display()),
        Deed::Run { argv } => format!("run {}", argv.join(" ")),
        Deed::Private { path } => format!("make {} private", path.display()),
    }
}

fn confirmed(context: &Context) -> Result<bool, Failure> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return Ok(false);
    }
    context.printer.note("change this? [y/N]");
    let mut answer = String::new();
    stdin.lock().take(MOST_ANSWER).read_line(&mut answer).map_err(|e| Failure::new("fix", format!("reading the answer: {e}")))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn act(deed: &Deed) -> Result<(), String> {
    match deed {
        Deed::Write { path, contents } => replace(path, contents).map_err(|e| e.to_string()),
        Deed::Set { path, value } => std::fs::write(path, value).map_err(|e| e.to_string()),
        Deed::Run { argv } => start(argv),
        Deed::Private { path } => ensure_private_dir(path).map_err(|e| e.to_string()),
    }
}

/// Writes beside the file and renames, so that nobody ever reads half of it and no link is followed.
fn replace(path: &Path, contents: &str) -> std::io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    std::fs::DirBuilder::new().recursive(true).mode(0o755).create(directory)?;
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".new");
    let beside = directory.join(name);
    // What an earlier attempt left.
    let _ = std::fs::remove_file(&beside);
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o644).open(&beside)?;
    file.write_all(contents.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&beside, path)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the two tools of the administrator's that load what was written, by absolute path, after a yes"
)]
fn start(argv: &[String]) -> Result<(), String> {
    let (program, words) = argv.split_first().ok_or("no program")?;
    let mut command = std::process::Command::new(program);
    let output = command.args(words).env_clear().stdin(Stdio::null()).output().map_err(|e| format!("{program}: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{}: {}", output.status, said.lines().last().unwrap_or_default()))
}

fn is_private(path: &Path) -> bool {
    let us = rustix::process::geteuid().as_raw();
    std::fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir() && meta.uid() == us && meta.mode() & 0o7777 == 0o700)
}

/// Whether somebody other than root can put another program in its place.
fn is_writable_by_others(program: &Path) -> bool {
    program
        .ancestors()
        .any(|path| std::fs::symlink_metadata(path).is_ok_and(|meta| meta.uid() != 0 || meta.mode() & 0o022 != 0 && !meta.is_symlink()))
}
