//! A sandbox's way out: what a wall needs to know so that programs inside can reach an egress process, and nothing else.
//!
//! It names no host and holds no rule: which connections go where is decided at the other end of the channel. What happens inside is in the
//! guest's own `wayout.rs`.

mod files;

use std::collections::BTreeSet;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;

/// Where the authorities that programs inside trust are, whatever the system's own place for them is.
pub const AUTHORITIES: &str = "/run/stockade/authorities.pem";
/// The system's own places for them; the file is shown at those that the machine has.
pub const SYSTEM_AUTHORITIES: [&str; 6] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
    "/etc/ssl/certs/ca-bundle.crt",
];

/// Where Java looks for authorities on most systems; it reads no other file and no variable.
const JAVA_AUTHORITIES: [&str; 2] = ["/etc/ssl/certs/java/cacerts", "/etc/pki/ca-trust/extracted/java/cacerts"];
/// Where the system's Javas are. Some bring a file of authorities of their own.
const JAVAS: &str = "/usr/lib/jvm";
/// In each of them: its file, and that of versions up to 8.
const IN_A_JAVA: [&str; 2] = ["lib/security/cacerts", "jre/lib/security/cacerts"];
/// No machine has more Javas than this.
const MOST_JAVAS: usize = 32;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use stockade_core::demand::Demand;
use stockade_wire::opening::Opening;
use stockade_wire::plan;

use crate::backends::BackendError;
use crate::connection::Passing;

pub(crate) use files::is_beneath;
pub use files::{MOST_SHOWN, PLACE, Shown, Use, helper};

/// The port of names; it is always taken, and never for anything else.
const DNS_PORT: u16 = 53;

/// What is said of a way out that was killed, or broke.
pub const GONE: &str =
    "egress-ended: the way out ended before the sandbox did: after that nothing went out, and what was under way is not listed";

/// A way out.
#[derive(Debug)]
pub struct WayOut {
    /// The guest's end of a `SOCK_SEQPACKET` pair. Accepted connections are passed over it as descriptors, each with an opening message
    /// of `stockade-egress`.
    pub channel: OwnedFd,
    /// The port of loopback inside on which the proxy is reached, HTTP and SOCKS5 alike.
    pub proxy_port: u16,
    /// The TCP ports on which connections of programs that know no proxy are taken, whatever address they are made to.
    pub ports: Vec<u16>,
    /// A file of the host that holds the authorities programs inside are to trust, in place of the system's.
    pub authorities: Option<PathBuf>,
    /// The same in Java's own format, shown at [`java_places`].
    pub java_authorities: Option<PathBuf>,
    /// Further files that programs inside need to know of.
    pub shown: Vec<Shown>,
    /// Where programs inside find the agent of SSH, beneath [`PLACE`]; connections to it leave by the channel.
    pub agent: Option<PathBuf>,
    /// A pipe's end: when there is something to read, everything inside is killed. Nothing of it is inside; whoever keeps the way out has the other
    /// end, so that its end is seen too.
    pub alarm: Option<OwnedFd>,
}

/// Whether nobody keeps a way out any more, by its alarm. One that was raised has said why.
pub(crate) fn is_gone(alarm: &OwnedFd) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut asked = [PollFd::new(alarm, PollFlags::IN)];
    rustix::event::poll(&mut asked, Some(&now)).is_ok()
        && asked.iter().any(|fd| fd.revents().contains(PollFlags::HUP) && !fd.revents().contains(PollFlags::IN))
}

/// The files that this machine's Javas read authorities from, each once and without links; empty where there is no Java.
pub fn java_places() -> Vec<PathBuf> {
    let javas = std::fs::read_dir(JAVAS).into_iter().flatten().flatten().take(MOST_JAVAS);
    let theirs = javas.flat_map(|java| IN_A_JAVA.map(|file| java.path().join(file)));
    shown(theirs.chain(JAVA_AUTHORITIES.iter().map(PathBuf::from)))
}

