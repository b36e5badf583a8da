//! The record of what a sandbox tried to reach: one line of JSON each, in two files of the sandbox's directory, bounded.
//!
//! Egress writes, over descriptors it was given; when the file is full its lines become the older ones and it begins anew. Whoever reads
//! takes lines that are not whole for not written yet.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use serde::{Deserialize, Serialize};
use stockade_egress::{Event, Subject};

/// The newer lines.
pub(crate) const FILE: &str = "network.jsonl";
/// The older ones.
const OLDER: &str = "network-older.jsonl";
/// Bytes of one file; what is longer is not ours.
const MAX_BYTES: u64 = 4 << 20;

/// One decision as it is written down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// When it began.
    pub(crate) time: String,
    /// `name`, `connection` or `request`.
    pub(crate) subject: String,
    /// The host as it was named; may be empty.
    pub(crate) host: String,
    /// The port; 0 where none was named.
    pub(crate) port: u16,
    /// The method of a request.
    pub(crate) method: Option<String>,
    /// Its path without the query.
    pub(crate) path: Option<String>,
    /// `allow`, `deny` or `learn`.
    pub(crate) verdict: String,
    /// The pattern or the check that decided.
    pub(crate) rule: String,
    /// Names of secrets that were put in or stopped, with commas.
    pub(crate) secret: Option<String>,
    /// The status of the answer.
    pub(crate) status: Option<u16>,
    /// Bytes towards the host.
    pub(crate) sent: u64,
    /// Bytes from the host.
    pub(crate) received: u64,
    /// How long it took.
    pub(crate) duration_ms: u64,
    /// Why it was refused, or how it ended badly.
    pub(crate) reason: Option<String>,
    /// The narrowest flag that would allow it.
    pub(crate) change: Option<String>,
    /// What the answer of a model says was used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) usage: Option<Usage>,
}

/// What one answer of a model came to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Usage {
    /// The model, where the answer names it.
    pub(crate) model: Option<String>,
    /// Tokens read anew.
    pub(crate) input: u64,
    /// Tokens written.
    pub(crate) output: u64,
    /// Tokens read from a cache.
    pub(crate) cache_read: u64,
    /// Tokens put into a cache.
    pub(crate) cache_write: u64,
}

impl From<&stockade_egress::Usage> for Usage {
    fn from(usage: &stockade_egress::Usage) -> Self {
        let stockade_egress::Usage { model, input, output, cache_read, cache_write } = usage.clone();
        Self { model, input, output, cache_read, cache_write }
    }
}

impl From<&Event> for Row {
    fn from(event: &Event) -> Self {
        let names: Vec<&str> = event.secrets.iter().map(AsRef::as_ref).collect();
        Self {
            time: jiff::Timestamp::try_from(event.time).map(|stamp| format!("{stamp:.3}")).unwrap_or_default(),
            subject: event.subject.as_str().to_owned(),
            host: event.host.clone(),
            // A name is asked for at no port.
            port: if event.subject == Subject::Name { 0 } else { event.port },
            method: event.method.clone(),
            path: event.path.clone(),
            verdict: event.verdict.as_str().to_owned(),
            rule: event.rule.clone(),
            secret: (!names.is_empty()).then(|| names.join(",")),
            status: event.status,
            sent: event.sent,
            received: event.received,
            duration_ms: u64::try_from(event.duration.as_millis()).unwrap_or(u64::MAX),
            reason: event.reason.clone(),
            change: event.change.clone(),
            usage: event.usage.as_ref().map(Usage::from),
        }
    }
}

/// The two files, open.
#[derive(Debug)]
pub(crate) struct Record {
    newer: File,
    older: File,
}

impl Record {
    /// Makes the files, or takes those that are there.
    pub(crate) fn make(directory: &Path) -> std::io::Result<Self> {
        let open = |name: &str| OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(directory.join(name));
        Ok(Self { newer: open(FILE)?, older: open(OLDER)? })
    }

    /// Opens the files of a sandbox that has a way out.
    pub(crate) fn open(directory: &Path) -> std::io::Result<Self> {
        Ok(Self { newer: File::open(directory.join(FILE))?, older: File::open(directory.join(OLDER))? })
    }

