//! One request, from the sandbox to a host and back: judge, put secrets in, send, take secrets out.
//!
//! ```text
//! destination ─▶ rules ─▶ limits ─▶ placeholders ─▶ values ─▶ send ─▶ scrub
//!      └────────────┴─────────┴───────────┴────────────┴────────┴──▶ refusal: an answer in words, and an event
//! ```

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ::http::header::{self, HeaderValue};
use ::http::{Method, Request, Response, StatusCode, Uri, Version};
use bytes::BytesMut;
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use stockade_core::host::HostName;

use super::guarded::{Notice, REFUSED_TARGET};
use super::head::Shape;
use super::headers;
use super::pool::{Destination, Freshness, Protocol, Route, Scheme, route};
use super::upgrade;
use crate::aws::keys::Keys;
use crate::aws::resign::{self, MAX_HASHED, Signed};
use crate::body::answer::{AnswerBody, Metered, ScrubWith};
use crate::body::decode::{Coding, Decoder};
use crate::body::request::{Checks, RequestBody, Stopped};
use crate::desk;
use crate::egress::Shared;
use crate::event::Subject;
use crate::meter::Meter;
use crate::record::{Record, shown_host};
use crate::refusal::Refusal;
use crate::rules::judge::{Asked, Denied, Judge};
use crate::rules::path::segments;
use crate::sandbox::{Found, Sandbox};
use crate::secrets::SecretValue;
use crate::secrets::binding::{Bound, Form, Place};
use crate::secrets::needles::Needles;
use crate::secrets::substitute::{self, BodyReplacer, BodyWatch};

/// A body up to this size is looked through before anything of its request is sent, so that a refusal can be answered.
const WHOLE_BODY: u64 = 64 << 10;

/// How long a refused request may go on.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// One connection from a sandbox, as far as its requests need to know.
#[derive(Debug)]
pub(crate) struct Leg {
    pub(crate) shared: Arc<Shared>,
    pub(crate) sandbox: Arc<Sandbox>,
    pub(crate) target: LegTarget,
    pub(crate) protocol: Protocol,
    pub(crate) notice: Notice,
}

/// Where requests of a connection may go.
#[derive(Debug)]
pub(crate) enum LegTarget {
    /// Wherever each names, as with a plain proxy.
    Named,
    /// To the host the connection was made for, and no other.
    Fixed(Destination),
    /// Nowhere: the desk answers as the metadata server of a cloud.
    Metadata,
}

/// What a request needs after it was judged.
pub(crate) struct Approved {
    pub(crate) destination: Destination,
    pub(crate) record: Arc<Record>,
    pub(crate) needles: Option<Arc<Needles>>,
    pub(crate) found: Vec<Found>,
    /// Secrets that the request carries, as bits.
    pub(crate) carried: u64,
    /// How it is signed anew, where it was signed inside.
    signing: Option<(Signed, Keys)>,
    coded: Coded,
}

/// What is done with an answer in a coding of its own, where secrets are looked for in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Coded {
    /// It is decoded.
    Decoded,
    /// It is searched as it is.
    AsIs,
}

/// Serves one request; a refusal is an answer.
pub(crate) async fn serve(leg: Arc<Leg>, request: Request<Incoming>) -> Result<Response<AnswerBody>, Infallible> {
    let is_upgrade = leg.protocol == Protocol::Http1 && request.headers().contains_key(header::UPGRADE);
    let mut answer = match desk::asked(&leg, &request) {
        Some(part) => desk::serve(&leg, part, request).await,
        None => pass_on(&leg, request, is_upgrade).await,
    };
    if is_upgrade && answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        // Whatever the client says next was not looked at as a request.
        answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(answer)
}

