//! A server that is reached over HTTPS. This process opens no connection: what the SDK's client says to a socket of ours is handed to an egress process,
//! which encrypts, checks names and certificates, puts the token in and takes it out again, and writes down what it did.
//!
//! ```text
//!  front ─ SDK ─ HTTP ─▶ socket in a private directory ─ relay, counted ─▶ egress ─ TLS ─▶ the server
//! ```
//!
//! Redirects are not followed: an answer that is no success is an error. An answer is cut off when it is too long, whatever it says of itself.

use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use http::Uri;
use rmcp::RoleClient;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::{StreamableHttpClientTransport, Transport, UnixSocketHttpClient};
use stockade_core::host::{HostName, HostPattern};
use stockade_core::result::Decision;
use stockade_ledger::Weight;
use stockade_ledger::receipt::Outcome;
use stockade_sandbox::gate::{Gate as _, Opened};
use stockade_sandbox::once::JobError;
use stockade_sandbox::state::{Owned, Sandboxes};
use stockade_sandbox::wayout::WayOut;
use stockade_store::private_dir::ensure_private_dir;
use tokio::io::AsyncReadExt as _;
use tokio::net::{UnixListener, UnixStream};

use super::super::stdio::MOST_MESSAGE;
use super::{Ground, PATIENCE, Session, catch_signals, front, started, watch_signals};
use crate::Context;
use crate::admission;
use crate::approval::Frame;
use crate::assemble::{Additions, Assembled, assemble_with};
use crate::cli::ProxyArgs;
use crate::commands::run::DENIED;
use crate::egress::{Outlet, summary};
use crate::engine::explain;
use crate::failure::Failure;
use crate::receipts::{Asked, Book, Deed, credentials_of, failed, policy_of};

/// The one scheme.
const HTTPS: &str = "https";
/// Its port.
const PORT: u16 = 443;
/// Bytes of one answer, events included.
const MOST_ANSWER: u64 = 2 * MOST_MESSAGE as u64;
/// What rules are told in the place of a wall.
const BACKEND: &str = "egress";

/// Where the server is.
struct Place {
    url: String,
    host: HostName,
    port: u16,
}

/// Serves one client until it goes.
pub(super) fn run(args: &ProxyArgs, url: &str, context: &Context) -> Result<ExitCode, Failure> {
    let place = Place::parse(url)?;
    let pattern = HostPattern::exactly(&place.host, place.port);
    let who = format!("the MCP server `{}`", args.server);
    let additions = Additions { who, hosts: vec![pattern], ..Additions::default() };
    let mut assembled = assemble_with(&args.sandbox, &additions, context)?;
    let patience = assembled.spec.limits.time.take().map_or(PATIENCE, |limit| limit.value);
    if assembled.reach.secrets.len() > 1 {
        return Err(Failure::new("arguments", "with `--url` one `--secret` at most can be the server's token"));
    }
    let book = Book::new(&assembled.state, assembled.keeping.clone(), context);
    let outlet = Outlet::of(&assembled.reach, &assembled.given, context)?;
    let outlet = outlet.ok_or_else(|| Failure::new("egress", "there is no way out here").with_hint("use another backend"))?;
    let words = [args.server.as_str(), place.url.as_str()];
    let deed = Deed::new(&book, Asked::Verb("mcp.proxy", &words), Weight::Effect, &outlet);
    if let Some(told) = refusal(&place, &assembled) {
        deed.deny(&told, &assembled.rules)?;
        admission::explain_denial(&told, context);
        return Ok(ExitCode::from(DENIED));
    }
    let ground = Ground {
        workspace: assembled.spec.workspace.path.as_path().to_owned(),
        backend: BACKEND,
        network: vec![format!("{}:{}", place.host, place.port)],
        state: assembled.state.clone(),
        keeping: assembled.keeping.clone(),
        facts: None,
        parent: deed.id(),
        frame: Frame::of(&started(&[place.url.clone().into()], &assembled), &assembled)?,
        cleaner: Some(outlet.cleaner()),
    };
    let session = Session::new(args, vec![place.url.clone()], ground, patience, context)?;
    let state = |error| explain(&JobError::State(error));
    let owned = Sandboxes::open(&assembled.state).and_then(|sandboxes| sandboxes.create()).map_err(state)?;
    deed.note(|draft| {
        draft.policy = Some(policy_of(&assembled.told, &assembled.rules));
        draft.credentials = credentials_of(&assembled.reach, &outlet.facts());
    });
    // Opened first, so that who takes secrets out of receipts is who puts them into requests. Nothing goes that way before the intent is written.
    let opened = outlet.open(&owned.id, &owned.directory, &|| true).map_err(|error| explain(&JobError::Gate(error)));
    let opened = opened.and_then(|opened| deed.begin().map(|()| opened));
    let served = opened.and_then(|opened| serve(&place, &session, opened, &owned, &assembled));
    let traffic = outlet.close();
    deed.note(|draft| {
        draft.network = summary::listed(&traffic.rows);
        draft.violations.extend(traffic.broken.clone());
    });
    let outcome = served.as_ref().map_or_else(failed, |_| Outcome { exit_code: Some(0), ..Outcome::default() });
    deed.end(outcome, context);
    summary::tell(&traffic, context);
    traffic.broken.iter().for_each(|broken| context.printer.warning(broken.as_str()));
    drop(deed);
    drop(outlet);
    owned.remove().map_err(state)?;
    book.close().tidy();
    served
}