    /// Takes files that were passed.
    pub(crate) fn of_files(newer: File, older: File) -> Self {
        Self { newer, older }
    }

    /// The files, newer first.
    pub(crate) fn files(&self) -> [&File; 2] {
        [&self.newer, &self.older]
    }

    /// Writes one line.
    pub(crate) fn add(&mut self, row: &Row) -> std::io::Result<()> {
        let mut line = serde_json::to_vec(row)?;
        line.push(b'\n');
        if self.newer.metadata()?.len().saturating_add(line.len() as u64) > MAX_BYTES {
            self.turn()?;
        }
        self.newer.write_all(&line)
    }

    fn turn(&mut self) -> std::io::Result<()> {
        self.older.set_len(0)?;
        self.newer.seek(SeekFrom::Start(0))?;
        std::io::copy(&mut (&self.newer).take(MAX_BYTES), &mut self.older)?;
        self.newer.set_len(0)
    }

    /// All that is there, older first.
    pub(crate) fn read(&self) -> std::io::Result<Vec<Row>> {
        let mut rows = Vec::new();
        for file in [&self.older, &self.newer] {
            let mut file = file;
            file.seek(SeekFrom::Start(0))?;
            let mut bytes = Vec::new();
            file.take(MAX_BYTES).read_to_end(&mut bytes)?;
            rows.extend(whole_lines(&bytes).0);
        }
        Ok(rows)
    }

    /// What was written since `place`, and the place to go on from. A file that is shorter by now was begun anew.
    pub(crate) fn since(&self, place: u64) -> std::io::Result<(Vec<Row>, u64)> {
        let mut file = &self.newer;
        let place = if file.metadata()?.len() < place { 0 } else { place };
        file.seek(SeekFrom::Start(place))?;
        let mut bytes = Vec::new();
        file.take(MAX_BYTES).read_to_end(&mut bytes)?;
        let (rows, taken) = whole_lines(&bytes);
        Ok((rows, place + taken))
    }
}

/// The lines that are whole, and how many bytes they are.
fn whole_lines(bytes: &[u8]) -> (Vec<Row>, u64) {
    let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
    let lines = bytes.get(..end).unwrap_or_default().split(|byte| *byte == b'\n');
    // Only egress writes here; a line that says nothing was torn by a full disk.
    (lines.filter_map(|line| serde_json::from_slice(line).ok()).collect(), end as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(path: &str) -> Row {
        Row {
            time: "2026-11-16T00:00:00.000Z".into(),
            subject: "request".into(),
            host: "a.example".into(),
            port: 443,
            method: Some("GET".into()),
            path: Some(path.into()),
            verdict: "allow".into(),
            rule: "a.example".into(),
            secret: None,
            status: Some(200),
            sent: 0,
            received: 1,
            duration_ms: 2,
            reason: None,
            change: None,
            usage: None,
        }
    }

    #[test]
    fn rows_are_read_back_and_the_files_stay_bounded() {
        let directory = tempfile::tempdir().unwrap();
        let mut record = Record::make(directory.path()).unwrap();
        record.add(&row("/first")).unwrap();
        let (rows, place) = record.since(0).unwrap();
        assert_eq!(rows, [row("/first")]);
        assert_eq!(record.since(place).unwrap(), (vec![], place));
        let long = "x".repeat(64 << 10);
        for _ in 0..200 {
            record.add(&row(&long)).unwrap();
        }
        record.add(&row("/last")).unwrap();
        let reader = Record::open(directory.path()).unwrap();
        assert!(reader.files().iter().all(|file| file.metadata().unwrap().len() <= MAX_BYTES));
        let rows = reader.read().unwrap();
        assert_eq!(rows.last(), Some(&row("/last")));
        assert!(rows.len() > 60 && rows.len() < 140, "{}", rows.len());
    }

    #[test]
    fn a_line_that_is_not_whole_is_not_there_yet() {
        let directory = tempfile::tempdir().unwrap();
        let mut record = Record::make(directory.path()).unwrap();
        record.add(&row("/a")).unwrap();
        let before = record.since(0).unwrap();
        record.newer.write_all(b"{\"time\":").unwrap();
        assert_eq!(record.since(0).unwrap(), before);
    }
}
