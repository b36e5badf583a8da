//! Finds placeholders in a request and puts values in: header values, Basic credentials, and query or body where a binding says so.
//!
//! Headers that servers like to repeat are left alone, as is the path. What is found is told as a set of secrets, so that the caller
//! can refuse a placeholder on its way to a wrong host before any value is asked for.

use ::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use bytes::{Bytes, BytesMut};
use memchr::memmem::Finder;
use zeroize::Zeroizing;

use super::SecretValue;
use super::basic;
use super::binding::{Bound, Place};

/// Headers that servers repeat in answers, errors, logs or redirects: a value there would come back or be kept.
const REPEATED: &[&str] = &[
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "access-control-request-headers",
    "access-control-request-method",
    "baggage",
    "cache-control",
    "content-disposition",
    "content-language",
    "content-location",
    "content-type",
    "correlation-id",
    "destination",
    "expect",
    "forwarded",
    "from",
    "host",
    "idempotency-key",
    "if-match",
    "if-none-match",
    "max-forwards",
    "origin",
    "prefer",
    "range",
    "referer",
    "request-id",
    "sec-websocket-extensions",
    "sec-websocket-key",
    "te",
    "traceparent",
    "tracestate",
    "trailer",
    "user-agent",
    "via",
    "warning",
    "x-amzn-trace-id",
    "x-b3-traceid",
    "x-correlation-id",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-http-method-override",
    "x-original-url",
    "x-request-id",
    "x-requested-with",
    "x-rewrite-url",
];

/// Which secrets' placeholders a request carries, as bits of their places in the list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Survey {
    /// Anywhere.
    pub(crate) present: u64,
    /// In a header where it is replaced.
    pub(crate) header: u64,
    /// In the query.
    pub(crate) query: u64,
}

/// Looks through head and target.
pub(crate) fn survey(bound: &[Bound], headers: &HeaderMap, target: &str) -> Survey {
    let mut survey = Survey::default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut decoded: Vec<Vec<u8>> = Vec::new();
    for name in [header::AUTHORIZATION, header::PROXY_AUTHORIZATION] {
        decoded.extend(headers.get_all(&name).iter().filter_map(|value| basic::decode(value.as_bytes())));
    }
    for (index, secret) in bound.iter().enumerate() {
        let bit = 1_u64.checked_shl(index as u32).unwrap_or(0);
        for (name, value) in headers {
            if secret.finder.find(value.as_bytes()).is_some() {
                survey.present |= bit;
                if !is_repeated(name) {
                    survey.header |= bit;
                }
            }
        }
        if decoded.iter().any(|text| secret.finder.find(text).is_some()) {
            survey.present |= bit;
            survey.header |= bit;
        }
        if in_target(secret, query.as_bytes()) {
            survey.present |= bit;
            survey.query |= bit;
        }
        if in_target(secret, path.as_bytes()) {
            survey.present |= bit;
        }
    }
    survey
}

/// Puts values into every header value that may hold them. A value made so is marked sensitive: HTTP/2 keeps it out of its tables.
pub(crate) fn replace_headers(headers: &mut HeaderMap, secrets: &[(&Bound, &SecretValue)]) {
    for (name, value) in headers.iter_mut() {
        if is_repeated(name) {
            continue;
        }
        let is_credentials = *name == header::AUTHORIZATION || *name == header::PROXY_AUTHORIZATION;
        let replaced = match basic::decode(value.as_bytes()).filter(|_| is_credentials) {
            Some(credentials) => replace_all(&credentials, secrets, SecretValue::expose).map(|text| basic::encode(&text)),
            None => replace_all(value.as_bytes(), secrets, SecretValue::expose),
        };
        // A value is checked to be header text when it is taken in, so this conversion cannot fail; if it did, the placeholder goes.
        if let Some(mut made) = replaced.and_then(|text| HeaderValue::from_bytes(&text).ok()) {
            made.set_sensitive(true);
            *value = made;
        }
    }
}

