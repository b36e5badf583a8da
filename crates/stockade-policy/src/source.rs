//! Policy files as they were read: which layer they belong to, and where each rule in them begins.
//!
//! Splitting looks at strings, comments and semicolons only. Everything else is Cedar's to judge.

/// Where a rule comes from. A later one stands above an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub enum Layer {
    /// A pack's own rules.
    Pack,
    /// The repository's (`.stockade/policy/`).
    Project,
    /// The person's (`~/.config/stockade/policy/`).
    User,
    /// The administrator's (`/etc/stockade/policy/`).
    Machine,
}

impl Layer {
    /// The name that people see.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pack => "pack",
            Self::Project => "project",
            Self::User => "user",
            Self::Machine => "machine",
        }
    }
}

/// Whether a person agreed to a file's permits. Its forbids count in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Trust {
    /// Permits count.
    Trusted,
    /// Only forbids count.
    Untrusted,
}

/// One policy file.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyFile {
    /// Its layer.
    pub layer: Layer,
    /// Whether its permits count.
    pub trust: Trust,
    /// The path that people see.
    pub name: String,
    /// What is in it.
    pub text: String,
}

/// One rule's text and what stands above it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece<'a> {
    /// From the end of the rule before it to its own semicolon.
    pub(crate) text: &'a str,
    /// Where `text` begins in the file.
    pub(crate) start: usize,
    /// Where the rule itself begins in the file, after comments.
    pub(crate) head: usize,
    /// Comment lines above it, without slashes, each with its place in the file.
    pub(crate) comments: Vec<(usize, &'a str)>,
}

/// Cuts a file into rules. What follows the last semicolon is a piece too, unless it is blank or comments.
pub(crate) fn split(text: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut scan = Scan { text, at: 0 };
    while let Some(piece) = scan.piece() {
        pieces.push(piece);
    }
    pieces
}

/// Line and column of a place, both from 1; columns count characters.
pub(crate) fn position(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    (line, column)
}

struct Scan<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scan<'a> {
    fn piece(&mut self) -> Option<Piece<'a>> {
        let start = self.at;
        let mut head = None;
        let mut comments = Vec::new();
        let bytes = self.text.as_bytes();
        while let Some(byte) = bytes.get(self.at) {
            match byte {
                b'/' if bytes.get(self.at + 1) == Some(&b'/') => {
                    let begin = self.at + 2;
                    let end = self.text.get(begin..).and_then(|rest| rest.find('\n')).map_or(self.text.len(), |n| begin + n);
                    if head.is_none() {
                        comments.push((begin, self.text.get(begin..end).unwrap_or_default().trim()));
                    }
                    self.at = end;
                    continue;
                }
                b'"' => {
                    head.get_or_insert(self.at);
                    self.skip_string();
                    continue;
                }
                b';' => {
                    let head = head.unwrap_or(self.at);
                    self.at += 1;
                    let text = self.text.get(start..self.at).unwrap_or_default();
                    return Some(Piece { text, start, head, comments });
                }
                byte if byte.is_ascii_whitespace() => {}
                _ => {
                    head.get_or_insert(self.at);
                }
            }
            self.at += 1;
        }
        let text = self.text.get(start..).unwrap_or_default();
        head.map(|head| Piece { text, start, head, comments })
    }

    /// From the opening quote to after the closing one, or to the end.
    fn skip_string(&mut self) {
        let bytes = self.text.as_bytes();
        self.at += 1;
        while let Some(byte) = bytes.get(self.at) {
            self.at += match byte {
                b'\\' => 2,
                b'"' => {
                    self.at += 1;
                    return;
                }
                _ => 1,
            };
        }
        self.at = self.text.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_end_at_semicolons_outside_strings_and_comments() {
        let text = "// allow: a;b\n@id(\"x;\\\"\") // why; so\npermit(a);\n\n forbid(b);\n// end\n";
        let pieces = split(text);
        let heads: Vec<(&str, usize)> = pieces.iter().map(|p| (text.get(p.head..p.head + 3).unwrap(), position(text, p.head).0)).collect();
        assert_eq!(heads, [("@id", 2), ("for", 5)]);
        assert_eq!(pieces[0].comments, [(2, "allow: a;b")]);
        assert_eq!(pieces.iter().map(|p| p.text).collect::<String>() + "\n// end\n", text);
    }

    #[test]
    fn what_does_not_end_is_a_piece() {
        for text in ["permit(", "\"abc", "permit(\"\\", "x // y"] {
            assert_eq!(split(text).len(), 1, "{text}");
        }
        assert!(split(" \n// only words\n").is_empty());
        assert_eq!(split(";;").len(), 2);
    }

    #[test]
    fn columns_count_characters() {
        assert_eq!(position("a\nüb", 4), (2, 2));
        assert_eq!(position("a", 99), (1, 2));
    }
}
