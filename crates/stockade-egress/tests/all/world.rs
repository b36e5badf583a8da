//! The stage: a certificate authority of the outside world, a server that answers in many ways, names that lead to it, and a client that
//! speaks through egress.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use stockade_core::host::HostPattern;
use stockade_core::id::SandboxId;
use stockade_egress::resolve::Addresses;
use stockade_egress::secrets::LookUp;
use stockade_egress::{
    Binding, Connection, Desk, Egress, Event, EventReceiver, Guest, Kind, Origin, Resolve, Roots, Rules, SecretValue, Secrets, Settings,
};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, UnixStream};
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

pub(crate) type AnyBody = BoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

pub(crate) const VALUE: &str = "ghp_REALrealREALreal/REAL+012345";
pub(crate) const PLACEHOLDER: &str = "ghp_fakefakefakefake0fake0012345";

pub(crate) fn full(text: impl Into<Bytes>) -> AnyBody {
    Full::new(text.into()).map_err(|never| match never {}).boxed()
}

/// What reached the server.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Seen {
    /// Everything as text, to look for what must not be there.
    pub(crate) fn text(&self) -> String {
        format!("{} {} {:?} {}", self.method, self.target, self.headers, String::from_utf8_lossy(&self.body))
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

/// A server, with TLS or without, that remembers what it got.
pub(crate) struct Server {
    pub(crate) port: u16,
    pub(crate) seen: Arc<Mutex<Vec<Seen>>>,
    pub(crate) connections: Arc<Mutex<usize>>,
}

impl Server {
    pub(crate) fn last(&self) -> Seen {
        self.seen.lock().unwrap().last().cloned().expect("nothing reached the server")
    }

    pub(crate) fn count(&self) -> usize {
        self.seen.lock().unwrap().len()
    }
}

/// An authority of the outside world.
pub(crate) struct Outside {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) certificate: CertificateDer<'static>,
}

impl Outside {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap().der().clone();
        Self { issuer: Issuer::new(params, key), certificate }
    }

    fn acceptor(&self, names: &[&str]) -> TlsAcceptor {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())))
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        TlsAcceptor::from(Arc::new(config))
    }

    /// A server with TLS for these names.
    pub(crate) async fn server(&self, names: &[&str]) -> Server {
        listen(Some(self.acceptor(names))).await
    }
}

/// A server without TLS.
pub(crate) async fn plain_server() -> Server {
    listen(None).await
}

async fn listen(acceptor: Option<TlsAcceptor>) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (seen, connections): (Arc<Mutex<Vec<Seen>>>, Arc<Mutex<usize>>) = Default::default();
    let (kept, counted) = (Arc::clone(&seen), Arc::clone(&connections));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            *counted.lock().unwrap() += 1;
            let (acceptor, seen) = (acceptor.clone(), Arc::clone(&kept));
            tokio::spawn(async move {
                match acceptor {
                    Some(acceptor) => {
                        let Ok(stream) = acceptor.accept(stream).await else { return };
                        let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                        answer(stream, seen, http2).await;
                    }
                    None => answer(stream, seen, false).await,
                }
            });
        }
    });
    Server { port, seen, connections }
}

async fn answer<S>(stream: S, seen: Arc<Mutex<Vec<Seen>>>, http2: bool)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let service = service_fn(move |request| crate::protocols::respond(request, Arc::clone(&seen)));
    let stream = TokioIo::new(stream);
    if http2 {
        let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new()).serve_connection(stream, service).await;
    } else {
        let _ = hyper::server::conn::http1::Builder::new().serve_connection(stream, service).with_upgrades().await;
    }
}

/// Names that lead to fixed addresses.
pub(crate) struct Names(pub(crate) Mutex<HashMap<String, Vec<IpAddr>>>);

impl Resolve for Names {
    fn addresses<'a>(&'a self, name: &'a str) -> Addresses<'a> {
        let found = self.0.lock().unwrap().get(name).cloned();
        Box::pin(std::future::ready(found.ok_or_else(|| "no such name".to_owned())))
    }
}

