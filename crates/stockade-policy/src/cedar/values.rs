//! Requests as Cedar values. Nothing is formatted into Cedar text here: every string of a caller stays a string.

use std::collections::{BTreeSet, HashMap, HashSet};

use cedar_policy::{Context, Entities, Entity, EntityId, EntityTypeName, EntityUid, RestrictedExpression};

use serde_json::Value;

use super::schema::NAMESPACE;
use crate::capability::{CapabilityFacts, InputFact, Invocation, Kind, Presence, Scalar, canonical};
use crate::request::{Action, Principal, PrincipalKind, Request};

/// A value that Cedar does not take; evaluating such a request denies.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Unfit(String);

impl Unfit {
    pub(super) fn of(error: impl std::fmt::Display) -> Self {
        Self(error.to_string())
    }
}

/// Directories above a file at most.
const MAX_DEPTH: usize = 256;

/// Entity type names, parsed once.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    agent: EntityTypeName,
    human: EntityTypeName,
    tenant: EntityTypeName,
    program: EntityTypeName,
    host: EntityTypeName,
    path: EntityTypeName,
    capability: EntityTypeName,
    pack: EntityTypeName,
    action: EntityTypeName,
}

impl Names {
    pub(crate) fn new() -> Result<Self, Unfit> {
        let name = |short: &str| format!("{NAMESPACE}::{short}").parse::<EntityTypeName>().map_err(Unfit::of);
        Ok(Self {
            agent: name("Agent")?,
            human: name("Human")?,
            tenant: name("Tenant")?,
            program: name("Program")?,
            host: name("Host")?,
            path: name("Path")?,
            capability: name("Capability")?,
            pack: name("Pack")?,
            action: name("Action")?,
        })
    }

    fn uid(name: &EntityTypeName, id: &str) -> EntityUid {
        EntityUid::from_type_name_and_id(name.clone(), EntityId::new(id))
    }

    pub(super) fn principal(&self, principal: &Principal) -> EntityUid {
        let name = match principal.kind {
            PrincipalKind::Agent => &self.agent,
            PrincipalKind::Human => &self.human,
        };
        Self::uid(name, &principal.id)
    }

    pub(super) fn action(&self, request: &Request<'_>) -> EntityUid {
        Self::uid(&self.action, request.action_id())
    }

    /// The resource, under another id where one is given.
    pub(super) fn resource(&self, request: &Request<'_>, id: &str) -> EntityUid {
        let name = match request {
            Request::Exec(_) => &self.program,
            Request::Connect { .. } => &self.host,
            Request::Read { .. } | Request::Write { .. } => &self.path,
            Request::Invoke(_) => &self.capability,
            Request::Approve { of, .. } => return self.resource(of, id),
        };
        Self::uid(name, id)
    }

    /// A capability with its pack, and its action in the group of all capabilities.
    fn called(&self, facts: &CapabilityFacts) -> Result<[Entity; 2], Unfit> {
        let name = facts.name.as_str();
        let attributes = [("effect", facts.effect.name()), ("risk", facts.risk.name())];
        let attributes = attributes.into_iter().map(|(name, value)| (name.to_owned(), text(value))).collect();
        let pack = HashSet::from([Self::uid(&self.pack, facts.pack.as_str())]);
        let capability = Entity::new(Self::uid(&self.capability, name), attributes, pack).map_err(Unfit::of)?;
        let group = HashSet::from([Self::uid(&self.action, Action::Invoke.id())]);
        Ok([capability, Entity::new_no_attrs(Self::uid(&self.action, name), group)])
    }

    /// Entities that have attributes or parents; the others need not exist to be compared.
    pub(super) fn entities(&self, principal: &Principal, request: &Request<'_>) -> Result<Entities, Unfit> {
        if let Request::Approve { of, .. } = request {
            return self.entities(principal, of);
        }
        let mut entities = Vec::new();
        if let Some(tenant) = &principal.tenant {
            let parents = HashSet::from([Self::uid(&self.tenant, tenant)]);
            entities.push(Entity::new_no_attrs(self.principal(principal), parents));
        }
        if let Request::Exec(call) = request {
            let facts = [("path", &call.path), ("sha256", &call.sha256)];
            let facts = facts.into_iter().filter_map(|(name, value)| Some((name.to_owned(), text(value.as_deref()?))));
            let facts: HashMap<String, RestrictedExpression> = facts.collect();
            if !facts.is_empty() {
                let uid = self.resource(request, &call.program);
                entities.push(Entity::new(uid, facts, HashSet::new()).map_err(Unfit::of)?);
            }
        }
        match request {
            Request::Exec(_) | Request::Approve { .. } => {}
            Request::Connect { host, .. } => entities.extend(self.beneath(request, host, &above_host(host))),
            Request::Read { path, .. } | Request::Write { path, .. } => entities.extend(self.beneath(request, path, &above_path(path)?)),
            Request::Invoke(invocation) => entities.extend(self.called(invocation.capability)?),
        }
        if entities.is_empty() {
            return Ok(Entities::empty());
        }
        Entities::from_entities(entities, None).map_err(Unfit::of)
    }

