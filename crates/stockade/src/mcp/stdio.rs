//! One client on standard input and output. Standard output belongs to the protocol alone; everything else goes to standard error.

use std::process::ExitCode;
use std::sync::Arc;

use rmcp::service::ServerInitializeError;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::{ServerHandler, ServiceExt as _};

use super::server::Server;
use super::{Ending, Session, catch_signals, code_of, input, watch_signals};
use crate::Context;
use crate::cli::{McpArgs, OutputFlags};
use crate::failure::Failure;

/// Bytes of one message at most; what is longer is dropped by the transport.
pub(super) const MOST_MESSAGE: usize = 16 << 20;

/// Serves one client until it goes.
pub(crate) fn run(args: &McpArgs, flags: OutputFlags, context: &Context) -> Result<ExitCode, Failure> {
    let session = Session::open(args.workspace.as_deref(), args.name.as_ref(), flags, None, context)?;
    if rustix::termios::isatty(std::io::stdin()) {
        context.printer.note("this serves an MCP client on standard input; `stockade mcp --help` says how to add it to one");
    }
    let signals = catch_signals()?;
    session.confine()?;
    session.speak()?;
    // Its client hears from each call that its launcher is gone, and is who ends it.
    let served = serve(&session, watch_signals(signals));
    session.close();
    let told = session.finish();
    served.and_then(|code| told.map(|()| code))
}

fn serve(session: &Arc<Session>, mut end: Ending) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new("server", format!("starting the runtime: {error}")))?;
    let code = runtime.block_on(async {
        let closing = Arc::clone(session);
        tokio::select! {
            served = converse(Server::new(Arc::clone(session)), move || closing.close()) => served.map(|()| ExitCode::SUCCESS),
            _ = end.changed() => {
                session.close();
                code_of(*end.borrow())
            }
        }
    });
    runtime.block_on(session.silence());
    // A thread may still wait for input that nobody sends.
    runtime.shutdown_background();
    code
}

/// Speaks with the client until it goes; `closing` is called as soon as its input ends.
pub(super) async fn converse(server: impl ServerHandler, closing: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    let (reader, writer) = rmcp::transport::stdio_pipes();
    let reader = input::Watched::new(reader, closing);
    let transport = AsyncRwTransport::new_server(reader, writer).with_max_line_length(MOST_MESSAGE);
    match server.serve(transport).await {
        Ok(service) => service.waiting().await.map(drop).map_err(|error| Failure::new("server", error.to_string())),
        // A client that says nothing and goes is no failure.
        Err(ServerInitializeError::ConnectionClosed(_)) => Ok(()),
        Err(error) => Err(Failure::new("server", error.to_string())),
    }
}
