//! Reading a capability's manifest: TOML with the place of everything that is wrong, all of it at once.
//!
//! Unknown keys are faults, so that a misspelling never leaves a limit out.

use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use stockade_core::credential::Delivery;
use stockade_core::escape::escape;
use stockade_core::host::HostPattern;
use stockade_core::limits::{parse_cpus, parse_duration, parse_size};
use stockade_core::path::SafePath;
use stockade_core::secret::SecretName;
use stockade_core::spec::MountMode;
use toml::Spanned;

use super::example::{Example, Expected};
use super::input::Input;
use super::manifest::{Capability, Effect, Output, Risk};
use super::sandbox::{CapabilityLimits, CapabilityMount, CapabilitySandbox, Credential, ExecList, Hosts};
use super::template::{Argument, Dash, Written};
use crate::fault::{Fault, FaultKind, Faults};
use crate::pack::{CapabilityName, Place, toml_fault};

/// Bytes of a manifest at most.
pub(crate) const MAX_MANIFEST: usize = 256 << 10;
/// Characters of a description at most.
const MAX_DESCRIPTION: usize = 2000;
/// Items of any list at most.
const MAX_ITEMS: usize = 200;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    name: Spanned<String>,
    description: Spanned<String>,
    effect: Effect,
    risk: Option<Risk>,
    program: Spanned<String>,
    #[serde(default)]
    args: Vec<Spanned<RawArgument>>,
    input: Option<Spanned<Value>>,
    #[serde(default)]
    output: Output,
    #[serde(default)]
    sandbox: RawSandbox,
    #[serde(default)]
    credentials: Vec<Spanned<RawCredential>>,
    timeout: Option<Spanned<String>>,
    #[serde(default)]
    examples: Vec<Spanned<RawExample>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct RawSandbox {
    mounts: Vec<Spanned<RawMount>>,
    hosts: RawHosts,
    limits: RawLimits,
    exec: Option<Spanned<RawExec>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawMount {
    host: String,
    guest: Option<String>,
    #[serde(default = "read_only")]
    mode: MountMode,
}

fn read_only() -> MountMode {
    MountMode::Ro
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct RawLimits {
    cpus: Option<Spanned<Value>>,
    memory: Option<Spanned<String>>,
    pids: Option<Spanned<u32>>,
    disk: Option<Spanned<String>>,
    output: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCredential {
    adapter: Adapter,
    secret: String,
    hosts: Vec<String>,
    delivery: Option<Given>,
}

/// Whose credential it is, and so how it usually appears inside. Where its value comes from is in a person's settings, never in a pack.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Adapter {
    /// Any secret.
    Secret,
    Aws,
    Gcp,
    Kubernetes,
    Github,
    Git,
    Docker,
}

impl Adapter {
    fn usual(self) -> Vec<Delivery> {
        match self {
            Self::Secret => vec![Delivery::Variable],
            Self::Aws => vec![Delivery::AwsKeys],
            Self::Gcp => vec![Delivery::GcpMetadata, Delivery::GcpToken],
            Self::Kubernetes => vec![Delivery::Kubernetes],
            Self::Github => vec![Delivery::Variable, Delivery::Git],
            Self::Git => vec![Delivery::Git],
            Self::Docker => vec![Delivery::Docker],
        }
    }
}

/// How it appears inside: one way, or several.
#[derive(Deserialize, Clone)]
#[serde(untagged)]
enum Given {
    One(String),
    Several(Vec<String>),
}

impl Given {
    /// The ways, or the word that is none. `placeholder` is what the first packs called a variable.
    fn read(&self) -> Result<Vec<Delivery>, String> {
        let words = match self {
            Self::One(word) => std::slice::from_ref(word),
            Self::Several(words) => words,
        };
        let mut deliveries = Vec::new();
        for word in words {
            let known = if word == "placeholder" { Some(Delivery::Variable) } else { Delivery::of_word(word) };
            let known = known.ok_or_else(|| {
                let all = Delivery::ALL.map(Delivery::word).join(", ");
                format!("`{}` is no way to deliver a credential; write one or more of {all}", escape(word))
            })?;
            if !deliveries.contains(&known) {
                deliveries.push(known);
            }
        }
        if deliveries.is_empty() { Err("`delivery` is empty".to_owned()) } else { Ok(deliveries) }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawExample {
    #[serde(default)]
    input: Map<String, Value>,
    argv: Option<Vec<String>>,
    #[serde(default)]
    verdict: RawVerdict,
}

#[derive(Deserialize, Default, PartialEq)]
#[serde(rename_all = "lowercase")]
enum RawVerdict {
    #[default]
    Allow,
    Deny,
}

/// A string, or a table with more to say. Written by hand so that a fault names the key and not only the shape.
struct RawArgument(Written);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawArgumentTable {
    arg: String,
    when: Option<String>,
    each: Option<String>,
    #[serde(default)]
    allow_dash: bool,
}

impl<'de> Deserialize<'de> for RawArgument {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Shape;
        impl<'de> Visitor<'de> for Shape {
            type Value = RawArgument;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a string or a table with `arg`")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<RawArgument, E> {
                Ok(RawArgument(Written { arg: text.to_owned(), when: None, each: None, dash: Dash::Refuse }))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RawArgument, A::Error> {
                let table = RawArgumentTable::deserialize(MapAccessDeserializer::new(map))?;
                let dash = if table.allow_dash { Dash::Allow } else { Dash::Refuse };
                Ok(RawArgument(Written { arg: table.arg, when: table.when, each: table.each, dash }))
            }
        }
        deserializer.deserialize_any(Shape)
    }
}

/// `"any"`, or a list of programs.
struct RawExec(ExecList);

impl<'de> Deserialize<'de> for RawExec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(word) if word == "any" => Ok(Self(ExecList::Any)),
            Value::Array(items) => {
                let names: Option<Vec<String>> = items.iter().map(|item| item.as_str().map(str::to_owned)).collect();
                names.map(|names| Self(ExecList::Only(names))).ok_or_else(|| D::Error::custom("`exec` lists programs by name"))
            }
            _ => Err(D::Error::custom("`exec` must be \"any\" or a list of programs")),
        }
    }
}

