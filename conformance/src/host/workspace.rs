//! Traps that a program leaves in a workspace for whoever works there later, outside.

use stockade_sandbox::once::OnSuccess;

use crate::case::Ground;
use crate::error::SuiteError;
use crate::stage::Seen;
use crate::target::Target;
use crate::wall::Wall;

use super::{Came, Function, Outside, open_if, shell};

pub(super) const TABLE: &[(&str, Function)] = &[
    ("create_missing_settings", create_missing_settings),
    ("change_git_settings", change_git_settings),
    ("rename_git_away", rename_git_away),
    ("apply_protected", apply_protected),
    ("ghost_files", ghost_files),
    ("overlay_keeps_apart", overlay_keeps_apart),
];

/// Files that run code outside later, none of which exists before.
const TRAPS: [&str; 10] = [
    ".envrc",
    ".mcp.json",
    ".claude/settings.json",
    ".codex/config.toml",
    ".cursor/mcp.json",
    ".vscode/tasks.json",
    ".github/hooks/evil.json",
    ".tool-versions",
    ".husky/pre-commit",
    ".git/hooks/pre-commit",
];

/// One command, written through, on any wall.
fn written_through(outside: &Outside<'_>, work: &std::path::Path, script: &str) -> Result<String, SuiteError> {
    if outside.target == Target::Bubblewrap {
        let ran = Wall::start(outside.target, outside.lab, work, Ground::Rw)?.run(&shell(script))?;
        return Ok(format!("{:?}", ran.ending));
    }
    outside.once(work, Ground::Rw, script, OnSuccess::Keep).map(|done| format!("{:?} {:?}", done.outcome.ending, done.violations))
}

/// CVE-2026-25725: settings that did not exist at the start could be made.
fn create_missing_settings(outside: &Outside<'_>) -> Came {
    let work = outside.place()?.join("ws");
    let make = TRAPS.map(|trap| format!("mkdir -p \"$(dirname {trap})\"; echo evil > {trap}; ")).concat();
    let detail = written_through(outside, &work, &format!("{make} echo fine > fine"))?;
    if !work.join("fine").exists() {
        return Ok((Seen::Broken, detail));
    }
    let left: Vec<&str> = TRAPS.into_iter().filter(|trap| work.join(trap).exists()).collect();
    Ok(open_if(!left.is_empty(), format!("left: {left:?}; {detail}")))
}

fn change_git_settings(outside: &Outside<'_>) -> Came {
    let work = outside.place()?.join("ws");
    let before = std::fs::read(work.join(".git/config")).map_err(SuiteError::file("read", &work))?;
    let script = "git config core.fsmonitor ./evil; git config alias.st '!evil'; printf '[core]\\n\\tpager = evil\\n' >> .git/config; rm -f .git/config; cp f .git/config";
    let detail = written_through(outside, &work, script)?;
    let after = std::fs::read(work.join(".git/config")).unwrap_or_default();
    Ok(open_if(before != after, detail))
}

/// The directory that holds the protected files is renamed and another put in its place.
fn rename_git_away(outside: &Outside<'_>) -> Came {
    let work = outside.place()?.join("ws");
    let before = std::fs::read(work.join(".git/config")).map_err(SuiteError::file("read", &work))?;
    let detail = written_through(
        outside,
        &work,
        "mv .git aside; cp -r aside .git; printf '[core]\\n\\tpager = evil\\n' > .git/config; mkdir -p .git/hooks; echo x > .git/hooks/pre-commit",
    )?;
    let after = std::fs::read(work.join(".git/config")).unwrap_or_default();
    Ok(open_if(before != after || work.join(".git/hooks/pre-commit").exists(), detail))
}

/// Changes that are brought back without a word about protected ones leave those behind.
fn apply_protected(outside: &Outside<'_>) -> Came {
    let work = outside.place()?.join("ws");
    let script = "echo evil > .envrc; echo evil > .git/hooks/pre-commit; mkdir -p .claude; echo '{}' > .claude/settings.json; cp /bin/true suid; ln -s ../out/keep link; mkfifo pipe; echo fine > fine";
    let done = outside.once(&work, Ground::Shared, script, OnSuccess::Apply)?;
    if !work.join("fine").exists() {
        return Ok((Seen::Broken, format!("{:?} {:?}", done.outcome.ending, done.violations)));
    }
    let left: Vec<&str> = [".envrc", ".git/hooks/pre-commit", ".claude/settings.json", "pipe"]
        .into_iter()
        .filter(|p| work.join(p).symlink_metadata().is_ok())
        .collect();
    Ok(open_if(!left.is_empty(), format!("left: {left:?}")))
}

/// srt's ghost files: names that a wall makes in the workspace in order to forbid them.
fn ghost_files(outside: &Outside<'_>) -> Came {
    let work = outside.place()?.join("ws");
    let names = || {
        let mut names: Vec<_> = std::fs::read_dir(&work).into_iter().flatten().flatten().map(|e| e.file_name()).collect();
        names.sort();
        names
    };
    let before = names();
    let (during, after) = if outside.target == Target::Bubblewrap {
        Wall::start(outside.target, outside.lab, &work, Ground::Rw)?.run(&shell("true"))?;
        (names(), names())
    } else {
        let mut standing = outside.stand(&work, Ground::Rw)?;
        standing.run(&shell("true"))?;
        let during = names();
        drop(standing);
        (during, names())
    };
    Ok(open_if(before != during || before != after, format!("{during:?}")))
}

/// Writes in an overlay are not on the host.
fn overlay_keeps_apart(outside: &Outside<'_>) -> Came {
    let work = outside.place()?.join("ws");
    let mut wall = Wall::start(outside.target, outside.lab, &work, Ground::Shared)?;
    wall.run(&shell("echo changed > f; echo new > n; rm -rf .git"))?;
    drop(wall);
    let same = std::fs::read(work.join("f")).is_ok_and(|b| b == b"hello\n") && !work.join("n").exists() && work.join(".git/HEAD").exists();
    Ok(open_if(!same, "the workspace afterwards"))
}
