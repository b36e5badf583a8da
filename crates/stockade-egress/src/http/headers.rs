//! Header fields that belong to one connection, and those that must change because secrets are at stake.

use ::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use ::http::{Extensions, Method};
use hyper::ext::ReasonPhrase;

use crate::body::decode::DECODABLE;
use crate::secrets::needles::Needles;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

/// Removes what is between two neighbours only (RFC 9110, 7.6.1), and what `Connection` names.
pub(crate) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|text| text.split(','))
        .filter_map(|name| HeaderName::try_from(name.trim()).ok())
        // A client may not use this to remove what a decision or a framing rests on.
        .filter(|name| ![header::HOST, header::CONTENT_LENGTH, header::AUTHORIZATION, header::CONTENT_TYPE].contains(name))
        .collect();
    for name in named {
        headers.remove(name);
    }
    // `TE: trailers` is asked for by gRPC and means the same on the next leg.
    let trailers = headers.get(header::TE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"trailers"));
    for name in [
        header::CONNECTION,
        KEEP_ALIVE,
        PROXY_CONNECTION,
        header::PROXY_AUTHENTICATE,
        header::PROXY_AUTHORIZATION,
        header::TE,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
    ] {
        headers.remove(name);
    }
    if trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
}

/// Forgets the words after an answer's status, where it had any but the usual ones: nobody needs them, and a server could write a secret there.
pub(crate) fn remove_reason(extensions: &mut Extensions) {
    extensions.remove::<ReasonPhrase>();
}

/// Whether a request is one of the Model Context Protocol: it says so, or asks for what its transport must ask for. A server without the protocol
/// that is asked the same way over plain HTTP is refused too; that is rare, and HTTPS is the answer for it as well.
pub(crate) fn speaks_of_tools(method: &Method, headers: &HeaderMap) -> bool {
    if headers.contains_key("mcp-protocol-version") || headers.contains_key("mcp-session-id") || headers.contains_key("mcp-method") {
        return true;
    }
    let accepts = |kind: &str| {
        let values = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok()).flat_map(|text| text.split(','));
        values.map(|value| value.split(';').next().unwrap_or_default().trim()).any(|value| value.eq_ignore_ascii_case(kind))
    };
    method == Method::POST && accepts("application/json") && accepts("text/event-stream")
}

/// Removes from a request what would keep its answer from being searched: parts of bodies, and codings that cannot be decoded.
pub(crate) fn make_searchable(headers: &mut HeaderMap) {
    headers.remove(header::RANGE);
    headers.remove(header::IF_RANGE);
    headers.remove(header::SEC_WEBSOCKET_EXTENSIONS);
    let kept: Vec<String> = headers
        .get_all(header::ACCEPT_ENCODING)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|text| text.split(','))
        .map(str::trim)
        .filter(|coding| DECODABLE.contains(&coding.split(';').next().unwrap_or_default().trim().to_ascii_lowercase().as_str()))
        .map(str::to_owned)
        .collect();
    // Without the header a server may choose any coding, so it is said in any case.
    let text = if kept.is_empty() { "identity".to_owned() } else { kept.join(", ") };
    if let Ok(value) = HeaderValue::try_from(text) {
        headers.insert(header::ACCEPT_ENCODING, value);
    }
}

/// Takes values out of header values; tells in how many there was one.
pub(crate) fn scrub(headers: &mut HeaderMap, needles: &Needles) -> usize {
    let mut count = 0;
    for value in headers.values_mut() {
        if needles.is_in(value.as_bytes()) {
            let mut bytes = value.as_bytes().to_vec();
            needles.replace(&mut bytes);
            *value = HeaderValue::from_bytes(&bytes).unwrap_or(HeaderValue::from_static("***"));
            count += 1;
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    #[test]
    fn neighbours_fields_do_not_travel() {
        let mut given = headers(&[
            ("connection", "close, x-private, host"),
            ("x-private", "1"),
            ("host", "a"),
            ("te", "trailers"),
            ("proxy-authorization", "x"),
            ("upgrade", "x"),
            ("x-kept", "1"),
        ]);
        remove_hop_by_hop(&mut given);
        assert_eq!(given, headers(&[("host", "a"), ("te", "trailers"), ("x-kept", "1")]));
    }

    #[test]
    fn answers_stay_searchable() {
        let mut given = headers(&[("range", "bytes=0-3"), ("accept-encoding", "gzip, deflate;q=0.5, lzma, BR")]);
        make_searchable(&mut given);
        assert_eq!(given, headers(&[("accept-encoding", "gzip, deflate;q=0.5, BR")]));
        let mut given = headers(&[]);
        make_searchable(&mut given);
        assert_eq!(given, headers(&[("accept-encoding", "identity")]));
    }
}