/// `"allowed"`, or a list of hosts.
enum RawHosts {
    Allowed,
    List(Vec<Spanned<String>>),
}

impl Default for RawHosts {
    fn default() -> Self {
        Self::List(Vec::new())
    }
}

impl<'de> Deserialize<'de> for RawHosts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Shape;
        impl<'de> Visitor<'de> for Shape {
            type Value = RawHosts;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("\"allowed\" or a list of hosts")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<RawHosts, E> {
                if text == "allowed" { Ok(RawHosts::Allowed) } else { Err(E::custom("`hosts` must be \"allowed\" or a list of hosts")) }
            }
            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<RawHosts, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(list)).map(RawHosts::List)
            }
        }
        deserializer.deserialize_any(Shape)
    }
}

/// Collects what is wrong.
struct Reader<'a> {
    file: &'a str,
    text: &'a str,
    faults: Vec<Fault>,
}

impl Reader<'_> {
    fn fault(&mut self, place: Place, message: impl Into<String>) {
        self.faults.push(Fault::at(FaultKind::Manifest, self.file, self.text, place, message));
    }

    /// The value, or a fault and nothing.
    fn take<T>(&mut self, place: Place, result: Result<T, impl ToString>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.fault(place, error.to_string());
                None
            }
        }
    }

    fn bounded<T>(&mut self, what: &str, list: &[Spanned<T>]) {
        if let Some(beyond) = list.get(MAX_ITEMS) {
            self.fault(place(beyond), format!("there are more than {MAX_ITEMS} {what}"));
        }
    }
}

fn place<T>(spanned: &Spanned<T>) -> Place {
    let span = spanned.span();
    (span.start, span.end.saturating_sub(span.start))
}

