//! A request for a session: what it asks for, which secret is for it, and whether all rules allow it. Then the session, and the connection is its.

use std::sync::Arc;
use std::time::SystemTime;

use ::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use ::http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use stockade_core::escape::escape;
use stockade_core::host::HostName;

use super::command::{Command, MAX_COMMAND};
use super::key::Identity;
use super::relay::relay;
use super::session::{Session, Wanted, start};
use super::{Use, refused};
use crate::body::answer::AnswerBody;
use crate::desk::{Desk, Kind};
use crate::event::Subject;
use crate::http::forward::{self, Leg};
use crate::record::Record;
use crate::refusal::Refusal;
use crate::rules::HostRule;
use crate::rules::judge::{Asked, Denied};

/// Where it is asked for.
pub(crate) const PATH: &str = "/ssh";
/// What the connection becomes.
const UPGRADE: &str = "stockade-ssh";
const HOST: HeaderName = HeaderName::from_static("stockade-host");
const PORT: HeaderName = HeaderName::from_static("stockade-port");
const USER: HeaderName = HeaderName::from_static("stockade-user");
const COMMAND: HeaderName = HeaderName::from_static("stockade-command");
const PROTOCOL: HeaderName = HeaderName::from_static("stockade-protocol");
/// The longest word but for the command.
const MAX_WORD: usize = 256;

/// What a program asks for.
struct Question {
    host: HostName,
    port: u16,
    user: Option<String>,
    command: Command,
    protocol: Option<String>,
}

/// Serves it. Whoever asks has shown the token. Every session, and whatever was refused, is an event.
pub(crate) async fn serve(leg: &Leg, desk: &Desk, mut request: Request<Incoming>) -> Response<AnswerBody> {
    let inside = hyper::upgrade::on(&mut request);
    let record = |host: String, port: u16| Record::of_text(&leg.shared.events, &leg.sandbox, Subject::Request, host, port);
    let question = match Question::read(&request) {
        Ok(question) => question,
        Err((refusal, host)) => {
            let record = record(host, 0);
            return forward::refused(&record, &refusal);
        }
    };
    let Question { host, port, command, .. } = &question;
    let path = format!("/{}", command.repository);
    let record = record(host.to_string(), *port);
    // Letters alone, so it is a method.
    let method = Method::from_bytes(command.service.method().as_bytes()).unwrap_or(Method::TRACE);
    let record = Arc::new(record.of_request(&method, &path));
    let (session, binding) = match approve(leg, desk, &question, &method, &path, &record).await {
        Ok(approved) => approved,
        Err(refusal) => return forward::refused(&record, &refusal),
    };
    record.status(StatusCode::SWITCHING_PROTOCOLS);
    let sandbox = Arc::clone(&leg.sandbox);
    tokio::spawn(async move {
        let inside = tokio::select! {
            inside = inside => inside,
            () = sandbox.closed() => return,
        };
        if let (Ok(inside), Some(bound)) = (inside, sandbox.bound.get(binding)) {
            relay(&sandbox, bound, &record, session, TokioIo::new(inside)).await;
        }
    });
    let mut answer = Response::new(AnswerBody::Text(None));
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    answer.headers_mut().insert(header::UPGRADE, HeaderValue::from_static(UPGRADE));
    answer
}

/// Rules, the secret, its own rules; then its value and the session.
async fn approve(
    leg: &Leg,
    desk: &Desk,
    question: &Question,
    method: &Method,
    path: &str,
    record: &Arc<Record>,
) -> Result<(Session, usize), Refusal> {
    let (shared, sandbox) = (&leg.shared, &leg.sandbox);
    let Question { host, port, user, command, protocol } = question;
    shared.events.has_room().await.map_err(|_| Refusal::NoRecord)?;
    let judged = sandbox.rules.request(host, *port, method, path).map(HostRule::name);
    let (verdict, rule) = sandbox.judge(host, *port, judged).map_err(|refusal| match refusal {
        Refusal::Host { host, port } => Refusal::SshHost { host, port },
        other => other,
    })?;
    record.allow(verdict, rule);
    let (index, how) = choose(leg, desk, question)?;
    let bound = sandbox.bound.get(index).ok_or(Refusal::Desk("there is no such secret"))?;
    if let Some(judge) = &sandbox.rules.judge {
        let asked = Asked { host, port: *port, tls: true, method: method.as_str(), path, secret: Some(&*bound.name) };
        judge.judge(&asked).map_err(|Denied { rule, why }| Refusal::Policy { rule, why })?;
    }
    how.allows(user.as_deref(), command.service, &command.repository)?;
    let this = 1_u64.checked_shl(index as u32).unwrap_or(0);
    let found = sandbox.values(&*shared.secrets, this, this).await?;
    let (_, value) = found.first().ok_or(Refusal::Desk("there is no such secret"))?;
    let identity =
        Identity::parse(value).map_err(|why| Refusal::SecretUnavailable { name: Arc::clone(&bound.name), why: why.to_owned() })?;
    bound.spend(SystemTime::now())?;
    record.use_secret(&bound.name);
    let wanted = Wanted { host, port: *port, command, protocol: protocol.as_deref() };
    let standing = start(shared, sandbox, &wanted, how, identity);
    let session = tokio::select! {
        session = standing => session?,
        () = sandbox.closed() => return Err(Refusal::NoRecord),
    };
    Ok((session, index))
}

