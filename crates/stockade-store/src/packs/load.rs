//! The packs that there are: every load verifies every pack, or finds that nothing of it changed since it was verified.
//!
//! A pack that does not verify is left out with the reason; the others work. Only what is used is read again: a capability's own file, whose
//! digest must be that of the verified pack.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use stockade_policy::capability::{Capability, CapabilityFacts, Vocabulary};
use stockade_policy::pack::{MAX_FILE, Pack, PackName, PublisherName, Version};
use stockade_policy::{Layer, PolicyFile, Trust};

use super::builtin;
use super::directory::read_with_stamps;
use super::error::PackError;
use super::file::{self, Stamp, hex};
use super::install::{files_directory, packs_directory, read_record, record_path, verify_installed};
use super::known::{Known, Proof, Remembered};
use super::publishers::Publishers;
use super::signature::Standing;
use crate::places::Places;
use crate::settings::closest;

/// Installed packs at most.
const MAX_PACKS: usize = 500;
/// Packs that are worth a second thread.
const MIN_SHARED: usize = 4;
/// Threads that verify at most.
const MAX_THREADS: usize = 8;

/// A capability, without all that is only needed to call it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CapabilitySummary {
    /// What rules may say about it.
    pub facts: CapabilityFacts,
    /// What it does.
    pub description: String,
    /// The SHA-256 of its manifest.
    sha256: String,
}

/// A pack that verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadedPack {
    /// Its name.
    pub name: PackName,
    /// Its version.
    pub version: Version,
    /// What it is for.
    pub description: String,
    /// Whose it says it is.
    pub publisher: PublisherName,
    /// What vouches for it.
    pub standing: Standing,
    /// Its capabilities.
    pub capabilities: Vec<CapabilitySummary>,
    /// Its rules: path and SHA-256.
    rules: Vec<(String, String)>,
    /// Where its files lie; none where it is built in.
    directory: Option<PathBuf>,
}

/// A pack that was left out.
#[derive(Debug)]
pub struct Problem {
    /// Its directory's name.
    pub name: String,
    /// Why.
    pub error: PackError,
}

/// All packs.
#[derive(Debug)]
pub struct Packs {
    /// Those that verified.
    pub packs: Vec<LoadedPack>,
    /// Those that did not.
    pub problems: Vec<Problem>,
    /// Which capability is whose, as a place in `packs`.
    owners: BTreeMap<String, usize>,
    /// Capabilities that were read and parsed already. They are shared, so that a schema is compiled once.
    read: Mutex<BTreeMap<String, Arc<Capability>>>,
    digest: OnceLock<[u8; 32]>,
}

/// What is kept of a pack between loads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Summary {
    version: Version,
    description: String,
    publisher: PublisherName,
    /// The key and whose it is; none: unsigned.
    signed: Option<(String, PublisherName)>,
    capabilities: Vec<CapabilitySummary>,
    rules: Vec<(String, String)>,
}

impl Packs {
    /// Loads all packs.
    pub fn load(places: &Places) -> Result<Self, PackError> {
        Self::put_together(places, Known::load(places, &Remembered::default())).map(|(all, _)| all)
    }

    /// The same in a process that loads them again and again.
    pub fn load_with(places: &Places, remembered: &Remembered) -> Result<Arc<Self>, PackError> {
        if let Some(packs) = remembered.packs(places) {
            return Ok(packs);
        }
        let (all, proof) = Self::put_together(places, Known::load(places, remembered))?;
        let all = Arc::new(all);
        // What does not verify is tried again each time.
        remembered.keep(proof.filter(|_| all.problems.is_empty()), &all);
        Ok(all)
    }