async fn pass_on(leg: &Leg, mut request: Request<Incoming>, is_upgrade: bool) -> Response<AnswerBody> {
    let named = destination(leg, &request);
    let (host, port) = match &named {
        Ok(destination) => (destination.host.to_string(), destination.port),
        Err((_, text)) => (text.clone(), 0),
    };
    let record = Record::of_text(&leg.shared.events, &leg.sandbox, Subject::Request, host, port);
    let record = Arc::new(record.of_request(request.method(), request.uri().path()));
    let answered = match named {
        Ok(destination) => match approve(leg, &mut request, destination, &record).await {
            Ok(approved) if is_upgrade => upgrade::serve(leg, request, approved).await,
            Ok(approved) => send(leg, request, approved).await,
            Err(refusal) => {
                if leg.protocol == Protocol::Http2 {
                    take_in(request.body_mut()).await;
                }
                Err(refusal)
            }
        },
        Err((refusal, _)) => Err(refusal),
    };
    answered.unwrap_or_else(|refusal| refused(&record, &refusal))
}

/// Takes in what little a refused request still has to say: a client over HTTP/2 whose stream ends before it was done may not look at the answer.
async fn take_in(body: &mut Incoming) {
    let reading = async {
        let mut left = WHOLE_BODY;
        while let Some(Ok(frame)) = body.frame().await {
            left = left.saturating_sub(frame.data_ref().map_or(0, |data| data.len() as u64));
            if left == 0 {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(LAST_WORDS, reading).await;
}

/// The answer for a refusal.
pub(crate) fn refused(record: &Record, refusal: &Refusal) -> Response<AnswerBody> {
    record.refuse(refusal);
    record.status(refusal.status());
    let mut answer = Response::new(AnswerBody::text(refusal.page()));
    *answer.status_mut() = refusal.status();
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Ok(rule) = HeaderValue::try_from(refusal.rule()) {
        headers.insert("x-stockade-rule", rule);
    }
    answer
}

/// Where a request goes, all its names agreeing. The text is what the event shows where they name no host.
fn destination(leg: &Leg, request: &Request<Incoming>) -> Result<Destination, (Refusal, String)> {
    let uri = request.uri();
    if uri.path() == REFUSED_TARGET
        && let Some(shape) = leg.notice.shape()
    {
        return Err((Refusal::Shape(shape), String::new()));
    }
    let shape = |shape: Shape| (Refusal::Shape(shape), String::new());
    if *request.method() == Method::CONNECT {
        return Err((Refusal::Unsupported("`CONNECT` inside another connection"), String::new()));
    }
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let host_header = hosts.next().map(HeaderValue::to_str).transpose().map_err(|_| shape(Shape::HeaderLine))?;
    if hosts.next().is_some() {
        return Err(shape(Shape::HostTwice));
    }
    let parse = |text: &str, port: u16| {
        HostName::parse_authority(text, port).map_err(|error| (Refusal::BadHost(error.to_string()), shown_host(text)))
    };
    let destination = match &leg.target {
        LegTarget::Fixed(destination) => {
            if let Some(authority) = uri.authority() {
                let (host, port) = parse(authority.as_str(), destination.scheme.port())?;
                let scheme_fits = uri.scheme_str().is_none_or(|scheme| scheme == destination.scheme.as_str());
                if (&host, port) != (&destination.host, destination.port) || !scheme_fits {
                    return Err(differ("connection", destination, "request's authority", authority.as_str()));
                }
            }
            destination.clone()
        }
        LegTarget::Metadata => return Err((Refusal::Unsupported("this address serves metadata only"), String::new())),
        LegTarget::Named => {
            let Some(authority) = uri.authority() else {
                return Err((Refusal::Unsupported("a proxy is asked for a whole address, as in `GET http://host/`"), String::new()));
            };
            // Asked for `https` like this, rather than with `CONNECT`, the client leaves the encryption to us: the request is seen here either way.
            let scheme = match uri.scheme_str() {
                Some("http") => Scheme::Http,
                Some("https") => Scheme::Https,
                _ => return Err((Refusal::Unsupported("a proxy is asked for `http` or `https`"), String::new())),
            };
            let (host, port) = parse(authority.as_str(), scheme.port())?;
            Destination { host, port, scheme }
        }
    };
    match host_header {
        Some(text) => {
            let (host, port) = parse(text, destination.scheme.port())?;
            if (&host, port) != (&destination.host, destination.port) {
                let place = match leg.target {
                    LegTarget::Fixed(_) | LegTarget::Metadata => "connection",
                    LegTarget::Named => "target",
                };
                return Err(differ(place, &destination, "`host` header", text));
            }
        }
        None if request.version() == Version::HTTP_11 => return Err(shape(Shape::NoHost)),
        // HTTP/2 names the host in `:authority`, which was compared above, or nowhere.
        None if request.version() == Version::HTTP_2 && uri.authority().is_none() => return Err(shape(Shape::NoHost)),
        None => {}
    }
    Ok(destination)
}

fn differ(first_place: &'static str, destination: &Destination, second_place: &'static str, second: &str) -> (Refusal, String) {
    let first = format!("{}:{}", destination.host, destination.port);
    let second = second.chars().take(100).collect();
    (Refusal::NamesDiffer { first_place, first: first.clone(), second_place, second }, first)
}

/// Rules, limits, placeholders; then the values, put into the request's head.
async fn approve(leg: &Leg, request: &mut Request<Incoming>, destination: Destination, record: &Arc<Record>) -> Result<Approved, Refusal> {
    let (shared, sandbox) = (&leg.shared, &leg.sandbox);
    shared.events.has_room().await.map_err(|_| Refusal::NoRecord)?;
    let Destination { host, port, scheme } = &destination;
    let judged = sandbox.rules.request(host, *port, request.method(), request.uri().path()).map(crate::rules::HostRule::name);
    let (verdict, rule) = sandbox.judge(host, *port, judged)?;
    record.allow(verdict, rule);
    sandbox.take_request()?;
    let head = head_size(request);
    sandbox.count_sent(head)?;
    if *scheme == Scheme::Http && matches!(host, HostName::Name(_)) && headers::speaks_of_tools(request.method(), request.headers()) {
        return Err(Refusal::ToolsInTheOpen { host: host.clone() });
    }
    let is_upgrade = request.headers().contains_key(header::UPGRADE);
    if is_upgrade && sandbox.rules.exchange(host, *port, request.uri().path()).is_some() {
        return Err(Refusal::Unsupported("tokens are not exchanged over an upgraded connection"));
    }
    let is_metered = sandbox.rules.meters(host, *port);
    if is_metered {
        sandbox.has_model_tokens()?;
        // What is relayed after an upgrade says nothing that could be counted.
        if sandbox.rules.limits.tokens.is_some() && is_upgrade {
            return Err(Refusal::Unsupported("this sandbox has a limit of tokens, which an upgraded connection would pass"));
        }
    }

    let bound = sandbox.bound_to(host, *port);
    let target = request.uri().path_and_query().map_or("/", |target| target.as_str());
    let survey = substitute::survey(&sandbox.bound, request.headers(), target);
    if let Some(name) = first_name(sandbox, survey.present & !bound) {
        return Err(Refusal::SecretElsewhere { name, host: host.clone(), port: *port });
    }
    let signed = resign::recognise(&sandbox.bound, bound, request.headers(), request.uri())?;
    if let Some(secret) = signed.as_ref().filter(|_| is_upgrade).and_then(|signed| sandbox.bound.get(signed.index)) {
        return Err(Refusal::Signature { name: Arc::clone(&secret.name), why: "it asks for an upgrade" });
    }
    let keys = sandbox.bound_where(|bound| bound.form == Form::AwsKeys);
    let in_query = survey.query & sandbox.in_query();
    let plain = (survey.header & !keys) | in_query;
    let carried = plain | signed.as_ref().map_or(0, |signed| 1 << signed.index);
    for secret in bits(sandbox, carried) {
        if *scheme == Scheme::Http && !secret.grants_address(host, *port) {
            return Err(Refusal::SecretInTheOpen { name: Arc::clone(&secret.name), host: host.clone() });
        }
    }
    if let Some(judge) = &sandbox.rules.judge {
        let in_body = if request.body().is_end_stream() { 0 } else { bound & sandbox.in_body() };
        ask(judge.as_ref(), sandbox, request, &destination, carried | in_body)?;
    }
    // Every value bound to the host is asked for: an answer may hold one that another request sent.
    let found = if bound == 0 { Vec::new() } else { sandbox.values(&*shared.secrets, bound, carried).await? };
    let signing = signed.map(|signed| with_keys(sandbox, &found, signed)).transpose()?;
    let now = SystemTime::now();
    for secret in bits(sandbox, carried) {
        secret.spend(now)?;
        secret.count_bytes(head)?;
        record.use_secret(&secret.name);
    }
    let needles = if found.is_empty() { None } else { sandbox.needles(bound, &found) };
    let secrets = pairs(sandbox, &found, plain);
    if plain & survey.header != 0 {
        substitute::replace_headers(request.headers_mut(), &secrets);
    }
    if in_query != 0
        && let Some(target) = substitute::replace_query(&target_of(request.uri()), &secrets)
    {
        *request.uri_mut() = Uri::try_from(target.as_str()).map_err(|_| Refusal::Shape(Shape::Target))?;
    }
    // Objects come in parts and in codings that are their own, and hold nothing of what a request said.
    let is_from_store = signing.as_ref().is_some_and(|(signed, _)| signed.is_for_store()) && bound & !keys == 0;
    let coded = if is_from_store { Coded::AsIs } else { Coded::Decoded };
    if is_from_store {
        // Which service it is the program says: whoever would code an answer only on its way is asked not to.
        request.headers_mut().insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    } else if needles.is_some() {
        headers::make_searchable(request.headers_mut());
    } else if is_metered {
        // Nothing decodes the answer then, so it must come as it is.
        headers::make_searchable(request.headers_mut());
        request.headers_mut().insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    }
    Ok(Approved { destination, record: Arc::clone(record), needles, found, carried, signing, coded })
}

fn first_name(sandbox: &Sandbox, set: u64) -> Option<Arc<str>> {
    bits(sandbox, set).next().map(|bound| Arc::clone(&bound.name))
}

fn bits(sandbox: &Sandbox, set: u64) -> impl Iterator<Item = &Bound> {
    sandbox.bound.iter().enumerate().filter(move |(index, _)| set >> index & 1 == 1).map(|(_, bound)| bound)
}

fn pairs<'a>(sandbox: &'a Sandbox, found: &'a [Found], set: u64) -> Vec<(&'a Bound, &'a SecretValue)> {
    let wanted = found.iter().filter(|(index, _)| set >> index & 1 == 1);
    wanted.filter_map(|(index, value)| sandbox.bound.get(*index).map(|bound| (bound, value))).collect()
}

/// What a signature is made with.
fn with_keys(sandbox: &Sandbox, found: &[Found], signed: Signed) -> Result<(Signed, Keys), Refusal> {
    let value = found.iter().find(|(index, _)| *index == signed.index).map(|(_, value)| value);
    match (value.and_then(Keys::parse), sandbox.bound.get(signed.index)) {
        (Some(keys), _) => Ok((signed, keys)),
        (None, Some(bound)) => {
            let why = "its value is not keys of AWS in JSON".to_owned();
            Err(Refusal::SecretUnavailable { name: Arc::clone(&bound.name), why })
        }
        (None, None) => Err(Refusal::Unsupported("a signature for a secret that is not there")),
    }
}

fn target_of(uri: &Uri) -> String {
    uri.path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string)
}

/// About what the head takes on the wire.
fn head_size<B>(request: &Request<B>) -> u64 {
    let fields: usize = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    (fields + request.uri().path_and_query().map_or(1, |target| target.as_str().len()) + 32) as u64
}

/// Sends an approved request and prepares its answer.
async fn send(leg: &Leg, request: Request<Incoming>, approved: Approved) -> Result<Response<AnswerBody>, Refusal> {
    let Approved { destination, record, needles, found, carried, signing, coded } = approved;
    let (parts, body) = request.into_parts();
    let is_head = parts.method == Method::HEAD;
    let path = parts.uri.path().to_owned();
    let stopped = Stopped::default();
    let mut request = Request::from_parts(parts, ());
    headers::remove_hop_by_hop(request.headers_mut());
    // hyper has told the client to go on when its body is first read.
    request.headers_mut().remove(header::EXPECT);
    let hashed = signing.as_ref().map(|(signed, _)| signed).filter(|signed| signed.needs_body());
    let is_long = body.size_hint().exact().is_none_or(|length| length > WHOLE_BODY);
    let _place = if hashed.is_some() && is_long { leg.sandbox.held.acquire().await.ok() } else { None };
    let body = prepare_body(leg, &mut request, body, &destination, &record, &stopped, &found, carried, hashed).await?;
    let mut request = request.map(|()| body);
    if let Some((signed, keys)) = &signing {
        let host = authority(&destination);
        let (method, uri) = (request.method().clone(), request.uri().clone());
        let whole = request.body().whole().cloned().unwrap_or_default();
        signed.sign(&method, &uri, request.headers_mut(), &host, keys, &whole)?;
    }
    let mut wanted = None;
    let (answer, lease) = loop {
        let (route, freshness) = route(&leg.shared, &leg.sandbox, &destination, leg.protocol, wanted).await?;
        let spoken = match &route {
            Route::One(_) => Protocol::Http1,
            Route::Shared(_) => Protocol::Http2,
        };
        address(&mut request, &destination, spoken)?;
        let failed = match route {
            Route::One(mut lease) => match lease.send(request).await {
                Ok(answer) => break (answer, Some(*lease)),
                Err(failed) => (failed.why, failed.unsent.map(|request| *request)),
            },
            Route::Shared(mut sender) => match sender.try_send_request(request).await {
                Ok(answer) => break (answer, None),
                Err(mut error) => {
                    let unsent = error.take_message();
                    (error.into_error(), unsent)
                }
            },
        };
        match failed {
            // The other side closed a kept connection before anything was sent on it: once more, on a new one.
            (_, Some(unsent)) if freshness == Freshness::Used => {
                request = unsent;
                wanted = Some(Freshness::Fresh);
            }
            (why, _) => return Err(stopped.take().unwrap_or_else(|| broke_off(&destination, &why))),
        }
    };
    let sandbox = leg.sandbox.rules.meters(&destination.host, destination.port).then(|| Arc::clone(&leg.sandbox));
    let answer = prepare_answer(answer, lease, record, needles, coded, is_head, sandbox)?;
    match leg.sandbox.rules.exchange(&destination.host, destination.port, &path) {
        Some(exchange) => {
            let (mut parts, body) = answer.into_parts();
            let inside = exchange.settle(body, &leg.sandbox, &*leg.shared.secrets).await?;
            parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(inside.len()));
            parts.headers.remove(header::ETAG);
            Ok(Response::from_parts(parts, AnswerBody::text(inside)))
        }
        None => Ok(answer),
    }
}

