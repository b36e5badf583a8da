//! From a syntax tree to calls: every place in the grammar where a command can hide is visited here or below.
//!
//! `walk` visits commands, `expand` words, `command` decides what a simple command is.

use brush_parser::ast::{
    self, AndOr, AndOrList, AssignmentName, AssignmentValue, CommandPrefixOrSuffixItem, CompoundCommand, CompoundList, ExtendedTestExpr,
    IoFileRedirectKind, IoFileRedirectTarget, IoRedirect, RedirectList,
};

use super::bounds::{self, MAX_CALLS, MAX_LEVELS, MAX_PARSED};
use super::command::{Redirects, Starter};
use super::word::Word;
use super::{Call, Needs, Programs, Refusal, Script, Standing, assignment, grammar, tables};

/// Names under which bash makes connections.
const CONNECTIONS: [&str; 2] = ["/dev/tcp/", "/dev/udp/"];

/// Reads a whole script.
pub(super) fn script(text: &str, programs: &dyn Programs) -> Result<Script, Refusal> {
    let mut walk = Walk::new(programs);
    walk.nested_script(text)?;
    Ok(walk.finish())
}

/// Reads an argument list.
pub(super) fn argv(argv: &[Option<&str>], programs: &dyn Programs) -> Result<Script, Refusal> {
    let mut walk = Walk::new(programs);
    let bytes: usize = argv.iter().flatten().map(|word| word.len()).sum();
    if bytes > MAX_PARSED {
        return Err(Refusal::Limit("too many bytes"));
    }
    let words: Vec<Word> = argv.iter().map(|word| word.map_or_else(Word::unknown, Word::literal)).collect();
    walk.command(&words, Redirects::default(), Starter::Program)?;
    Ok(walk.finish())
}

/// What is known so far.
pub(super) struct Walk<'a> {
    pub(super) programs: &'a dyn Programs,
    pub(super) calls: Vec<Call>,
    /// Some command changes the directory.
    pub(super) moves: bool,
    /// Calls of bash itself, which may turn out to be functions.
    by_shell: Vec<usize>,
    /// Calls that were written as relative paths.
    relative: Vec<(usize, String)>,
    functions: Vec<String>,
    /// The script that is being read.
    text: String,
    level: usize,
    parsed: usize,
}

impl<'a> Walk<'a> {
    fn new(programs: &'a dyn Programs) -> Self {
        Self {
            programs,
            calls: Vec::new(),
            moves: false,
            by_shell: Vec::new(),
            relative: Vec::new(),
            functions: Vec::new(),
            text: String::new(),
            level: 0,
            parsed: 0,
        }
    }

    /// Settles what only the whole script tells: which names are functions, and where relative paths begin.
    fn finish(mut self) -> Script {
        for place in &self.by_shell {
            if let Some(call) = self.calls.get_mut(*place)
                && self.functions.contains(&call.program)
            {
                // What it runs was read where it was defined.
                let (reads, writes) = (std::mem::take(&mut call.reads), std::mem::take(&mut call.writes));
                *call = Call { needs: Needs::Nothing, reads, writes, opaque: call.opaque, ..Call::of(":") };
            }
        }
        if self.moves {
            for (place, path) in &self.relative {
                let program = self.programs.at(path, Standing::Unknown);
                if let Some(call) = self.calls.get_mut(*place) {
                    (call.program, call.path, call.sha256, call.opaque) = (program.name, program.path, program.sha256, true);
                }
            }
        }
        Script { calls: self.calls }
    }

    /// Adds a call; `relative` is the path as it was written.
    pub(super) fn push(&mut self, call: Call, relative: Option<String>) -> Result<(), Refusal> {
        if self.calls.len() >= MAX_CALLS {
            return Err(Refusal::Limit("too many commands"));
        }
        if let Some(path) = relative {
            self.relative.push((self.calls.len(), path));
        }
        self.calls.push(call);
        Ok(())
    }

    /// The call at a place may be that of a function.
    pub(super) fn may_be_function(&mut self, place: usize) {
        self.by_shell.push(place);
    }

