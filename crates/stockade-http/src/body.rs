//! Reads the body of a request: so many bytes at most, in so much time.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};

use crate::refusal::{Reason, Refusal};

/// Bytes of a body, as of a message on standard input.
pub(crate) const MOST: usize = 16 << 20;
const TOO_LONG: &str = "a request may have 16 MiB";

/// The whole of it.
pub(crate) async fn read(body: Incoming, patience: Duration) -> Result<Bytes, Refusal> {
    // What says that it is too long need not be read to be refused.
    if body.size_hint().lower() > MOST as u64 {
        return Err(Refusal::new(Reason::Large, TOO_LONG));
    }
    let whole = tokio::time::timeout(patience, collect(body)).await;
    whole.unwrap_or_else(|_| Err(Refusal::new(Reason::Slow, "the request took too long to arrive")))
}

async fn collect(mut body: Incoming) -> Result<Bytes, Refusal> {
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Refusal::new(Reason::Malformed, "the request broke off, or its length is wrong"))?;
        // Trailers say nothing here.
        let Ok(data) = frame.into_data() else { continue };
        if data.len() > MOST.saturating_sub(whole.len()) {
            return Err(Refusal::new(Reason::Large, TOO_LONG));
        }
        whole.extend_from_slice(&data);
    }
    Ok(whole.freeze())
}
