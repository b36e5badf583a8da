//! Git over SSH: the session with the host is held here, outside, with the key. A program inside has standard input and output of one command of git.
//!
//! ```text
//! stockade-ssh ── POST /ssh, upgraded ──▶ desk ─▶ command ─▶ rules, binding, repository ─▶ value ─▶ dial ─▶ host key ─▶ login ─▶ exec
//!              ◀═══════ frames ═════════════════════════════════════════════════════════════════════════════════════════════════┘
//! ```
//!
//! The repository, and whether it is read or written, stand inside the encrypted channel. So whoever would hold to a rule about them must be its end.
//! What may be asked for is a command of git with one repository, which is taken apart ([`command`]) and written anew. A host is believed by keys
//! that settings name, never by the first look.

pub mod command;
mod frame;
mod key;
mod relay;
mod serve;
mod session;

use russh::keys::PublicKey;
use stockade_core::repository::{Repository, RepositoryPattern};

use crate::refusal::Refusal;
use command::Service;
pub(crate) use serve::{PATH, serve};

/// What a key may be used for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Use {
    /// Who logs in.
    pub user: String,
    /// Keys that the hosts may have, as `KIND BASE64`.
    pub host_keys: Vec<String>,
    /// Repositories that may be asked for.
    pub repositories: Vec<RepositoryPattern>,
    /// What may be done with them.
    pub access: Access,
}

/// What may be done with repositories.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// They are read.
    Fetch,
    /// They are written to as well.
    Push,
}

impl Use {
    /// The keys of its hosts; `None` where one of them is none, or there is not one.
    pub(crate) fn known_hosts(&self) -> Option<Vec<PublicKey>> {
        let keys: Option<Vec<PublicKey>> = self.host_keys.iter().map(|text| PublicKey::from_openssh(text).ok()).collect();
        keys.filter(|keys| !keys.is_empty())
    }

    /// Whether this may be done.
    fn allows(&self, user: Option<&str>, service: Service, repository: &Repository) -> Result<(), Refusal> {
        if let Some(user) = user.filter(|user| *user != self.user) {
            return Err(refused("ssh-user", format!("one logs in as `{}` there, not as `{user}`", self.user)));
        }
        if !self.repositories.iter().any(|pattern| pattern.matches(repository)) {
            return Err(refused(
                "ssh-repository",
                format!("the repository `{repository}` is none that `ssh.repositories` of the secret names"),
            ));
        }
        match (service.access(), self.access) {
            (Access::Fetch, _) | (Access::Push, Access::Push) => Ok(()),
            (Access::Push, Access::Fetch) => {
                Err(refused("ssh-push", format!("`{repository}` may be fetched and not pushed to: `ssh.push` of the secret is false")))
            }
        }
    }
}

fn refused(rule: &'static str, why: String) -> Refusal {
    Refusal::Ssh { rule, why }
}
