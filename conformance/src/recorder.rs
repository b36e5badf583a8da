//! The servers outside: they write down every byte they get, so that an attempt to send something is judged by what arrived.
//!
//! All are on the machine's own loopback. Names lead there only in the worker's mount namespace.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::error::SuiteError;
use crate::lab;
use crate::target::Target;

/// Names that lead to the servers.
const NAMES: [&str; 10] = [
    "allowed.test",
    "ruled.test",
    "passed.test",
    "rebound.test",
    "denied.test",
    "allowed.test.denied.test",
    "evil-allowed.test",
    "xn--llowed-2nf.test",
    "leak.denied.test",
    "metadata.google.internal",
];
/// What a mark begins with; the case's id follows.
const MARK: &str = "leak-of-";
/// How long what was sent may take to be written down. Without a wall something must come, so it is waited for.
const SOON: Duration = Duration::from_millis(100);
const AT_LAST: Duration = Duration::from_secs(5);

/// The servers, for as long as this lives.
pub(crate) struct Recorder {
    directory: PathBuf,
    child: Child,
    /// TLS, for allowed hosts.
    pub(crate) secure: u16,
    /// TLS, where nothing is granted by address.
    pub(crate) other: u16,
    /// Without TLS.
    pub(crate) plain: u16,
    /// Datagrams.
    datagrams: u16,
}

/// The file of names.
pub(crate) fn hosts() -> String {
    let names: Vec<String> = NAMES.iter().map(|name| format!("127.0.0.1 {name}\n")).collect();
    format!("127.0.0.1 localhost\n{}", names.concat())
}

/// The certificate of the servers' own authority.
pub(crate) fn authority(base: &Path) -> PathBuf {
    base.join("recorder/ca.pem")
}

impl Recorder {
    /// Starts them.
    #[expect(clippy::disallowed_methods, reason = "the servers are the suite's own program")]
    pub(crate) fn start(base: &Path) -> Result<Self, SuiteError> {
        let directory = base.join("recorder");
        lab::directory(&directory, 0o755)?;
        let names: Vec<String> = NAMES.iter().map(|name| format!("DNS:{name}")).collect();
        lab::write(&directory.join("names"), format!("subjectAltName={},IP:127.0.0.1,IP:127.0.0.2\n", names.join(",")).as_bytes(), 0o644)?;
        lab::write(&directory.join("recorder.py"), include_bytes!("recorder.py"), 0o644)?;
        lab::outside(
            "key='-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes'
             openssl req -x509 $key -keyout ca.key -out ca.pem -days 2 -subj /CN=recorder &&
             openssl req $key -keyout server.key -out server.csr -subj /CN=allowed.test &&
             openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out server.pem -days 2 -extfile names",
            &directory,
        )?;
        let failed = |why: String| SuiteError::Program { step: "starting the recorder", why };
        let mut command = Command::new("python3");
        command.arg(directory.join("recorder.py")).arg(&directory).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|e| failed(e.to_string()))?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut line).map_err(|e| failed(e.to_string()))?;
        }
        let ports: Vec<u16> = line.split_whitespace().filter_map(|port| port.parse().ok()).collect();
        match ports.as_slice() {
            [secure, other, plain, datagrams] => {
                Ok(Self { directory, child, secure: *secure, other: *other, plain: *plain, datagrams: *datagrams })
            }
            _ => Err(failed(format!("it said `{line}`"))),
        }
    }

    /// Puts the servers' places and the case's mark into a script.
    pub(crate) fn fill(&self, text: &str, id: &str) -> String {
        let named = [
            ("$MARK", mark(id)),
            ("$SECURE", self.secure.to_string()),
            ("$OTHER", self.other.to_string()),
            ("$PLAIN", self.plain.to_string()),
            ("$DATAGRAMS", self.datagrams.to_string()),
            ("$SOCKET", self.directory.join("socket").display().to_string()),
            // As the recorder names it.
            ("$ABSTRACT", format!("stockade-recorder-{}", self.plain)),
        ];
        named.iter().fold(text.to_owned(), |text, (name, value)| text.replace(name, value))
    }

    /// Whether a case's mark arrived.
    pub(crate) fn got(&self, id: &str, target: Target) -> Result<bool, SuiteError> {
        let end = Instant::now() + if target == Target::Local { AT_LAST } else { SOON };
        let (path, mark) = (self.directory.join("received"), mark(id));
        loop {
            let received = std::fs::read(&path).map_err(SuiteError::file("read", &path))?;
            if received.windows(mark.len()).any(|window| window == mark.as_bytes()) {
                return Ok(true);
            }
            if Instant::now() > end {
                return Ok(false);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Ends so that no mark begins another.
fn mark(id: &str) -> String {
    format!("{MARK}{id}.")
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