    /// The call at a place does what its words do not say.
    pub(super) fn hide(&mut self, place: usize) {
        if let Some(call) = self.calls.get_mut(place) {
            call.opaque = true;
        }
    }

    /// The call at a place needs no permit.
    pub(super) fn free(&mut self, place: usize) {
        if let Some(call) = self.calls.get_mut(place) {
            call.needs = Needs::Nothing;
        }
    }

    /// One level deeper.
    pub(super) fn enter(&mut self, act: impl FnOnce(&mut Self) -> Result<(), Refusal>) -> Result<(), Refusal> {
        if self.level >= MAX_LEVELS {
            return Err(Refusal::Limit("too deeply nested"));
        }
        self.level += 1;
        let result = act(self);
        self.level -= 1;
        result
    }

    /// A script within this one.
    pub(super) fn nested_script(&mut self, text: &str) -> Result<(), Refusal> {
        self.parsed = self.parsed.saturating_add(text.len());
        if self.parsed > MAX_PARSED {
            return Err(Refusal::Limit("too many bytes"));
        }
        bounds::check(text)?;
        let program = grammar::script(text)?;
        let outer = std::mem::replace(&mut self.text, text.to_owned());
        let result = self.enter(|walk| program.complete_commands.iter().try_for_each(|list| walk.list(list)));
        self.text = outer;
        result
    }

    pub(super) fn list(&mut self, list: &CompoundList) -> Result<(), Refusal> {
        list.0.iter().try_for_each(|item| self.and_or(&item.0))
    }

    fn and_or(&mut self, list: &AndOrList) -> Result<(), Refusal> {
        self.pipeline(&list.first)?;
        list.additional.iter().try_for_each(|next| match next {
            AndOr::And(pipeline) | AndOr::Or(pipeline) => self.pipeline(pipeline),
        })
    }

    fn pipeline(&mut self, pipeline: &ast::Pipeline) -> Result<(), Refusal> {
        pipeline.seq.iter().try_for_each(|command| self.enter(|walk| walk.any_command(command)))
    }

    fn any_command(&mut self, command: &ast::Command) -> Result<(), Refusal> {
        match command {
            ast::Command::Simple(simple) => self.simple(simple),
            ast::Command::Compound(compound, redirects) => {
                self.redirect_list(redirects.as_ref())?;
                self.compound(compound)
            }
            ast::Command::Function(function) => self.function(function),
            ast::Command::ExtendedTest(test, redirects) => {
                self.redirect_list(redirects.as_ref())?;
                self.test(&test.expr)
            }
        }
    }

    fn compound(&mut self, command: &CompoundCommand) -> Result<(), Refusal> {
        match command {
            CompoundCommand::Arithmetic(command) => {
                self.check_parentheses(command.loc.start.index, command.loc.end.index)?;
                self.arithmetic(&command.expr.value)
            }
            CompoundCommand::ArithmeticForClause(clause) => {
                let parts = [&clause.initializer, &clause.condition, &clause.updater];
                parts.into_iter().flatten().try_for_each(|part| self.arithmetic(&part.value))?;
                self.list(&clause.body.list)
            }
            CompoundCommand::Coprocess(coprocess) => self.any_command(&coprocess.body),
            CompoundCommand::BraceGroup(group) => self.list(&group.list),
            CompoundCommand::Subshell(subshell) => self.list(&subshell.list),
            CompoundCommand::ForClause(clause) => {
                assignment::check(&clause.variable_name)?;
                for word in clause.values.iter().flatten() {
                    let word = self.word(&word.value)?;
                    word.as_literal().map_or(Ok(()), assignment::check_text)?;
                }
                self.list(&clause.body.list)
            }
            CompoundCommand::CaseClause(clause) => {
                self.word(&clause.value.value)?;
                for item in &clause.cases {
                    item.patterns.iter().try_for_each(|pattern| self.word(&pattern.value).map(drop))?;
                    item.cmd.as_ref().map_or(Ok(()), |list| self.list(list))?;
                }
                Ok(())
            }
            CompoundCommand::IfClause(clause) => {
                self.list(&clause.condition)?;
                self.list(&clause.then)?;
                for other in clause.elses.iter().flatten() {
                    other.condition.as_ref().map_or(Ok(()), |list| self.list(list))?;
                    self.list(&other.body)?;
                }
                Ok(())
            }
            CompoundCommand::WhileClause(clause) | CompoundCommand::UntilClause(clause) => {
                self.list(&clause.0)?;
                self.list(&clause.1.list)
            }
        }
    }

