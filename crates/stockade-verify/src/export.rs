//! The check of an export, line by line, in the order of the file; lines are examined on all processors, a batch at a time.

use std::io::{self, BufRead, Read as _};

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::canonical::canonical;
use crate::flaw::{Broken, Flaw, Place};
use crate::key::PublicKey;
use crate::merkle::{Frontier, Hash, MAX_PROOF, root_of_inclusion};
use crate::note::{Checkpoint, Note};
use crate::record::{self, Ledger, MAX_RECEIPT, Record};
use crate::rotation::{Keys, MAX_ROTATIONS, Rotation};
use crate::text::{from_hex, to_hex};

/// The longest line: a receipt, its proof, or a header with every change of keys.
pub const MAX_LINE: usize = MAX_RECEIPT + 512 * MAX_ROTATIONS;
/// How many lines are examined at a time.
const BATCH: usize = 1024;
/// How many bytes of lines wait at a time.
const BATCH_BYTES: usize = 16 << 20;

/// What an export holds, once it is checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// The ledger's name.
    pub origin: String,
    /// Receipts in the file.
    pub count: u64,
    /// Receipts in the ledger when the file was written.
    pub size: u64,
    /// Whether the file has all of them.
    pub extent: Extent,
    /// The key in use when it was written.
    pub key_id: String,
    /// The header's checkpoint, for its witnesses.
    pub note: String,
}

/// Whether an export has every receipt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// From the first to the last.
    All,
    /// Chosen ones, each proved to be in the ledger; what was left out cannot be seen.
    Some,
}

impl Extent {
    /// The word in the header.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Some => "some",
        }
    }
}

