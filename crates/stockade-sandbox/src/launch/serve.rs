//! The launcher's side: one thread per jail that was given, until the gateway lets go of it. Ends with the gateway's connection.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use stockade_core::escape::escape;
use stockade_core::path::SafePath;

use super::{Given, Look, Looked, Want, Word};
use crate::letter;
use crate::pool::Pool;
use crate::sandbox::Sandbox;
use crate::state::Owned;
use crate::template::{Keep, TemplateError};

/// How often the pool is looked through.
const REST: Duration = Duration::from_secs(30);
/// How long a session may take to say what it wants.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is fixed when a launcher starts.
#[derive(Debug)]
pub struct Bounds {
    /// The directory that holds all state.
    pub state: PathBuf,
    /// Directories of ours that nothing inside may see, nor have as its workspace.
    pub hidden: Vec<PathBuf>,
    /// Whatever is mounted lies beneath one of these.
    pub roots: Vec<PathBuf>,
}

/// Serves until the connection ends.
pub fn serve(connection: &UnixStream, bounds: Bounds) -> std::io::Result<()> {
    let pool = Pool::new(bounds.state.clone(), bounds.hidden.clone());
    let shared = Arc::new((pool, bounds));
    loop {
        let patience = Timespec { tv_sec: REST.as_secs().cast_signed(), tv_nsec: 0 };
        let ready = rustix::io::retry_on_intr(|| rustix::event::poll(&mut [PollFd::new(connection, PollFlags::IN)], Some(&patience)))?;
        if ready == 0 {
            shared.0.rest();
            continue;
        }
        let Some(((), descriptors)) = letter::receive::<()>(connection)? else { return Ok(()) };
        let Ok([session]) = <[OwnedFd; 1]>::try_from(descriptors) else { continue };
        let shared = Arc::clone(&shared);
        let attended = std::thread::Builder::new().name("stockade-session".into()).spawn(move || {
            // A session that breaks is over for both sides.
            let _ = attend(&UnixStream::from(session), &shared.0, &shared.1);
        });
        // Without a thread the session is closed, which the other side sees.
        drop(attended);
    }
}

fn attend(session: &UnixStream, pool: &Pool, bounds: &Bounds) -> std::io::Result<()> {
    session.set_read_timeout(Some(PATIENCE))?;
    session.set_write_timeout(Some(PATIENCE))?;
    let Some((want, _)) = letter::receive::<Want>(session)? else { return Ok(()) };
    let standing = match bounds.refusal(&want) {
        Some(message) => Err(Word::Refused { step: "launcher".into(), message, hint: Some("stockade serve --root DIR".into()) }),
        None => Standing::take(pool, &want).map_err(|error| refusal(&error)),
    };
    let mut standing = match standing {
        Ok(standing) => standing,
        Err(refused) => return letter::send(session, &refused, &[]),
    };
    session.set_read_timeout(None)?;
    standing.give(session)?;
    while let Some((Look {}, _)) = letter::receive::<Look>(session)? {
        let hit = standing.sandbox.wall().parts().1.tick();
        letter::send(session, &Looked { hit }, &[])?;
    }
    // The directory is the gateway's: what is in it was taken over with the lock.
    standing.sandbox.destroy();
    Ok(())
}

/// A jail, while somebody else uses it.
struct Standing {
    sandbox: Sandbox,
    owned: Owned,
    _template: Keep,
}

impl Standing {
    fn take(pool: &Pool, want: &Want) -> Result<Self, TemplateError> {
        let ended = || crate::backends::BackendError::Step {
            step: "launcher".into(),
            detail: "the jail ended before it was used".into(),
            fix: String::new(),
        };
        let (sandbox, owned, template) = pool.take(want)?.part().ok_or_else(ended)?;
        Ok(Self { sandbox, owned, _template: template })
    }

    fn give(&mut self, session: &UnixStream) -> std::io::Result<()> {
        let exports = self.sandbox.take_exports();
        let wall = self.sandbox.wall();
        let given = Given {
            id: self.owned.id.clone(),
            pid: crate::backends::jail::pid_of(wall.process()).unwrap_or_default(),
            enforcement: wall.enforcement().clone(),
            steps: wall.steps().to_vec(),
            notes: wall.notes().to_vec(),
            environment: wall.environment().to_vec(),
            exports: exports.iter().map(|(name, _)| name.clone()).collect(),
        };
        let process = wall.process().try_clone()?;
        let stream = wall.parts().0.as_fd().try_clone_to_owned()?;
        let lent: [BorrowedFd<'_>; 3] = [stream.as_fd(), process.as_fd(), self.owned.lock().as_fd()];
        let passed: Vec<BorrowedFd<'_>> = lent.into_iter().chain(exports.iter().map(|(_, fd)| fd.as_fd())).collect();
        letter::send(session, &Word::Given(Box::new(given)), &passed)
    }
}

impl Bounds {
    /// Why a jail of this kind is not made here.
    fn refusal(&self, want: &Want) -> Option<String> {
        let Want { spec, .. } = want;
        let mounts = spec.mounts.iter().map(|mount| mount.host.as_path());
        let git = spec.workspace.git_common.as_ref().map(SafePath::as_path);
        let mut places = mounts.chain(git).chain([spec.workspace.path.as_path()]);
        places.find_map(|place| {
            let shown = escape(&place.to_string_lossy());
            if self.hidden.iter().any(|hidden| place.starts_with(hidden)) {
                return Some(format!("`{shown}` is Stockade's own"));
            }
            let within = |root: &Path| place.starts_with(root);
            (!self.roots.iter().any(|root| within(root))).then(|| format!("`{shown}` is outside the directories that the daemon serves"))
        })
    }
}

fn refusal(error: &TemplateError) -> Word {
    let (step, hint) = match error {
        TemplateError::Backend(error) => (error.step(), error.hint()),
        TemplateError::State(_) => ("state".to_owned(), None),
        TemplateError::WrittenThrough(_) | TemplateError::Thread(_) => ("preparing a template".to_owned(), None),
    };
    Word::Refused { step, message: error.to_string(), hint }
}

#[cfg(test)]
mod tests {
    use stockade_core::limits::Limits;
    use stockade_core::spec::{MountMode, SandboxSpec, Workspace};

    use super::*;

    fn spec(place: &str) -> SandboxSpec {
        let place = SafePath::new(place).unwrap();
        SandboxSpec {
            workspace: Workspace { path: place.clone(), mode: MountMode::Overlay, git_common: None },
            mounts: Vec::new(),
            env: Vec::new(),
            cwd: place.clone(),
            home: place,
            exec_list: None,
            limits: Limits::default(),
            allow_degraded: std::collections::BTreeSet::new(),
            path_dirs: Vec::new(),
        }
    }

    #[test]
    fn places_outside_the_roots_and_our_own_are_refused() {
        let bounds = Bounds {
            state: "/home/a/.state".into(),
            hidden: vec!["/home/a/.state".into()],
            roots: vec!["/home/a".into(), "/srv/x".into()],
        };
        let refused = |place: &str| bounds.refusal(&Want { spec: spec(place), home: "/home/a".into(), toolchain_roots: Vec::new() });
        assert_eq!(refused("/home/a/work"), None);
        assert_eq!(refused("/srv/x"), None);
        for place in ["/home/ab", "/srv", "/etc", "/home/a/.state", "/home/a/.state/sandboxes"] {
            assert!(refused(place).is_some(), "{place}");
        }
    }
}
