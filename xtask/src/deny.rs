//! `deny`: bans, licences, sources and advisories, by cargo-deny with no network.
//!
//! The tool is built once per version into the cache outside the clone. Advisories come from the committed snapshot; its
//! date is printed, because what was published later is not known here.

use std::path::PathBuf;
use std::process::Command;

use crate::advisories::Snapshot;
use crate::failure::Failure;
use crate::process;
use crate::workspace::{Workspace, cache_directory};

const VERSION: &str = "0.20.2";
const SNAPSHOT: &str = ".ci/advisories.txt";

/// Checks the dependencies. Returns one line that sums up.
pub(crate) fn run(workspace: &Workspace) -> Result<String, Failure> {
    let tool = installed_tool(workspace)?;
    let path = workspace.root().join(SNAPSHOT);
    let snapshot = Snapshot::parse(&std::fs::read_to_string(&path).map_err(Failure::io("read", &path))?)?;
    let database = workspace.target_directory().join("xtask").join("advisory-database");
    snapshot.write_database(&database)?;

    // The graph holds crates of every platform; a machine that only ever built for its own has not got them all.
    process::run(workspace.cargo().args(["fetch", "--quiet", "--locked"]))?;
    let mut command = Command::new(tool);
    command.current_dir(workspace.root()).env("STOCKADE_ADVISORY_DATABASE", &database);
    command.args(["--locked", "--offline", "--workspace", "check", "--hide-inclusion-graph"]);
    process::run(&mut command)?;

    let lock = workspace.root().join("Cargo.lock");
    let unchecked = snapshot.unchecked(&std::fs::read_to_string(&lock).map_err(Failure::io("read", &lock))?);
    let note =
        if unchecked.is_empty() { String::new() } else { format!("; not looked up, add them to {SNAPSHOT}: {}", unchecked.join(" ")) };
    Ok(format!("{} advisories as of {}{note}", snapshot.advisories.len(), snapshot.date))
}

/// The tool from the cache, built there first if this machine has not got it.
fn installed_tool(workspace: &Workspace) -> Result<PathBuf, Failure> {
    let cache = cache_directory()?;
    let root = cache.join("tools").join(format!("cargo-deny-{VERSION}"));
    let tool = root.join("bin").join("cargo-deny");
    if !tool.is_file() {
        println!("building cargo-deny {VERSION} into {} (once per machine, about three minutes)", root.display());
        let mut install = workspace.cargo();
        // Its own target directory: the tool's dependencies must not push ours out of a cached one.
        install.env("CARGO_TARGET_DIR", cache.join("tools").join("target"));
        install.args(["install", "--quiet", "--locked", "cargo-deny", "--version", VERSION, "--root"]).arg(&root);
        process::run(&mut install)?;
    }
    Ok(tool)
}
