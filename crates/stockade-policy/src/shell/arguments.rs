//! What a program's words mean: subcommand, flags, operands, and options that do more than others.

use super::tables::{self, Effect, Known};
use super::word::Word;
use super::{Call, Refusal};

/// A command that an option runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Nested {
    /// Text that a shell, or the program itself, splits and runs.
    Script(String),
    /// Words that are run as they are.
    Words(Vec<Word>),
}

/// Reads the words after a program's name into its call; gives back what its options run.
pub(super) fn read(call: &mut Call, base: &str, words: &[Word]) -> Result<Vec<Nested>, Refusal> {
    call.count = words.len();
    let mut reader = Reader { call, base, words, subcommand_at: None, has_subcommands: false, is_hidden: false, nested: Vec::new() };
    reader.find_subcommand();
    reader.read()?;
    let Reader { nested, is_hidden, .. } = reader;
    if is_hidden {
        call.opaque = true;
        call.subcommand.clear();
    }
    Ok(nested)
}

struct Reader<'a> {
    call: &'a mut Call,
    base: &'a str,
    words: &'a [Word],
    subcommand_at: Option<usize>,
    has_subcommands: bool,
    is_hidden: bool,
    nested: Vec<Nested>,
}

/// An option as it was written.
struct Written<'a> {
    name: &'a str,
    attached: Option<Word>,
}

impl Reader<'_> {
    /// Walks over global options, which come from tables. One that is not there hides the subcommand.
    fn find_subcommand(&mut self) {
        let Some(globals) = tables::subcommands(self.base) else { return };
        self.has_subcommands = true;
        let is_toolchain = |word: &Word| word.as_literal().is_some_and(|text| text.starts_with('+'));
        let knows_toolchains = globals.iter().any(|(option, _)| *option == "+");
        let mut at = usize::from(knows_toolchains && self.words.first().is_some_and(is_toolchain));
        while let Some(word) = self.words.get(at) {
            let name = match word.as_literal() {
                Some(text) if !text.starts_with('-') => {
                    text.clone_into(&mut self.call.subcommand);
                    self.subcommand_at = Some(at);
                    return;
                }
                Some(text) => text,
                // `--git-dir=$x` is still one word of a known option.
                None if !word.may_split() && word.beginning().starts_with("--") && word.beginning().contains('=') => word.beginning(),
                None => {
                    self.is_hidden = true;
                    return;
                }
            };
            let (name, is_attached) = name.split_once('=').map_or((name, false), |(name, _)| (name, true));
            match globals.iter().find(|(option, _)| *option == name) {
                Some((_, true)) if !is_attached => {
                    if self.words.get(at + 1).is_some_and(Word::may_split) {
                        self.is_hidden = true;
                        return;
                    }
                    at += 2;
                }
                Some(_) => at += 1,
                None => {
                    self.is_hidden = true;
                    return;
                }
            }
        }
    }

    fn read(&mut self) -> Result<(), Refusal> {
        let mut only_operands = false;
        let mut at = 0;
        while let Some(word) = self.words.get(at) {
            let here = at;
            at += 1;
            if Some(here) == self.subcommand_at {
                continue;
            }
            let literal = word.as_literal();
            if literal.is_none() {
                self.call.opaque = true;
            }
            let beginning = word.beginning();
            if literal == Some("--") && !only_operands {
                only_operands = true;
                continue;
            }
            if !only_operands && beginning.len() > 1 && beginning.starts_with('-') {
                at = self.option(word, here)?.max(at);
                continue;
            }
            if self.assignment_like(word) {
                continue;
            }
            if let Some(text) = literal {
                self.call.operands.insert(text.to_owned());
            }
        }
        Ok(())
    }

    /// Records an option and does what the table says; gives the place to go on at.
    fn option(&mut self, word: &Word, here: usize) -> Result<usize, Refusal> {
        let text = word.beginning();
        let is_long = text.starts_with("--");
        let name = if is_long { text.split_once('=').map_or(text, |(name, _)| name) } else { text };
        if word.as_literal().is_some() || text.contains('=') {
            self.call.flags.insert(name.to_owned());
        }
        if !is_long {
            let letters = text.chars().skip(1).filter(char::is_ascii_alphanumeric);
            self.call.flags.extend(letters.map(|c| format!("-{c}")));
        }
        let before_subcommand = self.subcommand_at.is_none_or(|at| here < at);
        let mut next = here + 1;
        // An option that exists is no abbreviation of a longer one.
        let is_whole = tables::options(self.base).iter().any(|known| known.option == name);
        for known in tables::options(self.base).iter().filter(|known| !is_whole || !is_longer(known.option, name)) {
            let is_meant = known.subcommand.is_empty() || known.subcommand == self.call.subcommand;
            let is_short = known.option.len() == 2;
            let is_placed = !(is_short && known.subcommand.is_empty() && self.has_subcommands) || before_subcommand;
            if is_meant
                && is_placed
                && let Some(written) = matched(known.option, word)
            {
                next = next.max(self.apply(known, &written, here)?);
            }
        }
        Ok(next)
    }

    /// Does what one option does; gives the place to go on at.
    fn apply(&mut self, known: &Known, written: &Written<'_>, here: usize) -> Result<usize, Refusal> {
        let next = self.words.get(here + 1).cloned();
        let value = match known.effect {
            Effect::RunsAttached => written.attached.clone(),
            Effect::Runs | Effect::Writes | Effect::Reads | Effect::Setting => written.attached.clone().or(next),
            Effect::Hides | Effect::Calls => None,
        };
        match known.effect {
            Effect::Runs | Effect::RunsAttached => {
                let Some(value) = value else {
                    self.call.opaque = true;
                    return Ok(here + 1);
                };
                let Some(text) = value.as_literal() else {
                    return Err(Refusal::HiddenProgram(format!("`{}` of `{}`", written.name, self.base)));
                };
                // One option has other actions too.
                if known.option != "--checkpoint-action" {
                    self.nested.push(Nested::Script(text.to_owned()));
                } else if let Some(text) = text.strip_prefix("exec=") {
                    self.nested.push(Nested::Script(text.to_owned()));
                }
            }
            Effect::Writes | Effect::Reads => match value.as_ref().and_then(Word::as_literal) {
                Some(file) if known.effect == Effect::Writes => {
                    self.call.writes.insert(file.to_owned());
                }
                Some(file) => {
                    self.call.reads.insert(file.to_owned());
                }
                None => self.call.opaque = true,
            },
            Effect::Setting => {
                let key = value.as_ref().map(Word::beginning).and_then(|text| text.split_once('=')).map(|(key, _)| key);
                if !key.is_some_and(tables::is_harmless_setting) {
                    self.is_hidden = true;
                }
            }
            Effect::Hides => self.is_hidden = true,
            Effect::Calls => return self.called(here + 1),
        }
        Ok(here + 1)
    }

    /// The words up to `;` or `+`; `{}` in them stands for what was found.
    fn called(&mut self, from: usize) -> Result<usize, Refusal> {
        let mut words = Vec::new();
        let mut at = from;
        while let Some(word) = self.words.get(at) {
            at += 1;
            let ends = word.as_literal() == Some(";") || (word.as_literal() == Some("+") && at >= 2 && is_found(self.words.get(at - 2)));
            if ends {
                break;
            }
            if word.may_split() {
                return Err(Refusal::HiddenProgram(word.shown()));
            }
            words.push(word.replaced("{}"));
        }
        self.nested.push(Nested::Words(words));
        Ok(at)
    }

    /// `of=FILE` and the like.
    fn assignment_like(&mut self, word: &Word) -> bool {
        for known in tables::options(self.base) {
            let Some(file) = known.option.strip_suffix('*').and_then(|prefix| word.beginning().strip_prefix(prefix)) else { continue };
            match (word.as_literal(), known.effect) {
                (Some(_), Effect::Writes) => {
                    self.call.writes.insert(file.to_owned());
                }
                (Some(_), Effect::Reads) => {
                    self.call.reads.insert(file.to_owned());
                }
                _ => self.call.opaque = true,
            }
            return true;
        }
        false
    }
}

