//! Text that is safe to show to a person.
//!
//! The only way in is through the escaper, so a file name or a message from a sandbox cannot repaint a terminal. Colour
//! is added afterwards and never carries meaning alone; the printer strips it where it is not wanted.

use owo_colors::OwoColorize;
use stockade_core::escape::escape;

/// Escaped, perhaps coloured, text of one line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Text(String);

/// What a piece of text means; the words must say so too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    /// As it should be.
    Good,
    /// Look at this.
    Caution,
    /// Wrong, refused, missing.
    Bad,
    /// Headings and names.
    Strong,
    /// Less important.
    Faint,
}

impl Text {
    /// Text from anywhere.
    pub(crate) fn plain(text: impl AsRef<str>) -> Self {
        Self(escape(text.as_ref()))
    }

    /// Coloured text from anywhere.
    pub(crate) fn toned(tone: Tone, text: impl AsRef<str>) -> Self {
        let safe = escape(text.as_ref());
        Self(match tone {
            Tone::Good => safe.green().to_string(),
            Tone::Caution => safe.yellow().to_string(),
            Tone::Bad => safe.red().to_string(),
            Tone::Strong => safe.bold().to_string(),
            Tone::Faint => safe.dimmed().to_string(),
        })
    }

    /// This text, then that.
    #[must_use]
    pub(crate) fn then(mut self, more: impl Into<Text>) -> Self {
        self.0.push_str(&more.into().0);
        self
    }

    /// The text with its colours.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self::plain(text)
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self::plain(text)
    }
}

impl From<&String> for Text {
    fn from(text: &String) -> Self {
        Self::plain(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_escaped() {
        let hostile = "a\u{1b}[2J\u{202e}b\nc";
        let safe = "a\\u{1b}[2J\\u{202e}b\\nc";
        assert_eq!(Text::plain(hostile).as_str(), safe);
        assert_eq!(Text::from(hostile), Text::plain(hostile));
        assert_eq!(Text::toned(Tone::Bad, hostile).as_str(), format!("\u{1b}[31m{safe}\u{1b}[39m"));
        assert_eq!(Text::plain("a").then("\t").as_str(), "a\\t");
    }
}
