//! From files to rules: split, parse, read annotations, validate against the schema, try the examples.
//!
//! Every fault of every file is reported at once. One fault anywhere and there is no policy: whoever asked for one gets an error,
//! never a policy with a rule missing.

use std::collections::BTreeSet;
use std::sync::Arc;

use cedar_policy::{ActionConstraint, Effect, Policy, PolicyId, PolicySet, Schema, ValidationMode, ValidationWarning, Validator};

use super::index::Index;
use super::labels::{Told, told};
use super::schema::schema_text;
use super::values::Names;
use crate::capability::Vocabulary;
use crate::examples;
use crate::fault::{Fault, FaultKind, Faults};
use crate::source::{Layer, Piece, PolicyFile, Trust, position, split};

/// Bytes of one file at most.
const MAX_FILE: usize = 1 << 20;
/// Rules of all files together at most.
const MAX_RULES: usize = 10_000;

/// How much is checked on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checks {
    /// Everything: what names exist, what types fit, whether examples hold.
    All,
    /// Syntax and annotations only, for files that passed everything before and have not changed since.
    Known,
}

/// Whether a rule permits or forbids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleEffect {
    /// It permits.
    Permit,
    /// It permits once a person approved (`@approval("required")`).
    PermitAfterApproval,
    /// It forbids.
    Forbid,
}

/// One rule of a file.
#[derive(Debug, Clone)]
pub struct Rule {
    /// Its `@id`, or `file:line`.
    pub id: String,
    /// Its `@reason`.
    pub reason: Option<String>,
    /// What it does.
    pub effect: RuleEffect,
    /// Its file.
    pub file: Arc<str>,
    /// The line it begins on, from 1.
    pub line: usize,
    /// Its file's layer.
    pub layer: Layer,
    /// Whether its file is trusted.
    pub trust: Trust,
    /// How many examples stand above it.
    pub examples: usize,
    /// The rule itself; its id is its place in [`Policies::rules`].
    pub(crate) policy: Policy,
}

impl Rule {
    /// Whether it has a say: every forbid, and permits that a person agreed to.
    pub fn counts(&self) -> bool {
        self.effect == RuleEffect::Forbid || self.trust == Trust::Trusted
    }
}

/// Rules of all layers, ready to be asked.
#[derive(Debug)]
pub struct Policies {
    rules: Vec<Rule>,
    pub(super) index: Index,
    pub(super) names: Names,
}

impl Policies {
    /// Compiles files of any layers; their order makes no difference to any verdict. Rules may name no capability.
    pub fn compile(files: &[PolicyFile], checks: Checks) -> Result<Self, Faults> {
        Self::compile_with(files, checks, &Vocabulary::default())
    }

    /// The same with capabilities that rules may name.
    pub fn compile_with(files: &[PolicyFile], checks: Checks, vocabulary: &Vocabulary) -> Result<Self, Faults> {
        let mut faults = Vec::new();
        let mut rules = Vec::new();
        let mut tried = Vec::new();
        let internal = |message: String| Faults(vec![Fault::at(FaultKind::Validation, "built in", "", (0, 0), message)]);
        let names = Names::new().map_err(|e| internal(e.to_string()))?;
        for file in files {
            if file.text.len() > MAX_FILE {
                let message = format!("the file has more than {MAX_FILE} bytes");
                faults.push(Fault::at(FaultKind::Size, &file.name, "", (0, 0), message));
                continue;
            }
            let name: Arc<str> = file.name.as_str().into();
            for piece in split(&file.text) {
                if rules.len() >= MAX_RULES {
                    let message = format!("there are more than {MAX_RULES} rules");
                    faults.push(Fault::at(FaultKind::Size, &file.name, &file.text, (piece.head, 1), message));
                    break;
                }
                match rule(file, &name, &piece, rules.len()) {
                    Ok(rule) => {
                        rules.push(rule);
                        tried.push((file, piece));
                    }
                    Err(fault) => faults.push(fault),
                }
            }
        }
        refuse_twins(&rules, &mut faults, &tried);
        if checks == Checks::All {
            validate(&rules, &tried, vocabulary, &mut faults).map_err(internal)?;
        }
        if !faults.is_empty() {
            return Err(Faults(faults));
        }
        let index = Index::new(&rules).map_err(internal)?;
        let policies = Self { rules, index, names };
        if checks == Checks::All {
            for (rule, (file, piece)) in policies.rules.iter().zip(&tried) {
                examples::check(rule, file, piece, (&policies.names, vocabulary), &mut faults);
            }
        }
        if faults.is_empty() { Ok(policies) } else { Err(Faults(faults)) }
    }

    /// All rules, in the order of the files.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// How many examples stand above all rules.
    pub fn examples(&self) -> usize {
        self.rules.iter().map(|rule| rule.examples).sum()
    }

    /// The rule behind an id that Cedar reports.
    pub(super) fn rule(&self, id: &PolicyId) -> Option<&Rule> {
        AsRef::<str>::as_ref(id).parse::<usize>().ok().and_then(|place| self.rules.get(place))
    }
}

