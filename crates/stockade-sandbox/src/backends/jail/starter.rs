//! Who starts a jail, and so whose ids it gets.
//!
//! Root that has all of root's rights gives every sandbox a user of its own, and maps the owner of mounts to it. Root of a container
//! or of a user namespace lacks either the ids or the right to mount; it can only do what an ordinary user can, so the sandbox would
//! run as root's own user, and the demand `privileges` is held in part.

use rustix::thread::CapabilitySet;
use stockade_core::demand::{Demand, Enforcement, Level};
use stockade_sys::guest::Identity;

use super::{BackendError, step};
use crate::surroundings::Obstacle;
use crate::surroundings::facts::Facts;

/// Sandboxes started by root run as users of this range, which nothing else uses.
const FIRST_UID: u32 = 0x7000_0000;
/// How many users the range has.
const UIDS: u32 = 0x0100_0000;
/// The user inside a sandbox that root started.
const INSIDE: (u32, u32) = (1000, 1000);

/// Who started us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Starter {
    /// Root with everything that goes with it.
    Root,
    /// Root that may not mount, or has too few ids.
    BoundRoot,
    /// Anybody else.
    Ordinary,
}

impl Starter {
    /// Looks at this process. (Trying a mount would tell more, but undoing it waits for RCU.)
    pub(super) fn current() -> Self {
        if !rustix::process::geteuid().is_root() {
            return Self::Ordinary;
        }
        let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
        let mounts = rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN));
        if covers(&map) && mounts { Self::Root } else { Self::BoundRoot }
    }

    /// The ids of a new sandbox.
    pub(super) fn identity(self) -> Result<Identity, BackendError> {
        let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        Ok(match self {
            Self::Root => {
                let random = crate::state::random_u32().map_err(|e| step("choosing a user", e.to_string()))?;
                let id = FIRST_UID + (random & (UIDS - 1));
                Identity { outside: (id, id), inside: INSIDE }
            }
            Self::BoundRoot => Identity { outside: own, inside: INSIDE },
            Self::Ordinary => Identity { outside: own, inside: own },
        })
    }

    /// Says what being this starter takes away from a jail.
    pub(super) fn qualify(self, answers: &mut Enforcement) {
        if self == Self::BoundRoot {
            let obstacle = Obstacle::RootWithoutMounts(Facts::gather().engine);
            answers.set(Demand::Privileges, Level::Partial, obstacle.why(), obstacle.fix());
        }
    }
}

/// Whether a user namespace's map knows the whole range.
fn covers(map: &str) -> bool {
    map.lines().any(|line| {
        let mut numbers = line.split_whitespace().filter_map(|word| word.parse::<u64>().ok());
        match (numbers.next(), numbers.next(), numbers.next()) {
            (Some(inside), Some(_), Some(count)) => {
                inside <= u64::from(FIRST_UID) && inside.saturating_add(count) >= u64::from(FIRST_UID) + u64::from(UIDS)
            }
            _ => false,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_of_user_namespaces() {
        assert!(covers("         0          0 4294967295\n"));
        for narrow in ["", "0 1000 1\n", "0 1000 1\n1 100000 65536\n", "0 0 1879048192\n", "odd words here\n"] {
            assert!(!covers(narrow), "{narrow:?}");
        }
    }
}
