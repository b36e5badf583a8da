//! Which addresses may be dialled: a table of the ranges that are not the public internet, a reason per line.
//!
//! An address that carries another one (IPv4-mapped, NAT64, 6to4, Teredo and the like) is judged by the one inside as well, so no
//! spelling leads past the table. Granting an address is not decided here.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What an address is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressClass {
    /// Somewhere on the internet.
    Public,
    /// The machine itself.
    Loopback,
    /// A private network.
    Private,
    /// This link only; cloud metadata services live here.
    LinkLocal,
    /// A cloud's metadata service outside the link-local range.
    Metadata,
    /// A carrier's shared space, also used by overlay networks.
    Shared,
    /// Many machines at once.
    Multicast,
    /// No host: unspecified, documentation, benchmarks, reserved.
    Reserved,
}

impl AddressClass {
    /// Classifies an address, looking into those that carry another.
    pub fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => of_v4(address),
            IpAddr::V6(address) => of_v6(address),
        }
    }
}

impl fmt::Display for AddressClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Public => "public",
            Self::Loopback => "loopback",
            Self::Private => "private",
            Self::LinkLocal => "link-local",
            Self::Metadata => "metadata",
            Self::Shared => "shared",
            Self::Multicast => "multicast",
            Self::Reserved => "reserved",
        })
    }
}

/// First match wins, so single addresses stand before the ranges that hold them.
const V4: &[(Ipv4Addr, u32, AddressClass)] = &[
    // Alibaba Cloud's metadata service, inside the shared range.
    (Ipv4Addr::new(100, 100, 100, 200), 32, AddressClass::Metadata),
    // Azure's wire server.
    (Ipv4Addr::new(168, 63, 129, 16), 32, AddressClass::Metadata),
    // Oracle Cloud's former metadata service.
    (Ipv4Addr::new(192, 0, 0, 192), 32, AddressClass::Metadata),
    // "This network" (RFC 791); Linux takes 0.0.0.0 for loopback.
    (Ipv4Addr::UNSPECIFIED, 8, AddressClass::Reserved),
    (Ipv4Addr::new(10, 0, 0, 0), 8, AddressClass::Private),
    // Carrier-grade NAT (RFC 6598); Tailscale too.
    (Ipv4Addr::new(100, 64, 0, 0), 10, AddressClass::Shared),
    (Ipv4Addr::new(127, 0, 0, 0), 8, AddressClass::Loopback),
    // AWS, GCP and Azure answer at 169.254.169.254.
    (Ipv4Addr::new(169, 254, 0, 0), 16, AddressClass::LinkLocal),
    (Ipv4Addr::new(172, 16, 0, 0), 12, AddressClass::Private),
    // Protocol assignments (RFC 6890).
    (Ipv4Addr::new(192, 0, 0, 0), 24, AddressClass::Reserved),
    // Documentation (RFC 5737).
    (Ipv4Addr::new(192, 0, 2, 0), 24, AddressClass::Reserved),
    // The former 6to4 relays (RFC 7526): a tunnel to anywhere.
    (Ipv4Addr::new(192, 88, 99, 0), 24, AddressClass::Reserved),
    (Ipv4Addr::new(192, 168, 0, 0), 16, AddressClass::Private),
    // Benchmarks (RFC 2544); our own synthetic addresses lie here.
    (Ipv4Addr::new(198, 18, 0, 0), 15, AddressClass::Reserved),
    // Documentation (RFC 5737).
    (Ipv4Addr::new(198, 51, 100, 0), 24, AddressClass::Reserved),
    (Ipv4Addr::new(203, 0, 113, 0), 24, AddressClass::Reserved),
    (Ipv4Addr::new(224, 0, 0, 0), 4, AddressClass::Multicast),
    // Reserved, and broadcast at its end (RFC 1112, RFC 919).
    (Ipv4Addr::new(240, 0, 0, 0), 4, AddressClass::Reserved),
];

const V6: &[(Ipv6Addr, u32, AddressClass)] = &[
    (Ipv6Addr::LOCALHOST, 128, AddressClass::Loopback),
    (Ipv6Addr::UNSPECIFIED, 128, AddressClass::Reserved),
    // AWS's metadata service over IPv6, inside the unique local range.
    (Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254), 128, AddressClass::Metadata),
    // GCP's metadata service over IPv6.
    (Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254), 128, AddressClass::Metadata),
    // Discard only (RFC 6666).
    (Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 0), 64, AddressClass::Reserved),
    // NAT64 for local use (RFC 8215): where the inner address stands is up to the network.
    (Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0), 48, AddressClass::Private),
    // Documentation (RFC 3849, RFC 9637).
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, AddressClass::Reserved),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, AddressClass::Reserved),
    // Teredo: a tunnel whose inner addresses are scrambled (RFC 4380).
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 32, AddressClass::Reserved),
    // Protocol assignments: benchmarks, ORCHID (RFC 2928).
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23, AddressClass::Reserved),
    // Unique local (RFC 4193).
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, AddressClass::Private),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10, AddressClass::LinkLocal),
    // The former site-local range (RFC 3879), still routed in places.
    (Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0), 10, AddressClass::Private),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8, AddressClass::Multicast),
];