/// Why a check came to no good end.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The export does not hold.
    #[error(transparent)]
    Broken(#[from] Broken),
    /// It cannot be read.
    #[error("cannot read the export")]
    Read(#[from] io::Error),
}

/// Checks a whole export.
pub fn check(mut reader: impl BufRead, trusted: &[PublicKey]) -> Result<Summary, CheckError> {
    let mut checker = Checker::new(trusted);
    let mut lines = Vec::new();
    let mut waiting = 0;
    while let Some(line) = read_line(&mut reader)? {
        waiting += line.len();
        lines.push(line);
        // The header must be known before anything else can be examined.
        if checker.is_at_header() || lines.len() == BATCH || waiting > BATCH_BYTES {
            checker.lines(&lines)?;
            lines.clear();
            waiting = 0;
        }
    }
    checker.lines(&lines)?;
    Ok(checker.finish()?)
}

fn read_line(reader: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let most = u64::try_from(MAX_LINE).unwrap_or(u64::MAX).saturating_add(2);
    reader.by_ref().take(most).read_until(b'\n', &mut line)?;
    Ok((!line.is_empty()).then_some(line))
}

/// Takes the lines of an export in order, and says which one is the first that does not hold.
#[derive(Debug, Clone)]
pub struct Checker {
    trusted: Vec<PublicKey>,
    line: u64,
    bytes: Sha256,
    state: State,
}

#[derive(Debug, Clone)]
enum State {
    Header,
    Records(Box<Reading>),
    Closed(Box<Summary>),
}

/// What is known while records are read.
#[derive(Debug, Clone)]
struct Reading {
    ledger: Ledger,
    checkpoint: Checkpoint,
    note: String,
    extent: Extent,
    count: u64,
    /// Number and digest of the record before.
    last: Option<(u64, Hash)>,
    tree: Frontier,
}

/// A line that holds by itself.
enum Examined {
    Record(Record),
    Closing { text: String },
}

impl Checker {
    /// At the beginning of a file.
    pub fn new(trusted: &[PublicKey]) -> Self {
        Self { trusted: trusted.to_vec(), line: 0, bytes: Sha256::new(), state: State::Header }
    }

    /// Whether the next line is the header.
    pub fn is_at_header(&self) -> bool {
        matches!(self.state, State::Header)
    }

    /// Takes the next lines, each with its line break.
    pub fn lines(&mut self, lines: &[Vec<u8>]) -> Result<(), Broken> {
        let mut lines = lines;
        if self.is_at_header()
            && let Some((header, rest)) = lines.split_first()
        {
            self.line(header)?;
            lines = rest;
        }
        let examined = match &self.state {
            State::Records(reading) => in_parallel(lines, |line| reading.examine(line)),
            State::Header | State::Closed(_) => return lines.first().map_or(Ok(()), |line| self.line(line)),
        };
        lines.iter().zip(examined).try_for_each(|(line, examined)| self.accept(line, examined))
    }

    /// Takes the next line, with its line break.
    pub fn line(&mut self, line: &[u8]) -> Result<(), Broken> {
        match &self.state {
            State::Header => {
                let trusted = &self.trusted;
                let reading =
                    whole(line).and_then(|text| read_header(text, trusted)).map_err(|flaw| Broken { place: Place::Header, flaw })?;
                self.state = State::Records(Box::new(reading));
                self.line = 1;
                self.bytes.update(line);
                Ok(())
            }
            State::Records(reading) => {
                let examined = reading.examine(line);
                self.accept(line, examined)
            }
            State::Closed(_) => Err(Broken { place: Place::Closing, flaw: Flaw::Trailing }),
        }
    }

    /// Says what the export holds; an error where its end is missing.
    pub fn finish(self) -> Result<Summary, Broken> {
        match self.state {
            State::Header => Err(Broken { place: Place::Header, flaw: Flaw::Missing }),
            State::Records(_) => Err(Broken { place: Place::Closing, flaw: Flaw::Missing }),
            State::Closed(summary) => Ok(*summary),
        }
    }

    fn accept(&mut self, line: &[u8], examined: Result<Examined, Flaw>) -> Result<(), Broken> {
        let State::Records(reading) = &mut self.state else { return Err(Broken { place: Place::Closing, flaw: Flaw::Trailing }) };
        self.line += 1;
        let place = |seq, receipt_id| Place::Record { line: self.line, seq, receipt_id };
        match examined {
            Ok(Examined::Record(record)) => {
                reading.follow(&record).map_err(|flaw| Broken { place: place(Some(record.seq), Some(record.receipt_id)), flaw })?;
                self.bytes.update(line);
            }
            Ok(Examined::Closing { text }) => {
                let digest = self.bytes.clone().finalize();
                let summary = reading.close(&text, &digest).map_err(|flaw| Broken { place: Place::Closing, flaw })?;
                self.state = State::Closed(Box::new(summary));
            }
            Err(flaw) => {
                // A closing line that is no checkpoint any more still begins like one.
                if line.starts_with(b"{\"checkpoint\":") || reading.is_complete() {
                    return Err(Broken { place: Place::Closing, flaw });
                }
                return Err(Broken { place: place(reading.expected(), None), flaw });
            }
        }
        Ok(())
    }
}

impl Reading {
    /// All that can be said of a line without the lines around it.
    fn examine(&self, line: &[u8]) -> Result<Examined, Flaw> {
        let text = whole(line)?;
        let value: Value = serde_json::from_slice(text).map_err(|_| Flaw::NotJson)?;
        if canonical(&value).map_err(Flaw::NoCanonicalForm)?.as_bytes() != text {
            return Err(Flaw::Spelling);
        }
        let object = value.as_object().ok_or(Flaw::Format)?;
        if let Some(note) = object.get("checkpoint") {
            let text = note.as_str().filter(|_| object.len() == 1).ok_or(Flaw::Member("checkpoint"))?;
            return Ok(Examined::Closing { text: text.to_owned() });
        }
        let (Some(receipt), Some(proof), 2) = (object.get("receipt"), object.get("proof"), object.len()) else {
            return Err(Flaw::Member("receipt"));
        };
        let receipt_text = canonical(receipt).map_err(Flaw::NoCanonicalForm)?;
        let record = record::check_value(receipt, &receipt_text, &self.ledger)?;
        let proof = proof.as_array().filter(|hashes| hashes.len() <= MAX_PROOF).ok_or(Flaw::Member("proof"))?;
        let proof: Option<Vec<Hash>> = proof.iter().map(|hash| from_hex(hash.as_str()?)).collect();
        let proof = proof.ok_or(Flaw::Member("proof"))?;
        if root_of_inclusion(record.seq, self.checkpoint.size, record.leaf, &proof) != Some(self.checkpoint.root) {
            return Err(Flaw::Proof);
        }
        Ok(Examined::Record(record))
    }

    /// The number of the next record, where only one can be next.
    fn expected(&self) -> Option<u64> {
        match self.extent {
            Extent::All => Some(self.last.map_or(0, |(seq, _)| seq + 1)),
            Extent::Some => None,
        }
    }

    fn is_complete(&self) -> bool {
        self.expected() == Some(self.checkpoint.size)
    }

    /// Puts a record after the one before.
    fn follow(&mut self, record: &Record) -> Result<(), Flaw> {
        let next = self.last.map_or(0, |(seq, _)| seq + 1);
        if record.seq < next || (self.extent == Extent::All && record.seq != next) {
            return Err(Flaw::Sequence { expected: next, found: record.seq });
        }
        // Where the record before is here, the link to it can be checked.
        let before = if record.seq == 0 {
            Some(record::first_prev(&self.ledger.origin))
        } else {
            self.last.filter(|_| record.seq == next).map(|(_, digest)| digest)
        };
        if before.is_some_and(|digest| digest != record.prev) {
            return Err(Flaw::Chain);
        }
        self.last = Some((record.seq, record.digest));
        self.count += 1;
        if self.extent == Extent::All {
            self.tree.push(record.leaf);
        }
        Ok(())
    }

    fn close(&self, text: &str, digest: &[u8]) -> Result<Summary, Flaw> {
        let note = Note::parse(text).map_err(Flaw::Note)?;
        let newest = self.ledger.keys.newest();
        note.signed_by(&self.ledger.origin, newest).map_err(Flaw::Note)?;
        let closing = Checkpoint::parse(note.text).map_err(Flaw::Note)?;
        let [line] = closing.extensions.as_slice() else { return Err(Flaw::Member("checkpoint")) };
        let (count, signed_digest) =
            line.strip_prefix("export ").and_then(|rest| rest.split_once(' ')).ok_or(Flaw::Member("checkpoint"))?;
        let signed: u64 = count.parse().map_err(|_| Flaw::Member("checkpoint"))?;
        if (&closing.origin, closing.size, closing.root) != (&self.checkpoint.origin, self.checkpoint.size, self.checkpoint.root) {
            return Err(Flaw::OtherCheckpoint);
        }
        if signed != self.count {
            return Err(Flaw::Count { found: self.count, signed });
        }
        if self.extent == Extent::All && (self.tree.size(), self.tree.root()) != (closing.size, closing.root) {
            return Err(Flaw::Root(closing.size));
        }
        if signed_digest != to_hex(digest) {
            return Err(Flaw::Digest);
        }
        Ok(Summary {
            origin: self.ledger.origin.clone(),
            count: self.count,
            size: closing.size,
            extent: self.extent,
            key_id: newest.id().to_owned(),
            note: self.note.clone(),
        })
    }
}

/// A line without its line break.
fn whole(line: &[u8]) -> Result<&[u8], Flaw> {
    let text = line.strip_suffix(b"\n").ok_or(if line.len() > MAX_LINE { Flaw::Long(MAX_LINE) } else { Flaw::Cut })?;
    if text.len() > MAX_LINE { Err(Flaw::Long(MAX_LINE)) } else { Ok(text) }
}

fn read_header(text: &[u8], trusted: &[PublicKey]) -> Result<Reading, Flaw> {
    let value: Value = serde_json::from_slice(text).map_err(|_| Flaw::NotJson)?;
    if canonical(&value).map_err(Flaw::NoCanonicalForm)?.as_bytes() != text {
        return Err(Flaw::Spelling);
    }
    let member = |name: &'static str| value.get(name).ok_or(Flaw::Member(name));
    if member("format")?.as_str() != Some("stockade-receipts") || member("version")?.as_u64() != Some(1) {
        return Err(Flaw::Format);
    }
    if value.as_object().is_none_or(|object| object.len() != 5) {
        return Err(Flaw::Format);
    }
    let extent = match member("records")?.as_str() {
        Some("all") => Extent::All,
        Some("some") => Extent::Some,
        _ => return Err(Flaw::Member("records")),
    };
    let rotations = member("rotations")?.as_array().ok_or(Flaw::Member("rotations"))?;
    let rotations: Option<Vec<Rotation>> = rotations.iter().map(Rotation::from_value).collect();
    let note_text = member("checkpoint")?.as_str().ok_or(Flaw::Member("checkpoint"))?;
    let note = Note::parse(note_text).map_err(Flaw::Note)?;
    let checkpoint = Checkpoint::parse(note.text).map_err(Flaw::Note)?;
    if !checkpoint.extensions.is_empty() {
        return Err(Flaw::Member("checkpoint"));
    }
    let origin = checkpoint.origin.clone();
    let keys = Keys::trusted(trusted, rotations.ok_or(Flaw::Member("rotations"))?, &origin, |key| note.claims(&origin, key))?;
    note.signed_by(&origin, keys.newest()).map_err(Flaw::Note)?;
    let ledger = Ledger { origin, keys };
    let (count, last, tree) = (0, None, Frontier::default());
    Ok(Reading { ledger, checkpoint, note: note_text.to_owned(), extent, count, last, tree })
}

/// Examines items on all processors, in order.
pub fn in_parallel<T: Sync, R: Send>(items: &[T], examine: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(8);
    // Starting a thread costs about as much as checking a receipt.
    if threads == 1 || items.len() < 16 {
        return items.iter().map(examine).collect();
    }
    let share = items.len().div_ceil(threads);
    let examine = &examine;
    std::thread::scope(|scope| {
        let workers: Vec<_> = items.chunks(share).map(|part| scope.spawn(move || part.iter().map(examine).collect::<Vec<R>>())).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key() -> PublicKey {
        PublicKey::parse(include_str!("../tests/data/newest.pub.pem")).unwrap()
    }

    #[test]
    fn items_keep_their_order_on_any_number_of_threads() {
        let items: Vec<u32> = (0..1000).collect();
        assert_eq!(in_parallel(&items, |item| item * 2), items.iter().map(|item| item * 2).collect::<Vec<_>>());
    }

    #[test]
    fn a_line_without_end_is_not_read_to_its_end() {
        let endless = std::io::BufReader::new(std::io::repeat(b'{'));
        let Err(CheckError::Broken(broken)) = check(endless, &[key()]) else { panic!("it ended") };
        assert_eq!(broken, Broken { place: Place::Header, flaw: Flaw::Long(MAX_LINE) });
    }

    proptest! {
        #[test]
        fn nothing_else_passes(text in "(\\{\"(checkpoint|format|proof|receipt)\":[\\[\\]{}\"0-9a-z]{0,20}[}\\]]{0,3}\n){0,4}.{0,40}") {
            prop_assert!(check(text.as_bytes(), &[key()]).is_err());
        }

        #[test]
        fn an_export_with_a_piece_cut_out_or_doubled_is_noticed(start in 0_usize..5900, length in 1_usize..2000, doubled: bool) {
            let good = include_bytes!("../tests/data/all.jsonl");
            let end = (start + length).min(good.len());
            let middle = if doubled { [&good[start..end], &good[start..end]].concat() } else { Vec::new() };
            let changed = [&good[..start], &middle, &good[end..]].concat();
            prop_assert!(check(changed.as_slice(), &[key()]).is_err());
        }
    }
}
