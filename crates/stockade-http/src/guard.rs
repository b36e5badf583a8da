//! Judges the head of a request before anything else of it is read: the name it came by, the page it came from, the token it shows.

use http::header::{AUTHORIZATION, HOST, HeaderName, ORIGIN};
use http::{HeaderMap, Uri};

use crate::names::Names;
use crate::refusal::{Reason, Refusal};
use crate::token::TokenFile;

/// What anybody may ask: whether the server is there.
pub(crate) const HEALTH: &str = "/healthz";
const NEEDED: &str = "send `Authorization: Bearer stk_…`; `stockade serve --new-token` makes another token";

/// Judges heads.
#[derive(Debug)]
pub struct Guard {
    names: Names,
    token: TokenFile,
}

/// The head of a request, as far as it matters here.
#[derive(Debug, Clone, Copy)]
pub struct Head<'a> {
    /// What it is about.
    pub uri: &'a Uri,
    /// And the rest.
    pub headers: &'a HeaderMap,
}

impl Guard {
    /// Of a server with these names and this token.
    pub fn new(names: Names, token: TokenFile) -> Self {
        Self { names, token }
    }

    /// Lets a request in, or says why not.
    pub fn judge(&self, head: Head<'_>) -> Result<(), Refusal> {
        self.came_by_our_name(head)?;
        self.came_from_our_page(head.headers)?;
        if head.uri.path() == HEALTH { Ok(()) } else { self.shows_the_token(head.headers) }
    }

    fn came_by_our_name(&self, head: Head<'_>) -> Result<(), Refusal> {
        let host = only(head.headers, &HOST)?;
        let host = host.ok_or_else(|| Refusal::new(Reason::Malformed, "the request has no `Host`"))?;
        // A request may name the server twice; both must be right.
        let named = head.uri.authority().map(|authority| authority.as_str().as_bytes());
        if self.names.has(host) && named.is_none_or(|named| self.names.has(named)) {
            return Ok(());
        }
        Err(Refusal::new(Reason::Host, "the request's `Host` is not a name of this server"))
    }

    fn came_from_our_page(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        match only(headers, &ORIGIN)? {
            Some(origin) if !self.names.has_origin(origin) => {
                Err(Refusal::new(Reason::Origin, "pages of other origins may not talk to this server"))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn shows_the_token(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let shown = only(headers, &AUTHORIZATION)?.and_then(bearer);
        let Some(shown) = shown else { return Err(Refusal::new(Reason::Token, "a token is needed").with_hint(NEEDED)) };
        if self.token.opens(shown) {
            return Ok(());
        }
        Err(Refusal::new(Reason::Token, "that is not the token").with_hint(NEEDED))
    }
}

/// The value of a field that may be there once.
fn only<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<Option<&'h [u8]>, Refusal> {
    let mut values = headers.get_all(name).iter();
    let first = values.next();
    if values.next().is_some() {
        return Err(Refusal::new(Reason::Malformed, "`Host`, `Origin` and `Authorization` may be there once each"));
    }
    Ok(first.map(http::HeaderValue::as_bytes))
}

/// What follows `Bearer` and one space, the word in any case.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(fields: &[(&'static str, &str)], path: &str) -> Result<(), Reason> {
        let directory = tempfile::tempdir().unwrap();
        let (token, _) = TokenFile::open(&directory.path().join("http")).unwrap();
        let fresh = token.renew().unwrap();
        let guard = Guard::new(Names::new("127.0.0.1:7070".parse().unwrap(), None), token);
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, value.replace("TOKEN", fresh.reveal()).parse().unwrap());
        }
        let uri: Uri = path.parse().unwrap();
        guard.judge(Head { uri: &uri, headers: &headers }).map_err(|refusal| refusal.reason)
    }

    const OURS: (&str, &str) = ("host", "127.0.0.1:7070");

    #[test]
    fn the_token_opens_and_nothing_else_does() {
        let with = |value| judged(&[OURS, ("authorization", value)], "/mcp");
        assert_eq!(with("Bearer TOKEN"), Ok(()));
        assert_eq!(with("bearer TOKEN"), Ok(()));
        for bad in ["TOKEN", "Bearer  TOKEN", "Bearer TOKEN ", "Bearer TOKENx", "Basic TOKEN", "Bearer", "Bearer ", "", "Bearer stk_"] {
            assert_eq!(with(bad), Err(Reason::Token), "{bad}");
        }
        assert_eq!(judged(&[OURS], "/mcp"), Err(Reason::Token));
        assert_eq!(judged(&[OURS], "/"), Err(Reason::Token));
        assert_eq!(judged(&[OURS], "/healthz"), Ok(()));
        for near in ["/healthz/", "//healthz", "/healthz/../mcp", "/Healthz", "/healthz%2f"] {
            assert_eq!(judged(&[OURS], near), Err(Reason::Token), "{near}");
        }
        let twice = [OURS, ("authorization", "Bearer TOKEN"), ("authorization", "Bearer TOKEN")];
        assert_eq!(judged(&twice, "/mcp"), Err(Reason::Malformed));
    }

    #[test]
    fn names_and_pages_are_judged_before_the_token() {
        let token = ("authorization", "Bearer TOKEN");
        assert_eq!(judged(&[("host", "evil.example:7070"), token], "/mcp"), Err(Reason::Host));
        assert_eq!(judged(&[("host", "evil.example:7070")], "/healthz"), Err(Reason::Host));
        assert_eq!(judged(&[token], "/mcp"), Err(Reason::Malformed));
        assert_eq!(judged(&[OURS, OURS, token], "/mcp"), Err(Reason::Malformed));
        assert_eq!(judged(&[OURS, token], "http://evil.example/mcp"), Err(Reason::Host));
        assert_eq!(judged(&[OURS, token], "http://localhost:7070/mcp"), Ok(()));
        assert_eq!(judged(&[OURS, ("origin", "http://localhost:7070"), token], "/mcp"), Ok(()));
        for bad in ["http://evil.example", "null", "http://localhost:7071", "https://localhost:7070"] {
            assert_eq!(judged(&[OURS, ("origin", bad), token], "/mcp"), Err(Reason::Origin), "{bad}");
        }
    }
}
