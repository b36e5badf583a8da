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
use crate::commands::run::SIGNALS;
use crate::context::Environment;
use crate::failure::Failure;
use crate::printer::Printer;
use crate::usage::early_flags;

/// Variables besides those that programs inside have and those that say where our files are.
const OURS: [&str; 1] = ["NO_COLOR"];

/// Has the daemon do it; `None` where there is none, or it says that it is not for it.
pub(crate) fn ask(argv: &[OsString], environment: &Environment) -> Option<ExitCode> {
    if verb(argv)? != "run" {
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
    attend(&daemon, &signals).map(|ended| ended.unwrap_or_else(|Lost| lost(argv, environment)))
}

/// The verb, behind flags that say how to print. What is unclear is not for the daemon: whoever reads the whole line knows.
fn verb(argv: &[OsString]) -> Option<&str> {
    let mut words = argv.iter().skip(1);
    loop {
        match words.next()?.to_str()? {
            "--json" | "--quiet" | "-q" | "--verbose" | "-v" => {}
            "--color" => drop(words.next()?),
            word if word.starts_with("--color=") => {}
            word => return Some(word),
        }
    }
}

/// The daemon ended before it answered.
#[derive(Debug)]
struct Lost;

/// Passes signals on until there is an answer.
fn attend(daemon: &UnixStream, signals: &Signals) -> Option<Result<ExitCode, Lost>> {
    loop {
        let mut ready = [PollFd::new(daemon, PollFlags::IN), PollFd::from_borrowed_fd(signals.as_fd().as_fd(), PollFlags::IN)];
        if rustix::io::retry_on_intr(|| rustix::event::poll(&mut ready, None)).is_err() {
            return Some(Err(Lost));
        }
        while let Some(signal) = signals.next() {
            // One that cannot be passed on has no program any more.
            let _ = letter::send(daemon, &Signalled { signal }, &[]);
        }
        if ready.iter().take(1).all(|fd| fd.revents().is_empty()) {
            continue;
        }
        return match letter::receive::<Answer>(daemon) {
            Ok(Some((Answer::Done { code }, _))) => Some(Ok(ExitCode::from(code))),
            Ok(Some((Answer::Yourself { .. }, _))) => None,
            Ok(Some((Answer::Proved { .. }, _)) | None) | Err(_) => Some(Err(Lost)),
        };
    }
}

/// The daemon is gone, and what it did for us with it: whether the program ran is in the receipts, not here.
fn lost(argv: &[OsString], environment: &Environment) -> ExitCode {
    let failure = Failure::new("daemon", "the daemon ended before the program did; everything in the sandbox was killed");
    failure.with_hint("stockade receipts list").report(&Printer::new(early_flags(argv), environment))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verb_is_found_behind_flags_that_say_how_to_print() {
        let of = |line: &str| {
            let argv: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            verb(&argv).map(str::to_owned)
        };
        for line in
            ["stockade run -- true", "stockade --json run true", "stockade -q --color never -v run x", "stockade --color=always run"]
        {
            assert_eq!(of(line).as_deref(), Some("run"), "{line}");
        }
        // `-qv` and the like are read by who reads the whole line.
        for line in ["stockade", "stockade --json", "stockade --color run", "stockade -qv run", "stockade sandbox run", "stockade -- run"] {
            assert_ne!(of(line).as_deref(), Some("run"), "{line}");
        }
    }
}
