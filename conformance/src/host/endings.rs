//! The end of a sandbox, however it comes: nothing that it started is left.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use stockade_sandbox::once::OnSuccess;
use stockade_sandbox::state::Sandboxes;
use stockade_sandbox::sweep;

use crate::case::Ground;
use crate::error::SuiteError;
use crate::lab::Lab;
use crate::stage::Seen;
use crate::target::Target;
use crate::wall::Wall;

use super::{Came, Function, Outside, clean_up, eventually, open_if, processes_with, shell, unique_seconds};

pub(super) const TABLE: &[(&str, Function)] = &[
    ("daemon_outlives", daemon_outlives),
    ("owner_killed", owner_killed),
    ("nothing_left", nothing_left),
    ("output_held_open", output_held_open),
    ("kill_the_first", kill_the_first),
    ("kill_everything", kill_everything),
    ("hostile_leftovers", hostile_leftovers),
];

/// How often an owner is killed.
const KILLS: usize = 10;

/// Double fork, own session, signals ignored; the script ends when all of it runs, however busy the machine is.
fn daemon(seconds: &str) -> String {
    let inner = format!("trap \"\" TERM INT HUP; (setsid sleep {seconds} &); touch up; exec sleep {seconds}");
    format!("(setsid bash -c '{inner}' > /dev/null 2>&1 < /dev/null &); while [ ! -e up ]; do sleep 0.02; done")
}

fn daemon_outlives(outside: &Outside<'_>) -> Came {
    let work = outside.place()?.join("ws");
    let seconds = unique_seconds();
    let mut wall = Wall::start(outside.target, outside.lab, &work, Ground::Shared)?;
    wall.run(&shell(&daemon(&seconds)))?;
    drop(wall);
    let gone = eventually(|| processes_with(&seconds).is_empty());
    clean_up(&seconds);
    Ok(open_if(!gone, format!("all gone: {gone}")))
}

/// Ten owners, each killed while its sandbox runs. Afterwards the next start removes what they left on disk.
fn owner_killed(outside: &Outside<'_>) -> Came {
    let place = outside.place()?;
    let seconds = unique_seconds();
    let before = ids(outside.lab)?;
    let mut left = 0;
    for _ in 0..KILLS {
        kill_one(outside, &place.join("ws"), &seconds)?;
        if !eventually(|| processes_with(&seconds).is_empty()) {
            // One is enough to know.
            left += 1;
            clean_up(&seconds);
            break;
        }
    }
    if outside.target == Target::Bubblewrap || outside.target == Target::Local {
        return Ok(open_if(left > 0, format!("left processes: {left}")));
    }
    let made: Vec<String> = ids(outside.lab)?.into_iter().filter(|id| !before.contains(id)).collect();
    if left == 0 && made.len() < KILLS {
        return Ok((Seen::Broken, format!("{} directories of {KILLS} owners", made.len())));
    }
    let swept = sweep(outside.lab, &made)?;
    Ok(open_if(left > 0 || !swept.is_empty(), format!("{left} of {KILLS} left processes; on disk: {swept:?}")))
}

/// Starts an owner, waits until its program runs, and kills it with the signal that nobody can answer.
#[expect(clippy::disallowed_methods, reason = "the owner is this program itself, or the control")]
fn kill_one(outside: &Outside<'_>, work: &std::path::Path, seconds: &str) -> Result<(), SuiteError> {
    let failed = |why: String| SuiteError::Program { step: "starting an owner", why };
    let script = format!("(setsid sleep {seconds} > /dev/null 2>&1 < /dev/null &); echo up; sleep {seconds}");
    let mut command = if outside.target == Target::Bubblewrap {
        let mut command = Command::new("bwrap");
        command.args(["--unshare-all", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--bind"]);
        command.arg(work).arg(work).args(["--", "bash", "-c", &script]);
        command
    } else {
        let this = std::env::current_exe().map_err(|e| failed(e.to_string()))?;
        let mut command = Command::new(this);
        command.arg("owner").arg(outside.target.name()).arg(&outside.lab.base).arg(work).arg(&script);
        command
    };
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(|e| failed(e.to_string()))?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut line).map_err(|e| failed(e.to_string()))?;
    }
    child.kill().and_then(|()| child.wait()).map_err(|e| failed(e.to_string()))?;
    if line == "up\n" { Ok(()) } else { Err(failed(format!("it said {line:?}"))) }
}

fn ids(lab: &Lab) -> Result<Vec<String>, SuiteError> {
    let ids = Sandboxes::open(&lab.base.join("state")).and_then(|s| s.ids());
    Ok(ids.map_err(|e| SuiteError::Sandbox(e.to_string()))?.iter().map(ToString::to_string).collect())
}

/// Does what the next start would do, and says what is still there of these: sandboxes on disk, and control groups.
fn sweep(lab: &Lab, made: &[String]) -> Result<Vec<String>, SuiteError> {
    let swept = sweep::sweep(&lab.base.join("state"), &lab.base.join("runtime"), stockade_sandbox::state::KEEP, sweep::Extent::Everything);
    swept.map_err(|e| SuiteError::Sandbox(e.to_string()))?;
    let mut left: Vec<String> = ids(lab)?.into_iter().filter(|id| made.contains(id)).collect();
    left.extend(groups().into_iter().filter(|group| made.iter().any(|id| group.contains(id))));
    Ok(left)
}