/// The secret for it: of those bound to the host the first that allows all of it, or else the first, which says why not.
fn choose<'a>(leg: &Leg, desk: &'a Desk, question: &Question) -> Result<(usize, &'a Use), Refusal> {
    let Question { host, port, user, command, .. } = question;
    let uses = desk.entries.iter().filter_map(|entry| match &entry.kind {
        Kind::Ssh(how) => Some((entry.binding, how)),
        Kind::Git { .. } | Kind::Docker { .. } | Kind::Kubernetes | Kind::AwsEndpoint | Kind::GcpMetadata { .. } => None,
    });
    let here: Vec<(usize, &Use)> =
        uses.filter(|(index, _)| leg.sandbox.bound.get(*index).is_some_and(|bound| bound.is_for(host, *port))).collect();
    let fits = |(_, how): &&(usize, &Use)| how.allows(user.as_deref(), command.service, &command.repository).is_ok();
    let chosen = here.iter().find(fits).or(here.first());
    chosen
        .copied()
        .ok_or_else(|| refused("ssh-host", format!("no secret for SSH is bound to `{host}:{port}`: `--secret NAME@{host}:{port}`")))
}

impl Question {
    /// Reads it; where it is not understood, what the event shows as its host.
    fn read(request: &Request<Incoming>) -> Result<Self, (Refusal, String)> {
        let headers = request.headers();
        let form = |what: &'static str| (Refusal::Desk(what), String::new());
        if headers.get(header::UPGRADE).is_none_or(|value| value.as_bytes() != UPGRADE.as_bytes()) {
            return Err(form("a session is asked for with `Upgrade: stockade-ssh`"));
        }
        let host = word(headers, &HOST).ok_or_else(|| form("which host is not said, or twice"))?;
        let shown = || escape(host.get(..64).unwrap_or(host));
        let host_name = HostName::parse(host).map_err(|error| (Refusal::BadHost(error.to_string()), shown()))?;
        let digits = |text: &&str| text.bytes().all(|byte| byte.is_ascii_digit());
        let port = word(headers, &PORT).filter(digits).and_then(|text| text.parse().ok()).filter(|port: &u16| *port != 0);
        let port = port.ok_or_else(|| (Refusal::Desk("which port is not said"), shown()))?;
        let command =
            headers.get(&COMMAND).filter(|_| headers.get_all(&COMMAND).iter().count() == 1).and_then(|value| unhex(value.as_bytes()));
        let command = command.ok_or_else(|| (Refusal::Desk("which command is not said"), shown()))?;
        let command = Command::parse(&command).map_err(|bad| (refused("ssh-command", bad.to_string()), shown()))?;
        let user = optional(headers, &USER).map_err(|()| (Refusal::Desk("the user is said twice or too long"), shown()))?;
        let protocol = optional(headers, &PROTOCOL).map_err(|()| (Refusal::Desk("the protocol is said twice or too long"), shown()))?;
        // `version=2`, and what may be added with colons.
        let plain = |text: &&str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"=:._-".contains(&byte));
        let protocol = protocol.filter(plain);
        Ok(Self { host: host_name, port, user: user.map(str::to_owned), command, protocol: protocol.map(str::to_owned) })
    }
}

/// The one value of a header, where it is a short word.
fn word<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    value.to_str().ok().filter(|text| (1..=MAX_WORD).contains(&text.len()))
}

fn optional<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, ()> {
    if headers.contains_key(name) { word(headers, name).map(Some).ok_or(()) } else { Ok(None) }
}

fn unhex(text: &[u8]) -> Option<Vec<u8>> {
    if text.len() > 2 * MAX_COMMAND || !text.len().is_multiple_of(2) {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pair = |pair: &[u8]| match pair {
        [high, low] => u8::try_from(digit(*high)? * 16 + digit(*low)?).ok(),
        _ => None,
    };
    text.chunks(2).map(pair).collect()
}
