//! Programs that run the command they are given: where their own words end.

use super::Refusal;
use super::assignment;
use super::tables::{Wrapper, WrapperKind};
use super::word::Word;

/// What a wrapper runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Wrapped {
    /// Words that are run as a command; empty where there is none.
    pub(super) words: Vec<Word>,
    /// Texts that a shell runs.
    pub(super) scripts: Vec<String>,
    /// The directory may be another one inside.
    pub(super) moves: bool,
}

/// Options of wrappers that change the directory.
const MOVES: [&str; 6] = ["-C", "--chdir", "-D", "--wd", "--working-directory", "--root"];

/// Reads a wrapper's words. An option that the table does not have refuses: nobody knows where the command begins.
pub(super) fn unwrap(name: &str, wrapper: &Wrapper, words: &[Word]) -> Result<Wrapped, Refusal> {
    let mut reader = Reader { name, wrapper, words, at: 0, marks: Vec::new(), only_looks: false, wrapped: Wrapped::default() };
    reader.options()?;
    reader.operands()?;
    if wrapper.assignments {
        reader.assignments()?;
    }
    reader.rest()
}

struct Reader<'a> {
    name: &'a str,
    wrapper: &'a Wrapper,
    words: &'a [Word],
    at: usize,
    /// What stands for words of the input.
    marks: Vec<String>,
    /// `command -v` runs nothing.
    only_looks: bool,
    wrapped: Wrapped,
}

impl Reader<'_> {
    fn options(&mut self) -> Result<(), Refusal> {
        while let Some(word) = self.words.get(self.at) {
            let text = word.beginning();
            if word.as_literal() == Some("--") {
                self.at += 1;
                return Ok(());
            }
            let is_exact = word.as_literal().is_some_and(|text| self.wrapper.flags.contains(&text));
            if is_exact {
                self.only_looks |= self.name == "command" && text != "-p";
                self.at += 1;
            } else if text.starts_with("--") {
                self.long(word)?;
            } else if text.len() > 1 && text.starts_with('-') {
                self.cluster(word)?;
            } else {
                return Ok(());
            }
        }
        Ok(())
    }

    fn long(&mut self, word: &Word) -> Result<(), Refusal> {
        let text = word.beginning();
        let (name, attached) = text.split_once('=').map_or((text, None), |(name, rest)| (name, Some(rest)));
        if word.as_literal().is_none() && attached.is_none() {
            return Err(self.unknown(word));
        }
        let is_it = |option: &&&str| **option == name || (name.len() > 3 && option.starts_with(name));
        let wrapper = self.wrapper;
        let all = || wrapper.values.iter().chain(&wrapper.flags).chain(&wrapper.texts);
        let exact = all().find(|option| **option == name);
        let Some(option) = exact.or_else(|| all().find(is_it)) else { return Err(self.unknown(word)) };
        self.at += 1;
        if wrapper.flags.contains(option) {
            return Ok(());
        }
        let value = match attached {
            Some(rest) if word.as_literal().is_some() => Word::literal(rest),
            Some(_) => Word::unknown(),
            None => self.next()?,
        };
        self.value(option, &value)
    }

    fn cluster(&mut self, word: &Word) -> Result<(), Refusal> {
        let text = word.beginning();
        let digits = text.strip_prefix('-').unwrap_or_default();
        if self.wrapper.numbers && word.as_literal().is_some() && digits.chars().all(|c| c.is_ascii_digit()) {
            self.at += 1;
            return Ok(());
        }
        self.at += 1;
        let mut rest = digits;
        let mut chars = rest.chars();
        while let Some(letter) = chars.next() {
            rest = chars.as_str();
            let option = format!("-{letter}");
            if self.wrapper.flags.contains(&option.as_str()) {
                self.only_looks |= self.name == "command" && letter != 'p';
                continue;
            }
            let known = self.wrapper.values.iter().chain(&self.wrapper.texts).find(|known| **known == option);
            let Some(known) = known else { return Err(self.unknown(word)) };
            let value = match (rest.is_empty(), word.as_literal().is_some()) {
                (true, true) => self.next()?,
                (false, true) => Word::literal(rest),
                (_, false) => Word::unknown(),
            };
            return self.value(known, &value);
        }
        if word.as_literal().is_some() { Ok(()) } else { Err(self.unknown(word)) }
    }

    fn next(&mut self) -> Result<Word, Refusal> {
        let word = self.words.get(self.at).cloned().unwrap_or_else(|| Word::literal(""));
        self.at += 1;
        if word.may_split() { Err(self.unknown(&word)) } else { Ok(word) }
    }

    fn value(&mut self, option: &str, value: &Word) -> Result<(), Refusal> {
        self.wrapped.moves |= MOVES.contains(&option);
        if self.wrapper.input && option == "-I" {
            self.marks.push(value.as_literal().ok_or_else(|| self.unknown(value))?.to_owned());
        }
        if self.wrapper.texts.contains(&option) {
            let text = value.as_literal().ok_or_else(|| self.unknown(value))?;
            self.wrapped.scripts.push(text.to_owned());
        }
        Ok(())
    }

    fn operands(&mut self) -> Result<(), Refusal> {
        for _ in 0..self.wrapper.operands {
            match self.words.get(self.at) {
                Some(word) if word.may_split() => return Err(self.unknown(word)),
                Some(_) => self.at += 1,
                None => return Ok(()),
            }
        }
        // Some take options after the operand as well.
        if self.wrapper.operands > 0 && self.words.get(self.at).is_some_and(|word| word.beginning().starts_with('-')) {
            return self.options();
        }
        Ok(())
    }

    fn assignments(&mut self) -> Result<(), Refusal> {
        while let Some(word) = self.words.get(self.at) {
            match word.beginning().split_once('=') {
                Some((name, _)) if !name.contains('/') => assignment::check(name)?,
                _ => return Ok(()),
            }
            if word.may_split() {
                return Err(self.unknown(word));
            }
            self.at += 1;
        }
        Ok(())
    }

    fn rest(mut self) -> Result<Wrapped, Refusal> {
        let rest = self.words.get(self.at..).unwrap_or_default();
        if self.only_looks {
            return Ok(self.wrapped);
        }
        match self.wrapper.kind {
            WrapperKind::Nothing => {}
            WrapperKind::Text => {
                let texts: Option<Vec<&str>> = rest.iter().map(Word::as_literal).collect();
                let text = texts.ok_or_else(|| self.unknown(&Word::unknown()))?.join(" ");
                if !text.is_empty() {
                    self.wrapped.scripts.push(text);
                }
            }
            WrapperKind::Command => {
                let marks = &self.marks;
                self.wrapped.words = rest.iter().map(|word| marks.iter().fold(word.clone(), |word, mark| word.replaced(mark))).collect();
                if let (true, Some(default)) = (self.wrapped.words.is_empty(), self.wrapper.default) {
                    self.wrapped.words.push(Word::literal(default));
                }
                if self.wrapper.input {
                    self.wrapped.words.push(Word::unknown_many());
                }
            }
        }
        Ok(self.wrapped)
    }

    fn unknown(&self, word: &Word) -> Refusal {
        Refusal::HiddenProgram(format!("{} of `{}`", word.shown(), self.name))
    }
}
