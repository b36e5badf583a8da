//! The file of the credential.
//!
//! ```json
//! { "version": 1, "public": "<64 hex>", "iterations": 600000, "salt": "…", "nonce": "…", "sealed": "…" }
//! { "version": 1, "public": "<64 hex>", "uid": 1001, "sockets": "/run/stockade-approvals" }
//! ```
//!
//! The second form is the machine's alone: the private half is another user's, and never here.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, OFlags};
use serde::{Deserialize, Serialize};
use stockade_policy::pack::{BadKey, PublicKey, SigningKey};
use stockade_store::places::Places;
use stockade_store::sealed::{self, SealError, SealedSeed};

use super::attempts::Way;
use crate::approvals::{ApprovalError, Method, Store, directory};

/// The form of the file.
pub(super) const VERSION: u32 = 1;
/// Its name, in the state and in the machine's directory.
const FILE: &str = "approver.json";
/// Bytes of it at most.
const MAX_FILE: u64 = 16 << 10;
/// How the kernel shows owners that a user namespace does not know.
const NOBODY: u32 = 65534;

/// Why a credential cannot be made, read or opened.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    /// The file cannot be read or written.
    #[error("cannot {verb} `{}`", .path.display())]
    File {
        /// What was tried.
        verb: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// Not a credential. It is never taken for none.
    #[error("`{}` is no approver credential: {why}", .path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// Not this passphrase.
    #[error("the passphrase does not fit")]
    Wrong,
    /// The passphrase is no good for a new one.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// The count of guesses cannot be kept, or says to wait.
    #[error(transparent)]
    Store(#[from] ApprovalError),
    /// Only another user approves.
    #[error("on this machine only the user with the id {0} approves")]
    OtherUid(u32),
    /// Only an administrator changes it.
    #[error("the credential is the machine's, at `{}`", .0.display())]
    Machine(PathBuf),
}

/// Where a credential comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The machine's directory, which an administrator owns.
    Machine,
    /// The person's own state.
    State,
}

impl Place {
    /// The word in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Machine => "machine",
            Self::State => "state",
        }
    }
}

/// A credential that is set up.
#[derive(Debug, Clone)]
pub struct Credential {
    public: PublicKey,
    opens: Opens,
    /// Where it comes from.
    pub place: Place,
    path: PathBuf,
}

/// What opens it.
#[derive(Debug, Clone)]
enum Opens {
    /// A passphrase, here.
    Passphrase(SealedSeed),
    /// Being that user; where requests are shown to them.
    Uid(u32, PathBuf),
}

/// A credential that was opened: whoever holds this may approve.
#[derive(Debug)]
pub struct Approver {
    key: SigningKey,
    method: Method,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    version: u32,
    public: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    iterations: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    salt: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    nonce: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sealed: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    uid: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sockets: Option<PathBuf>,
}

impl Credential {
    /// The credential that counts: the machine's, else the person's own. A file that cannot be read is an error, never none.
    pub fn load(places: &Places) -> Result<Option<Self>, CredentialError> {
        match read(&places.machine.join(FILE), Place::Machine)? {
            Some(credential) => Ok(Some(credential)),
            None => read(&directory(&places.state).join(FILE), Place::State),
        }
    }

    /// Sets one up, in the place of a person's own. Who may do that is asked before.
    pub fn set(places: &Places, passphrase: &[u8]) -> Result<Self, CredentialError> {
        let seed = sealed::generate()?;
        let signing = SigningKey::from_seed(*seed);
        let public = signing.public().map_err(|_| SealError::NoRandom)?;
        let sealed = sealed::seal(signing.seed(), passphrase, &bound(&public))?;
        let directory = directory(&places.state);
        stockade_private_dir::ensure_private_dir(&directory).map_err(ApprovalError::Directory)?;
        let path = directory.join(FILE);
        let credential = Self { public, opens: Opens::Passphrase(sealed), place: Place::State, path: path.clone() };
        write(&path, &credential.text()).map_err(|source| CredentialError::File { verb: "write", path, source })?;
        Ok(credential)
    }