/// Reads a manifest.
pub(super) fn capability(file: &str, text: &str) -> Result<Capability, Faults> {
    let whole = |message: String| Faults(vec![Fault::at(FaultKind::Size, file, text, (0, 0), message)]);
    if text.len() > MAX_MANIFEST {
        return Err(whole(format!("the file has more than {MAX_MANIFEST} bytes")));
    }
    let raw: Raw = toml::from_str(text).map_err(|error| Faults(vec![toml_fault(file, text, &error)]))?;
    let mut reader = Reader { file, text, faults: Vec::new() };
    let name = reader.take(place(&raw.name), raw.name.get_ref().parse::<CapabilityName>());
    let description = described(&mut reader, &raw.description);
    let program = program(&mut reader, &raw.program);
    let input_place = raw.input.as_ref().map(place);
    let input = match raw.input {
        None => Some(Input::default()),
        Some(schema) => {
            let place = place(&schema);
            let made = Input::new(schema.into_inner());
            reader.take(place, made.map_err(|why| format!("`input`: {why}")))
        }
    };
    reader.bounded("arguments", &raw.args);
    let args: Vec<Argument> = match &input {
        None => Vec::new(),
        Some(input) => {
            let made = raw.args.iter().map(|item| (place(item), Argument::new(item.get_ref().0.clone(), input)));
            made.filter_map(|(place, item)| reader.take(place, item)).collect()
        }
    };
    if let (Some(input), Some(place), true) = (&input, input_place, reader.faults.is_empty()) {
        unused(&mut reader, input, &args, place);
    }
    let sandbox = sandbox(&mut reader, raw.sandbox, raw.effect);
    let credentials = credentials(&mut reader, &raw.credentials, &sandbox);
    let timeout = raw.timeout.and_then(|time| reader.take(place(&time), parse_duration(time.get_ref())));
    reader.bounded("examples", &raw.examples);
    let examples = raw.examples.into_iter().filter_map(|example| self::example(&mut reader, example)).collect();
    match (name, program, input) {
        (Some(name), Some(program), Some(input)) if reader.faults.is_empty() => Ok(Capability {
            name,
            description,
            effect: raw.effect,
            risk: raw.risk.unwrap_or_else(|| raw.effect.usual_risk()),
            program,
            args,
            input,
            output: raw.output,
            sandbox,
            credentials,
            timeout,
            examples,
        }),
        _ => Err(Faults(reader.faults)),
    }
}

fn described(reader: &mut Reader<'_>, description: &Spanned<String>) -> String {
    let text = description.get_ref();
    if text.trim().is_empty() || text.chars().count() > MAX_DESCRIPTION {
        reader.fault(place(description), format!("the description must have between 1 and {MAX_DESCRIPTION} characters"));
    }
    text.clone()
}

/// A program is found on `PATH`, by whoever runs it; a path of the author's machine says nothing about another's.
fn program(reader: &mut Reader<'_>, program: &Spanned<String>) -> Option<String> {
    let checked = if is_program_name(program.get_ref()) { Ok(program.get_ref().clone()) } else { Err(NOT_A_PROGRAM) };
    reader.take(place(program), checked)
}

const NOT_A_PROGRAM: &str = "a program is named by its file name alone: letters, digits and `.`, `_`, `+`, `-`";

fn is_program_name(name: &str) -> bool {
    let first = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    first && name.len() <= 64 && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._+-".contains(&byte))
}

/// An input that no argument uses is a promise that is not kept.
fn unused(reader: &mut Reader<'_>, input: &Input, args: &[Argument], at: Place) {
    let names = input.properties().keys().filter(|name| !args.iter().any(|item| item.inputs().any(|used| used == name.as_str())));
    let names: Vec<&str> = names.map(String::as_str).collect();
    if !names.is_empty() {
        reader.fault(at, format!("no argument uses the input `{}`", names.join("`, `")));
    }
}

