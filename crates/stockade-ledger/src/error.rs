//! Why the ledger cannot do what was asked, and what a person can do about it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::ErrorCode;
use stockade_core::escape::escape_bytes;
use stockade_private_dir::PrivateDirError;
use stockade_verify::flaw::Broken;

/// A step that failed. Many callers may wait for one write, so it can be copied.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LedgerError {
    /// The directory cannot be made ours alone.
    #[error("cannot use the ledger's directory")]
    Directory(#[source] Arc<PrivateDirError>),
    /// A file beside the database.
    #[error("cannot {step} `{}`", shown(.path))]
    File {
        /// What was tried.
        step: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: Arc<io::Error>,
    },
    /// The database.
    #[error("cannot {step} the ledger `{}`: {problem}", shown(.path))]
    Database {
        /// What was tried.
        step: &'static str,
        /// On what.
        path: PathBuf,
        /// What is wrong.
        problem: Problem,
    },
    /// Written by a later version.
    #[error("the ledger `{}` has version {version}, which this stockade does not know", shown(.path))]
    Newer {
        /// The database.
        path: PathBuf,
        /// Its version.
        version: i64,
    },
    /// Something in the database is not what this crate wrote.
    #[error("the ledger `{}` is damaged: {what}", shown(.path))]
    Damaged {
        /// The database.
        path: PathBuf,
        /// What is wrong.
        what: &'static str,
    },
    /// The key is gone.
    #[error("the ledger's key `{}` is missing", shown(.0))]
    NoKey(PathBuf),
    /// A file that is no key.
    #[error("`{}` is not an Ed25519 private key in PKCS#8 PEM", shown(.0))]
    BadKey(PathBuf),
    /// Others may have read it.
    #[error("the key `{}` has mode {mode:o}: others may have read it", shown(.path))]
    ExposedKey {
        /// The key file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// Another ledger's key.
    #[error("the key `{}` is not the one that this ledger is signed with", shown(.0))]
    OtherKey(PathBuf),
    /// Too much for one receipt.
    #[error("the receipt has {0} bytes, more than the {most} a receipt may have", most = stockade_verify::record::MAX_RECEIPT)]
    TooLarge(usize),
    /// A value that canonical JSON cannot hold.
    #[error("the receipt cannot be written: {0}")]
    Content(String),
    /// An outcome of nothing.
    #[error("there is no open intent `{0}`: it was never written, or its outcome was")]
    NoIntent(String),
    /// No such receipt.
    #[error("there is no receipt `{0}`")]
    NoReceipt(String),
    /// Secrets cannot be kept out.
    #[error("secrets cannot be taken out of the receipt: {0}")]
    Redaction(String),
    /// The ledger does not hold.
    #[error("the ledger does not hold")]
    Broken(#[source] Box<Broken>),
    /// What receipts are found by does not fit them.
    #[error("receipt {0} cannot be found by what it says: the index beside the receipts was changed")]
    BadIndex(u64),
    /// Smaller than it was.
    #[error("the witness has seen {seen} receipts, this ledger has {found}: it was rolled back")]
    RolledBack {
        /// What was witnessed.
        seen: u64,
        /// What is there.
        found: u64,
    },
    /// Other receipts than before.
    #[error("the first {0} receipts are not those that the witness has seen: the ledger was rewritten")]
    Rewritten(u64),
    /// The witness did not sign.
    #[error("the witness did not sign: {0}")]
    Witness(String),
    /// What is written out cannot be written.
    #[error("cannot write the export")]
    Export(#[source] Arc<io::Error>),
}

/// What a database says is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// No room.
    #[error("the disk is full")]
    Full,
    /// Not writable.
    #[error("it is read-only")]
    ReadOnly,
    /// Held for too long by somebody.
    #[error("another process has held it for too long")]
    Held,
    /// Not a sound database any more.
    #[error("the file is damaged")]
    Corrupt,
    /// Not a database.
    #[error("the file is not a ledger")]
    NotALedger,
    /// Cannot be opened.
    #[error("it cannot be opened")]
    CannotOpen,
    /// The disk failed.
    #[error("the disk failed ({0})")]
    Disk(String),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

impl Problem {
    pub(crate) fn of(error: &rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::Full,
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => Self::ReadOnly,
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed) => Self::Held,
            Some(ErrorCode::DatabaseCorrupt) => Self::Corrupt,
            Some(ErrorCode::NotADatabase) => Self::NotALedger,
            Some(ErrorCode::CannotOpen) => Self::CannotOpen,
            Some(ErrorCode::SystemIoFailure) => Self::Disk(error.to_string()),
            _ => Self::Other(error.to_string()),
        }
    }
}

impl LedgerError {
    /// For `map_err` on the database.
    pub(crate) fn database<'a>(step: &'static str, path: &'a Path) -> impl FnOnce(rusqlite::Error) -> Self + use<'a> {
        move |error| Self::Database { step, path: path.to_owned(), problem: Problem::of(&error) }
    }

    /// For `map_err` on files.
    pub(crate) fn file<'a>(step: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> Self + use<'a> {
        move |error| Self::File { step, path: path.to_owned(), source: Arc::new(error) }
    }

    /// Whether it may be only this connection that cannot: it was opened while the file could not be written to, and stays so whatever becomes of the
    /// file. Not said of a disk that failed: what did not reach it must not be taken for written by whoever opens the file anew.
    pub fn passes_with_opening(&self) -> bool {
        matches!(self, Self::Database { problem: Problem::ReadOnly | Problem::CannotOpen, .. })
    }

    /// What a person can do about it.
    pub fn hint(&self) -> Option<String> {
        let parent = |path: &Path| shown(path.parent().unwrap_or(path));
        match self {
            Self::Database { path, problem, .. } => Some(match problem {
                Problem::Full => format!("nothing runs without a receipt: make room on the disk of `{}`", parent(path)),
                Problem::ReadOnly | Problem::CannotOpen => format!(
                    "nothing runs without a receipt: make `{}` writable for you, or set XDG_STATE_HOME to a directory of your own",
                    parent(path)
                ),
                Problem::Held => "see who holds it: fuser -v on the file; a stopped process keeps its lock".to_owned(),
                Problem::Corrupt | Problem::NotALedger => {
                    format!("keep it for whoever asks, and begin a new ledger: mv '{0}' '{0}.damaged'", parent(path))
                }
                Problem::Disk(_) => "look at the kernel's messages (dmesg) for that disk".to_owned(),
                Problem::Other(_) => return None,
            }),
            Self::Damaged { path, .. } => {
                Some(format!("keep it for whoever asks, and begin a new ledger: mv '{0}' '{0}.damaged'", parent(path)))
            }
            Self::NoKey(path) | Self::OtherKey(path) | Self::BadKey(path) => {
                Some(format!("put the ledger's own key back, or begin a new ledger: mv '{0}' '{0}.old'", parent(path)))
            }
            Self::ExposedKey { path, .. } => {
                Some(format!("if nobody else could reach it: chmod 600 '{}'; otherwise rotate the key afterwards", shown(path)))
            }
            Self::Newer { .. } => Some("use the newer stockade".to_owned()),
            Self::File { source, path, .. } if source.kind() == io::ErrorKind::StorageFull => {
                Some(format!("nothing runs without a receipt: make room on the disk of `{}`", parent(path)))
            }
            Self::File { source, path, .. }
                if matches!(source.kind(), io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied) =>
            {
                Some(format!("nothing runs without a receipt: make `{}` writable for you", parent(path)))
            }
            Self::Directory(_) => Some(
                "nothing runs without a receipt: make the directory writable for you alone, or set XDG_STATE_HOME to one of your own"
                    .to_owned(),
            ),
            Self::BadIndex(_) => {
                Some("the receipts hold; somebody changed the database beside them, to hide them from a search".to_owned())
            }
            Self::RolledBack { .. } | Self::Rewritten(_) => {
                Some("keep both the ledger and what the witness has: one of them was changed by whoever holds the key".to_owned())
            }
            Self::Witness(_) => {
                Some("check the ledger against the witness: a ledger that is smaller than what was witnessed was rolled back".to_owned())
            }
            Self::File { .. }
            | Self::TooLarge(_)
            | Self::Content(_)
            | Self::NoIntent(_)
            | Self::NoReceipt(_)
            | Self::Redaction(_)
            | Self::Broken(_)
            | Self::Export(_) => None,
        }
    }
}

fn shown(path: &Path) -> String {
    escape_bytes(path.as_os_str().as_encoded_bytes())
}
