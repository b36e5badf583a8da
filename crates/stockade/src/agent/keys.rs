//! Which keys an agent has, and where each may go. Only their names are handled here: values stay with whoever holds them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use stockade_broker::broker::Broker;
use stockade_broker::store::Store;
use stockade_core::host::HostPattern;
use stockade_core::reach::{Login, LoginToken, SecretUse};
use stockade_core::secret::SecretName;
use stockade_store::settings::{SecretSetting, Settings};

use super::address::Address;
use super::profile::{Key, LoginFile, Profile};
use super::providers;
use crate::Context;
use crate::cli::SandboxFlags;
use crate::egress::login;
use crate::failure::Failure;

/// What the token is called that a model is asked with.
const ACCESS: &str = "access_token";

/// What an agent is given besides what flags and settings say.
#[derive(Debug, Default)]
pub(crate) struct Granted {
    /// Hosts it may reach.
    pub(crate) hosts: Vec<HostPattern>,
    /// Keys that are put in on the way.
    pub(crate) secrets: Vec<SecretUse>,
    /// Hosts of its model.
    pub(crate) metered: Vec<HostPattern>,
    /// Variables inside.
    pub(crate) variables: Vec<(String, OsString)>,
    /// Logins whose tokens are among the secrets.
    pub(crate) logins: Vec<Login>,
    /// Logins that are there and cannot be used, and why.
    pub(crate) unusable: Vec<String>,
}

/// Looks for keys. `directory` is where the agent's settings are outside.
pub(crate) fn look(
    profile: &Profile,
    flags: &SandboxFlags,
    directory: Option<&Path>,
    argv: &[OsString],
    context: &Context,
) -> Result<Granted, Failure> {
    let known = Known::gather(context)?;
    let mut granted = Granted { hosts: profile.hosts.clone(), ..Granted::default() };
    for name in &profile.pass {
        granted.variables.extend(value_of(name, flags, context).map(|value| (name.clone(), value)));
    }
    granted.variables.extend(profile.set.iter().map(|(name, value)| (name.clone(), value.into())));
    let provider = profile.providers.as_ref().zip(directory).and_then(|(known, directory)| providers::chosen(known, directory, argv));
    if let Some(provider) = provider {
        let address = Address::parse("base_url", &provider.url)?;
        if address.inside != provider.url {
            return Err(Failure::new("agent", "a sandbox has a `localhost` of its own, so the provider's address leads nowhere")
                .with_hint(format!("in the agent's settings write {}", address.inside)));
        }
        add(&mut granted.hosts, &address.host);
        add(&mut granted.metered, &address.host);
        if let Some(variable) = provider.key {
            let key = Key { variable, hosts: vec![address.host], base_url: None };
            bind(&key, &key.hosts, &mut granted, flags, &known, context)?;
        }
        return Ok(granted);
    }
    for key in &profile.keys {
        let base_url = key.base_url.as_ref().and_then(|name| Some((name, value_of(name, flags, context)?)));
        let address = match &base_url {
            Some((name, text)) => {
                let text = text.to_str().ok_or_else(|| Failure::new("agent", format!("`{name}` is not text")))?;
                Some(Address::parse(name, text)?)
            }
            None => None,
        };
        if let (Some((name, _)), Some(address)) = (base_url, &address) {
            // A model of one's own may need no key.
            add(&mut granted.hosts, &address.host);
            add(&mut granted.metered, &address.host);
            granted.variables.retain(|(known, _)| known != name);
            granted.variables.push((name.clone(), address.inside.clone().into()));
        }
        let hosts = address.map_or_else(|| key.hosts.clone(), |address| vec![address.host]);
        bind(key, &hosts, &mut granted, flags, &known, context)?;
    }
    for login in &profile.logins {
        log_in(login, directory, &mut granted, flags, context)?;
    }
    // What a person bound by hand goes to a model as well.
    for flag in &flags.secrets {
        if profile.keys.iter().any(|key| key.variable == flag.name().as_str()) {
            flag.hosts().iter().for_each(|host| add(&mut granted.metered, host));
        }
    }
    Ok(granted)
}

/// Where an agent's own directory is outside.
pub(crate) fn directory(profile: &Profile, home: &Path, context: &Context) -> Option<PathBuf> {
    let directory = profile.directory.as_ref()?;
    let named = directory.variable.as_ref().and_then(|name| context.environment.variable(name)).filter(|path| !path.is_empty());
    Some(named.map_or_else(|| home.join(&directory.path), PathBuf::from))
}