    /// All packs, and what they were put together from where that can be told by stamps.
    fn put_together(places: &Places, mut known: Known) -> Result<(Self, Option<Proof>), PackError> {
        let mut all =
            Self { packs: Vec::new(), problems: Vec::new(), owners: BTreeMap::new(), read: Mutex::default(), digest: OnceLock::new() };
        let mut unknown = Vec::new();
        let built_in = builtin::names().map(Source::BuiltIn);
        for source in built_in.chain(installed_names(places)?.into_iter().map(Source::Installed)) {
            match source.known(places, &mut known) {
                Some(pack) => all.packs.push(pack),
                None => unknown.push(source),
            }
        }
        for (source, verified) in unknown.iter().zip(verify_all(places, &unknown)) {
            match verified {
                Ok(Verified { pack, stamps }) => {
                    if let Some((record, stamps)) = stamps {
                        known.remember(pack.name.as_str(), record, stamps);
                    }
                    all.packs.push(pack);
                }
                Err(error) => all.problems.push(Problem { name: source.name().to_owned(), error }),
            }
        }
        // Built-in ones first, then by name, whichever were known.
        all.packs.sort_by(|one, other| (one.directory.is_some(), &one.name).cmp(&(other.directory.is_some(), &other.name)));
        let proof = known.proof(&all.packs);
        known.store(places, &all.packs);
        all.refuse_second_claims();
        Ok((all, proof))
    }

    /// Whose a capability is.
    pub fn owner(&self, capability: &str) -> Option<&PackName> {
        self.owners.get(capability).and_then(|place| self.packs.get(*place)).map(|pack| &pack.name)
    }

    /// A capability with its pack: its file is read, and must be the one that was verified.
    pub fn capability(&self, name: &str) -> Result<(&LoadedPack, Arc<Capability>), PackError> {
        let unknown = || {
            let names: Vec<&str> = self.owners.keys().map(String::as_str).collect();
            let nearest = closest(name, &names).map(str::to_owned);
            PackError::NoCapability { name: stockade_core::escape::escape(name), nearest }
        };
        let pack = self.owners.get(name).and_then(|place| self.packs.get(*place)).ok_or_else(unknown)?;
        let summary = pack.capabilities.iter().find(|summary| summary.facts.name.as_str() == name).ok_or_else(unknown)?;
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(capability) = read.get(name) {
            return Ok((pack, Arc::clone(capability)));
        }
        let path = format!("capabilities/{name}.toml");
        let text = pack.verified_text(&path, &summary.sha256)?;
        let capability = Arc::new(Capability::parse(&format!("{}/{path}", pack.name), &text).map_err(PackError::Faults)?);
        read.insert(name.to_owned(), Arc::clone(&capability));
        Ok((pack, capability))
    }

    /// Every capability and rule of every pack in few bytes: two that differ in anything that rules or calls see have different ones.
    pub fn digest(&self) -> [u8; 32] {
        *self.digest.get_or_init(|| self.digested())
    }

    fn digested(&self) -> [u8; 32] {
        let mut digest = Sha256::new();
        for pack in &self.packs {
            let of = format!("{} {} {:?} {} {}\n", pack.name, pack.version, pack.standing, pack.capabilities.len(), pack.rules.len());
            digest.update(of);
            pack.capabilities.iter().for_each(|summary| digest.update(format!("{} {}\n", summary.facts.name, summary.sha256)));
            pack.rules.iter().for_each(|(path, sha256)| digest.update(format!("{path} {sha256}\n")));
        }
        digest.finalize().into()
    }

    /// What rules may name.
    pub fn vocabulary(&self) -> Vocabulary {
        Vocabulary { capabilities: self.packs.iter().flat_map(|pack| &pack.capabilities).map(|summary| summary.facts.clone()).collect() }
    }

    /// The rules of all packs.
    pub fn policy_files(&self) -> Result<Vec<PolicyFile>, PackError> {
        let rules = self.packs.iter().flat_map(|pack| pack.rules.iter().map(move |rule| (pack, rule)));
        rules
            .map(|(pack, (path, sha256))| {
                let text = pack.verified_text(path, sha256)?;
                // Installing a pack is agreeing to its permits.
                Ok(PolicyFile { layer: Layer::Pack, trust: Trust::Trusted, name: format!("{}/{path}", pack.name), text })
            })
            .collect()
    }

