//! Rules by what they are about, so that a decision evaluates few of them.
//!
//! A rule whose scope names one resource is kept under it; all others are general. A request asks the general rules of its action and those
//! of its own resource: exactly the rules whose scope could match, so leaving the rest out changes no verdict.

use std::collections::{BTreeMap, HashMap};

use cedar_policy::{ActionConstraint, EntityUid, PolicySet, ResourceConstraint};

use super::compile::Rule;
use crate::request::Action;

/// The rules of all actions.
#[derive(Debug, Default)]
pub(super) struct Index {
    actions: BTreeMap<Action, Slices>,
}

/// The rules of one action.
#[derive(Debug, Default)]
struct Slices {
    general: PolicySet,
    by_resource: HashMap<String, PolicySet>,
}

impl Index {
    /// Sorts the rules that count.
    pub(super) fn new(rules: &[Rule]) -> Result<Self, String> {
        let mut index = Self::default();
        for rule in rules.iter().filter(|rule| rule.counts()) {
            for action in Action::ALL.into_iter().filter(|action| may_match(&rule.policy.action_constraint(), *action)) {
                let slices = index.actions.entry(action).or_default();
                let set = match rule.policy.resource_constraint() {
                    ResourceConstraint::Eq(uid) => slices.by_resource.entry(AsRef::<str>::as_ref(uid.id()).to_owned()).or_default(),
                    ResourceConstraint::Any | ResourceConstraint::In(_) | ResourceConstraint::Is(_) | ResourceConstraint::IsIn(..) => {
                        &mut slices.general
                    }
                };
                set.add(rule.policy.clone()).map_err(|e| e.to_string())?;
            }
        }
        Ok(index)
    }

    /// The sets that could have something to say; together they hold every rule whose scope could match.
    pub(super) fn slices(&self, action: Action, resource: &str) -> impl Iterator<Item = &PolicySet> {
        let slices = self.actions.get(&action);
        let general = slices.map(|slices| &slices.general).filter(|set| !set.is_empty());
        general.into_iter().chain(slices.and_then(|slices| slices.by_resource.get(resource)))
    }
}

/// Whether an action's constraint can match. Anything that is not clearly about another action may.
fn may_match(constraint: &ActionConstraint, action: Action) -> bool {
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
