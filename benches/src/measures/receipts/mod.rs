//! Receipts: what one costs, how many a second there can be, and what a ledger of a million is like to look at.

mod calls;

use std::ffi::OsString;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use stockade_ledger::receipt::Kind;
use stockade_ledger::redact::Redactor;
use stockade_ledger::{Durability, Ledger, Options, Weight};

use super::{Course, Measure, p50};
use crate::contest::{Contestant, contest};
use crate::failure::Failure;
use crate::load::Condition;
use crate::results::{Extent, Row, Section, Table, Unit, Verdict};
use crate::spawn;
use crate::statistics::Summary;

const WARM: &str = "intent and outcome, durability `process`";
const GROUPED: &str = "fsync loop, 16 receipts at a time";
const TOGETHER: &str = "stockade, 16 writers, durability `always`";
const ALONE: &str = "stockade, one commit per receipt";
const VERIFY: &str = "stockade receipts verify";
/// How many write at the same time.
const WRITERS: usize = 16;
/// How many receipts one writer writes in a turn.
const TURN: usize = 50;
/// Bytes of a receipt, as the loop beside them writes it.
const BYTES: usize = 1100;
/// Warm calls before the first that counts.
const SETTLE: usize = 200;
/// How often the memory of a check is looked at.
const LOOK: Duration = Duration::from_millis(20);

const ABOUT: &str = "A call is an intent before and an outcome after, about a kilobyte each: canonical JSON, hashed, signed and linked. First what both cost in a \
process that has the ledger open; then how long a receipt takes when each must be on the disk, from 16 writers at once, from one, and against a bare loop \
that writes as many bytes and calls `fdatasync` once for 16; then a ledger of a million receipts: `stockade receipts list` with filters, and \
`stockade receipts verify`, whole processes. Idle only.";

/// Takes the measure.
pub(super) fn take(course: &Course<'_>) -> Result<(Section, Vec<Verdict>), Failure> {
    let mut section = Measure::Receipts.section(ABOUT);
    let directory = course.ground.path().join("receipts");
    std::fs::create_dir_all(&directory).map_err(Failure::io("make", &directory))?;
    let (calls, receipts) = if course.extent == Extent::Full { (5000, 1_000_000) } else { (500, 20_000) };
    let warm = warm(&directory.join("warm"), calls);
    let rates = rates(course, &directory)?;
    let mut verdicts = vec![
        Verdict::figure_at_most("receipts of a warm call, durability `process`, p50", 150.0, "µs", warm.summary(WARM).map(|s| s.p50)),
        Verdict::at_least(
            "receipts per second, 16 writers, durability `always`, against an fsync loop of 16",
            0.8,
            rates.ratio(TOGETHER, p50).map(|times| 1.0 / times),
        ),
        Verdict::at_least(
            "receipts per second, 16 writers, durability `always`, against one commit per receipt",
            5.0,
            rates.summary(ALONE).zip(rates.summary(TOGETHER)).map(|(alone, together)| alone.p50 / together.p50),
        ),
    ];
    section.tables.extend([warm, rates]);
    let state = directory.join("large");
    let begin = Instant::now();
    match calls::fill(&state.join("stockade/receipts"), receipts) {
        Ok(()) => {
            crate::say(&format!("  {receipts} receipts written in {:.1} s", begin.elapsed().as_secs_f64()));
            let lists = lists(course, &state, receipts)?;
            let slowest = lists.rows.iter().map(|row| row.summary.as_ref().map(|s| s.p50)).collect::<Option<Vec<f64>>>();
            let slowest = slowest.and_then(|all| all.into_iter().max_by(f64::total_cmp));
            verdicts.push(Verdict::figure_at_most(
                format!("`receipts list` with filters on {receipts} receipts, the slowest"),
                50.0,
                "ms",
                slowest,
            ));
            let (time, memory) = check(course, &state, receipts);
            let seconds = time.summary(VERIFY).map(|s| s.p50 / 1000.0);
            verdicts.push(Verdict::figure_at_most(format!("`receipts verify` of {receipts} receipts"), 60.0, "s", seconds));
            let megabytes = memory.summary(VERIFY).map(|s| s.p50 / 1000.0);
            verdicts.push(Verdict::figure_at_most(format!("memory of `receipts verify` of {receipts} receipts"), 200.0, "MB", megabytes));
            section.tables.extend([lists, time, memory]);
        }
        Err(error) => section.notes.push(format!("The large ledger could not be written: {error}.")),
    }
    Ok((section, verdicts))
}

/// What a call pays in a process that has the ledger open.
fn warm(directory: &Path, calls: usize) -> Table {
    let measured = || -> Result<Vec<f64>, stockade_ledger::LedgerError> {
        let ledger = Ledger::open(directory, Options { durability: Durability::Process, ..Options::default() })?;
        let none = Redactor::none();
        let mut samples = Vec::new();
        for number in 0..SETTLE + calls {
            let begun = calls::intent(number);
            let ended = calls::outcome(&begun, number);
            let begin = Instant::now();
            ledger.append(&begun, Weight::Read, &none)?;
            ledger.append(&ended, Weight::Read, &none)?;
            samples.push(begin.elapsed().as_secs_f64() * 1e6);
        }
        Ok(samples.split_off(SETTLE))
    };
    let summary = measured().map_err(|error| error.to_string()).and_then(|all| Summary::of(&all).ok_or_else(|| "was never run".into()));
    Table { title: "a warm call".into(), unit: Unit::Microseconds, reference: None, rows: vec![Row::new(WARM, summary)] }
}

