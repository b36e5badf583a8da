//! Bringing peers in from the registries: Debian packages as root, npm packages and crates into a cache outside the clone, one
//! directory per version, so that a second run finds them.
//!
//! Failing is an answer here: the message stands in the table.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::arguments::Install;
use crate::{machine, say, spawn};

/// Where a peer comes from.
pub(crate) enum Source {
    /// A Debian package.
    Debian {
        /// Its name.
        package: &'static str,
        /// Where it puts the program.
        program: &'static str,
        /// Packages it needs besides.
        also: &'static [&'static str],
    },
    /// An npm package.
    Npm {
        /// Its name.
        package: &'static str,
        /// Its version.
        version: &'static str,
        /// The program, below the directory of installation.
        program: &'static str,
    },
    /// A crate.
    Crate {
        /// Its name.
        package: &'static str,
        /// Its version.
        version: &'static str,
        /// The program.
        program: &'static str,
    },
    /// A Python package, in an environment of its own.
    Python {
        /// Its name.
        package: &'static str,
        /// Its version.
        version: &'static str,
        /// The program.
        program: &'static str,
        /// Interpreters that are new enough for it, the best first.
        interpreters: &'static [&'static str],
    },
}

impl Source {
    /// The version: pinned, or what the package manager says.
    pub(crate) fn version(&self) -> String {
        match self {
            Self::Debian { package, .. } => machine::said("dpkg-query", &["-W", "-f", "${Version}", package]),
            Self::Npm { version, .. } | Self::Crate { version, .. } | Self::Python { version, .. } => (*version).to_owned(),
        }
    }
}

/// The cache, and whether it may be filled.
pub(crate) struct Store {
    cache: Option<PathBuf>,
    install: Install,
}

impl Store {
    /// `${XDG_CACHE_HOME:-$HOME/.cache}/stockade-bench`.
    pub(crate) fn new(install: Install) -> Self {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let base = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
        Self { cache: base.map(|b| b.join("stockade-bench")), install }
    }

    /// The program, installed if it is missing and that is allowed.
    pub(crate) fn bring(&self, source: &Source) -> Result<PathBuf, String> {
        let program = self.place(source)?;
        if program.exists() {
            return Ok(program);
        }
        if self.install == Install::Nothing {
            return Err("not installed".into());
        }
        let done = match source {
            Source::Debian { package, also, .. } => install_package(package, also),
            Source::Npm { package, version, .. } => self.install_npm(package, version),
            Source::Crate { package, version, .. } => self.install_crate(package, version),
            Source::Python { package, version, interpreters, .. } => self.install_python(package, version, interpreters),
        };
        done.map_err(|message| format!("cannot be installed: {message}"))?;
        if program.exists() { Ok(program) } else { Err(format!("was installed, but `{}` is not there", program.display())) }
    }

    fn place(&self, source: &Source) -> Result<PathBuf, String> {
        match source {
            Source::Debian { program, .. } => Ok(PathBuf::from(program)),
            Source::Npm { package, version, program } => Ok(self.directory(package, version)?.join(program)),
            Source::Crate { package, version, program } | Source::Python { package, version, program, .. } => {
                Ok(self.directory(package, version)?.join("bin").join(program))
            }
        }
    }

    /// One directory per package and version.
    fn directory(&self, package: &str, version: &str) -> Result<PathBuf, String> {
        let name = format!("{}-{version}", package.rsplit('/').next().unwrap_or(package));
        self.cache.as_ref().map(|c| c.join(name)).ok_or_else(|| "neither XDG_CACHE_HOME nor HOME is set".into())
    }

    fn install_npm(&self, package: &str, version: &str) -> Result<(), String> {
        let directory = self.fresh(package, version)?;
        say(&format!("installing {package} {version} from npm"));
        let mut command = Command::new("npm");
        command.args(["install", "--silent", "--no-audit", "--no-fund", "--prefix"]).arg(&directory).arg(format!("{package}@{version}"));
        spawn::output(&mut command).map(drop)
    }

    fn install_crate(&self, package: &str, version: &str) -> Result<(), String> {
        let directory = self.fresh(package, version)?;
        say(&format!("building the crate {package} {version}: this takes minutes, once"));
        let install = |lock: &[&str]| {
            let mut command = Command::new("cargo");
            command.args(["install", "--quiet", "--version", version, package, "--root"]).arg(&directory).args(lock);
            spawn::output(&mut command).map(drop)
        };
        // A lock file can name a version that the registry no longer hands out; then cargo may choose.
        install(&["--locked"]).or_else(|_| install(&[]))
    }

    fn install_python(&self, package: &str, version: &str, interpreters: &[&str]) -> Result<(), String> {
        let directory = self.fresh(package, version)?;
        say(&format!("installing {package} {version} for python"));
        // Where pyenv stands in front of them it must be told which one is meant.
        let make = |interpreter: &&str| {
            let mut command = Command::new(interpreter);
            command.env("PYENV_VERSION", interpreter.trim_start_matches("python")).args(["-m", "venv"]).arg(&directory);
            spawn::output(&mut command).map(drop)
        };
        let missing = format!("needs one of {}", interpreters.join(", "));
        interpreters.iter().find_map(|interpreter| make(interpreter).ok()).ok_or(missing)?;
        let mut command = Command::new(directory.join("bin/pip"));
        spawn::output(command.args(["install", "--quiet", "--disable-pip-version-check"]).arg(format!("{package}=={version}"))).map(drop)
    }

    fn fresh(&self, package: &str, version: &str) -> Result<PathBuf, String> {
        let directory = self.directory(package, version)?;
        std::fs::create_dir_all(&directory).map_err(|e| e.to_string())?;
        Ok(directory)
    }

    /// A Debian package that is no peer but that a peer or a measure needs.
    pub(crate) fn need(&self, package: &'static str, program: &'static str) -> Result<PathBuf, String> {
        self.bring(&Source::Debian { package, program, also: &[] }).map_err(|m| format!("`{package}` {m}"))
    }
}

fn install_package(package: &str, also: &[&str]) -> Result<(), String> {
    if !machine::is_root() {
        return Err(format!("needs root: apt-get install {package}"));
    }
    say(&format!("installing the package {package}"));
    let apt_get = |words: &[&str]| {
        let mut command = Command::new("apt-get");
        spawn::output(command.env("DEBIAN_FRONTEND", "noninteractive").args(words).args(["-y", "-qq"])).map(drop)
    };
    let install: Vec<&str> = ["install", "--no-install-recommends", package].iter().chain(also).copied().collect();
    // The lists of packages may be older than the packages.
    apt_get(&install).or_else(|_| apt_get(&["update"]).and_then(|()| apt_get(&install)))
}

/// Whether a path can be reached by everybody, so that an ordinary user can execute what is there.
pub(crate) fn is_public(program: &Path) -> bool {
    program.starts_with("/usr") || program.starts_with("/bin")
}