/// One value for every name, or none.
pub(crate) struct OneSecret(pub(crate) Option<&'static str>);

impl Secrets for OneSecret {
    fn value<'a>(&'a self, _sandbox: &'a SandboxId, _name: &'a str) -> LookUp<'a> {
        let value = self.0.map(|text| SecretValue::new(text.as_bytes().to_vec()).unwrap()).ok_or_else(|| "it is not set".to_owned());
        Box::pin(std::future::ready(value))
    }
}

/// Egress with one sandbox.
pub(crate) struct World {
    pub(crate) egress: Egress,
    pub(crate) guest: Guest,
    pub(crate) names: Arc<Names>,
    pub(crate) outside: Arc<Outside>,
    events: EventReceiver,
    _directory: tempfile::TempDir,
}

/// The hosts that every world knows lead to loopback.
pub(crate) const LOCAL: [&str; 4] = ["api.example", "other.example", "cdn.example", "denied.example"];

pub(crate) fn pattern(text: &str) -> HostPattern {
    HostPattern::parse(text).unwrap()
}

/// Rules that allow these hosts, and loopback by address at their ports.
pub(crate) fn rules(hosts: &[String]) -> Rules {
    let ports = hosts.iter().filter_map(|host| host.rsplit_once(':')).map(|(_, port)| format!("127.0.0.1:{port}"));
    let all: Vec<String> = hosts.iter().cloned().chain(ports).collect();
    Rules::of_hosts(all.iter().map(|text| pattern(text)))
}

pub(crate) fn binding(host: &str) -> Binding {
    Binding {
        name: "TOKEN".into(),
        placeholder: PLACEHOLDER.into(),
        hosts: vec![pattern(host)],
        places: stockade_egress::secrets::binding::Places::default(),
        budget: stockade_egress::secrets::binding::Budget::default(),
        form: stockade_egress::secrets::binding::Form::default(),
    }
}

impl World {
    pub(crate) async fn new(outside: Arc<Outside>, rules: Rules, bindings: Vec<Binding>) -> Self {
        Self::with_secret(outside, rules, bindings, Some(VALUE)).await
    }

    pub(crate) async fn with_secret(outside: Arc<Outside>, rules: Rules, bindings: Vec<Binding>, secret: Option<&'static str>) -> Self {
        Self::with_desk(outside, rules, bindings, secret, None).await
    }

    #[expect(clippy::unused_async, reason = "egress is to be made inside a runtime")]
    pub(crate) async fn with_desk(
        outside: Arc<Outside>,
        rules: Rules,
        bindings: Vec<Binding>,
        secret: Option<&'static str>,
        desk: Option<Desk>,
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let local = LOCAL.map(|name| (name.to_owned(), vec!["127.0.0.1".parse().unwrap()]));
        let names = Arc::new(Names(Mutex::new(HashMap::from(local))));
        let mut settings = Settings::new(directory.path().join("egress"), Arc::clone(&names) as Arc<dyn Resolve>);
        settings.roots = Roots::Only(vec![outside.certificate.clone()]);
        settings.secrets = Arc::new(OneSecret(secret));
        let (egress, events) = Egress::new(settings).unwrap();
        let id = SandboxId::from_parts(1_000, 7);
        let guest = match desk {
            Some(desk) => egress.add_with_desk(id, rules, bindings, desk).unwrap(),
            None => egress.add(id, rules, bindings).unwrap(),
        };
        Self { egress, guest, names, outside, events, _directory: directory }
    }

    /// A connection as a program inside would make it.
    pub(crate) fn connect(&self, kind: Kind) -> UnixStream {
        let (inside, outside) = UnixStream::pair().unwrap();
        let (egress, sandbox) = (self.egress.clone(), self.guest.id().clone());
        tokio::spawn(async move { egress.serve(Connection { stream: outside, origin: Origin { sandbox, kind } }).await });
        inside
    }

