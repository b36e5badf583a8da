//! HTTP towards providers: one request, one answer, both bounded in bytes and time. TLS always, but to this machine's own loopback.
//!
//! Redirects are not followed: a credential goes to the host that a person wrote down, and to no other.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ::http::Uri;
use ::http::header::{ACCEPT, CONTENT_TYPE, HOST, HeaderName, HeaderValue, USER_AGENT};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use zeroize::Zeroizing;

use crate::gone::Wait;

/// How long one exchange may take in all.
const MAX_TIME: Duration = Duration::from_secs(15);
/// The longest answer.
const MAX_ANSWER: usize = 1 << 20;
/// The longest head of an answer.
const MAX_HEAD: usize = 64 << 10;
/// The longest file of authorities.
const MAX_AUTHORITIES: u64 = 4 << 20;

/// A request.
pub(crate) struct Request<'a> {
    /// `GET`, `POST` …
    pub(crate) method: &'a str,
    /// Where, whole.
    pub(crate) url: &'a str,
    /// Headers beside those that every request has.
    pub(crate) headers: Vec<(&'static str, Zeroizing<String>)>,
    /// What is sent, and what it is.
    pub(crate) body: Option<(&'static str, Zeroizing<Vec<u8>>)>,
}

/// An answer.
pub(crate) struct Answer {
    /// The status.
    pub(crate) status: u16,
    body: Zeroizing<Vec<u8>>,
}

/// Why there is no answer. Nothing that was sent is in it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HttpError {
    #[error("`{0}` is no address of a provider: write https://HOST[:PORT]/…, or http:// for this machine's own loopback")]
    Url(String),
    #[error("a header or the method cannot be sent")]
    Head,
    #[error("the authorities in `{}` cannot be used: {why}", .path.display())]
    Authorities { path: PathBuf, why: String },
    #[error("there are no authorities on this machine that certificates could be checked with")]
    NoRoots,
    #[error("`{host}` cannot be reached: {why}")]
    Connect { host: String, why: String },
    #[error("TLS with `{host}` failed: {why}")]
    Tls { host: String, why: String },
    #[error("`{host}` does not speak HTTP as it should: {why}")]
    Http { host: String, why: String },
    #[error("`{0}` did not answer within 15 seconds")]
    Slow(String),
    #[error("nobody waits for it any more")]
    Unwanted,
    #[error("`{0}` answers with more than 1 MiB")]
    Long(String),
    #[error("`{host}` answers {status}, a redirect, which is not followed")]
    Redirect { host: String, status: u16 },
}

impl<'a> Request<'a> {
    /// Reads something.
    pub(crate) fn get(url: &'a str) -> Self {
        Self { method: "GET", url, headers: Vec::new(), body: None }
    }

    /// Sends a form.
    pub(crate) fn form(url: &'a str, fields: &[(&str, &str)]) -> Self {
        let mut text = Zeroizing::new(String::with_capacity(4096));
        for (name, value) in fields {
            if !text.is_empty() {
                text.push('&');
            }
            encode_into(&mut text, name);
            text.push('=');
            encode_into(&mut text, value);
        }
        let body = Zeroizing::new(text.as_bytes().to_vec());
        Self { method: "POST", url, headers: Vec::new(), body: Some(("application/x-www-form-urlencoded", body)) }
    }

    /// Sends JSON.
    pub(crate) fn json(url: &'a str, value: &serde_json::Value) -> Self {
        let body = Zeroizing::new(value.to_string().into_bytes());
        Self { method: "POST", url, headers: Vec::new(), body: Some(("application/json", body)) }
    }

    /// With one more header.
    pub(crate) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, Zeroizing::new(value.into())));
        self
    }

    /// With another method.
    pub(crate) fn method(self, method: &'a str) -> Self {
        Self { method, ..self }
    }
}

impl Answer {
    /// One that was had in another way.
    pub(crate) fn new(status: u16, body: Vec<u8>) -> Self {
        Self { status, body: Zeroizing::new(body) }
    }

    /// The answer as JSON. What it is instead is not said: it may hold a value.
    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T, String> {
        serde_json::from_slice(&self.body).map_err(|error| {
            let what = match error.classify() {
                serde_json::error::Category::Data => "the JSON that it answers lacks something, or has something of another kind",
                serde_json::error::Category::Syntax | serde_json::error::Category::Eof => "what it answers is not JSON",
                serde_json::error::Category::Io => "what it answers cannot be read",
            };
            what.to_owned()
        })
    }

