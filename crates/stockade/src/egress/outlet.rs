//! The way out of one sandbox, as its owner holds it: opens it when the sandbox has its id, closes it when nothing inside runs any more.
//!
//! ```text
//!  new ─ open ─▶ broker registered ─▶ egress ready ─▶ [ sandbox lives ] ─ close ─▶ last events read, processes gone
//! ```

use std::cell::RefCell;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use stockade_broker::binding::SecretBinding;
use stockade_broker::broker::{After, Behind, Bound, Broker, Fact, Pass, Registered, SandboxLabel, Wish};
use stockade_broker::client::{ClientError, Owner};
use stockade_broker::talk::message::Refusal;
use stockade_broker::{SecretName, SecretValue};
use stockade_core::credential::{Class, Delivery};
use stockade_core::host::HostPattern;
use stockade_core::id::SandboxId;
use stockade_core::reach::{Reach, SecretUse};
use stockade_ledger::LedgerError;
use stockade_ledger::redact::{Counts, Redact, Redaction};
use stockade_sandbox::gate::{Gate, GateError, Opened};
use stockade_sandbox::variables::Wiped;
use stockade_sandbox::wayout::{GONE, WayOut};
use stockade_store::private_dir::ensure_private_dir;
use stockade_store::settings::{Access, OnMisuse, Place, Provider, SecretSetting, SecretSource, Settings, Ssh};

use super::deliver::{self, Account, Cluster, Counter, Delivered, Given, Logins, SshUse};
use super::order::{self, Form, Misuse, Order, Part, Substitute, Trust, VERSION, Word};
use super::processes::{self, Role};
use super::record::{Record, Row};
use super::{authorities, login, standing, variables};
use crate::Context;
use crate::failure::{Failure, PROVIDER_REFUSES};

/// How long egress may take to be ready.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long it may take to say its last words: milliseconds, but on a busy machine.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// Ports on which connections are taken from programs that know no proxy, though no pattern names them: what is refused is told so.
const WEB_PORTS: [u16; 2] = [80, 443];
/// The longest file of authorities.
const MAX_AUTHORITIES: u64 = 1 << 20;
/// What is said of one that does not answer.
const SILENT: &str = "egress-ended: the way out did not say what it did last: what was under way at the end may not be listed";
/// What a call is called that is no capability's.
const USUAL: &str = "run";
/// Where the certificate authority lives, beneath the state directory.
pub(crate) const AUTHORITY: &str = "egress";

/// A way out.
pub(crate) struct Outlet<'a> {
    context: &'a Context,
    reach: &'a Reach,
    /// Variables that a person set.
    given: &'a [String],
    /// What the caller's environment had for secrets.
    taken: RefCell<Vec<Taken>>,
    open: RefCell<Option<Standing>>,
    keeper: Arc<Mutex<Option<Keeper>>>,
    facts: Facts,
}

/// What is known of the credentials of a sandbox, once it has them.
pub(crate) type Facts = Arc<Mutex<Vec<(SecretName, Fact)>>>;

/// Takes the secrets of an outlet out of what is written down, from any thread, while its sandbox stands.
#[derive(Clone)]
pub(crate) struct Cleaner {
    keeper: Arc<Mutex<Option<Keeper>>>,
    has_secrets: bool,
}

/// A secret, and what the caller's environment had for it.
pub(crate) type Taken = (SecretName, Result<SecretValue, Failure>);

/// What is behind it while it is open.
struct Standing {
    egress: Role,
    record: Record,
}

/// The broker, as long as somebody may ask it for anything; it ends with the outlet.
struct Keeper {
    /// The process, where it is this sandbox's own.
    role: Option<Role>,
    owner: Owner,
    label: SandboxLabel,
    /// Secrets that are given back at the end.
    borrowed: Vec<SecretName>,
    /// Where the connection goes then.
    kept: Option<standing::Kept>,
}

/// Which secrets are registered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    /// All.
    All,
    /// Those whose values are there without anybody minting them.
    Known,
}

/// Secrets that are registered.
struct Registration {
    /// What egress asks at.
    lookup: UnixStream,
    /// What it says there first, where others could come too.
    pass: Option<Pass>,
    bound: Vec<Bound>,
}

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct Closed {
    /// What was tried, in order.
    pub(crate) rows: Vec<Row>,
    /// Hosts that were let through though nothing names them.
    pub(crate) missing: Vec<HostPattern>,
    /// That egress was gone before its sandbox, or did not end as it should; for people and receipts.
    pub(crate) broken: Option<String>,
}

