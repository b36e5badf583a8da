//! Everything that a request is bound to, found out: the files of programs and of words, variables, secrets, the rules, the sandbox.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use stockade_core::credential::Class;
use stockade_core::reach::SecretUse;
use stockade_core::result::{Change, ChangeKind};
use stockade_core::spec::SandboxSpec;
use stockade_gateway::approvals::{Bound, BoundFile, Contents, Input, Variable, Visibility};
use stockade_verify::text::to_hex;

use super::Question;
use crate::assemble::Assembled;
use crate::engine::overlay::Written;
use crate::failure::Failure;
use crate::receipts::{Programs, configuration_text, hashed, outside};

/// Words of a call that are looked at as names of files.
const MOST_WORDS: usize = 4096;
/// Files that a call may name.
const MOST_FILES: usize = 256;
/// Changes of an overlay that are listed one by one; of more, those that a call names.
const MOST_CHANGES: usize = 100;
/// Bytes of files that are read to bind a call to them.
const MOST_BYTES: u64 = 1 << 30;

/// Why a call cannot be approved.
pub(super) enum Unbound {
    /// It is not such that anybody could say yes to it.
    Refused(String),
    /// Something failed.
    Failed(Failure),
}

/// A credential as a person is shown it.
fn credential(one: &SecretUse) -> String {
    let how: Vec<&str> = one.deliveries.iter().map(|delivery| delivery.word()).collect();
    format!("{} for {}, as {}: {}", one.name.as_str(), joined(&one.hosts), how.join(" and "), Class::of(&one.deliveries).word())
}

/// What a call is bound to.
pub(super) fn bind(question: &Question, assembled: &Assembled, input: Input, written: Option<&Written>) -> Result<Bound, Unbound> {
    let spec = &assembled.spec;
    let covered = |file: &BoundFile| written.is_some_and(|written| written.covers(&file.path, spec));
    let sandbox = configuration_text(assembled.backend.kind().name(), spec, &assembled.reach).map_err(Unbound::Failed)?;
    let variable = |(name, value): &(String, OsString)| {
        let visibility = if assembled.given.contains(name) { Visibility::Whole } else { Visibility::Usual };
        Variable { name: name.clone(), value: value.as_bytes().to_vec(), visibility }
    };
    let secrets = assembled.reach.secrets.iter();
    Ok(Bound {
        principal: question.principal.clone(),
        wanted: question.wanted.clone(),
        effect: question.effect.name().to_owned(),
        programs: programs(question, assembled)?.into_iter().filter(|file| !covered(file)).collect(),
        cwd: spec.cwd.as_path().to_owned(),
        environment: spec.env.iter().map(variable).collect(),
        input,
        operands: operands(&question.words, assembled)?.into_iter().filter(|file| !covered(file)).collect(),
        credentials: secrets.map(credential).collect(),
        policy: question.policy.clone(),
        sandbox: if assembled.applies { format!("{sandbox} applies") } else { sandbox },
        surroundings: surroundings(question, assembled, written)?,
        because: question.because.clone(),
    })
}

/// What the sandbox is, for people.
fn surroundings(question: &Question, assembled: &Assembled, written: Option<&Written>) -> Result<Vec<(String, String)>, Unbound> {
    let spec = &assembled.spec;
    let mut facts = Vec::new();
    let mut fact = |what: &str, how: String| facts.push((what.to_owned(), how));
    let after = if assembled.applies { ", changes are applied when it succeeds" } else { "" };
    fact("workspace", format!("{} ({}{after})", spec.workspace.path, spec.workspace.mode));
    for mount in &spec.mounts {
        fact("mount", format!("{} at {} ({})", mount.host, mount.guest, mount.mode));
    }
    if !assembled.reach.hosts.is_empty() {
        fact("reaches", joined(&assembled.reach.hosts));
    }
    fact("wall", assembled.backend.kind().name().to_owned());
    if let Some(Written { changes }) = written.filter(|written| !written.changes.is_empty()) {
        let listed: Vec<(&Change, Option<String>)> =
            changes.iter().map(|(change, digest)| (change, digest.map(|digest| digest.to_string()))).collect();
        let all = serde_json::to_vec(&listed).map_err(|error| Unbound::Failed(Failure::new("approvals", error.to_string())))?;
        let digest = to_hex(&Sha256::digest(all));
        let words = question.programs.iter().chain(&question.words);
        let named: BTreeSet<PathBuf> = words.filter_map(|word| beneath(&spec.cwd.as_path().join(word), spec)).collect();
        let is_shown = |change: &Change| changes.len() <= MOST_CHANGES || named.contains(Path::new(&change.path));
        let which = if changes.len() > MOST_CHANGES { "; listed are those that the call names" } else { "" };
        fact("overlay", format!("changes made before: {}, sha256 {digest}{which}", changes.len()));
        for (change, digest) in listed.iter().filter(|(change, _)| is_shown(change)) {
            let contents = digest.as_ref().map_or_else(String::new, |digest| format!(", sha256 {digest}"));
            fact("changed", format!("{} ({}{contents})", change.path, word(change.kind)));
        }
    }
    Ok(facts)
}