    /// The bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.body
    }

    /// What a provider says about a failure, in the members that providers use for that; nothing else of the answer is repeated.
    pub(crate) fn said(&self) -> String {
        let Ok(value) = serde_json::from_slice::<serde_json::Value>(&self.body) else { return "no reason that can be read".to_owned() };
        let mut words: Vec<String> = Vec::new();
        for member in ["error", "error_description", "message", "errors", "reason"] {
            match value.get(member) {
                Some(serde_json::Value::String(text)) => words.push(text.clone()),
                Some(serde_json::Value::Array(items)) => words.extend(items.iter().filter_map(|item| Some(item.as_str()?.to_owned()))),
                Some(inner @ serde_json::Value::Object(_)) => {
                    words.extend(["status", "message"].iter().filter_map(|member| Some(inner.get(member)?.as_str()?.to_owned())));
                }
                Some(serde_json::Value::Null | serde_json::Value::Bool(_) | serde_json::Value::Number(_)) | None => {}
            }
        }
        if words.is_empty() { "no reason that can be read".to_owned() } else { words.join(": ") }
    }
}

/// A base address and a path below it.
pub(crate) fn below(base: &str, path: &str) -> String {
    format!("{}/{}", base.trim_end_matches('/'), path.trim_start_matches('/'))
}

/// Whether a request could go there: TLS, or this machine's own loopback.
pub(crate) fn is_address(url: &str) -> bool {
    Target::parse(url).is_ok()
}

/// One segment of a path or a value of a query or form.
pub(crate) fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    encode_into(&mut out, text);
    out
}

fn encode_into(out: &mut String, text: &str) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let hex = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0').to_ascii_uppercase();
            out.extend(['%', hex(byte >> 4), hex(byte & 15)]);
        }
    }
}

/// Sends a request and reads the whole answer.
pub(crate) fn send(request: &Request<'_>, ca_file: Option<&Path>) -> Result<Answer, HttpError> {
    let target = Target::parse(request.url)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| HttpError::Connect { host: target.host.clone(), why: error.to_string() })?;
    runtime.block_on(async {
        let exchange = Box::pin(exchange(request, &target, ca_file));
        tokio::select! {
            answer = tokio::time::timeout(MAX_TIME, exchange) => answer.unwrap_or_else(|_| Err(HttpError::Slow(target.host.clone()))),
            () = Wait::begin().end() => Err(HttpError::Unwanted),
        }
    })
}

/// Where a request goes.
struct Target {
    host: String,
    port: u16,
    tls: Tls,
    authority: String,
    path: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Tls {
    Yes,
    No,
}

impl Target {
    fn parse(url: &str) -> Result<Self, HttpError> {
        let bad = || HttpError::Url(stockade_core::escape::escape(url.get(..200).unwrap_or(url)));
        let uri: Uri = url.parse().map_err(|_| bad())?;
        let authority = uri.authority().ok_or_else(bad)?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() || authority.as_str().contains('@') {
            return Err(bad());
        }
        let local = host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
        let tls = match uri.scheme_str() {
            Some("https") => Tls::Yes,
            Some("http") if local => Tls::No,
            Some(_) | None => return Err(bad()),
        };
        let port = authority.port_u16().unwrap_or(if tls == Tls::Yes { 443 } else { 80 });
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        Ok(Self { port, tls, authority: authority.as_str().to_owned(), path, host })
    }
}

async fn exchange(request: &Request<'_>, target: &Target, ca_file: Option<&Path>) -> Result<Answer, HttpError> {
    let connect = |error: std::io::Error| HttpError::Connect { host: target.host.clone(), why: error.to_string() };
    let stream = TcpStream::connect((target.host.as_str(), target.port)).await.map_err(connect)?;
    let _ = stream.set_nodelay(true);
    if target.tls == Tls::No {
        return speak(request, target, stream).await;
    }
    let failed = |why: String| HttpError::Tls { host: target.host.clone(), why };
    let name = ServerName::try_from(target.host.clone()).map_err(|error| failed(error.to_string()))?;
    let connector = tokio_rustls::TlsConnector::from(config(ca_file)?);
    let stream = connector.connect(name, stream).await.map_err(|error| failed(error.to_string()))?;
    speak(request, target, stream).await
}

async fn speak<S>(request: &Request<'_>, target: &Target, stream: S) -> Result<Answer, HttpError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let failed = |error: hyper::Error| HttpError::Http { host: target.host.clone(), why: error.to_string() };
    let mut builder = hyper::client::conn::http1::Builder::new();
    builder.max_buf_size(MAX_HEAD);
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(failed)?;
    let work = async {
        let answer = sender.send_request(head(request, target)?).await.map_err(failed)?;
        let status = answer.status();
        if status.is_redirection() {
            return Err(HttpError::Redirect { host: target.host.clone(), status: status.as_u16() });
        }
        let body = Limited::new(answer.into_body(), MAX_ANSWER).collect().await.map_err(|error| {
            if error.downcast_ref::<http_body_util::LengthLimitError>().is_some() {
                HttpError::Long(target.host.clone())
            } else {
                HttpError::Http { host: target.host.clone(), why: error.to_string() }
            }
        })?;
        Ok(Answer::new(status.as_u16(), body.to_bytes().to_vec()))
    };
    let mut work = std::pin::pin!(work);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        answer = &mut work => answer,
        // It ended; what came before is still to be read.
        _ = &mut connection => work.await,
    }
}