impl<'a> Outlet<'a> {
    /// A way out that is not open yet; `None` where nothing may be reached. To be called while this process has one thread: values of secrets are
    /// taken out of its environment, and where others might be reading there nothing can be wiped.
    pub(crate) fn of(reach: &'a Reach, given: &'a [String], context: &'a Context) -> Result<Option<Self>, Failure> {
        if reach.is_nothing() {
            return Ok(None);
        }
        let outlet = Self {
            context,
            reach,
            given,
            taken: RefCell::default(),
            open: RefCell::new(None),
            keeper: Arc::default(),
            facts: Facts::default(),
        };
        outlet.take_values()?;
        Ok(Some(outlet))
    }

    /// What is known of its credentials, from the moment it is open.
    pub(crate) fn facts(&self) -> Facts {
        Arc::clone(&self.facts)
    }

    /// Takes its secrets out of what other threads write down.
    pub(crate) fn cleaner(&self) -> Cleaner {
        Cleaner { keeper: Arc::clone(&self.keeper), has_secrets: !self.reach.secrets.is_empty() }
    }

    /// Closes it and says what went through. Nothing inside may run any more. Secrets can be taken out of what is written down afterwards, until the
    /// outlet is gone.
    pub(crate) fn close(&self) -> Closed {
        let Some(Standing { egress, record }) = self.open.take() else { return Closed::default() };
        let _ = egress.connection.set_read_timeout(Some(LAST_WORDS));
        let _ = egress.connection.shutdown(std::net::Shutdown::Write);
        // It is gone already, or hangs; what it wrote down counts all the same.
        let (missing, broken) = match order::hear(&egress.connection) {
            Ok(Word::End { missing }) => (missing, None),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => (Vec::new(), Some(SILENT.to_owned())),
            Ok(Word::Ready { .. } | Word::Failed { .. }) | Err(_) => (Vec::new(), Some(GONE.to_owned())),
        };
        egress.wait();
        Closed { rows: record.read().unwrap_or_default(), missing, broken }
    }

    fn stand(&self, id: &SandboxId, directory: &Path, is_wanted: &dyn Fn() -> bool) -> Result<Opened, Failure> {
        let settings = self.secret_settings()?;
        self.check_ssh(&settings)?;
        self.mention_wide();
        let registration = self.register(id, Which::All, is_wanted)?;
        let lookup = registration.as_ref().map(|one| (&one.lookup, one.pass));
        let bound = registration.as_ref().map_or(&[][..], |one| one.bound.as_slice());
        let places = self.context.places()?;
        let mut ports = self.reach.ports();
        ports.extend(WEB_PORTS);
        ports.sort_unstable();
        ports.dedup();
        let proxy_port = variables::proxy_port(&ports);
        let token = token()?;
        let delivered = self.deliver(bound, &settings, Counter { proxy_port, token: &token })?;
        let shown = deliver::lay_out(&delivered, &places.state, directory)?;
        let authority = places.state.join(AUTHORITY);
        ensure_private_dir(&authority).map_err(|error| Failure::from_error("egress", &error))?;
        let record = Record::make(directory).map_err(|error| Failure::new("egress", format!("making the record: {error}")))?;
        let (inside, outside) = channel()?;
        let (alarm, alarm_of_egress) = alarm()?;
        let egress = processes::egress(self.context)?;
        let order = Order {
            version: VERSION,
            sandbox: id.clone(),
            reach: self.reach.clone(),
            secrets: self.reach.secrets.iter().zip(bound).map(|(secret, bound)| substitute(bound, form(secret), &settings)).collect(),
            authority,
            roots: roots(self.context),
            logins: self.reach.logins.iter().map(login::Places::from).collect(),
            pass: lookup.and_then(|(_, pass)| pass),
            desk: (!delivered.desk.is_empty()).then(|| order::Desk { token: token.clone(), entries: delivered.desk.clone() }),
            agent: delivered.agent_keys.clone(),
            trust: trust(bound, &settings)?,
        };
        let failed = |error: std::io::Error| Failure::new("login", format!("opening its file: {error}"));
        let logins = self.reach.logins.iter().map(login::open).collect::<Result<Vec<_>, _>>().map_err(failed)?;
        let [newer, older] = record.files();
        let always = [newer.as_fd(), older.as_fd(), outside.as_fd(), alarm_of_egress.as_fd()];
        let passed = always.into_iter().chain(lookup.map(|(stream, _)| stream.as_fd()));
        let passed = passed.chain(logins.iter().map(|file| file.as_fd()));
        let said = order::send(&egress.connection, &order, &passed.collect::<Vec<_>>()).and_then(|()| {
            egress.connection.set_read_timeout(Some(PATIENCE))?;
            order::hear(&egress.connection)
        });
        let certificate = match said {
            Ok(Word::Ready { certificate }) => certificate,
            Ok(Word::Failed { message }) => return Err(Failure::new("egress", message)),
            Ok(Word::End { .. }) => return Err(Failure::new("egress", "it ended before it began")),
            Err(error) => return Err(Failure::new("egress", format!("it does not answer: {error}"))),
        };
        let trusted = authorities::write(directory, &certificate, self.context)?;
        let mut environment = variables::of_way_out(proxy_port, self.given);
        environment.extend(delivered.environment);
        self.open.replace(Some(Standing { egress, record }));
        let way_out = WayOut {
            channel: inside,
            proxy_port,
            ports,
            authorities: Some(trusted.pem),
            java_authorities: trusted.java,
            shown,
            agent: delivered.agent,
            alarm: Some(alarm),
        };
        Ok(Opened { way_out, environment, path_prefix: delivered.path_prefix })
    }