    /// Takes the person's own away; says whether there was one.
    pub fn remove(places: &Places) -> Result<bool, CredentialError> {
        let path = directory(&places.state).join(FILE);
        match std::fs::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(source) => Err(CredentialError::File { verb: "remove", path, source }),
        }
    }

    /// Opens it. The guess is counted before it is tried, so that killing this process saves nobody from the count.
    pub fn open(&self, passphrase: &[u8], store: &mut Store, way: Way, now: i64) -> Result<Approver, CredentialError> {
        let sealed = match &self.opens {
            Opens::Passphrase(sealed) => sealed,
            Opens::Uid(uid, _) => return Err(CredentialError::OtherUid(*uid)),
        };
        store.begin_attempt(way, now)?;
        let seed = sealed::open(sealed, passphrase, &bound(&self.public)).map_err(|error| match error {
            SealError::Wrong => CredentialError::Wrong,
            other => CredentialError::Form { path: self.path.clone(), why: other.to_string() },
        })?;
        let signing = SigningKey::from_seed(*seed);
        if signing.public().ok().as_ref() != Some(&self.public) {
            return Err(CredentialError::Form { path: self.path.clone(), why: "its two halves do not belong together".to_owned() });
        }
        store.forget_attempts(way)?;
        Ok(Approver::new(signing, Method::Passphrase))
    }

    /// The other user who alone approves, where there is one.
    pub fn approver_uid(&self) -> Option<u32> {
        match self.opens {
            Opens::Passphrase(_) => None,
            Opens::Uid(uid, _) => Some(uid),
        }
    }

    /// Where requests are shown to that user: a socket for each person.
    pub fn sockets(&self) -> Option<&Path> {
        match &self.opens {
            Opens::Passphrase(_) => None,
            Opens::Uid(_, sockets) => Some(sockets),
        }
    }

    /// How whoever opens it shows who they are.
    pub(crate) fn method(&self) -> Method {
        match self.opens {
            Opens::Passphrase(_) => Method::Passphrase,
            Opens::Uid(..) => Method::OtherUid,
        }
    }

    /// What the key is called.
    pub fn key_id(&self) -> &str {
        self.public.id()
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn verifies(&self, statement: &[u8], signature: &[u8]) -> bool {
        self.public.verifies(statement, signature)
    }

    fn text(&self) -> Vec<u8> {
        let bare = Kept {
            version: VERSION,
            public: self.public.to_hex(),
            iterations: None,
            salt: None,
            nonce: None,
            sealed: None,
            uid: None,
            sockets: None,
        };
        let kept = match self.opens.clone() {
            Opens::Passphrase(SealedSeed { iterations, salt, nonce, sealed }) => {
                Kept { iterations: Some(iterations), salt: Some(salt), nonce: Some(nonce), sealed: Some(sealed), ..bare }
            }
            Opens::Uid(uid, sockets) => Kept { uid: Some(uid), sockets: Some(sockets), ..bare },
        };
        let mut text = serde_json::to_vec_pretty(&kept).unwrap_or_default();
        text.push(b'\n');
        text
    }
}

impl Approver {
    pub(super) fn new(key: SigningKey, method: Method) -> Self {
        Self { key, method }
    }

    pub(crate) fn sign(&self, statement: &[u8]) -> Vec<u8> {
        self.key.sign(statement).to_vec()
    }

    /// How they showed who they are.
    pub(crate) fn method(&self) -> Method {
        self.method
    }

    pub(super) fn public(&self) -> Result<PublicKey, BadKey> {
        self.key.public()
    }
}

fn bound(public: &PublicKey) -> String {
    format!("stockade approver {VERSION}\n{}", public.to_hex())
}

fn read(path: &Path, place: Place) -> Result<Option<Credential>, CredentialError> {
    let failed = |source| CredentialError::File { verb: "read", path: path.to_owned(), source };
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = match File::options().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let found = file.metadata().map_err(failed)?;
    let mut text = Vec::new();
    file.take(MAX_FILE + 1).read_to_end(&mut text).map_err(failed)?;
    let wrong = |why: String| CredentialError::Form { path: path.to_owned(), why };
    if text.len() as u64 > MAX_FILE {
        return Err(wrong("it is too long".to_owned()));
    }
    let kept: Kept = serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
    if kept.version != VERSION {
        return Err(wrong(format!("its version is {}", kept.version)));
    }
    let public = PublicKey::parse(&kept.public).map_err(|error| wrong(error.to_string()))?;
    let opens = match kept {
        Kept {
            iterations: Some(iterations), salt: Some(salt), nonce: Some(nonce), sealed: Some(sealed), uid: None, sockets: None, ..
        } => Opens::Passphrase(SealedSeed { iterations, salt, nonce, sealed }),
        Kept { iterations: None, salt: None, nonce: None, sealed: None, uid: Some(uid), sockets: Some(sockets), .. } => {
            // Who could write it could name themselves.
            if place != Place::Machine || !is_roots(path, &found) {
                return Err(wrong("another user is named by root alone, in the machine's directory".to_owned()));
            }
            if !sockets.is_absolute() {
                return Err(wrong("`sockets` is not an absolute path".to_owned()));
            }
            Opens::Uid(uid, sockets)
        }
        _ => return Err(wrong("it is neither sealed with a passphrase nor another user's".to_owned())),
    };
    Ok(Some(Credential { public, opens, place, path: path.to_owned() }))
}

/// Whether only root can change a file. A confined process of an ordinary user is in a user namespace that does not know root, whose files look like
/// nobody's there; then what counts is that this user cannot write it. Outside of one, as whoever starts such a process is, the owner is seen.
fn is_roots(path: &Path, found: &std::fs::Metadata) -> bool {
    let is_unseen = || found.uid() == NOBODY && !knows_root() && rustix::fs::access(path, Access::WRITE_OK).is_err();
    found.mode() & 0o022 == 0 && (found.uid() == 0 || is_unseen())
}