fn head(request: &Request<'_>, target: &Target) -> Result<hyper::Request<Full<Bytes>>, HttpError> {
    let mut builder = hyper::Request::builder()
        .method(request.method)
        .uri(&target.path)
        .header(HOST, &target.authority)
        .header(USER_AGENT, concat!("stockade/", env!("CARGO_PKG_VERSION")));
    if request.headers.iter().all(|(name, _)| !name.eq_ignore_ascii_case("accept")) {
        builder = builder.header(ACCEPT, "application/json");
    }
    for (name, value) in &request.headers {
        let mut value = HeaderValue::from_str(value).map_err(|_| HttpError::Head)?;
        value.set_sensitive(true);
        builder = builder.header(HeaderName::from_bytes(name.as_bytes()).map_err(|_| HttpError::Head)?, value);
    }
    let body = match &request.body {
        None => Bytes::new(),
        Some((kind, body)) => {
            builder = builder.header(CONTENT_TYPE, *kind);
            Bytes::copy_from_slice(body)
        }
    };
    builder.body(Full::new(body)).map_err(|_| HttpError::Head)
}

fn config(ca_file: Option<&Path>) -> Result<Arc<ClientConfig>, HttpError> {
    let mut store = RootCertStore::empty();
    match ca_file {
        None => drop(store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs)),
        Some(path) => {
            let failed = |why: String| HttpError::Authorities { path: path.to_owned(), why };
            let length = std::fs::metadata(path).map_err(|error| failed(error.to_string()))?.len();
            if length > MAX_AUTHORITIES {
                return Err(failed("the file is too long".to_owned()));
            }
            let found = CertificateDer::pem_file_iter(path).map_err(|error| failed(error.to_string()))?;
            let found = found.collect::<Result<Vec<_>, _>>().map_err(|error| failed(error.to_string()))?;
            store.add_parsable_certificates(found);
        }
    }
    if store.is_empty() {
        return Err(HttpError::NoRoots);
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|_| HttpError::NoRoots)?.with_root_certificates(store).with_no_client_auth();
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;

    /// A server that says one thing, whatever it is asked.
    fn server(says: Vec<u8>) -> (String, std::thread::JoinHandle<Vec<u8>>) {
        #[expect(clippy::disallowed_methods, reason = "a provider on loopback, for tests")]
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/path?x=1", listener.local_addr().unwrap());
        let served = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = vec![0; 4096];
            let count = stream.read(&mut asked).unwrap();
            asked.truncate(count);
            let _ = stream.write_all(&says);
            asked
        });
        (url, served)
    }

    fn ask(says: &[u8]) -> Result<Answer, String> {
        let (url, served) = server(says.to_vec());
        let answer = send(&Request::form(&url, &[("a b", "c&d"), ("e", "")]), None);
        let asked = String::from_utf8(served.join().unwrap()).unwrap();
        assert!(asked.starts_with("POST /path?x=1 HTTP/1.1\r\n") && asked.ends_with("a%20b=c%26d&e="), "{asked}");
        answer.map_err(|error| error.to_string())
    }

    #[test]
    fn one_request_and_one_answer() {
        let answer = ask(b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n{\"a\":1}").unwrap();
        assert_eq!((answer.status, answer.json::<serde_json::Value>().unwrap()), (200, serde_json::json!({"a": 1})));
        let answer = ask(b"HTTP/1.1 403 No\r\ncontent-length: 38\r\n\r\n{\"errors\":[\"denied\"],\"data\":\"private\"}").unwrap();
        assert_eq!((answer.status, answer.said().as_str()), (403, "denied"));
        assert!(
            ask(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{x").unwrap().json::<serde_json::Value>().unwrap_err().contains("not JSON")
        );
    }

    #[test]
    fn providers_that_lie_are_refused() {
        assert!(
            ask(b"HTTP/1.1 302 Found\r\nlocation: https://elsewhere.example/\r\ncontent-length: 0\r\n\r\n")
                .is_err_and(|e| e.contains("redirect"))
        );
        let endless = [b"HTTP/1.1 200 OK\r\ncontent-length: 1073741824\r\n\r\n".to_vec(), vec![b'x'; 2 << 20]].concat();
        assert!(ask(&endless).is_err_and(|error| error.contains("1 MiB")));
        let head = [b"HTTP/1.1 200 OK\r\nx: ".to_vec(), vec![b'x'; 1 << 20]].concat();
        assert!(ask(&head).is_err());
        assert!(ask(b"SSH-2.0-OpenSSH\r\n").is_err());
        assert!(ask(b"").is_err());
    }

    #[test]
    fn only_tls_leaves_the_machine() {
        for bad in ["http://vault.example/", "ftp://a/", "vault", "https://u:p@a/", "", "http://127.0.0.1.example/", "https://"] {
            assert!(matches!(Target::parse(bad), Err(HttpError::Url(_))), "{bad}");
        }
        for good in ["https://vault.example:8200/v1", "http://127.0.0.1:1/", "http://[::1]:1/", "http://localhost/x"] {
            assert!(Target::parse(good).is_ok(), "{good}");
        }
    }
}
