//! `stockade serve`: how the daemon starts, takes visitors, and ends.

use std::collections::HashMap;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use stockade_core::escape::escape;
use stockade_sandbox::signals::{Sender, Signals};
use stockade_sandbox::state::KEEP;
use stockade_sandbox::sweep;
use stockade_store::places::Places;
use stockade_store::private_dir::ensure_private_dir;

use super::ear::Ear;
use super::gateway::Stopping;
use super::{Standing, confine, gateway, launcher, lock, socket};
use crate::Context;
use crate::cli::ServeArgs;
use crate::daemon::launcher::Scope;
use crate::failure::Failure;
use crate::outbound::{Outbound, Telling};

const STEP: &str = "daemon";
/// Visitors at once; more wait to be taken.
const MOST: usize = 256;
/// Signals that end it.
const ENDING: [i32; 3] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP];
/// How long calls may go on when it is told to end; they are killed then.
const DRAIN: Duration = Duration::from_secs(10);
/// How long killed ones may take to write down what came of them.
const LAST_WORDS: Duration = Duration::from_secs(10);
/// How often it is looked whether all are gone.
const GLANCE: Duration = Duration::from_millis(20);

/// Serves until a signal ends it.
pub(crate) fn serve(args: &ServeArgs, context: &Context) -> Result<ExitCode, Failure> {
    let places = context.places()?;
    for directory in [&places.state, &places.runtime] {
        ensure_private_dir(directory).map_err(|error| Failure::from_error(STEP, &error))?;
    }
    let _lock = lock::take(&places.runtime)?;
    sweep::sweep(&places.state, &places.runtime, KEEP, sweep::Extent::Everything).map_err(|error| Failure::from_error("state", &error))?;
    let roots = roots(args, places, context)?;
    // Blocked before any other thread is there, so that none of them is ended by one.
    let signals = Signals::catch(&ENDING).map_err(|errno| Failure::new("signals", errno.to_string()))?;
    // What has no template is given back to the client, which raises its own walls.
    let scope = Scope { roots, walls: Vec::new(), hint: "stockade serve --root DIR" };
    let (mut child, launcher) = launcher::start(places, &scope)?;
    let outbound = outbound(args, context)?;
    let ear = Ear::open(context)?;
    let listener = listen(&places.runtime)?;
    confine::confine(places)?;
    if let Some(outbound) = &outbound {
        outbound.speak(&Arc::default(), context)?;
    }
    let listening = ear.map(|ear| ear.listen(context)).transpose()?;
    let visitors = Arc::new(Visitors::default());
    let standing = Arc::new(Standing::new(launcher, None).telling(outbound.as_ref().and_then(Outbound::ended_calls)));
    let shown = scope.roots.iter().map(|root| escape(&root.to_string_lossy())).collect::<Vec<_>>().join(", ");
    context.printer.note(format!("serving runs in {shown}; `stockade run` finds it by itself"));
    let owner = args.attended.then(rustix::stdio::stdin);
    take_visitors(&Doors { listener: &listener, signals: &signals, owner }, places, &standing, &visitors, &mut child)?;
    // Whoever comes from here on does it themselves.
    let _ = std::fs::remove_file(socket(&places.runtime));
    drop(listener);
    visitors.drain(&signals);
    drop(listening);
    if let Some(outbound) = &outbound {
        outbound.finish();
    }
    drop(standing);
    // Its connection is gone, and it follows.
    let _ = child.wait();
    Ok(ExitCode::SUCCESS)
}

/// Whom it tells. Beside a server, which was started first and tells what waits for a person, what cannot be had is a warning: a secret that
/// only that server's environment had is gone by now.
fn outbound(args: &ServeArgs, context: &Context) -> Result<Option<Outbound>, Failure> {
    let telling = if args.attended { Telling::OwnCalls } else { Telling::Everything };
    Outbound::prepare(telling, context).or_else(|failure| {
        if !args.attended {
            return Err(failure);
        }
        context.printer.warning(format!("runs of the daemon are told to nobody outside: {}", failure.message));
        Ok(None)
    })
}

/// Where workspaces may be: as the flags say, else the home directory and where it was started.
fn roots(args: &ServeArgs, places: &Places, context: &Context) -> Result<Vec<PathBuf>, Failure> {
    let usual = [places.home.clone(), context.environment.current_dir()?.to_owned()];
    let named = if args.roots.is_empty() { usual.to_vec() } else { args.roots.clone() };
    let mut roots = Vec::new();
    for root in named {
        let real = std::fs::canonicalize(&root);
        let real = real.map_err(|error| Failure::new("arguments", format!("`{}`: {error}", escape(&root.to_string_lossy()))))?;
        if !roots.iter().any(|known| real.starts_with(known)) {
            roots.push(real);
        }
    }
    Ok(roots)
}

