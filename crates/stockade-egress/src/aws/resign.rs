//! Finds requests that were signed with a placeholder, and signs them anew as they will be sent.
//!
//! ```text
//! approve: recognise ─▶ values ─▶ keys        send: body read where it must be hashed ─▶ sign ─▶ host
//!     └─ presigned, version 4A, signed chunks, a malformed header ─▶ refused
//! ```

use std::sync::Arc;

use ::http::header::{self, HeaderMap, HeaderValue};
use ::http::{Method, Uri};
use stockade_sigv4::{Claim, Signable, decode, hash};

use super::keys::Keys;
use crate::refusal::Refusal;
use crate::secrets::binding::{Bound, Form};

/// The longest body that is held to be hashed.
pub(crate) const MAX_HASHED: u64 = 8 << 20;

const MOMENT: &str = "x-amz-date";
const TOKEN: &str = "x-amz-security-token";
const CONTENT: &str = "x-amz-content-sha256";

/// A request that a program signed.
#[derive(Debug)]
pub(crate) struct Signed {
    /// Which secret it is to be signed with, by its place in the list.
    pub(crate) index: usize,
    name: Arc<str>,
    claim: Claim,
    moment: String,
    payload: Payload,
}

/// What is signed of the body.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Payload {
    /// What the request says.
    AsSent(String),
    /// Its hash, made here.
    Hashed,
}

/// Looks for a signature with a placeholder of a secret that is for this host, as bits.
pub(crate) fn recognise(bound: &[Bound], here: u64, headers: &HeaderMap, uri: &Uri) -> Result<Option<Signed>, Refusal> {
    let keys = bound.iter().enumerate().filter(|(index, bound)| here >> index & 1 == 1 && bound.form == Form::AwsKeys);
    for (index, bound) in keys {
        let refuse = |why| Refusal::Signature { name: Arc::clone(&bound.name), why };
        if is_presigned(bound, uri.query().unwrap_or_default()) {
            return Err(refuse("it is signed in its query (a presigned URL); let the program sign in the `authorization` header"));
        }
        let credentials: Vec<&HeaderValue> = headers.get_all(header::AUTHORIZATION).iter().collect();
        if !credentials.iter().any(|value| bound.finder.find(value.as_bytes()).is_some()) {
            continue;
        }
        let [value] = credentials.as_slice() else { return Err(refuse("it has several `authorization` headers")) };
        let text = value.to_str().map_err(|_| refuse("its `authorization` header is malformed"))?;
        let claim = Claim::parse(text).map_err(refuse)?;
        if claim.key_id.as_bytes() != bound.placeholder {
            return Err(refuse("its key is not exactly the placeholder"));
        }
        let moment = moment(headers, &claim).ok_or_else(|| refuse("`x-amz-date` must be there once, signed, of the day the key is for"))?;
        let payload = payload(headers, &claim).map_err(refuse)?;
        return Ok(Some(Signed { index, name: Arc::clone(&bound.name), claim, moment, payload }));
    }
    Ok(None)
}

/// Whether a parameter that names a key holds the placeholder: version 4, or the one before.
fn is_presigned(bound: &Bound, query: &str) -> bool {
    query.split('&').filter_map(|part| part.split_once('=')).any(|(name, value)| {
        let name = decode(name);
        let names_a_key = name.eq_ignore_ascii_case(b"X-Amz-Credential") || name.eq_ignore_ascii_case(b"AWSAccessKeyId");
        names_a_key && bound.finder.find(&decode(value)).is_some()
    })
}

fn is_signed(claim: &Claim, name: &str) -> bool {
    claim.signed.iter().any(|signed| signed == name)
}

fn only<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    value.to_str().ok()
}

/// When it was signed, in the form `YYYYMMDDTHHMMSSZ`.
fn moment(headers: &HeaderMap, claim: &Claim) -> Option<String> {
    let text = only(headers, MOMENT)?;
    let (day, time) = text.split_once('T')?;
    let time = time.strip_suffix('Z')?;
    let fits = day == claim.scope.date && time.len() == 6 && time.bytes().all(|byte| byte.is_ascii_digit());
    (fits && is_signed(claim, MOMENT)).then(|| text.to_owned())
}

