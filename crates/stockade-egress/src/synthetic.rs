//! Made-up addresses for allowed names, so that programs which know nothing of proxies can be told from each other's hosts.
//!
//! Each sandbox has a table of its own. An address leads nowhere but to egress, which asks here for the name behind it. When the table is
//! full the oldest name loses its address; a client that kept it then reaches another name and fails at the check of names.

use std::collections::{HashMap, VecDeque};
use std::net::Ipv4Addr;

/// 198.18.0.0/15, set aside for benchmarks (RFC 2544): nobody's real host is there.
const BASE: u32 = 0xc612_0000;
/// The most names with an address at one time. Addresses are given out round, so one is used again only after the rest.
const MAX_NAMES: usize = 4096;
/// How many addresses there are to go round, less the first.
const ROUND: u32 = (1 << 17) - 1;

/// A sandbox's table.
#[derive(Debug, Default)]
pub struct Synthetic {
    by_name: HashMap<String, Ipv4Addr>,
    by_address: HashMap<Ipv4Addr, String>,
    order: VecDeque<String>,
    given: u32,
}

impl Synthetic {
    /// The address of a name, which is made up where it has none.
    pub fn address_of(&mut self, name: &str) -> Ipv4Addr {
        if let Some(address) = self.by_name.get(name) {
            return *address;
        }
        if self.order.len() >= MAX_NAMES
            && let Some(oldest) = self.order.pop_front()
            && let Some(address) = self.by_name.remove(&oldest)
        {
            self.by_address.remove(&address);
        }
        let address = Ipv4Addr::from(BASE + 1 + self.given % (ROUND - 1));
        self.given = self.given.wrapping_add(1);
        self.by_name.insert(name.to_owned(), address);
        self.by_address.insert(address, name.to_owned());
        self.order.push_back(name.to_owned());
        address
    }

    /// The name behind an address.
    pub fn name_of(&self, address: Ipv4Addr) -> Option<&str> {
        self.by_address.get(&address).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_their_addresses_until_the_table_is_full() {
        let mut table = Synthetic::default();
        let first = table.address_of("a.example");
        assert_eq!(first, Ipv4Addr::new(198, 18, 0, 1));
        assert_eq!(table.address_of("b.example"), Ipv4Addr::new(198, 18, 0, 2));
        assert_eq!(table.address_of("a.example"), first);
        assert_eq!(table.name_of(first), Some("a.example"));
        assert_eq!(table.name_of(Ipv4Addr::new(198, 18, 9, 9)), None);
        for number in 0..MAX_NAMES {
            table.address_of(&format!("{number}.example"));
        }
        assert_eq!(table.name_of(first), None);
        assert_eq!(table.by_name.len(), MAX_NAMES);
        assert_ne!(table.address_of("a.example"), first);
    }
}
