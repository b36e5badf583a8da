//! Egress as a process with a port: what `stockade egress` does for one sandbox, without the sandbox.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use stockade_core::host::HostPattern;
use stockade_core::id::SandboxId;
use stockade_egress::resolve::Addresses;
use stockade_egress::rules::{HostRule, Limits, Tls};
use stockade_egress::secrets::LookUp;
use stockade_egress::secrets::binding::{Budget, Form, Places};
use stockade_egress::{Binding, Connection, Egress, Kind, Origin, Resolve, Roots, Rules, SecretValue, Secrets, Settings};
use tokio::net::TcpListener;

use super::{HOST, INSIDE, OUTSIDE, Opened, PLACEHOLDER, VALUE, said};

/// Serves one sandbox that may reach the server.
pub(super) async fn serve(directory: &Path, server: u16, opened: Opened) -> Result<(), String> {
    let mut settings = Settings::new(directory.join("authority"), Arc::new(Loopback));
    settings.roots = Roots::Only(vec![CertificateDer::from_pem_file(directory.join(OUTSIDE)).map_err(said)?]);
    settings.secrets = Arc::new(One(SecretValue::new(VALUE.as_bytes().to_vec()).map_err(said)?));
    let (egress, mut events) = Egress::new(settings).map_err(said)?;
    tokio::spawn(async move { while events.recv().await.is_some() {} });
    let id = SandboxId::from_parts(1, 1);
    let (rules, bindings) = rules(server, opened)?;
    let _guest = egress.add(id.clone(), rules, bindings).map_err(said)?;
    std::fs::write(directory.join(INSIDE), egress.certificate_pem()).map_err(said)?;
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(said)?;
    println!("{}", listener.local_addr().map_err(said)?.port());
    loop {
        let (stream, _) = listener.accept().await.map_err(said)?;
        stream.set_nodelay(true).map_err(said)?;
        let (egress, origin) = (egress.clone(), Origin { sandbox: id.clone(), kind: Kind::Proxy });
        tokio::spawn(async move { egress.serve(Connection { stream, origin }).await });
    }
}

fn rules(server: u16, opened: Opened) -> Result<(Rules, Vec<Binding>), String> {
    let pattern = |name: &str| HostPattern::parse(&format!("{name}:{server}")).map_err(said);
    let host = pattern(HOST)?;
    let tls = if opened == Opened::Pass { Tls::Pass } else { Tls::Inspect };
    let rules = Rules {
        hosts: vec![HostRule { tls, ..HostRule::allow(host.clone()) }, HostRule::allow(pattern("127.0.0.1")?)],
        limits: Limits { requests_per_second: 1_000_000, connections: 10_000, ..Limits::default() },
        ..Rules::default()
    };
    let binding = Binding {
        name: "TOKEN".into(),
        placeholder: PLACEHOLDER.into(),
        hosts: vec![host],
        places: Places::default(),
        budget: Budget::default(),
        form: Form::Plain,
    };
    Ok((rules, if opened == Opened::Pass { Vec::new() } else { vec![binding] }))
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
