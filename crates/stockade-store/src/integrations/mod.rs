//! Files of other programs that name Stockade: an agent's settings, changed so that the agent asks before it acts, and changed back.
//!
//! What people wrote stays, comments and order too. The file as it was is kept in the private state, so that taking the change out again
//! gives back the very same bytes where nobody changed the file in between; where somebody did, only what was put in is taken out.

mod claude;
mod codex;
mod error;
mod kept;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use kept::Kept;

pub use error::IntegrationError;

use crate::packs::file;
use crate::places::Places;
use crate::private_dir::ensure_private_dir;

/// Longer than any settings of an agent.
const MAX_BYTES: usize = 4 << 20;

/// An agent whose settings can name Stockade.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Agent {
    /// Claude Code: a hook before every tool.
    Claude,
    /// Codex: Stockade's MCP server in place of its shell.
    Codex,
}

/// The variables that say where Stockade keeps its files, beside `HOME`, which every agent passes on.
const VARIABLES: [&str; 3] = ["XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"];

/// A variable that is set where Stockade is installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    name: &'static str,
    value: String,
}

impl Variable {
    /// Those that count, looked up by name. What is not an absolute path counts for nothing, as everywhere.
    pub fn all(lookup: impl Fn(&str) -> Option<PathBuf>) -> Result<Vec<Self>, IntegrationError> {
        let set = VARIABLES.into_iter().filter_map(|name| Some((name, lookup(name).filter(|path| path.is_absolute())?)));
        set.map(|(name, path)| {
            let value = path.to_str().ok_or(IntegrationError::Variable(name))?.to_owned();
            Ok(Self { name, value })
        })
        .collect()
    }
}

/// What would become of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The file.
    pub path: PathBuf,
    /// What it holds; `None`: it is not there.
    pub before: Option<String>,
    /// What it would hold; `None`: it would be removed.
    pub after: Option<String>,
    /// Whether this gives back the very bytes from before Stockade was put in.
    pub is_exact: bool,
}

impl Change {
    /// Whether anything would change.
    pub fn is_nothing(&self) -> bool {
        self.before == self.after
    }
}

impl Agent {
    /// As people write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
        }
    }

    /// Where its settings are: where its own variable says, else in the home directory.
    pub fn settings(self, home: &Path, variable: impl Fn(&str) -> Option<PathBuf>) -> PathBuf {
        let (name, directory, file) = match self {
            Self::Claude => ("CLAUDE_CONFIG_DIR", ".claude", "settings.json"),
            Self::Codex => ("CODEX_HOME", ".codex", "config.toml"),
        };
        variable(name).filter(|path| path.is_absolute()).unwrap_or_else(|| home.join(directory)).join(file)
    }

    fn put_in(self, text: &str, program: &str, variables: &[Variable]) -> Result<String, String> {
        match self {
            // Its hooks get all of its own variables.
            Self::Claude => claude::put_in(text, program),
            Self::Codex => codex::put_in(text, program, variables),
        }
    }

    fn take_out(self, text: &str) -> Result<String, String> {
        match self {
            Self::Claude => claude::take_out(text),
            Self::Codex => codex::take_out(text),
        }
    }
}

/// What installing would change. Nothing is written.
pub fn plan_install(agent: Agent, path: &Path, program: &Path, variables: &[Variable]) -> Result<Change, IntegrationError> {
    let program = program.to_str().ok_or_else(|| IntegrationError::Program(program.to_owned()))?;
    let before = read(path)?;
    let after = agent.put_in(before.as_deref().unwrap_or_default(), program, variables);
    let after = after.map_err(|why| IntegrationError::Settings { path: path.to_owned(), why })?;
    Ok(Change { path: path.to_owned(), before, after: Some(after), is_exact: false })
}

/// What taking it out again would change. Nothing is written.
pub fn plan_uninstall(agent: Agent, places: &Places, path: &Path) -> Result<Change, IntegrationError> {
    let before = read(path)?;
    if let Some(kept) = Kept::load(places, agent)
        && kept.is_of(path, before.as_deref())
    {
        return Ok(Change { path: path.to_owned(), before, after: kept.before, is_exact: true });
    }
    let Some(text) = &before else { return Ok(Change { path: path.to_owned(), before: None, after: None, is_exact: true }) };
    let after = agent.take_out(text).map_err(|why| IntegrationError::Settings { path: path.to_owned(), why })?;
    Ok(Change { path: path.to_owned(), before, after: Some(after), is_exact: false })
}

/// Where the file as it was is kept.
pub fn kept_at(agent: Agent, places: &Places) -> PathBuf {
    kept::place(places, agent)
}

/// Writes what was planned. The file as it was is kept first, so that there is always a way back.
pub fn install(agent: Agent, places: &Places, change: &Change) -> Result<(), IntegrationError> {
    let Some(after) = &change.after else { return Ok(()) };
    ensure_private_dir(&places.state).map_err(|error| IntegrationError::State(error.to_string()))?;
    // A second installation changes what the first one wrote; the way back leads to before both.
    let original = Kept::load(places, agent).filter(|kept| kept.is_of(&change.path, change.before.as_deref()));
    let before = original.map_or_else(|| change.before.clone(), |kept| kept.before);
    Kept::new(&change.path, before, after).store(places, agent)?;
    write(&change.path, after)
}

/// Writes what was planned, and forgets the file as it was.
pub fn uninstall(agent: Agent, places: &Places, change: &Change) -> Result<(), IntegrationError> {
    match &change.after {
        Some(after) => write(&change.path, after)?,
        None if change.before.is_some() => {
            std::fs::remove_file(&change.path).map_err(|error| IntegrationError::Write(change.path.clone(), error))?;
        }
        None => {}
    }
    Kept::forget(places, agent);
    Ok(())
}

fn read(path: &Path) -> Result<Option<String>, IntegrationError> {
    let failed = |error| IntegrationError::Read(path.to_owned(), error);
    let bytes = file::read(path, MAX_BYTES).map_err(failed)?;
    let text = |bytes| String::from_utf8(bytes).map_err(|_| failed(std::io::ErrorKind::InvalidData.into()));
    bytes.map(text).transpose()
}

/// Through a file beside it, so that the agent never reads half of it. A link is written through; permissions stay.
fn write(path: &Path, text: &str) -> Result<(), IntegrationError> {
    let failed = |error| IntegrationError::Write(path.to_owned(), error);
    let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let directory = real.parent().ok_or_else(|| failed(std::io::ErrorKind::NotFound.into()))?;
    std::fs::create_dir_all(directory).map_err(failed)?;
    let draft = directory.join(format!(".{}.stockade-{}", real.file_name().unwrap_or_default().to_string_lossy(), std::process::id()));
    let put = || -> std::io::Result<()> {
        use std::io::Write as _;
        use std::os::unix::fs::OpenOptionsExt as _;
        let mut file = std::fs::File::options().write(true).create_new(true).mode(0o600).open(&draft)?;
        file.write_all(text.as_bytes())?;
        if let Ok(metadata) = std::fs::metadata(&real) {
            file.set_permissions(metadata.permissions())?;
        }
        file.sync_all()?;
        std::fs::rename(&draft, &real)
    };
    put().map_err(|error| {
        let _ = std::fs::remove_file(&draft);
        failed(error)
    })
}
