//! What a shell script would run, read from its text.
//!
//! A script is parsed with a bash grammar; every simple command in it, however nested, becomes one [`Call`]. Wrappers (`env`, `xargs`, `sh -c`
//! …) become the call of the wrapper and that of what it wraps. What cannot be known from the text (a program's name in a variable, text
//! that is evaluated later) is a [`Refusal`], never a guess.
//!
//! Promise: any text is answered, without a panic and within bounded time and depth ([`bounds`]). Not promised: that text says everything.
//! A program that is allowed can do more than its arguments say; the sandbox holds that.

mod arguments;
mod assignment;
mod bounds;
mod command;
mod expand;
mod grammar;
mod tables;
mod walk;
mod word;
mod wrapper;

use std::collections::BTreeSet;

pub use bounds::{MAX_CALLS, MAX_SCRIPT};
pub use tables::helpers;
pub use word::Word;

/// Whether a call needs a rule that permits it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// The usual case.
    Permit,
    /// It does nothing by itself (`true`, `exit`, a bare redirect); a forbid still counts.
    Nothing,
}

/// One program that would run, with what can be known about its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// A name, or an absolute path where a path was written.
    pub program: String,
    /// Where the program is, if somebody looked.
    pub path: Option<String>,
    /// Its digest, if somebody looked.
    pub sha256: Option<String>,
    /// The subcommand of programs that have them; nothing if there is none or it is hidden.
    pub subcommand: String,
    /// Options: long ones without their value, short clusters whole and letter by letter.
    pub flags: BTreeSet<String>,
    /// Words that are no options, without the subcommand.
    pub operands: BTreeSet<String>,
    /// How many words follow the program's name.
    pub count: usize,
    /// Some word is not literal, or an option hides what happens.
    pub opaque: bool,
    /// Files that redirects and known options read.
    pub reads: BTreeSet<String>,
    /// Files that redirects and known options write.
    pub writes: BTreeSet<String>,
    /// Whether it needs a permit.
    pub needs: Needs,
}

impl Call {
    /// A call of a program without arguments.
    pub fn of(program: impl Into<String>) -> Self {
        Self {
            program: program.into(),
            path: None,
            sha256: None,
            subcommand: String::new(),
            flags: BTreeSet::new(),
            operands: BTreeSet::new(),
            count: 0,
            opaque: false,
            reads: BTreeSet::new(),
            writes: BTreeSet::new(),
            needs: Needs::Permit,
        }
    }

    /// The program and its subcommand, for people.
    pub fn shown(&self) -> String {
        let words = [self.program.as_str(), self.subcommand.as_str()];
        stockade_core::escape::escape(words.join(" ").trim_end())
    }
}

/// Everything a script would run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Script {
    /// Its calls in the order of the text.
    pub calls: Vec<Call>,
}

/// Why a script is denied before any rule is asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Too long, too deep or too much.
    #[error("the script is over a limit: {0}")]
    Limit(&'static str),
    /// Not bash, as far as this grammar knows.
    #[error("the script cannot be parsed: {0}")]
    Unparsable(String),
    /// What would run depends on an expansion.
    #[error("{0} hides which program runs")]
    HiddenProgram(String),
    /// Text that bash evaluates later holds a substitution.
    #[error("{0} holds a substitution that bash would run")]
    HiddenText(String),
    /// A function or alias would stand for a program.
    #[error("`{0}` would stand for another program")]
    Shadow(String),
    /// A variable that changes how programs run.
    #[error("`{name}` may not be set: {reason}")]
    Variable {
        /// The variable.
        name: String,
        /// What it changes.
        reason: String,
    },
    /// A redirect to `/dev/tcp` or `/dev/udp`, which bash turns into a connection.
    #[error("a redirect to `{0}` is a connection")]
    Connection(String),
}

impl Refusal {
    /// The name of the check, which stands in place of a rule's id.
    pub fn rule(&self) -> &'static str {
        match self {
            Self::Limit(_) => "script-limit",
            Self::Unparsable(_) => "script-unparsable",
            Self::HiddenProgram(_) => "script-hidden-program",
            Self::HiddenText(_) => "script-hidden-text",
            Self::Shadow(_) => "script-shadow",
            Self::Variable { .. } => "script-variable",
            Self::Connection(_) => "script-connection",
        }
    }
}

/// A program that a word leads to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Program {
    /// How rules call it: its name, or an absolute path.
    pub name: String,
    /// Where it is, if known.
    pub path: Option<String>,
    /// Its digest, if known.
    pub sha256: Option<String>,
}

/// Where a relative path begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// In the call's own directory.
    Start,
    /// Somewhere: the script changed the directory before, or may have.
    Unknown,
}

/// Who knows which programs there are. The file system is asked by whoever implements this, never here.
pub trait Programs {
    /// What a word without a slash leads to.
    fn named(&self, name: &str) -> Program;
    /// What a word with a slash leads to.
    fn at(&self, path: &str, standing: Standing) -> Program;
    /// Whether there is, or may be, a program of that name.
    fn exists(&self, name: &str) -> bool;
}

/// Knows names only: a word is itself, a relative path begins at a fixed directory, and any name may be a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByName<'a> {
    /// The directory in which relative paths begin; absolute.
    pub directory: &'a str,
}

impl Programs for ByName<'_> {
    fn named(&self, name: &str) -> Program {
        Program { name: name.to_owned(), ..Program::default() }
    }

    fn at(&self, path: &str, standing: Standing) -> Program {
        let name = match (path.starts_with('/'), standing) {
            (true, _) => lexical("/", path),
            (false, Standing::Start) => lexical(self.directory, path),
            (false, Standing::Unknown) => path.to_owned(),
        };
        Program { name, ..Program::default() }
    }

    fn exists(&self, _: &str) -> bool {
        true
    }
}

/// A path without `.`, `..` and doubled slashes, as text alone tells.
pub fn lexical(directory: &str, path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    let from = if path.starts_with('/') { "" } else { directory };
    for part in from.split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

/// Reads a script.
pub fn classify(script: &str, programs: &dyn Programs) -> Result<Script, Refusal> {
    walk::script(script, programs)
}

/// Reads an argument list, which no shell looks at; `None` stands for an argument that is not text.
pub fn classify_argv(argv: &[Option<&str>], programs: &dyn Programs) -> Result<Script, Refusal> {
    walk::argv(argv, programs)
}

/// Why a variable may not be set by a caller, if it may not.
pub fn variable_refusal(name: &str) -> Option<Refusal> {
    tables::variable(name).map(|reason| Refusal::Variable { name: name.to_owned(), reason: reason.to_owned() })
}

#[cfg(test)]
mod tests;
