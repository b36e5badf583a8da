//! `stockade broker`: holds secrets for the sandboxes of one command, and ends with it.
//!
//! Whoever starts it gives it its own connection as standard input, and as standard output either a connection for egress or a listening socket, at
//! which only that process may call. It makes itself undumpable and keeps its memory from swap before it looks at anything, and ends when the
//! owner's connection does.

use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::ExitCode;
use std::sync::Arc;

use rustix::fd::BorrowedFd;
use stockade_broker::broker::Broker;
use stockade_broker::server::Made;
use stockade_broker::sources::Surroundings;
use stockade_broker::store::Store;
use stockade_broker::{gone, hygiene, peer, server};
use stockade_store::settings::Settings;

use crate::Context;
use crate::failure::Failure;

const STEP: &str = "broker";

/// Serves until the owner goes.
pub(crate) fn run(context: &Context) -> Result<ExitCode, Failure> {
    hygiene::keep_to_ourselves().map_err(|errno| Failure::new(STEP, format!("this process cannot be made undumpable: {errno}")))?;
    // A session of its own: keys that are pressed for a program inside are not meant for it.
    let _ = rustix::process::setsid();
    let owner = connection(STEP, "standard input", rustix::stdio::stdin())?;
    // Where the limit does not let it, what is there already is kept from swap at least.
    hygiene::keep_in_memory();
    let egress = connection(STEP, "standard output", rustix::stdio::stdout())?;
    let places = context.places()?;
    // A project has no say in secrets.
    let settings = Settings::load(places, None).map_err(|error| Failure::from_error("settings", &error))?;
    let around = Surroundings {
        store: Store::beneath(&places.state),
        path: context.environment.variable("PATH").unwrap_or_default(),
        home: places.home.clone(),
    };
    let broker = Arc::new(Broker::new(settings.secrets().value, around));
    let for_egress = Arc::clone(&broker);
    let listens = rustix::net::sockopt::socket_acceptconn(&egress) == Ok(true);
    let callers = listens.then(|| peer::Only::who_made(&owner)).transpose().map_err(|error| Failure::from_error(STEP, &error))?;
    // Ends with the process; what egress does wrong ends only its own connection.
    let serve_egress = move || match callers {
        Some(callers) => drop(server::listen(&for_egress, UnixListener::from(OwnedFd::from(egress)), Some(callers))),
        None => drop(server::serve(&for_egress, egress, Made::ForEgress)),
    };
    std::thread::Builder::new().name("egress".to_owned()).spawn(serve_egress).map_err(|error| Failure::from_error(STEP, &error))?;
    let watched = owner.try_clone().and_then(gone::watch);
    watched.map_err(|error| Failure::from_error(STEP, &error))?;
    server::serve(&broker, owner, Made::ForOwner).map_err(|error| Failure::from_error(STEP, &error))?;
    Ok(ExitCode::SUCCESS)
}

/// A standard stream that is a connection.
pub(super) fn connection(step: &str, what: &str, descriptor: BorrowedFd<'_>) -> Result<UnixStream, Failure> {
    let refused = || Failure::new(step, format!("{what} is not a connection")).with_hint("stockade starts this command itself");
    if rustix::net::sockopt::socket_type(descriptor).ok() != Some(rustix::net::SocketType::STREAM) {
        return Err(refused());
    }
    descriptor.try_clone_to_owned().map(UnixStream::from).map_err(|_| refused())
}
