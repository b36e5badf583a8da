//! mitmproxy, doing the same swap as egress by a script of a few lines.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::install::{Source, Store};
use crate::spawn;
use crate::traffic::{Listening, OUTSIDE, PLACEHOLDER, VALUE};

/// The package.
pub(crate) const SOURCE: Source =
    Source::Python { package: "mitmproxy", version: "12.2.1", program: "mitmdump", interpreters: &["python3.13", "python3.12", "python3"] };
/// How long it may take to listen.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running mitmproxy and the certificate of its authority.
pub(crate) struct Mitmproxy {
    /// Its process.
    pub(crate) listening: Listening,
    /// Who signs what its clients see.
    pub(crate) authority: PathBuf,
}

impl Mitmproxy {
    /// Starts it for servers whose authority's certificate lies in the directory.
    pub(crate) fn start(store: &Store, repository: &Path, directory: &Path) -> Result<Self, String> {
        let program = store.bring(&SOURCE)?;
        let home = directory.join("mitmproxy");
        // It takes no port of the kernel's choice and tells it, so one is chosen here.
        let port = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).map_err(|e| e.to_string())?.port();
        let trusted = format!("ssl_verify_upstream_trusted_ca={}", directory.join(OUTSIDE).display());
        let child = spawn::bound_to_us(&program)
            .args(["--quiet", "--listen-host", "127.0.0.1", "--listen-port", &port.to_string(), "--set", &trusted])
            .args(["--set", "stream_large_bodies=1m", "--set"])
            .arg(format!("confdir={}", home.display()))
            .arg("--scripts")
            .arg(repository.join("benches/swap.py"))
            .env("SWAP_VALUE", VALUE)
            .env("SWAP_PLACEHOLDER", PLACEHOLDER)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| e.to_string())?;
        let listening = Listening::other(child, port);
        let begin = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if begin.elapsed() > PATIENCE {
                return Err("does not listen".into());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(Self { listening, authority: home.join("mitmproxy-ca-cert.pem") })
    }
}
