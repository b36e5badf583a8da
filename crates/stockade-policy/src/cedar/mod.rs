//! The policy engine: Cedar, and nothing of our own where Cedar has a word for it.
//!
//! `schema` says what rules may talk about, `compile` turns files into rules, `index` keeps them so that a decision looks at few of them,
//! `evaluate` asks them, `values` makes Cedar values of requests. What Cedar does not know (layers, asking, examples) is built on the sets
//! of rules that it says were satisfied.

mod compile;
mod demand;
mod evaluate;
mod index;
mod labels;
mod requests;
mod schema;
mod values;

pub(crate) use compile::foreign_rules;
pub use compile::{Checks, Policies, Rule, RuleEffect};
pub(crate) use evaluate::{Asker, Satisfied, satisfies};
pub(crate) use schema::NAMESPACE;
pub use schema::schema_text;
pub(crate) use values::Names;
