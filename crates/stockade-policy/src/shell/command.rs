//! One simple command: which program, what its words mean, and what it runs in turn.

use super::arguments::{self, Nested};
use super::assignment;
use super::tables::{self, Builtin};
use super::walk::Walk;
use super::word::Word;
use super::wrapper::unwrap;
use super::{Call, Needs, Refusal, Standing};

/// Shells: what they are given with `-c` is a script.
const SHELLS: [&str; 10] = ["sh", "bash", "dash", "ash", "ksh", "mksh", "zsh", "rbash", "yash", "fish"];

/// Who starts a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Starter {
    /// Bash itself: functions and builtins come first.
    Shell,
    /// `command` and `builtin`: builtins, but no functions.
    PastFunctions,
    /// A program: there are only programs.
    Program,
}

/// Files that redirects name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Redirects {
    pub(super) reads: Vec<String>,
    pub(super) writes: Vec<String>,
    pub(super) opaque: bool,
}

impl Redirects {
    pub(super) fn is_empty(&self) -> bool {
        self.reads.is_empty() && self.writes.is_empty() && !self.opaque
    }

    fn put_into(self, call: &mut Call) {
        call.reads.extend(self.reads);
        call.writes.extend(self.writes);
        call.opaque |= self.opaque;
    }
}

