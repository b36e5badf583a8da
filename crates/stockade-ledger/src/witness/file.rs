//! A witness that is a directory: a key, and for each ledger the last checkpoint it signed. Put it where whoever rolls back the ledger cannot follow.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use stockade_verify::key::PublicKey;
use stockade_verify::merkle::is_consistent;
use stockade_verify::note::{Checkpoint, MAX_NOTE, Note, cosignature_line, cosigned_message};
use stockade_verify::text::to_hex;

use crate::database;
use crate::error::LedgerError;
use crate::query::Reader;
use crate::signing::{LedgerKey, sync_directory};
use crate::tree::Tree;

/// A witness in a directory.
#[derive(Debug, Clone)]
pub struct FileWitness {
    directory: PathBuf,
}

impl FileWitness {
    /// The witness in this directory; its key is made when it first signs.
    pub fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned() }
    }

    /// Its name and public key; makes the key where there is none.
    pub fn identity(&self) -> Result<(String, PublicKey), LedgerError> {
        let key = self.key()?;
        Ok((name(&key), key.public().clone()))
    }

    pub(super) fn seen(&self, origin: &str) -> Result<Option<Checkpoint>, LedgerError> {
        let path = self.path(origin);
        let file = match std::fs::File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(LedgerError::file("open", &path)(error)),
        };
        let mut text = String::new();
        file.take(u64::try_from(MAX_NOTE).unwrap_or(u64::MAX)).read_to_string(&mut text).map_err(LedgerError::file("read", &path))?;
        let key = self.key()?;
        let read = || {
            let note = Note::parse(&text)?;
            note.cosigned_by(&name(&key), key.public())?;
            Checkpoint::parse(note.text)
        };
        read().map(Some).map_err(|bad| LedgerError::Witness(format!("what it has seen is damaged: {bad}")))
    }

    pub(super) fn cosign(&self, note: &str, checkpoint: &Checkpoint, reader: &Reader) -> Result<String, LedgerError> {
        let key = self.key()?;
        let _lock = database::lock(&self.directory.join("lock"))?;
        if let Some(seen) = self.seen(&checkpoint.origin)? {
            if seen.size > checkpoint.size {
                return Err(LedgerError::RolledBack { seen: seen.size, found: checkpoint.size });
            }
            let proof = Tree::new(&reader.connection, &reader.path, checkpoint.size)?.consistency(seen.size)?;
            if !is_consistent((seen.size, seen.root), (checkpoint.size, checkpoint.root), &proof) {
                return Err(LedgerError::Rewritten(seen.size));
            }
        }
        let time = super::now();
        let text = checkpoint.to_text();
        let line = cosignature_line(&name(&key), key.public(), time, &key.sign(&cosigned_message(time, &text)));
        let parsed = Note::parse(note).map_err(|bad| LedgerError::Witness(bad.to_string()))?;
        // A checkpoint that was signed before is signed again: the later time is the one that counts.
        let cosigned = if parsed.cosigned_by(&name(&key), key.public()).is_ok() { note.to_owned() } else { format!("{note}{line}") };
        self.remember(&checkpoint.origin, &cosigned)?;
        Ok(cosigned)
    }

    fn remember(&self, origin: &str, note: &str) -> Result<(), LedgerError> {
        let path = self.path(origin);
        let draft = path.with_extension("draft");
        let write = || -> std::io::Result<()> {
            let mut file = std::fs::File::options().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
            file.write_all(note.as_bytes())?;
            file.sync_all()?;
            std::fs::rename(&draft, &path)
        };
        write().map_err(LedgerError::file("write", &path))?;
        sync_directory(&self.directory)
    }

    fn key(&self) -> Result<LedgerKey, LedgerError> {
        let path = self.directory.join("witness.pem");
        match LedgerKey::load(&path) {
            Err(LedgerError::NoKey(_)) => {}
            other => return other,
        }
        stockade_private_dir::ensure_private_dir(&self.directory).map_err(|error| LedgerError::Directory(std::sync::Arc::new(error)))?;
        let _lock = database::lock(&self.directory.join("lock"))?;
        match LedgerKey::load(&path) {
            Err(LedgerError::NoKey(_)) => {
                let key = LedgerKey::create(&path)?;
                let public = self.directory.join("witness.pub.pem");
                std::fs::write(&public, key.public().to_pem()).map_err(LedgerError::file("write", &public))?;
                Ok(key)
            }
            other => other,
        }
    }

    fn path(&self, origin: &str) -> PathBuf {
        let digest = to_hex(&Sha256::digest(origin));
        self.directory.join(format!("seen-{}", digest.get(..16).unwrap_or_default()))
    }
}

fn name(key: &LedgerKey) -> String {
    format!("stockade.witness/{}", key.public().id())
}
