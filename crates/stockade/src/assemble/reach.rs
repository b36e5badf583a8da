//! What a sandbox may reach, from flags and settings.
//!
//! `--allow-host` takes the place of the settings' list, as every flag does; the hosts of `--secret` are added to whichever holds. What the
//! machine's settings fix, neither can widen.

use stockade_broker::SecretName;
use stockade_broker::broker::Broker;
use stockade_core::credential::Delivery;
use stockade_core::host::{HostPattern, intersect};
use stockade_core::reach::{Reach, SecretUse, Unlisted};
use stockade_core::spec::BackendKind;
use stockade_sandbox::backends::local;
use stockade_store::settings::{SecretSetting, Settings};

use super::Additions;
use crate::cli::{EnvFlag, SandboxFlags};
use crate::egress::variables;
use crate::failure::Failure;

/// Variables that say how programs run, beside those of the loader and of the way out.
const STEERING: [&str; 16] = [
    "BASH_ENV",
    "ENV",
    "GIT_SSH_COMMAND",
    "HOME",
    "IFS",
    "JAVA_TOOL_OPTIONS",
    "NODE_OPTIONS",
    "PATH",
    "PERL5LIB",
    "PERL5OPT",
    "PWD",
    "PYTHONHOME",
    "PYTHONPATH",
    "RUBYOPT",
    "SHELL",
    "TMPDIR",
];

/// Puts it together.
pub(super) fn of(flags: &SandboxFlags, additions: &Additions, settings: &Settings, backend: BackendKind) -> Result<Reach, Failure> {
    let asked = !flags.allow_hosts.is_empty() || !flags.secrets.is_empty() || flags.learn || !additions.secrets.is_empty();
    if backend == local::KIND {
        // Nothing is kept from any host there, and whoever asked for less is told.
        return if asked { Err(no_wall()) } else { Ok(Reach::default()) };
    }
    let allowed = settings.allowed_hosts();
    let fixed = allowed.source.word() == "machine";
    if fixed && flags.learn {
        return Err(Failure::new(
            "arguments",
            "the machine's settings say which hosts are allowed, so `--learn` cannot let others through",
        ));
    }
    let mut hosts = allowed.value;
    let sources = settings.secrets().value;
    for binding in &flags.secrets {
        refuse_plain_variable(flags, binding.name(), &sources)?;
        for host in binding.hosts() {
            if fixed && intersect(std::slice::from_ref(host), &hosts) != [host.clone()] {
                return Err(Failure::new(
                    "arguments",
                    format!("the machine's settings do not allow `{host}`, where `--secret {binding}` is to go"),
                ));
            }
            if !hosts.contains(host) {
                hosts.push(host.clone());
            }
        }
    }
    for host in &additions.hosts {
        if fixed && intersect(std::slice::from_ref(host), &hosts) != [host.clone()] {
            return Err(Failure::new("agent", format!("the machine's settings do not allow `{host}`, which {} needs", additions.who)));
        }
        hosts.push(host.clone());
    }
    for secret in &additions.secrets {
        refuse_plain_variable(flags, &secret.name, &sources)?;
    }
    let deliveries = |name: &SecretName| {
        let setting = sources.iter().find(|setting| setting.name == *name);
        setting.map_or_else(|| vec![Delivery::Variable], SecretSetting::deliveries)
    };
    for binding in &flags.secrets {
        if deliveries(binding.name()).contains(&Delivery::Variable) {
            refuse_steering(binding.name())?;
        }
    }
    let secrets = flags.secrets.iter().map(|binding| SecretUse {
        name: binding.name().clone(),
        hosts: binding.hosts().to_vec(),
        deliveries: deliveries(binding.name()),
    });
    Ok(Reach {
        purpose: additions.purpose.clone(),
        secrets: secrets.chain(additions.secrets.iter().cloned()).collect(),
        hosts: dedup(hosts),
        unlisted: if flags.learn { Unlisted::Learn } else { Unlisted::Refuse },
        metered: additions.metered.clone(),
        tokens: additions.tokens,
        logins: additions.logins.clone(),
        rules: settings.network_rules().value,
        sent_bytes: settings.sent_bytes(),
        requests: None,
    })
}

/// A value that is passed as it is would be inside.
fn refuse_plain_variable(flags: &SandboxFlags, name: &SecretName, sources: &[SecretSetting]) -> Result<(), Failure> {
    let behind = Broker::variables_behind(sources, name).into_iter().map(|(_, variable)| variable);
    let variables: Vec<SecretName> = Broker::variable_of(sources, name).into_iter().chain(behind).collect();
    let plain = |env: &&EnvFlag| env.name == name.as_str() || (env.value.is_none() && variables.iter().any(|v| env.name == v.as_str()));
    match flags.env.iter().find(plain) {
        None => Ok(()),
        Some(env) => {
            let given = &env.name;
            Err(Failure::new("arguments", format!("`--env {given}` would show the value of `--secret {name}`"))
                .with_hint(format!("leave out --env {given}: inside, `{name}` holds a placeholder")))
        }
    }
}

/// A placeholder in a variable that says how programs run would break them.
fn refuse_steering(name: &SecretName) -> Result<(), Failure> {
    if !STEERING.contains(&name.as_str()) && !name.as_str().starts_with("LD_") && !variables::is_of_way_out(name.as_str()) {
        return Ok(());
    }
    let why = format!("`--secret {name}` would put a placeholder into the variable `{name}`, which says how programs run");
    Err(Failure::new("arguments", why).with_hint("keep the secret under another name: stockade secret set NAME"))
}

fn no_wall() -> Failure {
    Failure::new("arguments", "the `local` backend has no wall, so no host can be kept from it and no secret put in outside")
        .with_hint("use another backend, or leave out --allow-host, --secret and --learn")
}

fn dedup(hosts: Vec<HostPattern>) -> Vec<HostPattern> {
    let mut kept = Vec::new();
    for host in hosts {
        if !kept.contains(&host) {
            kept.push(host);
        }
    }
    kept
}
