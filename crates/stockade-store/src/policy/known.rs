//! What was found out before and need not be found out again: that rules passed every check, and that a question was answered with yes.
//!
//! Both depend on the text of the rules, on the question and on this program, and are kept under a digest of exactly these. They depend on one more thing,
//! which capabilities there are to be named: whoever changes that forgets everything that is known ([`forget`]). A refusal is never kept: whoever is refused hears the rules as
//! they are read. Whoever can write here could write the person's rules as well, for it lies in their private state; the machine's rules
//! are not the person's to write, and are always asked.

use std::fmt::Debug;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use sha2::{Digest, Sha256};
use stockade_policy::{Judgement, Layer, PolicyFile, Verdict};

use super::digits;
use crate::places::Places;
use crate::private_dir::ensure_private_dir;

/// The directory beneath the state directory.
const DIRECTORY: &str = "policy-known";
/// Longer than an answer worth keeping.
const MAX_BYTES: u64 = 1 << 16;
/// Once there are more, all are forgotten.
const MAX_ENTRIES: usize = 500;

/// What something is known about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Subject(String);

impl Subject {
    /// These rules. There is none where it cannot be told which program asks.
    pub(super) fn rules(files: &[PolicyFile]) -> Option<Self> {
        Self::of(&("rules", files))
    }

    /// This question to these rules.
    pub(super) fn question(files: &[PolicyFile], question: &impl Debug) -> Option<Self> {
        let are_own = files.iter().all(|file| file.layer != Layer::Machine);
        are_own.then(|| Self::of(&("question", files, question))).flatten()
    }

    /// Every field of a value is in its debugging form, and its strings are quoted there, so two values never look alike.
    fn of(value: &impl Debug) -> Option<Self> {
        let program = std::fs::metadata("/proc/self/exe").ok()?;
        let build = (program.dev(), program.ino(), program.size(), program.ctime(), program.ctime_nsec());
        Some(Self(digits(&Sha256::digest(format!("{build:?} {value:?}")))))
    }

    fn path(&self, places: &Places) -> PathBuf {
        places.state.join(DIRECTORY).join(&self.0)
    }
}

/// Whether rules passed before.
pub(super) fn has_passed(places: &Places, rules: &Subject) -> bool {
    rules.path(places).is_file()
}

/// Remembers that rules passed.
pub(super) fn remember_passed(places: &Places, rules: &Subject) {
    remember(places, rules, b"");
}

/// The permission that a question got before.
pub(super) fn permission(places: &Places, question: &Subject) -> Option<Judgement> {
    let mut text = Vec::new();
    File::open(question.path(places)).ok()?.take(MAX_BYTES).read_to_end(&mut text).ok()?;
    let judgement: Judgement = serde_json::from_slice(&text).ok()?;
    (judgement.decision.verdict == Verdict::Allow).then_some(judgement)
}

/// Remembers a permission; anything else is not kept.
pub(super) fn remember_permission(places: &Places, question: &Subject, judgement: &Judgement) {
    if judgement.decision.verdict == Verdict::Allow
        && let Ok(text) = serde_json::to_vec(judgement)
        && u64::try_from(text.len()).is_ok_and(|length| length < MAX_BYTES)
    {
        remember(places, question, &text);
    }
}

/// Forgets everything: rules may name other capabilities from now on.
pub(crate) fn forget(places: &Places) -> std::io::Result<()> {
    match std::fs::remove_dir_all(places.state.join(DIRECTORY)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Where it cannot be written down it is found out again, which does no harm.
fn remember(places: &Places, subject: &Subject, text: &[u8]) {
    let directory = places.state.join(DIRECTORY);
    if ensure_private_dir(&directory).is_err() {
        return;
    }
    if std::fs::read_dir(&directory).is_ok_and(|entries| entries.count() > MAX_ENTRIES) {
        let entries = std::fs::read_dir(&directory).into_iter().flatten().flatten();
        entries.for_each(|entry| drop(std::fs::remove_file(entry.path())));
    }
    let draft = directory.join(format!("draft-{}", std::process::id()));
    let written = File::create(&draft).and_then(|mut file| file.write_all(text));
    if written.and_then(|()| std::fs::rename(&draft, subject.path(places))).is_err() {
        let _ = std::fs::remove_file(&draft);
    }
}
