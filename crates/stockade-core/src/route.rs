//! What a request asks for, as rules write it: methods, and path patterns: `/repos/acme/*` (one segment each), `/repos/acme/**` (anything
//! below). Paths are compared after decoding, segment by segment.
//!
//! A path that a server might read as another one (dot segments, encoded slashes, backslashes, empty segments, control characters)
//! matches no pattern at all.

use crate::escape::escape;

/// The longest pattern.
const MAX_PATTERN: usize = 2048;
/// The longest method; the longest registered one has 17 letters.
const MAX_METHOD: usize = 32;

/// A method, in capitals.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Method(String);

/// Text that is no method.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a method: write it in capitals, as `GET`")]
pub struct BadMethod(String);

impl Method {
    /// Checks a method.
    pub fn parse(text: &str) -> Result<Self, BadMethod> {
        let fits = !text.is_empty() && text.len() <= MAX_METHOD && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-');
        if fits { Ok(Self(text.to_owned())) } else { Err(BadMethod(escape(text.get(..MAX_METHOD).unwrap_or(text)))) }
    }

    /// As it is sent.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Method {
    type Error = BadMethod;
    fn try_from(text: String) -> Result<Self, BadMethod> {
        Self::parse(&text)
    }
}

impl From<Method> for String {
    fn from(method: Method) -> Self {
        method.0
    }
}

/// A checked pattern.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PathPattern {
    segments: Vec<Segment>,
    text: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    Literal(Vec<u8>),
    /// `*`: one segment, whatever it is.
    One,
    /// `**`: none or more, only at the end.
    Rest,
}

/// Text that is no path pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a path pattern: {why}")]
pub struct BadPath {
    text: String,
    why: &'static str,
}

impl PathPattern {
    /// Checks a pattern.
    pub fn parse(text: &str) -> Result<Self, BadPath> {
        let bad = |why| BadPath { text: escape(text.get(..64).unwrap_or(text)), why };
        if text.len() > MAX_PATTERN {
            return Err(bad("it is too long"));
        }
        let parts = segments(text).ok_or_else(|| bad("write an absolute path without `.`, `..` or `//`"))?;
        let last = parts.len().saturating_sub(1);
        let mut checked = Vec::with_capacity(parts.len());
        for (index, part) in parts.into_iter().enumerate() {
            checked.push(match part.as_slice() {
                b"*" => Segment::One,
                b"**" if index == last => Segment::Rest,
                other if other.contains(&b'*') => return Err(bad("`*` stands for a whole segment, and `**` only at the end")),
                _ => Segment::Literal(part),
            });
        }
        Ok(Self { segments: checked, text: text.to_owned() })
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether a path (as [`segments`] gives it) is meant.
    pub fn matches(&self, path: &[Vec<u8>]) -> bool {
        let mut rest = path.iter();
        for segment in &self.segments {
            match segment {
                Segment::Rest => return true,
                Segment::One if rest.next().is_some_and(|part| !part.is_empty()) => {}
                Segment::Literal(wanted) if rest.next() == Some(wanted) => {}
                Segment::One | Segment::Literal(_) => return false,
            }
        }
        rest.next().is_none()
    }
}

impl TryFrom<String> for PathPattern {
    type Error = BadPath;
    fn try_from(text: String) -> Result<Self, BadPath> {
        Self::parse(&text)
    }
}

impl From<PathPattern> for String {
    fn from(pattern: PathPattern) -> Self {
        pattern.text
    }
}

/// A path's decoded segments; `None` where it could be read in two ways. An end in a slash is an empty last segment.
pub fn segments(path: &str) -> Option<Vec<Vec<u8>>> {
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let mut parts = path.strip_prefix('/')?.split('/').peekable();
    let mut segments = Vec::new();
    while let Some(part) = parts.next() {
        let segment = decode(part.as_bytes())?;
        let is_last = parts.peek().is_none();
        let odd = segment.iter().any(|byte| matches!(byte, b'/' | b'\\' | b'%' | b';' | 0..=0x1f | 0x7f));
        if odd || segment == b"." || segment == b".." || (segment.is_empty() && !is_last) {
            return None;
        }
        segments.push(segment);
    }
    Some(segments)
}

fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        if *byte != b'%' {
            out.push(*byte);
            continue;
        }
        let (high, low) = (hex(*bytes.next()?)?, hex(*bytes.next()?)?);
        out.push(high << 4 | low);
    }
    Some(out)
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_segments() {
        for (pattern, path, expected) in [
            ("/", "/", true),
            ("/", "/a", false),
            ("/a", "/a", true),
            ("/a", "/a/", false),
            ("/a", "/ab", false),
            ("/a/*", "/a/b", true),
            ("/a/*", "/a/", false),
            ("/a/*", "/a/b/c", false),
            ("/a/*/c", "/a/b/c?x=/y", true),
            ("/a/**", "/a", true),
            ("/a/**", "/a/b/c/", true),
            ("/a/**", "/ab", false),
            ("/a b/**", "/a%20b/c", true),
            ("/**", "/anything/at/all", true),
            ("/a/**", "/a/../b", false),
            ("/a/**", "/a/%2e%2E/b", false),
            ("/a/**", "/a/%2e/b", false),
            ("/a/**", "/a//b", false),
            ("/a/**", "/a/b%2fc", false),
            ("/a/**", "/a/b%5cc", false),
            ("/a/**", "/a/b\\c", false),
            ("/a/**", "/a/%252e%252e/b", false),
            ("/a/**", "/a/..;/b", false),
            ("/a/**", "/a/%", false),
            ("/a/**", "/a/%00", false),
            ("/a/**", "*", false),
        ] {
            let matches = segments(path).is_some_and(|path| PathPattern::parse(pattern).unwrap().matches(&path));
            assert_eq!(matches, expected, "{pattern} {path}");
        }
    }

    #[test]
    fn bad_patterns_and_methods_are_refused() {
        for text in ["", "a", "/a/../b", "/a*", "/**/a", "//", &format!("/{}", "a".repeat(MAX_PATTERN))] {
            assert!(PathPattern::parse(text).is_err(), "{text}");
        }
        for text in ["", "get", "GET ", "G\u{0}T", &"A".repeat(MAX_METHOD + 1)] {
            assert!(Method::parse(text).is_err(), "{text}");
        }
        assert_eq!(Method::parse("M-SEARCH").unwrap().as_str(), "M-SEARCH");
    }
}
