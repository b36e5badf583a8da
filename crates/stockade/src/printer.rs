//! The one way out: everything that Stockade itself prints goes through a `Printer`.
//!
//! stdout is data and nothing else; words for people go to stderr. A reader that goes away (`| head`) is no failure:
//! the printer notes it, drops what follows, and the command ends with the code it would have had. Output that a
//! program writes through inherited descriptors never comes here.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anstream::{AutoStream, ColorChoice};
use comfy_table::{ContentArrangement, presets};
use serde::Serialize;
use stockade_core::escape::escape;

use crate::cli::{ColorWish, OutputFlags};
use crate::context::Environment;
use crate::failure::Failure;
use crate::text::{Text, Tone};
use crate::visitor::Visitor;

/// How much to say on stderr.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verbosity {
    /// Errors and banners only.
    Quiet,
    /// What a person wants to know.
    Normal,
    /// And how it was done.
    Verbose,
}

/// What stdout carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// Lines and tables for people.
    Human,
    /// One JSON value.
    Json,
}

/// Prints.
#[derive(Debug)]
pub(crate) struct Printer {
    format: Format,
    verbosity: Verbosity,
    stdout_color: ColorChoice,
    stderr_color: ColorChoice,
    reader_gone: AtomicBool,
    /// Whose streams are printed to; `None`: this process's own.
    visitor: Option<Arc<Visitor>>,
}

impl Printer {
    /// A printer as the flags and the environment want it.
    pub(crate) fn new(flags: OutputFlags, environment: &Environment) -> Self {
        let verbosity = match (flags.quiet, flags.verbose) {
            (true, _) => Verbosity::Quiet,
            (false, true) => Verbosity::Verbose,
            (false, false) => Verbosity::Normal,
        };
        Self {
            format: if flags.json { Format::Json } else { Format::Human },
            verbosity,
            stdout_color: color_choice(flags.color, environment, &io::stdout()),
            stderr_color: color_choice(flags.color, environment, &io::stderr()),
            reader_gone: AtomicBool::new(false),
            visitor: None,
        }
    }

    /// One that prints to somebody who asked a daemon.
    #[cfg(wall)]
    pub(crate) fn to_visitor(flags: OutputFlags, environment: &Environment, visitor: Arc<Visitor>) -> Self {
        let stdout_color = color_choice(flags.color, environment, &visitor.stdout);
        let stderr_color = color_choice(flags.color, environment, &visitor.stderr);
        Self { stdout_color, stderr_color, visitor: Some(visitor), ..Self::new(flags, environment) }
    }

    /// Whose streams are printed to; `None`: this process's own.
    pub(crate) fn visitor(&self) -> Option<&Visitor> {
        self.visitor.as_deref()
    }

    /// What stdout carries.
    pub(crate) fn format(&self) -> Format {
        self.format
    }

    /// One more that prints in the same way.
    #[cfg(wall)]
    pub(crate) fn again(&self) -> Self {
        let Self { format, verbosity, stdout_color, stderr_color, reader_gone: _, ref visitor } = *self;
        Self { format, verbosity, stdout_color, stderr_color, reader_gone: AtomicBool::new(false), visitor: visitor.clone() }
    }

    /// Whether `--json` was given.
    pub(crate) fn is_json(&self) -> bool {
        self.format == Format::Json
    }

    /// Whether whoever read stdout has gone away; a loop that prints may stop then.
    pub(crate) fn reader_is_gone(&self) -> bool {
        self.reader_gone.load(Ordering::Relaxed)
    }

    /// One line of data for people.
    pub(crate) fn line(&self, text: impl Into<Text>) -> Result<(), Failure> {
        self.to_stdout(format!("{}\n", text.into().as_str()).as_bytes(), Colors::Filter)
    }

    /// A table for people.
    pub(crate) fn table(&self, table: &Table) -> Result<(), Failure> {
        self.to_stdout(table.render(terminal_width()).as_bytes(), Colors::Filter)
    }

