//! The agent of SSH: a socket inside that the guest listens on, and the keys that egress signs with behind it.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use stockade_sandbox::wayout::PLACE;

use super::{Given, Making, refused};
use crate::failure::Failure;

/// Where programs inside find it.
const SOCKET: &str = "ssh-agent";
/// What tells them.
const VARIABLE: &str = "SSH_AUTH_SOCK";

/// Where, and as whom, programs may log in with a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Logins {
    /// The keys of hosts, as `KIND BASE64`.
    pub(crate) host_keys: Vec<String>,
    /// As whom.
    pub(crate) user: String,
}

/// A key of the agent, as egress is told of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AgentKey {
    /// Which secret, by its place in the order.
    pub(crate) secret: usize,
    /// The keys of hosts, as SSH writes them.
    pub(crate) host_keys: Vec<Vec<u8>>,
    /// As whom.
    pub(crate) user: String,
}

impl Making<'_> {
    pub(super) fn ssh_agent(&mut self, at: usize, one: &Given) -> Result<(), Failure> {
        // A key is no token: in a request it would only be lost.
        if one.deliveries.len() > 1 {
            return Err(refused(one, "`ssh-agent` goes with no other delivery of the same secret"));
        }
        if one.hosts.iter().any(|host| host.ports().len() > 1) {
            return Err(refused(one, "the agent needs hosts with a port, as in `github.com:22`"));
        }
        let logins = one.logins.as_ref().filter(|logins| !logins.host_keys.is_empty()).ok_or_else(|| {
            let why = "its settings name no key of a host in `ssh.hostKeys`, and no host is trusted unseen: `ssh-keyscan -t ed25519 HOST` prints it";
            refused(one, why)
        })?;
        let decode = |text: &String| STANDARD.decode(text.split(' ').nth(1).unwrap_or_default()).ok();
        let host_keys = logins.host_keys.iter().map(decode).collect::<Option<Vec<_>>>();
        let host_keys = host_keys.ok_or_else(|| refused(one, "`ssh.hostKeys` has something in it that is no key"))?;
        let place = Path::new(PLACE).join(SOCKET);
        // Several secrets have one agent.
        if self.delivered.agent.is_none() {
            self.set(one, VARIABLE, place.as_os_str())?;
            self.delivered.agent = Some(place);
        }
        self.delivered.agent_keys.push(AgentKey { secret: at, host_keys, user: logins.user.clone() });
        Ok(())
    }
}
