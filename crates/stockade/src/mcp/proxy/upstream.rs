//! The client's side: speaks with the server by the official SDK, through whatever leads to it, and answers nothing that the server asks.

use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, ClientConfig, ClientResult, ErrorCode, ErrorData,
    Implementation, PaginatedRequestParams, ProtocolVersion, ServerNotification, ServerRequest, Tool,
};
use rmcp::service::{ClientLifecycleMode, ClientServiceExt as _, NotificationContext, Peer, RequestContext, Service, ServiceError};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use serde_json::{Map, Value};
use stockade_core::escape::escape;
use stockade_policy::pack::ToolName;
use stockade_store::mcp::{Definition, MOST_TOOLS};
use tokio::net::unix::pipe;

use super::super::stdio::MOST_MESSAGE;
use super::listing::Listing;
use super::pipes::{Counted, Patient};
use crate::failure::Failure;

/// How long a server may take to say who it is: it may have to be downloaded first.
const START: Duration = Duration::from_mins(2);
/// How long it may take to list its tools.
const LIST: Duration = Duration::from_secs(30);
/// Pages of that list.
const MOST_PAGES: usize = 64;
/// Characters of what a server says that are repeated in words of ours.
const MOST_SAID: usize = 2000;

/// A server that was spoken to.
pub(super) struct Upstream {
    peer: Peer<RoleClient>,
    source: Vec<String>,
    patience: Duration,
    /// What it had when it was asked last.
    listing: Mutex<Listing>,
    /// Whether it said that this changed since.
    stale: Arc<AtomicBool>,
}

/// Comes when a server is gone.
pub(super) type Gone = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What becomes of a call that was passed on.
pub(super) enum Passed {
    /// The server answered.
    Answered(Box<CallToolResult>),
    /// It did not, or not so that it could be passed on.
    Failed(String),
}

impl Upstream {
    /// Shakes hands, in whichever era the server speaks, and asks what it has. With it comes what ends when the server is gone.
    pub(super) async fn open(
        transport: impl Transport<RoleClient> + 'static,
        source: &[String],
        patience: Duration,
    ) -> Result<(Self, Gone), Failure> {
        let stale = Arc::new(AtomicBool::new(false));
        let guest = Guest { stale: Arc::clone(&stale) };
        let lifecycle = ClientLifecycleMode::Auto { preferred_versions: vec![ProtocolVersion::LATEST], legacy_version: None };
        let opening = tokio::time::timeout(START.min(patience), guest.serve_with_lifecycle(transport, lifecycle));
        let service = match opening.await {
            Ok(Ok(service)) => service,
            Ok(Err(error)) => return Err(broken(&format!("it does not speak MCP: {}", said(&error.to_string())))),
            Err(_) => return Err(broken(&format!("it did not answer within {:?}", START.min(patience)))),
        };
        let upstream = Self { peer: service.peer().clone(), source: source.to_vec(), patience, listing: Mutex::default(), stale };
        upstream.list().await?;
        Ok((upstream, Box::pin(async move { drop(service.waiting().await) })))
    }

    /// Asks what it has now.
    pub(super) async fn list(&self) -> Result<Listing, Failure> {
        self.stale.store(false, Ordering::Relaxed);
        let listed = match tokio::time::timeout(LIST.min(self.patience), self.pages()).await {
            Ok(listed) => listed?,
            Err(_) => return Err(broken(&format!("it did not list its tools within {:?}", LIST.min(self.patience)))),
        };
        let listing = Listing::new(listed, &self.source);
        *self.listing.lock().unwrap_or_else(PoisonError::into_inner) = listing.clone();
        Ok(listing)
    }

    /// A tool as the server has it now.
    pub(super) async fn find(&self, name: &str) -> Result<Option<(ToolName, Definition)>, Failure> {
        if self.stale.load(Ordering::Relaxed) {
            self.list().await?;
        }
        let listing = self.listing.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(listing.tools.iter().find(|(tool, _)| tool.as_str() == name).map(|(tool, definition)| (tool.clone(), definition.clone())))
    }

