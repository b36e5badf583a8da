//! The suites in the order they run: cheap ones first, so that a slip shows at once.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::counts::Counts;
use super::{Extent, Passed, Suite, clients, packages, python};
use crate::failure::Failure;
use crate::process::{self, Watched};
use crate::workspace::Workspace;
use crate::{agents, deny, docs, terminal, tidy};

pub(super) const ALL: &[Suite] = &[
    Suite { name: "packages", extent: Extent::Fast, check: packages },
    Suite { name: "agents", extent: Extent::Fast, check: installed_agents },
    Suite { name: "format", extent: Extent::Fast, check: format },
    Suite { name: "tidy", extent: Extent::Fast, check: |workspace| tidy::run(workspace).map(Passed::from) },
    Suite { name: "lints", extent: Extent::Fast, check: lints },
    Suite { name: "without a wall", extent: Extent::Full, check: without_a_wall },
    Suite { name: "tests", extent: Extent::Fast, check: tests },
    Suite { name: "doc tests", extent: Extent::Fast, check: documentation_tests },
    Suite { name: "reference", extent: Extent::Full, check: |workspace| docs::run(workspace, docs::Mode::Check).map(Passed::from) },
    Suite { name: "supply chain", extent: Extent::Full, check: |workspace| deny::run(workspace).map(Passed::from) },
];

/// The agents that tests drive; installed first, so that a run without them fails at once.
fn installed_agents(workspace: &Workspace) -> Result<Passed, Failure> {
    let names: Vec<String> = agents::install(workspace)?.into_iter().map(|agent| agent.name).collect();
    Ok(Passed::from(names.join(", ")))
}

fn packages(workspace: &Workspace) -> Result<Passed, Failure> {
    let programs = packages::ensure()?;
    Ok(Passed::from(format!("{programs}, {}", clients::ensure(workspace)?)))
}

fn format(workspace: &Workspace) -> Result<Passed, Failure> {
    process::run(workspace.cargo().args(["fmt", "--all", "--check"]))?;
    Ok(Passed::from(String::new()))
}

fn lints(workspace: &Workspace) -> Result<Passed, Failure> {
    let words = ["clippy", "--locked", "--workspace", "--all-targets", "--profile", "ci", "--", "--deny", "warnings"];
    process::run(workspace.cargo().args(words))?;
    Ok(Passed::from(String::new()))
}

/// Systems without a wall must still compile; no such target is on every machine, so the walls are switched off by hand.
fn without_a_wall(workspace: &Workspace) -> Result<Passed, Failure> {
    let mut command = workspace.cargo();
    command
        .args(["check", "--locked", "--profile", "ci", "--package", "stockade", "--target-dir"])
        .arg(workspace.target_directory().join("no-wall"));
    process::run(command.env("STOCKADE_NO_WALL", "1").env("RUSTFLAGS", "--deny warnings"))?;
    Ok(Passed::from(String::new()))
}

/// Unit and integration tests: nextest where it is installed (a process per test suits namespaces), else cargo test.
fn tests(workspace: &Workspace) -> Result<Passed, Failure> {
    let stage = Stage::new(workspace)?;
    let mut command = workspace.cargo();
    let watched = if process::find_program("cargo-nextest").is_some() {
        command.args(["nextest", "run", "--locked", "--workspace", "--cargo-profile", "ci", "--no-fail-fast"]);
        command.args(["--color", if terminal::is_coloured() { "always" } else { "never" }]);
        Watched::Stderr
    } else {
        command.args(["test", "--locked", "--workspace", "--profile", "ci", "--no-fail-fast", "--lib", "--bins", "--tests"]);
        Watched::Stdout
    };
    command.env("STOCKADE_TEST_BINARY", stage.binary()).env("STOCKADE_TEST_AGENTS", stage.agents());
    command.env("STOCKADE_TEST_PYTHON_PACKAGES", python::packages()?);
    counted(&mut command, watched)
}

/// Examples in the documentation, which nextest does not run.
fn documentation_tests(workspace: &Workspace) -> Result<Passed, Failure> {
    let mut command = workspace.cargo();
    command.args(["test", "--quiet", "--locked", "--workspace", "--profile", "ci", "--doc"]);
    counted(&mut command, Watched::Stdout)
}

fn counted(command: &mut std::process::Command, watched: Watched) -> Result<Passed, Failure> {
    let mut counts = Counts::default();
    let result = process::watch(command, watched, |line| counts.add(Counts::in_line(line)));
    match result {
        Ok(()) => Ok(Passed { note: counts.to_string(), counts }),
        Err(failure) => Err(Failure::new(format!("{counts}: {failure}"))),
    }
}

/// The built binary and the agents in a directory that every user can reach, for tests that become an ordinary user: the target directory
/// may lie below a home that only its owner can enter. Removed when dropped.
struct Stage {
    directory: PathBuf,
}

impl Stage {
    fn new(workspace: &Workspace) -> Result<Self, Failure> {
        process::run(workspace.cargo().args(["build", "--locked", "--profile", "ci", "--package", "stockade"]))?;
        let directory = std::env::temp_dir().join(format!("stockade-test-{}", std::process::id()));
        std::fs::create_dir(&directory).map_err(Failure::io("create", &directory))?;
        let stage = Self { directory };
        let binary = stage.binary();
        std::fs::copy(workspace.binary(), &binary).map_err(Failure::io("copy the built binary to", &binary))?;
        make_reachable(&binary)?;
        make_reachable(&stage.directory)?;
        // Links where the cache is on the same file system, and copies elsewhere; hundreds of megabytes.
        let agents = stage.agents();
        std::fs::create_dir(&agents).map_err(Failure::io("create", &agents))?;
        make_reachable(&agents)?;
        for agent in agents::installed(workspace)? {
            let place = agents.join(&agent.name);
            let linked = process::run(&mut copy_tree("-al", &agent.directory, &place));
            if linked.is_err() {
                process::run(&mut copy_tree("-a", &agent.directory, &place))?;
            }
            make_reachable(&place)?;
        }
        Ok(stage)
    }

    /// The agents, where every user can reach them.
    fn agents(&self) -> PathBuf {
        self.directory.join("agents")
    }

    fn binary(&self) -> PathBuf {
        self.directory.join("stockade")
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.directory) {
            eprintln!("cannot remove `{}`: {error}", self.directory.display());
        }
    }
}

fn copy_tree(how: &str, from: &Path, to: &Path) -> std::process::Command {
    let mut command = std::process::Command::new("cp");
    command.arg(how).arg("--no-target-directory").arg(from).arg(to);
    command
}

fn make_reachable(path: &Path) -> Result<(), Failure> {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).map_err(Failure::io("change the mode of", path))
}
