//! What a setting is: its name, its type, its default, and what a project may do to it.

use super::value::Value;

/// One setting.
#[derive(Debug)]
pub struct Key {
    /// Dotted, as `config get` takes it.
    pub name: &'static str,
    /// What it holds.
    pub kind: Kind,
    /// What it is when nobody says.
    pub default: Value,
    /// What a default of `null` stands for; empty where the default speaks for itself.
    pub meaning: &'static str,
    /// What a project's file may do to it.
    pub project: ProjectRule,
}

/// The type of a setting.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// `true` or `false`.
    Bool,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Text.
    Text(Null),
    /// A whole number in this range.
    Integer(Range, Null),
    /// A number in this range.
    Number(Range, Null),
    /// A list of host patterns.
    Hosts,
    /// Secrets by name: where each comes from, where it may go, how much of it may be used.
    Secrets,
    /// Prices of models by the beginnings of their names.
    Prices,
    /// What may be done at allowed hosts.
    Rules,
}

/// Bounds of a number, both included.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Range {
    /// The least.
    pub least: f64,
    /// The most; never beyond 2^53, so that every whole number is exact.
    pub most: f64,
}

/// Whether `null` is a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Null {
    /// It says that the default, or no limit, is wanted.
    Allowed,
    /// It is the wrong type.
    Refused,
}

/// What a project's file may do to a setting. The effective value (defaults included) is never loosened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProjectRule {
    /// Only a person's own settings, flags or the machine may set it.
    Never,
    /// May be turned off.
    TurnOff,
    /// May be lowered; `null` is no limit.
    Lower,
    /// May be moved toward `ro`.
    TowardReadOnly,
    /// What both lists allow.
    Intersect,
    /// One more set of rules, which holds beside the others.
    AddRules,
}

impl Kind {
    /// The type in words, for messages.
    pub fn expected(self) -> String {
        let or_null = |null: Null| match null {
            Null::Allowed => " or null",
            Null::Refused => "",
        };
        match self {
            Self::Bool => "true or false".to_owned(),
            Self::Choice(words) => format!("one of {}", words.join(", ")),
            Self::Text(null) => format!("a string{}", or_null(null)),
            Self::Integer(range, null) => format!("a whole number from {} to {}{}", range.least, range.most, or_null(null)),
            Self::Number(range, null) => format!("a number from {} to {}{}", range.least, range.most, or_null(null)),
            Self::Hosts => "a list of hosts".to_owned(),
            Self::Secrets => "an object with an entry for each secret".to_owned(),
            Self::Prices => "an object with an entry for each model".to_owned(),
            Self::Rules => "a list of rules".to_owned(),
        }
    }

    /// Whether `null` is a value of this type.
    pub fn takes_null(self) -> bool {
        match self {
            Self::Text(null) | Self::Integer(_, null) | Self::Number(_, null) => null == Null::Allowed,
            Self::Bool | Self::Choice(_) | Self::Hosts | Self::Secrets | Self::Prices | Self::Rules => false,
        }
    }
}