fn broke_off(destination: &Destination, error: &hyper::Error) -> Refusal {
    use std::error::Error as _;
    let why = error.source().map_or_else(|| error.to_string(), |source| format!("{error}: {source}"));
    Refusal::Unreachable { host: destination.host.clone(), port: destination.port, why }
}

/// The host as the next leg is told it.
fn authority(destination: &Destination) -> String {
    let Destination { host, port, scheme } = destination;
    if scheme.port() == *port { host.to_string() } else { format!("{host}:{port}") }
}

/// The target in the form the next leg needs, and one `Host` or `:authority` that is the one that was checked.
pub(crate) fn address<B>(request: &mut Request<B>, destination: &Destination, spoken: Protocol) -> Result<(), Refusal> {
    let authority = authority(destination);
    match spoken {
        Protocol::Http1 => {
            if request.uri().authority().is_some() {
                let target = request.uri().path_and_query().cloned();
                *request.uri_mut() = target.map_or_else(Uri::default, Uri::from);
            }
            *request.version_mut() = Version::HTTP_11;
            let same = request.headers().get(header::HOST).is_some_and(|host| host.as_bytes() == authority.as_bytes());
            if !same {
                let host = HeaderValue::try_from(authority).map_err(|_| Refusal::Shape(Shape::Target))?;
                request.headers_mut().insert(header::HOST, host);
            }
        }
        Protocol::Http2 => {
            let uri = Uri::builder().scheme(destination.scheme.as_str()).authority(authority).path_and_query(target_of(request.uri()));
            *request.uri_mut() = uri.build().map_err(|_| Refusal::Shape(Shape::Target))?;
            *request.version_mut() = Version::HTTP_2;
            request.headers_mut().remove(header::HOST);
        }
    }
    Ok(())
}