/// Those that are there and that the jail shows, each once and without links.
pub(crate) fn shown(paths: impl Iterator<Item = PathBuf>) -> Vec<PathBuf> {
    let real = paths.filter_map(|path| std::fs::canonicalize(path).ok());
    let mut places: Vec<PathBuf> = real.filter(|path| ["/etc", "/usr"].iter().any(|top| path.starts_with(top))).collect();
    places.sort();
    places.dedup();
    places
}

impl WayOut {
    /// Hands a connection over, as a guest does with one that was made to its proxy: for a process of ours that has to reach a host and is no sandbox.
    pub fn pass(&self, connection: BorrowedFd<'_>) -> std::io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let connections = [connection];
        if !control.push(SendAncillaryMessage::ScmRights(&connections)) {
            return Err(std::io::ErrorKind::InvalidInput.into());
        }
        let bytes = Opening::Proxy.bytes();
        rustix::net::sendmsg(&self.channel, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
        Ok(())
    }

    /// What the guest is told; refused where it cannot be as it says.
    pub(crate) fn plan(&self, passing: Passing) -> Result<plan::WayOut, BackendError> {
        let refuse = |detail: String, fix: &str| Err(BackendError::Step { step: "way out".into(), detail, fix: fix.into() });
        if passing == Passing::Impossible {
            return refuse(
                "connections can leave a sandbox only where descriptors can be passed out of it".into(),
                "use the backend `jail`, or run without allowed hosts",
            );
        }
        // Once each, and without that of names.
        let ports: BTreeSet<u16> = self.ports.iter().copied().filter(|port| *port != DNS_PORT).collect();
        if self.proxy_port == DNS_PORT || ports.contains(&self.proxy_port) {
            return refuse(
                format!("port {} cannot be the proxy's: connections to hosts are taken there", self.proxy_port),
                "choose another port for the proxy",
            );
        }
        if self.proxy_port == 0 || ports.contains(&0) {
            return refuse("0 is no port".into(), "name a port from 1 to 65535");
        }
        if ports.len() > plan::MOST_PORTS {
            let most = plan::MOST_PORTS;
            return refuse(format!("hosts are allowed on {} ports, and {most} can be taken", ports.len()), "allow hosts on fewer ports");
        }
        files::check(&self.shown, self.agent.as_deref())?;
        Ok(plan::WayOut { proxy_port: self.proxy_port, ports: ports.into_iter().collect() })
    }
}

/// Refuses a way out where nothing would lead programs to it and keep them from all others.
pub(crate) fn refuse(way_out: Option<&WayOut>, why: &str, fix: &str) -> Result<(), BackendError> {
    match way_out {
        None => Ok(()),
        Some(_) => Err(BackendError::Demand { demand: Demand::Network, why: why.into(), fix: fix.into() }),
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType};

    use super::*;

    fn of(proxy_port: u16, ports: &[u16], passing: Passing) -> Result<plan::WayOut, String> {
        let (channel, _) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let way_out = WayOut {
            channel,
            proxy_port,
            ports: ports.to_vec(),
            authorities: None,
            java_authorities: None,
            shown: Vec::new(),
            agent: None,
            alarm: None,
        };
        way_out.plan(passing).map_err(|error| error.to_string())
    }

    #[test]
    fn ports_are_taken_once_and_none_for_two_things() {
        let plan = of(3128, &[443, 80, 443, 53], Passing::Possible).unwrap();
        assert_eq!((plan.proxy_port, plan.ports), (3128, vec![80, 443]));
        for (proxy, ports) in [(443, vec![443]), (53, vec![]), (0, vec![]), (3128, vec![0]), (3128, (1000..1065).collect())] {
            assert!(of(proxy, &ports, Passing::Possible).is_err(), "{proxy} {ports:?}");
        }
        assert!(of(3128, &[443], Passing::Impossible).unwrap_err().contains("descriptors"));
    }
}
