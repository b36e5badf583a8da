//! Git over SSH: the tool takes the place of `ssh`, and the session is held outside. Nothing of the key is here, not even what stands for it.

use stockade_core::credential::Delivery;

use super::{DeskKind, Given, Making, refused};
use crate::failure::Failure;

/// The tool's name for git.
const TOOL: &str = "stockade-ssh";

impl Making<'_> {
    pub(super) fn ssh(&mut self, at: usize, one: &Given) -> Result<(), Failure> {
        if one.deliveries.iter().any(|delivery| *delivery != Delivery::Ssh) {
            return Err(refused(one, "a key for SSH goes nowhere but to its host, so `ssh` is its only delivery"));
        }
        if one.hosts.is_empty() {
            return Err(refused(one, "for SSH it must be bound to a host and port: `--secret NAME@HOST:22`"));
        }
        let ssh = one.ssh.clone().ok_or_else(|| refused(one, "its settings have no `ssh`"))?;
        let tool = self.tool(TOOL);
        // Before anything that a configuration says, and several secrets want the same.
        self.set(one, "GIT_SSH_COMMAND", tool.as_os_str())?;
        self.set(one, "GIT_SSH_VARIANT", "ssh")?;
        self.delivered.desk.push((at, DeskKind::Ssh(ssh)));
        Ok(())
    }
}