    /// The grammar takes `( (a) )` for arithmetic, which to bash is a subshell in a subshell.
    fn check_parentheses(&self, start: usize, end: usize) -> Result<(), Refusal> {
        let written: String = self.text.chars().skip(start).take(end.saturating_sub(start)).collect();
        if written.starts_with("((") && written.ends_with("))") {
            return Ok(());
        }
        Err(Refusal::Unparsable("parentheses that could be arithmetic or commands".to_owned()))
    }

    fn function(&mut self, function: &ast::FunctionDefinition) -> Result<(), Refusal> {
        let word = self.word(&function.fname.value)?;
        let name = word.as_literal().ok_or_else(|| Refusal::HiddenProgram(word.shown()))?;
        if tables::builtin(name).is_some() || tables::wrapper(name).is_some() || self.programs.exists(name) {
            return Err(Refusal::Shadow(name.to_owned()));
        }
        self.functions.push(name.to_owned());
        self.redirect_list(function.body.1.as_ref())?;
        self.compound(&function.body.0)
    }

    fn test(&mut self, test: &ExtendedTestExpr) -> Result<(), Refusal> {
        self.enter(|walk| match test {
            ExtendedTestExpr::And(left, right) | ExtendedTestExpr::Or(left, right) => {
                walk.test(left)?;
                walk.test(right)
            }
            ExtendedTestExpr::Not(inner) | ExtendedTestExpr::Parenthesized(inner) => walk.test(inner),
            ExtendedTestExpr::UnaryTest(_, word) => walk.tested(word),
            ExtendedTestExpr::BinaryTest(_, left, right) => {
                walk.tested(left)?;
                walk.tested(right)
            }
        })
    }

    /// Operands of `[[` may be evaluated as arithmetic.
    fn tested(&mut self, word: &ast::Word) -> Result<(), Refusal> {
        let word = self.word(&word.value)?;
        word.as_literal().map_or(Ok(()), assignment::check_text)
    }

    fn simple(&mut self, simple: &ast::SimpleCommand) -> Result<(), Refusal> {
        let mut redirects = Redirects::default();
        let mut assigned = Vec::new();
        let mut words = Vec::new();
        let before = simple.prefix.iter().flat_map(|prefix| &prefix.0);
        for item in before {
            match item {
                CommandPrefixOrSuffixItem::AssignmentWord(assignment, _) => {
                    self.assignment(assignment)?;
                    assigned.push(name_of(&assignment.name));
                }
                other => self.item(other, &mut words, &mut redirects)?,
            }
        }
        let command = simple.word_or_name.as_ref().map(|word| self.word(&word.value)).transpose()?;
        words.extend(command);
        for item in simple.suffix.iter().flat_map(|suffix| &suffix.0) {
            self.item(item, &mut words, &mut redirects)?;
        }
        // `IFS= read line` splits what it reads and nothing else.
        let only_reads = words.first().and_then(Word::as_literal) == Some("read");
        assigned.iter().filter(|name| !(only_reads && **name == "IFS")).try_for_each(|name| assignment::check(name))?;
        self.command(&words, redirects, Starter::Shell)
    }

