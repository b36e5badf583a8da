//! Asking the rules: which are satisfied, and whether any could not be evaluated.

use cedar_policy::{Authorizer, Context, Decision as Answer, Entities, EntityUid, Policy, PolicySet, Request as Question};

use super::compile::{Policies, Rule};
use super::values::{Names, Unfit, context};
use crate::request::{Principal, Request};

/// An id that no program, host or file can have: what a rule says to it, it says to any.
const ANY: &str = "\0any";

/// The rules that are satisfied by a request.
#[derive(Debug, Default)]
pub(crate) struct Satisfied<'a> {
    /// Forbids; where there is one, permits were not looked for.
    pub(crate) forbids: Vec<&'a Rule>,
    /// Permits, those that ask included.
    pub(crate) permits: Vec<&'a Rule>,
    /// What could not be evaluated, in words. Anything here denies.
    pub(crate) errors: Vec<String>,
}

/// One principal's way to ask.
#[derive(Debug)]
pub(crate) struct Asker<'a> {
    policies: &'a Policies,
    principal: &'a Principal,
    uid: EntityUid,
    authorizer: Authorizer,
}

impl<'a> Asker<'a> {
    /// Asks for this principal.
    pub(crate) fn new(policies: &'a Policies, principal: &'a Principal) -> Self {
        Self { policies, principal, uid: policies.names.principal(principal), authorizer: Authorizer::new() }
    }

    /// The rules that a request satisfies.
    pub(crate) fn ask(&self, request: &Request<'_>) -> Satisfied<'a> {
        self.ask_as(request, request.resource().1)
    }

    /// Whether the same request would be permitted whatever its resource were.
    pub(crate) fn permits_any(&self, request: &Request<'_>) -> bool {
        if self.policies.index.slices(request, ANY).next().is_none() {
            return false;
        }
        let satisfied = self.ask_as(request, ANY);
        !satisfied.permits.is_empty() && satisfied.forbids.is_empty() && satisfied.errors.is_empty()
    }

    fn ask_as(&self, request: &Request<'_>, resource: &str) -> Satisfied<'a> {
        let mut satisfied = Satisfied::default();
        let (question, entities) = match self.question(request, resource) {
            Ok(made) => made,
            Err(error) => {
                satisfied.errors.push(error.to_string());
                return satisfied;
            }
        };
        for set in self.policies.index.slices(request, resource) {
            self.collect(&question, set, &entities, &mut satisfied);
        }
        satisfied
    }

    fn question(&self, request: &Request<'_>, resource: &str) -> Result<(Question, Entities), Unfit> {
        let names = &self.policies.names;
        let entities = names.entities(self.principal, request)?;
        let resource = names.resource(request, resource);
        Ok((question(self.uid.clone(), names.action(request), resource, context(names, request)?)?, entities))
    }

    fn collect(&self, question: &Question, set: &PolicySet, entities: &Entities, satisfied: &mut Satisfied<'a>) {
        let response = self.authorizer.is_authorized(question, set, entities);
        let diagnostics = response.diagnostics();
        satisfied.errors.extend(diagnostics.errors().map(ToString::to_string));
        let rules = diagnostics.reason().map(|id| self.policies.rule(id));
        let list = match response.decision() {
            Answer::Allow => &mut satisfied.permits,
            Answer::Deny => &mut satisfied.forbids,
        };
        for rule in rules {
            match rule {
                // A rule may be kept under two facts of one call.
                Some(rule) if list.iter().any(|known| std::ptr::eq(*known, rule)) => {}
                Some(rule) => list.push(rule),
                None => satisfied.errors.push("a rule answered that is not known".to_owned()),
            }
        }
    }
}

/// Whether one rule alone is satisfied by a request; an evaluation error counts as neither.
pub(crate) fn satisfies(policy: &Policy, names: &Names, principal: &Principal, request: &Request<'_>) -> Result<bool, Unfit> {
    let entities = names.entities(principal, request)?;
    let resource = names.resource(request, request.resource().1);
    let question = question(names.principal(principal), names.action(request), resource, context(names, request)?)?;
    let set = PolicySet::from_policies([policy.clone()]).map_err(Unfit::of)?;
    let response = Authorizer::new().is_authorized(&question, &set, &entities);
    Ok(response.diagnostics().reason().next().is_some())
}

fn question(principal: EntityUid, action: EntityUid, resource: EntityUid, context: Context) -> Result<Question, Unfit> {
    Question::new(principal, action, resource, context, None).map_err(Unfit::of)
}