    /// One JSON value and a newline.
    pub(crate) fn json(&self, value: &impl Serialize) -> Result<(), Failure> {
        let mut text = serde_json::to_vec(value).map_err(|error| Failure::from_error("output", &error))?;
        text.push(b'\n');
        self.to_stdout(&text, Colors::Keep)
    }

    /// Bytes as they are: the contents of files, scripts that Stockade wrote itself.
    pub(crate) fn bytes(&self, bytes: &[u8]) -> Result<(), Failure> {
        self.to_stdout(bytes, Colors::Keep)
    }

    /// Text of our own with colours in it, such as help.
    pub(crate) fn page(&self, text: &str) -> Result<(), Failure> {
        self.to_stdout(text.as_bytes(), Colors::Filter)
    }

    /// As [`Self::page`], on stderr.
    pub(crate) fn page_aside(&self, text: &str) {
        self.to_stderr(text);
    }

    /// Something that a person wants to know.
    pub(crate) fn note(&self, text: impl Into<Text>) {
        if self.verbosity >= Verbosity::Normal {
            self.aside(&Text::plain("stockade: ").then(text));
        }
    }

    /// How something was done.
    pub(crate) fn detail(&self, text: impl Into<Text>) {
        if self.verbosity >= Verbosity::Verbose {
            self.aside(&Text::toned(Tone::Faint, "stockade: ").then(text));
        }
    }

    /// Something that may be wrong.
    pub(crate) fn warning(&self, text: impl Into<Text>) {
        if self.verbosity >= Verbosity::Normal {
            self.aside(&Text::plain("stockade: ").then(Text::toned(Tone::Caution, "warning: ")).then(text));
        }
    }

    /// Something that must be seen, however quiet: a wall is down.
    pub(crate) fn banner(&self, text: impl AsRef<str>) {
        self.aside(&Text::plain("stockade: ").then(Text::toned(Tone::Bad, text)));
    }

    /// One line of a log, however quiet: whoever has one kept asked for it.
    #[cfg(wall)]
    pub(crate) fn record(&self, line: &str) {
        self.aside(&Text::plain(line));
    }

    /// A failure: JSON on stdout, or words on stderr with the hint last.
    pub(crate) fn failure(&self, failure: &Failure) {
        if self.is_json() && self.json(&failure.to_json()).is_ok() {
            return;
        }
        self.aside(&Text::plain("stockade: ").then(Text::toned(Tone::Bad, &failure.step)).then(": ").then(&failure.message));
        if let Some(hint) = &failure.hint {
            self.aside(&Text::plain("  hint: ").then(hint));
        }
    }

    fn aside(&self, text: &Text) {
        self.to_stderr(&format!("{}\n", text.as_str()));
    }

    fn to_stdout(&self, bytes: &[u8], colors: Colors) -> Result<(), Failure> {
        if self.reader_is_gone() {
            return Ok(());
        }
        let choice = match colors {
            Colors::Filter => self.stdout_color,
            Colors::Keep => ColorChoice::AlwaysAnsi,
        };
        let written = match &self.visitor {
            Some(visitor) => visitor.to_stdout(&filtered(bytes, choice)),
            None => write_all(AutoStream::new(io::stdout().lock(), choice), bytes),
        };
        match written {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.reader_gone.store(true, Ordering::Relaxed);
                Ok(())
            }
            Err(error) => Err(Failure::new("output", format!("cannot write to stdout: {error}"))),
        }
    }

    /// Nobody can be told that stderr is closed, so errors end here.
    fn to_stderr(&self, text: &str) {
        let _ = match &self.visitor {
            Some(visitor) => visitor.to_stderr(&filtered(text.as_bytes(), self.stderr_color)),
            None => write_all(AutoStream::new(io::stderr().lock(), self.stderr_color), text.as_bytes()),
        };
    }
}

/// What to do with escape sequences on their way out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Colors {
    /// They are ours: strip them where colour is not wanted.
    Filter,
    /// The bytes are data: leave them.
    Keep,
}

fn write_all(mut stream: impl Write, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes)?;
    stream.flush()
}