/// Serves through an open way, until the client goes.
fn serve(place: &Place, session: &Arc<Session>, opened: Opened, owned: &Owned, assembled: &Assembled) -> Result<ExitCode, Failure> {
    let token = token(&opened, assembled);
    let failed = |why: String| Failure::new("server", format!("making its socket: {why}"));
    ensure_private_dir(&assembled.runtime).map_err(|error| failed(error.to_string()))?;
    let socket = Socket(assembled.runtime.join(format!("{}.mcp", owned.id)));
    let path = socket.0.to_str().ok_or_else(|| failed("the path is not text".to_owned()))?;
    // Before there is another thread, so that none of them is ended by one.
    let end = watch_signals(catch_signals()?);
    front::serve(session, || through_egress(place, token, path, opened.way_out).map_err(|error| failed(error.to_string())), end)
}

/// What leads to the server. To be called inside a runtime.
fn through_egress(
    place: &Place,
    token: Option<String>,
    path: &str,
    way_out: WayOut,
) -> std::io::Result<impl Transport<RoleClient> + use<>> {
    tokio::spawn(relay(UnixListener::bind(path)?, way_out));
    let config = StreamableHttpClientTransportConfig::with_uri(place.url.clone());
    let config = token.into_iter().fold(config, StreamableHttpClientTransportConfig::auth_header);
    Ok(StreamableHttpClientTransport::with_client(UnixSocketHttpClient::new(path, &place.url), config))
}

/// Hands each connection to egress.
async fn relay(listener: UnixListener, way_out: WayOut) {
    while let Ok((client, _)) = listener.accept().await {
        let Ok((ours, theirs)) = UnixStream::pair() else { continue };
        if way_out.pass(theirs.as_fd()).is_ok() {
            tokio::spawn(counted(client, ours));
        }
    }
}

/// One request and its answer, which ends where it is too long.
async fn counted(client: UnixStream, egress: UnixStream) {
    let ((mut from_client, mut to_client), (from_egress, mut to_egress)) = (client.into_split(), egress.into_split());
    let mut answer = from_egress.take(MOST_ANSWER);
    // Whichever side goes, the other is of no use any more.
    tokio::select! {
        _ = tokio::io::copy(&mut from_client, &mut to_egress) => {}
        _ = tokio::io::copy(&mut answer, &mut to_client) => {}
    }
}

/// A socket's file, gone with the value.
struct Socket(PathBuf);

impl Drop for Socket {
    fn drop(&mut self) {
        // One that was never made is gone already.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The placeholder of the one secret.
fn token(opened: &Opened, assembled: &Assembled) -> Option<String> {
    let secret = assembled.reach.secrets.first()?;
    let (_, placeholder) = opened.environment.iter().find(|(name, _)| name == secret.name.as_str())?;
    placeholder.to_str().map(str::to_owned)
}

/// Why it may not be reached: rules about `connect` took the host out of the list. Where they look at requests, egress asks them.
fn refusal(place: &Place, assembled: &Assembled) -> Option<Decision> {
    if assembled.reach.hosts.iter().any(|host| host.matches(&place.host, place.port)) {
        return None;
    }
    let target = format!("{}:{}", place.host, place.port);
    Some(Decision {
        verdict: "deny".to_owned(),
        rule: "no-connect-rule".to_owned(),
        reason: Some(format!("no `connect` rule permits `{target}`")),
        source: None,
        suggest: None,
        approval_id: None,
    })
}

impl Place {
    fn parse(url: &str) -> Result<Self, Failure> {
        let shown = stockade_core::escape::escape(&url.chars().take(200).collect::<String>());
        let refused = |why: &str| Failure::new("arguments", format!("`--url {shown}`: {why}"));
        let uri: Uri = url.parse().map_err(|_| refused("that is no URL"))?;
        if uri.scheme_str() != Some(HTTPS) {
            return Err(refused("only `https` is spoken").with_hint("a server on this machine can be run as a program"));
        }
        let authority = uri.authority().map(http::uri::Authority::as_str).unwrap_or_default();
        if authority.contains('@') {
            return Err(refused("a name and password do not belong there").with_hint("use --secret NAME@HOST"));
        }
        let (host, port) = HostName::parse_authority(authority, PORT).map_err(|error| refused(&error.to_string()))?;
        Ok(Self { url: url.to_owned(), host, port })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_https_is_spoken() {
        let place = Place::parse("https://mcp.example.com:8443/mcp?x=1").unwrap();
        assert_eq!((place.host.to_string().as_str(), place.port), ("mcp.example.com", 8443));
        assert_eq!(Place::parse("https://mcp.example.com").map(|place| place.port).ok(), Some(443));
        for bad in
            ["http://mcp.example.com/", "mcp.example.com", "https://", "https://me:pw@example.com/", "ftp://x/", "/mcp", "", "https://a b/"]
        {
            assert!(Place::parse(bad).is_err(), "{bad}");
        }
    }
}
