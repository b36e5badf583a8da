//! The guest's server as a library, for fuzzing: the sources of `stockade-shim` without its `main` and without the jail.
//!
//! Threat assumption: whoever calls [`serve`] decides what may be asked. The server does what it is told, so a caller must never let a fuzzed
//! path, program or signal through as it is.

include!(concat!(env!("OUT_DIR"), "/modules.rs"));

use std::os::fd::OwnedFd;

/// How serving ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The host closed the stream or asked for it.
    Asked,
    /// What arrived is not the protocol.
    Broken,
}

/// Serves requests on a stream until it ends, after the handshake.
pub fn serve(stream: OwnedFd) -> Ending {
    let channel = channel::Channel::new(stream);
    let Ok(mut server) = server::Server::new(channel, signals::Role::Process) else { return Ending::Broken };
    match server.serve(None) {
        server::End::Asked => Ending::Asked,
        server::End::Broken => Ending::Broken,
    }
}
