//! How receipts are kept, as settings have it: how durably, and who outside signs that they were seen.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use stockade_core::escape::escape;
use stockade_ledger::Durability;
use stockade_ledger::witness::{CommandWitness, FileWitness, Witness};
use stockade_store::settings::{self, Settings};
use stockade_verify::key::{MAX_KEY_TEXT, PublicKey};

use crate::failure::Failure;

/// The step that fails where a witness cannot be asked.
const STEP: &str = "witness";

/// How receipts are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Keeping {
    /// When a receipt counts as written.
    pub(crate) durability: Durability,
    directory: Option<String>,
    command: Option<String>,
    name: Option<String>,
    key: Option<String>,
}

impl Keeping {
    /// As these settings have it.
    pub(crate) fn of(settings: &Settings) -> Self {
        let durability = match settings.durability().value {
            settings::Durability::Effect => Durability::Effect,
            settings::Durability::Always => Durability::Always,
            settings::Durability::Process => Durability::Process,
        };
        let settings::Witness { directory, command, name, key } = settings.witness();
        Self { durability, directory: directory.value, command: command.value, name: name.value, key: key.value }
    }

    /// Where nobody knows what settings have.
    pub(crate) fn safest() -> Self {
        Self { durability: Durability::Always, directory: None, command: None, name: None, key: None }
    }

    /// Whether a witness is wanted.
    pub(crate) fn is_witnessed(&self) -> bool {
        self.directory.is_some() || self.command.is_some()
    }

    /// The program that has to be run for it, if one has.
    #[cfg(wall)]
    pub(crate) fn program(&self) -> Option<&str> {
        self.command.as_deref()
    }

    /// Who signs checkpoints of the ledger in this directory too.
    pub(crate) fn witness(&self, ledger: &Path) -> Result<Option<Witness>, Failure> {
        match (&self.directory, &self.command) {
            (None, None) => Ok(None),
            (Some(_), Some(_)) => {
                Err(Failure::new(STEP, "`receipts.witness.directory` and `receipts.witness.command` are both set, and one is meant")
                    .with_hint("stockade config unset receipts.witness.command"))
            }
            (Some(directory), None) => in_directory(Path::new(directory), ledger).map(Some),
            (None, Some(program)) => self.by_command(program).map(Some),
        }
    }

    fn by_command(&self, program: &str) -> Result<Witness, Failure> {
        let (Some(name), Some(key)) = (&self.name, &self.key) else {
            return Err(Failure::new(STEP, "`receipts.witness.command` needs `receipts.witness.name` and `receipts.witness.publicKey`")
                .with_hint("the key is a file with the public key that its signatures are checked with"));
        };
        let failed = |why: String| Failure::new(STEP, format!("the key `{}`: {why}", escape(key)));
        let mut text = String::new();
        let file = File::open(key).map_err(|error| failed(error.to_string()))?;
        file.take(MAX_KEY_TEXT as u64).read_to_string(&mut text).map_err(|error| failed(error.to_string()))?;
        let key = PublicKey::parse(&text).map_err(|bad| failed(bad.to_string()))?;
        let program = absolute(Path::new(program), "receipts.witness.command")?;
        Ok(Witness::Command(Box::new(CommandWitness::new(program, Vec::new(), name.clone(), key))))
    }
}

/// A witness beside what it is to watch would be rolled back with it.
fn in_directory(directory: &Path, ledger: &Path) -> Result<Witness, Failure> {
    let directory = absolute(directory, "receipts.witness.directory")?;
    let state = ledger.parent().unwrap_or(ledger);
    if directory.starts_with(state) {
        return Err(Failure::new(STEP, "`receipts.witness.directory` lies within Stockade's own state, and would be rolled back with it")
            .with_hint("name a directory on another disk, or of another machine"));
    }
    Ok(Witness::File(FileWitness::new(&directory)))
}

fn absolute(path: &Path, setting: &str) -> Result<PathBuf, Failure> {
    if path.is_absolute() {
        return Ok(path.to_owned());
    }
    Err(Failure::new(STEP, format!("`{}` is not an absolute path", escape(&path.to_string_lossy())))
        .with_hint(format!("stockade config set {setting} /…")))
}
