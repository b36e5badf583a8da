//! What is wrong with a policy file or a manifest: the place, the line with a caret, and what to do.

use std::fmt::{self, Display, Formatter};

use stockade_core::escape::escape;

use crate::source::position;

/// Characters of a line that are shown at most.
const SHOWN: usize = 160;

/// The step at which a rule was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// The file is too large, or has too many rules.
    Size,
    /// It is not Cedar.
    Syntax,
    /// It names what does not exist, or compares what cannot be compared.
    Validation,
    /// An annotation that is unknown or has a wrong value.
    Annotation,
    /// A pack's manifest or one of its capabilities is not as it must be.
    Manifest,
    /// The rule may not be in this layer.
    Layer,
    /// An example above a rule does not hold.
    Example,
}

/// One thing that is wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The step that refused it.
    pub kind: FaultKind,
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// The line as it stands in the file.
    excerpt: String,
    /// How many characters are meant.
    width: usize,
}

impl Fault {
    /// A fault at a place of a file; `length` is in bytes.
    pub(crate) fn at(kind: FaultKind, file: &str, text: &str, place: (usize, usize), message: impl Into<String>) -> Self {
        let (offset, length) = place;
        let (line, column) = position(text, offset);
        let excerpt = text.lines().nth(line - 1).unwrap_or_default().to_owned();
        let meant = text.get(offset..offset.saturating_add(length)).unwrap_or_default();
        let width = meant.lines().next().unwrap_or_default().chars().count().max(1);
        Self { kind, file: file.to_owned(), line, column, message: message.into(), hint: None, excerpt, width }
    }

    /// The same with a hint.
    #[must_use]
    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// `file:line:column: message`, without the excerpt.
    pub fn headline(&self) -> String {
        format!("{}:{}:{}: {}", escape(&self.file), self.line, self.column, escape(&self.message))
    }
}

impl Display for Fault {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.headline())?;
        let margin = " ".repeat(self.line.to_string().len());
        if self.excerpt.is_empty() {
            // A file that is missing or empty has no line to point at.
            return self.hint.as_ref().map_or(Ok(()), |hint| write!(f, "\n {margin} = {}", escape(hint)));
        }
        // A tab is one character to the parser and many to a terminal.
        let excerpt: String = self.excerpt.chars().take(SHOWN).map(|c| if c == '\t' { ' ' } else { c }).collect();
        let excerpt = escape(&excerpt);
        writeln!(f, "\n {margin} |\n {} | {excerpt}", self.line)?;
        if self.column <= SHOWN {
            let carets = "^".repeat(self.width.min(SHOWN + 1 - self.column));
            write!(f, " {margin} | {}{carets}", " ".repeat(self.column - 1))?;
        }
        match &self.hint {
            Some(hint) => write!(f, "\n {margin} = {}", escape(hint)),
            None => Ok(()),
        }
    }
}

/// Everything that is wrong with a set of files.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", shown(.0))]
pub struct Faults(pub Vec<Fault>);

fn shown(faults: &[Fault]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caret_points_at_what_is_meant() {
        let text = "permit (\n\tprincipal, acton);";
        let fault = Fault::at(FaultKind::Syntax, "p.cedar", text, (21, 5), "no such thing").with_hint("did you mean `action`?");
        let expected = "p.cedar:2:13: no such thing\n   |\n 2 |  principal, acton);\n   |             ^^^^^\n   = did you mean `action`?";
        assert_eq!(fault.to_string(), expected);
    }

    #[test]
    fn a_missing_file_has_no_line_to_show() {
        let fault = Fault::at(FaultKind::Manifest, "pack.toml", "", (0, 0), "the file is missing");
        assert_eq!(fault.to_string(), "pack.toml:1:1: the file is missing");
        assert_eq!(fault.with_hint("write it").to_string(), "pack.toml:1:1: the file is missing\n   = write it");
    }

    #[test]
    fn a_place_outside_the_text_is_its_end() {
        let fault = Fault::at(FaultKind::Syntax, "p", "ab", (99, 3), "x");
        assert_eq!((fault.line, fault.column), (1, 3));
    }
}
