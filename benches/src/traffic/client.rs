//! The client: connections that are kept alive, straight to the server or through a proxy, and what is asked over them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio_rustls::TlsConnector;

use super::{HOST, said};

/// What the server says to whoever has the key.
pub(super) const ANSWER: &str = "the quick brown fox jumps over the lazy dog";
/// Below this path lie as many bytes as its last part says.
pub(super) const LARGE: &str = "/large/";

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// How to get to the server.
#[derive(Debug, Clone)]
pub(crate) struct Way {
    /// The server's port.
    pub(crate) server: u16,
    /// A proxy's port; `None`: straight.
    pub(crate) proxy: Option<u16>,
    /// Who signs what is seen at the other end.
    pub(crate) authority: PathBuf,
    /// What is shown for a key: the key itself where nobody swaps it.
    pub(crate) key: &'static str,
}

/// Connections over one way, and the thread that drives them.
pub(crate) struct Client {
    runtime: Runtime,
    way: Way,
    kept: Vec<SendRequest<Empty<Bytes>>>,
}

impl Client {
    /// Opens connections and asks once over each.
    pub(crate) fn open(way: Way, connections: usize) -> Result<Self, String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(said)?;
        let kept = runtime.block_on(async {
            let connector = connector(&way.authority)?;
            let mut kept = Vec::with_capacity(connections);
            for _ in 0..connections {
                let mut sender = connect(&way, &connector).await?;
                ask(&mut sender, &way).await?;
                kept.push(sender);
            }
            Ok::<_, String>(kept)
        })?;
        Ok(Self { runtime, way, kept })
    }

    /// Asks over all connections at once, so often in all.
    pub(crate) fn load(&mut self, requests: usize) -> Result<Duration, String> {
        let each = requests.div_ceil(self.kept.len().max(1));
        let (way, kept) = (&self.way, std::mem::take(&mut self.kept));
        let begin = Instant::now();
        self.kept = self.runtime.block_on(async {
            let mut running = tokio::task::JoinSet::new();
            for mut sender in kept {
                let way = way.clone();
                running.spawn(async move {
                    for _ in 0..each {
                        ask(&mut sender, &way).await?;
                    }
                    Ok::<_, String>(sender)
                });
            }
            running.join_all().await.into_iter().collect::<Result<Vec<_>, _>>()
        })?;
        Ok(begin.elapsed())
    }

    /// Asks one after the other over the first connection; how long each took.
    pub(crate) fn each(&mut self, requests: usize) -> Result<Vec<Duration>, String> {
        let sender = self.kept.first_mut().ok_or("there is no connection")?;
        self.runtime.block_on(async {
            let mut times = Vec::with_capacity(requests);
            for _ in 0..requests {
                let begin = Instant::now();
                ask(sender, &self.way).await?;
                times.push(begin.elapsed());
            }
            Ok(times)
        })
    }

    /// Fetches so many bytes over the first connection.
    pub(crate) fn fetch(&mut self, bytes: u64) -> Result<Duration, String> {
        let sender = self.kept.first_mut().ok_or("there is no connection")?;
        let way = &self.way;
        self.runtime.block_on(async {
            let begin = Instant::now();
            sender.ready().await.map_err(said)?;
            let mut body = sender.send_request(request(way, &format!("{LARGE}{bytes}"))?).await.map_err(said)?.into_body();
            let mut total = 0;
            while let Some(frame) = body.frame().await {
                total += frame.map_err(said)?.into_data().map_or(0, |data| data.len() as u64);
            }
            if total == bytes { Ok(begin.elapsed()) } else { Err(format!("{total} of {bytes} bytes arrived")) }
        })
    }
}

async fn connect(way: &Way, connector: &TlsConnector) -> Result<SendRequest<Empty<Bytes>>, String> {
    let mut stream = TcpStream::connect(("127.0.0.1", way.proxy.unwrap_or(way.server))).await.map_err(said)?;
    stream.set_nodelay(true).map_err(said)?;
    if way.proxy.is_some() {
        let port = way.server;
        let head = format!("CONNECT {HOST}:{port} HTTP/1.1\r\nHost: {HOST}:{port}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.map_err(said)?;
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            answer.push(stream.read_u8().await.map_err(said)?);
        }
        if !answer.starts_with(b"HTTP/1.1 200") {
            return Err(String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned());
        }
    }
    let stream = connector.connect(ServerName::try_from(HOST).map_err(said)?, stream).await.map_err(said)?;
    let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(said)?;
    tokio::spawn(connection);
    Ok(sender)
}

fn connector(authority: &Path) -> Result<TlsConnector, String> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority).map_err(said)?).map_err(said)?;
    let mut configuration = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(said)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    configuration.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(configuration)))
}

/// Any answer but the one for whoever has the key is a failure, and so is none.
async fn ask(sender: &mut SendRequest<Empty<Bytes>>, way: &Way) -> Result<(), String> {
    let answered = async {
        sender.ready().await.map_err(said)?;
        let answer: Response<Incoming> = sender.send_request(request(way, "/")?).await.map_err(said)?;
        answer.into_body().collect().await.map_err(said)
    };
    let body = tokio::time::timeout(PATIENCE, answered).await.map_err(|_| "no answer".to_owned())??.to_bytes();
    if body == ANSWER { Ok(()) } else { Err(String::from_utf8_lossy(&body).into_owned()) }
}

fn request(way: &Way, path: &str) -> Result<Request<Empty<Bytes>>, String> {
    let request = Request::get(path).header("host", format!("{HOST}:{}", way.server));
    request.header("authorization", format!("Bearer {}", way.key)).header("accept", "*/*").body(Empty::new()).map_err(said)
}
