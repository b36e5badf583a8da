//! Examples of a capability: inputs with the argument list that must come of them, or that must be refused.

use serde_json::{Map, Value};

use super::manifest::Capability;
use super::paths::Lexical;

/// The workspace of examples.
pub(crate) const WORKSPACE: &str = "/workspace";

/// What an example expects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expected {
    /// These arguments, the program first.
    Allow(Vec<String>),
    /// The inputs are refused, or a rule of the pack forbids the call.
    Deny,
}

/// One example.
#[derive(Debug, Clone, PartialEq)]
pub struct Example {
    /// The inputs.
    pub input: Map<String, Value>,
    /// What must come of them.
    pub expected: Expected,
    /// Where it stands in the manifest: offset and length.
    pub(crate) place: (usize, usize),
}

/// What came of an example without its pack's rules.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Tried {
    /// As expected.
    Holds,
    /// It was expected to be refused and was not; only a rule could still refuse it.
    Accepted(Map<String, Value>),
    /// Not as expected, in words.
    Fails(String),
}

impl Capability {
    /// Tries one example.
    pub(crate) fn try_example(&self, example: &Example) -> Tried {
        let prepared = self.prepare(example.input.clone(), &Lexical { workspace: WORKSPACE });
        match (&example.expected, prepared) {
            (Expected::Deny, Err(_)) => Tried::Holds,
            (Expected::Deny, Ok(prepared)) => Tried::Accepted(prepared.values),
            (Expected::Allow(_), Err(refused)) => Tried::Fails(format!("the example is refused: {refused}")),
            (Expected::Allow(argv), Ok(prepared)) => {
                let made: Vec<&str> = std::iter::once(self.program.as_str()).chain(prepared.args.iter().map(String::as_str)).collect();
                if made == *argv { Tried::Holds } else { Tried::Fails(format!("the example gives {made:?}")) }
            }
        }
    }
}