fn sandbox(reader: &mut Reader<'_>, raw: RawSandbox, effect: Effect) -> CapabilitySandbox {
    reader.bounded("mounts", &raw.mounts);
    let hosts = match raw.hosts {
        RawHosts::Allowed => Hosts::Allowed,
        RawHosts::List(list) => {
            reader.bounded("hosts", &list);
            Hosts::Only(list.iter().filter_map(|host| reader.take(place(host), HostPattern::parse(host.get_ref()))).collect())
        }
    };
    let mut mounts = Vec::new();
    for mount in raw.mounts {
        let at = place(&mount);
        let RawMount { host, guest, mode } = mount.into_inner();
        if effect == Effect::Read && mode != MountMode::Ro {
            reader.fault(at, "a capability whose effect is `read` can only mount with mode `ro`");
        }
        let plain = host.strip_prefix("~/").map_or_else(|| host.clone(), |rest| format!("/{rest}"));
        reader.take(at, SafePath::new(&plain).map_err(|error| format!("`host`: {error}")));
        let guest = guest.and_then(|guest| reader.take(at, SafePath::new(&guest).map_err(|error| format!("`guest`: {error}"))));
        mounts.push(CapabilityMount { host, guest, mode });
    }
    let exec = match raw.exec {
        None => ExecList::default(),
        Some(exec) => {
            let at = place(&exec);
            let RawExec(list) = exec.into_inner();
            if let ExecList::Only(names) = &list
                && names.iter().any(|name| !is_program_name(name))
            {
                reader.fault(at, NOT_A_PROGRAM);
            }
            list
        }
    };
    CapabilitySandbox { mounts, hosts, limits: limits(reader, raw.limits), exec }
}

fn limits(reader: &mut Reader<'_>, raw: RawLimits) -> CapabilityLimits {
    let mut size = |text: Option<Spanned<String>>| text.and_then(|text| reader.take(place(&text), parse_size(text.get_ref())));
    let (memory, disk, output) = (size(raw.memory), size(raw.disk), size(raw.output));
    let cpu_millis = raw.cpus.and_then(|cpus| {
        let text = match cpus.get_ref() {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        reader.take(place(&cpus), parse_cpus(&text))
    });
    let pids = raw.pids.and_then(|pids| {
        let count = *pids.get_ref();
        reader.take(place(&pids), if count == 0 { Err("`pids` is zero") } else { Ok(count) })
    });
    CapabilityLimits { cpu_millis, memory, pids, disk, output }
}

fn credentials(reader: &mut Reader<'_>, raw: &[Spanned<RawCredential>], sandbox: &CapabilitySandbox) -> Vec<Credential> {
    reader.bounded("credentials", raw);
    let mut credentials = Vec::new();
    for credential in raw {
        let at = place(credential);
        let RawCredential { adapter, secret, hosts, delivery } = credential.get_ref();
        let deliveries = match delivery {
            None => Some(adapter.usual()),
            Some(given) => reader.take(at, given.read()),
        };
        let secret = reader.take(at, secret.parse::<SecretName>());
        let hosts: Vec<HostPattern> = hosts.iter().filter_map(|host| reader.take(at, HostPattern::parse(host))).collect();
        if hosts.is_empty() {
            reader.fault(at, "a credential needs the hosts that it may go to");
        }
        if let Some(host) = hosts.iter().find(|host| !sandbox.hosts.named().contains(host)) {
            reader.fault(at, format!("a credential is for `{host}`, which `sandbox.hosts` does not name"));
        }
        credentials.extend(secret.zip(deliveries).map(|(secret, deliveries)| Credential { secret, hosts, deliveries }));
    }
    credentials
}

fn example(reader: &mut Reader<'_>, raw: Spanned<RawExample>) -> Option<Example> {
    let place = place(&raw);
    let RawExample { input, argv, verdict } = raw.into_inner();
    let expected = match (verdict, argv) {
        (RawVerdict::Allow, Some(argv)) => Expected::Allow(argv),
        (RawVerdict::Deny, None) => Expected::Deny,
        (RawVerdict::Allow, None) => {
            reader.fault(place, "the example needs `argv`, or `verdict = \"deny\"`");
            return None;
        }
        (RawVerdict::Deny, Some(_)) => {
            reader.fault(place, "an example that is denied has no `argv`");
            return None;
        }
    };
    Some(Example { input, expected, place })
}
