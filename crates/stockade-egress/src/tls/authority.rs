//! The certificate authority of this installation: one file, readable by egress alone, and a bounded cache of what it signed.
//!
//! Programs inside trust it because its certificate is put into their sandbox, and only there. Key and certificate are in one file, which
//! appears at once or not at all, so two processes that start together end up with the same one.

use std::collections::{HashMap, VecDeque};
use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::ServerConfig;
use rustls::server::ServerSessionMemoryCache;
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use sha2::{Digest as _, Sha256};
use stockade_core::host::HostName;
use zeroize::Zeroizing;

use super::provider;
use crate::error::EgressError;

/// The file that holds key and certificate.
pub const FILE: &str = "authority.pem";
/// The longest file that is read.
const MAX_FILE: u64 = 64 << 10;
const DAY: Duration = Duration::from_hours(24);
/// How long the authority holds; a new one is made well before.
const LIFETIME: Duration = Duration::from_hours(10 * 365 * 24);
const RENEWED_AFTER: Duration = Duration::from_hours(9 * 365 * 24);
/// How long a host's certificate holds, and how long one is used.
const LEAF_LIFETIME: Duration = Duration::from_hours(30 * 24);
const LEAF_USED: Duration = Duration::from_hours(20 * 24);
/// How many hosts' certificates are kept.
const MAX_LEAVES: usize = 1024;
/// Sessions that are kept, of all hosts together.
const MAX_SESSIONS: usize = 256;

/// The authority and what it signed.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    pem: String,
    leaf_key: KeyPair,
    /// Sessions that clients may come back to. Kept here rather than in sealed tickets: opening one that a client brings is AES in CBC mode,
    /// which crashed in the cryptographic library as it is linked here, and a ticket is whatever a sandbox sends.
    sessions: Arc<ServerSessionMemoryCache>,
    leaves: Mutex<Leaves>,
}

#[derive(Default)]
struct Leaves {
    configs: HashMap<HostName, (SystemTime, Arc<ServerConfig>)>,
    order: VecDeque<HostName>,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Authority")
    }
}

impl Authority {
    /// Opens the authority in this directory, making both where there is none.
    pub fn open(directory: &Path) -> Result<Self, EgressError> {
        let directory_failed = |source| EgressError::Directory { path: directory.to_owned(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(directory_failed)?;
        let path = directory.join(FILE);
        let file_failed = |source| EgressError::AuthorityFile { path: path.clone(), source };
        // A file that is too old, or that another process is replacing, is tried anew.
        for _ in 0..3 {
            match read(&path)? {
                Some(text) => match Self::from_file(&text) {
                    Some((authority, age)) if age < RENEWED_AFTER => return Ok(authority),
                    Some(_) => std::fs::remove_file(&path).map_err(file_failed)?,
                    None => return Err(EgressError::AuthorityBroken { path }),
                },
                None => create(directory, &path).map_err(|error| match error {
                    CreateError::Io(source) => file_failed(source),
                    CreateError::Certificate(error) => EgressError::Certificate(error.to_string()),
                })?,
            }
        }
        Err(EgressError::AuthorityBroken { path })
    }

    /// The authority's certificate, to be trusted inside sandboxes.
    pub fn certificate_pem(&self) -> &str {
        &self.pem
    }

    /// How to be this host towards a client: a certificate made for it, kept while it is fresh.
    pub(crate) fn server_config(&self, host: &HostName) -> Result<Arc<ServerConfig>, EgressError> {
        let now = SystemTime::now();
        {
            let leaves = self.leaves.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((made, config)) = leaves.configs.get(host)
                && now.duration_since(*made).is_ok_and(|age| age < LEAF_USED)
            {
                return Ok(Arc::clone(config));
            }
        }
        let config = Arc::new(self.make_config(host, now)?);
        let mut leaves = self.leaves.lock().unwrap_or_else(PoisonError::into_inner);
        if leaves.configs.insert(host.clone(), (now, Arc::clone(&config))).is_none() {
            leaves.order.push_back(host.clone());
        }
        if leaves.order.len() > MAX_LEAVES
            && let Some(oldest) = leaves.order.pop_front()
        {
            leaves.configs.remove(&oldest);
        }
        Ok(config)
    }

    fn make_config(&self, host: &HostName, now: SystemTime) -> Result<ServerConfig, EgressError> {
        let failed = |error: rcgen::Error| EgressError::Certificate(error.to_string());
        let name = match host {
            HostName::Address(address) => address.to_string(),
            HostName::Name(name) => name.clone(),
        };
        let mut params = CertificateParams::new(vec![name.clone()]).map_err(failed)?;
        params.distinguished_name = DistinguishedName::new();
        // A common name holds 64 characters; the alternative name is what counts.
        params.distinguished_name.push(DnType::CommonName, name.chars().take(64).collect::<String>());
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.not_before = (now - DAY).into();
        params.not_after = (now + LEAF_LIFETIME).into();
        let leaf = params.signed_by(&self.leaf_key, &self.issuer).map_err(failed)?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.leaf_key.serialize_der()));
        let chain = vec![leaf.der().clone(), self.certificate.clone()];
        let certified = Arc::new(CertifiedKey::from_der(chain, key, &provider())?);
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(certified)));
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        config.session_storage = Arc::<ServerSessionMemoryCache>::clone(&self.sessions);
        // One ticket is enough for a client to come back with.
        config.send_tls13_tickets = 1;
        Ok(config)
    }

    /// Reads the file's text: when it was made, the key, the certificate.
    fn from_file(text: &str) -> Option<(Self, Duration)> {
        let made = text.lines().next()?.strip_prefix(FIRST_LINE)?.parse().ok()?;
        let made = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(made))?;
        let age = SystemTime::now().duration_since(made).unwrap_or_default();
        let key = KeyPair::from_pem(text).ok()?;
        let certificate = CertificateDer::from_pem_slice(text.as_bytes()).ok()?;
        let start = text.find("-----BEGIN CERTIFICATE-----")?;
        let pem = text.get(start..)?.to_owned();
        let issuer = Issuer::new(params(&key, made), key);
        let leaf_key = KeyPair::generate().ok()?;
        let sessions = ServerSessionMemoryCache::new(MAX_SESSIONS);
        Some((Self { issuer, certificate, pem, leaf_key, sessions, leaves: Mutex::default() }, age))
    }
}