fn of_v4(address: Ipv4Addr) -> AddressClass {
    let bits = u32::from(address);
    let row = V4.iter().find(|(network, length, _)| bits.checked_shr(32 - length) == u32::from(*network).checked_shr(32 - length));
    row.map_or(AddressClass::Public, |(_, _, class)| *class)
}

fn of_v6(address: Ipv6Addr) -> AddressClass {
    let bits = u128::from(address);
    let row = V6.iter().find(|(network, length, _)| bits.checked_shr(128 - length) == u128::from(*network).checked_shr(128 - length));
    match (row, embedded(address)) {
        (Some((_, _, class)), _) => *class,
        (None, Some(inner)) => of_v4(inner),
        // Only this eighth of the space is given out (RFC 4291); whatever else there is, is no public host.
        (None, None) if bits >> 125 == 1 => AddressClass::Public,
        (None, None) => AddressClass::Reserved,
    }
}

/// The IPv4 address that an IPv6 address leads to.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let join = |high: u16, low: u16| Some(Ipv4Addr::from((u32::from(high) << 16) | u32::from(low)));
    match address.segments() {
        // Compatible (RFC 4291), mapped (the same), translated (RFC 2765), NAT64 (RFC 6052), ISATAP under any prefix (RFC 5214).
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [_, _, _, _, 0 | 0x200, 0x5efe, high, low]
        // 6to4 (RFC 3056).
        | [0x2002, high, low, ..] => join(high, low),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_classified() {
        use AddressClass::{LinkLocal, Loopback, Metadata, Multicast, Private, Public, Reserved, Shared};
        for (text, class) in [
            ("1.1.1.1", Public),
            ("0.0.0.0", Reserved),
            ("0.1.2.3", Reserved),
            ("10.255.255.255", Private),
            ("11.0.0.0", Public),
            ("100.63.255.255", Public),
            ("100.64.0.1", Shared),
            ("100.100.100.200", Metadata),
            ("100.127.255.255", Shared),
            ("100.128.0.0", Public),
            ("127.0.0.1", Loopback),
            ("127.255.255.254", Loopback),
            ("168.63.129.16", Metadata),
            ("168.63.129.17", Public),
            ("169.254.169.254", LinkLocal),
            ("172.15.255.255", Public),
            ("172.16.0.1", Private),
            ("172.31.255.255", Private),
            ("172.32.0.0", Public),
            ("192.0.0.192", Metadata),
            ("192.0.2.1", Reserved),
            ("192.88.99.1", Reserved),
            ("192.168.1.1", Private),
            ("198.18.0.1", Reserved),
            ("198.19.255.255", Reserved),
            ("198.20.0.0", Public),
            ("203.0.113.5", Reserved),
            ("224.0.0.1", Multicast),
            ("239.255.255.255", Multicast),
            ("240.0.0.1", Reserved),
            ("255.255.255.255", Reserved),
            ("2606:4700:4700::1111", Public),
            ("2a00::1", Public),
            ("::", Reserved),
            ("::1", Loopback),
            ("fd00:ec2::254", Metadata),
            ("fd20:ce::254", Metadata),
            ("fc00::1", Private),
            ("fdff::1", Private),
            ("fe80::1", LinkLocal),
            ("febf::1", LinkLocal),
            ("fec0::1", Private),
            ("ff02::1", Multicast),
            ("100::1", Reserved),
            ("2001:db8::1", Reserved),
            ("3fff::1", Reserved),
            ("2001:0:102:304::1", Reserved),
            ("2001:10::1", Reserved),
            ("2001:200::1", Public),
            ("4000::1", Reserved),
            ("8000::1", Reserved),
            // Those that carry an IPv4 address.
            ("::ffff:127.0.0.1", Loopback),
            ("::ffff:169.254.169.254", LinkLocal),
            ("::ffff:1.1.1.1", Public),
            ("::127.0.0.1", Loopback),
            ("::ffff:0:10.0.0.1", Private),
            ("64:ff9b::7f00:1", Loopback),
            ("64:ff9b::a9fe:a9fe", LinkLocal),
            ("64:ff9b::101:101", Public),
            ("64:ff9b:1::1", Private),
            ("2002:7f00:1::", Loopback),
            ("2002:c0a8:101::1", Private),
            ("2002:101:101::1", Public),
            ("2a00::5efe:10.0.0.1", Private),
            ("2a00::200:5efe:127.0.0.1", Loopback),
        ] {
            assert_eq!(AddressClass::of(text.parse().unwrap()), class, "{text}");
        }
    }

    #[test]
    fn no_line_of_the_table_is_redundant() {
        for (index, (network, length, class)) in V4.iter().enumerate() {
            let covered = V4[..index].iter().any(|(other, shorter, _)| {
                shorter <= length && u32::from(*other).checked_shr(32 - shorter) == u32::from(*network).checked_shr(32 - shorter)
            });
            assert!(!covered, "{network}/{length} {class}");
        }
    }
}
