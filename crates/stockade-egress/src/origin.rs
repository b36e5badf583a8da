//! Where a connection comes from. The host side fills this in; nothing here is what a sandbox said of itself.

use std::net::SocketAddr;

use stockade_core::id::SandboxId;

/// One connection out of a sandbox.
#[derive(Debug)]
pub struct Connection<S> {
    /// The bytes.
    pub stream: S,
    /// Whose, and what for.
    pub origin: Origin,
}

/// Whose a connection is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The sandbox.
    pub sandbox: SandboxId,
    /// What the connection was made to.
    pub kind: Kind,
}

/// What a connection was made to, inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The proxy's port: HTTP proxy or SOCKS5, told apart by the first byte.
    Proxy,
    /// Any other address: the program knows nothing of a proxy.
    Transparent(SocketAddr),
    /// The resolver: DNS messages, each after its length in two bytes.
    Dns,
    /// The agent of SSH: messages of its protocol.
    Agent,
}