/// Takes a login that is there, with those of its tokens that it has.
fn log_in(
    login: &LoginFile,
    directory: Option<&Path>,
    granted: &mut Granted,
    flags: &SandboxFlags,
    context: &Context,
) -> Result<(), Failure> {
    let is_there = |file: &PathBuf| !file.symlink_metadata().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound);
    let Some(file) = directory.map(|directory| directory.join(&login.file)).filter(is_there) else { return Ok(()) };
    let mut found =
        Login { file, tokens: Vec::new(), hosts: login.renewed_by.clone(), path: login.renewed_at.clone(), expiry: login.expiry.clone() };
    for token in &login.tokens {
        let secret = token.secret.parse().map_err(|error| Failure::from_error("agent", &error))?;
        found.tokens.push(LoginToken { secret, pointer: token.pointer.clone(), member: token.member.clone() });
    }
    let there: Vec<SecretName> = match login::tokens(&found) {
        Ok(tokens) => tokens.into_iter().map(|(name, _)| name).collect(),
        Err(failure) => {
            // Without it the agent may still have a key, so this is told and no more.
            let file = stockade_core::escape::escape(&found.file.to_string_lossy());
            granted.unusable.push(format!("`{file}` cannot be used: {}", failure.message));
            return Ok(());
        }
    };
    found.tokens.retain(|token| there.contains(&token.secret));
    if found.tokens.is_empty() {
        return Ok(());
    }
    for token in login.tokens.iter().filter(|token| there.iter().any(|name| name.as_str() == token.secret)) {
        let base_url = token.base_url.as_ref().and_then(|name| Some((name, value_of(name, flags, context)?.into_string().ok()?)));
        let address = base_url.map(|(name, text)| Address::parse(name, &text)).transpose()?;
        let hosts = address.map_or_else(|| token.hosts.clone(), |address| vec![address.host]);
        for host in &hosts {
            add(&mut granted.hosts, host);
        }
        if token.member == ACCESS {
            for host in &hosts {
                add(&mut granted.metered, host);
            }
        }
        let name = token.secret.parse().map_err(|error| Failure::from_error("agent", &error))?;
        granted.secrets.push(SecretUse::usual(name, hosts));
    }
    found.hosts.iter().for_each(|host| add(&mut granted.hosts, host));
    granted.logins.push(found);
    Ok(())
}

/// Binds a key that is there to its hosts, unless a flag did.
fn bind(
    key: &Key,
    hosts: &[HostPattern],
    granted: &mut Granted,
    flags: &SandboxFlags,
    known: &Known,
    context: &Context,
) -> Result<(), Failure> {
    let name: SecretName = key.variable.parse().map_err(|error| Failure::from_error("agent", &error))?;
    if flags.secrets.iter().any(|flag| *flag.name() == name) || !known.has(&name, context) {
        return Ok(());
    }
    for host in hosts {
        add(&mut granted.hosts, host);
        add(&mut granted.metered, host);
    }
    granted.secrets.push(SecretUse::usual(name, hosts.to_vec()));
    Ok(())
}

/// Where values could come from.
struct Known {
    settings: Vec<SecretSetting>,
    stored: Vec<SecretName>,
}

impl Known {
    fn gather(context: &Context) -> Result<Self, Failure> {
        let places = context.places()?;
        // A project has no say in secrets.
        let settings = Settings::load(places, None).map_err(|error| Failure::from_error("settings", &error))?;
        // A store that cannot be read is told by the broker, when something is wanted from it.
        let stored = Store::beneath(&places.state).list().unwrap_or_default();
        Ok(Self { settings: settings.secrets().value, stored: stored.into_iter().map(|listed| listed.name).collect() })
    }

    fn has(&self, name: &SecretName, context: &Context) -> bool {
        let variable = Broker::variable_of(&self.settings, name);
        self.stored.contains(name)
            || self.settings.iter().any(|setting| setting.name == *name && variable.is_none())
            || variable.is_some_and(|variable| context.environment.is_set(variable.as_str()))
    }
}

/// A variable as it is to be inside: from `--env`, else the caller's.
fn value_of(name: &str, flags: &SandboxFlags, context: &Context) -> Option<OsString> {
    let flag = flags.env.iter().find(|flag| flag.name == name).and_then(|flag| flag.value.clone());
    flag.or_else(|| context.environment.variable(name)).filter(|value| !value.is_empty())
}

fn add(hosts: &mut Vec<HostPattern>, host: &HostPattern) {
    if !hosts.contains(host) {
        hosts.push(host.clone());
    }
}