/// The target with values in its query, where there is one and a binding says so.
pub(crate) fn replace_query(target: &str, secrets: &[(&Bound, &SecretValue)]) -> Option<Zeroizing<String>> {
    let (path, query) = target.split_once('?')?;
    let mut query = Zeroizing::new(query.as_bytes().to_vec());
    let mut changed = false;
    for (bound, value) in secrets.iter().filter(|(bound, _)| bound.places.query == Place::Replace) {
        let escaped = percent_encode(value.expose());
        let forms = [bound.placeholder.clone(), percent_encode(&bound.placeholder).to_vec()];
        for form in forms {
            if let Some(text) = replace_one(&query, &Finder::new(&form), &escaped) {
                query = text;
                changed = true;
            }
        }
    }
    let query = std::str::from_utf8(&query).ok().filter(|_| changed)?;
    Some(Zeroizing::new(format!("{path}?{query}")))
}

/// Replaces placeholders in a body, wherever its pieces are cut.
#[derive(Debug)]
pub struct BodyReplacer {
    pairs: Vec<Pair>,
    held: BytesMut,
    used: u64,
}

#[derive(Debug)]
struct Pair {
    index: usize,
    finder: Finder<'static>,
    value: SecretValue,
}

impl BodyReplacer {
    /// For these secrets, each with its place in the list; `None` where none is bound to bodies.
    pub(crate) fn new<'a>(secrets: impl IntoIterator<Item = (usize, &'a Bound, &'a SecretValue)>) -> Option<Self> {
        let wanted = secrets.into_iter().filter(|(_, bound, _)| bound.places.body == Place::Replace);
        let pairs: Vec<_> =
            wanted.map(|(index, bound, value)| Pair { index, finder: bound.finder.clone(), value: value.clone() }).collect();
        (!pairs.is_empty()).then(|| Self { pairs, held: BytesMut::new(), used: 0 })
    }

    /// For tests and fuzzing: one value with its placeholder.
    pub fn for_value(placeholder: &[u8], value: &SecretValue) -> Self {
        let finder = Finder::new(placeholder).into_owned();
        Self { pairs: vec![Pair { index: 0, finder, value: value.clone() }], held: BytesMut::new(), used: 0 }
    }

    /// Takes a piece and gives what is certain by now.
    pub fn push(&mut self, piece: &[u8]) -> Bytes {
        self.held.extend_from_slice(piece);
        for Pair { index, finder, value } in &self.pairs {
            if let Some(text) = replace_one(&self.held, finder, value.expose()) {
                self.held = BytesMut::from(text.as_slice());
                self.used |= 1 << index;
            }
        }
        let open = self.pairs.iter().map(|pair| open_end(&self.held, pair.finder.needle())).max().unwrap_or(0);
        self.held.split_to(self.held.len() - open).freeze()
    }

    /// What still waits, at the end.
    pub fn finish(&mut self) -> Bytes {
        self.held.split().freeze()
    }

    /// Which secrets were put in since this was last asked, as bits.
    pub(crate) fn take_used(&mut self) -> u64 {
        std::mem::take(&mut self.used)
    }
}

/// Looks for placeholders in a body that goes to a host they are not for.
#[derive(Debug)]
pub(crate) struct BodyWatch {
    watched: Vec<(usize, Finder<'static>)>,
    longest: usize,
    tail: Vec<u8>,
}

impl BodyWatch {
    /// Watches for these secrets, each with its place in the list.
    pub(crate) fn new<'a>(secrets: impl IntoIterator<Item = (usize, &'a Bound)>) -> Option<Self> {
        let mut longest = 0;
        let mut watched = Vec::new();
        for (index, bound) in secrets {
            longest = longest.max(bound.placeholder.len());
            watched.push((index, bound.finder.clone()));
        }
        (!watched.is_empty()).then_some(Self { watched, longest, tail: Vec::new() })
    }

    /// The first that this piece completes.
    pub(crate) fn look(&mut self, piece: &[u8]) -> Option<usize> {
        let keep = self.longest.saturating_sub(1);
        if !self.tail.is_empty() {
            // Only what straddles the cut: the kept end and as much of the piece.
            self.tail.extend_from_slice(piece.get(..keep).unwrap_or(piece));
            let found = self.watched.iter().find(|(_, finder)| finder.find(&self.tail).is_some());
            if let Some((index, _)) = found {
                return Some(*index);
            }
        }
        let end = piece.get(piece.len().saturating_sub(keep)..).unwrap_or_default();
        if end.len() == keep || self.tail.is_empty() {
            self.tail.clear();
            self.tail.extend_from_slice(end);
        } else {
            // A short piece, which the kept end already holds.
            let surplus = self.tail.len().saturating_sub(keep);
            self.tail.drain(..surplus);
        }
        self.watched.iter().find(|(_, finder)| finder.find(piece).is_some()).map(|(index, _)| *index)
    }
}

