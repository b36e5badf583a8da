//! What `--secret` says: which secret, and the hosts it may go to. Pure.

use std::fmt;
use std::str::FromStr;

use crate::{BadSecretName, HostPattern, SecretName};

/// The most hosts of one secret.
pub const MAX_HOSTS: usize = 64;

/// A secret bound to hosts: `NAME@HOST[,HOST…]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretBinding {
    name: SecretName,
    hosts: Vec<HostPattern>,
}

/// Text that is no binding. A wrong name is not repeated: it may be a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadBinding {
    /// No `@`.
    #[error("say which hosts may get the secret: NAME@HOST[,HOST...]")]
    NoHosts,
    /// Not a name.
    #[error(transparent)]
    Name(#[from] BadSecretName),
    /// Not a host.
    #[error("{0}")]
    Host(String),
    /// Too many.
    #[error("a secret may go to {MAX_HOSTS} hosts at most")]
    TooMany,
}

impl SecretBinding {
    /// Binds a secret to hosts; there must be one at least.
    pub fn new(name: SecretName, hosts: impl IntoIterator<Item = HostPattern>) -> Result<Self, BadBinding> {
        let mut kept: Vec<HostPattern> = Vec::new();
        for host in hosts {
            if !kept.contains(&host) {
                kept.push(host);
            }
        }
        match kept.len() {
            0 => Err(BadBinding::NoHosts),
            1..=MAX_HOSTS => Ok(Self { name, hosts: kept }),
            _ => Err(BadBinding::TooMany),
        }
    }

    /// The secret.
    pub fn name(&self) -> &SecretName {
        &self.name
    }

    /// Where it may go; never empty.
    pub fn hosts(&self) -> &[HostPattern] {
        &self.hosts
    }
}

impl FromStr for SecretBinding {
    type Err = BadBinding;
    fn from_str(text: &str) -> Result<Self, BadBinding> {
        let (name, hosts) = text.split_once('@').ok_or(BadBinding::NoHosts)?;
        let name = name.parse::<SecretName>()?;
        if hosts.is_empty() {
            return Err(BadBinding::NoHosts);
        }
        let hosts = hosts.split(',').map(|host| HostPattern::parse(host).map_err(|error| BadBinding::Host(error.to_string())));
        // Bounded before anything is collected.
        Self::new(name, hosts.take(MAX_HOSTS + 1).collect::<Result<Vec<_>, _>>()?)
    }
}

impl fmt::Display for SecretBinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts: Vec<String> = self.hosts.iter().map(ToString::to_string).collect();
        write!(f, "{}@{}", self.name, hosts.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bindings_are_parsed_strictly_and_printed_back() {
        for (text, shown) in [
            ("TOKEN@API.github.com", "TOKEN@api.github.com"),
            ("T@a.com,*.x.org:8443,a.com", "T@a.com,*.x.org:8443"),
            ("T@127.0.0.1:3000,[::1]:80", "T@127.0.0.1:3000,[::1]:80"),
        ] {
            let binding: SecretBinding = text.parse().unwrap();
            assert_eq!(binding.to_string(), shown);
            assert_eq!(binding.to_string().parse(), Ok(binding));
        }
        let many = format!("T@{}", (0..=MAX_HOSTS).map(|n| format!("h{n}.com")).collect::<Vec<_>>().join(","));
        for bad in ["", "T", "T@", "@a.com", "T@a,,b", "T@a b", "T=x@a.com", "T@*", "T@a.com@b.com", "1@a.com", "T@a.com,", &many] {
            assert!(bad.parse::<SecretBinding>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_value_in_the_wrong_place_is_not_repeated() {
        let error = "ghp_abc-def=x@api.github.com".parse::<SecretBinding>().unwrap_err();
        assert!(!error.to_string().contains("ghp"), "{error}");
    }
}
