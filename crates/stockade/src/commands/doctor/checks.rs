//! What doctor looks at, one row each: what was found, what it means, and the command that changes it. Looks only.

use std::os::unix::fs::MetadataExt;

use serde::Serialize;
use stockade_broker::store::{Keeper, Store};
use stockade_core::demand::{Demand, Level};
use stockade_sandbox::once::JobError;
use stockade_sandbox::surroundings::facts::{Engine, Facts};
use stockade_sandbox::surroundings::{OF_NAMESPACES, Obstacle};
use stockade_sandbox::trial::Found;
use stockade_sandbox::workspace::locate::locate;
use stockade_store::places::Places;
use stockade_store::settings::Settings;

use crate::Context;
use crate::assemble;
use crate::commands::run::explain;
use crate::commands::runnable;
use crate::daemon::{client, proof};
use crate::egress;
use crate::failure::Failure;

/// The name of the check of the daemon.
pub(super) const DAEMON: &str = "daemon";
/// The name of the check of settings, which decides about the whole as well.
pub(super) const SETTINGS: &str = "settings";

/// How a check came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    /// As it should be.
    Good,
    /// Something that is needed is not there.
    Missing,
}

impl State {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Missing => "missing",
        }
    }
}

/// One thing that was looked at.
#[derive(Debug, Serialize)]
pub(super) struct Check {
    pub(super) name: &'static str,
    pub(super) state: State,
    /// What was found.
    pub(super) detail: String,
    /// What that means for sandboxes.
    pub(super) meaning: String,
    /// The command that fixes it; empty when nothing is wrong.
    pub(super) fix: String,
}

impl Check {
    fn good(name: &'static str, detail: impl Into<String>, meaning: impl Into<String>) -> Self {
        Self { name, state: State::Good, detail: detail.into(), meaning: meaning.into(), fix: String::new() }
    }

    fn missing(name: &'static str, detail: impl Into<String>, meaning: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { name, state: State::Missing, detail: detail.into(), meaning: meaning.into(), fix: fix.into() }
    }
}

/// The kernel and its switches. A switch that this kernel does not have is not mentioned.
pub(super) fn of_machine(facts: &Facts, jails_stand: bool) -> Vec<Check> {
    let foreseen = Obstacle::foreseen(facts);
    let row = |name, detail: String, meaning: &str, obstacle: Obstacle| {
        // A switch that is off for everybody else may be on for us: a profile, or another way around.
        if foreseen.contains(&obstacle) && !jails_stand {
            Check::missing(name, detail, obstacle.why(), runnable(obstacle.fix()))
        } else {
            Check::good(name, detail, meaning)
        }
    };
    let (major, minor) = facts.kernel;
    let mut checks = vec![row("kernel", format!("Linux {major}.{minor}"), "new enough for a jail", Obstacle::OldKernel)];
    let switches = [
        ("user namespaces", "user.max_user_namespaces", facts.max_user_namespaces, Obstacle::UserNamespacesOff),
        (
            "user namespaces of ordinary users",
            "kernel.unprivileged_userns_clone",
            facts.unprivileged_userns_clone,
            Obstacle::OrdinaryUsersRefused,
        ),
        (
            "AppArmor's restriction of user namespaces",
            "kernel.apparmor_restrict_unprivileged_userns",
            facts.apparmor_restriction,
            Obstacle::AppArmor,
        ),
        ("executable memory files", "vm.memfd_noexec", facts.memfd_noexec, Obstacle::MemoryFiles),
    ];
    for (name, key, value, obstacle) in switches {
        checks.extend(value.map(|value| row(name, format!("{key} = {value}"), "does not hold up a jail", obstacle)));
    }
    checks.extend(facts.engine.map(|engine| {
        let engine = match engine {
            Engine::Docker => "Docker",
            Engine::Podman => "Podman",
            Engine::Kubernetes => "Kubernetes",
        };
        let filter = if facts.filtered { ", with a system call filter" } else { "" };
        Check::good("container", format!("{engine}{filter}"), "the engine decides what a jail can have")
    }));
    if facts.proc_covered && !jails_stand {
        let obstacle = Obstacle::ProcCovered(facts.engine);
        checks.push(Check::missing("/proc", "parts are covered", obstacle.why(), runnable(obstacle.fix())));
    }
    if facts.wsl {
        checks.push(Check::good("WSL", "the kernel is Microsoft's", "a jail needs WSL 2"));
    }
    checks
}

