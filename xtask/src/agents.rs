//! `agents`: the real agents that tests drive, installed by npm at pinned versions.
//!
//! Which ones is data: `tests/agents/versions.txt`. They are installed once per list into the cache outside the clone, and each must say its
//! version before it counts as installed: an agent that cannot run is a failure, not a test left out.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::Failure;
use crate::process;
use crate::workspace::{Workspace, cache_directory};

/// The list.
const VERSIONS: &str = "tests/agents/versions.txt";

/// One agent.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Agent {
    package: String,
    version: String,
}

/// Where the agents are, after installing them if this machine has not got them: a directory with `node_modules`.
pub(crate) fn install(workspace: &Workspace) -> Result<PathBuf, Failure> {
    let path = workspace.root().join(VERSIONS);
    let agents = parse(&std::fs::read_to_string(&path).map_err(Failure::io("read", &path))?)?;
    let names: Vec<String> = agents.iter().map(Agent::short).collect();
    let tools = cache_directory()?.join("tools");
    let root = tools.join(format!("agents-{}", names.join("-")));
    if !root.is_dir() {
        println!("installing {} into {} (once per version)", names.join(", "), root.display());
        let fresh = tools.join(format!("agents-new-{}", std::process::id()));
        std::fs::create_dir_all(&fresh).map_err(Failure::io("create", &fresh))?;
        let mut npm = Command::new("npm");
        npm.args(["install", "--no-audit", "--no-fund", "--no-save", "--loglevel=error", "--prefix"]).arg(&fresh);
        process::run(npm.args(agents.iter().map(|agent| format!("{}@{}", agent.package, agent.version))))?;
        check(&agents, &fresh)?;
        std::fs::rename(&fresh, &root).map_err(Failure::io("rename", &fresh))?;
    }
    check(&agents, &root)?;
    Ok(root)
}

/// Each runs, and is what it should be.
fn check(agents: &[Agent], root: &Path) -> Result<(), Failure> {
    for agent in agents {
        let program = root.join("node_modules/.bin").join(agent.program());
        let said = process::output(Command::new(&program).arg("--version"))?;
        if !said.contains(&agent.version) {
            return Err(Failure::new(format!("`{} --version` says `{}` and not {}", program.display(), said.trim(), agent.version)));
        }
    }
    Ok(())
}

impl Agent {
    /// Its name and version, as a part of a file's name.
    fn short(&self) -> String {
        format!("{}-{}", self.program(), self.version)
    }

    /// Its program.
    fn program(&self) -> &str {
        let name = self.package.rsplit('/').next().unwrap_or(&self.package);
        if name == "claude-code" { "claude" } else { name }
    }
}

/// One `package@version` in a line; `#` begins a remark.
fn parse(text: &str) -> Result<Vec<Agent>, Failure> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let parse = |line: &str| match line.rsplit_once('@') {
        Some((package, version)) if !package.is_empty() && version.starts_with(|c: char| c.is_ascii_digit()) => {
            Ok(Agent { package: package.to_owned(), version: version.to_owned() })
        }
        Some(_) | None => Err(Failure::new(format!("{VERSIONS}: `{line}` is not package@version"))),
    };
    lines.map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_pinned() {
        let agents = parse("# remark\n@anthropic-ai/claude-code@2.1.0\nx@1.0.0\n").unwrap();
        assert_eq!(agents.iter().map(Agent::short).collect::<Vec<_>>(), ["claude-2.1.0", "x-1.0.0"]);
        assert!(parse("@openai/codex\n").is_err() && parse("codex@latest\n").is_err());
    }
}
