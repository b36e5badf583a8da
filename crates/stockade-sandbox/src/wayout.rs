//! A sandbox's way out: what a wall needs to know so that programs inside can reach an egress process, and nothing else.
//!
//! It names no host and holds no rule: which connections go where is decided at the other end of the channel.

use std::os::fd::OwnedFd;

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
}
