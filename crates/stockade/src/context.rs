//! What every command gets: the printer, and the process's surroundings.
//!
//! The environment and the current directory are read here and nowhere else in the program.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
#[cfg(wall)]
use std::sync::Arc;
use std::sync::OnceLock;

#[cfg(wall)]
use stockade_policy::Policies;
#[cfg(wall)]
use stockade_sandbox::variables::Wiped;
#[cfg(wall)]
use stockade_store::packs::Packs;
use stockade_store::places::{Places, PlacesError};
#[cfg(wall)]
use stockade_store::policy::PolicyLayers;

use crate::cli::OutputFlags;
#[cfg(wall)]
use crate::daemon::{Standing, Steward};
use crate::failure::Failure;
use crate::printer::Printer;
#[cfg(wall)]
use crate::visitor::Visitor;

/// What every command gets.
#[derive(Debug)]
pub(crate) struct Context {
    /// The way out.
    pub(crate) printer: Printer,
    /// The caller's environment.
    pub(crate) environment: Environment,
    places: OnceLock<Result<Places, PlacesError>>,
    /// What a confined server keeps standing for its calls; nothing in any other process.
    #[cfg(wall)]
    pub(crate) standing: Option<Arc<Standing>>,
}

impl Context {
    /// A context as the flags want it.
    pub(crate) fn new(flags: OutputFlags, environment: Environment) -> Self {
        Self {
            printer: Printer::new(flags, &environment),
            environment,
            places: OnceLock::new(),
            #[cfg(wall)]
            standing: None,
        }
    }

    /// The context of somebody who asked a daemon to do it: what is printed goes to them.
    #[cfg(wall)]
    pub(crate) fn of_visitor(flags: OutputFlags, environment: Environment, visitor: Arc<Visitor>, standing: Arc<Standing>) -> Self {
        let printer = Printer::to_visitor(flags, &environment, visitor);
        Self { printer, environment, places: OnceLock::new(), standing: Some(standing) }
    }

    /// The same in another directory: that in which an agent asks.
    #[cfg(wall)]
    pub(crate) fn in_directory(&self, directory: PathBuf) -> Self {
        let environment = Environment { current_dir: Some(directory), ..self.environment.clone() };
        Self { printer: self.printer.again(), environment, places: OnceLock::new(), standing: self.standing.clone() }
    }

    /// Who starts processes for a server that may start none.
    #[cfg(wall)]
    pub(crate) fn steward(&self) -> Option<&Steward> {
        self.standing.as_ref().and_then(|standing| standing.steward.as_ref())
    }

    /// All packs that verify.
    #[cfg(wall)]
    pub(crate) fn packs(&self) -> Result<Arc<Packs>, Failure> {
        let places = self.places()?;
        let loaded = match &self.standing {
            Some(standing) => Packs::load_with(places, &standing.packs),
            None => Packs::load(places).map(Arc::new),
        };
        loaded.map_err(|error| crate::commands::pack::failure(&error))
    }

    /// The rules of these layers and packs.
    #[cfg(wall)]
    pub(crate) fn compiled(&self, layers: &PolicyLayers, packs: &Packs) -> Result<Arc<Policies>, Failure> {
        let places = self.places()?;
        let compiled = match &self.standing {
            Some(standing) => standing.rules.of(layers, places, packs),
            None => layers.compile_with_packs(places, packs).map(Arc::new),
        };
        compiled.map_err(|error| crate::admission::failure(&error))
    }

    /// Where Stockade keeps its files. Worked out when first asked for: `man` and the like need no home directory.
    pub(crate) fn places(&self) -> Result<&Places, Failure> {
        let places = self.places.get_or_init(|| Places::from_lookup(|name| self.environment.variable(name)));
        places.as_ref().map_err(|error| Failure::from_error("environment", error).with_hint("set HOME to your home directory"))
    }
}

/// The caller's surroundings. Variables are looked up by name: there is no way to list them, so that nobody can copy
/// the whole environment into a sandbox. Nothing in this process changes them but [`Environment::forget`], so every look finds the same.
#[derive(Debug, Clone)]
pub(crate) struct Environment {
    variables: Variables,
    current_dir: Option<PathBuf>,
}

#[derive(Debug, Clone)]
enum Variables {
    /// The process's own.
    Process,
    /// Sent along by a client, or made by hand.
    Given(Vec<(OsString, OsString)>),
}

impl Environment {
    /// The process's own.
    pub(crate) fn capture() -> Self {
        Self { variables: Variables::Process, current_dir: std::env::current_dir().ok() }
    }

    /// That of somebody else, as far as they sent it: nothing of this process's own is looked at.
    #[cfg(wall)]
    pub(crate) fn of_visitor(variables: Vec<(OsString, OsString)>, directory: PathBuf) -> Self {
        Self { variables: Variables::Given(variables), current_dir: Some(directory) }
    }

    /// One made by hand.
    #[cfg(test)]
    pub(crate) fn from_pairs(pairs: &[(&str, &str)]) -> Self {
        let given = pairs.iter().map(|(name, value)| (name.into(), value.into())).collect();
        Self { variables: Variables::Given(given), current_dir: Some(PathBuf::from("/")) }
    }

    /// A variable's value.
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the environment")]
    pub(crate) fn variable(&self, name: impl AsRef<OsStr>) -> Option<OsString> {
        match &self.variables {
            Variables::Process => std::env::var_os(name),
            Variables::Given(given) => given.iter().find(|(known, _)| known == name.as_ref()).map(|(_, value)| value.clone()),
        }
    }

    /// Forgets what a variable holds, so that it is nowhere in this process any more; from then on it is empty. Where it cannot be
    /// forgotten it is where the caller put it, as before.
    #[cfg(wall)]
    pub(crate) fn forget(&self, name: &str) -> Wiped {
        match &self.variables {
            Variables::Process => stockade_sandbox::variables::wipe(name),
            Variables::Given(_) => Wiped::Yes,
        }
    }

    /// Whether a variable is there and not empty. What it holds may be secret, so the copy that is looked at is wiped.
    pub(crate) fn is_set(&self, name: impl AsRef<OsStr>) -> bool {
        self.variable(name).is_some_and(|value| {
            let mut bytes = value.into_encoded_bytes();
            let is_set = !bytes.is_empty();
            bytes.fill(0);
            std::hint::black_box(&bytes);
            is_set
        })
    }

    /// The current directory.
    pub(crate) fn current_dir(&self) -> Result<&Path, Failure> {
        let gone = || {
            Failure::new("current directory", "the current directory is gone or cannot be read").with_hint("change to another directory")
        };
        self.current_dir.as_deref().ok_or_else(gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::ColorWish;

    fn context(pairs: &[(&str, &str)]) -> Context {
        let flags = OutputFlags { json: false, quiet: false, verbose: false, color: ColorWish::Never };
        Context::new(flags, Environment::from_pairs(pairs))
    }

    #[test]
    fn places_come_from_the_environment() {
        let found = context(&[("HOME", "/h"), ("XDG_STATE_HOME", "/s")]);
        assert_eq!(found.places().map(|places| places.state.as_path()), Ok(Path::new("/s/stockade")));
        assert_eq!(context(&[]).places().map_err(|failure| failure.hint), Err(Some("set HOME to your home directory".into())));
    }
}
