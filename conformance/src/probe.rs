//! The probe's bytes, and reading what it says.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::stage::Seen;

/// The static probe program; empty on systems that have no wall.
pub(crate) const PROBE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/stockade-probe"));

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    attempt: String,
    verdict: String,
    detail: String,
}

/// What each attempt came to. Lines that do not parse are passed over: an attempt without a line is broken, never held.
pub(crate) fn read(output: &[u8]) -> BTreeMap<String, (Seen, String)> {
    let text = String::from_utf8_lossy(output);
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok());
    let seen = |verdict: &str| match verdict {
        "open" => Seen::Open,
        "held" => Seen::Held,
        _ => Seen::Broken,
    };
    lines.map(|line| (line.attempt, (seen(&line.verdict), line.detail))).collect()
}
