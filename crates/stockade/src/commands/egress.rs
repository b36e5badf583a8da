//! `stockade egress`: the way out of one sandbox, as a process of its own. Started by the sandbox's owner, never typed.
//!
//! Standard input is the owner's connection: an order comes over it, with the descriptors it needs, and the end of it is the end of
//! this process. It makes itself undumpable before it reads anything and confines itself before it serves anybody.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use stockade_broker::broker::SandboxLabel;
use stockade_broker::client::{ClientError, Lookup};
use stockade_broker::talk::message::Refusal;
use stockade_broker::{SecretName, hygiene};
use stockade_core::id::SandboxId;
use stockade_core::reach::Login;
use stockade_egress::agent;
use stockade_egress::desk::{Desk, Entry, Kind};
use stockade_egress::exchange::Exchange;
use stockade_egress::process::{self, Task, Teller};
use stockade_egress::rules::Rules;
use stockade_egress::rules::learn::Learnt;
use stockade_egress::secrets::binding::{Budget, Form, Place, Places};
use stockade_egress::secrets::{LookUp, NoSecrets, Renewed};
use stockade_egress::ssh;
use stockade_egress::{Binding, Event, SecretValue, Secrets};

use super::broker::connection;
use crate::egress::deliver::{DeskKind, SshUse};
use crate::egress::order::{self, Misuse, Order, Part, Substitute, Word};
use crate::egress::record::{Record, Row};
use crate::egress::{confine, judge, login};
use crate::failure::Failure;

const STEP: &str = "egress";
/// The account that Google's metadata server names where nobody knows it.
const NO_ACCOUNT: &str = "sandbox@stockade.invalid";
/// What the token is called that others are exchanged for.
const REFRESH: &str = "refresh_token";

/// Serves until the owner goes.
pub(crate) fn run() -> Result<ExitCode, Failure> {
    hygiene::keep_to_ourselves().map_err(|errno| Failure::new(STEP, format!("this process cannot be made undumpable: {errno}")))?;
    // A session of its own: keys that are pressed for the program inside are not meant for it.
    let _ = rustix::process::setsid();
    let owner = connection(STEP, "standard input", rustix::stdio::stdin())?;
    let told = serve(&owner);
    if let Err(failure) = &told {
        // Whoever started this reads why, if it is still there.
        let _ = order::say(&owner, &Word::Failed { message: failure.message.clone() });
    }
    told.map(|()| ExitCode::SUCCESS)
}

fn serve(owner: &UnixStream) -> Result<(), Failure> {
    let (order, passed) = order::receive(owner).map_err(|error| Failure::new(STEP, format!("reading the order: {error}")))?;
    let mut passed = passed.into_iter();
    let missing = || Failure::new(STEP, "a descriptor is missing from the order");
    let mut next = || passed.next().ok_or_else(missing);
    let (newer, older, guest, alarm) = (File::from(next()?), File::from(next()?), next()?, File::from(next()?));
    let broker = if order.reach.secrets.is_empty() { None } else { Some(next()?) };
    let logins = order.logins.iter().map(|_| next().map(File::from)).collect::<Result<Vec<_>, _>>()?;
    // Before the first thread: what is confined is this one and those it starts.
    confine::confine(&order.authority, &order.roots).map_err(|error| Failure::from_error(STEP, &error))?;
    let guarded = order.reach.secrets.iter().zip(&order.secrets).filter(|(_, substitute)| substitute.misuse == Misuse::End);
    let mut teller = ToOwner {
        owner: owner.try_clone().map_err(|error| Failure::from_error(STEP, &error))?,
        record: Record::of_files(newer, older),
        guarded: guarded.map(|(secret, _)| secret.name.to_string()).collect(),
        alarm,
    };
    let task = task(order, guest, broker, logins, owner)?;
    process::serve(task, &mut teller).map_err(|error| Failure::from_error(STEP, &error))
}

fn task(order: Order, guest: OwnedFd, broker: Option<OwnedFd>, logins: Vec<File>, owner: &UnixStream) -> Result<Task, Failure> {
    let Order { sandbox, reach, secrets, authority, logins: places, pass, desk, agent, trust, .. } = order;
    if secrets.len() != reach.secrets.len() {
        return Err(Failure::new(STEP, "not every secret has a placeholder"));
    }
    let now = SystemTime::now();
    // What renews a login travels in bodies, and only to where its answer is looked through.
    let renews: Vec<SecretName> = reach
        .logins
        .iter()
        .flat_map(|login| &login.tokens)
        .filter(|token| token.member == REFRESH)
        .map(|token| token.secret.clone())
        .collect();
    let exchanges: Vec<Exchange> = reach.logins.iter().map(exchange).collect();
    let mut rules = Rules::of_reach(&reach);
    rules.exchanges = exchanges;
    rules.agent = agent.into_iter().map(|key| agent::Entry { binding: key.secret, host_keys: key.host_keys, user: key.user }).collect();
    for one in &trust {
        let certificates = certificates(&one.certificates)?;
        rules.trust.extend(one.hosts.iter().map(|host| (host.clone(), certificates.clone())));
    }
    rules.judge = reach.requests.as_deref().map(judge::read).transpose()?;
    let bindings = reach.secrets.into_iter().zip(secrets).map(|(secret, substitute)| Binding {
        places: parts(&substitute, &secret.name, &renews),
        name: secret.name.to_string(),
        hosts: secret.hosts,
        placeholder: substitute.placeholder,
        form: match substitute.form {
            order::Form::Text => Form::Plain,
            order::Form::Aws => Form::AwsKeys,
            order::Form::Ssh => Form::SshKey,
        },
        budget: Budget {
            expires: substitute.max_seconds.and_then(|seconds| now.checked_add(Duration::from_secs(seconds))),
            uses: substitute.max_uses,
            bytes: substitute.max_bytes,
        },
    });
    let source: Arc<dyn Secrets> = match broker {
        None => Arc::new(NoSecrets),
        Some(stream) => {
            let lookup = Lookup::connect(UnixStream::from(stream), pass).map_err(|error| Failure::from_error(STEP, &error))?;
            Arc::new(FromBroker { lookup, logins: places.into_iter().zip(logins).collect(), renewed: Mutex::default() })
        }
    };
    Ok(Task {
        authority_directory: authority,
        secrets: source,
        sandbox,
        rules,
        bindings: bindings.collect(),
        desk: desk.map(at_the_desk),
        guest,
        owner: owner.try_clone().map_err(|error| Failure::from_error(STEP, &error))?,
    })
}

