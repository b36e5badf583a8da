//! What a rule demands before it looks at anything else, so that it can be kept under that.
//!
//! Cedar evaluates the conditions of a rule from left to right and stops at the first that is false. A rule that begins by asking for a flag
//! thus says nothing, and fails at nothing, where a call does not have the flag: it need not be evaluated there. Only what comes first counts
//! for that; anything further right could be behind something that fails, and failing denies.

use cedar_policy::Policy;
use serde_json::Value;

/// What a rule about programs demands first.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Demand {
    /// One of these programs, where it names any.
    pub(super) programs: Option<Vec<String>>,
    /// One of these facts about the call.
    pub(super) fact: Option<(Fact, Vec<String>)>,
}

/// A fact about a call that every call has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fact {
    /// The subcommand.
    Subcommand,
    /// One of the flags.
    Flag,
    /// One of the operands.
    Operand,
}

impl Fact {
    /// The set in a call's context that it is looked for in.
    fn of_set(attribute: &str) -> Option<Self> {
        match attribute {
            "flags" => Some(Self::Flag),
            "operands" => Some(Self::Operand),
            _ => None,
        }
    }
}

impl Demand {
    /// What a rule demands of a call of a program. What is not understood demands nothing, so such a rule is always asked.
    pub(super) fn of(policy: &Policy) -> Self {
        let Ok(json) = policy.to_json() else { return Self::default() };
        let clauses = json.get("conditions").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let whens = clauses.iter().map_while(|clause| if clause.get("kind")? == "when" { clause.get("body") } else { None });
        let mut first = whens.flat_map(conjuncts).peekable();
        // Who knows the program knows that this condition holds, so the next one comes first.
        let programs = first.peek().and_then(|condition| programs(condition));
        if programs.is_some() {
            first.next();
        }
        Self { programs, fact: first.next().and_then(fact) }
    }
}

/// `a && b && c` from left to right.
fn conjuncts(expression: &Value) -> Vec<&Value> {
    match operands(expression, "&&") {
        Some((left, right)) => {
            let mut all = conjuncts(left);
            all.extend(conjuncts(right));
            all
        }
        None => vec![expression],
    }
}

/// The programs of `resource == Program::"a"` and `resource in [Program::"a", Program::"b"]`. No program is in another one.
fn programs(condition: &Value) -> Option<Vec<String>> {
    let is_resource = |value: &Value| value.get("Var").is_some_and(|name| name == "resource");
    let id = |value: &Value| Some(value.get("Value")?.get("__entity")?.get("id")?.as_str()?.to_owned());
    let (left, right) = operands(condition, "==").or_else(|| operands(condition, "in"))?;
    if !is_resource(left) {
        return None;
    }
    match right.get("Set") {
        Some(set) => set.as_array()?.iter().map(id).collect(),
        None => Some(vec![id(right)?]),
    }
}

/// The fact of `context.subcommand == "a"`, `["a", "b"].contains(context.subcommand)`, `context.flags.contains("a")` and
/// `context.flags.containsAny(["a", "b"])`.
fn fact(condition: &Value) -> Option<(Fact, Vec<String>)> {
    let is_subcommand = |value: &Value| attribute(value) == Some("subcommand");
    let in_set = |value: &Value| Fact::of_set(attribute(value)?);
    if let Some((left, right)) = operands(condition, "==") {
        return is_subcommand(left).then(|| Some((Fact::Subcommand, vec![text(right)?])))?;
    }
    if let Some((left, right)) = operands(condition, "containsAny") {
        return Some((in_set(left)?, texts(right)?));
    }
    let (left, right) = operands(condition, "contains")?;
    if is_subcommand(right) { Some((Fact::Subcommand, texts(left)?)) } else { Some((in_set(left)?, vec![text(right)?])) }
}

/// Both sides of an operator.
fn operands<'a>(expression: &'a Value, operator: &str) -> Option<(&'a Value, &'a Value)> {
    let sides = expression.get(operator)?;
    Some((sides.get("left")?, sides.get("right")?))
}

/// The name of an attribute of the context.
fn attribute(expression: &Value) -> Option<&str> {
    let access = expression.get(".")?;
    (access.get("left")?.get("Var")? == "context").then(|| access.get("attr")?.as_str())?
}

fn text(expression: &Value) -> Option<String> {
    expression.get("Value")?.as_str().map(str::to_owned)
}

fn texts(expression: &Value) -> Option<Vec<String>> {
    expression.get("Set")?.as_array()?.iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demand(conditions: &str) -> Demand {
        Demand::of(&format!("permit (principal, action == Stockade::Action::\"exec\", resource) {conditions};").parse().unwrap())
    }

    fn of(programs: &[&str], fact: Option<(Fact, &[&str])>) -> Demand {
        let owned = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
        Demand { programs: (!programs.is_empty()).then(|| owned(programs)), fact: fact.map(|(fact, values)| (fact, owned(values))) }
    }

    #[test]
    fn what_comes_first_is_demanded() {
        for (conditions, expected) in [
            ("when { context.flags.contains(\"-f\") }", of(&[], Some((Fact::Flag, &["-f"])))),
            ("when { context.operands.containsAny([\"a\", \"b\"]) && context.count == 1 }", of(&[], Some((Fact::Operand, &["a", "b"])))),
            ("when { context.subcommand == \"log\" } unless { context.opaque }", of(&[], Some((Fact::Subcommand, &["log"])))),
            ("when { [\"log\", \"show\"].contains(context.subcommand) }", of(&[], Some((Fact::Subcommand, &["log", "show"])))),
            ("when { resource == Stockade::Program::\"a\" }", of(&["a"], None)),
            (
                "when { resource in [Stockade::Program::\"a\", Stockade::Program::\"b\"] } when { context.flags.contains(\"-f\") && true }",
                of(&["a", "b"], Some((Fact::Flag, &["-f"]))),
            ),
        ] {
            assert_eq!(demand(conditions), expected, "{conditions}");
        }
    }

    #[test]
    fn nothing_else_is() {
        for conditions in [
            "",
            "unless { context.flags.contains(\"-f\") }",
            "when { !context.flags.contains(\"-f\") }",
            "when { context.opaque && context.flags.contains(\"-f\") }",
            "when { context.flags.contains(\"-f\") || context.opaque }",
            "when { context.flags.containsAll([\"-f\"]) }",
            "when { context.flags.containsAny([context.subcommand]) }",
            "when { context.writes.contains(\"-f\") }",
            "when { context.subcommand != \"log\" }",
            "when { principal == Stockade::Agent::\"a\" }",
            "when { Stockade::Program::\"a\" == resource }",
            "when { resource.path == \"/a\" }",
            "unless { resource == Stockade::Program::\"a\" }",
        ] {
            assert_eq!(demand(conditions), Demand::default(), "{conditions}");
        }
    }
}
