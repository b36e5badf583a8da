//! Where the figures were taken: processor, kernel, system, date, commit.

use std::path::Path;
use std::process::Command;

use serde::Serialize;

/// The machine and the moment.
#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    /// Processor and how many cores.
    pub(crate) processor: String,
    /// Memory.
    pub(crate) memory: String,
    /// Kernel.
    pub(crate) kernel: String,
    /// Distribution.
    pub(crate) system: String,
    /// File system of the working directories.
    pub(crate) filesystem: String,
    /// When, in UTC.
    pub(crate) date: String,
    /// What was built.
    pub(crate) commit: String,
    /// Load average when the run began: what else was going on.
    pub(crate) load: String,
    /// Whether that is quiet enough for the figures to mean something.
    pub(crate) is_quiet: bool,
}

/// Above this load average the machine was doing something else.
const QUIET: f64 = 0.7;

impl Machine {
    /// Looks around.
    pub(crate) fn look(repository: &Path, ground: &Path) -> Self {
        let name = rustix::system::uname();
        let info = rustix::system::sysinfo();
        let total = info.totalram.saturating_mul(u64::from(info.mem_unit));
        let model = field("/proc/cpuinfo", "model name", ':').unwrap_or_else(|| "unknown processor".into());
        let load = std::fs::read_to_string("/proc/loadavg").map_or_else(|_| "unknown".into(), |t| first_words(&t, 3));
        let path = ground.display().to_string();
        Self {
            processor: format!("{model}, {} cores", cores()),
            memory: format!("{:.1} GiB", total as f64 / f64::from(1 << 30)),
            kernel: format!("Linux {} {}", name.release().to_string_lossy(), name.machine().to_string_lossy()),
            system: field("/etc/os-release", "PRETTY_NAME", '=').unwrap_or_else(|| "unknown".into()),
            filesystem: said("findmnt", &["--noheadings", "--output", "FSTYPE", "--target", &path]),
            date: jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M UTC").to_string(),
            commit: commit(repository),
            is_quiet: first_words(&load, 1).parse().is_ok_and(|l: f64| l < QUIET),
            load,
        }
    }
}

/// Cores that this process may use.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Whether root runs the harness.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The first line that a program prints, or that it cannot be asked.
pub(crate) fn said(program: &str, words: &[&str]) -> String {
    let output = Command::new(program).args(words).output();
    let line = output.ok().filter(|o| o.status.success()).and_then(|o| {
        let text = if o.stdout.is_empty() { o.stderr } else { o.stdout };
        String::from_utf8_lossy(&text).lines().next().map(|l| l.trim().to_owned())
    });
    line.filter(|l| !l.is_empty()).unwrap_or_else(|| "unknown".into())
}

fn commit(repository: &Path) -> String {
    let at = repository.display().to_string();
    let head = said("git", &["-C", &at, "rev-parse", "--short=12", "HEAD"]);
    let changed = said("git", &["-C", &at, "status", "--porcelain", "--untracked-files=no", "--", ".", ":!benches/"]);
    if changed == "unknown" { head } else { format!("{head} with uncommitted changes") }
}

fn field(file: &str, name: &str, separator: char) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    let value = text.lines().find_map(|l| l.split_once(separator).filter(|(n, _)| n.trim() == name).map(|(_, v)| v))?;
    Some(value.trim().trim_matches('"').to_owned())
}

fn first_words(text: &str, count: usize) -> String {
    text.split_whitespace().take(count).collect::<Vec<_>>().join(" ")
}
