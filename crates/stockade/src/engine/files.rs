//! The call that runs no program: a file is read or written, or a directory listed, inside a jail on the agent's overlay.
//!
//! The path is looked up by the guest, behind the wall: a link that leads elsewhere leads elsewhere *inside*. Rules see the path as it was asked
//! for.

use std::io::Write;

use serde_json::{Value, json};
use stockade_core::path::SafePath;
use stockade_core::result::Decision;
use stockade_core::spec::MountMode;
use stockade_gateway::approvals::Wanted;
use stockade_ledger::Weight;
use stockade_ledger::receipt::{Approval, Outcome};
use stockade_policy::{Decision as Judged, Request, Verdict};
use stockade_sandbox::files::{FileError, Files};
use stockade_sandbox::once::{self, Done, Extras, Job, JobError, OnSuccess, Work};
use stockade_sandbox::wire::{FileKind, FileStat};

use super::explain;
use super::overlay::Turn;
use super::result::text_or_base64;
use crate::Context;
use crate::admission::{self, Rules};
use crate::approval::{Consent, Filed, Manner, Refusal, Witness};
use crate::assemble::{Admitted, Assembled};
use crate::failure::Failure;
use crate::receipts::{Book, Deed, changed, failed, policy_of, sandbox_of};

/// The mode of a file that was not there before.
const NEW_FILE: u32 = 0o644;

/// What is done to a file.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Act<'a> {
    /// Its contents, so many bytes at most.
    Read(u64),
    /// The names in it, so many at most.
    List(usize),
    /// These become its contents.
    Write(&'a [u8]),
}

/// What came of it.
#[derive(Debug)]
pub(crate) enum Found {
    /// Contents.
    Contents {
        /// The bytes.
        bytes: Vec<u8>,
        /// There were more.
        truncated: bool,
    },
    /// Names, and whether there were more.
    Names {
        /// Each with its kind and size.
        entries: Vec<Listed>,
        /// There were more.
        truncated: bool,
    },
    /// So many bytes were written.
    Written(u64),
}

/// One name of a directory.
#[derive(Debug)]
pub(crate) struct Listed {
    /// The name; what is not UTF-8 is escaped.
    pub(crate) name: String,
    /// `file`, `directory`, `link` or `other`.
    pub(crate) kind: &'static str,
    /// Bytes of a file.
    pub(crate) size: u64,
}

/// What came of a call.
#[derive(Debug)]
pub(crate) struct Handled {
    /// The receipt.
    pub(crate) receipt_id: String,
    /// What the rules said.
    pub(crate) told: Decision,
    /// What was found; nothing where it was denied.
    pub(crate) found: Option<Found>,
    /// The request that waits because of it.
    pub(crate) filed: Option<Filed>,
}

impl Handled {
    /// As JSON.
    pub(crate) fn value(&self, path: &str) -> Value {
        let Self { receipt_id, told, found, filed: _ } = self;
        let mut value = json!({ "receipt_id": receipt_id, "path": path, "decision": told });
        let mut add = |key: &str, more: Value| value.as_object_mut().map(|map| map.insert(key.to_owned(), more));
        match found {
            None => {}
            Some(Found::Contents { bytes, truncated }) => {
                let (content, content_base64) = text_or_base64(bytes);
                add("bytes", bytes.len().into());
                add("truncated", (*truncated).into());
                content.map(|text| add("content", text.into()));
                content_base64.map(|text| add("content_base64", text.into()));
            }
            Some(Found::Names { entries, truncated }) => {
                let list = entries.iter().map(|entry| json!({ "name": entry.name, "kind": entry.kind, "size": entry.size }));
                add("entries", list.collect());
                add("truncated", (*truncated).into());
            }
            Some(Found::Written(bytes)) => drop(add("bytes", (*bytes).into())),
        }
        value
    }
}

impl Act<'_> {
    /// The verb in a receipt.
    fn verb(self) -> &'static str {
        match self {
            Self::Read(_) => "mcp.read_file",
            Self::List(_) => "mcp.list_dir",
            Self::Write(_) => "mcp.write_file",
        }
    }

    /// What a person is asked about.
    fn wanted(self, path: &SafePath) -> Wanted {
        let (verb, contents) = match self {
            Self::Read(_) => ("reads", None),
            Self::List(_) => ("lists", None),
            Self::Write(bytes) => ("writes", Some(bytes.to_vec())),
        };
        Wanted::File { verb, path: path.as_path().as_os_str().as_encoded_bytes().to_vec(), contents }
    }

    /// How the workspace has to be for it.
    pub(crate) fn mode(self) -> Option<MountMode> {
        match self {
            Self::Read(_) | Self::List(_) => Some(MountMode::Ro),
            Self::Write(_) => None,
        }
    }
}