fn payload(headers: &HeaderMap, claim: &Claim) -> Result<Payload, &'static str> {
    if !headers.contains_key(CONTENT) || !is_signed(claim, CONTENT) {
        return Ok(Payload::Hashed);
    }
    let text = only(headers, CONTENT).ok_or("`x-amz-content-sha256` is there more than once")?;
    let is_hash = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    match text {
        "UNSIGNED-PAYLOAD" | "STREAMING-UNSIGNED-PAYLOAD-TRAILER" => {}
        _ if is_hash => {}
        _ if text.starts_with("STREAMING-") => {
            return Err(
                "its body is signed chunk by chunk with the made-up key; turn that off (AWS_REQUEST_CHECKSUM_CALCULATION=when_required, or \
                 `chunkedEncodingEnabled(false)` in the SDK for Java)",
            );
        }
        _ => return Err("`x-amz-content-sha256` is not a hash"),
    }
    Ok(Payload::AsSent(text.to_owned()))
}

impl Signed {
    /// Whether the body must be read before the request can be signed.
    pub(crate) fn needs_body(&self) -> bool {
        self.payload == Payload::Hashed
    }

    /// Whether it is for a store of objects, whose answers are what somebody put there and never what was just sent.
    pub(crate) fn is_for_store(&self) -> bool {
        self.claim.scope.is_store()
    }

    /// What a body that is longer than what can be hashed is told.
    pub(crate) fn too_long(&self) -> Refusal {
        self.refuse("its body is longer than 8 MiB and has no `x-amz-content-sha256`")
    }

    /// Signs. To be called when nothing of the head changes any more but the place of the host, which is given as it will be sent.
    pub(crate) fn sign(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &mut HeaderMap,
        host: &str,
        keys: &Keys,
        body: &[u8],
    ) -> Result<(), Refusal> {
        headers.remove(TOKEN);
        let malformed = || self.refuse("its keys cannot be sent in a header");
        if let Some(token) = &keys.token {
            headers.insert(TOKEN, sensitive(token).ok_or_else(malformed)?);
        }
        let payload = match &self.payload {
            Payload::AsSent(text) => text.clone(),
            Payload::Hashed => hash(body),
        };
        // A header that does not travel further cannot be signed; AWS asks for none of those.
        let mut signed: Vec<(String, Vec<u8>)> = Vec::new();
        let token = keys.token.is_some().then_some(TOKEN);
        let names = self.claim.signed.iter().map(String::as_str).filter(|name| *name != TOKEN);
        for name in names.chain(token) {
            if name == header::HOST.as_str() {
                signed.push((name.to_owned(), host.as_bytes().to_vec()));
            } else if headers.contains_key(name) {
                let values: Vec<&[u8]> = headers.get_all(name).iter().map(HeaderValue::as_bytes).collect();
                signed.push((name.to_owned(), values.join(&b',')));
            }
        }
        signed.sort_unstable();
        let signed: Vec<(&str, &[u8])> = signed.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect();
        let (path, query) = (uri.path(), uri.query().unwrap_or_default());
        let signable = Signable { method: method.as_str(), path, query, headers: &signed, payload: &payload, moment: &self.moment };
        let made = signable.authorization(&self.claim.scope, &keys.id, &keys.secret);
        headers.insert(header::AUTHORIZATION, sensitive(&made).ok_or_else(malformed)?);
        Ok(())
    }

    fn refuse(&self, why: &'static str) -> Refusal {
        Refusal::Signature { name: Arc::clone(&self.name), why }
    }
}

