//! Resource limits and the text forms of sizes and times.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::demand::Demand;

/// Whether a limit was asked for (flag, settings, policy, pack) or is a built-in default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// Somebody asked: it must be enforced, or the sandbox refuses to start.
    Asked,
    /// Built in: may be held in part, said once.
    Default,
}

/// One limit and where it came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit<T> {
    /// The value.
    pub value: T,
    /// Who wanted it.
    pub origin: Origin,
}

impl<T> Limit<T> {
    /// A limit that somebody asked for.
    pub fn asked(value: T) -> Self {
        Self { value, origin: Origin::Asked }
    }
    /// A built-in limit.
    pub fn default_of(value: T) -> Self {
        Self { value, origin: Origin::Default }
    }
}

/// What a sandbox may use. `None` means no limit.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Limits {
    /// Processors, in thousandths (1500 is one and a half).
    pub cpu_millis: Option<Limit<u32>>,
    /// Bytes of memory.
    pub memory: Option<Limit<u64>>,
    /// Processes and threads.
    pub pids: Option<Limit<u32>>,
    /// Bytes written to disk.
    pub disk: Option<Limit<u64>>,
    /// Bytes of captured output, each of stdout and stderr.
    pub output: Option<Limit<u64>>,
    /// Wall time of one command.
    pub time: Option<Limit<Duration>>,
    /// Open files per process.
    pub open_files: Option<Limit<u64>>,
}

impl Limits {
    /// Whether somebody asked for the limit behind this demand.
    pub fn is_asked(&self, demand: Demand) -> bool {
        let asked = |origin: Option<Origin>| origin == Some(Origin::Asked);
        match demand {
            Demand::Cpu => asked(self.cpu_millis.map(|l| l.origin)),
            Demand::Memory => asked(self.memory.map(|l| l.origin)),
            Demand::Pids => asked(self.pids.map(|l| l.origin)),
            Demand::Disk => asked(self.disk.map(|l| l.origin)),
            Demand::Output => asked(self.output.map(|l| l.origin)),
            Demand::Time => asked(self.time.map(|l| l.origin)),
            Demand::Files
            | Demand::Network
            | Demand::Processes
            | Demand::Privileges
            | Demand::Syscalls
            | Demand::Secrets
            | Demand::Exec => false,
        }
    }
}

/// A size, time or count that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadQuantity {
    /// Not a number with a known unit.
    #[error("`{0}` is not a size: write a number with K, M, G or T, such as 512M")]
    Size(String),
    /// Not a time.
    #[error("`{0}` is not a time: write a number with ms, s, m, h or d, such as 30s")]
    Time(String),
    /// Not a number of processors.
    #[error("`{0}` is not a number of processors: write something like 2 or 0.5")]
    Cpus(String),
    /// Zero makes no sense.
    #[error("`{0}` is zero; leave the limit away if you want none")]
    Zero(String),
    /// Larger than any machine.
    #[error("`{0}` is too large")]
    TooLarge(String),
}

/// A pebibyte: more than any machine that runs this has, so a mistake.
const MAX_BYTES: u64 = 1 << 50;
/// Ten years.
const MAX_MILLIS: u64 = 86_400_000 * 3650;
/// As many processors as the kernel can count.
const MAX_CPU_MILLIS: u32 = 8_192_000;

/// Parses `512M`, `1G`, `4096` (bytes), `1.5G`, `10MiB`. Units are powers of 1024.
pub fn parse_size(text: &str) -> Result<u64, BadQuantity> {
    let bad = || BadQuantity::Size(crate::escape::escape(text));
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(split).ok_or_else(bad)?;
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(bad()),
    };
    match scaled(number, 1u64 << shift) {
        Scaled::NotANumber => Err(bad()),
        Scaled::Fits(0) => Err(BadQuantity::Zero(text.to_owned())),
        Scaled::Fits(n) if n <= MAX_BYTES => Ok(n),
        Scaled::Fits(_) | Scaled::Overflow => Err(BadQuantity::TooLarge(text.to_owned())),
    }
}