/// Admits, decides, writes the intent, does it and writes the outcome; or writes that it was denied.
pub(crate) fn handle<'t>(
    mut assembled: Assembled,
    path: &SafePath,
    act: Act<'_>,
    consent: Option<&Consent>,
    context: &Context,
    wait: impl FnOnce(&Assembled) -> Result<Option<Turn<'t>>, Failure>,
) -> Result<(Handled, Book), Failure> {
    let shown = path.to_string();
    let admitted = admit(&mut assembled, path, act)?;
    // Nothing runs, so nothing needs a way out.
    assembled.reach = stockade_core::reach::Reach::default();
    let book = Book::new(&assembled.state, assembled.keeping.clone(), context);
    let words = [shown.as_str()];
    let weight = if assembled.spec.workspace.mode == MountMode::Rw { Weight::Effect } else { Weight::Read };
    let deed = Deed::verb(&book, act.verb(), &words, weight);
    if let Some(agent) = assembled.rules.asker().agent() {
        deed.of_agent(agent.whole(), agent.client().to_owned());
    }
    deed.note(|draft| draft.trace.clone_from(&assembled.trace));
    let receipt_id = deed.id();
    // As with programs: what is approved is bound to what the overlay holds.
    let (turn, wait) = if matches!(admitted, Admitted::Asked(_)) { (wait(&assembled)?, None) } else { (None, Some(wait)) };
    let written = turn.as_ref().map(Turn::written).transpose()?;
    let manner = Manner::Called { written: written.as_ref(), consent, input: &[] };
    let witness = Noted { deed: &deed, rules: &assembled.rules };
    if let Some(Refusal { told, filed }) = admitted.settle(&assembled, &witness, &manner, deed.redactor(), context)? {
        deed.deny(&told, &assembled.rules)?;
        drop(deed);
        return Ok((Handled { receipt_id, told, found: None, filed }, book));
    }
    let turn = match wait {
        Some(wait) => wait(&assembled)?,
        None => turn,
    };
    let facts = sandbox_of(assembled.backend.kind().name(), &assembled.spec, &assembled.reach, &book.payloads(), deed.redactor())?;
    deed.note(|draft| {
        draft.sandbox = Some(facts);
        draft.policy = Some(policy_of(&assembled.told, &assembled.rules));
    });
    deed.begin()?;
    let worked = inside(&assembled, path, act, turn);
    let found = worked.and_then(|(done, found)| {
        deed.note(|draft| {
            if let Some(sandbox) = &mut draft.sandbox {
                sandbox.id = Some(done.id.to_string());
                sandbox.enforcement = done.enforcement.levels();
            }
            draft.changes = Some(changed(&done.changes, &done.digests));
        });
        found
    });
    deed.end(found.as_ref().map_or_else(failed, |_| Outcome { exit_code: Some(0), ..Outcome::default() }), context);
    drop(deed);
    Ok((Handled { receipt_id, told: assembled.told, found: Some(found?), filed: None }, book))
}

/// The receipt of it.
struct Noted<'a> {
    deed: &'a Deed<'a>,
    rules: &'a Rules,
}

impl Witness for Noted<'_> {
    fn id(&self) -> String {
        self.deed.id()
    }

    fn decided(&self, verb: &'static str, approval: &Approval, told: &Decision) -> Result<(), Failure> {
        self.deed.decided(verb, approval, told, self.rules)
    }

    fn approved(&self, approval: Approval) {
        self.deed.note(|draft| draft.approval = Some(approval));
    }
}

/// Asks the rules.
fn admit(assembled: &mut Assembled, at: &SafePath, act: Act<'_>) -> Result<Admitted, Failure> {
    if let Some(told) = assembled.rules.refusal_of_agents() {
        return Ok(Admitted::No(told));
    }
    let (path, workspace) = (at.to_string(), assembled.spec.workspace.path.to_string());
    let (request, decision) = decide(&assembled.rules, &workspace, &path, act)?;
    let told = admission::told(&decision);
    let admitted = match decision.verdict {
        Verdict::Allow => Admitted::Yes,
        Verdict::Ask => Admitted::Asked(Box::new(assembled.rules.question_about_file(&request, &decision, act.wanted(at))?)),
        Verdict::Deny => return Ok(Admitted::No(told)),
    };
    assembled.told = told;
    Ok(admitted)
}