#[expect(clippy::too_many_arguments, reason = "the parts of one request that its body needs; a struct would be made and taken apart here")]
async fn prepare_body(
    leg: &Leg,
    request: &mut Request<()>,
    mut body: Incoming,
    destination: &Destination,
    record: &Arc<Record>,
    stopped: &Stopped,
    found: &[Found],
    carried: u64,
    hashed: Option<&Signed>,
) -> Result<RequestBody, Refusal> {
    if body.is_end_stream() {
        return Ok(RequestBody::Empty);
    }
    let sandbox = &leg.sandbox;
    let bound = sandbox.bound_to(&destination.host, destination.port);
    let elsewhere = sandbox.bound.iter().enumerate().filter(|(index, _)| bound >> index & 1 == 0);
    let watch = BodyWatch::new(elsewhere);
    // A body in a coding of its own is not changed, nor one that travels in the open: a placeholder in it stays one.
    let coded = request.headers().contains_key(header::CONTENT_ENCODING);
    let may_carry = |secret: &Bound| destination.scheme == Scheme::Https || secret.grants_address(&destination.host, destination.port);
    let fitting = found.iter().filter_map(|(index, value)| sandbox.bound.get(*index).map(|secret| (*index, secret, value)));
    let fitting = fitting.filter(|(_, secret, _)| !coded && secret.form == Form::Plain && may_carry(secret));
    let path = request.uri().path().to_owned();
    // What can be exchanged for new tokens goes only where these are taken out of the answer.
    let fitting = fitting.filter(|(_, secret, _)| sandbox.rules.may_be_sent(&secret.name, &destination.host, destination.port, &path));
    let mut replacer = BodyReplacer::new(fitting);
    let mut checks = Checks {
        sandbox: Arc::clone(sandbox),
        record: Arc::clone(record),
        stopped: stopped.clone(),
        destination: destination.clone(),
        watch,
        carried,
        head: head_size(request),
        seen: 0,
    };
    let looked_through = checks.watch.is_some() || replacer.is_some();
    let length = body.size_hint().exact();
    if let Some(signed) = hashed.filter(|_| body.size_hint().lower() > MAX_HASHED) {
        return Err(signed.too_long());
    }
    if hashed.is_none() && (!looked_through || length.is_none_or(|length| length > WHOLE_BODY)) {
        if replacer.is_some() {
            request.headers_mut().remove(header::CONTENT_LENGTH);
        }
        return Ok(RequestBody::streamed(body, checks, replacer));
    }
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let broken = |_| Refusal::Shape(Shape::ChunkEnd);
        if let Ok(piece) = frame.map_err(broken)?.into_data() {
            checks.check(&piece)?;
            whole.extend_from_slice(&piece);
            if let Some(signed) = hashed.filter(|_| whole.len() as u64 > MAX_HASHED) {
                return Err(signed.too_long());
            }
        }
    }
    let whole = match &mut replacer {
        Some(replacer) => {
            let mut made = BytesMut::from(replacer.push(&whole));
            made.extend_from_slice(&replacer.finish());
            checks.spend(replacer.take_used())?;
            made.freeze()
        }
        None => whole.freeze(),
    };
    if request.headers().contains_key(header::CONTENT_LENGTH) {
        request.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(whole.len()));
    }
    Ok(RequestBody::Whole(Some(whole)))
}