fn is_longer(option: &str, name: &str) -> bool {
    option.len() > name.len() && option.starts_with("--")
}

fn is_found(word: Option<&Word>) -> bool {
    word.and_then(Word::as_literal) == Some("{}")
}

/// Whether a word is the option of a table: as it stands, with a value attached, in a cluster, or shortened as GNU programs allow.
fn matched<'a>(option: &'a str, word: &Word) -> Option<Written<'a>> {
    let text = word.beginning();
    let rest_of = |rest: &str| {
        if word.as_literal().is_some() { (!rest.is_empty()).then(|| Word::literal(rest)) } else { Some(Word::unknown()) }
    };
    if option.starts_with("--") {
        let (name, rest) = text.split_once('=').map_or((text, None), |(name, rest)| (name, Some(rest)));
        let is_it = name == option || (name.len() >= 4 && name.starts_with("--") && option.starts_with(name));
        let attached = rest.map(|rest| if word.as_literal().is_some() { Word::literal(rest) } else { Word::unknown() });
        return is_it.then_some(Written { name: option, attached });
    }
    if text.starts_with("--") {
        return None;
    }
    if option.len() > 2 {
        let rest = text.strip_prefix(option)?;
        let rest = rest.strip_prefix('=').unwrap_or(rest);
        return (text == option || text.contains('=')).then(|| Written { name: option, attached: rest_of(rest) });
    }
    let (_, rest) = text.strip_prefix('-')?.split_once(option.strip_prefix('-')?)?;
    Some(Written { name: option, attached: rest_of(rest) })
}
