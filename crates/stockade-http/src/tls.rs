//! The certificate and the key of a server that other machines may reach.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::client::verify_server_name;
use rustls::crypto::aws_lc_rs;
use rustls::server::ParsedCertificate;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use zeroize::Zeroizing;

use crate::error::HttpError;

/// Bytes of a file of certificates.
const MAX_FILE: u64 = 1 << 20;

/// Who this server is to others.
pub struct Identity {
    config: Arc<ServerConfig>,
    certificate: CertificateDer<'static>,
}

impl Identity {
    /// Reads a chain of certificates and the key of the first, both as PEM.
    pub fn load(certificates: &Path, key: &Path) -> Result<Self, HttpError> {
        let text = read(certificates)?;
        let lacking = |path: &Path, what: &'static str, why: String| HttpError::Certificate { path: path.to_owned(), what, why };
        let chain: Result<Vec<CertificateDer<'static>>, _> = CertificateDer::pem_slice_iter(&text).collect();
        let chain = chain.map_err(|error| lacking(certificates, "certificate", error.to_string()))?;
        let first = chain.first().cloned().ok_or_else(|| lacking(certificates, "certificate", "none was found".to_owned()))?;
        ParsedCertificate::try_from(&first).map_err(|error| lacking(certificates, "certificate", error.to_string()))?;
        let text = read(key)?;
        let key = PrivateKeyDer::from_pem_slice(&text).map_err(|error| lacking(key, "private key", error.to_string()))?;
        let builder = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider())).with_safe_default_protocol_versions();
        let mut config = builder.map_err(HttpError::Tls)?.with_no_client_auth().with_single_cert(chain, key).map_err(HttpError::Tls)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { config: Arc::new(config), certificate: first })
    }

    /// Whether the certificate is for this name or address.
    pub(crate) fn is_for(&self, host: &str) -> bool {
        let (Ok(name), Ok(certificate)) = (ServerName::try_from(host), ParsedCertificate::try_from(&self.certificate)) else {
            return false;
        };
        verify_server_name(&certificate, &name).is_ok()
    }

    /// What shakes hands.
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Identity(***)")
    }
}

fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>, HttpError> {
    let failed = |error| HttpError::Pem(path.to_owned(), error);
    let file = File::open(path).map_err(failed)?;
    let mut text = Zeroizing::new(Vec::new());
    file.take(MAX_FILE + 1).read_to_end(&mut text).map_err(failed)?;
    if text.len() as u64 > MAX_FILE {
        return Err(failed(io::Error::new(io::ErrorKind::InvalidData, "it is too long")));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Names;

    #[test]
    fn the_names_of_a_certificate_are_ours_and_no_others() {
        let root = tempfile::tempdir().unwrap();
        let (certificate, key) = (root.path().join("cert.pem"), root.path().join("key.pem"));
        let names = ["gate.example".to_owned(), "*.inner.example".to_owned(), "192.0.2.7".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        std::fs::write(&certificate, made.cert.pem()).unwrap();
        std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        let identity = Arc::new(Identity::load(&certificate, &key).unwrap());
        let ours = Names::new("0.0.0.0:8443".parse().unwrap(), Some(identity));
        for good in ["gate.example:8443", "GATE.example:8443", "a.inner.example:8443", "192.0.2.7:8443"] {
            assert!(ours.has(good.as_bytes()), "{good}");
            assert!(ours.has_origin(format!("https://{good}").as_bytes()), "{good}");
        }
        for bad in ["gate.example", "evil.example:8443", "inner.example:8443", "192.0.2.8:8443", "localhost:8443", "127.0.0.1:8443"] {
            assert!(!ours.has(bad.as_bytes()), "{bad}");
        }
        assert!(!ours.has_origin(b"http://gate.example:8443"));
    }

    #[test]
    fn what_is_no_certificate_or_key_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str, text: &str| {
            std::fs::write(root.path().join(name), text).unwrap();
            root.path().join(name)
        };
        let made = rcgen::generate_simple_self_signed(["gate.example".to_owned()]).unwrap();
        let other = rcgen::generate_simple_self_signed(["gate.example".to_owned()]).unwrap();
        let (good, key) = (path("cert", &made.cert.pem()), path("key", &made.signing_key.serialize_pem()));
        let foreign = path("other", &other.signing_key.serialize_pem());
        let empty = path("empty", "");
        let broken = path("broken", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
        for (certificate, key) in [(&empty, &key), (&broken, &key), (&key, &key), (&good, &empty), (&good, &good), (&good, &foreign)] {
            assert!(Identity::load(certificate, key).is_err(), "{} {}", certificate.display(), key.display());
        }
        assert!(matches!(Identity::load(&root.path().join("gone"), &key), Err(HttpError::Pem(..))));
    }
}
