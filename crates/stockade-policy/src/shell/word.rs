//! One word of a command, as far as it is known before bash expands it.

/// A word: literal, or known only by how it begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    /// All of it where it is literal, else its literal beginning.
    text: String,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Literal,
    /// Becomes exactly one argument.
    One,
    /// Becomes any number of arguments.
    Any,
}

impl Word {
    /// A word that is what it says.
    pub fn literal(text: impl Into<String>) -> Self {
        Self { text: text.into(), kind: Kind::Literal }
    }

    /// One argument that nobody knows.
    pub fn unknown() -> Self {
        Self { text: String::new(), kind: Kind::One }
    }

    /// Any number of arguments that nobody knows.
    pub(super) fn unknown_many() -> Self {
        Self { text: String::new(), kind: Kind::Any }
    }

    /// The text, where it is known.
    pub fn as_literal(&self) -> Option<&str> {
        (self.kind == Kind::Literal).then_some(self.text.as_str())
    }

    /// What it begins with, as far as that is known.
    pub(super) fn beginning(&self) -> &str {
        &self.text
    }

    /// Whether it can become more or less than one argument.
    pub(super) fn may_split(&self) -> bool {
        self.kind == Kind::Any
    }

    /// The same word, where something in it is replaced later.
    pub(super) fn replaced(&self, mark: &str) -> Self {
        match self.text.split_once(mark) {
            Some((before, _)) => Self { text: before.to_owned(), kind: if self.may_split() { Kind::Any } else { Kind::One } },
            None => self.clone(),
        }
    }

    /// For people: the text, or its beginning and dots.
    pub(super) fn shown(&self) -> String {
        let text: String = self.text.chars().take(40).collect();
        let text = stockade_core::escape::escape(&text);
        match self.kind {
            Kind::Literal => format!("`{text}`"),
            Kind::One | Kind::Any if text.is_empty() => "an expansion".to_owned(),
            Kind::One | Kind::Any => format!("`{text}…`"),
        }
    }
}

/// A word that is being put together from its pieces.
#[derive(Debug, Default)]
pub(super) struct Builder {
    text: String,
    is_open: bool,
    may_split: bool,
}

impl Builder {
    /// More literal text.
    pub(super) fn push(&mut self, text: &str) {
        if !self.is_open {
            self.text.push_str(text);
        }
    }

    /// Something that is not known, which stays within the word.
    pub(super) fn unknown(&mut self) {
        self.is_open = true;
    }

    /// Something that is not known, which may split the word.
    pub(super) fn unknown_many(&mut self) {
        self.is_open = true;
        self.may_split = true;
    }

    /// The word.
    pub(super) fn finish(self) -> Word {
        let kind = match (self.is_open, self.may_split) {
            (false, _) => Kind::Literal,
            (true, false) => Kind::One,
            (true, true) => Kind::Any,
        };
        Word { text: self.text, kind }
    }
}
