//! The built-in packs against the real programs: every example is run, and no program may complain about an option.

use std::path::Path;

use serde_json::Value;

use super::tell;
use crate::Outcome;
use crate::wall::ground::{finish, finish_within};
use crate::wall::{Ground, Who};

const PACKS: &str = "../../packs";
/// How programs say that they do not know an option.
const COMPLAINTS: [&str; 10] = [
    "unrecognized",
    "unknown option",
    "unknown switch",
    "unknown predicate",
    "unknown flag",
    "unknown command",
    "is unknown",
    "unexpected argument",
    "no such option",
    "Unknown cli config",
];

fn complaint(outcome: &Outcome) -> Option<&'static str> {
    COMPLAINTS.iter().copied().find(|words| outcome.stderr.contains(words) || outcome.stdout.contains(words))
}

/// The person's own toolchain is what cargo and pip are found in.
#[expect(clippy::disallowed_methods, reason = "the person's own toolchain is what is tested")]
fn with_toolchain(command: &mut std::process::Command) -> &mut std::process::Command {
    for name in ["HOME", "PATH", "CARGO_HOME", "RUSTUP_HOME"] {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    command
}

fn stage() -> Ground {
    let ground = Ground::new(Who::Root);
    for name in ["a", "a b", "c", "-n", "-", "src/a b.rs"] {
        ground.file(name, "text\n");
    }
    ground.file("src/main.rs", "fn main() {}\n");
    ground.file("Cargo.toml", "[package]\nname = \"demo\"\nversion = \"0.1.0\"\nedition = \"2024\"\n");
    ground.file("Cargo.lock", "version = 4\n\n[[package]]\nname = \"demo\"\nversion = \"0.1.0\"\n");
    ground.file("package.json", "{\"name\": \"x\", \"version\": \"1.0.0\", \"scripts\": {\"build:all\": \"true\"}}\n");
    ground.file("package-lock.json", "{\"name\": \"x\", \"version\": \"1.0.0\", \"lockfileVersion\": 3, \"packages\": {\"\": {\"name\": \"x\", \"version\": \"1.0.0\"}}}\n");
    ground.host("git init -q -b main . && git config user.name a && git config user.email a@b && git add . && git commit -q -m first && git branch feature && git tag v1.0");
    ground
}

/// One example that is allowed.
struct Example {
    name: String,
    input: Value,
    /// Hosts of its own, which no test talks to.
    hosts: Vec<Value>,
}

/// The examples of every capability.
fn examples() -> Vec<Example> {
    let mut found = Vec::new();
    let entries = |directory: &Path| -> Vec<std::path::PathBuf> {
        let mut paths: Vec<_> = std::fs::read_dir(directory).expect("packs").flatten().map(|entry| entry.path()).collect();
        paths.sort();
        paths
    };
    for pack in entries(Path::new(PACKS)) {
        for file in entries(&pack.join("capabilities")) {
            let manifest: Value = toml::from_str(&std::fs::read_to_string(&file).expect("a manifest")).expect("TOML");
            let name = manifest["name"].as_str().expect("a name").to_owned();
            for example in manifest["examples"].as_array().expect("examples").iter().filter(|example| example["verdict"] != "deny") {
                let input = example.get("input").cloned().unwrap_or_else(|| serde_json::json!({}));
                let hosts = manifest["sandbox"]["hosts"].as_array().cloned().unwrap_or_default();
                found.push(Example { name: name.clone(), input, hosts });
            }
        }
    }
    found
}

/// What runs an example: the capability itself, or, where it would talk to its own hosts, its argument list without any network.
fn command(ground: &Ground, example: &Example) -> std::process::Command {
    let (name, input) = (example.name.as_str(), example.input.to_string());
    if example.hosts.is_empty() {
        return ground.stockade(["cap", "run", name, "--input-json", &input]);
    }
    let dry = super::json(ground, &["cap", "run", name, "--input-json", &input, "--dry-run"]);
    assert_eq!(dry["sandbox"]["hosts"].as_array(), Some(&example.hosts), "{name}");
    let argv: Vec<&str> = dry["argv"].as_array().expect("arguments").iter().filter_map(Value::as_str).collect();
    ground.running(&["--env", "GH_TOKEN=none"], &argv)
}

#[test]
fn every_example_is_understood_by_the_real_program() {
    let ground = stage();
    let examples = examples();
    assert!(examples.len() > 30, "{}", examples.len());
    let mut wrong = Vec::new();
    for example in &examples {
        let outcome = finish_within(with_toolchain(&mut command(&ground, example)), std::time::Duration::from_mins(2));
        let tried_to_connect = example.hosts.is_empty() || outcome.stderr.contains("error connecting");
        if matches!(outcome.code, None | Some(124..=127)) || complaint(&outcome).is_some() || !tried_to_connect {
            wrong.push(format!("{} {}: {outcome:?}", example.name, example.input));
        }
    }
    println!("{} examples of built-in packs run", examples.len());
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn a_made_up_option_would_be_noticed() {
    let ground = stage();
    for line in [
        &["git", "log", "--no-such-x"][..],
        &["git", "status", "--no-such-x"],
        &["npm", "ls", "--no-such-x"],
        &["pip3", "list", "--no-such-x"],
        &["cargo", "tree", "--no-such-x"],
        &["curl", "--no-such-x"],
        &["gh", "api", "--no-such-x"],
        &["gh", "no-such-x"],
        &["ls", "--no-such-x"],
        &["grep", "--no-such-x"],
        &["find", ".", "-no-such-x"],
        &["df", "--no-such-x"],
    ] {
        let mut command = ground.running(&[], line);
        let outcome = finish(with_toolchain(&mut command));
        assert!(complaint(&outcome).is_some(), "{line:?}: {outcome:?}");
    }
}

#[test]
fn capabilities_are_listed_and_shown() {
    let ground = Ground::new(Who::Ordinary);
    let listed = super::json(&ground, &["cap", "list"]);
    let capabilities = listed["capabilities"].as_array().expect("capabilities");
    assert!(capabilities.len() > 30 && capabilities.iter().any(|one| one["name"] == "git.log" && one["effect"] == "read"), "{listed}");
    let shown = super::json(&ground, &["cap", "show", "git.log"]);
    assert_eq!(shown["input"]["properties"]["max_count"]["default"], 20, "{shown}");
    let words = tell(&ground, &["cap", "show", "git.log"]).stdout;
    assert!(words.contains("max_count (whole number from 1 to 10000, default 20)"), "{words}");
    let words = tell(&ground, &["cap", "show", "gh.issues"]).stdout;
    assert!(words.contains("state (one of open, closed, all, default \"open\")") && words.contains("secrets: GH_TOKEN"), "{words}");
    assert_eq!(tell(&ground, &["cap", "list", "--pack", "none"]).code, Some(125));
    assert_eq!(tell(&ground, &["pack", "remove", "git"]).code, Some(125), "what is built in stays");
}
