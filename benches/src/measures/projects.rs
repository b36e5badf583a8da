//! The projects that are built: made here, small, and ready to be built without a network.

use std::ffi::OsString;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::ground::{Ground, PATH};
use crate::peers::words;
use crate::results::Extent;
use crate::{say, spawn};

/// How many functions the crate has: about a second's work for the compiler.
const FUNCTIONS: usize = 60;
/// A handful of packages that much depends on, and what they depend on.
const PACKAGES: &str = r#"{
  "name": "bench", "version": "1.0.0", "private": true,
  "dependencies": { "chalk": "4.1.2", "debug": "4.3.4", "lodash": "4.17.21", "semver": "7.6.0", "yargs": "17.7.2" }
}
"#;

/// Nothing of npm's that is not the installation itself.
const QUIETLY: [&str; 5] = ["--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--update-notifier=false"];

/// Something to build, or to walk over.
pub(super) struct Project {
    /// Its name in tables.
    pub(super) name: &'static str,
    /// The workspace.
    pub(super) directory: PathBuf,
    /// The program.
    pub(super) argv: Vec<OsString>,
    /// Where programs are found.
    pub(super) path: OsString,
    /// What a reader should know.
    pub(super) note: Option<String>,
    /// What a run makes in the workspace.
    made: Option<&'static str>,
}

impl Project {
    /// Removes what the last run made.
    pub(super) fn clear(&self) -> Result<(), String> {
        let Some(made) = self.made else { return Ok(()) };
        match fs::remove_dir_all(self.directory.join(made)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(format!("{made}: {error}")),
            _ => Ok(()),
        }
    }
}

/// All of them, or why one cannot be made.
pub(super) fn make(ground: &Ground, extent: Extent) -> Vec<Result<Project, (&'static str, String)>> {
    let walk = ("find /usr", walk as fn(&Ground) -> Result<Project, String>);
    let makers = [("cargo build", cargo as fn(&Ground) -> Result<Project, String>), ("npm ci", npm), walk];
    // A quick run has no time for packages.
    let wanted = makers.into_iter().filter(|(name, _)| extent == Extent::Full || *name != "npm ci");
    wanted.map(|(name, make)| make(ground).map_err(|message| (name, message))).collect()
}

/// A crate without dependencies.
fn cargo(ground: &Ground) -> Result<Project, String> {
    let directory = fresh(ground, "cargo")?;
    // The toolchain itself, without the proxy that chooses one.
    let root = spawn::output(Command::new("rustc").args(["--print", "sysroot"]).current_dir(&directory))?;
    let bin = Path::new(root.trim()).join("bin");
    let manifest = "[package]\nname = \"bench\"\nversion = \"1.0.0\"\nedition = \"2021\"\n";
    write(&directory.join("Cargo.toml"), manifest)?;
    fs::create_dir_all(directory.join("src")).map_err(|e| e.to_string())?;
    write(&directory.join("src/main.rs"), &source())?;
    let mut path = bin.clone().into_os_string();
    path.push(":");
    path.push(PATH);
    let argv = [bin.join("cargo").into_os_string()].into_iter().chain(words("build --quiet --offline")).collect();
    Ok(Project { name: "cargo build", directory, argv, path, note: None, made: Some("target") })
}

/// Something for a compiler to do: many functions that format, sort and count.
fn source() -> String {
    let mut text = String::from("use std::collections::BTreeMap;\n");
    for number in 0..FUNCTIONS {
        let _ = write!(
            text,
            "fn f{number}(words: &[String]) -> String {{\n    let mut seen: BTreeMap<String, (usize, [u8; {size}])> = BTreeMap::new();\n    \
             for (at, word) in words.iter().enumerate() {{ seen.entry(format!(\"{{word}}-{number}\")).or_insert((at, [0; {size}])).0 += {number}; }}\n    \
             let mut all: Vec<_> = seen.iter().map(|(k, v)| format!(\"{{k}} {{}} {{}}\", v.0, v.1.len())).collect();\n    all.sort();\n    all.join(\",\")\n}}\n",
            size = number % 7 + 1
        );
    }
    text.push_str("fn main() {\n    let words: Vec<String> = std::env::args().collect();\n");
    for number in 0..FUNCTIONS {
        let _ = writeln!(text, "    println!(\"{{}}\", f{number}(&words));");
    }
    text.push_str("}\n");
    text
}

/// A few packages, in a cache below home: the first and only time that the network is used.
fn npm(ground: &Ground) -> Result<Project, String> {
    let directory = fresh(ground, "npm")?;
    write(&directory.join("package.json"), PACKAGES)?;
    say("filling an npm cache");
    let mut command = Command::new("npm");
    // The lock file names where each package came from, so that the cache is enough whatever registry the developer's settings name.
    command.args(["install", "--omit-lockfile-registry-resolved=false", "--cache"]).arg(ground.own.home().join(".npm"));
    spawn::output(command.args(QUIETLY).current_dir(&directory))?;
    let argv = words("npm ci --offline").into_iter().chain(QUIETLY.map(OsString::from)).collect();
    Ok(Project { name: "npm ci", directory, argv, path: PATH.into(), note: None, made: Some("node_modules") })
}

/// Every name below `/usr`.
fn walk(ground: &Ground) -> Result<Project, String> {
    let directory = fresh(ground, "find")?;
    // Root outside may read a directory or two that nobody inside may; that is no reason to fail.
    let argv: Vec<OsString> = ["/bin/sh", "-c", "find /usr -xdev || true"].map(OsString::from).to_vec();
    let mut inside: Vec<OsString> = vec![ground.stockade.clone().into_os_string()];
    inside.extend(words("run --backend jail --"));
    inside.extend_from_slice(&argv);
    let count = |argv: &[OsString]| spawn::output(ground.own.command(argv).current_dir(&directory)).map(|text| text.lines().count());
    let note = match (count(&argv), count(&inside)) {
        (Ok(outside), Ok(inside)) => format!("`find /usr` prints {outside} names outside and {inside} inside."),
        (Err(message), _) | (_, Err(message)) => format!("`find /usr` could not be counted: {message}"),
    };
    Ok(Project { name: "find /usr", directory, argv, path: PATH.into(), note: Some(note), made: None })
}

fn fresh(ground: &Ground, name: &str) -> Result<PathBuf, String> {
    let directory = ground.own.base.join("projects").join(name);
    fs::create_dir_all(&directory).map_err(|e| e.to_string())?;
    Ok(directory)
}

fn write(file: &Path, text: &str) -> Result<(), String> {
    fs::write(file, text).map_err(|e| format!("{}: {e}", file.display()))
}
