//! The ground with a way out: egress in this process, as `stockade run --allow-host … --secret …` has it in one of its own.
//!
//! | host | what is allowed |
//! |---|---|
//! | `allowed.test:SECURE` | everything, with the token |
//! | `ruled.test:SECURE` | `GET` below `/repos/acme`, with the token |
//! | `passed.test:SECURE` | everything, TLS unopened |
//! | `rebound.test:OTHER` | everything, but its address is not granted |
//! | `127.0.0.1:SECURE` | everything: where the first three lead |
//!
//! Without a wall there is no way out either: programs have the token itself, and trust the servers' own authority.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use stockade_core::host::HostPattern;
use stockade_core::id::SandboxId;
use stockade_egress::process::{self, Task, Teller};
use stockade_egress::rules::learn::Learnt;
use stockade_egress::rules::path::PathPattern;
use stockade_egress::rules::{HostRule, Limits, Methods, Paths, Rules, Tls};
use stockade_egress::secrets::LookUp;
use stockade_egress::secrets::binding::{Budget, Form, Places};
use stockade_egress::{Binding, Event, SecretValue, Secrets};
use stockade_sandbox::wayout::{AUTHORITIES, WayOut};

use crate::error::SuiteError;
use crate::lab::{Lab, TOKEN, TOKEN_NAME};
use crate::recorder;
use crate::target::Target;

/// What stands for the token inside.
const PLACEHOLDER: &str = "tok-placeholder0";
/// The proxy's port inside.
const PROXY: u16 = 61_080;
/// What a sandbox may send in all: enough for every case but the one that sends too much.
const SENT: u64 = 1 << 20;
/// Variables that name a file of authorities to the programs that cases run.
const TRUST: [&str; 4] = ["SSL_CERT_FILE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS"];

/// A way out that stands. It closes when this goes.
pub(crate) struct Reached {
    /// The sandbox's end; none where there is no wall.
    pub(crate) way_out: Option<WayOut>,
    /// What programs inside have in their environment because of it.
    pub(crate) environment: Vec<(String, OsString)>,
    // Closed before the thread is waited for.
    egress: Option<(UnixStream, JoinHandle<()>)>,
}

impl Drop for Reached {
    fn drop(&mut self) {
        if let Some((owner, thread)) = self.egress.take() {
            drop(owner);
            // What was on its way has left before anybody looks at what arrived.
            let _ = thread.join();
        }
    }
}

/// Opens the way out of a sandbox.
pub(crate) fn open(target: Target, lab: &Lab, id: &SandboxId, directory: &Path) -> Result<Reached, SuiteError> {
    let recorder = lab.recorder()?;
    let authority = recorder::authority(&lab.base);
    if target == Target::Local {
        let trust = TRUST.map(|name| (name.to_owned(), authority.clone().into_os_string()));
        let environment = trust.into_iter().chain([(TOKEN_NAME.to_owned(), TOKEN.into())]).collect();
        return Ok(Reached { way_out: None, environment, egress: None });
    }
    let failed = |why: String| SuiteError::Program { step: "opening a way out", why };
    let (inside, outside) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .map_err(|errno| failed(errno.to_string()))?;
    let (owner, theirs) = UnixStream::pair().map_err(|e| failed(e.to_string()))?;
    let task = task(lab, id, recorder.secure, recorder.other, (outside, theirs))?;
    let (told, certificate) = mpsc::channel();
    let serve = move || {
        if let Err(error) = process::serve(task, &mut ToUs { told: told.clone() }) {
            let _ = told.send(Err(error.to_string()));
        }
    };
    let thread = std::thread::Builder::new().spawn(serve).map_err(|e| failed(e.to_string()))?;
    let certificate = certificate.recv().map_err(|e| failed(e.to_string()))?.map_err(failed)?;
    let authorities = directory.join("authorities.pem");
    crate::lab::write(&authorities, certificate.as_bytes(), 0o644)?;
    let proxy = OsString::from(format!("http://127.0.0.1:{PROXY}"));
    let proxies = ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"].map(|name| (name.to_owned(), proxy.clone()));
    let trust = TRUST.map(|name| (name.to_owned(), AUTHORITIES.into()));
    Ok(Reached {
        way_out: Some(WayOut {
            channel: inside,
            proxy_port: PROXY,
            ports: vec![80, 443, recorder.secure, recorder.other],
            authorities: Some(authorities),
            java_authorities: None,
            shown: Vec::new(),
            agent: None,
            alarm: None,
        }),
        environment: proxies.into_iter().chain(trust).chain([(TOKEN_NAME.to_owned(), PLACEHOLDER.into())]).collect(),
        egress: Some((owner, thread)),
    })
}

fn task(lab: &Lab, id: &SandboxId, secure: u16, other: u16, (guest, owner): (OwnedFd, UnixStream)) -> Result<Task, SuiteError> {
    let wrong = |why: String| SuiteError::Program { step: "making rules", why };
    let host = |name: &str, port: u16| HostPattern::parse(&format!("{name}:{port}")).map_err(|e| wrong(e.to_string()));
    let below = PathPattern::parse("/repos/acme/**").map_err(|e| wrong(e.to_string()))?;
    let ruled = HostRule {
        methods: Methods::Only(vec!["GET".parse().map_err(|_| wrong("GET is a method".into()))?]),
        paths: Paths::Only(vec![below]),
        ..HostRule::allow(host("ruled.test", secure)?)
    };
    let passed = HostRule { tls: Tls::Pass, ..HostRule::allow(host("passed.test", secure)?) };
    let whole = [host("allowed.test", secure)?, host("127.0.0.1", secure)?, host("rebound.test", other)?].map(HostRule::allow);
    let authority_directory = lab.base.join("authority");
    crate::lab::directory(&authority_directory, 0o700)?;
    Ok(Task {
        authority_directory,
        secrets: Arc::new(Token),
        sandbox: id.clone(),
        rules: Rules {
            hosts: whole.into_iter().chain([ruled, passed]).collect(),
            limits: Limits { sent_bytes: SENT, ..Limits::default() },
            ..Rules::default()
        },
        bindings: vec![Binding {
            name: TOKEN_NAME.to_owned(),
            placeholder: PLACEHOLDER.to_owned(),
            hosts: vec![host("allowed.test", secure)?, host("ruled.test", secure)?],
            places: Places::default(),
            budget: Budget::default(),
            form: Form::Plain,
        }],
        desk: None,
        guest,
        owner,
    })
}

/// The one secret there is.
struct Token;

impl Secrets for Token {
    fn value<'a>(&'a self, _: &'a SandboxId, _: &'a str) -> LookUp<'a> {
        Box::pin(std::future::ready(SecretValue::new(TOKEN.into()).map_err(|error| error.to_string())))
    }
}

/// Hears when it is ready; what was decided is judged by what arrived.
struct ToUs {
    told: mpsc::Sender<Result<String, String>>,
}

impl Teller for ToUs {
    fn ready(&mut self, certificate: &str) {
        let _ = self.told.send(Ok(certificate.to_owned()));
    }

    fn event(&mut self, _: &Event) -> std::io::Result<()> {
        Ok(())
    }

    fn end(&mut self, _: &Learnt) {}
}
