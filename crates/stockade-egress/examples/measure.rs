//! Measures egress on loopback against a direct connection: `measure server`, `measure egress`, `measure load`, `measure idle`, each a
//! process of its own, so that another proxy can stand in egress's place.
//!
//! ```text
//! measure server DIR                     prints its port; its CA is DIR/outside.pem
//! measure egress DIR SERVER_PORT [pass]  prints the proxy's port; the sandbox's CA is DIR/egress.pem
//! measure load CA SERVER_PORT PROXY_PORT|direct CONNECTIONS SECONDS [h2]
//! measure get CA SERVER_PORT PROXY_PORT|direct MEBIBYTES
//! measure idle CA SERVER_PORT PROXY_PORT CONNECTIONS SECONDS
//! ```
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a tool for measuring stops where it cannot go on"
)]
#![allow(clippy::print_stdout, reason = "its results are its output")]

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use stockade_core::host::HostPattern;
use stockade_core::id::SandboxId;
use stockade_egress::resolve::Addresses;
use stockade_egress::rules::{HostRule, Limits, Tls};
use stockade_egress::secrets::LookUp;
use stockade_egress::secrets::binding::{Budget, Places};
use stockade_egress::{Binding, Connection, Egress, Kind, Origin, Resolve, Roots, Rules, SecretValue, Secrets, Settings};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

const HOST: &str = "api.example";
const VALUE: &str = "ghp_REALrealREALrealREALrealREALreal0000";
const PLACEHOLDER: &str = "ghp_fakefakefakefakefakefakefakefake0000";

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["server", directory] => server(Path::new(directory)).await,
        ["egress", directory, port, rest @ ..] => egress(Path::new(directory), number(port), rest.contains(&"pass")).await,
        ["load", ca, port, proxy, connections, seconds, rest @ ..] => {
            load(ca, number(port), proxy, number(connections), number(seconds), rest.contains(&"h2")).await;
        }
        ["get", ca, port, proxy, size] => get(ca, number(port), proxy, number(size)).await,
        ["idle", ca, port, proxy, connections, seconds] => idle(ca, number(port), proxy, number(connections), number(seconds)).await,
        _ => panic!("see the first lines of this file"),
    }
}

fn number<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
    text.parse().unwrap()
}

async fn server(directory: &Path) {
    let ca_key = KeyPair::generate().unwrap();
    let mut ca = CertificateParams::default();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    // Not the name of what it signs, or OpenSSL takes that for self-signed.
    ca.distinguished_name.push(rcgen::DnType::CommonName, "the outside world");
    std::fs::write(directory.join("outside.pem"), ca.self_signed(&ca_key).unwrap().pem()).unwrap();
    let issuer = Issuer::new(ca, ca_key);
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec![HOST.to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
    let mut config = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![leaf.der().clone()], PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())))
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("{}", listener.local_addr().unwrap().port());
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        let acceptor = acceptor.clone();
        tokio::spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            let stream = TokioIo::new(stream);
            if http2 {
                let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                let _ = builder.serve_connection(stream, service_fn(respond)).await;
            } else {
                let _ = hyper::server::conn::http1::Builder::new().serve_connection(stream, service_fn(respond)).await;
            }
        });
    }
}

async fn respond(request: Request<Incoming>) -> Result<Response<http_body_util::Either<Full<Bytes>, Large>>, std::convert::Infallible> {
    if let Some(size) = request.uri().path().strip_prefix("/large/") {
        let left = number::<u64>(size) << 20;
        return Ok(Response::builder().header("content-length", left).body(http_body_util::Either::Right(Large(left))).unwrap());
    }
    let expected = format!("Bearer {VALUE}");
    let known = request.headers().get("authorization").is_some_and(|value| value.as_bytes() == expected.as_bytes());
    let text = if known { "the quick brown fox jumps over the lazy dog" } else { "no value" };
    Ok(Response::new(http_body_util::Either::Left(Full::new(Bytes::from_static(text.as_bytes())))))
}

/// So many bytes, made as they are asked for.
struct Large(u64);

impl http_body::Body for Large {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
        static PIECE: [u8; 64 << 10] = [b'x'; 64 << 10];
        let count = self.0.min(PIECE.len() as u64);
        self.0 -= count;
        let piece = (count > 0).then(|| Bytes::from_static(&PIECE[..usize::try_from(count).unwrap()]));
        std::task::Poll::Ready(piece.map(|piece| Ok(http_body::Frame::data(piece))))
    }
}

struct Loopback;

impl Resolve for Loopback {
    fn addresses<'a>(&'a self, _name: &'a str) -> Addresses<'a> {
        Box::pin(std::future::ready(Ok(vec![IpAddr::from([127, 0, 0, 1])])))
    }
}

struct One(SecretValue);

impl Secrets for One {
    fn value<'a>(&'a self, _sandbox: &'a SandboxId, _name: &'a str) -> LookUp<'a> {
        Box::pin(std::future::ready(Ok(self.0.clone())))
    }
}

