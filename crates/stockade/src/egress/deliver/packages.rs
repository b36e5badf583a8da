//! Package managers: each has a variable for a registry's token, which holds the placeholder.

use stockade_core::host::HostPattern;

use super::{Given, Making, refused};
use crate::failure::Failure;

/// The user that `PyPI` and most others expect beside a token.
const PIP_USER: &str = "__token__";

impl Making<'_> {
    /// One variable for each registry: npm reads any setting from a variable of its name.
    pub(super) fn npm(&mut self, one: &Given) -> Result<(), Failure> {
        for host in authorities(one) {
            self.set(one, &format!("npm_config_//{host}/:_authToken"), one.placeholder.as_str())?;
        }
        Ok(())
    }

    /// The first host is the index; it is reached with the user and the placeholder, as Basic.
    pub(super) fn pip(&mut self, one: &Given) -> Result<(), Failure> {
        let hosts = authorities(one);
        let Some(host) = hosts.first() else { return Err(refused(one, "pip needs a host without `*`")) };
        let scheme = if one.hosts.first().is_some_and(|host| host.granted_address().is_some()) { "http" } else { "https" };
        let user = one.user.as_deref().unwrap_or(PIP_USER);
        let index = format!("{scheme}://{user}:{}@{host}/simple/", one.placeholder);
        self.set(one, "PIP_INDEX_URL", index.as_str())?;
        self.set(one, "UV_DEFAULT_INDEX", index)
    }

    pub(super) fn cargo(&mut self, one: &Given) -> Result<(), Failure> {
        self.set(one, "CARGO_REGISTRY_TOKEN", one.placeholder.as_str())
    }
}

/// The hosts that are one host, each with its port where that is not the usual one.
fn authorities(one: &Given) -> Vec<String> {
    let whole = one.hosts.iter().map(HostPattern::to_string);
    whole.filter(|host| !host.starts_with("*.")).map(|host| host.strip_suffix(":443").map(str::to_owned).unwrap_or(host)).collect()
}