    /// What programs inside are given.
    fn deliver(&self, bound: &[Bound], settings: &[SecretSetting], counter: Counter<'_>) -> Result<Delivered, Failure> {
        let given: Vec<Given> = self.reach.secrets.iter().zip(bound).map(|(secret, bound)| given(secret, bound, settings)).collect();
        let delivered = deliver::deliver(&given, counter)?;
        // What a person set stays, so what a tool needs and finds taken would be silently without effect.
        match delivered.environment.iter().find(|(name, _)| self.given.iter().any(|own| own == name)) {
            None => Ok(delivered),
            Some((name, _)) => Err(Failure::new("secret", format!("`--env {name}` and a secret's delivery both set that variable"))
                .with_hint(format!("leave out --env {name}, or change the secret's `delivery` in your settings"))),
        }
    }

    /// What a key may be used for is known before anybody is asked for it: a pack can name the delivery too, and settings need not be made for it.
    fn check_ssh(&self, settings: &[SecretSetting]) -> Result<(), Failure> {
        for secret in self.reach.secrets.iter().filter(|secret| secret.deliveries.contains(&Delivery::Ssh)) {
            let setting = settings.iter().find(|setting| setting.name == secret.name);
            let checked = setting.ok_or_else(|| "your settings have no entry for it".to_owned()).and_then(SecretSetting::git_over_ssh);
            checked.map_err(|why| Failure::new("secret", format!("`{}` cannot be used for git over SSH: {why}", secret.name)))?;
        }
        Ok(())
    }

    /// Whoever lets a secret go to everything below `com` has hardly meant it.
    fn mention_wide(&self) {
        for secret in &self.reach.secrets {
            for host in secret.hosts.iter().filter(|host| host.is_below_one_label()) {
                let name = &secret.name;
                self.context.printer.warning(format!("the secret `{name}` may go to whatever `{host}` means: hosts of very many owners"));
            }
        }
    }

