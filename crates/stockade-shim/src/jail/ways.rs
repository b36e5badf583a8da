//! The step that opens a way out, while this process may still do things to its network namespace: every address becomes local, and what
//! egress serves is listened on.
//!
//! Nothing leaves by this: loopback is the only interface and stays it. Ports that nobody listens on refuse, at every address. The listeners are
//! bound before any program runs, and in a way that lets nobody bind the same ports beside them. The agent's socket is a part of the root and was made
//! with it.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, Ipv4Addr, Ipv6Addr, RecvFlags, SendFlags, SocketAddrV4, SocketAddrV6, SocketFlags, SocketType, bind, listen, recv, send,
    socket_with, sockopt,
};
use stockade_wire::plan::{self, MOST_PORTS};

use super::{Doing, Trouble};
use crate::wayout::{Leads, WayOut};

/// Connections that may wait to be accepted; the kernel may allow fewer.
const BACKLOG: i32 = 1024;
const DNS_PORT: u16 = 53;
/// Loopback is the first interface of every network namespace.
const LOOPBACK: u32 = 1;
/// An address of documentation (RFC 5737) that this sandbox has besides loopback's own: resolvers ask for no address of a family that a
/// machine seems to have no address in.
const OWN_ADDRESS: [u8; 4] = [192, 0, 2, 1];
/// The length of an attribute of four bytes.
const ATTRIBUTE: u16 = 8;
/// The length of a message's header.
const HEADER: usize = 16;

/// Opens it; the channel is the first of the descriptors that are left. The agent's listener was made with the root.
pub(crate) fn open(plan: &plan::WayOut, agent: Option<OwnedFd>, passed: &mut Vec<OwnedFd>) -> Result<WayOut, Trouble> {
    if passed.is_empty() {
        return Err(Trouble::new("no channel was passed"));
    }
    let channel = passed.remove(0);
    if sockopt::socket_type(&channel).doing(|| "looking at the channel".into())? != SocketType::SEQPACKET {
        return Err(Trouble::new("the channel is no packet socket"));
    }
    if plan.ports.len() > MOST_PORTS {
        return Err(Trouble::new(format!("more than {MOST_PORTS} ports")));
    }
    // Without a protocol, it is routes that such a socket is about.
    let routes =
        socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None).doing(|| "opening a socket for routes".into())?;
    let families = families(&routes)?;
    let mut doors: Vec<(OwnedFd, Leads)> = agent.into_iter().map(|socket| (socket, Leads::Agent)).collect();
    let mut names = Vec::new();
    for family in families {
        names.push(bound(family, SocketType::DGRAM, Reach::Loopback, DNS_PORT)?);
        let mut door = |reach, port, leads| {
            let socket = bound(family, SocketType::STREAM, reach, port)?;
            listen(&socket, BACKLOG).doing(|| format!("listening on port {port}"))?;
            doors.push((socket, leads));
            Ok::<(), Trouble>(())
        };
        door(Reach::Loopback, DNS_PORT, Leads::Names)?;
        door(Reach::Loopback, plan.proxy_port, Leads::Proxy)?;
        for port in &plan.ports {
            door(Reach::Everywhere, *port, Leads::Address)?;
        }
    }
    Ok(WayOut::new(channel, doors, names))
}

/// At which addresses a socket is reached.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    Loopback,
    Everywhere,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

/// Makes every address local, and says in which families there are addresses. A kernel may have no IPv6; then nothing is to be reached by it.
fn families(routes: &OwnedFd) -> Result<Vec<Family>, Trouble> {
    everything_is_local(routes, libc::AF_INET).doing(|| "making addresses local".into())?;
    add_own_address(routes).doing(|| "adding an address".into())?;
    match bound_to(Family::V6, SocketType::STREAM, Reach::Loopback, 0) {
        Ok(_) => {}
        Err(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL) => return Ok(vec![Family::V4]),
        Err(errno) => return Err(errno).doing(|| "looking for IPv6".into()),
    }
    everything_is_local(routes, libc::AF_INET6).doing(|| "making IPv6 addresses local".into())?;
    Ok(vec![Family::V4, Family::V6])
}