    /// Sends bytes to the proxy and reads until it closes, or answers no more for a while.
    pub(crate) async fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect(Kind::Proxy);
        // A refusal may come before all was sent.
        let _ = stream.write_all(bytes).await;
        let _ = stream.shutdown().await;
        read_all(&mut stream).await
    }

    /// Nobody keeps the record any more.
    pub(crate) fn stop_listening(&mut self) {
        self.events.close();
    }

    /// A tunnel by `CONNECT`; the answer's head where it was refused.
    pub(crate) async fn tunnel(&self, authority: &str) -> Result<UnixStream, String> {
        let mut stream = self.connect(Kind::Proxy);
        stream.write_all(format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n").as_bytes()).await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            match stream.read_u8().await {
                Ok(byte) => head.push(byte),
                Err(_) => break,
            }
        }
        let head = String::from_utf8(head).unwrap();
        if head.starts_with("HTTP/1.1 200") {
            return Ok(stream);
        }
        Err(head + &read_all(&mut stream).await)
    }

    /// TLS through a tunnel, trusting the sandbox's authority.
    pub(crate) async fn tls(&self, authority: &str, server_name: &str, protocols: &[&str]) -> std::io::Result<TlsStream<UnixStream>> {
        let stream = self.tunnel(authority).await.unwrap();
        self.handshake(stream, server_name, protocols).await
    }

    pub(crate) async fn handshake(
        &self,
        stream: UnixStream,
        server_name: &str,
        protocols: &[&str],
    ) -> std::io::Result<TlsStream<UnixStream>> {
        self.handshake_trusting(
            CertificateDer::from_pem_slice(self.egress.certificate_pem().as_bytes()).unwrap(),
            stream,
            server_name,
            protocols,
        )
        .await
    }

    /// As a client that trusts the outside world alone.
    pub(crate) async fn handshake_outside(&self, stream: UnixStream, server_name: &str) -> std::io::Result<TlsStream<UnixStream>> {
        self.handshake_trusting(self.outside.certificate.clone(), stream, server_name, &["http/1.1"]).await
    }

    async fn handshake_trusting(
        &self,
        root: CertificateDer<'static>,
        stream: UnixStream,
        server_name: &str,
        protocols: &[&str],
    ) -> std::io::Result<TlsStream<UnixStream>> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(root).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        TlsConnector::from(Arc::new(config)).connect(ServerName::try_from(server_name.to_owned()).unwrap(), stream).await
    }

    /// One request over HTTP/1 in a tunnel with TLS.
    pub(crate) async fn https(&self, authority: &str, request: Request<AnyBody>) -> Response<Bytes> {
        let name = authority.split(':').next().unwrap().to_owned();
        let stream = self.tls(authority, &name, &["http/1.1"]).await.unwrap();
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection.with_upgrades());
        whole(sender.send_request(request).await.unwrap()).await
    }

    /// A client that speaks HTTP/2 in a tunnel with TLS.
    pub(crate) async fn http2(&self, authority: &str) -> hyper::client::conn::http2::SendRequest<AnyBody> {
        let name = authority.split(':').next().unwrap().to_owned();
        let stream = self.tls(authority, &name, &["h2", "http/1.1"]).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let (sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        sender
    }

    /// The next decision.
    pub(crate) async fn event(&mut self) -> Event {
        tokio::time::timeout(Duration::from_secs(20), self.events.recv()).await.expect("no event came").unwrap()
    }

    /// Nothing was decided that was not looked at.
    pub(crate) fn no_event(&mut self) {
        assert!(self.events.try_recv().is_err());
    }
}

pub(crate) async fn read_all<S: AsyncRead + Unpin>(stream: &mut S) -> String {
    let mut out = Vec::new();
    let _ = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut out)).await.expect("the connection stays open");
    String::from_utf8_lossy(&out).into_owned()
}

pub(crate) async fn whole(answer: Response<Incoming>) -> Response<Bytes> {
    let (parts, body) = answer.into_parts();
    Response::from_parts(parts, body.collect().await.unwrap().to_bytes())
}

pub(crate) fn text(answer: &Response<Bytes>) -> &str {
    std::str::from_utf8(answer.body()).unwrap()
}

pub(crate) fn get(authority: &str, target: &str) -> Request<AnyBody> {
    Request::get(target).header("host", authority).body(full("")).unwrap()
}
