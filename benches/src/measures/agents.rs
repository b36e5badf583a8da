//! Whole agents: a session of twenty calls of the real Claude Code and the real Codex, behind the wall against bare.
//!
//! The model is the scripted one of the tests (`tests/agents/model.py`), which answers at once: a real one takes seconds for each answer, in which
//! nothing of ours runs. A session that did not make all its calls is no sample.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::{Course, Measure, absent, p50};
use crate::contest::{Contestant, contest};
use crate::failure::Failure;
use crate::ground::{Ground, PATH};
use crate::load::Condition;
use crate::peers::install::Source;
use crate::peers::words;
use crate::results::{Section, Table, Unit, Verdict};
use crate::spawn;
use crate::traffic::Listening;

const BARE: &str = "bare";
const FRESH: &str = "bare, in a home without its files";
const INSIDE: &str = "stockade agent run";
/// The promise.
const BOUND: f64 = 1.05;
/// Calls of tools in one session.
const CALLS: usize = 20;
/// A key; the model takes any.
const KEY: &str = "sk-ant-api03-R3alK3yOfTheBench-aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0eF3hJ6AA";
/// Which versions: those that the tests drive.
const VERSIONS: &str = include_str!("../../../tests/agents/versions.txt");

const ABOUT: &str = "A whole session, from spawn to reaped: the agent starts, a scripted model on loopback has it make twenty calls of its tools (writing, \
reading and looking at small files), and it ends. `stockade agent run` with its default: an overlay, the key outside and put in by egress, tokens counted. \
The model answers at once, so this is the largest part of a session that Stockade can be. The bare agent finds the home that its last run left; inside home is \
fresh, so the second row shows what that alone costs. Idle only.";

/// Takes the measure.
pub(super) fn take(course: &Course<'_>) -> Result<(Section, Vec<Verdict>), Failure> {
    let mut section = Measure::Agents.section(ABOUT);
    let mut verdicts = Vec::new();
    for agent in [CLAUDE, CODEX] {
        let rows = contest(contestants(course, &agent), course.few, Condition::Idle)?;
        let title = format!("{} {}", agent.title, pinned(agent.package));
        let table = Table { title, unit: Unit::Milliseconds, reference: Some(BARE.into()), rows };
        let ratio = table.ratio(INSIDE, p50);
        verdicts.push(Verdict::at_most(format!("a session of {CALLS} calls of {}, against bare, p50", agent.title), BOUND, ratio));
        section.tables.push(table);
    }
    Ok((section, verdicts))
}

/// One agent.
#[derive(Clone, Copy)]
struct Agent {
    title: &'static str,
    package: &'static str,
    program: &'static str,
    arguments: &'static str,
    /// The call with this number.
    call: fn(usize, &Path) -> Value,
    /// Settings in its home, for a model at this port.
    settings: Option<Settings>,
}

/// Where in its home, and what.
type Settings = fn(u16) -> (&'static str, String);

const CLAUDE: Agent = Agent {
    title: "Claude Code",
    package: "@anthropic-ai/claude-code",
    program: "node_modules/.bin/claude",
    arguments: "-p work --dangerously-skip-permissions --output-format json",
    call: |number, work| match number % 2 {
        0 => json!({"call": "Bash", "with": {"command": line(number)}}),
        _ => json!({"call": "Read", "with": {"file_path": work.join(format!("made-{}", number - 1))}}),
    },
    settings: None,
};

const CODEX: Agent = Agent {
    title: "Codex",
    package: "@openai/codex",
    program: "node_modules/.bin/codex",
    arguments: "exec --json --skip-git-repo-check work",
    call: |number, _| json!({"call": "exec_command", "with": {"cmd": line(number)}}),
    settings: Some(|port| {
        let text = format!(
            "model = \"gpt-scripted\"\nmodel_provider = \"scripted\"\nsandbox_mode = \"danger-full-access\"\ncheck_for_update_on_startup = false\n\n\
             [model_providers.scripted]\nname = \"scripted\"\nbase_url = \"http://127.0.0.1:{port}/v1\"\nwire_api = \"responses\"\nenv_key = \"MODEL_KEY\"\n"
        );
        (".codex/config.toml", text)
    }),
};

/// What a shell does in one call.
fn line(number: usize) -> String {
    format!("echo {number} > made-{number} && cat made-{number} && ls | wc -l")
}

fn pinned(package: &str) -> &'static str {
    let version = |line: &'static str| line.split_whitespace().nth(1)?.strip_prefix(package)?.strip_prefix('@');
    VERSIONS.lines().find_map(version).unwrap_or("0")
}

fn contestants<'a>(course: &'a Course<'_>, agent: &Agent) -> Vec<Contestant<'a>> {
    let source = Source::Npm { package: agent.package, version: pinned(agent.package), program: agent.program };
    let program = match course.store.bring(&source) {
        Ok(program) => program,
        Err(message) => return [BARE, FRESH, INSIDE].map(|name| absent(name, message.as_str())).into(),
    };
    let contestant = |name: &'static str| {
        let (agent, program) = (*agent, program.clone());
        Contestant::new(name, move || session(course, &agent, &program, name))
    };
    [BARE, FRESH, INSIDE].map(contestant).into()
}