    /// Nobody can say whose a capability is that two packs claim: what is built in stays, every other claimant is left out.
    fn refuse_second_claims(&mut self) {
        let mut claims: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (place, pack) in self.packs.iter().enumerate() {
            for summary in &pack.capabilities {
                claims.entry(summary.facts.name.as_str()).or_default().push(place);
            }
        }
        let mut refused: BTreeMap<usize, PackError> = BTreeMap::new();
        for (capability, places) in claims.iter().filter(|(_, places)| places.len() > 1) {
            for place in places {
                let Some(pack) = self.packs.get(*place).filter(|pack| pack.standing != Standing::BuiltIn) else { continue };
                let other = places.iter().find(|other| *other != place).and_then(|other| self.packs.get(*other));
                let capability = pack.capabilities.iter().find(|summary| summary.facts.name.as_str() == *capability);
                if let (Some(other), Some(summary)) = (other, capability) {
                    let claimed = PackError::Claimed { capability: summary.facts.name.clone(), owner: other.name.clone() };
                    refused.entry(*place).or_insert(claimed);
                }
            }
        }
        for (place, error) in refused.into_iter().rev() {
            let name = self.packs.remove(place).name.to_string();
            self.problems.push(Problem { name, error });
        }
        let owned = self.packs.iter().enumerate();
        let owned = owned.flat_map(|(place, pack)| pack.capabilities.iter().map(move |summary| (summary.facts.name.to_string(), place)));
        self.owners = owned.collect();
    }
}

impl LoadedPack {
    /// What is kept of it.
    pub(super) fn summary(&self) -> Summary {
        let signed = match &self.standing {
            Standing::Signed { key_id, publisher } => Some((key_id.clone(), publisher.clone())),
            Standing::Unsigned | Standing::BuiltIn => None,
        };
        Summary {
            version: self.version,
            description: self.description.clone(),
            publisher: self.publisher.clone(),
            signed,
            capabilities: self.capabilities.clone(),
            rules: self.rules.clone(),
        }
    }

    fn verified_text(&self, path: &str, sha256: &str) -> Result<String, PackError> {
        let bytes = match &self.directory {
            None => builtin::file(self.name.as_str(), path).ok_or(PackError::Changed)?.to_vec(),
            Some(directory) => {
                let path = directory.join(path);
                file::read(&path, MAX_FILE).map_err(|error| PackError::Read(path.clone(), error))?.ok_or(PackError::Changed)?
            }
        };
        if hex(&Sha256::digest(&bytes)) != sha256 {
            return Err(PackError::Changed);
        }
        String::from_utf8(bytes).map_err(|_| PackError::Changed)
    }
}

impl Summary {
    fn of(pack: &Pack, standing: &Standing, policy: Vec<(String, String)>) -> Self {
        let signed = match standing {
            Standing::Signed { key_id, publisher } => Some((key_id.clone(), publisher.clone())),
            Standing::Unsigned | Standing::BuiltIn => None,
        };
        let capabilities = pack.capabilities.iter().map(|file| CapabilitySummary {
            facts: file.capability.facts(&pack.manifest.name),
            description: file.capability.description.clone(),
            sha256: file.sha256.clone(),
        });
        Self {
            version: pack.manifest.version,
            description: pack.manifest.description.clone(),
            publisher: pack.manifest.publisher.clone(),
            signed,
            capabilities: capabilities.collect(),
            rules: policy,
        }
    }

    fn into_pack(self, name: PackName, directory: Option<PathBuf>) -> LoadedPack {
        let standing = match (&directory, self.signed) {
            (None, _) => Standing::BuiltIn,
            (Some(_), Some((key_id, publisher))) => Standing::Signed { key_id, publisher },
            (Some(_), None) => Standing::Unsigned,
        };
        LoadedPack {
            name,
            version: self.version,
            description: self.description,
            publisher: self.publisher,
            standing,
            capabilities: self.capabilities,
            rules: self.rules,
            directory,
        }
    }
}

/// Where a pack comes from.
#[derive(Debug)]
enum Source {
    BuiltIn(&'static str),
    /// By the name of its directory.
    Installed(String),
}

/// A pack that was verified from the beginning, and for an installed one what tells whether it changed: its record, and all its files.
struct Verified {
    pack: LoadedPack,
    stamps: Option<(Stamp, Vec<(String, Stamp)>)>,
}

impl Source {
    fn name(&self) -> &str {
        match self {
            Self::BuiltIn(name) => name,
            Self::Installed(name) => name,
        }
    }

    fn pack_name(&self) -> Result<PackName, PackError> {
        let name = self.name();
        name.parse::<PackName>().map_err(|error| PackError::Record(PathBuf::from(name), error.to_string()))
    }