/// The directory that holds what Stockade remembers.
pub(super) fn of_state(places: &Places) -> Check {
    const NAME: &str = "state directory";
    let shown = stockade_core::escape::escape_bytes(places.state.as_os_str().as_encoded_bytes());
    match std::fs::symlink_metadata(&places.state) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Check::good(NAME, shown, "made on first use"),
        Err(error) => {
            Check::missing(NAME, format!("{shown}: {error}"), "nothing can be remembered", "set XDG_STATE_HOME to a directory of your own")
        }
        Ok(meta) if !meta.is_dir() || meta.uid() != rustix::process::geteuid().as_raw() => Check::missing(
            NAME,
            format!("{shown} is not a directory of this user"),
            "no sandbox starts",
            "set XDG_STATE_HOME to a directory of your own",
        ),
        Ok(meta) if meta.mode() & 0o077 != 0 => {
            Check::missing(NAME, format!("{shown} has mode {:o}", meta.mode() & 0o7777), "others can look in", "stockade doctor --fix")
        }
        Ok(_) => Check::good(NAME, shown, "private"),
    }
}

/// Whether `run` would accept the settings that are in force here.
pub(super) fn of_settings(places: &Places, context: &Context) -> Check {
    let refused = "no sandbox starts";
    let here = context.environment.current_dir().ok().and_then(|cwd| locate(cwd, None, &places.home).ok());
    match Settings::load(places, here.as_ref().map(|l| l.path.as_path())) {
        Err(error) => Check::missing(SETTINGS, error.to_string(), refused, error.hint().unwrap_or_default()),
        Ok(settings) if !settings.enabled().value => {
            Check::missing(SETTINGS, "sandbox.enabled is false", refused, "stockade config set sandbox.enabled true")
        }
        Ok(settings) => match assemble::backend_of(settings.backend().value) {
            Ok(backend) => Check::good(SETTINGS, format!("backend {}", backend.kind()), "accepted"),
            Err(failure) => Check::missing(SETTINGS, failure.message, refused, failure.hint.unwrap_or_default()),
        },
    }
}

/// The authority that sandboxes with a way out trust, and whether the world's own certificates can be checked.
pub(super) fn of_egress(places: &Places, context: &Context) -> Check {
    const NAME: &str = "egress";
    let path = places.state.join(egress::outlet::AUTHORITY).join(egress::authorities::AUTHORITY_FILE);
    let shown = stockade_core::escape::escape_bytes(path.as_os_str().as_encoded_bytes());
    if egress::authorities::machine(context).is_empty() {
        let fix = "install the package `ca-certificates`";
        return Check::missing(NAME, "this machine has no root certificates", "`--allow-host` and `--secret` do not work", fix);
    }
    match std::fs::symlink_metadata(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Check::good(NAME, format!("{shown}: none yet"), "a certificate authority is made for the first sandbox with allowed hosts")
        }
        Err(error) => Check::missing(NAME, format!("{shown}: {error}"), "`--allow-host` and `--secret` do not work", ""),
        Ok(meta) if !meta.is_file() || meta.mode() & 0o077 != 0 => Check::missing(
            NAME,
            format!("{shown} can be read by others"),
            "`--allow-host` and `--secret` do not work",
            format!("rm {shown}: a new one is made"),
        ),
        Ok(_) => Check::good(NAME, shown, "the certificate authority that only sandboxes trust"),
    }
}

/// Where secrets are kept, and whether each can be opened.
pub(super) fn of_secrets(places: &Places) -> Check {
    const NAME: &str = "secret store";
    let store = Store::beneath(&places.state);
    let shown = stockade_core::escape::escape_bytes(store.path().as_os_str().as_encoded_bytes());
    let how = match store.keeper() {
        Keeper::KeyFile => {
            "encrypted files, their key in a file of mode 0600 beside them (no keychain of this system works without a desktop)"
        }
    };
    match store.check() {
        Ok(0) => Check::good(NAME, format!("{shown}: empty"), how),
        Ok(1) => Check::good(NAME, format!("{shown}: 1 secret"), how),
        Ok(count) => Check::good(NAME, format!("{shown}: {count} secrets"), how),
        Err(error) => {
            let detail = Failure::from_error(NAME, &error).message;
            Check::missing(NAME, detail, "sandboxes that need a secret do not start", error.hint().unwrap_or_default())
        }
    }
}

