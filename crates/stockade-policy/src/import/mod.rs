//! Rules of other programs as Cedar: Claude Code's permission rules and Codex's prefix rules.
//!
//! A foreign rule is about the text of a command line; ours are about what was read from it. What an imported permit lets through is no more
//! than the foreign one did, but for options before a subcommand, which are not told from those after it; a forbid stops at least as much.
//! Where that cannot be said in Cedar the rule is left out and a [`Note`] says why. Foreign text becomes Cedar strings and one-line
//! comments, never Cedar syntax.
//!
//! Only text is looked at here: which files there are, and where the result goes, is for others to say.

mod claude;
mod codex;
mod pattern;
mod render;
mod starlark;

pub use claude::claude;
pub use codex::codex;

use pattern::Pattern;

/// What a foreign rule wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// It may happen.
    Allow,
    /// A person decides.
    Ask,
    /// It may not happen.
    Deny,
}

impl Wish {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}

/// What became of a rule that could not be carried over as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is not in the result.
    Left,
    /// It is in the result and lets less through, or stops more.
    Narrowed,
}

/// What a person should know about one foreign rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// What became of it.
    pub fate: Fate,
    /// What it wants, where it is a rule.
    pub wish: Option<Wish>,
    /// The rule as it was written.
    pub rule: String,
    /// Why it could not be carried over as it is.
    pub why: String,
}

/// Foreign rules as Cedar.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Imported {
    /// Each rule with the comments above it.
    pub rules: Vec<String>,
    /// What is different, or missing.
    pub notes: Vec<Note>,
}

/// One foreign rule that Cedar can say.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Draft {
    wish: Wish,
    /// The rule as it was written.
    from: String,
    /// What is shown when it denies or asks.
    reason: Option<String>,
    about: About,
}

/// What a foreign rule is about.
#[derive(Debug, Clone, PartialEq, Eq)]
enum About {
    /// Running programs.
    Exec(Pattern),
    /// Files, or hosts: an action's id, the resource's part of the scope, and conditions.
    Other { actions: &'static [&'static str], resource: String, conditions: Vec<String> },
}

/// Foreign rules on their way.
#[derive(Debug, Default)]
struct Basket {
    drafts: Vec<Draft>,
    notes: Vec<Note>,
}

impl Basket {
    fn put(&mut self, draft: Draft) {
        if let About::Exec(pattern) = &draft.about
            && let Some(why) = pattern.narrowed(draft.wish)
        {
            self.notes.push(Note { fate: Fate::Narrowed, wish: Some(draft.wish), rule: draft.from.clone(), why });
        }
        self.drafts.push(draft);
    }

    fn leave(&mut self, wish: Option<Wish>, rule: impl Into<String>, why: impl Into<String>) {
        self.notes.push(Note { fate: Fate::Left, wish, rule: rule.into(), why: why.into() });
    }

    /// Writes everything down; ids begin with a word for where the rules came from.
    fn finish(mut self, origin: &str) -> Imported {
        let rules = render::rules(&self.drafts, origin, &mut self.notes);
        Imported { rules, notes: self.notes }
    }
}

#[cfg(test)]
mod tests;
