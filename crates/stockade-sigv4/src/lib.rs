//! Signature Version 4 of AWS: the header that carries it, what is signed, and the signature. The broker signs its own requests with it, and
//! egress those that a program signed with made-up keys.
//!
//! Pure: no clock, no I/O. Headers that are read come from inside a sandbox, and are read strictly. What holds a session token is wiped.
//!
//! <https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html>

use aws_lc_rs::{digest, hmac};
use zeroize::Zeroizing;

/// The only algorithm there is here.
pub const ALGORITHM: &str = "AWS4-HMAC-SHA256";
/// The asymmetric sibling, for which a made-up key cannot be exchanged.
pub const ASYMMETRIC: &str = "AWS4-ECDSA-P256-SHA256";
/// How a scope ends.
const TERMINATOR: &str = "aws4_request";
/// The longest name of a region or service.
const MAX_NAME: usize = 64;
/// The most headers that are signed.
const MAX_SIGNED: usize = 128;

/// What an `Authorization` header says of a signature, but for the signature itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Which key.
    pub key_id: String,
    /// For which day, region and service.
    pub scope: Scope,
    /// Names of the signed headers: lower case, no two the same, `host` among them.
    pub signed: Vec<String>,
}

/// For what a key is derived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// `YYYYMMDD`.
    pub date: String,
    /// As in `eu-central-1`.
    pub region: String,
    /// As in `s3`.
    pub service: String,
}

/// Why a header is not taken, in words for the program.
pub type Unreadable = &'static str;

impl Claim {
    /// Reads `AWS4-HMAC-SHA256 Credential=…, SignedHeaders=…, Signature=…`.
    pub fn parse(header: &str) -> Result<Self, Unreadable> {
        if header.starts_with(ASYMMETRIC) {
            return Err("it is a signature of version 4A (AWS4-ECDSA-P256-SHA256); set a region instead of signing for several");
        }
        let rest = header.strip_prefix(ALGORITHM).and_then(|rest| rest.strip_prefix(' '));
        let rest = rest.ok_or("only signatures of version 4 (AWS4-HMAC-SHA256) are made")?;
        let malformed = "its `authorization` header is malformed";
        let (mut credential, mut signed, mut signature) = (None, None, None);
        for part in rest.split(',') {
            let (name, value) = part.trim_ascii().split_once('=').ok_or(malformed)?;
            let place = match name {
                "Credential" => &mut credential,
                "SignedHeaders" => &mut signed,
                "Signature" => &mut signature,
                _ => return Err(malformed),
            };
            if place.replace(value).is_some() {
                return Err(malformed);
            }
        }
        let (Some(credential), Some(signed), Some(signature)) = (credential, signed, signature) else { return Err(malformed) };
        if signature.len() != 64 || !signature.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(malformed);
        }
        let mut parts = credential.split('/');
        let (Some(key_id), Some(date), Some(region), Some(service), Some(TERMINATOR), None) =
            (parts.next(), parts.next(), parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(malformed);
        };
        let is_name = |text: &str| {
            (1..=MAX_NAME).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
        };
        let is_date = date.len() == 8 && date.bytes().all(|byte| byte.is_ascii_digit());
        if key_id.is_empty() || !is_date || !is_name(region) || !is_name(service) {
            return Err(malformed);
        }
        let scope = Scope { date: date.to_owned(), region: region.to_owned(), service: service.to_owned() };
        Ok(Self { key_id: key_id.to_owned(), scope, signed: signed_headers(signed).ok_or(malformed)? })
    }
}

fn signed_headers(text: &str) -> Option<Vec<String>> {
    let is_header = |name: &&str| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(&byte))
    };
    let mut names: Vec<String> = Vec::new();
    for name in text.split(';') {
        if names.len() == MAX_SIGNED || !is_header(&name) || names.iter().any(|known| known == name) {
            return None;
        }
        names.push(name.to_owned());
    }
    names.iter().any(|name| name == "host").then_some(names)
}

impl Scope {
    /// Whether the service takes paths as they are encoded on the wire; all others have them encoded twice.
    pub fn is_store(&self) -> bool {
        self.service == "s3" || self.service.starts_with("s3-") || self.service == "s3express"
    }

    fn text(&self) -> String {
        format!("{}/{}/{}/{TERMINATOR}", self.date, self.region, self.service)
    }
}

/// What is signed.
#[derive(Debug, Clone, Copy)]
pub struct Signable<'a> {
    /// The method.
    pub method: &'a str,
    /// The path as it is sent.
    pub path: &'a str,
    /// The query as it is sent, without `?`.
    pub query: &'a str,
    /// Name, in lower case, and value of each signed header, by name.
    pub headers: &'a [(&'a str, &'a [u8])],
    /// The body's hash, or what stands for it.
    pub payload: &'a str,
    /// `YYYYMMDDTHHMMSSZ`.
    pub moment: &'a str,
}

