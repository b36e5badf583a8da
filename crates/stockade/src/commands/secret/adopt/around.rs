//! Where tools keep their logins: files of the person's own, and programs of the person's own that know more.
//!
//! Links are followed, as people keep their dotfiles elsewhere; what others could have written is not used. Everything is bounded, and wiped when it
//! is no longer needed. Nothing here writes.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags};
use stockade_broker::sources::{Surroundings, ask_program};
use stockade_broker::store::Store;
use stockade_broker::{SecretName, SecretValue};
use stockade_core::escape::{escape, escape_bytes};
use stockade_core::host::HostPattern;
use zeroize::{Zeroize as _, Zeroizing};

use super::STEP;
use crate::Context;
use crate::failure::Failure;

/// No tool's login is larger.
const MAX_FILE: u64 = 1 << 20;
/// How much of a text from outside is shown.
const MAX_SHOWN: usize = 80;

/// What the readers of logins look at.
pub(super) struct Around<'a> {
    context: &'a Context,
    home: &'a Path,
    config: &'a Path,
    surroundings: Surroundings,
}

impl<'a> Around<'a> {
    /// Of whoever calls.
    pub(super) fn new(context: &'a Context) -> Result<Self, Failure> {
        let places = context.places()?;
        let path = context.environment.variable("PATH").unwrap_or_default();
        let surroundings = Surroundings { store: Store::beneath(&places.state), path, home: places.home.clone() };
        Ok(Self { context, home: &places.home, config: &places.config, surroundings })
    }

    /// A text that the environment says, where it says any.
    pub(super) fn variable(&self, name: &str) -> Option<String> {
        self.context.environment.variable(name).and_then(|value| value.into_string().ok()).filter(|value| !value.is_empty())
    }

    /// The path that a variable holds, else this one beneath the home directory.
    pub(super) fn place(&self, variable: &str, beneath_home: &str) -> PathBuf {
        self.absolute(variable).unwrap_or_else(|| self.beneath_home(beneath_home))
    }

    /// A path beneath the home directory.
    pub(super) fn beneath_home(&self, rest: &str) -> PathBuf {
        self.home.join(rest)
    }

    /// A path beneath the directory of the person's settings.
    pub(super) fn beneath_settings(&self, rest: &str) -> PathBuf {
        self.config.join(rest)
    }

    /// The absolute path that a variable holds.
    pub(super) fn absolute(&self, variable: &str) -> Option<PathBuf> {
        self.context.environment.variable(variable).map(PathBuf::from).filter(|path| path.is_absolute())
    }

    /// A path as people write it.
    pub(super) fn shown(&self, path: &Path) -> String {
        match path.strip_prefix(self.home) {
            Ok(rest) => format!("~/{}", escape_bytes(rest.as_os_str().as_encoded_bytes())),
            Err(_) => escape_bytes(path.as_os_str().as_encoded_bytes()),
        }
    }

    /// A file's text; `None` where there is no such file.
    pub(super) fn text(&self, path: &Path) -> Result<Option<Zeroizing<String>>, Failure> {
        let shown = self.shown(path);
        let failed = |why: &dyn std::fmt::Display| Failure::new(STEP, format!("cannot read `{shown}`: {why}"));
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(file) => file,
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => return Ok(None),
            Err(errno) => return Err(failed(&errno)),
        };
        let found = rustix::fs::fstat(&file).map_err(|errno| failed(&errno))?;
        let refused = |why: &str| Failure::new(STEP, format!("`{shown}` is not used: {why}"));
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            return Err(refused("it is not a plain file"));
        }
        if found.st_uid != 0 && found.st_uid != rustix::process::geteuid().as_raw() {
            return Err(refused("it belongs to another user"));
        }
        if found.st_mode & 0o022 != 0 {
            // As the shell reads it: `~` in quotes would be a file of that name.
            let whole = escape_bytes(path.as_os_str().as_encoded_bytes());
            return Err(
                refused("others may write to it").with_hint(format!("chmod go-w '{whole}', and make sure that what it says is yours"))
            );
        }
        // Room for all of it at once: what grows leaves copies behind.
        let room = usize::try_from(found.st_size).unwrap_or(0).min(MAX_FILE as usize) + 1;
        let mut bytes = Zeroizing::new(Vec::with_capacity(room));
        File::from(file).take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(|error| failed(&error))?;
        if bytes.len() as u64 > MAX_FILE {
            return Err(refused("it is larger than 1 MiB"));
        }
        match String::from_utf8(std::mem::take(&mut *bytes)) {
            Ok(text) if !text.contains('\0') => Ok(Some(Zeroizing::new(text))),
            Ok(mut text) => {
                text.zeroize();
                Err(refused("it is not text"))
            }
            Err(error) => {
                error.into_bytes().zeroize();
                Err(refused("it is not text"))
            }
        }
    }

    /// A file's JSON; `None` where there is no such file.
    pub(super) fn json(&self, path: &Path) -> Result<Option<Document>, Failure> {
        let Some(text) = self.text(path)? else { return Ok(None) };
        // The parser's own words may hold a piece of the file.
        Document::parse(&text).map(Some).ok_or_else(|| Failure::new(STEP, format!("`{}` is not used: it is not JSON", self.shown(path))))
    }

    /// What a program of the person's prints. It is found in absolute directories of `PATH` only.
    pub(super) fn ask(&self, words: &[&str], input: &[u8]) -> Result<Zeroizing<String>, Failure> {
        let argv: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let mut printed = ask_program(&argv, input, &self.surroundings).map_err(|why| {
            Failure::new(STEP, why).with_hint(format!("run it by hand to see what it says: {}", escape(&words.join(" "))))
        })?;
        String::from_utf8(std::mem::take(&mut *printed)).map(Zeroizing::new).map_err(|error| {
            error.into_bytes().zeroize();
            Failure::new(STEP, format!("what `{}` prints is not text", words.first().unwrap_or(&"")))
        })
    }
}

