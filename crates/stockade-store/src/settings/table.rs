//! Every setting there is, in the order that people see them.

use super::key::{Key, Kind, Null, ProjectRule, Range};
use super::value::Value;

const BACKENDS: Kind = Kind::Choice(&["auto", "jail", "docker", "gvisor", "microvm", "shuru", "e2b", "kubernetes", "local"]);
/// Ten years, as flags have it.
const SECONDS: Range = Range { least: 0.001, most: 315_360_000.0 };
const CPUS: Range = Range { least: 0.001, most: 8192.0 };
const WHOLE_CPUS: Range = Range { least: 1.0, most: 8192.0 };
/// Up to one PiB.
const MEBIBYTES: Range = Range { least: 1.0, most: 1_073_741_824.0 };
/// The kernel's own bound on process numbers.
const PIDS: Range = Range { least: 1.0, most: 4_194_304.0 };
/// Up to one TiB.
const BYTES: Range = Range { least: 1.0, most: 1_099_511_627_776.0 };

const TEXT: Kind = Kind::Text(Null::Refused);
const TEXT_OR_NULL: Kind = Kind::Text(Null::Allowed);
const SIZE: Kind = Kind::Integer(MEBIBYTES, Null::Refused);
const NO_HOSTS: Value = Value::List(Vec::new());

const fn key(name: &'static str, kind: Kind, default: Value, project: ProjectRule) -> Key {
    Key { name, kind, default, meaning: "", project }
}

const fn null(name: &'static str, kind: Kind, meaning: &'static str, project: ProjectRule) -> Key {
    Key { name, kind, default: Value::Null, meaning, project }
}

use ProjectRule::{AddRules, Intersect, Lower, Never, TowardReadOnly, TurnOff};

/// The table.
pub static KEYS: &[Key] = &[
    key("sandbox.enabled", Kind::Bool, Value::Bool(true), TurnOff),
    key("sandbox.backend", BACKENDS, Value::word("auto"), Never),
    key("sandbox.persistent", Kind::Bool, Value::Bool(false), Never),
    key("sandbox.image", TEXT, Value::word("stockade-sandbox"), Never),
    key("sandbox.workspaceMode", Kind::Choice(&["overlay", "rw", "ro"]), Value::word("overlay"), TowardReadOnly),
    key("sandbox.allowedHosts", Kind::Hosts, NO_HOSTS, Intersect),
    null("sandbox.timeoutSeconds", Kind::Number(SECONDS, Null::Allowed), "none for run, 600 for agents", Lower),
    null("sandbox.limits.cpus", Kind::Number(CPUS, Null::Allowed), "all", Lower),
    null("sandbox.limits.memory", Kind::Integer(MEBIBYTES, Null::Allowed), "75 % of RAM", Lower),
    key("sandbox.limits.pids", Kind::Integer(PIDS, Null::Refused), Value::Number(4096.0), Lower),
    key("sandbox.limits.disk", SIZE, Value::Number(10240.0), Lower),
    key("sandbox.limits.outputBytes", Kind::Integer(BYTES, Null::Refused), Value::Number(10_485_760.0), Lower),
    key("sandbox.network.rules", Kind::Rules, Value::Rules(Vec::new()), AddRules),
    null("sandbox.network.sentBytes", Kind::Integer(BYTES, Null::Allowed), "no limit", Lower),
    key("sandbox.shuru.checkpoint", TEXT, Value::word("stockade-env"), Never),
    key("sandbox.shuru.cpus", Kind::Integer(WHOLE_CPUS, Null::Refused), Value::Number(2.0), Lower),
    key("sandbox.shuru.memory", SIZE, Value::Number(2048.0), Lower),
    key("sandbox.shuru.diskSize", SIZE, Value::Number(4096.0), Lower),
    key("sandbox.shuru.allowNet", Kind::Bool, Value::Bool(false), TurnOff),
    key("sandbox.shuru.allowedHosts", Kind::Hosts, NO_HOSTS, Intersect),
    key("sandbox.microvm.checkpoint", TEXT, Value::word("stockade-env"), Never),
    key("sandbox.microvm.cpus", Kind::Integer(WHOLE_CPUS, Null::Refused), Value::Number(2.0), Lower),
    key("sandbox.microvm.memory", SIZE, Value::Number(2048.0), Lower),
    key("sandbox.microvm.diskSize", SIZE, Value::Number(4096.0), Lower),
    key("sandbox.microvm.accel", Kind::Choice(&["auto", "kvm", "tcg"]), Value::word("auto"), Never),
    null("sandbox.docker.host", TEXT_OR_NULL, "from DOCKER_HOST", Never),
    null("sandbox.docker.runtime", TEXT_OR_NULL, "docker's own", Never),
    null("sandbox.e2b.template", TEXT_OR_NULL, "e2b's own", Never),
    null("sandbox.e2b.domain", TEXT_OR_NULL, "e2b's own", Never),
    null("sandbox.kubernetes.context", TEXT_OR_NULL, "the current one", Never),
    null("sandbox.kubernetes.namespace", TEXT_OR_NULL, "the context's own", Never),
    null("sandbox.kubernetes.runtimeClass", TEXT_OR_NULL, "the cluster's own", Never),
    key("secrets", Kind::Secrets, Value::Secrets(Vec::new()), Never),
    key("agent.prices", Kind::Prices, Value::Prices(Vec::new()), Never),
    key("daemon.autostart", Kind::Bool, Value::Bool(false), Never),
    null("approvals.notify.command", TEXT_OR_NULL, "nobody is told", Never),
    null("approvals.webhook.url", TEXT_OR_NULL, "nobody is told", Never),
    null("approvals.webhook.secret", TEXT_OR_NULL, "needed with a URL", Never),
    key("receipts.durability", Kind::Choice(&["effect", "always", "process"]), Value::word("effect"), Never),
    null("receipts.witness.directory", TEXT_OR_NULL, "no witness", Never),
    null("receipts.witness.command", TEXT_OR_NULL, "no witness", Never),
    null("receipts.witness.name", TEXT_OR_NULL, "needed with a command", Never),
    null("receipts.witness.publicKey", TEXT_OR_NULL, "needed with a command", Never),
    null("telemetry.otlp.url", TEXT_OR_NULL, "nothing is sent", Never),
    null("telemetry.otlp.secret", TEXT_OR_NULL, "no token is sent", Never),
];

/// The setting of that name.
pub fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// Whether settings lie beneath that name.
pub fn is_group(name: &str) -> bool {
    KEYS.iter().any(|key| key.name.strip_prefix(name).is_some_and(|rest| rest.starts_with('.')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_a_value_of_its_key() {
        for key in KEYS {
            assert_eq!(Value::from_json(key, &key.default.to_json()).as_ref(), Ok(&key.default), "{}", key.name);
            assert_eq!(key.default == Value::Null, !key.meaning.is_empty(), "{}", key.name);
        }
    }

    #[test]
    fn names_are_unique_and_no_group_is_a_key() {
        for (index, key) in KEYS.iter().enumerate() {
            assert!(KEYS.iter().skip(index + 1).all(|other| other.name != key.name), "{}", key.name);
            assert!(!is_group(key.name), "{}", key.name);
        }
        assert!(is_group("sandbox") && is_group("sandbox.limits") && !is_group("sand") && !is_group(""));
    }
}
