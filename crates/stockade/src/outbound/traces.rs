//! Sends the spans of calls that ended, in batches, as OTLP over HTTP with JSON.
//!
//! A call puts the number of its last receipt into a queue and goes on; what is sent is read from the ledger, where secrets were taken out of it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use stockade_http::Post;
use stockade_ledger::export::spans;
use stockade_ledger::query::Reader;
use stockade_store::places::Places;

use super::courier::Courier;
use super::queue::Queue;
use crate::destination::Destination;
use crate::receipts::book;

/// How long spans are gathered.
const GATHER: Duration = Duration::from_secs(1);
/// Spans of one request.
const MOST: usize = 256;

/// Who gets spans.
pub(super) struct Traces {
    to: Destination,
    /// What stands for the token.
    placeholder: Option<String>,
    ended: Arc<Queue<u64>>,
    ledger: PathBuf,
}

impl Traces {
    /// Nothing is sent yet.
    pub(super) fn new(to: Destination, placeholder: Option<String>, ended: Arc<Queue<u64>>, places: &Places) -> Self {
        Self { to, placeholder, ended, ledger: book::directory(&places.state) }
    }

    /// Sends until the server ends.
    pub(super) fn send(self, mut courier: Courier) {
        loop {
            courier.ending.pause(GATHER);
            let is_last = courier.ending.is_here();
            while let batch @ [_, ..] = self.ended.take(MOST).as_slice() {
                match self.document(batch) {
                    Ok(document) => courier.deliver(|_| self.post(&document)),
                    Err(why) => courier.give_up(batch.len() as u64, &why),
                }
            }
            let dropped = self.ended.dropped();
            if dropped > 0 {
                courier.give_up(dropped, "more calls ended than could be sent");
            }
            if is_last {
                return;
            }
        }
    }

    /// The spans of these receipts.
    fn document(&self, batch: &[u64]) -> Result<Bytes, String> {
        let reader = Reader::open(&self.ledger).map_err(|error| error.to_string())?;
        let mut entries = Vec::with_capacity(batch.len());
        for seq in batch {
            entries.extend(reader.from(*seq, 1).map_err(|error| error.to_string())?.into_iter().filter(|entry| entry.seq == *seq));
        }
        let document = spans(&entries, reader.origin()).map_err(|error| error.to_string())?;
        Ok(Bytes::from(document.to_string()))
    }

    fn post(&self, document: &Bytes) -> Result<Post, String> {
        let mut headers = HeaderMap::new();
        if let Some(placeholder) = &self.placeholder {
            let value = HeaderValue::from_str(&format!("Bearer {placeholder}")).map_err(|error| error.to_string())?;
            headers.insert(AUTHORIZATION, value);
        }
        Ok(Post { url: self.to.url.clone(), headers, body: document.clone() })
    }
}
