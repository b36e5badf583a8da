//! As much of Starlark as files of plain calls need: names, strings, lists and keyword arguments.
//!
//! Nothing is evaluated. A statement that is anything else is given back as it stands, so that somebody can be told.

use std::iter::Peekable;
use std::str::CharIndices;

/// Lists within lists at most.
const MAX_DEPTH: usize = 8;
/// Statements of one file at most; what follows is one unknown statement.
const MAX_STATEMENTS: usize = 10_000;

/// One statement at the top of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Statement<'a> {
    /// `name(…)`
    Call(Call<'a>),
    /// Anything else.
    Unknown {
        /// Where it begins, from 1.
        line: usize,
        /// All of it.
        text: &'a str,
    },
}

/// A call with plain arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Call<'a> {
    pub(super) line: usize,
    pub(super) text: &'a str,
    pub(super) name: &'a str,
    arguments: Vec<(Option<String>, Value)>,
}

impl Call<'_> {
    /// An argument by its name, or by its place where it has none.
    pub(super) fn argument(&self, name: &str, place: usize) -> Option<&Value> {
        let named = self.arguments.iter().find(|(known, _)| known.as_deref() == Some(name));
        let placed = || self.arguments.get(place).filter(|(known, _)| known.is_none());
        named.or_else(placed).map(|(_, value)| value)
    }
}

/// A value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    /// A string.
    Text(String),
    /// A list or a tuple.
    List(Vec<Value>),
    /// A name or a number: nothing that a rule is made of.
    Other,
}

/// Cuts a file into its statements.
pub(super) fn statements(text: &str) -> Vec<Statement<'_>> {
    let mut found = Vec::new();
    let mut rest = Cut { text, at: 0, line: 1 };
    while let Some((line, text)) = rest.piece() {
        if found.len() == MAX_STATEMENTS {
            found.push(Statement::Unknown { line, text });
            break;
        }
        found.push(call(line, text).map_or(Statement::Unknown { line, text }, Statement::Call));
    }
    found
}

/// Finds where statements end: at a line's end outside of brackets and strings, unless the next line is indented.
struct Cut<'a> {
    text: &'a str,
    at: usize,
    line: usize,
}

impl<'a> Cut<'a> {
    fn piece(&mut self) -> Option<(usize, &'a str)> {
        loop {
            let (start, end) = (self.at, self.end_of_statement());
            if start == end {
                return None;
            }
            let piece = self.text.get(start..end)?;
            let first_line = self.line;
            self.at = end;
            self.line += piece.matches('\n').count();
            let above: Vec<&str> = piece.split_inclusive('\n').take_while(|line| is_blank(line)).collect();
            let text = piece.get(above.iter().map(|line| line.len()).sum()..)?.trim();
            if !text.is_empty() {
                return Some((first_line + above.len(), text));
            }
        }
    }

    fn end_of_statement(&self) -> usize {
        let mut characters = self.text.get(self.at..).unwrap_or_default().char_indices().peekable();
        let mut depth = 0_usize;
        while let Some((offset, c)) = characters.next() {
            match c {
                '#' => {
                    while characters.peek().is_some_and(|(_, c)| *c != '\n') {
                        characters.next();
                    }
                }
                '"' | '\'' => {
                    string(&mut characters, c);
                }
                '(' | '[' | '{' => depth += 1,
                ')' | ']' | '}' => depth = depth.saturating_sub(1),
                '\n' if depth == 0 && !characters.peek().is_some_and(|(_, next)| matches!(next, ' ' | '\t')) => {
                    return self.at + offset + 1;
                }
                _ => {}
            }
        }
        self.text.len()
    }
}

/// A line of nothing, or of a comment.
fn is_blank(line: &str) -> bool {
    line.trim_start().is_empty() || line.trim_start().starts_with('#')
}

/// Reads `name(arguments)` and nothing after it.
fn call(line: usize, text: &str) -> Option<Call<'_>> {
    let (name, after) = text.split_once('(')?;
    let name = name.trim();
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return None;
    }
    let mut reader = Reader { characters: after.char_indices().peekable() };
    let arguments = reader.arguments()?;
    reader.skip();
    reader.characters.peek().is_none().then_some(Call { line, text, name, arguments })
}

struct Reader<'a> {
    characters: Peekable<CharIndices<'a>>,
}

