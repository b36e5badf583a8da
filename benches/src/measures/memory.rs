//! What an idle sandbox holds in memory: every process of it, the supervisor included, as the kernel shares it out (PSS).

use std::path::Path;
use std::time::Duration;

use super::created::Created;
use super::{Course, Measure};
use crate::results::{Row, Section, Table, Unit, Verdict};
use crate::statistics::Summary;

const ONE: &str = "stockade, one sandbox alone";
const MANY: &str = "stockade, each of eight";
/// The promise, in kilobytes.
const BOUND: f64 = 1000.0;
/// How many stand side by side for the second row.
const COUNT: usize = 8;
/// How long a sandbox stands before it is looked at.
const SETTLE: Duration = Duration::from_millis(500);

const ABOUT: &str = "`stockade sandbox create`, then nothing. The sum over all its processes, the supervisor `stockade hold` \
included, of the proportional set size that `/proc/PID/smaps_rollup` gives; 1 kB is 1,000 bytes. The promise is about one sandbox \
alone, which shares its pages with nobody. What the kernel holds for its namespaces is not in it.";

/// Takes the measure.
pub(super) fn take(course: &Course<'_>) -> (Section, Vec<Verdict>) {
    let mut section = Measure::Memory.section(ABOUT);
    let mut rows = Vec::new();
    let mut parts = Vec::new();
    for (name, count) in [(ONE, 1), (MANY, COUNT)] {
        let samples = sandboxes(course, count);
        if let (1, Ok(found)) = (count, &samples) {
            parts = found.iter().flatten().map(|p| format!("{} {:.0} kB", p.name, p.kilobytes)).collect();
        }
        let totals = samples.map(|all| all.iter().map(|one| one.iter().map(|p| p.kilobytes).sum()).collect::<Vec<f64>>());
        rows.push(Row::new(name, totals.and_then(|t| Summary::of(&t).ok_or_else(|| "nothing was found".into()))));
    }
    let table = Table { title: "idle".into(), unit: Unit::Kilobytes, reference: None, rows };
    let measured = table.summary(ONE).map(|s| s.p50);
    section.tables.push(table);
    if !parts.is_empty() {
        section.notes.push(format!("One alone, process by process: {}.", parts.join(", ")));
    }
    let name = "memory of an idle sandbox, all its processes, PSS";
    let verdict = Verdict::figure_at_most(name, BOUND / 1000.0, "MB", measured.map(|kilobytes| kilobytes / 1000.0));
    (section, vec![verdict])
}

/// A process and its share of memory.
pub(super) struct Part {
    name: String,
    /// The share.
    pub(super) kilobytes: f64,
}

fn sandboxes(course: &Course<'_>, count: usize) -> Result<Vec<Vec<Part>>, String> {
    let created: Vec<Created<'_>> = (0..count).map(|_| Created::make(course.ground)).collect::<Result<_, _>>()?;
    std::thread::sleep(SETTLE);
    created.iter().map(|one| processes(&one.id)).collect()
}

/// The supervisor of a sandbox and everything below it.
fn processes(id: &str) -> Result<Vec<Part>, String> {
    let all = every_process();
    let is_supervisor = |p: &&Process| p.words.get(1).is_some_and(|w| w == "hold") && p.words.iter().any(|w| w == id);
    let supervisor = all.iter().find(is_supervisor).ok_or("the supervisor is not there")?;
    let mut family = vec![supervisor.id];
    // Parents may stand after their children in the list, so it is gone through until nothing is added.
    loop {
        let more: Vec<u32> = all.iter().filter(|p| family.contains(&p.parent) && !family.contains(&p.id)).map(|p| p.id).collect();
        if more.is_empty() {
            break;
        }
        family.extend(more);
    }
    family.iter().map(|id| part(*id)).collect()
}

struct Process {
    id: u32,
    parent: u32,
    words: Vec<String>,
}

fn every_process() -> Vec<Process> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let process = |entry: std::fs::DirEntry| {
        let id = entry.file_name().to_str()?.parse().ok()?;
        let status = std::fs::read_to_string(entry.path().join("status")).ok()?;
        let parent = field(&status, "PPid")?.parse().ok()?;
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        let words = line.split(|b| *b == 0).map(|w| String::from_utf8_lossy(w).into_owned()).collect();
        Some(Process { id, parent, words })
    };
    entries.filter_map(process).collect()
}

/// What a process holds.
pub(super) fn part(id: u32) -> Result<Part, String> {
    let directory = Path::new("/proc").join(id.to_string());
    let read = |name: &str| std::fs::read_to_string(directory.join(name)).map_err(|e| format!("{name} of process {id}: {e}"));
    let rollup = read("smaps_rollup")?;
    let kibibytes: f64 = field(&rollup, "Pss").and_then(|v| v.split_whitespace().next()?.parse().ok()).ok_or("no Pss line")?;
    Ok(Part { name: read("comm")?.trim().to_owned(), kilobytes: kibibytes * 1.024 })
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|l| l.split_once(':').filter(|(n, _)| *n == name).map(|(_, v)| v.trim()))
}