/// One session; how long it took.
fn session(course: &Course<'_>, agent: &Agent, program: &Path, name: &str) -> Result<Duration, String> {
    let ground = course.ground;
    let work = fresh(&ground.path().join("agents/work"))?;
    let home = ground.path().join("agents").join(if name == FRESH { "fresh" } else { "home" });
    if name == FRESH {
        fresh(&home)?;
    }
    let model = Model::start(course, agent, &work)?;
    if let Some((path, text)) = agent.settings.map(|settings| settings(model.listening.port)) {
        write(&home.join(path), &text)?;
    }
    std::fs::create_dir_all(&home).map_err(|e| e.to_string())?;
    let mut argv: Vec<OsString> = Vec::new();
    if name == INSIDE {
        argv.push(ground.stockade.clone().into_os_string());
        argv.extend(words("agent run --backend jail --"));
    }
    // By name, as people do: that is how its profile is found.
    argv.extend(program.file_name().map(OsString::from));
    argv.extend(words(agent.arguments));
    let time = spawn::timed(command(ground, program, model.listening.port, &argv).current_dir(&work).env("HOME", &home))?;
    let calls = model.calls()?;
    forget(ground)?;
    if calls == CALLS { Ok(time) } else { Err(format!("{calls} of {CALLS} calls were made")) }
}

fn command(ground: &Ground, program: &Path, port: u16, argv: &[OsString]) -> Command {
    let mut path = program.parent().unwrap_or(Path::new("/")).as_os_str().to_owned();
    path.push(":");
    path.push(PATH);
    // The standard library looks programs up in the caller's own `PATH`, so the shell's way is taken for both.
    let mut through_env: Vec<OsString> = vec!["/usr/bin/env".into()];
    through_env.extend_from_slice(argv);
    let mut command = ground.own.command(&through_env);
    command
        .env("PATH", path)
        .env("ANTHROPIC_API_KEY", KEY)
        .env("MODEL_KEY", KEY)
        .env("ANTHROPIC_BASE_URL", format!("http://127.0.0.1:{port}"));
    // What the profile sets inside.
    for name in ["CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_AUTOUPDATER", "IS_SANDBOX"] {
        command.env(name, "1");
    }
    command
}

/// A model with one session's turns. Dropping ends it.
struct Model {
    listening: Listening,
    log: PathBuf,
}

impl Model {
    fn start(course: &Course<'_>, agent: &Agent, work: &Path) -> Result<Self, String> {
        let directory = fresh(&course.ground.path().join("agents/model"))?;
        let (script, log) = (directory.join("script.json"), directory.join("log.jsonl"));
        let turns: Vec<Value> = (0..CALLS).map(|number| (agent.call)(number, work)).chain([json!({"say": "done"})]).collect();
        write(&script, &Value::Array(turns).to_string())?;
        let mut python = spawn::bound_to_us(Path::new("python3"));
        python.arg(course.repository.join("tests/agents/model.py")).args([&script, &log]);
        let mut child = python.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().map_err(|e| e.to_string())?;
        let output = child.stdout.take();
        let mut listening = Listening::other(child, 0);
        let mut line = String::new();
        BufReader::new(output.ok_or("the model has no output")?).read_line(&mut line).map_err(|e| e.to_string())?;
        listening.port = line.trim().parse().map_err(|_| "the model does not say its port".to_owned())?;
        Ok(Self { listening, log })
    }

    /// How many calls were made: after each the model is asked again, and once at the beginning.
    fn calls(&self) -> Result<usize, String> {
        let text = std::fs::read_to_string(&self.log).map_err(|e| e.to_string())?;
        let offers = |line: &&str| {
            let line = serde_json::from_str::<Value>(line).ok();
            line.and_then(|line| line.get("tools")?.as_array().map(|tools| !tools.is_empty())) == Some(true)
        };
        Ok(text.lines().filter(offers).count().saturating_sub(1))
    }
}

/// An empty directory.
fn fresh(path: &Path) -> Result<PathBuf, String> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.to_string()),
        _ => {}
    }
    std::fs::create_dir_all(path).map_err(|e| e.to_string())?;
    Ok(path.to_owned())
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::create_dir_all(path.parent().unwrap_or(path)).and_then(|()| std::fs::write(path, text)).map_err(|e| e.to_string())
}

/// Throws away what is kept of an agent: it would be looked through by the next.
fn forget(ground: &Ground) -> Result<(), String> {
    for name in ["sandboxes", "agents"] {
        match std::fs::remove_dir_all(ground.own.state().join("stockade").join(name)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(format!("what is kept: {error}")),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_are_those_of_the_tests() {
        for agent in [CLAUDE, CODEX] {
            assert_ne!(pinned(agent.package), "0", "{}", agent.package);
        }
    }
}
