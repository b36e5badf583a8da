//! What a request says, read strictly: who sends it, what its path and query name, what its body holds.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use http::request::Parts;
use serde::de::DeserializeOwned;
use stockade_core::escape::escape;
use stockade_http::target::{self, BadQuery};
use stockade_ledger::receipt::Trace;

use super::answer::Problem;
use super::events::Form;
use crate::engine::asker::Asker;
use crate::mcp::Session;

/// What a client calls itself, before its `User-Agent` counts.
const CLIENT: &str = "x-stockade-client";
/// What a client was doing when it asked.
const TRACEPARENT: &str = "traceparent";

/// One request.
#[derive(Debug)]
pub(super) struct Asked {
    parts: Vec<String>,
    query: BTreeMap<String, String>,
    body: Bytes,
    /// Who sends it.
    pub(super) asker: Asker,
    /// What they were doing.
    pub(super) trace: Option<Trace>,
    /// How they want to hear of it, where not all at once.
    pub(super) form: Option<Form>,
}

impl Asked {
    /// Reads what every request has. `parts` are what stands in the places of the path that have a name.
    pub(super) fn read(head: &Parts, body: Bytes, parts: Vec<String>, session: &Session) -> Result<Self, Problem> {
        let kind = text(&head.headers, CONTENT_TYPE.as_str()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim();
        if !body.is_empty() && !kind.eq_ignore_ascii_case("application/json") {
            return Err(Problem::kind());
        }
        Ok(Self {
            parts,
            query: query(head.uri.query().unwrap_or_default())?,
            body,
            asker: session.asker(client(&head.headers)),
            trace: text(&head.headers, TRACEPARENT).and_then(Trace::parse),
            form: text(&head.headers, ACCEPT.as_str()).and_then(Form::accepted),
        })
    }

    /// What stands in the path's place of this number.
    pub(super) fn part(&self, at: usize) -> &str {
        self.parts.get(at).map_or("", String::as_str)
    }

    /// What the query says.
    pub(super) fn query(&self) -> Query<'_> {
        Query(self.query.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect())
    }

    /// What the body says. None is an empty object; what is deeper than any is refused by the parser.
    pub(super) fn body<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        let body = if self.body.is_empty() { b"{}" } else { &*self.body };
        // A list would be taken for the fields in their order.
        if body.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
            return Err(Problem::malformed("the body must be a JSON object"));
        }
        // The parser repeats what it did not expect.
        serde_json::from_slice(body).map_err(|error| Problem::malformed(format!("the body: {}", escape(&error.to_string()))))
    }
}

/// The values of a query that nobody took yet.
pub(super) struct Query<'a>(BTreeMap<&'a str, &'a str>);

impl<'a> Query<'a> {
    /// Takes a value.
    pub(super) fn take(&mut self, name: &str) -> Option<&'a str> {
        self.0.remove(name)
    }

    /// Takes a number.
    pub(super) fn number(&mut self, name: &str) -> Result<Option<u64>, Problem> {
        let parse = |text: &str| text.parse().map_err(|_| Problem::malformed(format!("`{name}` must be a whole number")));
        self.take(name).map(parse).transpose()
    }

    /// Nothing may be left.
    pub(super) fn finish(self) -> Result<(), Problem> {
        match self.0.keys().next() {
            None => Ok(()),
            Some(name) => Err(Problem::malformed(format!("there is no `{}` to ask for here", escape(name)))),
        }
    }
}

/// What a client says of itself: a name and no proof. Of a `User-Agent` only the first product counts, without its version.
fn client(headers: &HeaderMap) -> Option<&str> {
    let named = text(headers, CLIENT).filter(|name| !name.trim().is_empty());
    named.or_else(|| text(headers, USER_AGENT.as_str())?.split(['/', ' ', '(']).next())
}

/// The text of a field; nothing where it is none, or there twice.
fn text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let mut values = headers.get_all(name).iter();
    let first = values.next().and_then(|value| value.to_str().ok());
    first.filter(|_| values.next().is_none())
}

fn query(text: &str) -> Result<BTreeMap<String, String>, Problem> {
    target::query(text).map_err(|error| {
        Problem::malformed(match &error {
            BadQuery::Twice(name) => format!("`{}` is there twice", escape(name)),
            BadQuery::NotText | BadQuery::TooMany => error.to_string(),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_what_it_says_first() {
        let of = |fields: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in fields {
                headers.append(*name, http::HeaderValue::from_static(value));
            }
            client(&headers).map(str::to_owned)
        };
        assert_eq!(of(&[("user-agent", "curl/8.5.0")]).as_deref(), Some("curl"));
        assert_eq!(of(&[("user-agent", "Mozilla (x) y/1")]).as_deref(), Some("Mozilla"));
        assert_eq!(of(&[("user-agent", "curl/8"), ("x-stockade-client", "bot")]).as_deref(), Some("bot"));
        assert_eq!(of(&[("user-agent", "curl/8"), ("x-stockade-client", " ")]).as_deref(), Some("curl"));
        assert_eq!(of(&[]), None);
    }
}
