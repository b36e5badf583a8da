//! TLS on both legs: our own authority towards the sandbox, the machine's trust towards the world. rustls and aws-lc-rs do the work.

pub mod authority;
pub mod hello;
pub mod trust;
pub mod upstream;

use std::sync::{Arc, OnceLock};

use rustls::crypto::CryptoProvider;

/// The one crypto library, passed explicitly everywhere.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    Arc::clone(PROVIDER.get_or_init(|| Arc::new(rustls::crypto::aws_lc_rs::default_provider())))
}