fn is_repeated(name: &HeaderName) -> bool {
    REPEATED.binary_search(&name.as_str()).is_ok()
}

fn in_target(secret: &Bound, text: &[u8]) -> bool {
    if text.len() < secret.placeholder.len() {
        return false;
    }
    secret.finder.find(text).is_some()
        || (text.contains(&b'%') && Finder::new(percent_encode(&secret.placeholder).as_slice()).find(text).is_some())
}

/// `None` where nothing was replaced.
fn replace_all(text: &[u8], secrets: &[(&Bound, &SecretValue)], form: impl Fn(&SecretValue) -> &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let mut made: Option<Zeroizing<Vec<u8>>> = None;
    for (bound, value) in secrets {
        let current = made.as_ref().map_or(text, |text| text.as_slice());
        if let Some(text) = replace_one(current, &bound.finder, form(value)) {
            made = Some(text);
        }
    }
    made
}

fn replace_one(text: &[u8], finder: &Finder<'_>, value: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let mut found = finder.find_iter(text).peekable();
    found.peek()?;
    let mut out = Zeroizing::new(Vec::with_capacity(text.len() + value.len()));
    let mut from = 0;
    for at in found {
        out.extend_from_slice(text.get(from..at).unwrap_or_default());
        out.extend_from_slice(value);
        from = at + finder.needle().len();
    }
    out.extend_from_slice(text.get(from..).unwrap_or_default());
    Some(out)
}

/// How many bytes at the end might be the beginning of `needle`.
fn open_end(text: &[u8], needle: &[u8]) -> usize {
    let most = needle.len().saturating_sub(1).min(text.len());
    (1..=most).rev().find(|length| needle.get(..*length).is_some_and(|start| text.ends_with(start))).unwrap_or(0)
}