impl Walk<'_> {
    /// Files that are opened where nothing runs.
    pub(super) fn bare_redirects(&mut self, redirects: Redirects) -> Result<(), Refusal> {
        if redirects.is_empty() {
            return Ok(());
        }
        let mut call = Call { needs: Needs::Nothing, ..Call::of(":") };
        redirects.put_into(&mut call);
        self.push(call, None)
    }

    /// One command and everything that it runs in turn.
    pub(super) fn command(&mut self, words: &[Word], redirects: Redirects, starter: Starter) -> Result<(), Refusal> {
        self.enter(|walk| walk.command_here(words, redirects, starter))
    }

    fn command_here(&mut self, words: &[Word], redirects: Redirects, starter: Starter) -> Result<(), Refusal> {
        let Some((first, rest)) = words.split_first() else { return self.bare_redirects(redirects) };
        let name = first.as_literal().ok_or_else(|| Refusal::HiddenProgram(first.shown()))?;
        if name.is_empty() {
            return Err(Refusal::Unparsable("a program's name is empty".to_owned()));
        }
        let base = name.rsplit('/').next().unwrap_or(name);
        let builtin = if starter == Starter::Program { None } else { tables::builtin(name) };
        let mut relative = None;
        let mut call = if builtin.is_some() {
            Call::of(name)
        } else {
            let program = if name.contains('/') {
                relative = (!name.starts_with('/')).then(|| name.to_owned());
                self.programs.at(name, Standing::Start)
            } else {
                self.programs.named(name)
            };
            Call { path: program.path, sha256: program.sha256, ..Call::of(program.name) }
        };
        let mut rest = rest;
        if base == "[" {
            call.program = if name == "[" { "test".to_owned() } else { call.program };
            if let Some((last, before)) = rest.split_last()
                && last.as_literal() == Some("]")
            {
                rest = before;
            }
        }
        let nested = arguments::read(&mut call, base, rest)?;
        redirects.put_into(&mut call);
        let place = self.calls.len();
        self.push(call, relative)?;
        if starter == Starter::Shell && builtin.is_none() {
            self.may_be_function(place);
        }
        for nested in nested {
            match nested {
                Nested::Script(text) => self.nested_script(&text)?,
                Nested::Words(words) => self.command(&words, Redirects::default(), Starter::Program)?,
            }
        }
        if let Some(kind) = builtin {
            self.builtin(name, kind, rest, place)?;
        }
        if SHELLS.contains(&base) {
            self.shell(base, rest, place)?;
        }
        self.wrapped(base, rest, starter)
    }

    fn wrapped(&mut self, base: &str, rest: &[Word], starter: Starter) -> Result<(), Refusal> {
        let Some(wrapper) = tables::wrapper(base) else { return Ok(()) };
        let inner = match base {
            // Outside a shell these are no builtins, and nothing that one can run.
            "command" | "builtin" | "exec" if starter == Starter::Program => Starter::Program,
            "command" | "builtin" => Starter::PastFunctions,
            _ => Starter::Program,
        };
        let wrapped = unwrap(base, wrapper, rest)?;
        self.moves |= wrapped.moves;
        for script in &wrapped.scripts {
            if base == "env" {
                // `env -S` splits words but expands nothing that the grammar would not see.
                self.split_string(script, &wrapped.words)?;
            } else {
                self.nested_script(script)?;
            }
        }
        if wrapped.words.is_empty() || (base == "env" && !wrapped.scripts.is_empty()) {
            return Ok(());
        }
        self.command(&wrapped.words, Redirects::default(), inner)
    }

    /// The words of `env -S`, with those that follow.
    fn split_string(&mut self, text: &str, after: &[Word]) -> Result<(), Refusal> {
        if text.chars().any(|c| matches!(c, '\\' | '$' | '\'' | '"' | '#')) {
            return Err(Refusal::HiddenProgram("`-S` of `env`".to_owned()));
        }
        let mut words = vec![Word::literal("env")];
        words.extend(text.split_whitespace().map(Word::literal));
        words.extend(after.iter().cloned());
        self.command(&words, Redirects::default(), Starter::Program)
    }

    fn shell(&mut self, base: &str, words: &[Word], place: usize) -> Result<(), Refusal> {
        let hidden = |word: &Word| Refusal::HiddenProgram(format!("{} of `{base}`", word.shown()));
        let mut runs_text = false;
        let mut at = 0;
        while let Some(word) = words.get(at) {
            let text = word.beginning();
            if !(text.len() > 1 && (text.starts_with('-') || text.starts_with('+'))) {
                break;
            }
            let text = word.as_literal().ok_or_else(|| hidden(word))?;
            at += 1;
            match text {
                "--" => break,
                "--rcfile" | "--init-file" => at += 1,
                text if text.starts_with("--") => {}
                text => {
                    runs_text |= text.starts_with('-') && text.contains('c');
                    at += text.chars().filter(|c| matches!(c, 'o' | 'O')).count();
                }
            }
        }
        let script = words.get(at);
        if !runs_text {
            // A file or the input is the script; its text is not here.
            self.hide(place);
            return Ok(());
        }
        match script {
            Some(word) => self.nested_script(word.as_literal().ok_or_else(|| hidden(word))?),
            None => Ok(()),
        }
    }

    fn builtin(&mut self, name: &str, kind: Builtin, words: &[Word], place: usize) -> Result<(), Refusal> {
        let literals = || words.iter().filter_map(Word::as_literal);
        match kind {
            Builtin::Free => self.free(place),
            Builtin::Plain if name == "set" => refuse_keyword_option(words)?,
            Builtin::Plain => self.moves |= matches!(name, "cd" | "pushd" | "popd"),
            Builtin::Evaluates => {
                literals().try_for_each(assignment::check_text)?;
                for (option, value) in words.iter().zip(words.iter().skip(1)) {
                    if matches!((name, option.as_literal()), ("printf", Some("-v")) | ("wait", Some("-p"))) {
                        assignment::check_declaration(value)?;
                    }
                }
                if name == "let" {
                    words.iter().try_for_each(assignment::check_declaration)?;
                }
            }
            Builtin::Declares => {
                let makes_reference = |word: &Word| word.beginning().starts_with('-') && word.beginning().contains('n') && name != "export";
                if words.iter().any(makes_reference) {
                    let reason = "another name for a variable hides which one is set".to_owned();
                    return Err(Refusal::Variable { name: format!("{name} -n"), reason });
                }
                words.iter().try_for_each(assignment::check_declaration)?;
            }
            Builtin::Names => words.iter().try_for_each(assignment::check_declaration)?,
            Builtin::Runs if name == "eval" => {
                let texts: Option<Vec<&str>> = words.iter().map(Word::as_literal).collect();
                let text = texts.ok_or_else(|| Refusal::HiddenProgram("a word of `eval`".to_owned()))?.join(" ");
                self.nested_script(&text)?;
            }
            Builtin::Runs => self.trap(words)?,
            Builtin::RunsOption => self.named_commands(name, words)?,
            Builtin::Shadows => refuse_shadows(name, words)?,
            Builtin::Hides => self.hide(place),
        }
        Ok(())
    }

    fn trap(&mut self, words: &[Word]) -> Result<(), Refusal> {
        let action = words.iter().find(|word| !matches!(word.as_literal(), Some("--" | "-l" | "-p" | "-P")));
        match action.map(|word| (word, word.as_literal())) {
            None | Some((_, Some("" | "-"))) => Ok(()),
            Some((_, Some(text))) => self.nested_script(text),
            Some((word, None)) => Err(Refusal::HiddenProgram(format!("{} of `trap`", word.shown()))),
        }
    }

    fn named_commands(&mut self, name: &str, words: &[Word]) -> Result<(), Refusal> {
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let text = word.beginning();
            if text.starts_with('-')
                && let Some((_, attached)) = text.split_once(['C', 'F'])
            {
                let value = if attached.is_empty() { words.next().cloned() } else { Some(Word::literal(attached)) };
                let value = value.unwrap_or_else(Word::unknown);
                let script = value.as_literal().ok_or_else(|| Refusal::HiddenProgram(format!("{} of `{name}`", value.shown())))?;
                self.nested_script(script)?;
            } else {
                assignment::check_declaration(word)?;
            }
        }
        Ok(())
    }
}

/// `set -k` makes assignments of arguments.
fn refuse_keyword_option(words: &[Word]) -> Result<(), Refusal> {
    for word in words.iter().filter_map(Word::as_literal).take_while(|text| *text != "--") {
        let is_cluster = word.starts_with('-') && !word.starts_with("--") && word.contains('k');
        if is_cluster || word == "keyword" {
            return Err(Refusal::Variable { name: "set -k".to_owned(), reason: "it turns arguments into assignments".to_owned() });
        }
    }
    Ok(())
}

fn refuse_shadows(name: &str, words: &[Word]) -> Result<(), Refusal> {
    for word in words {
        let text = word.beginning();
        let shadows = match name {
            "hash" => text.starts_with('-') && text.contains('p'),
            _ => text.contains('='),
        };
        if shadows || word.as_literal().is_none() {
            let meant = text.split_once('=').map_or(name, |(meant, _)| meant);
            return Err(Refusal::Shadow(meant.to_owned()));
        }
    }
    Ok(())
}
