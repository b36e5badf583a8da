//! Names to addresses, by the machine's own settings. Only here is DNS asked, and only for hosts that the rules allow.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;

use hickory_resolver::TokioResolver;
use hickory_resolver::proto::rr::Name;

use crate::error::EgressError;

/// What a look-up gives; the error is words for a person.
pub type Addresses<'a> = Pin<Box<dyn Future<Output = Result<Vec<IpAddr>, String>> + Send + 'a>>;

/// Looks names up. The addresses are checked afterwards, and one of them is dialled: nothing is looked up twice.
pub trait Resolve: Send + Sync + 'static {
    /// All addresses of a name.
    fn addresses<'a>(&'a self, name: &'a str) -> Addresses<'a>;
}

/// The machine's resolver: `/etc/resolv.conf` and `/etc/hosts`, with a cache.
#[derive(Debug)]
pub struct SystemResolver(TokioResolver);

impl SystemResolver {
    /// Reads the machine's settings; to be called inside a runtime.
    pub fn new() -> Result<Self, EgressError> {
        let told = |error: &dyn std::fmt::Display| EgressError::Resolver(error.to_string());
        let builder = TokioResolver::builder_tokio().map_err(|error| told(&error))?;
        builder.build().map(Self).map_err(|error| told(&error))
    }
}

impl Resolve for SystemResolver {
    fn addresses<'a>(&'a self, name: &'a str) -> Addresses<'a> {
        Box::pin(async move {
            let mut wanted = Name::from_ascii(name).map_err(|_| "it is no DNS name".to_owned())?;
            // Complete as it stands: no search list of the machine may turn it into another name.
            wanted.set_fqdn(true);
            let found = self.0.lookup_ip(wanted).await.map_err(|error| error.to_string())?;
            Ok(found.iter().collect())
        })
    }
}
