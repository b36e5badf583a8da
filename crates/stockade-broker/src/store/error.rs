//! Why the secret store cannot do what was asked, and what a person can do about it.

use std::io;
use std::path::{Path, PathBuf};

use stockade_core::escape::escape_bytes;
use stockade_store::private_dir::PrivateDirError;

use crate::{BadSecretValue, SecretName};

/// A step of the store that failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The directory cannot be made.
    #[error(transparent)]
    Directory(#[from] PrivateDirError),
    /// The directory cannot be looked at.
    #[error("cannot open the secret store `{}`", shown(.0))]
    Open(PathBuf, #[source] io::Error),
    /// A link, a special file, or a file with a second name.
    #[error("`{}` is a link, has a second name, or is not a plain file; the secret store does not follow it", shown(.0))]
    NotPlain(PathBuf),
    /// Somebody else's.
    #[error("`{}` belongs to user {owner}, not to user {us}", shown(.path))]
    NotOurs {
        /// What was found.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
        /// Who runs Stockade.
        us: u32,
    },
    /// Others may read or write it.
    #[error("`{}` has mode {mode:o}: others may have read or changed it", shown(.path))]
    Exposed {
        /// What was found.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// A file cannot be read.
    #[error("cannot read `{}`", shown(.0))]
    Read(PathBuf, #[source] io::Error),
    /// A file cannot be written.
    #[error("cannot write `{}`", shown(.0))]
    Write(PathBuf, #[source] io::Error),
    /// A file cannot be removed.
    #[error("cannot remove `{}`", shown(.0))]
    Remove(PathBuf, #[source] io::Error),
    /// The lock cannot be taken.
    #[error("cannot lock `{}`", shown(.0))]
    Lock(PathBuf, #[source] io::Error),
    /// Another writer does not finish.
    #[error("another stockade holds `{}`", shown(.0))]
    Busy(PathBuf),
    /// Not what this store wrote.
    #[error("`{}` is damaged or was not written by Stockade: {why}", shown(.path))]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Written by a later version.
    #[error("`{}` has version {version}, which this stockade does not know", shown(.path))]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u8,
    },
    /// Sealed with another key.
    #[error("`{}` was written with another key than the one in `{}`", shown(.path), shown(.key))]
    OtherKey {
        /// The entry.
        path: PathBuf,
        /// The key file.
        key: PathBuf,
    },
    /// Entries without their key.
    #[error("the key of the secret store, `{}`, is gone, so what is in the store cannot be read", shown(.0))]
    NoKey(PathBuf),
    /// The entry opened, but holds no usable value.
    #[error("what is kept as `{name}` cannot be used")]
    Value {
        /// Which.
        name: SecretName,
        /// Why.
        #[source]
        source: BadSecretValue,
    },
    /// Too many.
    #[error("the secret store holds {0} secrets, the most it takes")]
    Full(usize),
    /// The machine gives no random numbers, or sealing failed.
    #[error("cannot encrypt: the cryptographic library refused")]
    Crypto,
}

impl StoreError {
    /// What a person can do about it.
    pub fn hint(&self) -> Option<String> {
        let again = |path: &Path| match path.file_stem().and_then(|stem| stem.to_str()) {
            Some(name) if path.extension().is_some_and(|end| end == "secret") => {
                format!("remove it and set it again: stockade secret remove {name} && stockade secret set {name}")
            }
            _ => format!("move `{}` out of the way and set your secrets again", shown(path)),
        };
        match self {
            Self::NotPlain(path) | Self::Damaged { path, .. } => Some(again(path)),
            Self::OtherKey { path, .. } => Some(format!("put the right key file back, or {}", again(path))),
            Self::NotOurs { .. } => Some("run as the user who owns it, or set XDG_STATE_HOME to a directory of your own".to_owned()),
            Self::Exposed { path, mode } => {
                let right = if mode & 0o111 != 0 && path.is_dir() { "700" } else { "600" };
                Some(format!("if nobody else could reach it: chmod {right} '{}'; otherwise replace what is in it", shown(path)))
            }
            Self::Busy(_) => Some("wait for it to end and try again".to_owned()),
            Self::Newer { .. } => Some("use the newer stockade".to_owned()),
            Self::NoKey(_) => {
                Some("put the key file back, or remove every secret with `stockade secret remove` and set it again".to_owned())
            }
            Self::Value { name, .. } => Some(format!("set it again: stockade secret set {name}")),
            Self::Full(_) => Some("remove some with `stockade secret remove`".to_owned()),
            Self::Directory(_) | Self::Open(..) | Self::Read(..) | Self::Write(..) | Self::Remove(..) | Self::Lock(..) | Self::Crypto => {
                None
            }
        }
    }
}

fn shown(path: &Path) -> String {
    escape_bytes(path.as_os_str().as_encoded_bytes())
}