/// Whether root has a number in this process's user namespace.
fn knows_root() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.is_empty() || map.lines().any(|line| line.split_whitespace().next() == Some("0"))
}

/// Puts a file in place whole or not at all, for nobody else.
fn write(path: &Path, text: &[u8]) -> io::Result<()> {
    let draft = path.with_extension(std::process::id().to_string());
    let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
    let written = file.write_all(text).and_then(|()| file.sync_all()).and_then(|()| std::fs::rename(&draft, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&draft);
    }
    written
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn places(root: &Path) -> Places {
        let at = |name: &str| root.join(name);
        Places { home: at("home"), state: at("state"), config: at("config"), runtime: at("run"), machine: at("machine") }
    }

    #[test]
    fn a_credential_opens_with_its_passphrase_alone_and_guesses_cost_time() {
        let root = tempfile::tempdir().unwrap();
        let places = places(root.path());
        assert!(Credential::load(&places).unwrap().is_none());
        assert!(matches!(Credential::set(&places, b"short"), Err(CredentialError::Seal(SealError::Short))));
        let made = Credential::set(&places, b"correct horse").unwrap();
        assert_eq!(std::fs::metadata(made.path()).unwrap().permissions().mode() & 0o777, 0o600);
        let found = Credential::load(&places).unwrap().unwrap();
        assert_eq!((found.key_id(), found.place), (made.key_id(), Place::State));
        let mut store = Store::open(&places.state).unwrap();
        let approver = found.open(b"correct horse", &mut store, Way::Terminal, 1000).unwrap();
        assert!(found.verifies(b"x", &approver.sign(b"x")) && !found.verifies(b"y", &approver.sign(b"x")));
        for _ in 0..3 {
            assert!(matches!(found.open(b"wrong horse", &mut store, Way::Terminal, 1000), Err(CredentialError::Wrong)));
        }
        // The right one waits as well: else waiting would tell right from wrong.
        let slow = found.open(b"correct horse", &mut store, Way::Terminal, 1000);
        assert!(matches!(slow, Err(CredentialError::Store(ApprovalError::Slow(1..=8)))), "{slow:?}");
        // Over HTTP an agent guesses, and that is no reason for a person to wait, nor the other way round.
        for _ in 0..3 {
            assert!(matches!(found.open(b"wrong horse", &mut store, Way::Http, 1100), Err(CredentialError::Wrong)));
        }
        assert!(found.open(b"correct horse", &mut store, Way::Terminal, 1100).is_ok());
        let slow = found.open(b"correct horse", &mut store, Way::Http, 1100);
        assert!(matches!(slow, Err(CredentialError::Store(ApprovalError::Slow(1..=8)))), "{slow:?}");
        assert!(Credential::remove(&places).unwrap() && !Credential::remove(&places).unwrap());
    }

    #[test]
    fn a_damaged_file_is_never_none() {
        let root = tempfile::tempdir().unwrap();
        let places = places(root.path());
        let made = Credential::set(&places, b"correct horse").unwrap();
        let text = std::fs::read_to_string(made.path()).unwrap();
        let mut store = Store::open(&places.state).unwrap();
        for wrong in
            ["", "{}", "null", &text.replace("\"version\": 1", "\"version\": 2"), &text.replace("public", "publik"), &"x".repeat(20_000)]
        {
            std::fs::write(made.path(), wrong).unwrap();
            assert!(matches!(Credential::load(&places), Err(CredentialError::Form { .. })), "{wrong}");
        }
        // Another public half is noticed when it is opened.
        let other = SigningKey::from_seed([7; 32]).public().unwrap().to_hex();
        std::fs::write(made.path(), text.replace(&made.public.to_hex(), &other)).unwrap();
        let changed = Credential::load(&places).unwrap().unwrap();
        assert!(matches!(changed.open(b"correct horse", &mut store, Way::Terminal, 1000), Err(CredentialError::Wrong)));
        std::fs::remove_file(made.path()).unwrap();
        std::os::unix::fs::symlink("/dev/null", made.path()).unwrap();
        assert!(matches!(Credential::load(&places), Err(CredentialError::File { .. })));
    }

    #[test]
    fn the_machines_comes_first() {
        let root = tempfile::tempdir().unwrap();
        let places = places(root.path());
        let machines = Credential::set(&places, b"correct horse").unwrap();
        std::fs::create_dir(&places.machine).unwrap();
        std::fs::rename(machines.path(), places.machine.join(FILE)).unwrap();
        Credential::set(&places, b"another horse").unwrap();
        let found = Credential::load(&places).unwrap().unwrap();
        assert_eq!((found.key_id(), found.place), (machines.key_id(), Place::Machine));
    }
}
