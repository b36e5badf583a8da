//! The launcher's side: one thread per jail that was given, until the gateway lets go of it. Ends with the gateway's connection.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use stockade_core::id::SandboxId;
use stockade_core::spec::BackendKind;

use super::bounds::Bounds;
use super::{Ask, Given, Hold, Looked, Order, Want, Way, Wish, Word};
use crate::backends::jail::{self, Jail};
use crate::backends::local::Local;
use crate::backends::{Backend, BackendError, Running, Start};
use crate::connection::Passing;
use crate::guard::Guard;
use crate::keeper;
use crate::letter;
use crate::pool::Pool;
use crate::state::{self, Owned, Sandboxes};
use crate::template::{Keep, Taken, TemplateError};
use crate::wayout::{self, Shown, WayOut};

/// How often the pool is looked through.
const REST: Duration = Duration::from_secs(30);
/// How long a session may take to say what it wants.
const PATIENCE: Duration = Duration::from_secs(10);

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
    let Some((wish, descriptors)) = letter::receive::<Wish<Box<Want>, Box<Order>>>(session)? else { return Ok(()) };
    let standing = match wish {
        Wish::Ready(want) => Standing::take(pool, &want, bounds),
        Wish::Again(kind) => Standing::take_again(pool, &kind),
        Wish::Start(order) => Standing::start(*order, descriptors, bounds),
        Wish::Reach(id) => {
            return match keeper::dial(&bounds.runtime, &id) {
                Ok(connection) => letter::send(session, &Word::Reached, &[connection.as_fd()]),
                Err(error) => letter::send(session, &refused(error.to_string(), bounds), &[]),
            };
        }
    };
    let mut standing = match standing {
        Ok(standing) => standing,
        Err(refused) => return letter::send(session, &refused, &[]),
    };
    session.set_read_timeout(None)?;
    standing.give(session)?;
    while let Some((ask, _)) = letter::receive::<Ask>(session)? {
        match ask {
            Ask::Look => {}
            Ask::Kill => standing.wall.parts().1.kill(),
            Ask::Silence => standing.wall.silence(),
        }
        let hit = standing.wall.parts().1.tick();
        letter::send(session, &Looked { hit }, &[])?;
    }
    if let Some((_, template)) = &standing.made {
        template.give_back();
    }
    // The directory is the gateway's: what is in it was its own, or was taken over with the lock.
    standing.wall.destroy();
    Ok(())
}

/// A jail, while somebody else uses it.
struct Standing {
    wall: Box<dyn Running>,
    id: SandboxId,
    hold: Hold,
    /// Its directory, where that was made here.
    made: Option<(Owned, Keep)>,
}

impl Standing {
    /// One from a template.
    fn take(pool: &Pool, want: &Want, bounds: &Bounds) -> Result<Self, Word> {
        if let Some(message) = bounds.refusal(&want.spec) {
            return Err(refused(message, bounds));
        }
        Self::taken(pool.take(want))
    }

    /// One more like another. What is asked for was within the bounds when that was taken.
    fn take_again(pool: &Pool, kind: &[u8; 32]) -> Result<Self, Word> {
        pool.take_standing(kind).map_or(Err(Word::NoneStands), Self::taken)
    }

    fn taken(taken: Result<Taken, TemplateError>) -> Result<Self, Word> {
        let ended =
            || BackendError::Step { step: "launcher".into(), detail: "the jail ended before it was used".into(), fix: String::new() };
        let taken = taken.and_then(|taken| taken.part().ok_or_else(|| ended().into()));
        let (sandbox, owned, template) = taken.map_err(|error| of_template(&error))?;
        Ok(Self { wall: sandbox.into_running(), id: owned.id.clone(), hold: Hold::Process, made: Some((owned, template)) })
    }