/// What the rules say where nobody can be asked: a decision that it may, or one that it may not.
pub(crate) fn judge(rules: &Rules, workspace: &str, path: &str, act: Act<'_>) -> Result<Result<Decision, Decision>, Failure> {
    if let Some(told) = rules.refusal_of_agents() {
        return Ok(Err(told));
    }
    let (_, decision) = decide(rules, workspace, path, act)?;
    let told = admission::told(&decision);
    Ok(match decision.verdict {
        Verdict::Allow => Ok(told),
        Verdict::Ask => Err(admission::unasked(told)),
        Verdict::Deny => Err(told),
    })
}

fn decide<'r>(rules: &Rules, workspace: &'r str, path: &'r str, act: Act<'_>) -> Result<(Request<'r>, Judged), Failure> {
    let request = match act {
        Act::Read(_) | Act::List(_) => Request::Read { path, workspace },
        Act::Write(_) => Request::Write { path, workspace },
    };
    let decision = rules.decide(&request)?;
    Ok((request, decision))
}

/// What the jail was, and what was found in it.
type Worked = (Done, Result<Found, Failure>);

fn inside(assembled: &Assembled, path: &SafePath, act: Act<'_>, turn: Option<Turn<'_>>) -> Result<Worked, Failure> {
    let job = Job {
        backend: assembled.backend.as_ref(),
        spec: &assembled.spec,
        state: &assembled.state,
        runtime: &assembled.runtime,
        home: &assembled.home,
        toolchain_roots: &assembled.toolchain_roots,
        argv: &[],
        on_success: OnSuccess::Keep,
        gate: None,
        intent: None,
    };
    let extras = turn.as_ref().map_or_else(|| Ok(Extras::default()), Turn::extras)?;
    let mut found = None;
    let mut look = |files: &mut Files<'_>| found = Some(perform(files, path, act));
    let (mut done, remains) = once::work_with(&job, extras, Work::Files(&mut look)).map_err(|error| explain(&error))?;
    remains.clear().map_err(|error| explain(&JobError::State(error)))?;
    if let Some(turn) = turn {
        turn.take_changes(&mut done, assembled)?;
    }
    let found = found.unwrap_or_else(|| Err(FileError::Local(std::io::Error::other("nothing was done"))));
    Ok((done, found.map_err(|error| Failure::from_error("file", &error))))
}

/// Does it.
pub(crate) fn perform(files: &mut Files<'_>, path: &SafePath, act: Act<'_>) -> Result<Found, FileError> {
    match act {
        Act::Read(most) => {
            let mut held = Held { bytes: Vec::new(), most, truncated: false };
            match files.read_file(path, &mut held) {
                Err(FileError::Local(_)) if held.truncated => {}
                read => drop(read?),
            }
            Ok(Found::Contents { bytes: held.bytes, truncated: held.truncated })
        }
        Act::List(most) => {
            let mut entries = files.list_dir(path)?;
            entries.sort_by(|one, other| one.name.0.cmp(&other.name.0));
            let truncated = entries.len() > most;
            let names = entries.iter().take(most).map(|entry| Listed {
                name: stockade_core::escape::escape_bytes(&entry.name.0),
                kind: kind(&entry.stat),
                size: entry.stat.size,
            });
            Ok(Found::Names { entries: names.collect(), truncated })
        }
        Act::Write(bytes) => {
            // A script stays executable.
            let mode = files.stat(path).map_or(NEW_FILE, |stat| stat.mode & 0o777);
            files.write_file(path, mode, &mut &*bytes).map(Found::Written)
        }
    }
}

fn kind(stat: &FileStat) -> &'static str {
    match stat.kind {
        FileKind::File {} => "file",
        FileKind::Directory {} => "directory",
        FileKind::Symlink { .. } => "link",
        FileKind::Other {} => "other",
    }
}

/// Takes so many bytes and no more.
struct Held {
    bytes: Vec<u8>,
    most: u64,
    truncated: bool,
}

impl Write for Held {
    fn write(&mut self, more: &[u8]) -> std::io::Result<usize> {
        let room = self.most.saturating_sub(self.bytes.len() as u64);
        let room = usize::try_from(room).unwrap_or(usize::MAX).min(more.len());
        if room == 0 && !more.is_empty() {
            self.truncated = true;
            return Err(std::io::Error::other("there is more than is taken"));
        }
        self.bytes.extend_from_slice(more.get(..room).unwrap_or_default());
        Ok(room)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
