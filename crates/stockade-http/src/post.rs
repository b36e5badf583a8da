//! One request that this machine sends: HTTP over a stream that somebody else opened and leads where it may. Nothing here connects.
//!
//! Redirects are not followed and the answer's body is not read: whether it was taken is all that matters.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::task::JoinSet;

/// Who says so.
const AGENT: &str = concat!("stockade/", env!("CARGO_PKG_VERSION"));

/// Something to send.
#[derive(Debug, Clone)]
pub struct Post {
    /// Where to, whole: a proxy is asked.
    pub url: Uri,
    /// What is said besides what every request says.
    pub headers: HeaderMap,
    /// JSON.
    pub body: Bytes,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum PostError {
    /// Nobody answered in time.
    #[error("no answer within {0:?}")]
    Late(Duration),
    /// The other end does not speak HTTP, or went away.
    #[error("the answer is of no use")]
    Answer(#[from] hyper::Error),
    /// What is to be sent makes no request.
    #[error("this cannot be sent")]
    Request(#[from] http::Error),
}

impl Post {
    /// Sends it, and waits for the status of the answer.
    pub async fn send(&self, stream: UnixStream, patience: Duration) -> Result<StatusCode, PostError> {
        tokio::time::timeout(patience, self.converse(stream)).await.map_err(|_| PostError::Late(patience))?
    }

    async fn converse(&self, stream: UnixStream) -> Result<StatusCode, PostError> {
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let authority = self.url.authority().map(http::uri::Authority::as_str).unwrap_or_default();
        let mut request = Request::builder().method(Method::POST).uri(self.url.clone()).body(Full::new(self.body.clone()))?;
        request.headers_mut().extend(self.headers.clone());
        let own = [(HOST, authority), (USER_AGENT, AGENT), (CONTENT_TYPE, "application/json"), (CONNECTION, "close")];
        for (name, value) in own {
            request.headers_mut().insert(name, HeaderValue::from_str(value).map_err(http::Error::from)?);
        }
        // Driven beside, and dropped with the answer's head: what follows is nobody's business.
        let mut beside = JoinSet::new();
        beside.spawn(connection);
        Ok(sender.send_request(request).await?.status())
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// What the other end got, and what came of its answer.
    fn exchange(answer: &'static [u8], patience: Duration) -> (String, Result<StatusCode, PostError>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            let mut headers = HeaderMap::new();
            headers.insert("webhook-id", HeaderValue::from_static("msg_1"));
            let post = Post { url: "https://hooks.example.com:8443/in?x=1".parse().unwrap(), headers, body: Bytes::from_static(b"{}") };
            let other = async move {
                let mut got = Vec::new();
                while !got.ends_with(b"{}") {
                    assert!(theirs.read_buf(&mut got).await.unwrap() > 0);
                }
                theirs.write_all(answer).await.unwrap();
                (theirs, String::from_utf8(got).unwrap())
            };
            let ((_open, got), status) = tokio::join!(other, post.send(ours, patience));
            (got, status)
        })
    }

    #[test]
    fn a_request_names_everything_and_its_status_is_all_that_counts() {
        let long = Duration::from_secs(20);
        let (got, status) =
            exchange(b"HTTP/1.1 307 Elsewhere\r\nlocation: https://evil.example/\r\ncontent-length: 999999\r\n\r\nab", long);
        assert_eq!(status.unwrap(), StatusCode::TEMPORARY_REDIRECT);
        let (head, body) = got.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("POST https://hooks.example.com:8443/in?x=1 HTTP/1.1\r\n"), "{head}");
        for line in ["host: hooks.example.com:8443", "webhook-id: msg_1", "content-type: application/json", "content-length: 2"] {
            assert!(head.contains(line), "{line}: {head}");
        }
        assert_eq!(body, "{}");
    }

    #[test]
    fn an_answer_that_is_none_or_never_comes_is_an_error() {
        assert!(matches!(exchange(b"nonsense\r\n\r\n", Duration::from_secs(20)).1, Err(PostError::Answer(_))));
        assert!(matches!(exchange(b"", Duration::from_millis(50)).1, Err(PostError::Late(_))));
    }
}