fn percent_encode(text: &[u8]) -> Zeroizing<Vec<u8>> {
    let mut out = Zeroizing::new(Vec::with_capacity(text.len() + 8));
    for byte in text {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(byte) {
            out.push(*byte);
        } else {
            out.extend_from_slice(format!("%{byte:02X}").as_bytes());
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use stockade_core::host::HostPattern;

    use super::super::binding::{Binding, Budget, Form, Places};
    use super::*;

    const PLACEHOLDER: &str = "ghp_fakefakefakefake";
    const VALUE: &str = "ghp_REALrealREAL/rea";

    fn bound(places: Places) -> Bound {
        let hosts = vec![HostPattern::parse("api.example").unwrap()];
        let (name, placeholder, budget) = ("TOKEN".to_owned(), PLACEHOLDER.to_owned(), Budget::default());
        Bound::new(Binding { name, placeholder, hosts, places, budget, form: Form::Plain }).unwrap()
    }

    fn value() -> SecretValue {
        SecretValue::new(VALUE.as_bytes().to_vec()).unwrap()
    }

    #[test]
    fn the_list_of_repeated_headers_is_sorted() {
        assert!(REPEATED.is_sorted());
    }

    #[test]
    fn headers_and_basic_are_replaced_and_repeated_ones_are_not() {
        use base64::Engine as _;
        let (bound, value) = (bound(Places::default()), value());
        let encode = |text: String| format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(text));
        let mut headers = HeaderMap::new();
        for (name, text) in [
            ("authorization", encode(format!("user:{PLACEHOLDER}"))),
            ("x-api-key", format!("{PLACEHOLDER},{PLACEHOLDER}")),
            ("user-agent", PLACEHOLDER.to_owned()),
            ("x-request-id", PLACEHOLDER.to_owned()),
            ("x-other", "plain".to_owned()),
        ] {
            headers.insert(name, text.parse().unwrap());
        }
        let all = [bound];
        assert_eq!(survey(&all, &headers, "/"), Survey { present: 1, header: 1, query: 0 });
        replace_headers(&mut headers, &[(&all[0], &value)]);
        assert_eq!(headers["authorization"], encode(format!("user:{VALUE}")));
        assert!(headers["authorization"].is_sensitive());
        assert_eq!(headers["x-api-key"], format!("{VALUE},{VALUE}"));
        assert_eq!(headers["user-agent"], PLACEHOLDER);
        assert_eq!(headers["x-request-id"], PLACEHOLDER);
        assert_eq!(headers["x-other"], "plain");
    }

    #[test]
    fn the_query_is_replaced_only_where_it_is_bound() {
        let (left, replaced) = (bound(Places::default()), bound(Places { query: Place::Replace, body: Place::Leave }));
        let target = format!("/a/{PLACEHOLDER}?key={PLACEHOLDER}&x=1");
        assert_eq!(replace_query(&target, &[(&left, &value())]), None);
        let expected = format!("/a/{PLACEHOLDER}?key=ghp_REALrealREAL%2Frea&x=1");
        assert_eq!(replace_query(&target, &[(&replaced, &value())]).unwrap().as_str(), expected);
        let all = [left];
        assert_eq!(survey(&all, &HeaderMap::new(), &target), Survey { present: 1, header: 0, query: 1 });
        assert_eq!(survey(&all, &HeaderMap::new(), &format!("/{PLACEHOLDER}")), Survey { present: 1, header: 0, query: 0 });
    }

    fn cut<'a>(text: &'a [u8], sizes: &[usize]) -> Vec<&'a [u8]> {
        let (mut rest, mut pieces) = (text, Vec::new());
        for size in sizes.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, after) = rest.split_at((*size).clamp(1, rest.len()));
            pieces.push(piece);
            rest = after;
        }
        pieces
    }

    proptest! {
        #[test]
        fn a_body_is_replaced_and_watched_however_it_is_cut(
            parts in prop::collection::vec(prop_oneof![Just(PLACEHOLDER.to_owned()), "[a-z_]{0,6}", Just("ghp_fake".to_owned())], 0..10),
            sizes in prop::collection::vec(1_usize..25, 1..6),
        ) {
            let text = parts.concat();
            let bound = bound(Places { query: Place::Leave, body: Place::Replace });
            let value = value();
            let mut replacer = BodyReplacer::new([(0, &bound, &value)]).unwrap();
            let mut watch = BodyWatch::new([(0, &bound)]).unwrap();
            let (mut out, mut seen) = (Vec::new(), false);
            for piece in cut(text.as_bytes(), &sizes) {
                out.extend_from_slice(&replacer.push(piece));
                seen |= watch.look(piece).is_some();
            }
            out.extend_from_slice(&replacer.finish());
            prop_assert_eq!(String::from_utf8(out).unwrap(), text.replace(PLACEHOLDER, VALUE));
            prop_assert_eq!(seen, text.contains(PLACEHOLDER));
        }

        #[test]
        fn substitute_then_scrub_is_the_identity(before in "[ -~]{0,30}", after in "[ -~]{0,30}") {
            let text = format!("{before}{PLACEHOLDER}{after}");
            prop_assume!(!text.contains(VALUE));
            let (bound, value) = (bound(Places::default()), value());
            let sent = replace_all(text.as_bytes(), &[(&bound, &value)], SecretValue::expose).unwrap();
            let mut scrubber = super::super::scrub::Scrubber::for_value(value.expose(), PLACEHOLDER.as_bytes()).unwrap();
            let mut back = scrubber.push(Bytes::copy_from_slice(&sent)).to_vec();
            back.extend_from_slice(&scrubber.finish());
            prop_assert_eq!(String::from_utf8(back).unwrap(), text);
        }
    }
}