    /// Starts a broker where there are secrets, and gives it those.
    fn register(&self, id: &SandboxId, which: Which, is_wanted: &dyn Fn() -> bool) -> Result<Option<Registration>, Failure> {
        let settings = self.secret_settings()?;
        let is_minted =
            |name: &SecretName| settings.iter().any(|setting| setting.name == *name && matches!(setting.source, SecretSource::Provider(_)));
        let wanted = |secret: &&SecretUse| match which {
            Which::All => true,
            Which::Known => !is_minted(&secret.name),
        };
        let secrets: Vec<&SecretUse> = self.reach.secrets.iter().filter(wanted).collect();
        if secrets.is_empty() {
            return Ok(None);
        }
        // Whoever is asked is known before any answer, and where there is none.
        let asked =
            secrets.iter().map(|secret| (secret.name.clone(), Fact { adapter: adapter(&secret.name, &settings), ..Fact::default() }));
        *self.facts.lock().unwrap_or_else(PoisonError::into_inner) = asked.collect();
        let mut unfit = None;
        let mut wishes = Vec::new();
        let mut taken = self.taken.take();
        let mut logged_in: Vec<(SecretName, SecretValue)> = Vec::new();
        for login in &self.reach.logins {
            logged_in.extend(login::tokens(login)?);
        }
        let mut all_behind = Vec::new();
        for secret in &secrets {
            all_behind.push(behind(&secret.name, &settings, &taken)?);
        }
        for (secret, behind) in secrets.into_iter().zip(all_behind) {
            let class = Class::of(&secret.deliveries);
            let binding = SecretBinding::new(secret.name.clone(), secret.hosts.iter().cloned());
            let binding = binding.map_err(|error| Failure::from_error("secret", &error))?;
            if let Some(at) = logged_in.iter().position(|(name, _)| *name == secret.name) {
                wishes.push(Wish { binding, caller: Some(logged_in.swap_remove(at).1), class, behind });
                continue;
            }
            let at = taken.iter().position(|(name, _)| *name == secret.name);
            let caller = match at.map(|at| taken.swap_remove(at).1) {
                Some(Ok(value)) => Some(value),
                Some(Err(failure)) => {
                    // The store may have it; only where nobody does is this worth telling.
                    unfit = Some(failure);
                    None
                }
                None => None,
            };
            wishes.push(Wish { binding, caller, class, behind });
        }
        let standing::Way { mut owner, lookup, role, kept } = standing::way(self.context)?;
        let failed = |error: &stockade_broker::client::ClientError| {
            let step = if matches!(error, ClientError::Refused { why: Refusal::Provider, .. }) { PROVIDER_REFUSES } else { "secret" };
            let failure = Failure::new(step, error.to_string());
            match error.hint() {
                Some(hint) => failure.with_hint(hint),
                None => failure,
            }
        };
        let label = SandboxLabel::from(id);
        let purpose = if self.reach.purpose.is_empty() { USUAL } else { self.reach.purpose.as_str() };
        let registered =
            owner.register_while(&label, purpose, wishes, is_wanted).map_err(|error| unfit.unwrap_or_else(|| failed(&error)))?;
        let Registered { bound, pass } = registered;
        for note in bound.iter().filter_map(|bound| bound.fact.note.as_ref()) {
            self.context.printer.warning(note.clone());
        }
        let borrowed = bound.iter().filter(|bound| bound.fact.after == After::GivenBack).map(|bound| bound.binding.name().clone());
        lock(&self.keeper).replace(Keeper { role, owner, label, borrowed: borrowed.collect(), kept });
        let fact = |bound: &Bound| {
            let name = bound.binding.name();
            (name.clone(), Fact { scope: ssh_scope(name, self.reach, &settings).or(bound.fact.scope.clone()), ..bound.fact.clone() })
        };
        let facts = bound.iter().map(fact).collect();
        *self.facts.lock().unwrap_or_else(PoisonError::into_inner) = facts;
        let (lookup, pass) = lookup.connect(pass)?;
        Ok(Some(Registration { lookup, pass, bound }))
    }

    fn take_values(&self) -> Result<(), Failure> {
        let names: Vec<&SecretName> = self.reach.secrets.iter().map(|secret| &secret.name).collect();
        self.taken.replace(taken(&names, &self.secret_settings()?, self.context));
        Ok(())
    }

    /// A project has no say in secrets.
    fn secret_settings(&self) -> Result<Vec<SecretSetting>, Failure> {
        if self.reach.secrets.is_empty() {
            return Ok(Vec::new());
        }
        let settings = Settings::load(self.context.places()?, None).map_err(|error| Failure::from_error("settings", &error))?;
        Ok(settings.secrets().value)
    }
}