fn sensitive(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use ::http::header::HeaderName;
    use stockade_core::host::HostPattern;

    use super::*;
    use crate::secrets::SecretValue;
    use crate::secrets::binding::{Binding, Budget, Places};

    const KEY: &str = "AKIASTANDSFORNOTHING";

    fn bound() -> Bound {
        let hosts = vec![HostPattern::parse("*.amazonaws.com").unwrap()];
        let (places, budget) = (Places::default(), Budget::default());
        Bound::new(Binding { name: "AWS".into(), placeholder: KEY.into(), hosts, places, budget, form: Form::AwsKeys }).unwrap()
    }

    fn headers(signed: &str, more: &[(&'static str, &str)]) -> HeaderMap {
        let text = format!(
            "AWS4-HMAC-SHA256 Credential={KEY}/20150830/us-east-1/s3/aws4_request, SignedHeaders={signed}, Signature={}",
            "0".repeat(64)
        );
        let pairs = [("authorization", text.as_str()), ("x-amz-date", "20150830T123600Z")];
        pairs.iter().chain(more).map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    fn why(headers: &HeaderMap, uri: &str) -> &'static str {
        match recognise(&[bound()], 1, headers, &uri.parse().unwrap()) {
            Err(Refusal::Signature { why, .. }) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_cannot_be_signed_anew_is_refused_in_words() {
        let plain = headers("host;x-amz-date", &[]);
        assert!(recognise(&[bound()], 1, &plain, &Uri::from_static("/")).unwrap().unwrap().needs_body());
        assert!(recognise(&[bound()], 0, &plain, &Uri::from_static("/")).unwrap().is_none());
        assert!(recognise(&[bound()], 1, &HeaderMap::new(), &Uri::from_static("/")).unwrap().is_none());
        let content = "x-amz-content-sha256";
        for (value, expected) in [
            ("UNSIGNED-PAYLOAD", None),
            ("STREAMING-UNSIGNED-PAYLOAD-TRAILER", None),
            ("STREAMING-AWS4-HMAC-SHA256-PAYLOAD", Some("chunk by chunk")),
            ("STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER", Some("chunk by chunk")),
            ("0123", Some("not a hash")),
        ] {
            let given = headers("host;x-amz-content-sha256;x-amz-date", &[(content, value)]);
            match expected {
                Some(text) => assert!(why(&given, "/").contains(text), "{value}"),
                None => assert!(!recognise(&[bound()], 1, &given, &Uri::from_static("/")).unwrap().unwrap().needs_body()),
            }
        }
        assert!(
            why(&headers("host;x-amz-content-sha256;x-amz-date", &[(content, "UNSIGNED-PAYLOAD"), (content, "x")]), "/")
                .contains("more than once")
        );
        for query in [
            "X-Amz-Credential=AKIASTANDSFORNOTHING%2F20150830",
            "x=1&x-amz-%63redential=%41KIASTANDSFORNOTHING",
            "AWSAccessKeyId=AKIASTANDSFORNOTHING",
        ] {
            assert!(why(&HeaderMap::new(), &format!("/?{query}")).contains("presigned"), "{query}");
        }
        // A key that is only spoken of is not a signature.
        let uri = Uri::from_static("/?Action=GetAccessKeyLastUsed&AccessKeyId=AKIASTANDSFORNOTHING");
        assert!(recognise(&[bound()], 1, &HeaderMap::new(), &uri).unwrap().is_none());
        assert!(why(&headers("host", &[]), "/").contains("x-amz-date"));
        assert!(why(&headers("host;x-amz-date", &[("x-amz-date", "20150830T123600Z")]), "/").contains("x-amz-date"));
        let mut other_day = headers("host;x-amz-date", &[]);
        other_day.insert("x-amz-date", HeaderValue::from_static("20150831T123600Z"));
        assert!(why(&other_day, "/").contains("x-amz-date"));
        let mut bad = headers("host;x-amz-date", &[]);
        for (text, expected) in [
            (format!("AWS4-ECDSA-P256-SHA256 Credential={KEY}/20150830/s3/aws4_request"), "4A"),
            (format!("AWS {KEY}:signature"), "version 4"),
            (format!("Bearer {KEY}"), "version 4"),
        ] {
            bad.insert("authorization", text.parse().unwrap());
            assert!(why(&bad, "/").contains(expected), "{text}");
        }
        let longer = headers("host;x-amz-date", &[])["authorization"].to_str().unwrap().replace(KEY, &format!("x{KEY}"));
        bad.insert("authorization", longer.parse().unwrap());
        assert!(why(&bad, "/").contains("exactly"));
        let mut twice = headers("host;x-amz-date", &[]);
        twice.append("authorization", HeaderValue::from_static("Basic x"));
        assert!(why(&twice, "/").contains("several"));
    }

    #[test]
    fn the_token_of_the_program_goes_and_the_real_one_is_signed() {
        let value = SecretValue::new(br#"{"AccessKeyId":"ASIAREAL","SecretAccessKey":"secret","Token":"real-token"}"#.to_vec()).unwrap();
        let mut given = headers("connection;host;x-amz-date;x-amz-security-token", &[("x-amz-security-token", "made-up")]);
        let signed = recognise(&[bound()], 1, &given, &Uri::from_static("/")).unwrap().unwrap();
        signed.sign(&Method::GET, &Uri::from_static("/"), &mut given, "h", &Keys::parse(&value).unwrap(), b"").unwrap();
        assert_eq!(given["x-amz-security-token"], "real-token");
        let text = given["authorization"].to_str().unwrap();
        assert!(text.starts_with(
            "AWS4-HMAC-SHA256 Credential=ASIAREAL/20150830/us-east-1/s3/aws4_request, SignedHeaders=host;x-amz-date;x-amz-security-token, "
        ));
        assert!(given["authorization"].is_sensitive() && given["x-amz-security-token"].is_sensitive());
        let value = SecretValue::new(br#"{"AccessKeyId":"AKIAREAL","SecretAccessKey":"secret"}"#.to_vec()).unwrap();
        signed.sign(&Method::GET, &Uri::from_static("/"), &mut given, "h", &Keys::parse(&value).unwrap(), b"").unwrap();
        assert!(!given.contains_key("x-amz-security-token"));
    }
}