/// The bytes as they are written: with their colours, or without.
fn filtered(bytes: &[u8], choice: ColorChoice) -> Vec<u8> {
    let mut written = Vec::with_capacity(bytes.len());
    // Memory takes everything.
    let _ = write_all(AutoStream::new(&mut written, choice), bytes);
    written
}

fn color_choice(wish: ColorWish, environment: &Environment, stream: &impl IsTerminal) -> ColorChoice {
    let wanted = match wish {
        ColorWish::Always => true,
        ColorWish::Never => false,
        ColorWish::Auto => {
            stream.is_terminal() && !environment.is_set("NO_COLOR") && environment.variable("TERM").is_none_or(|name| name != "dumb")
        }
    };
    if wanted { ColorChoice::AlwaysAnsi } else { ColorChoice::Never }
}

/// The width to fit a table into; `None` where stdout is no terminal, so that lines stay whole for other programs.
fn terminal_width() -> Option<u16> {
    let stdout = io::stdout();
    if !stdout.is_terminal() {
        return None;
    }
    rustix::termios::tcgetwinsize(&stdout).ok().map(|size| size.ws_col).filter(|columns| *columns > 0)
}

/// Rows under headings, without borders; every cell is escaped.
#[derive(Debug)]
pub(crate) struct Table {
    headings: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table.
    pub(crate) fn new<const COLUMNS: usize>(headings: [&str; COLUMNS]) -> Self {
        Self { headings: headings.map(escape).to_vec(), rows: Vec::new() }
    }

    /// Adds a row.
    pub(crate) fn row<const COLUMNS: usize>(&mut self, cells: [&str; COLUMNS]) {
        self.rows.push(cells.map(escape).to_vec());
    }

    fn render(&self, width: Option<u16>) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(presets::NOTHING).set_header(&self.headings).add_rows(&self.rows);
        match width {
            Some(width) => table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width),
            None => table.set_content_arrangement(ContentArrangement::Disabled),
        };
        for column in table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        let mut text = String::new();
        for (index, line) in table.lines().enumerate() {
            let line = line.trim_end();
            // The cells are escaped already; the heading is the first line unless it had to be wrapped.
            text.push_str(if index == 0 { Text::toned(Tone::Strong, line) } else { Text::plain(line) }.as_str());
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: &str) -> String {
        anstream::adapter::strip_str(text).to_string()
    }

    #[test]
    fn tables_are_aligned_and_escaped() {
        let mut table = Table::new(["NAME", "STATE"]);
        table.row(["box", "running"]);
        table.row(["long\u{1b}name", "a\nb"]);
        assert_eq!(plain(&table.render(None)), "NAME            STATE\nbox             running\nlong\\u{1b}name  a\\nb\n");
    }

    #[test]
    fn tables_fit_the_terminal() {
        let mut table = Table::new(["DEMAND", "HOW"]);
        table.row(["memory", "a rather long explanation that cannot fit"]);
        let text = plain(&table.render(Some(30)));
        assert!(text.lines().all(|line| line.chars().count() <= 30), "{text}");
        assert!(text.lines().count() > 2, "{text}");
    }

    #[test]
    fn colour_follows_the_wish_then_the_environment() {
        let pipe = std::fs::File::open("/dev/null").unwrap();
        let terminal = std::fs::File::open("/dev/ptmx").unwrap();
        let check = |wish, pairs: &[(&str, &str)], stream: &std::fs::File, expected| {
            assert_eq!(color_choice(wish, &Environment::from_pairs(pairs), stream), expected, "{wish:?} {pairs:?}");
        };
        check(ColorWish::Always, &[("NO_COLOR", "1")], &pipe, ColorChoice::AlwaysAnsi);
        check(ColorWish::Never, &[], &terminal, ColorChoice::Never);
        check(ColorWish::Auto, &[], &pipe, ColorChoice::Never);
        check(ColorWish::Auto, &[("NO_COLOR", ""), ("TERM", "xterm")], &terminal, ColorChoice::AlwaysAnsi);
        check(ColorWish::Auto, &[("NO_COLOR", "1")], &terminal, ColorChoice::Never);
        check(ColorWish::Auto, &[("TERM", "dumb")], &terminal, ColorChoice::Never);
    }
}
