//! AWS Signature Version 4: from a request and a key to the header that proves it. Pure, and of no use to anything but AWS's services; nothing
//! here knows the broker, so it can move to where requests are signed again.
//!
//! Four steps, each a function: the request in its one canonical form, the text that is signed, the key of the day, the header.

use std::fmt::Write as _;
use std::time::SystemTime;

use aws_lc_rs::{digest, hmac};
use zeroize::Zeroizing;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// For what a signature is good.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scope<'a> {
    /// When: `20150830T123600Z`.
    pub(crate) time: &'a str,
    /// `us-east-1`.
    pub(crate) region: &'a str,
    /// `sts`.
    pub(crate) service: &'a str,
}

/// What is signed, as it goes over the wire.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Signable<'a> {
    /// `GET`.
    pub(crate) method: &'a str,
    /// Without the query.
    pub(crate) path: &'a str,
    /// How the path is written down.
    pub(crate) encoding: PathEncoding,
    /// Without `?`; empty where there is none.
    pub(crate) query: &'a str,
    /// Those that are signed: `host`, every `x-amz-…`, and what else should not change on the way.
    pub(crate) headers: &'a [(&'a str, &'a str)],
    /// The [`hash`] of the body, or the words that stand for it (`UNSIGNED-PAYLOAD`).
    pub(crate) payload: &'a str,
}

/// How often the path is percent-encoded before it is signed, once being as it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PathEncoding {
    /// S3.
    #[cfg_attr(not(test), expect(dead_code, reason = "S3's requests are signed elsewhere"))]
    Once,
    /// Every other service.
    Twice,
}

/// The value of the header `authorization`.
pub(crate) fn authorization(signable: &Signable<'_>, scope: Scope<'_>, access_key_id: &str, secret_access_key: &[u8]) -> String {
    let (canonical, names) = canonical_request(signable);
    let key = signing_key(secret_access_key, scope);
    let signature = hex(&sign(&key, &string_to_sign(&canonical, scope)));
    format!("{ALGORITHM} Credential={access_key_id}/{}, SignedHeaders={names}, Signature={signature}", scope.text())
}

/// The request in canonical form, and the names of the headers in it. Zeroed, since a session token is one of the headers.
pub(crate) fn canonical_request(signable: &Signable<'_>) -> (Zeroizing<String>, String) {
    let path = match (signable.encoding, signable.path) {
        (_, "") => "/".to_owned(),
        (PathEncoding::Once, path) => path.to_owned(),
        (PathEncoding::Twice, path) => encode(path.as_bytes(), b"/"),
    };
    let mut parameters: Vec<(String, String)> = signable
        .query
        .split('&')
        .filter(|parameter| !parameter.is_empty())
        .map(|parameter| parameter.split_once('=').unwrap_or((parameter, "")))
        .map(|(name, value)| (encode(&decode(name), b""), encode(&decode(value), b"")))
        .collect();
    parameters.sort();
    let query: Vec<String> = parameters.iter().map(|(name, value)| format!("{name}={value}")).collect();

    let mut names: Vec<String> = signable.headers.iter().map(|(name, _)| name.to_ascii_lowercase()).collect();
    names.sort();
    names.dedup();
    let mut text = Zeroizing::new(String::with_capacity(16 << 10));
    let _ = write!(text, "{}\n{path}\n{}\n", signable.method, query.join("&"));
    for name in &names {
        let mut separator = ':';
        text.push_str(name);
        // A header that is there twice is one with both values.
        for (_, value) in signable.headers.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name)) {
            text.push(separator);
            separator = ',';
            for (at, word) in value.split(' ').filter(|word| !word.is_empty()).enumerate() {
                text.push_str(if at == 0 { "" } else { " " });
                text.push_str(word);
            }
        }
        text.push('\n');
    }
    let names = names.join(";");
    let _ = write!(text, "\n{names}\n{}", signable.payload);
    (text, names)
}

/// The text that is signed.
pub(crate) fn string_to_sign(canonical: &str, scope: Scope<'_>) -> String {
    format!("{ALGORITHM}\n{}\n{}\n{}", scope.time, scope.text(), hash(canonical.as_bytes()))
}

/// The key that signs for one day, region and service.
pub(crate) fn signing_key(secret_access_key: &[u8], scope: Scope<'_>) -> Zeroizing<Vec<u8>> {
    let first = Zeroizing::new([b"AWS4".as_slice(), secret_access_key].concat());
    [scope.day(), scope.region, scope.service, "aws4_request"].iter().fold(first, |key, text| sign(&key, text))
}

/// SHA-256 in lower case.
pub(crate) fn hash(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

/// A moment as it is written in the header `x-amz-date`.
pub(crate) fn timestamp(now: SystemTime) -> Option<String> {
    Some(jiff::Timestamp::try_from(now).ok()?.strftime("%Y%m%dT%H%M%SZ").to_string())
}

impl Scope<'_> {
    fn day(&self) -> &str {
        self.time.split('T').next().unwrap_or_default()
    }

    fn text(&self) -> String {
        format!("{}/{}/{}/aws4_request", self.day(), self.region, self.service)
    }
}

