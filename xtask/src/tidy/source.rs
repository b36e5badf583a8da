//! A Rust file seen three ways: as written, its code without comments and strings, and its comments alone.
//!
//! A small scanner, not a parser: it knows comments, strings, raw strings and characters, which is what it takes to not
//! mistake a word in a message for code. Every view keeps the lines where they were.

/// A text and its views.
pub(super) struct Source {
    text: String,
    code: String,
    comments: String,
}

impl Source {
    /// Takes a text apart.
    pub(super) fn new(text: String) -> Self {
        let (code, comments) = split(&text);
        Self { text, code, comments }
    }

    /// As written.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Comments and the insides of strings blanked.
    pub(super) fn code(&self) -> &str {
        &self.code
    }

    /// Everything but comments blanked.
    pub(super) fn comments(&self) -> &str {
        &self.comments
    }

    /// The code with `#[cfg(test)]` modules blanked as well.
    pub(super) fn code_outside_tests(&self) -> String {
        let mut code = self.code.clone();
        while let Some(start) = code.find("#[cfg(test)]") {
            let end = end_of_item(&code, start);
            let blank: String = code.get(start..end).unwrap_or_default().chars().map(blanked).collect();
            code.replace_range(start..end, &blank);
        }
        code
    }
}

/// Lines (counted from one) on which `word` stands as a whole word.
pub(super) fn lines_with_word<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let stands_alone = move |line: &str| {
        line.match_indices(word).any(|(at, _)| {
            let before = line.get(..at).and_then(|text| text.chars().next_back());
            let after = line.get(at + word.len()..).and_then(|text| text.chars().next());
            let ends_in_word = word.chars().next_back().is_some_and(is_part);
            let is_longer = before.is_some_and(is_part) || (ends_in_word && after.is_some_and(is_part));
            !is_longer
        })
    };
    text.lines().enumerate().filter(move |(_, line)| stands_alone(line)).map(|(index, _)| index + 1)
}

/// Where the item that begins at `start` ends: after its matching closing brace, or after its semicolon.
fn end_of_item(code: &str, start: usize) -> usize {
    let mut depth = 0_usize;
    // The attribute's own brackets come first; they hold neither braces nor semicolons.
    for (offset, c) in code.get(start..).unwrap_or_default().char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth <= 1 => return start + offset + 1,
            '}' => depth -= 1,
            ';' if depth == 0 => return start + offset + 1,
            _ => {}
        }
    }
    code.len()
}

fn blanked(c: char) -> char {
    if c == '\n' { '\n' } else { ' ' }
}

/// What the scanner is inside of.
enum State {
    Code,
    LineComment,
    BlockComment { depth: usize },
    Text { hashes: Option<usize> },
}

fn split(text: &str) -> (String, String) {
    let chars: Vec<char> = text.chars().collect();
    let at = |index: usize| chars.get(index).copied().unwrap_or('\0');
    let mut code = String::with_capacity(text.len());
    let mut comments = String::with_capacity(text.len());
    let mut state = State::Code;
    let mut index = 0;
    while index < chars.len() {
        // How many characters this step takes, and which view shows them.
        let (taken, in_code, in_comments) = match state {
            State::Code => match (at(index), at(index + 1)) {
                ('/', '/') => {
                    state = State::LineComment;
                    (2, false, true)
                }
                ('/', '*') => {
                    state = State::BlockComment { depth: 1 };
                    (2, false, true)
                }
                ('"', _) => {
                    state = State::Text { hashes: None };
                    (1, true, false)
                }
                ('\'', _) => (character_length(&chars, index), true, false),
                ('r', '"' | '#') if !previous_is_word(&chars, index) => match raw_string(&chars, index) {
                    Some(hashes) => {
                        state = State::Text { hashes: Some(hashes) };
                        (hashes + 2, true, false)
                    }
                    None => (1, true, false),
                },
                _ => (1, true, false),
            },
            State::LineComment => {
                if at(index) == '\n' {
                    state = State::Code;
                }
                (1, false, true)
            }
            State::BlockComment { depth } => match (at(index), at(index + 1)) {
                ('/', '*') => {
                    state = State::BlockComment { depth: depth + 1 };
                    (2, false, true)
                }
                ('*', '/') => {
                    state = if depth == 1 { State::Code } else { State::BlockComment { depth: depth - 1 } };
                    (2, false, true)
                }
                _ => (1, false, true),
            },
            State::Text { hashes: None } => match at(index) {
                '\\' => (2, false, false),
                '"' => {
                    state = State::Code;
                    (1, true, false)
                }
                _ => (1, false, false),
            },
            State::Text { hashes: Some(hashes) } => {
                let closes = at(index) == '"' && (1..=hashes).all(|offset| at(index + offset) == '#');
                if closes {
                    state = State::Code;
                    (hashes + 1, true, false)
                } else {
                    (1, false, false)
                }
            }
        };
        for c in chars.iter().skip(index).take(taken).copied() {
            code.push(if in_code { c } else { blanked(c) });
            comments.push(if in_comments { c } else { blanked(c) });
        }
        index += taken;
    }
    (code, comments)
}

