//! What a pack asks for, as a person is shown it before agreeing.

use stockade_core::credential::Class;
use stockade_policy::capability::{Capability, ExecList, Hosts};
use stockade_policy::pack::Pack;

/// One line for each capability and rule file: what it does, and everything that it gets.
pub(super) fn lines(pack: &Pack) -> Vec<String> {
    let mut lines: Vec<String> = pack.capabilities.iter().map(|file| line(&file.capability)).collect();
    lines.extend(pack.policy.iter().map(|file| format!("rules of its own: {}", file.name)));
    lines
}

fn line(capability: &Capability) -> String {
    let sandbox = &capability.sandbox;
    let mut gets = Vec::new();
    match &sandbox.hosts {
        Hosts::Allowed => gets.push("reaches what your settings allow".to_owned()),
        Hosts::Only(hosts) if hosts.is_empty() => {}
        Hosts::Only(hosts) => gets.push(format!("reaches {}", listed(hosts))),
    }
    for mount in &sandbox.mounts {
        gets.push(format!("sees {} ({})", mount.host, mount.mode));
    }
    match &sandbox.exec {
        ExecList::Any => gets.push("runs any program".to_owned()),
        ExecList::Only(more) if more.is_empty() => {}
        ExecList::Only(more) => gets.push(format!("runs {} too", more.join(", "))),
    }
    for credential in &capability.credentials {
        let how = match Class::of(&credential.deliveries) {
            Class::ProxyOnly => "which stays outside",
            Class::Reference => "and is handed a short-lived key of it",
        };
        gets.push(format!("uses the secret {} at {}, {how}", credential.secret, listed(&credential.hosts)));
    }
    let gets = if gets.is_empty() { String::new() } else { format!("; {}", gets.join("; ")) };
    format!("{} ({}, {}): runs {}{gets}", capability.name, capability.effect.name(), capability.risk.name(), capability.program)
}

fn listed(hosts: &[stockade_core::host::HostPattern]) -> String {
    hosts.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
