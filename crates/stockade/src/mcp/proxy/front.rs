//! The front: one client on standard input and output, and the server behind it.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ErrorData, Implementation, ListToolsResult, PaginatedRequestParams,
    ProgressNotificationParam, ServerCapabilities, ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::transport::Transport;
use rmcp::{RoleClient, RoleServer, ServerHandler};
use stockade_core::escape::escape;
use stockade_sandbox::signals::Sender;

use super::super::stdio::converse;
use super::super::{Ending, answer, code_of};
use super::call::{self, Order};
use super::pipes::Ends;
use super::upstream::{self, Upstream};
use super::{Session, listing, noise};
use crate::failure::Failure;

/// How long a server whose input was closed may take to end by itself.
const GRACE: Duration = Duration::from_millis(500);
/// How long answers may take to reach the client when the server is gone, and its last words the reader.
const LINGER: Duration = Duration::from_millis(500);
/// How often a client that wants to know is told that a call still runs.
const PROGRESS: Duration = Duration::from_secs(1);

/// Serves the client until it or the server goes. `connect` gives what leads to the server, and is called inside the runtime.
pub(super) fn serve<T: Transport<RoleClient> + 'static>(
    session: &Arc<Session>,
    connect: impl FnOnce() -> Result<T, Failure>,
    end: Ending,
) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new("server", format!("starting the runtime: {error}")))?;
    let served = runtime.block_on(async { attend(session, connect()?, end).await });
    // With the runtime goes what leads to the server: a program sees the end of its input.
    runtime.shutdown_background();
    served
}

/// The same where the server is a program. `is_over` breaks when its run has ended; `stop` ends it.
pub(super) fn serve_program(
    session: &Arc<Session>,
    ours: Ends,
    stop: &Sender,
    is_over: &mpsc::Receiver<()>,
    end: Ending,
) -> Result<ExitCode, Failure> {
    let Ends { input, output, noise } = ours;
    let (printer, server) = (session.context.printer.again(), session.server.to_string());
    let is_shown = noise::show(noise, server, printer);
    let served = serve(session, || upstream::through_pipes(input, output), end);
    if is_over.recv_timeout(GRACE) == Err(mpsc::RecvTimeoutError::Timeout) {
        stop.send(libc::SIGKILL);
    }
    // What it said last is worth reading before we say what came of it.
    let _ = is_shown.recv_timeout(LINGER);
    served
}

async fn attend(session: &Arc<Session>, transport: impl Transport<RoleClient> + 'static, mut end: Ending) -> Result<ExitCode, Failure> {
    let (upstream, gone) = tokio::select! {
        opened = Upstream::open(transport, &session.source, session.patience) => opened?,
        _ = end.changed() => return code_of(*end.borrow()),
    };
    let mut gone = std::pin::pin!(async {
        gone.await;
        session.close();
        session.silence().await;
        tokio::time::sleep(LINGER).await;
    });
    let (front, closing) = (Front { session: Arc::clone(session), upstream: Arc::new(upstream) }, Arc::clone(session));
    let served = tokio::select! {
        served = converse(front, move || closing.close()) => served.map(|()| ExitCode::SUCCESS),
        _ = end.changed() => code_of(*end.borrow()),
        () = &mut gone => Err(Failure::new("server", "the MCP server has ended")),
    };
    // While there is still a way to the server: calls are withdrawn, and do not fail.
    session.close();
    session.silence().await;
    served
}

/// The front as the SDK sees it.
struct Front {
    session: Arc<Session>,
    upstream: Arc<Upstream>,
}

impl Front {
    /// Makes a call on a thread of its own, and waits.
    async fn perform(&self, order: Order, context: &RequestContext<RoleServer>) -> Result<CallToolResult, Failure> {
        let place = self.session.enter()?;
        let client = context.client_info();
        let asker = self.session.asker(client.as_ref().map(|client| client.name.as_str()));
        let (session, upstream, withdrawn) = (Arc::clone(&self.session), Arc::clone(&self.upstream), context.ct.clone());
        let mut calling = tokio::task::spawn_blocking(move || {
            let result = call::perform(order, &asker, &session, &upstream, async move { withdrawn.cancelled().await });
            drop(place);
            result
        });
        let token = context.meta.get_progress_token();
        let mut ticks = tokio::time::interval(PROGRESS);
        let mut told = 0.0;
        loop {
            tokio::select! {
                called = &mut calling => {
                    return called.unwrap_or_else(|error| Err(Failure::new("server", error.to_string())));
                }
                _ = ticks.tick(), if token.is_some() => {
                    let Some(token) = token.clone() else { continue };
                    told += 1.0;
                    // A client that is gone is noticed elsewhere.
                    let _ = context.peer.notify_progress(ProgressNotificationParam::new(token, told).with_message("the call runs")).await;
                }
            }
        }
    }
}

impl ServerHandler for Front {
    fn get_info(&self) -> ServerConfig {
        let title = format!("{} behind Stockade", self.session.server);
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("stockade", env!("CARGO_PKG_VERSION")).with_title(title))
    }

    async fn list_tools(&self, _: Option<PaginatedRequestParams>, _: RequestContext<RoleServer>) -> Result<ListToolsResult, ErrorData> {
        let failed = |failure: Failure| ErrorData::internal_error(failure.message, None);
        let listed = self.upstream.list().await.map_err(failed)?;
        let session = Arc::clone(&self.session);
        let offered = tokio::task::spawn_blocking(move || listing::offered(&listed, &session)).await;
        let offered = offered.unwrap_or_else(|error| Err(Failure::new("server", error.to_string())));
        offered.map(ListToolsResult::with_all_items).map_err(failed)
    }

    async fn call_tool(&self, request: CallToolRequestParams, context: RequestContext<RoleServer>) -> Result<CallToolResponse, ErrorData> {
        let found = match self.upstream.find(&request.name).await {
            Ok(found) => found,
            Err(failure) => return Ok(answer::of_failure(&failure).into()),
        };
        let Some((tool, definition)) = found else {
            return Err(ErrorData::invalid_params(format!("there is no tool `{}`", escape(&request.name)), None));
        };
        let order = Order { tool, definition, arguments: request.arguments.unwrap_or_default() };
        let result = self.perform(order, &context).await;
        Ok(result.unwrap_or_else(|failure| answer::of_failure(&failure)).into())
    }
}