/// Takes values out of an answer's head, and makes a body that does so for the rest. Where a sandbox is given, the answer is metered for it.
fn prepare_answer(
    answer: Response<Incoming>,
    lease: Option<super::pool::Lease>,
    record: Arc<Record>,
    needles: Option<Arc<Needles>>,
    coded: Coded,
    is_head: bool,
    metered: Option<Arc<Sandbox>>,
) -> Result<Response<AnswerBody>, Refusal> {
    let (mut parts, body) = answer.into_parts();
    record.status(parts.status);
    headers::remove_hop_by_hop(&mut parts.headers);
    headers::remove_reason(&mut parts.extensions);
    let scrub = match needles {
        Some(needles) => {
            if headers::scrub(&mut parts.headers, &needles) > 0 {
                record.note("a secret was taken out of the answer");
            }
            let has_none = is_head || matches!(parts.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
            let decoder = if has_none || coded == Coded::AsIs { None } else { decoder(&mut parts.headers)? };
            (!has_none).then_some(ScrubWith { decoder, needles })
        }
        None => None,
    };
    parts.version = Version::HTTP_11;
    // Of the head as it is by now: what was decoded is plain.
    let metered = metered.and_then(|sandbox| Some(Metered { meter: Meter::of(&parts.headers)?, sandbox }));
    Ok(Response::from_parts(parts, AnswerBody::passed(body, lease, record, scrub, metered)))
}

/// How to decode a body; its headers then say that it is plain.
pub(crate) fn decoder(headers: &mut ::http::HeaderMap) -> Result<Option<Decoder>, Refusal> {
    let mut codings = headers.get_all(header::CONTENT_ENCODING).iter();
    let Some(value) = codings.next() else { return Ok(None) };
    let text = value.to_str().unwrap_or("?");
    let refusal = || Refusal::Encoding(text.chars().take(64).collect());
    if codings.next().is_some() {
        return Err(refusal());
    }
    let coding = Coding::parse(text).ok_or_else(refusal)?;
    let decoder = Decoder::new(coding).map_err(|_| refusal())?;
    if decoder.is_some() {
        headers.remove(header::CONTENT_ENCODING);
        headers.remove(header::CONTENT_LENGTH);
        // The bytes are no longer the ones this names.
        headers.remove(header::ETAG);
    }
    Ok(decoder)
}

impl Sandbox {
    fn in_query(&self) -> u64 {
        self.bound_where(|bound| bound.form == Form::Plain && bound.places.query == Place::Replace)
    }

    fn in_body(&self) -> u64 {
        self.bound_where(|bound| bound.form == Form::Plain && bound.places.body == Place::Replace)
    }

    fn bound_where(&self, fits: impl Fn(&Bound) -> bool) -> u64 {
        let fitting = self.bound.iter().enumerate().filter(|(_, bound)| fits(bound));
        fitting.fold(0, |bits, (index, _)| bits | 1 << index)
    }
}

/// Asks whoever else has rules about requests: once, or once for each secret that would go along.
fn ask(judge: &dyn Judge, sandbox: &Sandbox, request: &Request<Incoming>, destination: &Destination, carried: u64) -> Result<(), Refusal> {
    let Destination { host, port, scheme } = destination;
    let unclear = || Refusal::Policy { rule: "request-path".to_owned(), why: "the path could be read in more than one way".to_owned() };
    let segments = segments(request.uri().path()).ok_or_else(unclear)?;
    let path = String::from_utf8(segments.join(&b'/')).map_err(|_| unclear())?;
    let path = format!("/{path}");
    let asked = |secret| Asked { host, port: *port, tls: *scheme == Scheme::Https, method: request.method().as_str(), path: &path, secret };
    let answer = |secret| judge.judge(&asked(secret)).map_err(|Denied { rule, why }| Refusal::Policy { rule, why });
    if carried == 0 {
        return answer(None);
    }
    bits(sandbox, carried).try_for_each(|secret| answer(Some(&*secret.name)))
}