/// Reads one rule. Anything in it that this version does not know is a fault.
#[expect(clippy::result_large_err, reason = "a fault ends the loading of a policy, and there are few")]
fn rule(file: &PolicyFile, name: &Arc<str>, piece: &Piece<'_>, place: usize) -> Result<Rule, Fault> {
    let at = |kind, place, message: String| Fault::at(kind, &file.name, &file.text, place, message);
    let head = (piece.head, 1);
    let policy = Policy::parse(Some(PolicyId::new(place.to_string())), piece.text).map_err(|errors| {
        let Told { place, message, hint } =
            told(errors.iter().next().map_or(&errors as &dyn miette::Diagnostic, |e| e as &dyn miette::Diagnostic));
        let place = place.map_or(head, |(offset, length)| (piece.start + offset, length));
        let fault = at(FaultKind::Syntax, place, message);
        match hint {
            Some(hint) => fault.with_hint(hint),
            None => fault,
        }
    })?;
    let (mut id, mut reason, mut effect) = (None, None, None);
    for (key, value) in policy.annotations() {
        match key {
            "id" if value.is_empty() => return Err(at(FaultKind::Annotation, head, "`@id` is empty".into())),
            "id" => id = Some(value.to_owned()),
            "reason" => reason = Some(value.to_owned()),
            "approval" if value != "required" => {
                let message = format!("`@approval` must be `\"required\"`, not `\"{value}\"`");
                return Err(at(FaultKind::Annotation, head, message));
            }
            "approval" if policy.effect() == Effect::Forbid => {
                return Err(at(FaultKind::Annotation, head, "`@approval` on a forbid has no meaning".into())
                    .with_hint("write a permit with `@approval(\"required\")` instead"));
            }
            "approval" => effect = Some(RuleEffect::PermitAfterApproval),
            other => {
                return Err(at(FaultKind::Annotation, head, format!("unknown annotation `@{other}`"))
                    .with_hint("known ones are @id, @reason and @approval"));
            }
        }
    }
    let effect = effect.unwrap_or(match policy.effect() {
        Effect::Permit => RuleEffect::Permit,
        Effect::Forbid => RuleEffect::Forbid,
    });
    let line = position(&file.text, piece.head).0;
    let id = id.unwrap_or_else(|| format!("{}:{line}", file.name));
    Ok(Rule {
        id,
        reason,
        effect,
        file: Arc::clone(name),
        line,
        layer: file.layer,
        trust: file.trust,
        examples: examples::count(piece),
        policy,
    })
}

/// Rules of a pack that are about more than its own capabilities: the scope must name them one by one. What cannot be parsed is left to
/// whoever compiles.
pub(crate) fn foreign_rules(file: &PolicyFile, own: &BTreeSet<&str>) -> Vec<Fault> {
    let mut faults = Vec::new();
    for piece in split(&file.text) {
        let Ok(policy) = Policy::parse(None, piece.text) else { continue };
        let uids = match policy.action_constraint() {
            ActionConstraint::Any => Vec::new(),
            ActionConstraint::Eq(uid) => vec![uid],
            ActionConstraint::In(uids) => uids,
        };
        if uids.is_empty() || uids.iter().any(|uid| !own.contains(AsRef::<str>::as_ref(uid.id()))) {
            let message = "a rule of a pack must name capabilities of its own pack in its scope, one by one";
            let fault = Fault::at(FaultKind::Layer, &file.name, &file.text, (piece.head, 1), message);
            faults.push(fault.with_hint("write `action in [Stockade::Action::\"...\", ...]`"));
        }
    }
    faults
}

/// Two rules of one name could not be told apart in a receipt.
fn refuse_twins(rules: &[Rule], faults: &mut Vec<Fault>, tried: &[(&PolicyFile, Piece<'_>)]) {
    let mut seen = std::collections::HashMap::new();
    for (rule, (file, piece)) in rules.iter().zip(tried) {
        // Packs know nothing of each other: the same id in two of them is no mistake of either.
        let pack = (rule.layer == Layer::Pack).then(|| rule.file.split('/').next());
        if rule.policy.annotation("id").is_some()
            && let Some(other) = seen.insert((rule.layer, pack, rule.id.as_str()), rule)
        {
            let message = format!("the rule `{}` is at {}:{} as well", rule.id, other.file, other.line);
            faults.push(
                Fault::at(FaultKind::Annotation, &file.name, &file.text, (piece.head, 1), message).with_hint("give it an id of its own"),
            );
        }
    }
}

/// Asks Cedar's validator. A rule that can never apply is a fault too: somebody believes that it does.
fn validate(rules: &[Rule], tried: &[(&PolicyFile, Piece<'_>)], vocabulary: &Vocabulary, faults: &mut Vec<Fault>) -> Result<(), String> {
    let (schema, _) = Schema::from_cedarschema_str(&schema_text(vocabulary)).map_err(|e| e.to_string())?;
    let set = PolicySet::from_policies(rules.iter().map(|rule| rule.policy.clone())).map_err(|e| e.to_string())?;
    let result = Validator::new(schema).validate(&set, ValidationMode::Strict);
    let errors = result.validation_errors().map(|e| (e.policy_id(), told(e)));
    // Text in more than one script is what many file names are; names of things in rules are still held to one.
    let warnings = result.validation_warnings().filter(|warning| !matches!(warning, ValidationWarning::MixedScriptString(_)));
    let warnings = warnings.map(|w| (w.policy_id(), told(w)));
    for (id, Told { place, message, hint }) in errors.chain(warnings) {
        let number = AsRef::<str>::as_ref(id).parse::<usize>().ok();
        let Some((file, piece)) = number.and_then(|number| tried.get(number)) else { return Err(message) };
        let place = place.map_or((piece.head, 1), |(offset, length)| (piece.start + offset, length));
        // Cedar names the rule by our number, which means nothing to anybody.
        let message = message.strip_prefix(&format!("for policy `{}`, ", AsRef::<str>::as_ref(id))).unwrap_or(&message).to_owned();
        let fault = Fault::at(FaultKind::Validation, &file.name, &file.text, place, message);
        faults.push(match hint {
            Some(hint) => fault.with_hint(hint),
            None => fault,
        });
    }
    Ok(())
}