impl Written {
    /// Whether the overlay has something else in the place of a file of the workspace.
    fn covers(&self, file: &Path, spec: &SandboxSpec) -> bool {
        let Some(inside) = beneath(file, spec) else { return false };
        self.changes.iter().any(|(change, _)| inside.starts_with(&change.path))
    }
}

fn word(kind: ChangeKind) -> &'static str {
    match kind {
        ChangeKind::Added => "new",
        ChangeKind::Modified => "other contents",
        ChangeKind::Deleted => "deleted",
        ChangeKind::Mode => "other permissions",
        ChangeKind::Renamed => "renamed",
    }
}

/// A path as changes have it: from the workspace on. What climbs is shown by the digest of all changes alone.
fn beneath(path: &Path, spec: &SandboxSpec) -> Option<PathBuf> {
    // Collected again, so that no `.` is left.
    path.strip_prefix(spec.workspace.path.as_path()).ok().map(|path| path.components().collect())
}

/// The files of the programs that would run, by name and by digest.
fn programs(question: &Question, assembled: &Assembled) -> Result<Vec<BoundFile>, Unbound> {
    let known = Programs::new(&assembled.state);
    let mut files: Vec<BoundFile> = Vec::new();
    for name in &question.programs {
        let Some((path, sha256)) = known.look_up(name, &assembled.spec) else { continue };
        let path = std::fs::canonicalize(&path).unwrap_or(path);
        let unreadable = || Unbound::Refused(format!("its program `{}` cannot be read", path.display()));
        let contents = sha256.map(Contents::Sha256).ok_or_else(unreadable)?;
        let file = BoundFile { path, contents };
        if !files.contains(&file) {
            files.push(file);
        }
    }
    Ok(files)
}

/// The files that words name, alone or after an equals sign. What is not there is not bound; should it be there later, that is another call.
fn operands(words: &[OsString], assembled: &Assembled) -> Result<Vec<BoundFile>, Unbound> {
    if words.len() > MOST_WORDS {
        return Err(Unbound::Refused(format!("it has more than {MOST_WORDS} words")));
    }
    let mut files: Vec<BoundFile> = Vec::new();
    let mut room = MOST_BYTES;
    for word in words {
        let value = word.as_bytes().iter().position(|byte| *byte == b'=').and_then(|at| word.as_bytes().get(at + 1..));
        for name in [Some(word.as_bytes()), value].into_iter().flatten().filter(|name| !name.is_empty()) {
            let Some(path) = visible(Path::new(OsStr::from_bytes(name)), assembled) else { continue };
            if files.iter().any(|file| file.path == path) {
                continue;
            }
            if files.len() >= MOST_FILES {
                return Err(Unbound::Refused(format!("it names more than {MOST_FILES} files")));
            }
            let contents = contents(&path, &mut room)?;
            files.push(BoundFile { path, contents });
        }
    }
    Ok(files)
}

fn contents(path: &Path, room: &mut u64) -> Result<Contents, Unbound> {
    let unreadable = || Unbound::Refused(format!("`{}` cannot be read", path.display()));
    let found = std::fs::metadata(path).map_err(|_| unreadable())?;
    if found.is_dir() {
        return Ok(Contents::Directory);
    }
    if !found.is_file() {
        return Ok(Contents::Special);
    }
    *room = room
        .checked_sub(found.len())
        .ok_or_else(|| Unbound::Refused(format!("the files that it names have more than {MOST_BYTES} bytes")))?;
    let file = std::fs::File::open(path).map_err(|_| unreadable())?;
    hashed(&file).map(Contents::Sha256).ok_or_else(unreadable)
}

/// Where a file that a word names really is, links followed, if the sandbox has it at all: not what is private to the person outside.
fn visible(word: &Path, assembled: &Assembled) -> Option<PathBuf> {
    let spec = &assembled.spec;
    let inside = spec.cwd.as_path().join(word);
    let real = std::fs::canonicalize(outside(spec, &inside)).ok()?;
    let is_given = given(spec).any(|place| real.starts_with(place));
    let is_private = [&assembled.home, &assembled.state, &assembled.runtime].into_iter().any(|place| real.starts_with(place));
    (is_given || !is_private).then_some(real)
}

/// What of the outside the sandbox is given by name.
fn given(spec: &SandboxSpec) -> impl Iterator<Item = &Path> {
    std::iter::once(spec.workspace.path.as_path()).chain(spec.mounts.iter().map(|mount| mount.host.as_path()))
}

fn joined(hosts: &[stockade_core::host::HostPattern]) -> String {
    hosts.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