/// Parses `30s`, `500ms`, `5m`, `1h`, `7d`, `90` (seconds).
pub fn parse_duration(text: &str) -> Result<Duration, BadQuantity> {
    let bad = || BadQuantity::Time(crate::escape::escape(text));
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(split).ok_or_else(bad)?;
    let millis = match unit {
        "ms" => 1,
        "" | "s" => 1000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(bad()),
    };
    match scaled(number, millis) {
        Scaled::NotANumber => Err(bad()),
        Scaled::Fits(0) => Err(BadQuantity::Zero(text.to_owned())),
        Scaled::Fits(n) if n <= MAX_MILLIS => Ok(Duration::from_millis(n)),
        Scaled::Fits(_) | Scaled::Overflow => Err(BadQuantity::TooLarge(text.to_owned())),
    }
}

/// Parses a number of processors into thousandths.
pub fn parse_cpus(text: &str) -> Result<u32, BadQuantity> {
    let bad = || BadQuantity::Cpus(crate::escape::escape(text));
    match scaled(text, 1000) {
        Scaled::NotANumber => Err(bad()),
        Scaled::Fits(0) => Err(BadQuantity::Zero(text.to_owned())),
        Scaled::Fits(n) => u32::try_from(n).ok().filter(|n| *n <= MAX_CPU_MILLIS).ok_or_else(|| BadQuantity::TooLarge(text.to_owned())),
        Scaled::Overflow => Err(BadQuantity::TooLarge(text.to_owned())),
    }
}

/// Digits after the point that are looked at; those behind it stand for less than a byte of any size that is accepted.
const MAX_FRACTION: usize = 18;

/// What a number times its unit comes to.
enum Scaled {
    Fits(u64),
    Overflow,
    NotANumber,
}

/// `number` (digits with at most one point) times `unit`, rounded down.
fn scaled(number: &str, unit: u64) -> Scaled {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || (number.contains('.') && !digits(fraction)) {
        return Scaled::NotANumber;
    }
    // In whole numbers: 0.29 has no exact form in binary, and a limit must not come out one less than was written.
    let fraction = fraction.get(..MAX_FRACTION).unwrap_or(fraction);
    let part = if fraction.is_empty() { 0 } else { fraction.parse::<u128>().unwrap_or(0) * u128::from(unit) };
    let extra = u64::try_from(part / 10u128.pow(fraction.len() as u32)).unwrap_or(u64::MAX);
    let product = whole.parse::<u64>().ok().and_then(|n| n.checked_mul(unit)).and_then(|n| n.checked_add(extra));
    product.map_or(Scaled::Overflow, Scaled::Fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(parse_size("512M"), Ok(512 << 20));
        assert_eq!(parse_size("1.5G"), Ok(3 << 29));
        assert_eq!(parse_size("10KiB"), Ok(10 << 10));
        assert_eq!(parse_size("1"), Ok(1));
        for bad in ["", "M", "-1M", "1Q", "1.M", "0", "0G", "99999999G", "1e9", "18446744073709551616", "١"] {
            assert!(parse_size(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn times_and_cpus() {
        assert_eq!(parse_duration("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(parse_duration("0.5s"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_mins(2)));
        // In floating point this is one millisecond less.
        assert_eq!(parse_duration("0.009h"), Ok(Duration::from_millis(32_400)));
        assert_eq!(parse_duration("0.0099999999999999999999999999h"), Ok(Duration::from_millis(35_999)));
        assert_eq!(parse_cpus("0.5"), Ok(500));
        for bad in ["0", "0s", "", "x", "1y", "-5s", "99999999999d"] {
            assert!(parse_duration(bad).is_err(), "{bad:?}");
        }
        for bad in ["0", "", "-1", "1e3", "10000"] {
            assert!(parse_cpus(bad).is_err(), "{bad:?}");
        }
    }
}