    fn item(&mut self, item: &CommandPrefixOrSuffixItem, words: &mut Vec<Word>, redirects: &mut Redirects) -> Result<(), Refusal> {
        match item {
            CommandPrefixOrSuffixItem::IoRedirect(redirect) => self.redirect(redirect, redirects),
            CommandPrefixOrSuffixItem::Word(word) => {
                words.push(self.word(&word.value)?);
                Ok(())
            }
            CommandPrefixOrSuffixItem::AssignmentWord(assignment, word) => {
                self.assignment(assignment)?;
                words.push(match &assignment.value {
                    AssignmentValue::Scalar(_) => self.word(&word.value)?,
                    AssignmentValue::Array(_) => Word::literal(format!("{}=()", name_of(&assignment.name))),
                });
                Ok(())
            }
            CommandPrefixOrSuffixItem::ProcessSubstitution(_, subshell) => {
                words.push(Word::unknown());
                self.list(&subshell.list)
            }
        }
    }

    fn assignment(&mut self, assignment: &ast::Assignment) -> Result<(), Refusal> {
        if let AssignmentName::ArrayElementName(_, index) = &assignment.name {
            self.arithmetic(index)?;
        }
        let (keys, values): (Vec<&ast::Word>, Vec<&ast::Word>) = match &assignment.value {
            AssignmentValue::Scalar(word) => (Vec::new(), vec![word]),
            AssignmentValue::Array(items) => {
                (items.iter().filter_map(|(key, _)| key.as_ref()).collect(), items.iter().map(|(_, value)| value).collect())
            }
        };
        for word in keys.into_iter().chain(values) {
            let word = self.word(&word.value)?;
            word.as_literal().map_or(Ok(()), assignment::check_text)?;
        }
        Ok(())
    }

    fn redirect_list(&mut self, list: Option<&RedirectList>) -> Result<(), Refusal> {
        let mut redirects = Redirects::default();
        for redirect in list.iter().flat_map(|list| &list.0) {
            self.redirect(redirect, &mut redirects)?;
        }
        self.bare_redirects(redirects)
    }

    fn redirect(&mut self, redirect: &IoRedirect, into: &mut Redirects) -> Result<(), Refusal> {
        match redirect {
            IoRedirect::File(_, kind, target) => match target {
                IoFileRedirectTarget::Fd(_) => Ok(()),
                IoFileRedirectTarget::Filename(word) => self.file(&word.value, kind, into),
                IoFileRedirectTarget::Duplicate(word) => {
                    let is_number = |text: &str| text.trim_end_matches('-').chars().all(|c| c.is_ascii_digit());
                    if is_number(&word.value) { Ok(()) } else { self.file(&word.value, kind, into) }
                }
                IoFileRedirectTarget::ProcessSubstitution(_, subshell) => self.list(&subshell.list),
            },
            IoRedirect::HereDocument(_, document) if document.requires_expansion => self.document(&document.doc.value),
            IoRedirect::HereDocument(..) => Ok(()),
            IoRedirect::HereString(_, word) => self.word(&word.value).map(drop),
            IoRedirect::OutputAndError(word, _) => self.file(&word.value, &IoFileRedirectKind::Write, into),
        }
    }

    fn file(&mut self, text: &str, kind: &IoFileRedirectKind, into: &mut Redirects) -> Result<(), Refusal> {
        let word = self.word(text)?;
        if CONNECTIONS.iter().any(|name| word.beginning().starts_with(name)) {
            return Err(Refusal::Connection(word.beginning().to_owned()));
        }
        let Some(file) = word.as_literal() else {
            into.opaque = true;
            return Ok(());
        };
        let (reads, writes) = match kind {
            IoFileRedirectKind::Read | IoFileRedirectKind::DuplicateInput => (true, false),
            IoFileRedirectKind::Write | IoFileRedirectKind::Append | IoFileRedirectKind::Clobber | IoFileRedirectKind::DuplicateOutput => {
                (false, true)
            }
            IoFileRedirectKind::ReadAndWrite => (true, true),
        };
        if reads {
            into.reads.push(file.to_owned());
        }
        if writes {
            into.writes.push(file.to_owned());
        }
        Ok(())
    }
}

fn name_of(name: &AssignmentName) -> &str {
    match name {
        AssignmentName::VariableName(name) | AssignmentName::ArrayElementName(name, _) => name,
    }
}
