//! The server: a short answer to whoever has the key, and as many bytes as are asked for.

use std::convert::Infallible;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::client::{ANSWER, LARGE};
use super::{HOST, OUTSIDE, VALUE, said};

/// What is sent at a time.
static PIECE: [u8; 64 << 10] = [b'x'; 64 << 10];

/// Serves; whoever may sign for it is written to the directory.
pub(super) async fn serve(directory: &Path) -> Result<(), String> {
    let acceptor = TlsAcceptor::from(Arc::new(configuration(directory)?));
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(said)?;
    println!("{}", listener.local_addr().map_err(said)?.port());
    loop {
        let (stream, _) = listener.accept().await.map_err(said)?;
        stream.set_nodelay(true).map_err(said)?;
        let acceptor = acceptor.clone();
        tokio::spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            // A client that goes away is no failure.
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(respond)).await;
        });
    }
}

fn configuration(directory: &Path) -> Result<rustls::ServerConfig, String> {
    let authority_key = KeyPair::generate().map_err(said)?;
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    // Not the name of what it signs, or OpenSSL takes that for self-signed.
    authority.distinguished_name.push(DnType::CommonName, "the outside world");
    let certificate = authority.self_signed(&authority_key).map_err(said)?;
    std::fs::write(directory.join(OUTSIDE), certificate.pem()).map_err(said)?;
    let key = KeyPair::generate().map_err(said)?;
    let leaf = CertificateParams::new(vec![HOST.to_owned()]).map_err(said)?;
    let leaf = leaf.signed_by(&key, &Issuer::new(authority, authority_key)).map_err(said)?;
    let mut configuration = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(said)?
        .with_no_client_auth()
        .with_single_cert(vec![leaf.der().clone()], PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())))
        .map_err(said)?;
    configuration.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(configuration)
}

async fn respond(request: Request<Incoming>) -> Result<Response<Either<Full<Bytes>, Large>>, http::Error> {
    if let Some(size) = request.uri().path().strip_prefix(LARGE).and_then(|text| text.parse().ok()) {
        return Response::builder().header("content-length", size).body(Either::Right(Large(size)));
    }
    let expected = format!("Bearer {VALUE}");
    let is_known = request.headers().get("authorization").is_some_and(|value| value.as_bytes() == expected.as_bytes());
    let text = if is_known { ANSWER } else { "who are you?" };
    Ok(Response::new(Either::Left(Full::new(Bytes::from_static(text.as_bytes())))))
}

/// So many bytes, made as they are asked for.
struct Large(u64);

impl http_body::Body for Large {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let count = self.0.min(PIECE.len() as u64);
        self.0 -= count;
        let piece = PIECE.get(..count as usize).filter(|piece| !piece.is_empty());
        Poll::Ready(piece.map(|piece| Ok(Frame::data(Bytes::from_static(piece)))))
    }
}