    /// A resource with all that it is in, where there is anything.
    fn beneath(&self, request: &Request<'_>, id: &str, above: &[String]) -> Option<Entity> {
        let parents: HashSet<EntityUid> = above.iter().map(|above| self.resource(request, above)).collect();
        (!parents.is_empty()).then(|| Entity::new_no_attrs(self.resource(request, id), parents))
    }
}

/// The patterns that a name is below: `*.b.c` and `*.c` for `a.b.c`.
fn above_host(host: &str) -> Vec<String> {
    if host.starts_with('[') || host.parse::<std::net::Ipv4Addr>().is_ok() {
        return Vec::new();
    }
    let name = host.strip_prefix("*.").unwrap_or(host);
    name.match_indices('.').filter_map(|(at, _)| Some(format!("*.{}", name.get(at + 1..)?))).collect()
}

/// The directories that a file is in. A path that could mean another file than it says is no value.
fn above_path(path: &str) -> Result<Vec<String>, Unfit> {
    if !path.starts_with('/') {
        return Ok(Vec::new());
    }
    if path.matches('/').count() > MAX_DEPTH || crate::shell::lexical("/", path) != path {
        return Err(Unfit("the path is too deep, or not in its plain form".to_owned()));
    }
    let above = path.match_indices('/').filter_map(|(at, _)| path.get(..at.max(1))).filter(|above| *above != path);
    Ok(above.map(str::to_owned).collect())
}

/// The inputs of a call, each as what its capability says it is. A value of another kind is an error, so it denies.
fn arguments(invocation: &Invocation<'_>) -> Result<RestrictedExpression, Unfit> {
    let mut pairs = Vec::with_capacity(invocation.capability.inputs.len());
    for InputFact { name, kind, presence } in &invocation.capability.inputs {
        match (invocation.values.get(name), presence) {
            (Some(value), _) => {
                let value = argument(*kind, value).ok_or_else(|| Unfit::of(format!("`{name}` is of another kind")))?;
                pairs.push((name.clone(), value));
            }
            (None, Presence::Maybe) => {}
            (None, Presence::Always) => return Err(Unfit::of(format!("`{name}` is missing"))),
        }
    }
    RestrictedExpression::new_record(pairs).map_err(Unfit::of)
}

fn argument(kind: Kind, value: &Value) -> Option<RestrictedExpression> {
    let set = |item: fn(&Value) -> Option<RestrictedExpression>| {
        let items: Option<Vec<RestrictedExpression>> = value.as_array()?.iter().map(item).collect();
        items.map(RestrictedExpression::new_set)
    };
    let long = |value: &Value| value.as_i64().map(RestrictedExpression::new_long);
    let boolean = |value: &Value| value.as_bool().map(RestrictedExpression::new_bool);
    let string = |value: &Value| value.as_str().map(text);
    match kind {
        Kind::Bool => boolean(value),
        Kind::Long => long(value),
        Kind::Text => string(value),
        Kind::Set(Scalar::Bool) => set(boolean),
        Kind::Set(Scalar::Long) => set(long),
        Kind::Set(Scalar::Text) => set(string),
        Kind::Number | Kind::Json => Some(text(&canonical(value))),
    }
}

/// What a rule can read about a request.
pub(super) fn context(names: &Names, request: &Request<'_>) -> Result<Context, Unfit> {
    let mut pairs: Vec<(String, RestrictedExpression)> = Vec::with_capacity(8);
    let mut put = |name: &str, value: RestrictedExpression| pairs.push((name.to_owned(), value));
    match request {
        Request::Exec(call) => {
            put("subcommand", text(&call.subcommand));
            put("flags", texts(&call.flags));
            put("operands", texts(&call.operands));
            put("count", RestrictedExpression::new_long(i64::try_from(call.count).unwrap_or(i64::MAX)));
            put("opaque", RestrictedExpression::new_bool(call.opaque));
            put("reads", texts(&call.reads));
            put("writes", texts(&call.writes));
        }
        Request::Connect { port, tls, method, path, secret, .. } => {
            put("port", RestrictedExpression::new_long(i64::from(*port)));
            put("tls", RestrictedExpression::new_bool(*tls));
            put("method", text(method));
            put("path", text(path));
            if let Some(secret) = secret {
                put("secret", text(secret));
            }
        }
        Request::Read { workspace, .. } | Request::Write { workspace, .. } => put("workspace", text(workspace)),
        Request::Invoke(invocation) => {
            put("args", arguments(invocation)?);
            put("workspace", text(invocation.workspace));
            put("backend", text(invocation.backend));
            put("network", RestrictedExpression::new_set(invocation.network.iter().map(|host| text(host))));
            put("time", RestrictedExpression::new_datetime(invocation.time));
        }
        Request::Approve { requester, effect, method, .. } => {
            let name = match requester.kind {
                PrincipalKind::Agent => "requesterAgent",
                PrincipalKind::Human => "requesterHuman",
            };
            put(name, RestrictedExpression::new_entity_uid(names.principal(requester)));
            put("effect", text(effect));
            put("method", text(method));
        }
    }
    Context::from_pairs(pairs).map_err(Unfit::of)
}

fn text(value: &str) -> RestrictedExpression {
    RestrictedExpression::new_string(value.to_owned())
}

fn texts(values: &BTreeSet<String>) -> RestrictedExpression {
    RestrictedExpression::new_set(values.iter().map(|value| text(value)))
}