async fn egress(directory: &Path, port: u16, pass: bool) {
    let mut settings = Settings::new(directory.join("authority"), Arc::new(Loopback));
    settings.roots = Roots::Only(vec![CertificateDer::from_pem_file(directory.join("outside.pem")).unwrap()]);
    settings.secrets = Arc::new(One(SecretValue::new(VALUE.as_bytes().to_vec()).unwrap()));
    let (egress, mut events) = Egress::new(settings).unwrap();
    tokio::spawn(async move { while events.recv().await.is_some() {} });
    let pattern = |text: String| HostPattern::parse(&text).unwrap();
    let host = pattern(format!("{HOST}:{port}"));
    let rule = HostRule { tls: if pass { Tls::Pass } else { Tls::Inspect }, ..HostRule::allow(host.clone()) };
    let rules = Rules {
        hosts: vec![rule, HostRule::allow(pattern(format!("127.0.0.1:{port}")))],
        limits: Limits { requests_per_second: 1_000_000, connections: 10_000, ..Limits::default() },
        ..Rules::default()
    };
    let binding = Binding {
        name: "TOKEN".into(),
        placeholder: PLACEHOLDER.into(),
        hosts: vec![host],
        places: Places::default(),
        budget: Budget::default(),
    };
    let id = SandboxId::from_parts(1, 1);
    let _guest = egress.add(id.clone(), rules, if pass { vec![] } else { vec![binding] }).unwrap();
    std::fs::write(directory.join("egress.pem"), egress.certificate_pem()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("{}", listener.local_addr().unwrap().port());
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (egress, origin) = (egress.clone(), Origin { sandbox: id.clone(), kind: Kind::Proxy });
        tokio::spawn(async move { egress.serve(Connection { stream, origin }).await });
    }
}

async fn connect(ca: &str, port: u16, proxy: &str, http2: bool) -> TlsStream<TcpStream> {
    let mut stream = if proxy == "direct" {
        TcpStream::connect(("127.0.0.1", port)).await.unwrap()
    } else {
        let mut stream = TcpStream::connect(("127.0.0.1", number::<u16>(proxy))).await.unwrap();
        stream.write_all(format!("CONNECT {HOST}:{port} HTTP/1.1\r\nHost: {HOST}:{port}\r\n\r\n").as_bytes()).await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        assert!(head.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&head));
        stream
    };
    stream.set_nodelay(true).unwrap();
    let _ = stream.flush().await;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(ca).unwrap()).unwrap();
    let mut config = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![if http2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
    TlsConnector::from(Arc::new(config)).connect(ServerName::try_from(HOST).unwrap(), stream).await.unwrap()
}

fn request(port: u16, proxy: &str, http2: bool) -> Request<Empty<Bytes>> {
    let token = if proxy == "direct" { VALUE } else { PLACEHOLDER };
    let request =
        if http2 { Request::get(format!("https://{HOST}:{port}/")) } else { Request::get("/").header("host", format!("{HOST}:{port}")) };
    request.header("authorization", format!("Bearer {token}")).header("accept", "*/*").body(Empty::new()).unwrap()
}

async fn load(ca: &str, port: u16, proxy: &str, connections: usize, seconds: u64, http2: bool) {
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..connections {
        let (ca, proxy) = (ca.to_owned(), proxy.to_owned());
        clients.spawn(async move {
            let stream = TokioIo::new(connect(&ca, port, &proxy, http2).await);
            let mut latencies = Vec::new();
            let begin = Instant::now();
            if http2 {
                let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
                tokio::spawn(connection);
                while begin.elapsed() < Duration::from_secs(seconds) {
                    let sent = Instant::now();
                    check(sender.send_request(request(port, &proxy, true)).await.unwrap()).await;
                    latencies.push(sent.elapsed());
                }
            } else {
                let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await.unwrap();
                tokio::spawn(connection);
                while begin.elapsed() < Duration::from_secs(seconds) {
                    let sent = Instant::now();
                    check(sender.send_request(request(port, &proxy, false)).await.unwrap()).await;
                    latencies.push(sent.elapsed());
                }
            }
            latencies
        });
    }
    let mut all: Vec<Duration> = clients.join_all().await.into_iter().flatten().collect();
    all.sort_unstable();
    let part = |share: usize| all[all.len() * share / 100];
    println!("{proxy}: {} requests/s, p50 {:?}, p99 {:?}", all.len() as u64 / seconds, part(50), part(99));
}

async fn check(answer: Response<Incoming>) {
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "the quick brown fox jumps over the lazy dog");
}

async fn get(ca: &str, port: u16, proxy: &str, size: u64) {
    let stream = TokioIo::new(connect(ca, port, proxy, false).await);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let begin = Instant::now();
    let request = Request::get(format!("/large/{size}")).header("host", format!("{HOST}:{port}")).body(Empty::<Bytes>::new()).unwrap();
    let mut body = sender.send_request(request).await.unwrap().into_body();
    let mut total = 0;
    while let Some(frame) = body.frame().await {
        total += frame.unwrap().into_data().map_or(0, |data| data.len());
    }
    assert_eq!(total as u64, size << 20);
    println!("{proxy}: {:.0} MiB/s", size as f64 / begin.elapsed().as_secs_f64());
}

async fn idle(ca: &str, port: u16, proxy: &str, connections: usize, seconds: u64) {
    let mut kept = Vec::new();
    for _ in 0..connections {
        let stream = TokioIo::new(connect(ca, port, proxy, false).await);
        let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        check(sender.send_request(request(port, proxy, false)).await.unwrap()).await;
        kept.push(sender);
    }
    println!("{} connections are open", kept.len());
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}