/// The socket that clients find, for this person alone.
fn listen(runtime: &Path) -> Result<UnixListener, Failure> {
    let path = socket(runtime);
    // The lock is ours, so whoever made one that is there is gone.
    let _ = std::fs::remove_file(&path);
    let failed = |error: std::io::Error| Failure::new(STEP, format!("listening at `{}`: {error}", escape(&path.to_string_lossy())));
    let listener = UnixListener::bind(&path).map_err(failed)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(listener)
}

/// What the daemon waits for.
struct Doors<'a> {
    listener: &'a UnixListener,
    signals: &'a Signals,
    /// Whose end is the daemon's.
    owner: Option<BorrowedFd<'a>>,
}

impl Doors<'_> {
    /// Waits until somebody comes; whether it is over.
    fn wait(&self) -> Result<Over, Failure> {
        let fixed = [self.listener.as_fd(), self.signals.as_fd().as_fd()];
        let mut ready: Vec<PollFd<'_>> =
            fixed.into_iter().chain(self.owner).map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let second = Timespec { tv_sec: 1, tv_nsec: 0 };
        let waited = rustix::io::retry_on_intr(|| rustix::event::poll(&mut ready, Some(&second)));
        waited.map_err(|errno| Failure::new(STEP, errno.to_string()))?;
        // Nobody ever writes there, so whatever there is to read is the end.
        let left = ready.get(fixed.len()).is_some_and(|owner| !owner.revents().is_empty());
        Ok(if left || self.signals.next().is_some() { Over::Yes } else { Over::No })
    }
}

/// Whether the daemon was told to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Over {
    Yes,
    No,
}

fn take_visitors(
    doors: &Doors<'_>,
    places: &Places,
    standing: &Arc<Standing>,
    visitors: &Arc<Visitors>,
    child: &mut Child,
) -> Result<(), Failure> {
    loop {
        if doors.wait()? == Over::Yes {
            return Ok(());
        }
        if !matches!(child.try_wait(), Ok(None)) {
            return Err(Failure::new(STEP, "the launcher ended"));
        }
        if visitors.count() >= MOST {
            std::thread::sleep(GLANCE);
            continue;
        }
        let Ok((stream, _)) = doors.listener.accept() else { continue };
        // Another person cannot even reach the socket; this is the second door.
        let same = rustix::net::sockopt::socket_peercred(&stream).is_ok_and(|peer| peer.uid == rustix::process::geteuid());
        if !same || stream.set_nonblocking(false).is_err() {
            continue;
        }
        let Ok((stop, theirs)) = Signals::sent() else { continue };
        let stop = Arc::new(stop);
        let entered = visitors.enter(&stop);
        let (places, standing, cut) = (places.clone(), Arc::clone(standing), Arc::clone(&visitors.cut));
        let attended = std::thread::Builder::new().name("stockade-call".into()).spawn(move || {
            // A visitor that cannot be answered is gone.
            let _ = gateway::attend(&stream, &places, &standing, &Stopping { stop: &stop, signals: &theirs, cut: &cut });
            drop(entered);
        });
        // Without a thread the stream is closed, and they do it themselves.
        drop(attended);
    }
}

/// Who is here.
#[derive(Debug, Default)]
struct Visitors {
    here: Mutex<(u64, HashMap<u64, Arc<Sender>>)>,
    /// Whether those who are still here are cut short.
    cut: Arc<AtomicBool>,
}

/// One of them; gone with the value.
struct Entered {
    id: u64,
    visitors: Arc<Visitors>,
}

impl Visitors {
    fn enter(self: &Arc<Self>, stop: &Arc<Sender>) -> Entered {
        let mut here = self.here();
        here.0 += 1;
        let id = here.0;
        here.1.insert(id, Arc::clone(stop));
        Entered { id, visitors: Arc::clone(self) }
    }

    fn count(&self) -> usize {
        self.here().1.len()
    }

    /// Waits until all are served; kills what takes too long, or when a second signal comes.
    fn drain(&self, signals: &Signals) {
        let until = |end: Instant| {
            while self.count() > 0 && Instant::now() < end && signals.next().is_none() {
                std::thread::sleep(GLANCE);
            }
        };
        until(Instant::now() + DRAIN);
        self.cut.store(true, Ordering::SeqCst);
        self.here().1.values().for_each(|stop| stop.send(libc::SIGKILL));
        until(Instant::now() + LAST_WORDS);
    }

    fn here(&self) -> MutexGuard<'_, (u64, HashMap<u64, Arc<Sender>>)> {
        self.here.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.visitors.here().1.remove(&self.id);
    }
}