/// Whether a daemon that runs is confined: it tries what it must not be able to do.
pub(super) fn of_daemon(places: &Places) -> Check {
    const NAME: &str = DAEMON;
    let Some(proved) = client::prove(places) else {
        return Check::good(NAME, "none runs", "every run starts its sandbox from nothing (`stockade serve` keeps some ready)");
    };
    let anew = "end the daemon and start it again: stockade serve";
    match proved {
        Err(failure) => Check::missing(NAME, failure.message, "runs do without it", anew),
        Ok(tried) => match tried.iter().find(|tried| !tried.refused) {
            None => Check::good(NAME, format!("{} things it may not do were tried and refused", tried.len()), "a bug in it is not the end"),
            Some(open) => Check::missing(NAME, format!("it can {}: {}", open.what, open.said), "it is not confined", anew),
        },
    }
}

/// Whether a server for agents can be confined here: another process confines itself as one does, and tries.
pub(super) fn of_servers(context: &Context) -> Check {
    const NAME: &str = "servers for agents";
    let missing = |detail: String, fix: String| Check::missing(NAME, detail, "`stockade mcp` and `stockade serve` do not start", fix);
    match proof::elsewhere(context) {
        Err(failure) => missing(failure.message, failure.hint.unwrap_or_default()),
        Ok(tried) => match tried.iter().find(|tried| !tried.refused) {
            None => {
                Check::good(NAME, format!("{} things that none may do were tried and refused", tried.len()), "a bug in one is not the end")
            }
            Some(open) => missing(format!("confined, it can {}: {}", open.what, open.said), String::new()),
        },
    }
}

/// A real sandbox around nothing.
pub(super) fn of_trial(tried: &Result<Found, JobError>) -> Check {
    const NAME: &str = "trial";
    match tried {
        Ok(found) if found.ran => Check::good(NAME, "a sandbox started and ran a program", "jails stand here"),
        Ok(_) => Check::missing(NAME, "a sandbox started but no program runs in it", "no sandbox is of use", ""),
        Err(error) => {
            let failure = explain(error);
            let detail = format!("{}: {}", failure.step, failure.message);
            Check::missing(NAME, detail, "a sandbox refuses to start", failure.hint.unwrap_or_default())
        }
    }
}

/// What `--allow-degraded` would leave.
pub(super) fn of_degraded(tried: &Result<Found, JobError>) -> Check {
    const NAME: &str = "without namespaces";
    let names = OF_NAMESPACES.map(Demand::name).join(",");
    match tried {
        Ok(found) => {
            let of = |level: Level| {
                let named: Vec<&str> = Demand::ALL.into_iter().filter(|d| found.enforcement.level(*d) == level).map(Demand::name).collect();
                if named.is_empty() { "nothing".to_owned() } else { named.join(" ") }
            };
            let detail = format!("partial: {}; unavailable: {}", of(Level::Partial), of(Level::Unavailable));
            Check::good(NAME, detail, format!("--allow-degraded {names} --workspace-mode ro runs with this"))
        }
        Err(error) => Check::good(NAME, explain(error).message, "--allow-degraded does not help here"),
    }
}

/// What killed runs left.
pub(super) fn of_leftovers(removed: usize) -> Check {
    let detail = if removed == 0 { "none".to_owned() } else { format!("{removed} removed") };
    Check::good("left-overs of killed runs", detail, "every start removes them")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_is_missing_only_where_it_holds_up_a_jail() {
        let facts = Facts { kernel: (6, 8), max_user_namespaces: Some(9), apparmor_restriction: Some(1), ..Facts::default() };
        let state = |jails_stand| of_machine(&facts, jails_stand).into_iter().map(|c| (c.name, c.state)).collect::<Vec<_>>();
        let restriction = "AppArmor's restriction of user namespaces";
        assert_eq!(state(false), [("kernel", State::Good), ("user namespaces", State::Good), (restriction, State::Missing)]);
        assert_eq!(state(true), [("kernel", State::Good), ("user namespaces", State::Good), (restriction, State::Good)]);
    }
}