/// Takes what the caller's environment has for secrets, and wipes it there: only the broker needs it from now on.
pub(crate) fn taken(names: &[&SecretName], settings: &[SecretSetting], context: &Context) -> Vec<Taken> {
    let environment = &context.environment;
    let own = names.iter().filter_map(|name| Some(((*name).clone(), Broker::variable_of(settings, name)?)));
    let behind = names.iter().flat_map(|name| Broker::variables_behind(settings, name));
    let mut variables: Vec<(SecretName, SecretName)> = Vec::new();
    for both in own.chain(behind) {
        if !variables.contains(&both) {
            variables.push(both);
        }
    }
    let mut taken = Vec::new();
    for (name, variable) in &variables {
        let Some(value) = environment.variable(variable.as_str()).filter(|value| !value.is_empty()) else { continue };
        let value = SecretValue::from_line(value.into_vec()).map_err(|error| {
            Failure::new("secret", format!("the variable `{variable}` cannot be the secret `{name}`: {error}"))
                .with_hint(format!("stockade secret set {name}"))
        });
        taken.push((name.clone(), value));
    }
    // After all are read: two secrets may come from one variable.
    for (_, variable) in &variables {
        if environment.is_set(variable.as_str()) && environment.forget(variable.as_str()) == Wiped::No {
            context.printer.warning(format!("the value of `{variable}` could not be wiped from this process's own environment"));
        }
    }
    taken
}

/// What was taken of those secrets that a provider is asked with for this one.
pub(crate) fn behind(name: &SecretName, settings: &[SecretSetting], taken: &[Taken]) -> Result<Behind, Failure> {
    let mut values = Behind::new();
    for (secret, _) in Broker::variables_behind(settings, name) {
        match taken.iter().find(|(known, _)| *known == secret) {
            Some((_, Ok(value))) => values.push((secret, value.duplicate())),
            Some((_, Err(failure))) => return Err(failure.clone()),
            None => {}
        }
    }
    Ok(values)
}

/// Where the caller says the machine's roots are.
pub(crate) fn roots(context: &Context) -> Vec<PathBuf> {
    let named = ["SSL_CERT_FILE", "SSL_CERT_DIR"].iter().filter_map(|name| context.environment.variable(name));
    named.filter(|path| !path.is_empty()).map(PathBuf::from).collect()
}

impl Gate for Outlet<'_> {
    fn open(&self, id: &SandboxId, directory: &Path, is_wanted: &dyn Fn() -> bool) -> Result<Opened, GateError> {
        let told = |failure: Failure| GateError { step: failure.step, message: failure.message, hint: failure.hint };
        self.stand(id, directory, is_wanted).map_err(told)
    }
}

/// Who holds the values takes them out; they do not come here for that.
impl Redact for Outlet<'_> {
    fn is_none(&self) -> bool {
        self.reach.secrets.is_empty()
    }

    fn pieces(&self, pieces: &[&[u8]], counts: &mut Counts) -> Result<Vec<Option<Vec<u8>>>, LedgerError> {
        let failed = |failure: Failure| LedgerError::Redaction(failure.message);
        if lock(&self.keeper).is_none() {
            // Nothing ran, or it runs elsewhere: a broker of our own knows the same values.
            let random = stockade_sandbox::state::random_u32().map_err(|errno| LedgerError::Redaction(errno.to_string()))?;
            let id = SandboxId::from_parts(0, random);
            // What a provider would mint was not minted, so it is nowhere.
            self.register(&id, Which::Known, &|| true).map_err(failed)?;
        }
        match &mut *lock(&self.keeper) {
            Some(keeper) => keeper.pieces(pieces, counts),
            None => Ok(vec![None; pieces.len()]),
        }
    }
}

/// Where nobody holds the values yet, or any more, nothing is written down.
impl Redact for Cleaner {
    fn is_none(&self) -> bool {
        !self.has_secrets
    }

    fn pieces(&self, pieces: &[&[u8]], counts: &mut Counts) -> Result<Vec<Option<Vec<u8>>>, LedgerError> {
        match &mut *lock(&self.keeper) {
            Some(keeper) => keeper.pieces(pieces, counts),
            None if !self.has_secrets => Ok(vec![None; pieces.len()]),
            None => Err(LedgerError::Redaction("nobody holds the values of the sandbox's secrets".to_owned())),
        }
    }
}

impl Keeper {
    fn pieces(&mut self, pieces: &[&[u8]], counts: &mut Counts) -> Result<Vec<Option<Vec<u8>>>, LedgerError> {
        let (clean, found) = self.owner.redact(&self.label, pieces).map_err(|error| LedgerError::Redaction(error.to_string()))?;
        let found: Vec<Redaction> = found.into_iter().map(|(name, count)| Redaction { secret: name.to_string(), count }).collect();
        counts.add(&found);
        Ok(clean)
    }
}

