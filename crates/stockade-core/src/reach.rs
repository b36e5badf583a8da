//! What a sandbox may reach beyond itself: hosts, and the secrets that are put in on the way to some of them.
//!
//! Only what was asked for; who holds to it is egress. Nothing listed means nothing is reached.

use serde::{Deserialize, Serialize};

use crate::host::HostPattern;
use crate::secret::SecretName;

/// What may be reached.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reach {
    /// The hosts.
    pub hosts: Vec<HostPattern>,
    /// The secrets, each with the hosts it may go to.
    pub secrets: Vec<SecretUse>,
    /// What becomes of everything else.
    pub unlisted: Unlisted,
}

/// A secret and where it may go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecretUse {
    /// Which, and the variable that holds its placeholder inside.
    pub name: SecretName,
    /// Where it may go; never empty.
    pub hosts: Vec<HostPattern>,
}

/// What becomes of a host that no pattern names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unlisted {
    /// It is refused.
    #[default]
    Refuse,
    /// It is let through and written down, to make a list from.
    Learn,
}

impl Reach {
    /// Whether there is any way out at all.
    pub fn is_nothing(&self) -> bool {
        self.hosts.is_empty() && self.secrets.is_empty() && self.unlisted == Unlisted::Refuse
    }

    /// The ports that patterns name, in order, besides those of the web.
    pub fn ports(&self) -> Vec<u16> {
        let patterns = self.hosts.iter().chain(self.secrets.iter().flat_map(|secret| &secret.hosts));
        let mut ports: Vec<u16> = patterns.flat_map(HostPattern::ports).copied().collect();
        ports.sort_unstable();
        ports.dedup();
        ports
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_those_of_all_patterns() {
        let hosts = |list: &[&str]| list.iter().map(|text| HostPattern::parse(text).unwrap()).collect::<Vec<_>>();
        let token = SecretUse { name: "TOKEN".parse().unwrap(), hosts: hosts(&["b.example:8443", "127.0.0.1:3000"]) };
        let reach = Reach { hosts: hosts(&["a.example", "127.0.0.1:3000"]), secrets: vec![token], unlisted: Unlisted::Refuse };
        assert_eq!(reach.ports(), [80, 443, 3000, 8443]);
        assert!(!reach.is_nothing() && Reach::default().is_nothing() && Reach::default().ports().is_empty());
    }

    #[test]
    fn it_is_read_back_as_it_was_written() {
        let reach = Reach {
            hosts: vec![HostPattern::parse("*.example:8443").unwrap()],
            secrets: vec![SecretUse { name: "T".parse().unwrap(), hosts: vec![HostPattern::parse("127.0.0.1:1").unwrap()] }],
            unlisted: Unlisted::Learn,
        };
        let text = serde_json::to_string(&reach).unwrap();
        assert_eq!(serde_json::from_str::<Reach>(&text).unwrap(), reach);
        assert!(serde_json::from_str::<Reach>(&text.replace("*.example", "*.*")).is_err());
    }
}
