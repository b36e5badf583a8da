//! Tells whoever settings name that a request waits for a person, and what became of it: a signed POST for each.
//!
//! What there is to tell is in the store of approvals, whoever filed or decided it; which server of this person tells it is settled by a lock there. It is
//! told at least once: a server that is killed between sending and remembering leaves it to the next, under the same id.
//!
//! The call is named in one line, as in a notification. All of it stays on the machine, where it is approved: nothing that is sent approves
//! anything, and nothing comes back.

use std::path::PathBuf;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use stockade_core::escape::escape;
use stockade_core::secret::SecretName;
use stockade_gateway::approvals::{ApprovalError, Happened, Listener, News, Request, Store, Telling};
use stockade_http::Post;
use stockade_store::places::Places;

use super::courier::Courier;
use super::way::Way;
use crate::approver::now;
use crate::destination::Destination;

/// How often it is looked whether there is something to tell.
const GLANCE: Duration = Duration::from_millis(500);
/// Letters of any one word that came from elsewhere.
const MOST_WORD: usize = 500;

/// Who is told, and the name of the key that what they are told is signed with.
pub(super) struct Webhook {
    to: Destination,
    key: SecretName,
    state: PathBuf,
    since: i64,
}

impl Webhook {
    /// Nobody is told yet. Who was not told before hears of what happens from now on, and of what still waits.
    pub(super) fn new(to: Destination, key: SecretName, places: &Places) -> Self {
        Self { to, key, state: places.state.clone(), since: now() }
    }

    /// Tells until the server ends.
    pub(super) fn tell(self, mut courier: Courier) {
        let mut telling = None;
        loop {
            let is_last = courier.ending.is_here();
            if let Err(error) = self.round(&mut telling, &mut courier) {
                // Nothing is lost: it is looked again.
                courier.complain(&error.to_string());
            }
            if is_last {
                return;
            }
            courier.ending.pause(GLANCE);
        }
    }

    /// Tells all that there is to tell now.
    fn round(&self, telling: &mut Option<Telling>, courier: &mut Courier) -> Result<(), ApprovalError> {
        let Some(mut store) = Store::open_existing(&self.state)? else { return Ok(()) };
        if telling.is_none() {
            *telling = store.begin_telling(&Listener { name: &self.to.url.to_string(), since: self.since })?;
        }
        let Some(telling) = telling else { return Ok(()) };
        for news in store.news(telling, now())? {
            courier.deliver(|way| self.post(&news, way));
            store.told(telling, &news)?;
        }
        Ok(())
    }

    /// One message, signed as of now.
    fn post(&self, news: &News, way: &Way) -> Result<Post, String> {
        let id = format!("msg_{}_{}", news.request.id, news.request.state.name());
        let (time, body) = (now().to_string(), body(news).to_string());
        let signature = way.sign(&self.key, format!("{id}.{time}.{body}").as_bytes())?;
        let signature = format!("v1,{}", STANDARD.encode(signature));
        let mut headers = HeaderMap::new();
        for (name, value) in [("webhook-id", &id), ("webhook-timestamp", &time), ("webhook-signature", &signature)] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_str(value).map_err(|error| error.to_string())?);
        }
        Ok(Post { url: self.to.url.clone(), headers, body: Bytes::from(body) })
    }
}

/// What is said.
fn body(news: &News) -> Value {
    let Request { id, state, asked, times, expires, principal, effect, title, shown_sha256, receipt, decided, by, method, .. } =
        &news.request;
    let mut data = Map::new();
    for (name, value) in [
        ("request", json!(id)),
        ("state", json!(state.name())),
        ("principal", json!(word(principal))),
        ("effect", json!(word(effect))),
        ("title", json!(word(title))),
        ("shown_sha256", json!(word(shown_sha256))),
        ("receipt_id", json!(word(receipt))),
        ("times", json!(times)),
        ("asked", json!(time(*asked))),
    ] {
        data.insert(name.to_owned(), value);
    }
    let happened = match news.happened {
        Happened::Requested => {
            data.insert("expires".to_owned(), json!(time(*expires)));
            *asked
        }
        Happened::Decided => {
            data.insert("by".to_owned(), json!(by.as_deref().map(word)));
            data.insert("method".to_owned(), json!(method.as_deref().map(word)));
            decided.unwrap_or(*asked)
        }
        Happened::Expired => *expires,
    };
    json!({ "type": news.happened.name(), "timestamp": time(happened), "data": data })
}

/// What came from elsewhere: escaped, and not endless. What is escaped already stays as it is.
fn word(text: &str) -> String {
    escape(&text.chars().take(MOST_WORD).collect::<String>())
}

fn time(seconds: i64) -> Option<String> {
    Timestamp::from_second(seconds).ok().map(|time| time.to_string())
}
