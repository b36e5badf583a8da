//! `agents`: the real agents that tests drive, from npm and PyPI at pinned versions.
//!
//! Which ones is data: `tests/agents/versions.txt`. Each has a directory of its own in the cache outside the clone, installed once per version,
//! and must say its version before it counts as installed: an agent that cannot run is a failure, not a test left out.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::Failure;
use crate::process;
use crate::workspace::{Workspace, cache_directory};

/// The list.
const VERSIONS: &str = "tests/agents/versions.txt";
/// The interpreter that everybody can execute: one of a developer's own may lie below a home that only its owner can enter.
const PYTHON: &str = "/usr/bin/python3";

/// One line of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Agent {
    kind: Kind,
    package: String,
    version: String,
}

/// What a package is, and where it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    /// A program from npm.
    Program(String),
    /// A library from npm, under another name where two versions of one are needed.
    Library(Option<String>),
    /// A library from PyPI, in an environment of its own.
    Python,
}

/// An agent that is there.
#[derive(Debug)]
pub(crate) struct Installed {
    /// What it is called: a program by its name, a library by its package's, one for Python with that word before it.
    pub(crate) name: String,
    /// Where it is: a directory with `node_modules`, or a Python environment.
    pub(crate) directory: PathBuf,
}

/// Makes sure that all are there and run.
pub(crate) fn install(workspace: &Workspace) -> Result<Vec<Installed>, Failure> {
    let agents = read(workspace)?;
    let found = bring(&agents)?;
    for (agent, installed) in agents.iter().zip(&found) {
        agent.check(&installed.directory)?;
    }
    Ok(found)
}

/// Where they are; those that this machine has not got are installed first.
pub(crate) fn installed(workspace: &Workspace) -> Result<Vec<Installed>, Failure> {
    bring(&read(workspace)?)
}

fn read(workspace: &Workspace) -> Result<Vec<Agent>, Failure> {
    let path = workspace.root().join(VERSIONS);
    parse(&std::fs::read_to_string(&path).map_err(Failure::io("read", &path))?)
}

fn bring(agents: &[Agent]) -> Result<Vec<Installed>, Failure> {
    let tools = cache_directory()?.join("tools");
    // At once: registries are slower than disks.
    std::thread::scope(|scope| {
        let tools = &tools;
        let threads: Vec<_> = agents.iter().map(|agent| scope.spawn(move || agent.bring(tools))).collect();
        let broken = || Failure::new("an installation broke off");
        threads.into_iter().map(|thread| thread.join().map_err(|_| broken())?).collect()
    })
}

impl Agent {
    /// Installs it beside its place and then renames: an installation that was cut short is never taken for a whole one.
    fn bring(&self, tools: &Path) -> Result<Installed, Failure> {
        let directory = tools.join(format!("agent-{}-{}", self.name(), self.version));
        if !directory.is_dir() {
            println!("installing {} into {} (once per version)", self.package, directory.display());
            let fresh = tools.join(format!("agent-new-{}-{}", self.name(), std::process::id()));
            std::fs::create_dir_all(&fresh).map_err(Failure::io("create", &fresh))?;
            match &self.kind {
                Kind::Program(_) | Kind::Library(_) => self.by_npm(&fresh)?,
                Kind::Python => self.by_pip(&fresh)?,
            }
            self.check(&fresh)?;
            std::fs::rename(&fresh, &directory).map_err(Failure::io("rename", &fresh))?;
        }
        Ok(Installed { name: self.name(), directory })
    }

    fn by_npm(&self, directory: &Path) -> Result<(), Failure> {
        let mut npm = Command::new("npm");
        npm.args(["install", "--no-audit", "--no-fund", "--no-save", "--loglevel=error", "--prefix"]).arg(directory);
        process::run(npm.arg(format!("{}@{}", self.package, self.version)))
    }

    fn by_pip(&self, directory: &Path) -> Result<(), Failure> {
        // Without an installer of its own: not every system has that package.
        process::run(Command::new(PYTHON).args(["-m", "venv", "--without-pip"]).arg(directory))?;
        let mut pip = Command::new("pip3");
        pip.arg("--python").arg(directory.join("bin/python")).args(["install", "--quiet", "--disable-pip-version-check"]);
        process::run(pip.arg(format!("{}=={}", self.package, self.version)))
    }

    /// It runs, and is what it should be.
    fn check(&self, directory: &Path) -> Result<(), Failure> {
        let mut command = match &self.kind {
            Kind::Program(name) => Command::new(directory.join("node_modules/.bin").join(name)),
            Kind::Library(_) => Command::new("node"),
            Kind::Python => Command::new(directory.join("bin/python")),
        };
        match &self.kind {
            Kind::Program(_) => command.arg("--version"),
            Kind::Library(_) => {
                let module = directory.join("node_modules").join(&self.package);
                let script = "const [directory] = process.argv.slice(1); console.log(require(directory + '/package.json').version)";
                command.args(["-e", script]).arg(module)
            }
            Kind::Python => {
                let script = format!(
                    "import {}; from importlib.metadata import version; print(version('{}'))",
                    self.package.replace('-', "_"),
                    self.package
                );
                command.args(["-c", &script])
            }
        };
        let said = process::output(&mut command)?;
        if said.contains(&self.version) {
            return Ok(());
        }
        Err(Failure::new(format!("`{}` in {} says `{}` and not {}", self.name(), directory.display(), said.trim(), self.version)))
    }

    fn name(&self) -> String {
        let last = self.package.rsplit('/').next().unwrap_or(&self.package);
        match &self.kind {
            Kind::Program(name) | Kind::Library(Some(name)) => name.clone(),
            Kind::Library(None) => last.to_owned(),
            Kind::Python => format!("python-{last}"),
        }
    }
}

/// `PROGRAM package@version` in a line, or `-` for a library, `-NAME` for one under another name and `python` for one from PyPI; `#` begins a
/// remark.
fn parse(text: &str) -> Result<Vec<Agent>, Failure> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let parse = |line: &str| {
        let failed = || Failure::new(format!("{VERSIONS}: `{line}` is not `PROGRAM package@version`"));
        let (word, pinned) = line.split_once(char::is_whitespace).ok_or_else(failed)?;
        let (package, version) = pinned.trim().rsplit_once('@').ok_or_else(failed)?;
        if package.is_empty() || !version.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(failed());
        }
        let kind = match (word, word.strip_prefix('-')) {
            ("python", _) => Kind::Python,
            (_, Some("")) => Kind::Library(None),
            (_, Some(name)) => Kind::Library(Some(name.to_owned())),
            (name, None) => Kind::Program(name.to_owned()),
        };
        Ok(Agent { kind, package: package.to_owned(), version: version.to_owned() })
    };
    lines.map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_pinned() {
        let agents =
            parse("# remark\nclaude @anthropic-ai/claude-code@2.1.0\n- @a/sdk@1.0.0\n-sdk-next @a/sdk@2.0.0-a.1\npython   a-sdk@0.1\n")
                .unwrap();
        assert_eq!(agents.iter().map(Agent::name).collect::<Vec<_>>(), ["claude", "sdk", "sdk-next", "python-a-sdk"]);
        for bad in ["codex @openai/codex", "codex codex@latest", "@openai/codex@1.0.0", "codex @1.0.0"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
