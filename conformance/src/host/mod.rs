//! Attempts that are made from outside: what a caller does to the library, and what a hostile guest answers.

mod beginnings;
mod endings;
mod files;
mod limits;
mod races;
mod siblings;
mod stream;
mod workspace;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use stockade_core::path::SafePath;
use stockade_sandbox::drive::{Sink, Streams};
use stockade_sandbox::once::{self, Done, Job, OnSuccess};

use crate::case::Ground;
use crate::error::SuiteError;
use crate::lab::Lab;
use crate::stage::Seen;
use crate::target::Target;
use crate::wall::{self, Standing};

/// What came of an attempt, with a word for people.
pub(crate) type Came = Result<(Seen, String), SuiteError>;

/// What an attempt needs.
pub(crate) struct Outside<'a> {
    pub(crate) target: Target,
    pub(crate) lab: &'a Lab,
    pub(crate) id: &'a str,
}

type Function = fn(&Outside<'_>) -> Came;

/// All of them, by name.
const TABLE: &[&[(&str, Function)]] =
    &[files::TABLE, races::TABLE, workspace::TABLE, limits::TABLE, endings::TABLE, beginnings::TABLE, siblings::TABLE, stream::TABLE];

/// Makes one.
pub(crate) fn attempt(target: Target, lab: &Lab, id: &str, name: &str) -> Came {
    match TABLE.iter().copied().flatten().find(|(known, _)| *known == name) {
        Some((_, function)) => function(&Outside { target, lab, id }),
        None => Ok((Seen::Broken, format!("there is no attempt `{name}`"))),
    }
}

/// Open or held, with a word.
pub(crate) fn open_if(happened: bool, detail: impl Into<String>) -> (Seen, String) {
    (if happened { Seen::Open } else { Seen::Held }, detail.into())
}

impl Outside<'_> {
    /// A place of the case's own: `ws`, `out`, `secret`.
    pub(crate) fn place(&self) -> Result<PathBuf, SuiteError> {
        self.lab.for_case(self.id)
    }

    /// A sandbox around a workspace.
    pub(crate) fn stand(&self, work: &Path, ground: Ground) -> Result<Standing, SuiteError> {
        wall::stand(self.target, self.lab, work, ground)
    }

    /// One command in a sandbox of its own, as `stockade run` does it.
    pub(crate) fn once(&self, work: &Path, ground: Ground, script: &str, on_success: OnSuccess) -> Result<Done, SuiteError> {
        let streams = Streams::Plain { stdin: None, stdout: Sink::Buffer(1 << 20), stderr: Sink::Buffer(1 << 20) };
        self.once_with(work, ground, script, on_success, streams)
    }

    /// The same with streams of the caller's.
    pub(crate) fn once_with(
        &self,
        work: &Path,
        ground: Ground,
        script: &str,
        on_success: OnSuccess,
        streams: Streams<'_>,
    ) -> Result<Done, SuiteError> {
        let spec = wall::specification(self.target, self.lab, work, ground)?;
        let backend = wall::backend(self.target);
        let job = Job {
            backend: backend.as_ref(),
            spec: &spec,
            state: &self.lab.base.join("state"),
            runtime: &self.lab.base.join("runtime"),
            home: &self.lab.base.join("home"),
            toolchain_roots: &[],
            argv: &shell(script),
            on_success,
            gate: None,
            intent: None,
        };
        let refused = |e: &dyn std::fmt::Display| SuiteError::Sandbox(e.to_string());
        let (done, remains) = once::run(&job, streams, None).map_err(|e| refused(&e))?;
        remains.clear().map_err(|e| refused(&e))?;
        Ok(done)
    }
}

/// A script as a program.
pub(crate) fn shell(script: &str) -> [OsString; 3] {
    ["bash".into(), "-c".into(), script.into()]
}

/// A path that was made here and so is safe.
pub(crate) fn safe(path: &Path) -> Result<SafePath, SuiteError> {
    SafePath::new(path).map_err(|e| SuiteError::Sandbox(e.to_string()))
}

/// A number of seconds that nobody else sleeps, so that a process is found by it. The marker of one attempt.
pub(crate) fn unique_seconds() -> String {
    let random = stockade_sandbox::state::random_u32().unwrap_or_else(|_| std::process::id());
    format!("{}.{:07}", 3000 + random % 1000, random % 9_999_999)
}

/// Host processes whose arguments hold a word.
pub(crate) fn processes_with(word: &str) -> Vec<i32> {
    let numbers = std::fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok());
    let holds =
        |pid: &i32| std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.split(|b| *b == 0).any(|w| w == word.as_bytes()));
    numbers.filter(holds).collect()
}

/// Whether something becomes true within five seconds; far longer than it should take, because other things run on the machine.
pub(crate) fn eventually(happens: impl Fn() -> bool) -> bool {
    let end = Instant::now() + Duration::from_secs(5);
    while Instant::now() < end {
        if happens() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    happens()
}

/// Ends processes that an attempt of this suite left because there was no wall.
pub(crate) fn clean_up(word: &str) {
    for pid in processes_with(word) {
        if let Some(pid) = rustix::process::Pid::from_raw(pid) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}
