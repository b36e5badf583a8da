//! What an attempt is told: where the victim's things are. Never what is expected.

use std::collections::BTreeMap;

/// Names and values from the command line.
#[derive(Debug, Default)]
pub(crate) struct Facts(BTreeMap<String, String>);

impl Facts {
    /// Takes `NAME=VALUE` words; others are passed over.
    pub(crate) fn parse(words: &[&str]) -> Self {
        Self(words.iter().filter_map(|w| w.split_once('=')).map(|(n, v)| (n.to_owned(), v.to_owned())).collect())
    }

    /// A fact as text; empty when it was not given, which no attempt can succeed with.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// A fact as a number.
    pub(crate) fn number(&self, name: &str) -> i64 {
        self.text(name).parse().unwrap_or(-1)
    }
}
