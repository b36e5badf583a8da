//! The key of an approver who is another user of the machine: unsealed, in their own state, for nobody else. Being that user is what opens it.
//!
//! ```json
//! { "version": 1, "seed": "<44 base64>" }
//! ```

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use serde_json::json;
use stockade_policy::pack::SigningKey;
use stockade_store::places::Places;
use stockade_store::sealed::{self, SealError};
use zeroize::{Zeroize as _, Zeroizing};

use super::credential::{Approver, CredentialError, VERSION};
use crate::approvals::{ApprovalError, Method, directory};

/// Its name, in the state.
const FILE: &str = "approver-key.json";
/// Bytes of it at most.
const MAX_FILE: u64 = 1024;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    version: u32,
    seed: String,
}

/// Whether there was a key already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Made {
    /// It was made just now.
    Now,
    /// It was there.
    Before,
}

impl Approver {
    /// The key of whoever runs this; made where there is none.
    pub fn of_user(places: &Places) -> Result<(Self, Made), CredentialError> {
        if let Some(approver) = Self::load(places)? {
            return Ok((approver, Made::Before));
        }
        let directory = directory(&places.state);
        stockade_private_dir::ensure_private_dir(&directory).map_err(ApprovalError::Directory)?;
        let signing = SigningKey::from_seed(*sealed::generate()?);
        let mut kept = Kept { version: VERSION, seed: STANDARD.encode(signing.seed()) };
        let text = Zeroizing::new(serde_json::to_vec(&kept).unwrap_or_default());
        kept.seed.zeroize();
        let path = directory.join(FILE);
        let made = File::options().write(true).create_new(true).mode(0o600).open(&path);
        let written = made.and_then(|mut file| file.write_all(&text).and_then(|()| file.sync_all()));
        written.map_err(|source| CredentialError::File { verb: "write", path, source })?;
        Ok((Self::new(signing, Method::OtherUid), Made::Now))
    }

    /// The key of whoever runs this, where they have one.
    pub fn load(places: &Places) -> Result<Option<Self>, CredentialError> {
        let path = directory(&places.state).join(FILE);
        let failed = |source| CredentialError::File { verb: "read", path: path.clone(), source };
        let wrong = |why: &str| CredentialError::Form { path: path.clone(), why: why.to_owned() };
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let file = match File::options().read(true).custom_flags(flags).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let found = file.metadata().map_err(failed)?;
        if found.uid() != rustix::process::geteuid().as_raw() || found.mode() & 0o077 != 0 {
            return Err(wrong("others may read or own it"));
        }
        let mut text = Zeroizing::new(Vec::new());
        file.take(MAX_FILE).read_to_end(&mut text).map_err(failed)?;
        let kept: Kept = serde_json::from_slice(&text).map_err(|_| wrong("it is damaged"))?;
        let text = Zeroizing::new(kept.seed);
        let seed = Zeroizing::new(STANDARD.decode(text.as_bytes()).map_err(|_| wrong("it is damaged"))?);
        let seed: [u8; 32] = seed.as_slice().try_into().map_err(|_| wrong("it is damaged"))?;
        if kept.version != VERSION {
            return Err(wrong("its version is another"));
        }
        Ok(Some(Self::new(SigningKey::from_seed(seed), Method::OtherUid)))
    }

    /// What an administrator puts at `/etc/stockade/approver.json`, so that this user approves for others.
    pub fn document(&self, uid: u32, sockets: &Path) -> Result<String, CredentialError> {
        let public = self.public().map_err(|_| SealError::NoRandom)?.to_hex();
        Ok(json!({ "version": VERSION, "public": public, "uid": uid, "sockets": PathBuf::from(sockets) }).to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::approver::Credential;

    fn places(root: &Path) -> Places {
        let at = |name: &str| root.join(name);
        Places { home: at("home"), state: at("state"), config: at("config"), runtime: at("run"), machine: at("machine") }
    }

    #[test]
    fn a_key_is_made_once_and_read_by_its_owner_alone() {
        let root = tempfile::tempdir().unwrap();
        let places = places(root.path());
        assert!(Approver::load(&places).unwrap().is_none());
        let (made, how) = Approver::of_user(&places).unwrap();
        let (again, before) = Approver::of_user(&places).unwrap();
        assert_eq!((how, before), (Made::Now, Made::Before));
        let text = made.document(7, Path::new("/run/x")).unwrap();
        assert_eq!(text, again.document(7, Path::new("/run/x")).unwrap());
        let path = directory(&places.state).join(FILE);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(Approver::load(&places), Err(CredentialError::Form { .. })));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        for wrong in ["", "{}", "{\"version\": 1, \"seed\": \"AAAA\"}"] {
            std::fs::write(&path, wrong).unwrap();
            assert!(matches!(Approver::load(&places), Err(CredentialError::Form { .. })), "{wrong}");
        }
    }

    /// Root owns what tests write where they run as root; elsewhere nobody's word counts.
    #[test]
    fn only_the_machine_names_another_user() {
        let root = tempfile::tempdir().unwrap();
        let places = places(root.path());
        let (approver, _) = Approver::of_user(&places).unwrap();
        let text = approver.document(7, Path::new("/run/x")).unwrap();
        std::fs::write(directory(&places.state).join("approver.json"), &text).unwrap();
        assert!(matches!(Credential::load(&places), Err(CredentialError::Form { .. })), "a person's own");
        std::fs::create_dir(&places.machine).unwrap();
        let machine = places.machine.join("approver.json");
        std::fs::write(&machine, &text).unwrap();
        std::fs::set_permissions(&machine, std::fs::Permissions::from_mode(0o644)).unwrap();
        let is_root = rustix::process::geteuid().is_root();
        assert_eq!(Credential::load(&places).is_ok(), is_root);
        if is_root {
            let credential = Credential::load(&places).unwrap().unwrap();
            assert_eq!((credential.approver_uid(), credential.sockets()), (Some(7), Some(Path::new("/run/x"))));
            assert!(credential.verifies(b"x", &approver.sign(b"x")));
            std::fs::set_permissions(&machine, std::fs::Permissions::from_mode(0o666)).unwrap();
            assert!(matches!(Credential::load(&places), Err(CredentialError::Form { .. })), "anybody could change it");
            for wrong in
                [text.replace("/run/x", "run/x"), text.replace("\"uid\":7", "\"uid\":7,\"salt\":\"x\""), text.replace("\"uid\":7,", "")]
            {
                std::fs::write(&machine, &wrong).unwrap();
                std::fs::set_permissions(&machine, std::fs::Permissions::from_mode(0o644)).unwrap();
                assert!(matches!(Credential::load(&places), Err(CredentialError::Form { .. })), "{wrong}");
            }
        }
    }
}