impl Reader<'_> {
    /// Everything up to the closing parenthesis.
    fn arguments(&mut self) -> Option<Vec<(Option<String>, Value)>> {
        let mut arguments = Vec::new();
        loop {
            self.skip();
            if self.take(')') {
                return Some(arguments);
            }
            let (name, value) = self.argument()?;
            arguments.push((name, value));
            self.skip();
            if !self.take(',') {
                return self.take(')').then_some(arguments);
            }
        }
    }

    fn argument(&mut self) -> Option<(Option<String>, Value)> {
        let Some(word) = self.word() else { return Some((None, self.value(0)?)) };
        self.skip();
        if self.take('=') {
            return Some((Some(word), self.value(0)?));
        }
        // `r"…"` and other prefixes of strings are not read.
        (!self.characters.peek().is_some_and(|(_, c)| matches!(c, '"' | '\''))).then_some((None, Value::Other))
    }

    fn value(&mut self, depth: usize) -> Option<Value> {
        self.skip();
        let (_, c) = *self.characters.peek()?;
        match c {
            '"' | '\'' => {
                self.characters.next();
                string(&mut self.characters, c).map(Value::Text)
            }
            '[' | '(' if depth < MAX_DEPTH => {
                self.characters.next();
                let close = if c == '[' { ']' } else { ')' };
                let mut items = Vec::new();
                loop {
                    self.skip();
                    if self.take(close) {
                        return Some(Value::List(items));
                    }
                    items.push(self.value(depth + 1)?);
                    self.skip();
                    if !self.take(',') {
                        return self.take(close).then_some(Value::List(items));
                    }
                }
            }
            _ => self.word().map(|_| Value::Other),
        }
    }

    /// A name or a number.
    fn word(&mut self) -> Option<String> {
        let mut word = String::new();
        while let Some((_, c)) = self.characters.peek().filter(|(_, c)| c.is_ascii_alphanumeric() || *c == '_') {
            word.push(*c);
            self.characters.next();
        }
        (!word.is_empty()).then_some(word)
    }

    /// Over spaces, lines and comments.
    fn skip(&mut self) {
        while let Some((_, c)) = self.characters.peek() {
            if *c == '#' {
                while self.characters.peek().is_some_and(|(_, c)| *c != '\n') {
                    self.characters.next();
                }
            } else if c.is_whitespace() {
                self.characters.next();
            } else {
                return;
            }
        }
    }

    fn take(&mut self, wanted: char) -> bool {
        self.characters.next_if(|(_, c)| *c == wanted).is_some()
    }
}

/// A string whose opening quote was taken; `None` where it does not end, or has an escape that is not known here.
fn string(characters: &mut Peekable<CharIndices<'_>>, quote: char) -> Option<String> {
    let is_quote = |(_, c): &(usize, char)| *c == quote;
    if characters.next_if(is_quote).is_some() {
        if characters.next_if(is_quote).is_none() {
            return Some(String::new());
        }
        return long_string(characters, quote);
    }
    let mut text = String::new();
    let mut is_known = true;
    while let Some((_, c)) = characters.next() {
        match c {
            '\n' => return None,
            '\\' => match escaped(characters.next()?.1) {
                Some(c) => text.push(c),
                None => is_known = false,
            },
            c if c == quote => return is_known.then_some(text),
            c => text.push(c),
        }
    }
    None
}

/// A string between three quotes.
fn long_string(characters: &mut Peekable<CharIndices<'_>>, quote: char) -> Option<String> {
    let mut text = String::new();
    let mut quotes = 0;
    let mut is_known = true;
    while let Some((_, c)) = characters.next() {
        quotes = if c == quote { quotes + 1 } else { 0 };
        match c {
            '\\' => match escaped(characters.next()?.1) {
                Some(c) => text.push(c),
                None => is_known = false,
            },
            c => text.push(c),
        }
        if quotes == 3 {
            text.truncate(text.len() - 3 * quote.len_utf8());
            return is_known.then_some(text);
        }
    }
    None
}

fn escaped(c: char) -> Option<char> {
    match c {
        'n' => Some('\n'),
        't' => Some('\t'),
        'r' => Some('\r'),
        '\\' | '"' | '\'' => Some(c),
        _ => None,
    }
}