/// Names of the control groups that sandboxes make.
fn groups() -> Vec<String> {
    let mut left = vec![(std::path::PathBuf::from("/sys/fs/cgroup"), 0)];
    let mut found = Vec::new();
    while let Some((directory, depth)) = left.pop() {
        for entry in std::fs::read_dir(&directory).into_iter().flatten().flatten().filter(|e| e.file_type().is_ok_and(|t| t.is_dir())) {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("stockade-") {
                found.push(name);
            } else if depth < 6 {
                left.push((entry.path(), depth + 1));
            }
        }
    }
    found
}

/// clix left a directory per run: five runs of every kind, and neither disk, mounts, groups, descriptors nor children are more than before.
fn nothing_left(outside: &Outside<'_>) -> Came {
    let work = outside.place()?.join("ws");
    let state = outside.lab.base.join("state");
    let count = |path: &str| std::fs::read_dir(path).map_or(0, Iterator::count);
    let mounts = || std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default().lines().count();
    let ids = || Sandboxes::open(&state).and_then(|s| s.ids()).map_or(usize::MAX, |ids| ids.len());
    let look = || (ids(), count("/proc/self/fd"), mounts(), children());
    let (before, groups_before) = (look(), groups());
    let mut made = Vec::new();
    for script in ["true", "exit 7", "kill -9 $$", "sleep 1000 & disown", "cd /; rm -rf * 2>/dev/null"] {
        made.push(outside.once(&work, Ground::Rw, script, OnSuccess::Keep)?.id.to_string());
    }
    let fine = eventually(|| look() == before && !groups().iter().any(|group| made.iter().any(|id| group.contains(id))));
    Ok(open_if(!fine, format!("before {before:?}, after {:?}, groups before {}", look(), groups_before.len())))
}

/// Children of this process, dead ones included.
fn children() -> usize {
    let me = std::process::id();
    std::fs::read_to_string(format!("/proc/{me}/task/{me}/children")).map_or(0, |text| text.split_whitespace().count())
}

/// A descendant that holds the output open does not hold the caller up.
fn output_held_open(outside: &Outside<'_>) -> Came {
    let work = outside.place()?.join("ws");
    let seconds = unique_seconds();
    let mut standing = outside.stand(&work, Ground::Shared)?;
    let ran = standing.run(&shell(&format!("sleep {seconds} & echo said; exit 8")))?;
    let fine = ran.stdout.starts_with(b"said\n") && ran.ending == stockade_sandbox::drive::Ending::Code(8);
    drop(standing);
    clean_up(&seconds);
    Ok(open_if(!fine, format!("{:?}", ran.ending)))
}

/// The guest is the first process inside: programs cannot end, stop or trace it.
fn kill_the_first(outside: &Outside<'_>) -> Came {
    let work = outside.place()?.join("ws");
    let mut standing = outside.stand(&work, Ground::Shared)?;
    standing.run(&shell("kill -9 1; kill -STOP 1; kill -TERM 1; kill -SEGV 1; kill -9 $PPID; kill -STOP $PPID"))?;
    let alive = standing.run(&shell("echo alive")).is_ok_and(|ran| ran.stdout == b"alive\n");
    Ok(open_if(!alive, format!("alive: {alive}")))
}

/// A program that kills everything it may reaches only its own sandbox, and that goes on.
fn kill_everything(outside: &Outside<'_>) -> Came {
    let work = outside.place()?.join("ws");
    let mut standing = outside.stand(&work, Ground::Shared)?;
    let mut sibling = outside.stand(&work, Ground::Shared)?;
    standing.run(&shell("kill -9 -1; echo still"))?;
    let alive = |one: &mut crate::wall::Standing| one.run(&shell("echo alive")).is_ok_and(|ran| ran.stdout == b"alive\n");
    let both = (alive(&mut standing), alive(&mut sibling));
    Ok(open_if(both != (true, true), format!("{both:?}")))
}

/// What a hostile program leaves on disk does not keep its sandbox from being removed: modes, depth, names, links.
fn hostile_leftovers(outside: &Outside<'_>) -> Came {
    let work = outside.place()?.join("ws");
    let mut standing = outside.stand(&work, Ground::Shared)?;
    let script = "mkdir -p a/b/c; touch a/b/c/f $'a/new\\nline' $'a/\\xff'; ln -s / a/root; mkfifo a/p; chmod 000 a/b/c a/b a; /usr/bin/python3 -c 'import os\nos.chdir(\"/tmp\")\nfor i in range(600): os.mkdir(\"d\" * 200); os.chdir(\"d\" * 200)'; exit 0";
    standing.run(&shell(script))?;
    let (owned, sandbox) = (standing.owned, standing.sandbox);
    let directory = owned.directory.clone();
    sandbox.destroy();
    let removed = owned.remove();
    if removed.is_ok() && directory.exists() {
        return Ok((Seen::Open, "it says removed and is there".into()));
    }
    Ok(open_if(removed.is_err(), format!("{removed:?}")))
}