    /// Passes a call on, and waits. Dropped before its end, it is withdrawn.
    pub(super) async fn call(&self, tool: &ToolName, arguments: Map<String, Value>) -> Passed {
        let params = CallToolRequestParams::new(tool.to_string()).with_arguments(arguments);
        let failed = |why: String| Passed::Failed(why);
        match tokio::time::timeout(self.patience, self.peer.call_tool_once(params)).await {
            Ok(Ok(CallToolResponse::Complete(result))) => Passed::Answered(Box::new(result)),
            Ok(Ok(_)) => failed("the server wants more from its client, which is never given".to_owned()),
            Ok(Err(ServiceError::McpError(error))) => failed(format!("the server says: {}", said(&error.message))),
            Ok(Err(ServiceError::TransportClosed)) => failed("the server has ended".to_owned()),
            Ok(Err(error)) => failed(said(&error.to_string())),
            Err(_) => failed(format!("the server did not answer within {:?}", self.patience)),
        }
    }

    async fn pages(&self) -> Result<Vec<Tool>, Failure> {
        let mut tools = Vec::new();
        let mut cursor = None;
        for _ in 0..MOST_PAGES {
            let params = cursor.take().map(|cursor| PaginatedRequestParams::default().with_cursor(Some(cursor)));
            let page = self.peer.list_tools(params).await;
            let page = page.map_err(|error| broken(&format!("it does not list its tools: {}", said(&error.to_string()))))?;
            tools.extend(page.tools);
            if tools.len() > MOST_TOOLS {
                return Err(broken(&format!("it has more than {MOST_TOOLS} tools")));
            }
            cursor = page.next_cursor;
            if cursor.is_none() {
                return Ok(tools);
            }
        }
        Err(broken(&format!("its tools have more than {MOST_PAGES} pages")))
    }
}

/// Speaks through pipes, of which these are the front's ends. To be called inside a runtime.
pub(super) fn through_pipes(input: OwnedFd, output: OwnedFd) -> Result<impl Transport<RoleClient> + use<>, Failure> {
    let failed = |error: std::io::Error| Failure::new("server", format!("taking its pipes: {error}"));
    let output = pipe::Receiver::from_owned_fd(output).map_err(failed)?;
    let input = pipe::Sender::from_owned_fd(input).map_err(failed)?;
    Ok(AsyncRwTransport::new_client(Counted::new(output), Patient::new(input)).with_max_line_length(MOST_MESSAGE))
}

fn broken(why: &str) -> Failure {
    Failure::new("server", format!("the MCP server is of no use: {why}")).with_hint("what it wrote to its standard error is above")
}

/// What a server said, so that it can be repeated.
fn said(text: &str) -> String {
    escape(&text.chars().take(MOST_SAID).collect::<String>())
}

/// What the server sees of its client: one that can nothing. What it wants from the model, the person or the file system is refused.
struct Guest {
    stale: Arc<AtomicBool>,
}

impl Service<RoleClient> for Guest {
    async fn handle_request(&self, request: ServerRequest, _: RequestContext<RoleClient>) -> Result<ClientResult, ErrorData> {
        match request {
            ServerRequest::PingRequest(_) => Ok(ClientResult::empty(())),
            _ => Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "this client answers no requests", None)),
        }
    }

    async fn handle_notification(&self, notification: ServerNotification, _: NotificationContext<RoleClient>) -> Result<(), ErrorData> {
        if matches!(notification, ServerNotification::ToolListChangedNotification(_)) {
            self.stale.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    fn get_info(&self) -> ClientConfig {
        ClientConfig::new(ClientCapabilities::default(), Implementation::new("stockade", env!("CARGO_PKG_VERSION")))
    }
}
