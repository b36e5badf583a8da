//! Installing a pack: everything is checked in memory, then one directory takes another's place. What fails on the way leaves what was there.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FlockOperation, RenameFlags};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use stockade_policy::pack::{Listing, Manifest, Pack, PackFiles, PackName, Platform, PublisherName, Version};

use super::builtin;
use super::error::PackError;
use super::file;
use super::load::Packs;
use super::publishers::Publishers;
use super::signature::{Standing, check_claim, read_pack, standing};
use crate::places::Places;
use crate::policy::known;
use crate::private_dir::ensure_private_dir;

/// The directory of installed packs beneath the state.
const DIRECTORY: &str = "packs";
/// The record beside a pack's files.
const RECORD: &str = "installed.json";
/// The form of the record.
const VERSION: u32 = 1;
/// Longer than any record.
const MAX_RECORD: usize = 16 << 10;

/// Whether a pack that nobody vouches for is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unsigned {
    /// No.
    Refuse,
    /// Yes: a person said `--unsigned`.
    Accept,
}

/// Whether an older version may take a newer one's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Downgrade {
    /// No.
    Refuse,
    /// Yes: a person said `--allow-downgrade`.
    Allow,
}

/// A pack that was checked and may be installed.
#[derive(Debug)]
pub struct Checked {
    /// What it is.
    pub pack: Pack,
    /// What vouches for it.
    pub standing: Standing,
    files: PackFiles,
}

/// What was agreed to when a pack was installed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Installed {
    version: u32,
    /// The pack's version.
    pub pack_version: Version,
    /// The SHA-256 of the list of all files.
    listing: String,
    /// The key of its signature; none where it was installed without.
    pub key_id: Option<String>,
    /// The publisher whose key that is; for an unsigned pack nobody.
    pub publisher: Option<PublisherName>,
}

/// Reads and checks a pack from a directory or an archive; installs nothing.
pub fn check(places: &Places, source: &Path, unsigned: Unsigned) -> Result<Checked, PackError> {
    let files = read_pack(source)?;
    let pack = Pack::read(&files, "").map_err(PackError::Faults)?;
    let standing = vouched(places, &files, &pack.manifest, unsigned)?;
    pack.lint(&files, "").map_err(PackError::Faults)?;
    let platforms = &pack.manifest.platforms;
    if !platforms.is_empty() && Platform::here().is_none_or(|here| !platforms.contains(&here)) {
        return Err(PackError::Platform(platforms.iter().map(|platform| platform.name()).collect::<Vec<_>>().join(", ")));
    }
    Ok(Checked { pack, standing, files })
}

/// What vouches for files. A signature that is there must hold, or at least be about these files, whoever made it.
fn vouched(places: &Places, files: &PackFiles, manifest: &Manifest, unsigned: Unsigned) -> Result<Standing, PackError> {
    match standing(files, manifest, &Publishers::load(places)?) {
        Err(PackError::Unsigned | PackError::Untrusted(_)) if unsigned == Unsigned::Accept => {
            check_claim(files, manifest)?;
            Ok(Standing::Unsigned)
        }
        other => other,
    }
}

/// Installs a checked pack in place of any older one.
pub fn install(places: &Places, checked: &Checked, downgrade: Downgrade) -> Result<(), PackError> {
    let name = &checked.pack.manifest.name;
    let directory = packs_directory(places);
    let failed = |path: &Path, error: io::Error| PackError::Write(path.to_owned(), error);
    ensure_private_dir(&directory).map_err(|error| failed(&directory, io::Error::other(error)))?;
    let _lock = lock(&directory)?;
    refuse_claims(places, &checked.pack)?;
    let target = directory.join(name.as_str());
    let record = record_of(checked);
    let is_there = target.symlink_metadata().is_ok();
    // A record that cannot be read says nothing about what was installed; installing again is how to mend it.
    if let Some(before) = is_there.then(|| read_record(places, name).ok()).flatten() {
        compare(name, &before, &record, downgrade)?;
    }
    let draft = directory.join(format!(".new-{}", std::process::id()));
    let written = write_pack(&draft, checked, &record).map_err(|error| failed(&draft, error)).and_then(|()| {
        let flags = if is_there { RenameFlags::EXCHANGE } else { RenameFlags::NOREPLACE };
        rustix::fs::renameat_with(CWD, &draft, CWD, &target, flags).map_err(|errno| failed(&target, errno.into()))
    });
    // After an exchange the old version lies there; after a failure what was written so far.
    let _ = std::fs::remove_dir_all(&draft);
    written.and_then(|()| forget_known(places))
}

/// Removes an installed pack.
pub fn remove(places: &Places, name: &PackName) -> Result<(), PackError> {
    if builtin::names().any(|one| one == name.as_str()) {
        return Err(PackError::BuiltIn(name.clone()));
    }
    let directory = packs_directory(places);
    let target = directory.join(name.as_str());
    if !target.is_dir() {
        return Err(PackError::NoPack(name.to_string()));
    }
    let _lock = lock(&directory)?;
    let failed = |error: io::Error| PackError::Write(target.clone(), error);
    // Out of sight in one step, so that nobody ever loads half a pack.
    let gone = directory.join(format!(".gone-{}", std::process::id()));
    std::fs::rename(&target, &gone).map_err(failed)?;
    std::fs::remove_dir_all(&gone).map_err(failed)?;
    forget_known(places)
}