/// How long a receipt takes when each must be on the disk. The contest gives milliseconds for a thousandth of a turn, which are microseconds.
fn rates(course: &Course<'_>, directory: &Path) -> Result<Table, Failure> {
    let mut file = std::fs::File::create(directory.join("loop")).map_err(Failure::io("make", directory))?;
    let grouped = move || {
        let bytes = vec![7; WRITERS * BYTES];
        let begin = Instant::now();
        for _ in 0..TURN {
            file.write_all(&bytes).and_then(|()| file.sync_data()).map_err(|error| error.to_string())?;
        }
        Ok(each(begin.elapsed(), TURN * WRITERS))
    };
    let contestants = vec![
        Contestant::new(GROUPED, grouped).in_every_round(),
        writers(TOGETHER, &directory.join("together"), WRITERS).in_every_round(),
        writers(ALONE, &directory.join("alone"), 1).in_every_round(),
    ];
    let rows = contest(contestants, course.few, Condition::Idle)?;
    Ok(Table { title: "each on the disk".into(), unit: Unit::MicrosecondsPerReceipt, reference: Some(GROUPED.into()), rows })
}

/// So many writers on one open ledger.
fn writers<'a>(name: &str, directory: &Path, count: usize) -> Contestant<'a> {
    let ledger = Ledger::open(directory, Options { durability: Durability::Always, ..Options::default() }).map_err(|e| e.to_string());
    Contestant::new(name, move || {
        let ledger = ledger.as_ref().map_err(Clone::clone)?;
        let write = || -> Result<(), String> {
            for number in 0..TURN {
                let draft = stockade_ledger::receipt::Draft { kind: Kind::Denied, ..calls::intent(number) };
                ledger.append(&draft, Weight::Effect, &Redactor::none()).map_err(|error| error.to_string())?;
            }
            Ok(())
        };
        let begin = Instant::now();
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..count).map(|_| scope.spawn(write)).collect();
            threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|_| Err("a writer panicked".to_owned())))
        })?;
        Ok(each(begin.elapsed(), TURN * count))
    })
}

/// The time of one of many, a thousandfold.
fn each(time: Duration, many: usize) -> Duration {
    time.mul_f64(1000.0 / many as f64)
}

/// Looking for things, by filters that find many, few and none.
fn lists(course: &Course<'_>, state: &Path, receipts: usize) -> Result<Table, Failure> {
    let filters = [
        ("the newest", ""),
        ("an agent", "--agent claude/4"),
        ("what was denied", "--verdict deny"),
        ("an agent, denied", "--agent claude/4 --verdict deny"),
        ("a program and a host", "--program tool50 --host host50.example"),
        ("an agent and a program that never meet", "--agent claude/4 --program tool3"),
        ("a sandbox", "--sandbox 0000000000000008"),
        ("a day long ago", "--until 2001-01-01T00:00:00Z"),
        ("nobody", "--agent nobody"),
    ];
    let contestants = filters.iter().map(|(name, flags)| {
        let mut command = stockade(course, state, &format!("receipts list --json {flags}"));
        Contestant::new(*name, move || spawn::timed(&mut command)).in_every_round()
    });
    let rows = contest(contestants.collect(), course.few, Condition::Idle)?;
    Ok(Table { title: format!("`receipts list` on {receipts} receipts"), unit: Unit::Milliseconds, reference: None, rows })
}

/// The check of everything, once: how long, and the most memory that it held.
fn check(course: &Course<'_>, state: &Path, receipts: usize) -> (Table, Table) {
    let begin = Instant::now();
    let mut most = 0.0_f64;
    let mut run = || -> Result<(), String> {
        let mut child = stockade(course, state, "receipts verify").spawn().map_err(|error| error.to_string())?;
        let status = format!("/proc/{}/status", child.id());
        loop {
            // The kernel keeps the most there ever was; what was added after the last look is not seen.
            most = std::fs::read_to_string(&status).ok().as_deref().and_then(peak).map_or(most, |peak| most.max(peak));
            if let Some(ended) = child.try_wait().map_err(|error| error.to_string())? {
                return if ended.success() { Ok(()) } else { Err(ended.to_string()) };
            }
            std::thread::sleep(LOOK);
        }
    };
    let result = run();
    let milliseconds = begin.elapsed().as_secs_f64() * 1000.0;
    let row = |figure: f64| Row::new(VERIFY, result.clone().and_then(|()| Summary::of(&[figure]).ok_or_else(|| "was never run".into())));
    let table = |title: String, unit, row| Table { title, unit, reference: None, rows: vec![row] };
    (
        table(format!("a check of {receipts} receipts"), Unit::Milliseconds, row(milliseconds)),
        table("memory of that check, at most".into(), Unit::Kilobytes, row(most)),
    )
}

/// The most that a process held, in kilobytes of 1,000 bytes.
fn peak(status: &str) -> Option<f64> {
    let value = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    value.split_whitespace().next()?.parse::<f64>().ok().map(|kibibytes| kibibytes * 1.024)
}

/// `stockade` on the large ledger.
fn stockade(course: &Course<'_>, state: &Path, arguments: &str) -> Command {
    let argv: Vec<OsString> =
        [course.ground.stockade.clone().into_os_string()].into_iter().chain(arguments.split_whitespace().map(OsString::from)).collect();
    let mut command = course.ground.own.command(&argv);
    command.env("XDG_STATE_HOME", state);
    command
}
