//! The thin client: gives a `run` to the daemon where there is one, and waits for the exit code. Reads no settings, decides nothing.

use std::ffi::OsString;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use rustix::event::{PollFd, PollFlags};
use stockade_sandbox::environment::LOOKED_AT;
use stockade_sandbox::letter;
use stockade_sandbox::signals::Signals;
use stockade_store::places::{LOOKED_AT as OF_PLACES, Places};

use super::proof::Tried;
use super::protocol::{Answer, Ask, Signalled, VERSION, What};
use super::socket;
use crate::cli::{ColorWish, OutputFlags};
use crate::commands::run::SIGNALS;
use crate::context::{Context, Environment};
use crate::failure::Failure;

/// Variables besides those that programs inside have and those that say where our files are.
const OURS: [&str; 1] = ["NO_COLOR"];

/// Has the daemon do it; `None` where there is none, or it says that it is not for it.
pub(crate) fn ask(argv: &[OsString], environment: &Environment) -> Option<ExitCode> {
    if argv.get(1).is_none_or(|verb| verb != "run") {
        return None;
    }
    let streams = [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()];
    // Somebody sits there: they are asked here, and have a terminal of their own inside.
    if streams.iter().all(rustix::termios::isatty) {
        return None;
    }
    let places = Places::from_lookup(|name| environment.variable(name)).ok()?;
    let daemon = connect(&places)?;
    let names = LOOKED_AT.iter().flat_map(|names| names.iter()).chain(&OF_PLACES).chain(&OURS);
    let variables = names.filter_map(|name| Some((OsString::from(name), environment.variable(name)?))).collect();
    let directory = environment.current_dir().ok()?.to_owned();
    // From here on: what arrives meanwhile is passed on, or waits for whoever does it instead.
    let signals = Signals::catch(&SIGNALS).ok()?;
    let what = What::Run { words: argv.to_vec(), directory, variables };
    letter::send(&daemon, &Ask { version: VERSION.to_owned(), what }, &streams).ok()?;
    attend(&daemon, &signals)
}

/// Passes signals on until there is an answer.
fn attend(daemon: &UnixStream, signals: &Signals) -> Option<ExitCode> {
    loop {
        let mut ready = [PollFd::new(daemon, PollFlags::IN), PollFd::from_borrowed_fd(signals.as_fd().as_fd(), PollFlags::IN)];
        if rustix::io::retry_on_intr(|| rustix::event::poll(&mut ready, None)).is_err() {
            return Some(lost());
        }
        while let Some(signal) = signals.next() {
            // One that cannot be passed on has no program any more.
            let _ = letter::send(daemon, &Signalled { signal }, &[]);
        }
        if ready.iter().take(1).all(|fd| fd.revents().is_empty()) {
            continue;
        }
        return match letter::receive::<Answer>(daemon) {
            Ok(Some((Answer::Done { code }, _))) => Some(ExitCode::from(code)),
            Ok(Some((Answer::Yourself { .. }, _))) => None,
            Ok(Some((Answer::Proved { .. }, _)) | None) | Err(_) => Some(lost()),
        };
    }
}

/// The daemon is gone, and what it did for us with it: whether the program ran is in the receipts, not here.
fn lost() -> ExitCode {
    let flags = OutputFlags { json: false, quiet: false, verbose: false, color: ColorWish::Auto };
    let context = Context::new(flags, Environment::capture());
    let failure = Failure::new("daemon", "the daemon ended before the program did; everything in the sandbox was killed");
    failure.with_hint("stockade receipts list").report(&context.printer)
}

/// What the daemon may not do, as it finds when it tries; `None` where there is none.
pub(crate) fn prove(places: &Places) -> Option<Result<Vec<Tried>, Failure>> {
    let daemon = connect(places)?;
    let broken = |why: String| Failure::new("daemon", why);
    let asked = letter::send(&daemon, &Ask { version: VERSION.to_owned(), what: What::Prove }, &[]);
    let answer = asked.and_then(|()| letter::receive::<Answer>(&daemon)).map_err(|error| broken(error.to_string()));
    Some(answer.and_then(|answer| match answer {
        Some((Answer::Proved { tried }, _)) => Ok(tried),
        Some((Answer::Yourself { why }, _)) => Err(broken(why)),
        Some((Answer::Done { .. }, _)) | None => Err(broken("the daemon does not answer".to_owned())),
    }))
}

/// Whether a daemon serves these places.
pub(crate) fn is_there(places: &Places) -> bool {
    connect(places).is_some()
}

/// A connection to a daemon of the same person.
fn connect(places: &Places) -> Option<UnixStream> {
    let daemon = UnixStream::connect(socket(&places.runtime)).ok()?;
    let peer = rustix::net::sockopt::socket_peercred(&daemon).ok()?;
    (peer.uid == rustix::process::geteuid()).then_some(daemon)
}
