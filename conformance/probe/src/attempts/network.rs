//! The network: the host's loopback, and kinds of sockets that no program in a sandbox needs.

use std::io::Read;
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::time::Duration;

use crate::call::{self, raw};
use crate::facts::Facts;
use crate::finding::{Finding, if_it_works, if_secret};

use super::Attempt;

pub(super) const TABLE: &[(&str, Attempt)] = &[
    ("tcp_loopback", |facts| tcp(facts, Ipv4Addr::LOCALHOST)),
    ("tcp_any_address", |facts| tcp(facts, Ipv4Addr::UNSPECIFIED)),
    ("udp_loopback", udp_loopback),
    ("other_interfaces", other_interfaces),
    ("routes", routes),
    ("netlink_netfilter", |_| socket(16, 3, 12)),
    ("netlink_audit", |_| socket(16, 3, 9)),
    ("netlink_uevent", |_| socket(16, 3, 15)),
    ("netlink_route", netlink_route),
    ("vsock", |_| socket(40, 1, 0)),
    ("packet_socket", packet_socket),
    ("raw_socket", raw_socket),
    ("mptcp_socket", |_| socket(2, 1, 262)),
    ("host_name", host_name),
];

/// Opens a socket of one family, type and protocol.
fn socket(family: i64, kind: i64, protocol: i64) -> Finding {
    if_it_works(raw(libc::SYS_socket, &[family, kind, protocol]))
}

fn tcp(facts: &Facts, address: Ipv4Addr) -> Finding {
    let read = || -> std::io::Result<Vec<u8>> {
        let port = u16::try_from(facts.number("tcp_port")).unwrap_or(0);
        let mut stream = TcpStream::connect_timeout(&(address, port).into(), Duration::from_secs(3))?;
        stream.set_read_timeout(Some(Duration::from_secs(3)))?;
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    if_secret(read(), facts.text("secret"))
}

fn udp_loopback(facts: &Facts) -> Finding {
    let read = || -> std::io::Result<Vec<u8>> {
        let port = u16::try_from(facts.number("udp_port")).unwrap_or(0);
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.set_read_timeout(Some(Duration::from_secs(2)))?;
        socket.connect((Ipv4Addr::LOCALHOST, port))?;
        socket.send(b"x")?;
        let mut bytes = vec![0; 256];
        let count = socket.recv(&mut bytes)?;
        bytes.truncate(count);
        Ok(bytes)
    };
    if_secret(read(), facts.text("secret"))
}

/// Interfaces besides loopback. `sit0`, `tunl0` and the like exist in every namespace of kernels that have them built in, and are down.
fn other_interfaces(_: &Facts) -> Finding {
    let list = std::fs::read_to_string("/proc/net/dev").unwrap_or_default();
    let others: Vec<&str> = list.lines().skip(2).filter_map(|l| l.split(':').next()).map(str::trim).filter(|n| *n != "lo").collect();
    if list.is_empty() {
        Finding::Held("no list of interfaces".into())
    } else if others.is_empty() {
        Finding::Held("loopback alone".into())
    } else {
        Finding::Open(others.join(", "))
    }
}

/// A route to somewhere else: connecting a datagram socket sends nothing.
fn routes(_: &Facts) -> Finding {
    if_it_works(UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).and_then(|s| s.connect((Ipv4Addr::new(192, 0, 2, 1), 9))))
}

/// The family that lists interfaces is needed by ordinary programs; what it may not do is list the host's.
fn netlink_route(facts: &Facts) -> Finding {
    match raw(libc::SYS_socket, &[16, 3, 0]) {
        Ok(_) => other_interfaces(facts),
        Err(error) => Finding::Held(error.to_string()),
    }
}

fn packet_socket(_: &Facts) -> Finding {
    let _ = call::gain();
    socket(17, 3, 0x0300)
}

fn raw_socket(_: &Facts) -> Finding {
    let _ = call::gain();
    socket(2, 3, 1)
}

/// The name of the host, which tells one machine from another.
fn host_name(facts: &Facts) -> Finding {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    if name.trim() == facts.text("host_name") { Finding::Open("the host's own name".into()) } else { Finding::Held("another name".into()) }
}
