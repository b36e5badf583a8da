//! Requests to the desk: which are, under which names, by whom, and what becomes of them. Bodies are read up to a limit, and only after
//! the token was shown.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use ::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use ::http::{Method, Request, Response, StatusCode};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use bytes::BytesMut;
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use stockade_core::host::HostName;

use super::{Answer, Desk, Kind, METADATA, METADATA_PORT, Tool, metadata, tools};
use crate::body::answer::AnswerBody;
use crate::event::{Subject, Verdict};
use crate::http::forward::{Leg, LegTarget, refused};
use crate::http::guarded::REFUSED_TARGET;
use crate::http::head::Shape;
use crate::record::Record;
use crate::refusal::Refusal;
use crate::sandbox::Sandbox;
use crate::secrets::binding::Bound;
use crate::ssh;

/// The name of the metadata server.
const METADATA_NAME: &str = "metadata.google.internal";
/// The longest body of a request.
const MAX_BODY: usize = 16 << 10;
/// How long a body may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// What of the desk is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// Whatever the path names.
    All,
    /// The metadata server alone: the request was made to its address.
    Metadata,
}

/// Whether a sandbox is told of a metadata server, and this is it.
pub(crate) fn is_metadata(sandbox: &Sandbox, host: &HostName, port: u16) -> bool {
    let is_it = match host {
        HostName::Address(address) => *address == IpAddr::V4(METADATA),
        HostName::Name(name) => name == METADATA_NAME,
    };
    is_it && port == METADATA_PORT && sandbox.desk.as_ref().is_some_and(Desk::has_metadata)
}

/// What of the desk a request asks for; `None` where it is on its way elsewhere, or there is no desk.
pub(crate) fn asked(leg: &Leg, request: &Request<Incoming>) -> Option<Part> {
    leg.sandbox.desk.as_ref()?;
    let uri = request.uri();
    if leg.notice.shape().is_some() && uri.path() == REFUSED_TARGET {
        return None;
    }
    match (&leg.target, uri.authority()) {
        (LegTarget::Fixed(_), _) => None,
        (LegTarget::Metadata, _) => Some(Part::Metadata),
        (LegTarget::Named, None) => Some(Part::All),
        // Libraries that take a proxy for every host ask it for this one too.
        (LegTarget::Named, Some(authority)) => {
            let (host, port) = HostName::parse_authority(authority.as_str(), METADATA_PORT).ok()?;
            (uri.scheme_str() == Some("http") && is_metadata(&leg.sandbox, &host, port)).then_some(Part::Metadata)
        }
    }
}

/// Serves one request. What was refused, and each value that was handed out, is an event.
pub(crate) async fn serve(leg: &Leg, part: Part, request: Request<Incoming>) -> Response<AnswerBody> {
    let host = host(&request);
    let port = host.as_ref().map_or(0, |(_, port)| *port);
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let record =
        || Record::of_text(&leg.shared.events, &leg.sandbox, Subject::Request, "127.0.0.1".to_owned(), port).of_request(&method, &path);
    let checked = host.and_then(|_| leg.sandbox.take_request());
    let routed = match checked {
        Ok(()) => route(leg, part, request, record).await,
        Err(refusal) => Err((refusal, record())),
    };
    match routed {
        Ok(answer) => answer,
        Err((refusal, record)) => refused(&record, &refusal),
    }
}

/// The name under which the desk was spoken to: one of its own, and the same everywhere.
fn host(request: &Request<Incoming>) -> Result<(HostName, u16), Refusal> {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let (Some(text), None) = (hosts.next(), hosts.next()) else { return Err(Refusal::Shape(Shape::NoHost)) };
    let text = text.to_str().map_err(|_| Refusal::Shape(Shape::HeaderLine))?;
    let parse = |text: &str| HostName::parse_authority(text, METADATA_PORT).map_err(|error| Refusal::BadHost(error.to_string()));
    let (host, port) = parse(text)?;
    if let Some(authority) = request.uri().authority()
        && parse(authority.as_str())? != (host.clone(), port)
    {
        return Err(Refusal::Shape(Shape::HostDiffers));
    }
    let is_own = match &host {
        HostName::Address(address) => address.is_loopback() || *address == IpAddr::V4(METADATA),
        HostName::Name(name) => name == "localhost" || name == METADATA_NAME,
    };
    if is_own { Ok((host, port)) } else { Err(Refusal::Unsupported("a proxy is asked for a whole address, as in `GET http://host/`")) }
}

/// A refusal with the record of what was refused.
type Refused = (Refusal, Record);