/// Rules that named what is gone were right before, and are not now.
fn forget_known(places: &Places) -> Result<(), PackError> {
    known::forget(places).map_err(|error| PackError::Write(places.state.clone(), error))
}

/// Where packs are installed.
pub(super) fn packs_directory(places: &Places) -> PathBuf {
    places.state.join(DIRECTORY)
}

/// Where a pack's own files lie.
pub(super) fn files_directory(places: &Places, name: &PackName) -> PathBuf {
    packs_directory(places).join(name.as_str()).join("files")
}

/// Where a pack's record lies.
pub(super) fn record_path(places: &Places, name: &PackName) -> PathBuf {
    packs_directory(places).join(name.as_str()).join(RECORD)
}

/// What was agreed to.
pub(super) fn read_record(places: &Places, name: &PackName) -> Result<Installed, PackError> {
    let path = record_path(places, name);
    let bytes = file::read(&path, MAX_RECORD).map_err(|error| PackError::Read(path.clone(), error))?;
    let bytes = bytes.ok_or_else(|| PackError::Record(path.clone(), "it is missing".to_owned()))?;
    let record: Installed = serde_json::from_slice(&bytes).map_err(|error| PackError::Record(path.clone(), error.to_string()))?;
    if record.version == VERSION { Ok(record) } else { Err(PackError::Record(path, format!("its version is {}", record.version))) }
}

/// Whether files are those that were agreed to, and still vouched for by whoever vouched for them then.
pub(super) fn verify_installed(
    record: &Installed,
    files: &PackFiles,
    manifest: &Manifest,
    publishers: &Publishers,
) -> Result<Standing, PackError> {
    let found = match &record.key_id {
        None => Standing::Unsigned,
        Some(_) => standing(files, manifest, publishers)?,
    };
    // An older pack of the same publisher has a sound signature too; but nobody agreed to it.
    if digest(files, manifest) == record.listing { Ok(found) } else { Err(PackError::Changed) }
}

fn record_of(checked: &Checked) -> Installed {
    let (key_id, publisher) = match &checked.standing {
        Standing::Signed { key_id, publisher } => (Some(key_id.clone()), Some(publisher.clone())),
        Standing::Unsigned | Standing::BuiltIn => (None, None),
    };
    let manifest = &checked.pack.manifest;
    Installed { version: VERSION, pack_version: manifest.version, listing: digest(&checked.files, manifest), key_id, publisher }
}

fn digest(files: &PackFiles, manifest: &Manifest) -> String {
    file::hex(&Sha256::digest(Listing::of(files, &manifest.name, manifest.version).to_bytes()))
}

/// Whether one version may take another's place.
fn compare(name: &PackName, before: &Installed, after: &Installed, downgrade: Downgrade) -> Result<(), PackError> {
    let shown = |publisher: &Option<PublisherName>| publisher.as_ref().map_or_else(|| "nobody".to_owned(), ToString::to_string);
    // From nobody to somebody is a gain; every other change of hands is not.
    if before.publisher.is_some() && before.publisher != after.publisher {
        return Err(PackError::Takeover { name: name.clone(), installed: shown(&before.publisher), offered: shown(&after.publisher) });
    }
    let (installed, offered) = (before.pack_version, after.pack_version);
    if offered < installed && downgrade == Downgrade::Refuse {
        return Err(PackError::Downgrade { name: name.clone(), installed, offered });
    }
    if offered == installed && before.listing != after.listing && before.publisher.is_some() {
        return Err(PackError::SameVersion { name: name.clone(), version: offered });
    }
    Ok(())
}

/// One capability name, one pack; and no pack takes a built-in one's name.
fn refuse_claims(places: &Places, pack: &Pack) -> Result<(), PackError> {
    let name = &pack.manifest.name;
    if builtin::names().any(|one| one == name.as_str()) {
        return Err(PackError::BuiltIn(name.clone()));
    }
    let others = Packs::load(places)?;
    for file in &pack.capabilities {
        let capability = &file.capability.name;
        if let Some(owner) = others.owner(capability.as_str()).filter(|owner| *owner != name) {
            return Err(PackError::Claimed { capability: capability.clone(), owner: owner.clone() });
        }
    }
    Ok(())
}

fn write_pack(draft: &Path, checked: &Checked, record: &Installed) -> io::Result<()> {
    let _ = std::fs::remove_dir_all(draft);
    let files = draft.join("files");
    ensure_private_dir(&files).map_err(io::Error::other)?;
    for (path, bytes) in checked.files.iter() {
        let target = files.join(path.as_str());
        if let Some(parent) = target.parent().filter(|parent| !parent.is_dir()) {
            ensure_private_dir(parent).map_err(io::Error::other)?;
        }
        file::write(&target, bytes)?;
    }
    file::write(&draft.join(RECORD), &serde_json::to_vec_pretty(record)?)
}

/// One installation at a time; the lock ends with the descriptor.
fn lock(directory: &Path) -> Result<std::fs::File, PackError> {
    let path = directory.join(".lock");
    let failed = |error: io::Error| PackError::Write(path.clone(), error);
    let file = std::fs::OpenOptions::new().write(true).create(true).truncate(false).open(&path).map_err(failed)?;
    rustix::fs::flock(&file, FlockOperation::LockExclusive).map_err(|errno| failed(errno.into()))?;
    Ok(file)
}