/// The length of a character literal, or one where the quote begins a lifetime.
fn character_length(chars: &[char], quote: usize) -> usize {
    let at = |offset: usize| chars.get(quote + offset).copied();
    if at(1) == Some('\\') {
        // '\n', '\'', '\x41', '\u{41}': up to the next quote after the escaped character.
        return (3..14).find(|offset| at(*offset) == Some('\'')).map_or(1, |offset| offset + 1);
    }
    if at(2) == Some('\'') { 3 } else { 1 }
}

/// The number of `#` of a raw string that begins here, if one does.
fn raw_string(chars: &[char], start: usize) -> Option<usize> {
    let hashes = chars.iter().skip(start + 1).take_while(|c| **c == '#').count();
    (chars.get(start + 1 + hashes) == Some(&'"')).then_some(hashes)
}

fn previous_is_word(chars: &[char], index: usize) -> bool {
    let previous = index.checked_sub(1).and_then(|index| chars.get(index));
    // A byte or C string has its letter before the `r`.
    previous.is_some_and(|c| (c.is_alphanumeric() || *c == '_') && !matches!(c, 'b' | 'c'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_strings_are_not_code() {
        let source = Source::new(
            "let a = \"todo!\"; // unsafe\n/* unsafe /* x */ y */ let b = r#\"un\"safe\"#; let c = '\"'; d::<'a>(); real".to_owned(),
        );
        assert_eq!(source.code().lines().count(), 2);
        for word in ["todo", "unsafe", "x", "y", "safe"] {
            assert_eq!(lines_with_word(source.code(), word).count(), 0, "{word} in {}", source.code());
        }
        assert_eq!(lines_with_word(source.code(), "real").collect::<Vec<_>>(), [2]);
        assert_eq!(lines_with_word(source.comments(), "unsafe").collect::<Vec<_>>(), [1, 2]);
        assert_eq!(lines_with_word(source.comments(), "real").count(), 0);
    }

    #[test]
    fn escapes_do_not_end_a_literal_early() {
        let source = Source::new(r#"f('\'', "\"", '\u{1F600}', b"\\"); unsafe"#.to_owned());
        assert_eq!(lines_with_word(source.code(), "unsafe").count(), 1);
        assert!(!source.code().contains('\\') || source.code().contains(r"'\''"));
    }

    #[test]
    fn whole_words_only() {
        assert_eq!(lines_with_word("unsafe_code\nnot_unsafe\nan unsafe {", "unsafe").collect::<Vec<_>>(), [3]);
        assert_eq!(lines_with_word("dbg!(x)\nmy_dbg!(x)", "dbg!").collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn test_modules_are_blanked_and_what_follows_is_kept() {
        let source = Source::new("a();\n#[cfg(test)]\nmod tests {\n fn f() { b(); }\n}\nc();\n#[cfg(test)]\nmod more;\nd();".to_owned());
        let code = source.code_outside_tests();
        assert!(code.contains("a();") && code.contains("c();") && code.contains("d();"));
        assert!(!code.contains("b();") && !code.contains("more"));
        assert_eq!(code.lines().count(), 9);
    }
}