/// A thread that failed while it had the lock left whole values.
fn lock(keeper: &Mutex<Option<Keeper>>) -> MutexGuard<'_, Option<Keeper>> {
    keeper.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Outlet<'_> {
    fn drop(&mut self) {
        let keeper = lock(&self.keeper).take();
        let Some(Keeper { role, mut owner, label, borrowed, kept }) = keeper else { return };
        // What was minted for this sandbox alone is given back; that is worth waiting for, so that a failure is told.
        let released = if borrowed.is_empty() { owner.leave(&label) } else { owner.release(&label) };
        match (released, kept) {
            (Ok(()), Some(kept)) => kept.keep(owner),
            (Ok(()), None) => drop(owner),
            (Err(error), _) => {
                drop(owner);
                if let Some(told) = not_given_back(&borrowed, &error) {
                    self.context.printer.warning(told);
                }
            }
        }
        if let Some(role) = role {
            role.wait();
        }
    }
}

/// What a key may be used for, as receipts say it.
fn ssh_scope(name: &SecretName, reach: &Reach, settings: &[SecretSetting]) -> Option<String> {
    let is_ssh = |secret: &SecretUse| secret.name == *name && secret.deliveries.contains(&Delivery::Ssh);
    let setting = settings.iter().find(|setting| setting.name == *name).filter(|_| reach.secrets.iter().any(is_ssh))?;
    setting.git_over_ssh().ok().map(Ssh::scope)
}

/// What a person is told when a sandbox could not be released. A broker that is gone keeps nothing, so only what it had to give back is lost.
fn not_given_back(borrowed: &[SecretName], error: &ClientError) -> Option<String> {
    if let ClientError::Refused { .. } = error {
        // It says itself what could not be given back.
        return Some(error.to_string());
    }
    let names: Vec<String> = borrowed.iter().map(|name| format!("`{name}`")).collect();
    let told =
        format!("what was minted for {} may not have been given back, and ends by itself at its own time: {error}", names.join(", "));
    (!names.is_empty()).then_some(told)
}

/// Who gives a secret, as receipts say it.
fn adapter(name: &SecretName, settings: &[SecretSetting]) -> String {
    let source = settings.iter().find(|setting| setting.name == *name).map(|setting| &setting.source);
    match source {
        Some(SecretSource::Provider(provider)) => provider.word(),
        Some(SecretSource::Store | SecretSource::Env { .. } | SecretSource::File { .. } | SecretSource::Command { .. }) | None => "secret",
    }
    .to_owned()
}

/// A secret as programs inside are given it.
fn given(secret: &SecretUse, bound: &Bound, settings: &[SecretSetting]) -> Given {
    let setting = settings.iter().find(|setting| setting.name == secret.name);
    let provider = setting.and_then(|setting| match &setting.source {
        SecretSource::Provider(provider) => Some(provider.as_ref()),
        SecretSource::Store | SecretSource::Env { .. } | SecretSource::File { .. } | SecretSource::Command { .. } => None,
    });
    let cluster = match provider {
        Some(Provider::Kubernetes(cluster)) => Some(Cluster { server: cluster.server.clone(), namespace: Some(cluster.namespace.clone()) }),
        _ => secret.hosts.first().map(|host| Cluster { server: format!("https://{host}"), namespace: None }),
    };
    let account = match provider {
        Some(Provider::Gcp(gcp)) => Account { project: gcp.project.clone(), email: gcp.impersonate.clone(), scopes: gcp.scopes.clone() },
        _ => Account::default(),
    };
    Given {
        name: secret.name.clone(),
        placeholder: bound.placeholder.as_str().to_owned(),
        hosts: secret.hosts.clone(),
        deliveries: secret.deliveries.clone(),
        user: setting.and_then(|setting| setting.user.clone()),
        kubernetes: cluster,
        gcp: Some(account),
        logins: setting
            .and_then(|setting| setting.ssh.as_ref())
            .map(|ssh| Logins { host_keys: ssh.host_keys.clone(), user: ssh.user.clone() }),
        ssh: setting.and_then(|setting| setting.ssh.as_ref()).map(|ssh| SshUse {
            user: ssh.user.clone(),
            host_keys: ssh.host_keys.clone(),
            repositories: ssh.repositories.clone(),
            push: ssh.access == Access::Push,
        }),
    }
}