fn sign(key: &[u8], text: &str) -> Zeroizing<Vec<u8>> {
    Zeroizing::new(hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(64), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

fn encode(bytes: &[u8], also: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(byte) || also.contains(byte) {
            out.push(char::from(*byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
        out
    })
}

/// What is not an escape stays as it is.
fn decode(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let digits = after.first_chunk::<2>().filter(|_| *first == b'%').and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped = digits.filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let byte = escaped.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        out.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { after.get(2..).unwrap_or_default() } else { after };
    }
    out
}

#[cfg(test)]
mod tests {
    //! The facts are those of AWS's own test suite (`aws-sig-v4-test-suite`).

    use super::*;

    const SECRET: &[u8] = b"wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
    const SCOPE: Scope<'static> = Scope { time: "20150830T123600Z", region: "us-east-1", service: "service" };

    fn check(method: &str, query: &str, more: &[(&str, &str)], body: &str, names: &str, signature: &str) {
        let headers = [&[("Host", "example.amazonaws.com"), ("X-Amz-Date", SCOPE.time)][..], more].concat();
        let payload = hash(body.as_bytes());
        let signable = Signable { method, path: "/", encoding: PathEncoding::Twice, query, headers: &headers, payload: &payload };
        let expected = format!(
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, SignedHeaders={names}, Signature={signature}"
        );
        assert_eq!(authorization(&signable, SCOPE, "AKIDEXAMPLE", SECRET), expected);
    }

    #[test]
    fn the_vectors_of_aws() {
        let plain = "host;x-amz-date";
        check("GET", "", &[], "", plain, "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31");
        check("POST", "", &[], "", plain, "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b");
        check("POST", "Param1=value1", &[], "", plain, "28038455d6de14eafc1f9222cf5aa6f1a96197d7deb8263271d420d138af7f11");
        check("GET", "Param2=value2&Param1=value1", &[], "", plain, "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500");
        let form = ("Content-Type", "application/x-www-form-urlencoded");
        let signature = "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a";
        check("POST", "", &[form], "Param1=value1", "content-type;host;x-amz-date", signature);
        let one = "host;my-header1;x-amz-date";
        let twice = [("My-Header1", "value2"), ("My-Header1", "value2"), ("My-Header1", "value1")];
        check("GET", "", &twice, "", one, "c9d5ea9f3f72853aea855b47ea873832890dbdd183b4468f858259531a5138ea");
        check("POST", "", &[("MY-HEADER1", "value1")], "", one, "c5410059b04c1ee005303aed430f6e6645f61f4dc9e1461ec8f8916fdf18852c");
        let blanks = [("My-Header1", " value1"), ("My-Header2", " \"a   b   c\"")];
        let signature = "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736";
        check("GET", "", &blanks, "", "host;my-header1;my-header2;x-amz-date", signature);
    }

    #[test]
    fn each_step_by_itself() {
        let headers =
            [("content-type", "application/x-www-form-urlencoded"), ("host", "example.amazonaws.com"), ("x-amz-date", SCOPE.time)];
        let payload = hash(b"Param1=value1");
        let signable =
            Signable { method: "POST", path: "/", encoding: PathEncoding::Twice, query: "", headers: &headers, payload: &payload };
        let (canonical, _) = canonical_request(&signable);
        let digest = "42a5e5bb34198acb3e84da4f085bb7927f2bc277ca766e6d19c73c2154021281";
        let expected = format!("AWS4-HMAC-SHA256\n20150830T123600Z\n20150830/us-east-1/service/aws4_request\n{digest}");
        assert_eq!(string_to_sign(&canonical, SCOPE), expected);
        let key = signing_key(SECRET, Scope { service: "iam", ..SCOPE });
        assert_eq!(hex(&key), "c4afb1cc5771d871763a393e44b703571b55cc28424d1a5e86da6ed3c154a4b9");
        let moment = SystemTime::UNIX_EPOCH + std::time::Duration::from_millis(1_440_938_160_999);
        assert_eq!(timestamp(moment).as_deref(), Some(SCOPE.time));
    }

    #[test]
    fn paths_and_queries_are_written_in_one_way_only() {
        let first = |path: &str, encoding: PathEncoding, query: &str| {
            let signable = Signable { method: "GET", path, encoding, query, headers: &[], payload: "" };
            canonical_request(&signable).0.lines().skip(1).take(2).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(first("/a%20b/c", PathEncoding::Twice, "b=%7e&a&b=%2f&%zz=%4"), "/a%2520b/c %25zz=%254&a=&b=%2F&b=~");
        assert_eq!(first("/a%20b/c", PathEncoding::Once, ""), "/a%20b/c ");
        assert_eq!(first("", PathEncoding::Twice, "&a=b=c&"), "/ a=b%3Dc");
    }
}