impl Signable<'_> {
    /// The whole `Authorization` header.
    pub fn authorization(&self, scope: &Scope, key_id: &str, secret: &str) -> Zeroizing<String> {
        let names = self.names();
        let signature = self.signature(scope, secret);
        let header = format!("{ALGORITHM} Credential={key_id}/{}, SignedHeaders={names}, Signature={signature}", scope.text());
        Zeroizing::new(header)
    }

    /// The signature, in hexadecimal.
    pub fn signature(&self, scope: &Scope, secret: &str) -> String {
        let text = format!("{ALGORITHM}\n{}\n{}\n{}", self.moment, scope.text(), hash(&self.canonical(scope)));
        let mut key = Zeroizing::new(format!("AWS4{secret}").into_bytes());
        for part in [scope.date.as_str(), &scope.region, &scope.service, TERMINATOR, &text] {
            key = Zeroizing::new(hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), part.as_bytes()).as_ref().to_vec());
        }
        hex(&key)
    }

    /// The request in the form that is hashed.
    fn canonical(&self, scope: &Scope) -> Zeroizing<Vec<u8>> {
        let path = if scope.is_store() { encoded_once(self.path) } else { encoded_twice(self.path) };
        let head = format!("{}\n{path}\n{}\n", self.method, sorted_query(self.query));
        let end = format!("\n{}\n{}", self.names(), self.payload);
        let room: usize = self.headers.iter().map(|(name, value)| name.len() + value.len() + 2).sum();
        // At once as long as it will be, so that nothing of it is left where it was before.
        let mut text = Zeroizing::new(Vec::with_capacity(head.len() + room + end.len()));
        text.extend_from_slice(head.as_bytes());
        for (name, value) in self.headers {
            text.extend_from_slice(name.as_bytes());
            text.push(b':');
            push_single_spaced(&mut text, value);
            text.push(b'\n');
        }
        text.extend_from_slice(end.as_bytes());
        text
    }

    fn names(&self) -> String {
        self.headers.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";")
    }
}

/// SHA-256 in hexadecimal.
pub fn hash(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

/// The path with every byte encoded that must be, and none twice.
fn encoded_once(path: &str) -> String {
    let segments = path.split('/').map(|segment| encode(&decode(segment)));
    segments.collect::<Vec<_>>().join("/")
}

/// The path without dots and empty segments, and what was encoded encoded once more.
fn encoded_twice(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(kept.pop()),
            other => kept.push(other),
        }
    }
    let mut text: String = kept.iter().flat_map(|segment| ["/".to_owned(), encode(segment.as_bytes())]).collect();
    let ends_open = ["/", "/.", "/.."].iter().any(|end| path.ends_with(end));
    if ends_open || text.is_empty() {
        text.push('/');
    }
    text
}

/// The query by name and value, each encoded strictly. A `+` is read as the space that servers take it for.
fn sorted_query(query: &str) -> String {
    let mut pairs: Vec<(String, String)> = Vec::new();
    for part in query.split('&').filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let again = |text: &str| encode(&decode(&text.replace('+', " ")));
        pairs.push((again(name), again(value)));
    }
    pairs.sort();
    pairs.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&")
}

fn push_single_spaced(text: &mut Vec<u8>, value: &[u8]) {
    let words = value.split(|byte| *byte == b' ' || *byte == b'\t').filter(|word| !word.is_empty());
    for (at, word) in words.enumerate() {
        if at > 0 {
            text.push(b' ');
        }
        text.extend_from_slice(word);
    }
}

fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(byte) {
            text.push(char::from(*byte));
        } else {
            text.push('%');
            text.push_str(&hex(&[*byte]).to_ascii_uppercase());
        }
    }
    text
}

/// What `%XX` stands for; a `%` before anything else is itself.
pub fn decode(text: &str) -> Vec<u8> {
    let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16)).map(|digit| digit as u8);
    let (mut out, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        match (*first, digit(after.first()), digit(after.get(1))) {
            (b'%', Some(high), Some(low)) => {
                out.push(high << 4 | low);
                rest = after.get(2..).unwrap_or_default();
            }
            (other, _, _) => out.push(other),
        }
    }
    out
}

fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
    const MOMENT: &str = "20150830T123600Z";

    fn scope(service: &str) -> Scope {
        Scope { date: "20150830".into(), region: "us-east-1".into(), service: service.into() }
    }

    fn signature(method: &str, path: &str, query: &str, more: &[(&str, &str)], body: &[u8]) -> String {
        let mut headers = vec![("host", "example.amazonaws.com"), ("x-amz-date", MOMENT)];
        headers.extend(more);
        headers.sort_unstable();
        let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
        let payload = hash(body);
        Signable { method, path, query, headers: &headers, payload: &payload, moment: MOMENT }.signature(&scope("service"), SECRET)
    }

    /// The published suite of AWS (aws-sig-v4-test-suite).
    #[test]
    fn the_published_examples_come_out_the_same() {
        let form = [("content-type", "application/x-www-form-urlencoded")];
        for (name, method, path, query, headers, body, expected) in [
            ("get-vanilla", "GET", "/", "", &[][..], "", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
            (
                "get-vanilla-query-order-key",
                "GET",
                "/",
                "Param1=value2&Param1=Value1",
                &[],
                "",
                "eedbc4e291e521cf13422ffca22be7d2eb8146eecf653089df300a15b2382bd1",
            ),
            (
                "get-vanilla-query-order-key-case",
                "GET",
                "/",
                "Param2=value2&Param1=value1",
                &[],
                "",
                "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
            ),
            ("post-vanilla", "POST", "/", "", &[], "", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"),
            (
                "post-x-www-form-urlencoded",
                "POST",
                "/",
                "",
                &form,
                "Param1=value1",
                "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
            ),
            (
                "post-vanilla-query",
                "POST",
                "/",
                "Param1=value1",
                &[],
                "",
                "28038455d6de14eafc1f9222cf5aa6f1a96197d7deb8263271d420d138af7f11",
            ),
            (
                "get-header-key-duplicate",
                "GET",
                "/",
                "",
                &[("my-header1", "value2,value2,value1")],
                "",
                "c9d5ea9f3f72853aea855b47ea873832890dbdd183b4468f858259531a5138ea",
            ),
            (
                "post-header-key-case",
                "POST",
                "/",
                "",
                &[("my-header1", "value1")],
                "",
                "c5410059b04c1ee005303aed430f6e6645f61f4dc9e1461ec8f8916fdf18852c",
            ),
            (
                "get-header-value-trim",
                "GET",
                "/",
                "",
                &[("my-header1", " value1"), ("my-header2", " \"a   b   c\"")],
                "",
                "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736",
            ),
            ("get-slashes", "GET", "//example//", "", &[], "", "9a624bd73a37c9a373b5312afbebe7a714a789de108f0bdfe846570885f57e84"),
            (
                "get-relative-relative",
                "GET",
                "/example1/example2/../..",
                "",
                &[],
                "",
                "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
            ),
        ] {
            assert_eq!(signature(method, path, query, headers, body.as_bytes()), expected, "{name}");
        }
    }

    #[test]
    fn paths_and_queries_are_encoded_as_the_service_reads_them() {
        for (path, once, twice) in [
            ("/", "/", "/"),
            ("/a%20b/c", "/a%20b/c", "/a%2520b/c"),
            ("/a:b+c", "/a%3Ab%2Bc", "/a%3Ab%2Bc"),
            ("/a%2fb", "/a%2Fb", "/a%252fb"),
            ("//a/./b/", "//a/./b/", "/a/b/"),
            ("/%zz%", "/%25zz%25", "/%25zz%25"),
            ("/~x_y-z.%C3%A9", "/~x_y-z.%C3%A9", "/~x_y-z.%25C3%25A9"),
        ] {
            assert_eq!((encoded_once(path).as_str(), encoded_twice(path).as_str()), (once, twice), "{path}");
        }
        assert_eq!(sorted_query("b=2&a=%2f/&a&&B=x y+z&a=1%"), "B=x%20y%20z&a=&a=%2F%2F&a=1%25&b=2");
        let mut spaced = Vec::new();
        push_single_spaced(&mut spaced, b"  \"a   b\tc\"  ");
        assert_eq!(spaced, b"\"a b c\"");
    }

    #[test]
    fn headers_are_read_strictly() {
        let good = format!(
            "{ALGORITHM} Credential=KEY/20150830/us-east-1/s3/aws4_request, SignedHeaders=host;x-amz-date, Signature={}",
            "0".repeat(64)
        );
        let claim = Claim::parse(&good).unwrap();
        assert_eq!(claim, Claim { key_id: "KEY".into(), scope: scope("s3"), signed: vec!["host".into(), "x-amz-date".into()] });
        assert!(Claim::parse(&good.replace(", ", ",")).is_ok());
        assert!(scope("s3").is_store() && scope("s3-outposts").is_store() && !scope("s3x").is_store() && !scope("sts").is_store());
        for (from, to) in [
            ("HMAC", "ECDSA-P256"),
            ("AWS4", "AWS3"),
            ("Credential", "credential"),
            ("KEY/", ""),
            ("KEY", ""),
            ("KEY", "KEY/x"),
            ("20150830", "2015083"),
            ("us-east-1", "us east"),
            ("us-east-1", "*"),
            ("aws4_request", "aws4"),
            ("host;", ""),
            ("host;", "host;host;"),
            ("host;", "host;;"),
            ("host;", "Host;"),
            (", Signature", ", Signature=0, Signature"),
            ("Signature=0", "Signature="),
            ("Signature=0", "Signature=x"),
            (", SignedHeaders", ", Other=1, SignedHeaders"),
        ] {
            assert!(Claim::parse(&good.replace(from, to)).is_err(), "{from} {to}");
        }
    }
}