async fn route(leg: &Leg, part: Part, request: Request<Incoming>, record: impl Fn() -> Record) -> Result<Response<AnswerBody>, Refused> {
    let Some(desk) = &leg.sandbox.desk else { return Ok(Answer::nothing().into_response()) };
    if part == Part::All && request.uri().path() == ssh::PATH {
        return match (request.method() == Method::POST, shows_token(desk, Tool::Git, request.headers())) {
            (false, _) => Ok(Answer::wrong_method().into_response()),
            (true, false) => Err((Refusal::Desk("whoever asks here shows the token of the call"), record())),
            (true, true) => Ok(ssh::serve(leg, desk, request).await),
        };
    }
    let (parts, body) = request.into_parts();
    let path = parts.uri.path();
    let named = path.strip_prefix('/').and_then(|rest| rest.split_once('/'));
    let tool = named.filter(|_| part == Part::All).and_then(|(tool, name)| Some((Tool::parse(tool)?, name)));
    let Some((tool, name)) = tool else {
        return Ok(if desk.has_metadata() { about_machine(leg, desk, &parts) } else { Answer::nothing().into_response() });
    };
    if parts.method != tool.method() {
        return Ok(Answer::wrong_method().into_response());
    }
    if !shows_token(desk, tool, &parts.headers) {
        return Err((Refusal::Desk("whoever asks here shows the token of the call"), record()));
    }
    let Some((kind, index, bound)) = desk.entry(&leg.sandbox, tool, name) else { return Ok(Answer::nothing().into_response()) };
    let placeholder = String::from_utf8_lossy(&bound.placeholder);
    if tool == Tool::Aws {
        let record = record();
        return match hand_out(leg, &record, index, bound).await {
            Ok(answer) => Ok(answer.into_response()),
            Err(refusal) => Err((refusal, record)),
        };
    }
    let Some(body) = read(body).await else {
        let text = "stockade: the request is longer than 16 KiB, or was never finished\n";
        return Ok(Answer::text(StatusCode::PAYLOAD_TOO_LARGE, text).into_response());
    };
    let action = tools::action(parts.uri.query().unwrap_or_default());
    let answer = match kind {
        Kind::Git { user } => tools::git(action, &body, user, &placeholder, bound),
        Kind::Docker { user } => tools::docker(action, &body, user, &placeholder, bound),
        Kind::Kubernetes => tools::kubernetes(&body, &placeholder),
        Kind::AwsEndpoint | Kind::GcpMetadata { .. } | Kind::Ssh(_) => Answer::nothing(),
    };
    Ok(answer.into_response())
}

/// Whether the token is there, once, in the way each asks.
fn shows_token(desk: &Desk, tool: Tool, headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return false };
    let shown = match tool {
        Tool::Aws => Some(value.as_bytes()),
        Tool::Git | Tool::Docker | Tool::Kubernetes => value.as_bytes().strip_prefix(b"Bearer "),
    };
    shown.is_some_and(|shown| verify_slices_are_equal(shown, desk.token.as_bytes()).is_ok())
}

/// The one place where a value goes inside.
async fn hand_out(leg: &Leg, record: &Record, index: usize, bound: &Bound) -> Result<Answer, Refusal> {
    leg.shared.events.has_room().await.map_err(|_| Refusal::NoRecord)?;
    let this = 1_u64.checked_shl(index as u32).unwrap_or(0);
    let found = leg.sandbox.values(&*leg.shared.secrets, this, this).await?;
    let (_, value) = found.first().ok_or(Refusal::Desk("there is no such secret"))?;
    bound.spend(SystemTime::now())?;
    record.use_secret(&bound.name);
    record.allow(Verdict::Allow, "desk".to_owned());
    record.status(StatusCode::OK);
    record.add_received(value.expose().len() as u64);
    Ok(Answer { status: StatusCode::OK, kind: "application/json", body: value.expose().to_vec() })
}

/// The body, where it is short enough and comes in time.
async fn read(mut body: Incoming) -> Option<BytesMut> {
    if body.size_hint().lower() > MAX_BODY as u64 {
        return None;
    }
    let reading = async {
        let mut whole = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let Ok(piece) = frame.ok()?.into_data() else { continue };
            if whole.len() + piece.len() > MAX_BODY {
                return None;
            }
            whole.extend_from_slice(&piece);
        }
        Some(whole)
    };
    tokio::time::timeout(PATIENCE, reading).await.ok().flatten()
}

/// Answers as the metadata server of Google's cloud does.
fn about_machine(leg: &Leg, desk: &Desk, parts: &::http::request::Parts) -> Response<AnswerBody> {
    const FLAVOR: HeaderName = HeaderName::from_static("metadata-flavor");
    let is_asked_for = parts.headers.get(&FLAVOR).is_some_and(|value| value.as_bytes() == b"Google");
    let path = parts.uri.path();
    let answer = if path != "/" && path != "/computeMetadata" && !path.starts_with("/computeMetadata/") {
        Answer::nothing()
    } else if parts.method != Method::GET {
        Answer::wrong_method()
    } else if parts.headers.contains_key("x-forwarded-for") {
        Answer::text(StatusCode::FORBIDDEN, "stockade: metadata is not asked for on behalf of others (x-forwarded-for)\n")
    } else if path != "/" && !is_asked_for {
        Answer::text(StatusCode::FORBIDDEN, "stockade: metadata is asked for with the header `Metadata-Flavor: Google`\n")
    } else {
        metadata::answer(&desk.accounts(&leg.sandbox), path, parts.uri.query().unwrap_or_default()).unwrap_or_else(Answer::nothing)
    };
    let mut answer = answer.into_response();
    answer.headers_mut().insert(FLAVOR, HeaderValue::from_static("Google"));
    answer.headers_mut().insert(header::SERVER, HeaderValue::from_static("Metadata Server for VM"));
    answer
}
