//! Authorities that are trusted for some hosts only, as the one of a Kubernetes cluster is: never for any other host.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use rustls::RootCertStore;
use rustls_pki_types::CertificateDer;
use stockade_core::host::{HostName, HostPattern};

use super::upstream::UpstreamTls;
use crate::error::EgressError;

/// The most lists of one sandbox.
pub const MAX_TRUSTED: usize = 64;

/// What one sandbox trusts besides the rest. Settings are made when a host first needs them, each with tickets of its own: a session with a
/// host is never resumed under another's trust.
#[derive(Debug, Default)]
pub(crate) struct Trust {
    lists: Vec<(HostPattern, Vec<CertificateDer<'static>>)>,
    made: Mutex<HashMap<u64, UpstreamTls>>,
}

impl Trust {
    pub(crate) fn new(lists: Vec<(HostPattern, Vec<CertificateDer<'static>>)>) -> Result<Self, EgressError> {
        if lists.len() > MAX_TRUSTED {
            return Err(EgressError::TooManyAuthorities);
        }
        for (pattern, authorities) in &lists {
            let mut store = RootCertStore::empty();
            for authority in authorities {
                store.add(authority.clone()).map_err(|_| EgressError::Authority { host: pattern.to_string() })?;
            }
        }
        Ok(Self { lists, made: Mutex::default() })
    }

    /// The settings for this host.
    pub(crate) fn settings(&self, common: &UpstreamTls, host: &HostName, port: u16) -> Result<UpstreamTls, EgressError> {
        let fitting = || self.lists.iter().enumerate().filter(|(_, (pattern, _))| pattern.matches(host, port));
        let which = fitting().fold(0_u64, |bits, (index, _)| bits | 1 << index);
        if which == 0 {
            return Ok(common.clone());
        }
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(settings) = made.get(&which) {
            return Ok(settings.clone());
        }
        let settings = common.with_also(fitting().flat_map(|(_, (_, authorities))| authorities.iter().cloned()))?;
        made.insert(which, settings.clone());
        Ok(settings)
    }
}
