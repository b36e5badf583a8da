//! TLS towards the world: certificates verified against the machine's roots (and a company's own, which are there too).

use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, ServerName};
use stockade_core::host::HostName;

use super::provider;
use crate::error::EgressError;

/// Which authorities are trusted besides the machine's.
#[derive(Debug, Clone, Default)]
pub enum Roots {
    /// The machine's own.
    #[default]
    Machine,
    /// The machine's own and these.
    MachineAnd(Vec<CertificateDer<'static>>),
    /// These alone.
    Only(Vec<CertificateDer<'static>>),
}

/// Client settings for both protocols.
#[derive(Debug, Clone)]
pub(crate) struct UpstreamTls {
    pub(crate) http1: Arc<ClientConfig>,
    pub(crate) http2: Arc<ClientConfig>,
    roots: Arc<RootCertStore>,
}

impl UpstreamTls {
    pub(crate) fn new(roots: &Roots) -> Result<Self, EgressError> {
        let mut store = RootCertStore::empty();
        let (machine, extra): (_, &[_]) = match roots {
            Roots::Machine => (true, &[]),
            Roots::MachineAnd(extra) => (true, extra),
            Roots::Only(extra) => (false, extra),
        };
        if machine {
            // What cannot be read is left out; a machine without any is an error below.
            store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        store.add_parsable_certificates(extra.iter().cloned());
        if store.is_empty() {
            return Err(EgressError::NoRoots);
        }
        Self::of_roots(Arc::new(store))
    }

    /// The same, and these authorities.
    pub(crate) fn with_also(&self, authorities: impl Iterator<Item = CertificateDer<'static>>) -> Result<Self, EgressError> {
        let mut store = RootCertStore::clone(&self.roots);
        store.add_parsable_certificates(authorities);
        Self::of_roots(Arc::new(store))
    }

    fn of_roots(roots: Arc<RootCertStore>) -> Result<Self, EgressError> {
        let config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_root_certificates(Arc::clone(&roots))
            .with_no_client_auth();
        let (mut http1, mut http2) = (config.clone(), config);
        http1.alpn_protocols = vec![b"http/1.1".to_vec()];
        http2.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self { http1: Arc::new(http1), http2: Arc::new(http2), roots })
    }
}

/// The name that the other side's certificate must carry.
pub(crate) fn server_name(host: &HostName) -> Option<ServerName<'static>> {
    match host {
        HostName::Address(address) => Some(ServerName::IpAddress((*address).into())),
        HostName::Name(name) => ServerName::try_from(name.clone()).ok(),
    }
}