/// The format's version and, after it, seconds since 1970.
const FIRST_LINE: &str = "stockade certificate authority, format 1, made at ";

/// The same for the same key and moment, so the certificate need not be taken apart again.
fn params(key: &KeyPair, made: SystemTime) -> CertificateParams {
    use std::fmt::Write as _;
    let digest = Sha256::digest(key.public_key_raw());
    let mut id = String::new();
    for byte in digest.iter().take(4) {
        let _ = write!(id, "{byte:02x}");
    }
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, format!("Stockade sandbox authority {id}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.not_before = (made - DAY).into();
    params.not_after = (made + LIFETIME).into();
    params
}

fn read(path: &Path) -> Result<Option<Zeroizing<String>>, EgressError> {
    let failed = |source| EgressError::AuthorityFile { path: path.to_owned(), source };
    let flags = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let metadata = file.metadata().map_err(failed)?;
    if metadata.mode() & 0o077 != 0 || metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(EgressError::AuthorityOpen { path: path.to_owned() });
    }
    let mut text = Zeroizing::new(String::new());
    file.take(MAX_FILE).read_to_string(&mut text).map_err(failed)?;
    Ok(Some(text))
}

enum CreateError {
    Io(io::Error),
    Certificate(rcgen::Error),
}

impl From<io::Error> for CreateError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

fn create(directory: &Path, path: &Path) -> Result<(), CreateError> {
    let seconds = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let made = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    let key = KeyPair::generate().map_err(CreateError::Certificate)?;
    let certificate = params(&key, made).self_signed(&key).map_err(CreateError::Certificate)?;
    let key = Zeroizing::new(key.serialize_pem());
    let text = Zeroizing::new(format!("{FIRST_LINE}{seconds}\n{}{}", key.as_str(), certificate.pem()));
    let temporary = directory.join(format!(".{FILE}.{}.{seconds}", std::process::id()));
    let _ = std::fs::remove_file(&temporary);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    // A link does not replace: whoever comes first wins, and the other reads what the first wrote.
    let linked = written.and_then(|()| match std::fs::hard_link(&temporary, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    });
    let _ = std::fs::remove_file(&temporary);
    Ok(linked?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_authority_is_made_once_and_private() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("egress");
        let first = Authority::open(&place).unwrap();
        let file = place.join(FILE);
        assert_eq!(std::fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
        assert_eq!(std::fs::metadata(&place).unwrap().mode() & 0o777, 0o700);
        assert_eq!(std::fs::read_dir(&place).unwrap().count(), 1);
        let second = Authority::open(&place).unwrap();
        assert_eq!(first.certificate_pem(), second.certificate_pem());
        assert!(first.certificate_pem().starts_with("-----BEGIN CERTIFICATE-----"));
        assert!(!first.certificate_pem().contains("PRIVATE"));
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(Authority::open(&place), Err(EgressError::AuthorityOpen { .. })));
        std::fs::write(&file, "something else").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert!(matches!(Authority::open(&place), Err(EgressError::AuthorityBroken { .. })));
    }

    #[test]
    fn a_client_comes_back_to_its_session() {
        let directory = tempfile::tempdir().unwrap();
        let authority = Authority::open(directory.path()).unwrap();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.certificate_pem().as_bytes()).unwrap()).unwrap();
        let client = rustls::ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().unwrap();
        let client = Arc::new(client.with_root_certificates(roots).with_no_client_auth());
        let handshake = || {
            let mut client = rustls::ClientConnection::new(Arc::clone(&client), "a.example".try_into().unwrap()).unwrap();
            let mut server =
                rustls::ServerConnection::new(authority.server_config(&HostName::parse("a.example").unwrap()).unwrap()).unwrap();
            for _ in 0..4 {
                let mut bytes = Vec::new();
                client.write_tls(&mut bytes).unwrap();
                server.read_tls(&mut bytes.as_slice()).unwrap();
                server.process_new_packets().unwrap();
                let mut bytes = Vec::new();
                server.write_tls(&mut bytes).unwrap();
                client.read_tls(&mut bytes.as_slice()).unwrap();
                client.process_new_packets().unwrap();
            }
            server.handshake_kind().unwrap()
        };
        assert_eq!((handshake(), handshake()), (rustls::HandshakeKind::Full, rustls::HandshakeKind::Resumed));
    }

    #[test]
    fn leaves_are_kept_within_bounds() {
        let directory = tempfile::tempdir().unwrap();
        let authority = Authority::open(directory.path()).unwrap();
        let host = |number: usize| HostName::parse(&format!("h{number}.example")).unwrap();
        let first = authority.server_config(&host(0)).unwrap();
        assert!(Arc::ptr_eq(&first, &authority.server_config(&host(0)).unwrap()));
        for number in 1..=MAX_LEAVES {
            authority.server_config(&host(number)).unwrap();
        }
        assert_eq!(authority.leaves.lock().unwrap().configs.len(), MAX_LEAVES);
        assert!(!Arc::ptr_eq(&first, &authority.server_config(&host(0)).unwrap()));
    }
}
