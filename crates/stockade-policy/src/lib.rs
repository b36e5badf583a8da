//! What may be done: Cedar rules in layers, what a shell script would run, and what a pack's capabilities are.
//!
//! Pure: no I/O, no clock, no threads. Whoever loads files, resolves programs and knows who asks (`stockade-store`, the binary) hands
//! values in and gets a [`Decision`] back. Rules are trusted as far as their layer is; everything that is asked about (scripts, arguments,
//! host names, inputs, packs) is hostile: it is bounded before it is parsed, and becomes Cedar *values*, never Cedar text.
//!
//! Whatever goes wrong denies: a rule that cannot be evaluated, a script that cannot be parsed, a limit that is exceeded. Reading a script
//! is no wall: the sandbox holds what a program really does. A verdict therefore also says which programs the call needs
//! ([`Judgement::exec_list`]), so that the kernel can refuse all others.

pub mod capability;
mod cedar;
mod decision;
mod examples;
mod fault;
pub mod import;
mod judge;
pub mod pack;
mod request;
pub mod shell;
mod source;
mod suggest;

pub use cedar::{Checks, Policies, Rule, RuleEffect, schema_text};
pub use decision::{Decision, RuleReference, Verdict};
pub use fault::{Fault, FaultKind, Faults};
pub use judge::{Floor, Judgement};
pub use request::{Principal, PrincipalKind, Request};
pub use source::{Layer, PolicyFile, Trust};
pub use suggest::rule as narrowest_rule;