/// What programs may ask for, as egress knows it.
fn at_the_desk(desk: order::Desk) -> Desk {
    let kind = |kind| match kind {
        DeskKind::Git { user } => Kind::Git { user },
        DeskKind::Docker { user } => Kind::Docker { user },
        DeskKind::Kubernetes => Kind::Kubernetes,
        DeskKind::AwsEndpoint => Kind::AwsEndpoint,
        DeskKind::GcpMetadata { project, email, scopes } => {
            Kind::GcpMetadata { project, email: email.unwrap_or_else(|| NO_ACCOUNT.to_owned()), scopes }
        }
        DeskKind::Ssh(SshUse { user, host_keys, repositories, push }) => {
            Kind::Ssh(ssh::Use { user, host_keys, repositories, access: if push { ssh::Access::Push } else { ssh::Access::Fetch } })
        }
    };
    let entries = desk.entries.into_iter().map(|(binding, as_what)| Entry { binding, kind: kind(as_what) });
    Desk { token: desk.token, entries: entries.collect() }
}

/// Certificates in PEM.
fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let read = CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<Vec<_>, _>>();
    read.map_err(|error| Failure::new(STEP, format!("authorities that a setting names are not PEM: {error}")))
}

/// Where a server renews a login.
fn exchange(login: &Login) -> Exchange {
    let tokens = login.tokens.iter().map(|token| (token.member.clone(), token.secret.to_string())).collect();
    Exchange { hosts: login.hosts.clone(), path: login.path.clone(), tokens }
}

/// Where a secret is put in besides headers: where settings say so, and in bodies what renews a login.
fn parts(substitute: &Substitute, name: &SecretName, renews: &[SecretName]) -> Places {
    let place = |part| if substitute.places.contains(&part) { Place::Replace } else { Place::Leave };
    let body = if renews.contains(name) { Place::Replace } else { place(Part::Body) };
    Places { query: place(Part::Query), body }
}

/// Values from the broker, and newer ones that a server handed out since.
struct FromBroker {
    lookup: Lookup,
    logins: Vec<(login::Places, File)>,
    renewed: Mutex<HashMap<String, SecretValue>>,
}

impl Secrets for FromBroker {
    fn value<'a>(&'a self, sandbox: &'a SandboxId, name: &'a str) -> LookUp<'a> {
        Box::pin(async move {
            if let Some(value) = self.renewed.lock().unwrap_or_else(PoisonError::into_inner).get(name) {
                return Ok(value.clone());
            }
            // The sandbox reads these words: nothing of the machine is in them.
            let unknown = || "it is not there any more".to_owned();
            let name: SecretName = name.parse().map_err(|_| unknown())?;
            let value = self.lookup.value(&SandboxLabel::from(sandbox), &name).await.map_err(|error| match error {
                // Of a budget there are only numbers in the settings, which whoever is refused may know.
                ClientError::Refused { why: Refusal::UsedUp, message, .. } => message,
                ClientError::Refused { .. } | ClientError::Gone(_) | ClientError::Unwanted | ClientError::Unfit | ClientError::Version => {
                    unknown()
                }
            })?;
            SecretValue::new(value.expose().to_vec()).map_err(|error| error.to_string())
        })
    }

    fn renew(&self, _sandbox: &SandboxId, renewed: Renewed) -> Result<(), String> {
        let holds = |places: &login::Places| renewed.tokens.iter().all(|(name, _)| places.tokens.iter().any(|(known, _)| known == name));
        let (places, file) = self.logins.iter().find(|(places, _)| holds(places)).ok_or("no login has these tokens")?;
        // Kept for this sandbox first: the old ones are worthless by now, whether the file can be written or not.
        self.renewed.lock().unwrap_or_else(PoisonError::into_inner).extend(renewed.tokens.iter().cloned());
        login::write_back(file, places, &renewed, SystemTime::now()).map_err(|error| error.to_string())
    }
}

/// Tells the owner, and writes down what was decided.
struct ToOwner {
    owner: UnixStream,
    record: Record,
    /// Secrets whose misuse ends everything inside.
    guarded: Vec<String>,
    /// Whoever holds the sandbox looks at its other end.
    alarm: File,
}

impl Teller for ToOwner {
    fn ready(&mut self, certificate: &str) {
        let _ = order::say(&self.owner, &Word::Ready { certificate: certificate.to_owned() });
    }

    fn event(&mut self, event: &Event) -> std::io::Result<()> {
        // Written down first: what ended a sandbox must be found in its record.
        self.record.add(&Row::from(event))?;
        if event.misused().is_some_and(|secret| self.guarded.iter().any(|name| name == secret)) {
            self.alarm.write_all(b"!")?;
        }
        Ok(())
    }

    fn end(&mut self, learnt: &Learnt) {
        let _ = order::say(&self.owner, &Word::End { missing: learnt.missing() });
    }
}