/// The authorities that settings name for the hosts of secrets.
fn trust(bound: &[Bound], settings: &[SecretSetting]) -> Result<Vec<Trust>, Failure> {
    let mut trust = Vec::new();
    for bound in bound {
        let Some(setting) = settings.iter().find(|setting| setting.name == *bound.binding.name()) else { continue };
        let cluster = match &setting.source {
            SecretSource::Provider(provider) => match provider.as_ref() {
                Provider::Kubernetes(cluster) => cluster.ca_file.as_deref(),
                _ => None,
            },
            SecretSource::Store | SecretSource::Env { .. } | SecretSource::File { .. } | SecretSource::Command { .. } => None,
        };
        let Some(file) = setting.authorities.as_deref().or(cluster) else { continue };
        let failed = |why: String| {
            Failure::new("secret", format!("the authorities of `{}` in `{}` cannot be read: {why}", setting.name, file.display()))
        };
        let length = std::fs::metadata(file).map_err(|error| failed(error.to_string()))?.len();
        if length > MAX_AUTHORITIES {
            return Err(failed("the file is too long".to_owned()));
        }
        let certificates = std::fs::read_to_string(file).map_err(|error| failed(error.to_string()))?;
        trust.push(Trust { hosts: bound.binding.hosts().to_vec(), certificates });
    }
    Ok(trust)
}

/// What opens the desk, for this sandbox alone.
fn token() -> Result<String, Failure> {
    let mut bytes = [0; 24];
    let failed = |_| Failure::new("secret", "this machine gives no random numbers");
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).map_err(failed)?;
    Ok(bytes.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}")))
}

/// What egress is told of a secret that stands for another.
pub(crate) fn substitute(bound: &Bound, form: Form, settings: &[SecretSetting]) -> Substitute {
    let setting = settings.iter().find(|setting| setting.name == *bound.binding.name());
    Substitute {
        placeholder: bound.placeholder.as_str().to_owned(),
        max_uses: setting.and_then(|setting| setting.max_uses),
        max_bytes: setting.and_then(|setting| setting.max_bytes),
        max_seconds: setting.and_then(|setting| setting.max_seconds),
        places: setting.map(|setting| setting.places.iter().copied().map(part).collect()).unwrap_or_default(),
        misuse: match setting.map(|setting| setting.on_misuse).unwrap_or_default() {
            OnMisuse::Refuse => Misuse::Refuse,
            OnMisuse::End => Misuse::End,
        },
        form,
    }
}

/// What a secret is to egress.
fn form(secret: &SecretUse) -> Form {
    let aws = |delivery: &Delivery| matches!(delivery, Delivery::AwsKeys | Delivery::AwsEndpoint);
    if secret.deliveries.contains(&Delivery::Ssh) {
        Form::Ssh
    } else if secret.deliveries.iter().any(aws) {
        Form::Aws
    } else {
        Form::Text
    }
}

fn part(place: Place) -> Part {
    match place {
        Place::Query => Part::Query,
        Place::Body => Part::Body,
    }
}

/// What egress raises when everything inside must end: the sandbox's end and that of egress.
pub(crate) fn alarm() -> Result<(std::os::fd::OwnedFd, std::os::fd::OwnedFd), Failure> {
    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
        .map_err(|errno| Failure::new("egress", format!("making the sandbox's alarm: {errno}")))
}

/// The pair over which connections are passed: the guest's end and ours.
pub(crate) fn channel() -> Result<(std::os::fd::OwnedFd, std::os::fd::OwnedFd), Failure> {
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .map_err(|errno| Failure::new("egress", format!("making the sandbox's channel: {errno}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_broker_that_is_gone_had_to_give_back_is_told() {
        let names: Vec<SecretName> = ["A", "B"].iter().map(|name| name.parse().unwrap()).collect();
        let gone = ClientError::Gone("it closed the connection".to_owned());
        let told = "what was minted for `A`, `B` may not have been given back, and ends by itself at its own time: the secret broker is gone: it closed the \
                    connection";
        assert_eq!(not_given_back(&names, &gone).as_deref(), Some(told));
        assert_eq!(not_given_back(&[], &gone), None, "nothing is lost");
        let refused = ClientError::Refused { why: Refusal::NoValue, message: "no".to_owned(), hint: String::new() };
        assert_eq!(not_given_back(&[], &refused).as_deref(), Some("no"));
    }
}
