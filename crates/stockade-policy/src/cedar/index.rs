//! Rules by what they are about, so that a decision evaluates few of them.
//!
//! A rule whose scope names one resource is kept under it; all others are general. A request asks the general rules of its action and those
//! of its own resource: exactly the rules whose scope could match, so leaving the rest out changes no verdict. Rules about programs are
//! sorted once more, by what they demand first ([`Demand`]). Capabilities are actions of their own, so a rule that names some of them is
//! kept under each.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use cedar_policy::{ActionConstraint, EntityUid, PolicySet, ResourceConstraint};

use super::compile::Rule;
use super::demand::{Demand, Fact};
use crate::request::{Action, Request};

/// The rules of all actions.
#[derive(Debug, Default)]
pub(super) struct Index {
    actions: BTreeMap<Action, Slices>,
    /// Rules whose scope names capabilities one by one.
    capabilities: HashMap<String, PolicySet>,
}

/// The rules of one action.
#[derive(Debug, Default)]
struct Slices {
    general: Group,
    by_resource: HashMap<String, Group>,
}

/// Rules about one resource, or about any.
#[derive(Debug, Default)]
struct Group {
    always: PolicySet,
    subcommands: HashMap<String, PolicySet>,
    flags: HashMap<String, PolicySet>,
    operands: HashMap<String, PolicySet>,
}

impl Index {
    /// Sorts the rules that count.
    pub(super) fn new(rules: &[Rule]) -> Result<Self, String> {
        let mut index = Self::default();
        for rule in rules.iter().filter(|rule| rule.counts()) {
            let constraint = rule.policy.action_constraint();
            let capabilities = capabilities(&constraint);
            for name in &capabilities {
                add(index.capabilities.entry(name.clone()).or_default(), rule)?;
            }
            let actions = Action::FIXED.into_iter().filter(|action| may_match(&constraint, *action));
            // What names its capabilities was kept under them; whoever names the group as well is about all of them.
            let any = (capabilities.is_empty() && may_match(&constraint, Action::Invoke)).then_some(Action::Invoke);
            for action in actions.chain(any) {
                let slices = index.actions.entry(action).or_default();
                let demand = if action == Action::Exec { Demand::of(&rule.policy) } else { Demand::default() };
                let ids = match rule.policy.resource_constraint() {
                    ResourceConstraint::Eq(uid) => Some(vec![AsRef::<str>::as_ref(uid.id()).to_owned()]),
                    ResourceConstraint::Any | ResourceConstraint::Is(_) => demand.programs,
                    ResourceConstraint::In(_) | ResourceConstraint::IsIn(..) => None,
                };
                match ids {
                    Some(ids) => {
                        for id in BTreeSet::from_iter(ids) {
                            slices.by_resource.entry(id).or_default().add(rule, demand.fact.as_ref())?;
                        }
                    }
                    None => slices.general.add(rule, demand.fact.as_ref())?,
                }
            }
        }
        Ok(index)
    }

    /// The sets that could have something to say to a request, were its resource called so; together they hold every rule that could be
    /// satisfied or fail. A rule may be in more than one of them.
    pub(super) fn slices<'a>(&'a self, request: &'a Request<'_>, resource: &str) -> impl Iterator<Item = &'a PolicySet> {
        let slices = self.actions.get(&request.action());
        let groups = slices.into_iter().flat_map(move |slices| std::iter::once(&slices.general).chain(slices.by_resource.get(resource)));
        let own = (request.action() == Action::Invoke).then(|| self.capabilities.get(request.action_id())).flatten();
        groups.flat_map(|group| group.slices(request)).chain(own)
    }
}

impl Group {
    fn add(&mut self, rule: &Rule, fact: Option<&(Fact, Vec<String>)>) -> Result<(), String> {
        let Some((fact, values)) = fact else { return add(&mut self.always, rule) };
        let sets = match fact {
            Fact::Subcommand => &mut self.subcommands,
            Fact::Flag => &mut self.flags,
            Fact::Operand => &mut self.operands,
        };
        BTreeSet::from_iter(values).into_iter().try_for_each(|value| add(sets.entry(value.clone()).or_default(), rule))
    }

    fn slices<'a>(&'a self, request: &'a Request<'_>) -> impl Iterator<Item = &'a PolicySet> {
        let call = if let Request::Exec(call) = request { Some(call) } else { None };
        let by_fact = call.into_iter().flat_map(|call| {
            let subcommand = self.subcommands.get(&call.subcommand).into_iter();
            let flags = call.flags.iter().filter_map(|flag| self.flags.get(flag));
            subcommand.chain(flags).chain(call.operands.iter().filter_map(|operand| self.operands.get(operand)))
        });
        (!self.always.is_empty()).then_some(&self.always).into_iter().chain(by_fact)
    }
}

fn add(set: &mut PolicySet, rule: &Rule) -> Result<(), String> {
    set.add(rule.policy.clone()).map_err(|error| error.to_string())
}

/// The capabilities that a constraint names one by one; none where it is about a group, or about anything.
fn capabilities(constraint: &ActionConstraint) -> Vec<String> {
    let uids = match constraint {
        ActionConstraint::Any => return Vec::new(),
        ActionConstraint::Eq(uid) => std::slice::from_ref(uid),
        ActionConstraint::In(uids) => uids.as_slice(),
    };
    let ids: Vec<&str> = uids.iter().map(|uid| uid.id().as_ref()).collect();
    if ids.contains(&Action::Invoke.id()) {
        return Vec::new();
    }
    let is_fixed = |id: &&&str| Action::FIXED.iter().any(|action| action.id() == **id);
    ids.iter().filter(|id| !is_fixed(id)).map(|id| (*id).to_owned()).collect()
}

/// Whether an action's constraint can match. Anything that is not clearly about another action may.
pub(super) fn may_match(constraint: &ActionConstraint, action: Action) -> bool {
    let is = |uid: &EntityUid| {
        let id: &str = uid.id().as_ref();
        id == action.id()
    };
    match constraint {
        ActionConstraint::Any => true,
        ActionConstraint::Eq(uid) => is(uid),
        ActionConstraint::In(uids) => uids.iter().any(is),
    }
}