    /// The pack, if it verified before and nothing of it changed since.
    fn known(&self, places: &Places, known: &mut Known) -> Option<LoadedPack> {
        let name = self.pack_name().ok()?;
        match self {
            Self::BuiltIn(_) => Some(known.built_in(name.as_str())?.into_pack(name, None)),
            Self::Installed(_) => {
                let directory = files_directory(places, &name);
                let summary = known.installed(&name, &directory, &record_path(places, &name))?;
                Some(summary.into_pack(name, Some(directory)))
            }
        }
    }

    /// Verifies it from the beginning.
    fn verify(&self, places: &Places, publishers: &mut Option<Publishers>) -> Result<Verified, PackError> {
        let name = self.pack_name()?;
        match self {
            Self::BuiltIn(_) => built_in(name),
            Self::Installed(_) => installed(places, name, publishers),
        }
    }
}

/// Verifies packs on all processors: what is found in one is none of another's business. Whoever has time takes the next one.
fn verify_all(places: &Places, sources: &[Source]) -> Vec<Result<Verified, PackError>> {
    let threads =
        if sources.len() < MIN_SHARED { 1 } else { std::thread::available_parallelism().map_or(1, |count| count.get().min(MAX_THREADS)) };
    let next = AtomicUsize::new(0);
    let verify = || {
        let mut publishers = None;
        let numbers = std::iter::from_fn(|| Some(next.fetch_add(1, Ordering::Relaxed)));
        let taken = numbers.map_while(|place| Some((place, sources.get(place)?)));
        taken.map(|(place, source)| (place, source.verify(places, &mut publishers))).collect::<Vec<_>>()
    };
    let mut verified = std::thread::scope(|scope| {
        // Where no thread can be had, the others do the work.
        let started: Vec<_> = (1..threads).filter_map(|_| std::thread::Builder::new().spawn_scoped(scope, verify).ok()).collect();
        let mut verified = verify();
        for thread in started {
            verified.extend(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        verified
    });
    verified.sort_by_key(|(place, _)| *place);
    verified.into_iter().map(|(_, verified)| verified).collect()
}

fn built_in(name: PackName) -> Result<Verified, PackError> {
    let files = builtin::files(name.as_str())?;
    let pack = Pack::read(&files, name.as_str()).map_err(PackError::Faults)?;
    if pack.manifest.name != name {
        return Err(PackError::BuiltIn(pack.manifest.name));
    }
    let summary = Summary::of(&pack, &Standing::BuiltIn, rules(&files));
    Ok(Verified { pack: summary.into_pack(name, None), stamps: None })
}

fn installed(places: &Places, name: PackName, publishers: &mut Option<Publishers>) -> Result<Verified, PackError> {
    let directory = files_directory(places, &name);
    let record_stamp = Stamp::at(&record_path(places, &name));
    let record = read_record(places, &name)?;
    let read = read_with_stamps(&directory)?;
    let pack = Pack::read(&read.files, name.as_str()).map_err(PackError::Faults)?;
    if pack.manifest.name != name {
        return Err(PackError::Changed);
    }
    let publishers = match publishers {
        Some(publishers) => publishers,
        None => publishers.insert(Publishers::load(places)?),
    };
    let standing = verify_installed(&record, &read.files, &pack.manifest, publishers)?;
    if !pack.policy.is_empty() {
        pack.policies(&Vocabulary { capabilities: pack.facts() }).map_err(PackError::Faults)?;
    }
    let summary = Summary::of(&pack, &standing, rules(&read.files));
    let stamps = record_stamp.map(|record| (record, read.stamps));
    Ok(Verified { pack: summary.into_pack(name, Some(directory)), stamps })
}

/// The files of rules, with their digests.
fn rules(files: &stockade_policy::pack::PackFiles) -> Vec<(String, String)> {
    let rules = files.iter().filter(|(path, _)| path.as_str().starts_with("policy/"));
    rules.map(|(path, bytes)| (path.as_str().to_owned(), hex(&Sha256::digest(bytes)))).collect()
}

fn installed_names(places: &Places) -> Result<Vec<String>, PackError> {
    let directory = packs_directory(places);
    let failed = |error: std::io::Error| PackError::Read(directory.clone(), error);
    let entries = match std::fs::read_dir(&directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
        // Drafts, locks and what is being removed.
        if !name.starts_with('.') {
            names.push(name);
        }
        if names.len() > MAX_PACKS {
            return Err(failed(std::io::Error::other(format!("there are more than {MAX_PACKS} packs"))));
        }
    }
    names.sort();
    Ok(names)
}