/// JSON that may hold secrets: its texts are wiped.
pub(super) struct Document(serde_json::Value);

impl Document {
    /// Reads it.
    pub(super) fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok().map(Self)
    }

    /// All of it.
    pub(super) fn value(&self) -> &serde_json::Value {
        &self.0
    }

    /// A text that is there and not empty, by its JSON pointer.
    pub(super) fn text(&self, pointer: &str) -> Option<&str> {
        self.0.pointer(pointer).and_then(serde_json::Value::as_str).filter(|text| !text.is_empty())
    }

    /// All of it on one line.
    pub(super) fn compact(&self) -> Vec<u8> {
        self.0.to_string().into_bytes()
    }
}

impl Drop for Document {
    fn drop(&mut self) {
        wipe(&mut self.0);
    }
}

fn wipe(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::String(text) => text.zeroize(),
        serde_json::Value::Array(items) => items.iter_mut().for_each(wipe),
        serde_json::Value::Object(fields) => fields.values_mut().for_each(wipe),
        serde_json::Value::Null | serde_json::Value::Bool(_) | serde_json::Value::Number(_) => {}
    }
}

/// A value that can be kept; `what` says which it is.
pub(super) fn value(bytes: impl Into<Vec<u8>>, what: &str) -> Result<SecretValue, Failure> {
    SecretValue::from_line(bytes.into()).map_err(|error| Failure::new(STEP, format!("{what} cannot be kept: {error}")))
}

/// A host or `host:port` that a tool's file names.
pub(super) fn host(text: &str) -> Result<HostPattern, Failure> {
    let pattern = HostPattern::parse(text).map_err(|error| Failure::from_error(STEP, &error))?;
    if text.starts_with('*') { Err(Failure::new(STEP, format!("`{pattern}` is not one host"))) } else { Ok(pattern) }
}

/// Several hosts that are known to be some.
pub(super) fn hosts(texts: &[&str]) -> Result<Vec<HostPattern>, Failure> {
    texts.iter().map(|text| HostPattern::parse(text).map_err(|error| Failure::from_error(STEP, &error))).collect()
}

/// A name that is made of another.
pub(super) fn name(text: &str) -> Result<SecretName, Failure> {
    text.parse().map_err(|error: stockade_broker::BadSecretName| Failure::from_error(STEP, &error))
}

/// Text of somebody else's, short and safe to show.
pub(super) fn brief(text: &str) -> String {
    escape(&text.chars().take(MAX_SHOWN).collect::<String>())
}

/// A server's base address: HTTPS, but for one on this very machine's loopback, which is reached as tools reach it.
pub(super) fn base(host: &HostPattern) -> String {
    let scheme = if host.granted_address().is_some_and(|address| address.is_loopback()) { "http" } else { "https" };
    format!("{scheme}://{host}")
}

/// Which one of several a person means: the one they named, else the only one.
pub(super) fn choose<'t, T>(
    all: &'t [T],
    wanted: Option<&str>,
    key: impl Fn(&T) -> String,
    is: impl Fn(&T, &str) -> bool,
) -> Result<&'t T, Failure> {
    let list = || all.iter().map(|one| format!("`{}`", brief(&key(one)))).collect::<Vec<_>>().join(", ");
    let mut fitting = all.iter().filter(|one| wanted.is_none_or(|wanted| is(one, wanted)));
    match (fitting.next(), fitting.next()) {
        (Some(one), None) => Ok(one),
        (Some(_), Some(_)) => Err(Failure::new(STEP, format!("there are several: {}", list())).with_hint("say which: --host HOST")),
        (None, _) => Err(Failure::new(STEP, format!("there is no login for `{}`, only for {}", brief(wanted.unwrap_or("")), list()))),
    }
}