    /// One from nothing.
    fn start(order: Order, descriptors: Vec<OwnedFd>, bounds: &Bounds) -> Result<Self, Word> {
        let Order { wall, id, spec, home, toolchain_roots, way_out } = order;
        let directory = Sandboxes::open(&bounds.state).map_err(|error| of_backend(&step("state", &error)))?.directory_of(&id);
        if !directory.is_dir() {
            return Err(refused(format!("sandbox {id} has no directory"), bounds));
        }
        if let Some(message) = bounds.refusal_of_wall(wall).or_else(|| bounds.refusal(&spec)) {
            return Err(refused(message, bounds));
        }
        let way_out = match way_out.map(|way| way.joined(descriptors)) {
            Some(None) => return Err(refused("a way out came without its channel".to_owned(), bounds)),
            Some(Some(way_out)) => Some(way_out),
            None => None,
        };
        let mut shown = way_out.iter().flat_map(|way_out| {
            let authorities = way_out.authorities.iter().chain(&way_out.java_authorities);
            authorities.chain(way_out.shown.iter().map(|shown| &shown.file))
        });
        if let Some(file) = shown.find(|file| !wayout::is_beneath(file, &directory)) {
            return Err(refused(
                format!("`{}` is no file of this sandbox", stockade_core::escape::escape(&file.to_string_lossy())),
                bounds,
            ));
        }
        let guard = if wall == BackendKind::Local { Ok(Guard::default()) } else { Guard::take(&spec) };
        let guard = guard.map_err(|error| of_backend(&step("looking for protected paths", &error)))?;
        let programs = state::programs(&bounds.state);
        let start = Start {
            spec: &spec,
            id: &id,
            directory: &directory,
            home: home.as_ref(),
            toolchain_roots: &toolchain_roots,
            hidden: &bounds.hidden,
            guard: &guard,
            programs: Some(&programs),
            way_out: way_out.as_ref(),
            meanwhile: None,
        };
        let standing = match wall {
            BackendKind::Local => Local { passing: Passing::Possible }.start(&start),
            BackendKind::Jail => Jail::default().start(&start),
            other => return Err(refused(format!("the wall `{other}` is not raised by a launcher"), bounds)),
        };
        let standing = standing.map_err(|error| of_backend(&error))?;
        // Only a jail without namespaces has variables of its own.
        let whole = wall == BackendKind::Jail && standing.environment().is_empty();
        Ok(Self { wall: standing, id, hold: if whole { Hold::Process } else { Hold::Wall }, made: None })
    }

    fn give(&mut self, session: &UnixStream) -> std::io::Result<()> {
        let (exports, counters) = (self.wall.take_exports(), self.wall.counters());
        let given = Given {
            id: self.id.clone(),
            pid: jail::pid_of(self.wall.process()).unwrap_or_default(),
            enforcement: self.wall.enforcement().clone(),
            steps: self.wall.steps().to_vec(),
            notes: self.wall.notes().to_vec(),
            environment: self.wall.environment().to_vec(),
            exports: exports.iter().map(|(name, _)| name.clone()).collect(),
            counters: counters.len(),
            hold: self.hold,
        };
        let process = self.wall.process().try_clone()?;
        let stream = self.wall.parts().0.as_fd().try_clone_to_owned()?;
        let lock = self.made.iter().map(|(owned, _)| owned.lock().as_fd());
        let lent = [stream.as_fd(), process.as_fd()].into_iter().chain(lock);
        let lent = lent.chain(exports.iter().map(|(_, fd)| fd.as_fd()));
        let passed: Vec<BorrowedFd<'_>> = lent.chain(counters.iter().map(AsFd::as_fd)).collect();
        letter::send(session, &Word::Given(Box::new(given)), &passed)
    }
}

impl Way {
    /// With its descriptors, if they are those of a way out.
    fn joined(self, descriptors: Vec<OwnedFd>) -> Option<WayOut> {
        let Self { proxy_port, ports, authorities, java_authorities, shown, agent } = self;
        let mut descriptors = descriptors.into_iter();
        let (channel, alarm) = (descriptors.next()?, descriptors.next());
        let (authorities, java_authorities) = (authorities.map(PathBuf::from), java_authorities.map(PathBuf::from));
        let shown = shown.into_iter().map(|(file, place, use_)| Shown { file: file.into(), place: place.into(), use_ }).collect();
        let agent = agent.map(PathBuf::from);
        descriptors.next().is_none().then_some(WayOut { channel, proxy_port, ports, authorities, java_authorities, shown, agent, alarm })
    }
}

fn refused(message: String, bounds: &Bounds) -> Word {
    Word::Refused { step: "launcher".into(), message, hint: (!bounds.hint.is_empty()).then(|| bounds.hint.clone()) }
}

fn of_backend(error: &BackendError) -> Word {
    Word::Refused { step: error.step(), message: error.to_string(), hint: error.hint() }
}

fn step(step: &str, error: &dyn std::error::Error) -> BackendError {
    BackendError::Step { step: step.into(), detail: error.to_string(), fix: String::new() }
}

fn of_template(error: &TemplateError) -> Word {
    let (step, hint) = match error {
        TemplateError::Backend(error) => (error.step(), error.hint()),
        TemplateError::State(_) => ("state".to_owned(), None),
        TemplateError::WrittenThrough(_) | TemplateError::Thread(_) => ("preparing a template".to_owned(), None),
    };
    Word::Refused { step, message: error.to_string(), hint }
}