/// As `ip route add local default dev lo`.
fn everything_is_local(routes: &OwnedFd, family: libc::c_int) -> Result<(), Errno> {
    let mut body = Vec::new();
    // Family, length of the destination and of the source, type of service, table, who made it, scope, kind; flags.
    body.extend_from_slice(&[family as u8, 0, 0, 0, libc::RT_TABLE_LOCAL, libc::RTPROT_STATIC, libc::RT_SCOPE_HOST, libc::RTN_LOCAL]);
    body.extend_from_slice(&[0; 4]);
    push_attribute(&mut body, libc::RTA_OIF, LOOPBACK.to_ne_bytes());
    ask(routes, libc::RTM_NEWROUTE, &body)
}

/// As `ip address add … dev lo`.
fn add_own_address(routes: &OwnedFd) -> Result<(), Errno> {
    let mut body = Vec::new();
    // Family, length of the prefix, flags, scope; interface.
    body.extend_from_slice(&[libc::AF_INET as u8, 32, 0, libc::RT_SCOPE_HOST]);
    body.extend_from_slice(&LOOPBACK.to_ne_bytes());
    push_attribute(&mut body, libc::IFA_LOCAL, OWN_ADDRESS);
    ask(routes, libc::RTM_NEWADDR, &body)
}

fn push_attribute(body: &mut Vec<u8>, kind: u16, value: [u8; 4]) {
    body.extend_from_slice(&ATTRIBUTE.to_ne_bytes());
    body.extend_from_slice(&kind.to_ne_bytes());
    body.extend_from_slice(&value);
}

/// Asks the kernel for something new, and waits for its answer.
fn ask(routes: &OwnedFd, kind: u16, body: &[u8]) -> Result<(), Errno> {
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_EXCL) as u16;
    let mut message = Vec::new();
    // The header: length, kind, flags, number, sender.
    message.extend_from_slice(&((HEADER + body.len()) as u32).to_ne_bytes());
    message.extend_from_slice(&kind.to_ne_bytes());
    message.extend_from_slice(&flags.to_ne_bytes());
    message.extend_from_slice(&[0; 8]);
    message.extend_from_slice(body);
    send(routes, &message, SendFlags::empty())?;
    let mut answer = [0; 128];
    recv(routes, &mut answer[..], RecvFlags::empty())?;
    // An answer is a header, then an error number less than 0, or 0.
    let [_, _, _, _, k0, k1, _, _, _, _, _, _, _, _, _, _, e0, e1, e2, e3, ..] = answer;
    if i32::from(u16::from_ne_bytes([k0, k1])) != libc::NLMSG_ERROR {
        return Err(Errno::PROTO);
    }
    match i32::from_ne_bytes([e0, e1, e2, e3]) {
        0 => Ok(()),
        errno => Err(Errno::from_raw_os_error(errno.saturating_neg())),
    }
}

fn bound(family: Family, kind: SocketType, reach: Reach, port: u16) -> Result<OwnedFd, Trouble> {
    if port == 0 {
        return Err(Trouble::new("0 is no port"));
    }
    bound_to(family, kind, reach, port).doing(|| format!("taking port {port}"))
}

/// A socket with an address, and with no option that would let another have the same one.
fn bound_to(family: Family, kind: SocketType, reach: Reach, port: u16) -> Result<OwnedFd, Errno> {
    let domain = if family == Family::V4 { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(domain, kind, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
    match (family, reach) {
        (Family::V4, Reach::Loopback) => bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))?,
        (Family::V4, Reach::Everywhere) => bind(&socket, &SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port))?,
        (Family::V6, Reach::Loopback) => bind(&socket, &SocketAddrV6::new(Ipv6Addr::LOCALHOST, port, 0, 0))?,
        (Family::V6, Reach::Everywhere) => {
            // The other family has a socket of its own, on which addresses look as they are.
            sockopt::set_ipv6_v6only(&socket, true)?;
            bind(&socket, &SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0))?;
        }
    }
    Ok(socket)
}
