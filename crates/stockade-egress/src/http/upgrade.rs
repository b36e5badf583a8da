//! Upgrades (WebSocket and the like): the handshake is a request like any other; after it bytes are relayed.
//!
//! What comes from the host is scrubbed on the way, which works on frames that are not compressed; compression is not offered to the
//! host where secrets are bound. What the sandbox sends is masked by its own key, so placeholders in it are neither seen nor replaced. It counts as
//! sent with the secrets of the handshake, and too much of it ends the connection.

use std::sync::Arc;

use ::http::header::{self, HeaderValue};
use ::http::{Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;

use super::forward::{Approved, Leg};
use super::headers;
use super::pool::dedicated;
use crate::body::answer::{AnswerBody, ScrubWith};
use crate::body::request::RequestBody;
use crate::refusal::Refusal;
use crate::relay::{Along, relay};

/// Sends the handshake on a connection of its own and, where the host agrees, relays.
pub(crate) async fn serve(leg: &Leg, mut request: Request<Incoming>, approved: Approved) -> Result<Response<AnswerBody>, Refusal> {
    let Approved { destination, record, needles, carried, .. } = approved;
    let inside = hyper::upgrade::on(&mut request);
    let wanted = request.headers().get(header::UPGRADE).cloned();
    let mut outgoing = Request::new(RequestBody::Empty);
    *outgoing.method_mut() = request.method().clone();
    *outgoing.uri_mut() = request.uri().clone();
    *outgoing.headers_mut() = request.headers().clone();
    headers::remove_hop_by_hop(outgoing.headers_mut());
    outgoing.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    if let Some(wanted) = wanted {
        outgoing.headers_mut().insert(header::UPGRADE, wanted);
    }
    super::forward::address(&mut outgoing, &destination, super::pool::Protocol::Http1)?;
    let unreachable =
        |error: hyper::Error| Refusal::Unreachable { host: destination.host.clone(), port: destination.port, why: error.to_string() };
    let mut sender = dedicated(&leg.shared, &leg.sandbox, &destination).await?;
    let mut answer = sender.send_request(outgoing).await.map_err(unreachable)?;
    record.status(answer.status());
    if let Some(needles) = &needles {
        headers::scrub(answer.headers_mut(), needles);
    }
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        let (mut parts, body) = answer.into_parts();
        headers::remove_hop_by_hop(&mut parts.headers);
        headers::remove_reason(&mut parts.extensions);
        parts.version = Version::HTTP_11;
        let scrub = match needles {
            Some(needles) => Some(ScrubWith { decoder: super::forward::decoder(&mut parts.headers)?, needles }),
            None => None,
        };
        return Ok(Response::from_parts(parts, AnswerBody::passed(body, None, record, scrub, None)));
    }
    let outside = hyper::upgrade::on(&mut answer);
    let sandbox = Arc::clone(&leg.sandbox);
    tokio::spawn(async move {
        let both = async {
            let (inside, outside) = tokio::try_join!(inside, outside).map_err(|error| error.to_string())?;
            let along = Along { carried, needles };
            relay(&sandbox, &record, TokioIo::new(inside), TokioIo::new(outside), along).await.map_err(|error| error.to_string())
        };
        let ended = tokio::select! {
            ended = both => ended,
            () = sandbox.closed() => Ok(()),
        };
        if let Err(why) = ended {
            record.note(why);
        }
    });
    let (mut parts, _) = answer.into_parts();
    headers::remove_reason(&mut parts.extensions);
    parts.version = Version::HTTP_11;
    Ok(Response::from_parts(parts, AnswerBody::Text(None)))
}
