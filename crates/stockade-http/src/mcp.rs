//! MCP over HTTP: the SDK's own transport, with a bound on its sessions and its refusals as JSON.
//!
//! Clients of 2026-07-28 have no session; each request stands alone, and closing the connection withdraws it. Older ones shake hands and get a
//! session, which ends when they say so or after an hour without a word.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use rmcp::ServerHandler;
use rmcp::transport::streamable_http_server::session::local::{LocalSessionManager, SessionConfig};
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::body;
use crate::refusal::{Answer, Reason, Refusal, of_json};
use crate::session::Ends;

/// Sessions at once.
pub(crate) const MOST_SESSIONS: usize = 256;
/// How long a session stays without a word from either side: longer than any call may take by default.
const IDLE_SESSION: Duration = Duration::from_hours(1);
/// Bytes of a refusal of the SDK that are passed on.
const MOST_WORDS: usize = 4096;
/// Names a session.
const SESSION: &str = "mcp-session-id";
/// The first protocol version without sessions.
const WITHOUT_SESSIONS: &str = "2026-07-28";

/// The transport.
pub(crate) struct Mcp<H> {
    service: StreamableHttpService<H, LocalSessionManager>,
    sessions: Arc<LocalSessionManager>,
    // Whoever may open a session holds it, so that they are counted one by one.
    opening: Mutex<()>,
    ends: Ends,
}

impl<H: ServerHandler + Send + 'static> Mcp<H> {
    /// One that makes a handler for each session, or for each request of clients without one.
    pub(crate) fn new(make: impl Fn() -> H + Send + Sync + 'static) -> Self {
        let mut patience = SessionConfig::default();
        patience.keep_alive = Some(IDLE_SESSION);
        let mut sessions = LocalSessionManager::default();
        sessions.session_config = patience;
        let sessions = Arc::new(sessions);
        // The guard knows our names better than a list could: those of a certificate have wildcards.
        let config =
            StreamableHttpServerConfig::default().disable_allowed_hosts().with_json_response(true).with_max_request_body_bytes(body::MOST);
        let make = move || Ok::<_, io::Error>(make());
        Self {
            service: StreamableHttpService::new(make, Arc::clone(&sessions), config),
            sessions,
            opening: Mutex::new(()),
            ends: Ends::default(),
        }
    }

    /// How many sessions are open.
    pub(crate) async fn sessions(&self) -> usize {
        self.sessions.sessions.read().await.len()
    }

    /// Ends every stream and session.
    pub(crate) fn close(&self) {
        self.service.config.cancellation_token.cancel();
    }

    /// Passes a request on.
    pub(crate) async fn answer(&self, mut request: Request<Full<Bytes>>) -> Answer {
        let session = request.headers().get(SESSION).map(|name| String::from_utf8_lossy(name.as_bytes()).into_owned());
        let has_session = session.is_some();
        let may_open = request.method() == Method::POST && !has_session && is_of_sessions(request.headers());
        let opening = if may_open { Some(self.opening.lock().await) } else { None };
        if opening.is_some() && self.sessions().await >= MOST_SESSIONS {
            return Refusal::new(Reason::Full, "too many MCP sessions are open").with_hint("end one with DELETE, or wait").answer();
        }
        let is_end = request.method() == Method::DELETE;
        if let Some(session) = session.as_deref().filter(|_| !is_end) {
            let live = self.sessions.sessions.read().await;
            if let Some(end) = self.ends.of(session, |name| live.contains_key(name)) {
                request.extensions_mut().insert(end);
            }
        }
        let answer = self.service.handle(request).await;
        drop(opening);
        if let Some(session) = session.filter(|_| is_end && answer.status().is_success()) {
            self.ends.come(&session);
        }
        reworded(answer, has_session, self.service.config.cancellation_token.is_cancelled()).await
    }
}

fn is_of_sessions(headers: &HeaderMap) -> bool {
    let version = headers.get("mcp-protocol-version").and_then(|value| value.to_str().ok());
    version.is_none_or(|version| version < WITHOUT_SESSIONS)
}

