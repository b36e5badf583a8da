//! The smallest list of hosts that would have let everything pass that was seen.
//!
//! Hosts are named one by one: a wildcard would allow what nobody asked for.

use std::collections::BTreeMap;

use stockade_core::host::{HostName, HostPattern};

/// The most hosts that are remembered; a sandbox that names more is not learning anything.
pub const MAX_LEARNT: usize = 4096;

/// What a learning sandbox reached for.
#[derive(Debug, Clone, Default)]
pub struct Learnt {
    /// Each host and port with whether a rule already allowed it.
    seen: BTreeMap<(HostName, u16), Before>,
}

/// Whether a rule allowed it already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Before {
    /// Yes.
    Allowed,
    /// No: it would have been refused.
    Refused,
}

impl Learnt {
    /// Remembers one host and port.
    pub fn add(&mut self, host: &HostName, port: u16, before: Before) {
        if self.seen.len() < MAX_LEARNT {
            self.seen.entry((host.clone(), port)).or_insert(before);
        }
    }

    /// The patterns that are missing, in order, web ports unsaid.
    pub fn missing(&self) -> Vec<HostPattern> {
        self.patterns(|before| before == Before::Refused)
    }

    /// All patterns that were needed, in order.
    pub fn needed(&self) -> Vec<HostPattern> {
        self.patterns(|_| true)
    }

    fn patterns(&self, wanted: impl Fn(Before) -> bool) -> Vec<HostPattern> {
        let chosen = self.seen.iter().filter(|(_, before)| wanted(**before));
        let mut patterns: Vec<HostPattern> = chosen.map(|((host, port), _)| HostPattern::exactly(host, *port)).collect();
        patterns.sort();
        patterns.dedup();
        patterns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_the_smallest_that_fits() {
        let mut learnt = Learnt::default();
        let host = |text: &str| HostName::parse(text).unwrap();
        for (name, port, before) in [
            ("b.example", 443, Before::Refused),
            ("b.example", 80, Before::Refused),
            ("a.example", 8443, Before::Refused),
            ("c.example", 443, Before::Allowed),
            ("10.0.0.1", 5432, Before::Refused),
        ] {
            learnt.add(&host(name), port, before);
        }
        let shown = |patterns: Vec<HostPattern>| patterns.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(shown(learnt.missing()), ["10.0.0.1:5432", "a.example:8443", "b.example"]);
        assert_eq!(shown(learnt.needed()), ["10.0.0.1:5432", "a.example:8443", "b.example", "c.example"]);
    }
}
