//! `serve --listen`: the MCP server and REST behind the door for HTTP.
//!
//! Who may come in and how much at once is `stockade-http`'s; what they may do is the engine's. This file joins the two and owns the end: what
//! runs is killed and answered, receipts are written, overlays are kept. Before the first connection is taken the process confines itself.

pub(crate) mod journal;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;

use serde_json::json;
use stockade_http::{Door, HttpError, Identity, Token, TokenFile};

use crate::Context;
use crate::cli::{OutputFlags, ServeArgs};
use crate::daemon::Beside;
use crate::failure::Failure;
use crate::mcp::{Ending, Server, Session, catch_signals, code_of};
use crate::rest::Service;
use journal::Journal;

/// Where the token is kept, beneath the state.
const DIRECTORY: &str = "http";
/// Threads of the server itself; each call has one of its own besides.
const THREADS: usize = 2;

/// Serves until a signal comes.
pub(crate) fn serve(address: SocketAddr, args: &ServeArgs, flags: OutputFlags, context: &Context) -> Result<ExitCode, Failure> {
    let journal = args.log.map(|form| Arc::new(Journal::new(form, context.printer.again())));
    let session = Session::open(args.workspace.as_deref(), args.name.as_ref(), flags, journal, context)?;
    let identity = match (&args.tls_cert, &args.tls_key) {
        (Some(certificate), Some(key)) => Some(Identity::load(certificate, key).map_err(|error| failure(&error))?),
        (None, _) | (_, None) => None,
    };
    if args.new_token {
        show(&replace_token(context)?, context);
    }
    let directory = context.places()?.state.join(DIRECTORY);
    let (token, fresh) = TokenFile::open(&directory).map_err(|error| failure(&error))?;
    let door = Door::open(address, identity, token).map_err(|error| {
        if fresh.is_some() {
            // Nobody saw it, and nobody ever would.
            TokenFile::forget(&directory);
        }
        failure(&error)
    })?;
    if let Some(fresh) = &fresh {
        show(fresh, context);
    }
    // It ends with this process, however that ends.
    let beside = Beside::start(args, context)?;
    let signals = catch_signals()?;
    // Everything is open by now: the listener, the certificate, the token.
    session.confine()?;
    session.speak()?;
    context.printer.note(format!("REST at {}/v1", door.url()));
    context.printer.note(format!("MCP at {}/mcp", door.url()));
    let served = session.watch(signals).and_then(|end| attend(door, &session, end));
    session.close();
    let told = session.finish();
    drop(beside);
    served.and_then(|code| told.map(|()| code))
}

/// Makes a token and prints it; that before opens nothing any more.
pub(crate) fn new_token(context: &Context) -> Result<(), Failure> {
    let token = replace_token(context)?;
    context.printer.note("the token before opens nothing any more; this one is shown this once");
    let text = token.reveal();
    if context.printer.is_json() { context.printer.json(&json!({ "token": text })) } else { context.printer.line(text) }
}

fn replace_token(context: &Context) -> Result<Token, Failure> {
    let directory = context.places()?.state.join(DIRECTORY);
    TokenFile::replace(&directory).map_err(|error| failure(&error))
}

fn attend(door: Door, session: &Arc<Session>, mut end: Ending) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(THREADS).enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new("server", format!("starting the runtime: {error}")))?;
    let ended = end.clone();
    let making = Arc::clone(session);
    let door = door.with_rest(Arc::new(Service::new(Arc::clone(session))));
    let door = match session.journal() {
        Some(journal) => door.with_journal(journal),
        None => door,
    };
    let ending = async {
        // Who watches does so as long as the process lives. From here on nobody is let in, so nobody is told that it is well either.
        let _ = end.changed().await;
    };
    let last_words = async {
        session.close();
        session.silence().await;
    };
    let served = runtime.block_on(door.serve(move || Server::new(Arc::clone(&making)), session.metrics(), ending, last_words));
    runtime.shutdown_background();
    served.map_err(|error| failure(&error))?;
    let cause = *ended.borrow();
    code_of(cause)
}

/// Once, and whatever `--quiet` leaves out: nobody can look it up later.
fn show(token: &Token, context: &Context) {
    context.printer.banner(format!("the token of this server, shown this once: {}", token.reveal()));
}

fn failure(error: &HttpError) -> Failure {
    let failure = Failure::from_error("serve", error);
    error.hint().map_or_else(|| failure.clone(), |hint| failure.clone().with_hint(hint))
}