/// The SDK says some refusals in plain words, and calls a session that went away meanwhile a fault of its own.
async fn reworded(answer: Answer, has_session: bool, is_ending: bool) -> Answer {
    let status = answer.status();
    let kind = answer.headers().get(CONTENT_TYPE).map(|kind| kind.as_bytes().to_vec()).unwrap_or_default();
    if !(status.is_client_error() || status.is_server_error()) || kind.starts_with(b"application/json") {
        return answer;
    }
    let (head, body) = answer.into_parts();
    let words = Limited::new(body, MOST_WORDS).collect().await.map(|body| String::from_utf8_lossy(&body.to_bytes()).into_owned());
    let words = words.unwrap_or_else(|_| status.canonical_reason().unwrap_or_default().to_owned());
    let (status, words) = match status {
        _ if status.is_server_error() && is_ending => (StatusCode::SERVICE_UNAVAILABLE, "the server is ending".to_owned()),
        _ if status.is_server_error() && has_session => (StatusCode::NOT_FOUND, "the session has ended".to_owned()),
        _ if status.is_server_error() => (StatusCode::BAD_REQUEST, "the session could not be opened".to_owned()),
        // What has the right type and makes no sense.
        StatusCode::UNSUPPORTED_MEDIA_TYPE if words.starts_with("fail to deserialize") => (StatusCode::BAD_REQUEST, words),
        status => (status, words),
    };
    let mut reworded = of_json(status, &error(status, &words));
    // `Allow` belongs to the refusal of a method.
    if let Some(allow) = head.headers.get(http::header::ALLOW) {
        reworded.headers_mut().insert(http::header::ALLOW, allow.clone());
    }
    reworded
}

fn error(status: StatusCode, words: &str) -> Value {
    // -32700 is JSON that cannot be parsed, -32600 what is no request.
    let code = if status == StatusCode::BAD_REQUEST && words.starts_with("fail to deserialize") { -32700 } else { -32600 };
    json!({ "jsonrpc": "2.0", "id": null, "error": { "code": code, "message": words } })
}

#[cfg(test)]
mod tests {
    use rmcp::model::{CallToolRequestParams, CallToolResponse};
    use rmcp::service::RequestContext;
    use rmcp::{ErrorData, RoleServer};
    use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

    use super::*;
    use crate::session::SessionEnd;

    /// Waits until it is over, and says by whose word.
    struct Waits(UnboundedSender<&'static str>);

    impl ServerHandler for Waits {
        async fn call_tool(&self, _: CallToolRequestParams, context: RequestContext<RoleServer>) -> Result<CallToolResponse, ErrorData> {
            self.0.send("begun").unwrap();
            let mut end = SessionEnd::of(&context.extensions).expect("it is in a session");
            let told = tokio::select! {
                biased;
                () = context.ct.cancelled() => "cancelled by the SDK",
                () = end.come() => "ended",
            };
            self.0.send(told).unwrap();
            Err(ErrorData::internal_error("over", None))
        }
    }

    #[tokio::test]
    async fn whoever_ends_a_session_ends_its_calls_at_once() {
        let (tell, mut told) = unbounded_channel();
        let mcp = Arc::new(Mcp::new(move || Waits(tell.clone())));
        let request = |method: Method, session: Option<&str>, message: Value| {
            let request = Request::builder().method(method).uri("/mcp").header(CONTENT_TYPE, "application/json");
            let request = request.header("host", "localhost").header("accept", "application/json, text/event-stream");
            let request = session.into_iter().fold(request, |request, name| request.header(SESSION, name));
            request.header("mcp-protocol-version", "2025-11-25").body(Full::new(Bytes::from(message.to_string()))).unwrap()
        };
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        let open = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
        let opened = mcp.answer(request(Method::POST, None, open)).await;
        let session = opened.headers().get(SESSION).expect("a session").to_str().unwrap().to_owned();
        let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert!(mcp.answer(request(Method::POST, Some(&session), ready)).await.status().is_success());
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "x", "arguments": {}}});
        let (calling, call) = (Arc::clone(&mcp), request(Method::POST, Some(&session), call));
        tokio::spawn(async move { calling.answer(call).await });
        assert_eq!(told.recv().await, Some("begun"));
        assert!(mcp.answer(request(Method::DELETE, Some(&session), Value::Null)).await.status().is_success());
        assert_eq!(told.recv().await, Some("ended"));
    }
}
