//! The tools: what is offered, in an order that stays, and what is asked for, read strictly.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use rmcp::model::{Tool, ToolAnnotations};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use stockade_core::escape::escape;
use stockade_core::path::SafePath;
use stockade_gateway::approvals::RequestId;

use super::schema;
use super::wait::PATIENCE;

/// Bytes of a script: it becomes one argument, and the kernel takes no longer one.
const MOST_SCRIPT: usize = 120 << 10;
/// Bytes of a file that is written.
const MOST_WRITTEN: usize = 8 << 20;
/// Variables of one call.
const MOST_VARIABLES: usize = 64;
/// Seconds that a call may ask for.
const MOST_SECONDS: f64 = 86_400.0;
/// Seconds that somebody may wait for an approval in one call.
const MOST_WAITED: f64 = 600.0;
/// The tool that waits.
pub(super) const APPROVAL_WAIT: &str = "approval_wait";

/// What is asked for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Order {
    /// A script or a program.
    Shell(Shell),
    /// The contents of a file.
    ReadFile(SafePath),
    /// The names in a directory.
    ListDir(SafePath),
    /// New contents of a file.
    WriteFile(SafePath, Vec<u8>),
    /// A capability and its inputs.
    Capability(String, Map<String, Value>),
    /// Capabilities that have something to do with these words.
    Search(String),
    /// What this sandbox is.
    Status,
}

/// A request that is to be waited for.
#[derive(Debug, PartialEq)]
pub(super) struct Awaited {
    /// Its name.
    pub(super) id: RequestId,
    /// How long.
    pub(super) time: Duration,
}

/// What is to run, and how.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Shell {
    /// What.
    pub(crate) work: Work,
    /// Where it starts; from the workspace on.
    pub(crate) cwd: Option<PathBuf>,
    /// How long it may take.
    pub(crate) time: Option<Duration>,
    /// Variables of its own.
    pub(crate) variables: BTreeMap<String, String>,
    /// What it reads.
    pub(crate) stdin: Vec<u8>,
    /// Whether it may change the workspace.
    pub(crate) changes: Changes,
}

/// What is to run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Work {
    /// A script for the shell.
    Script(OsString),
    /// A program and its arguments.
    Program(Vec<OsString>),
}

/// Whether a script may change the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Changes {
    /// In the overlay.
    Kept,
    /// Not at all.
    Refused,
}

/// The tools that are always there: those before the capabilities' and those after.
pub(super) fn fixed() -> (Vec<Tool>, [Tool; 2]) {
    let hints = |title: &str| ToolAnnotations::with_title(title).open_world(false);
    let looks = |title: &str| hints(title).read_only(true).idempotent(true);
    let first = vec![
        tool("shell", schema::SHELL, schema::shell(), hints("Run a script").read_only(false).destructive(true)),
        tool("shell_read_only", schema::SHELL_READ_ONLY, schema::shell(), looks("Run a script that changes nothing")),
        tool("read_file", schema::READ_FILE, schema::path(), looks("Read a file")),
        tool(
            "write_file",
            schema::WRITE_FILE,
            schema::write_file(),
            hints("Write a file").read_only(false).destructive(true).idempotent(true),
        ),
        tool("list_dir", schema::LIST_DIR, schema::path(), looks("List a directory")),
    ];
    // It may run what was approved.
    let waits = hints("Wait for an approval").read_only(false).destructive(true);
    let last = [
        tool(APPROVAL_WAIT, schema::APPROVAL_WAIT, schema::approval_wait(), waits),
        tool("sandbox_status", schema::STATUS, schema::nothing(), looks("Describe the sandbox")),
    ];
    (first, last)
}

/// The two tools that stand for many capabilities.
pub(super) fn for_many() -> Vec<Tool> {
    let looks = ToolAnnotations::with_title("Find a capability").read_only(true).idempotent(true).open_world(false);
    let runs = ToolAnnotations::with_title("Run a capability").read_only(false).destructive(true).open_world(true);
    vec![
        tool("capabilities_search", schema::SEARCH, schema::search(), looks),
        tool("capability_run", schema::CAPABILITY_RUN, schema::capability_run(), runs),
    ]
}

fn tool(name: &'static str, description: &'static str, input: Map<String, Value>, annotations: ToolAnnotations) -> Tool {
    let output = match name {
        "shell" | "shell_read_only" | "capability_run" => schema::run_result(),
        "read_file" => schema::read_result(),
        "write_file" => schema::write_result(),
        "list_dir" => schema::list_result(),
        "capabilities_search" => schema::search_result(),
        APPROVAL_WAIT => schema::wait_result(),
        _ => schema::status_result(),
    };
    Tool::new(name, description, Arc::new(input)).with_raw_output_schema(Arc::new(output)).with_annotations(annotations)
}

/// Reads a call of a tool that is always there; nothing where there is no such tool.
pub(super) fn read(name: &str, given: Map<String, Value>, workspace: &Path) -> Option<Result<Order, String>> {
    let order = match name {
        "shell" => shell(given, Changes::Kept, workspace),
        "shell_read_only" => shell(given, Changes::Refused, workspace),
        "read_file" => parse(given).and_then(|At { path }| beneath(workspace, &path)).map(Order::ReadFile),
        "list_dir" => parse(given).and_then(|At { path }| beneath(workspace, &path)).map(Order::ListDir),
        "write_file" => write_file(given, workspace),
        "capabilities_search" => parse(given).map(|Query { query }| Order::Search(query)),
        "capability_run" => parse(given).map(|Named { name, input }| Order::Capability(name, input)),
        "sandbox_status" => parse(given).map(|Nothing {}| Order::Status),
        _ => return None,
    };
    Some(order)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ShellArguments {
    script: String,
    cwd: Option<String>,
    timeout_seconds: Option<f64>,
    #[serde(default)]
    env: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct At {
    path: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    path: String,
    content: Option<String>,
    content_base64: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Query {
    #[serde(default)]
    query: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    name: String,
    #[serde(default)]
    input: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Waited {
    approval_id: String,
    timeout_seconds: Option<f64>,
}

/// Reads a call of the tool that waits.
pub(super) fn awaited(given: Map<String, Value>) -> Result<Awaited, String> {
    let Waited { approval_id, timeout_seconds } = parse(given)?;
    let id = RequestId::parse(&approval_id).ok_or_else(|| format!("`approval_id`: `{}` is no request", escape(&approval_id)))?;
    let time = match timeout_seconds {
        None => PATIENCE,
        Some(seconds) if (0.0..=MOST_WAITED).contains(&seconds) => Duration::from_secs_f64(seconds),
        Some(_) => return Err(format!("`timeout_seconds` must lie between 0 and {MOST_WAITED}")),
    };
    Ok(Awaited { id, time })
}

fn parse<T: DeserializeOwned>(given: Map<String, Value>) -> Result<T, String> {
    // The parser repeats what it did not expect.
    serde_json::from_value(Value::Object(given)).map_err(|error| escape(&error.to_string()))
}

fn shell(given: Map<String, Value>, changes: Changes, workspace: &Path) -> Result<Order, String> {
    let ShellArguments { script, cwd, timeout_seconds, env } = parse(given)?;
    Ok(Order::Shell(Shell {
        work: self::script(script)?,
        cwd: directory(cwd, workspace)?,
        time: time(timeout_seconds)?,
        variables: variables(env)?,
        stdin: Vec::new(),
        changes,
    }))
}

/// A script that one argument can hold.
pub(crate) fn script(script: String) -> Result<Work, String> {
    if script.len() > MOST_SCRIPT {
        return Err(format!("`script` has {} bytes, and {MOST_SCRIPT} are the most: write it to a file and run that", script.len()));
    }
    if script.contains('\0') {
        return Err("`script` may not hold a NUL byte".to_owned());
    }
    Ok(Work::Script(script.into()))
}

/// Where something starts: in the workspace, whatever way leads there.
pub(crate) fn directory(path: Option<String>, workspace: &Path) -> Result<Option<PathBuf>, String> {
    let Some(path) = path else { return Ok(None) };
    let place = beneath(workspace, &path).map_err(|why| format!("`cwd`: {why}"))?;
    let within = |path: &Path, top: &Path| path.starts_with(top);
    let real = std::fs::canonicalize(place.as_path()).ok().zip(std::fs::canonicalize(workspace).ok());
    // What is only in the agent's own copy is not known out here; a link there leads elsewhere behind the wall.
    if !within(place.as_path(), workspace) || real.is_some_and(|(place, top)| !within(&place, &top)) {
        return Err("`cwd` is not in the workspace".to_owned());
    }
    Ok(Some(place.as_path().to_owned()))
}

/// Variables that a program can have.
pub(crate) fn variables(env: BTreeMap<String, String>) -> Result<BTreeMap<String, String>, String> {
    if env.len() > MOST_VARIABLES {
        return Err(format!("`env` has {} variables, and {MOST_VARIABLES} are the most", env.len()));
    }
    for (name, value) in &env {
        let is_name = !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit());
        if !is_name || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') || value.contains('\0') {
            return Err(format!("`env`: `{}` is no variable", escape(name)));
        }
    }
    Ok(env)
}

/// How long something may take.
pub(crate) fn time(seconds: Option<f64>) -> Result<Option<Duration>, String> {
    match seconds {
        None => Ok(None),
        Some(seconds) if seconds > 0.0 && seconds <= MOST_SECONDS => Ok(Some(Duration::from_secs_f64(seconds))),
        Some(_) => Err(format!("`timeout_seconds` must lie between 0 and {MOST_SECONDS}")),
    }
}

fn write_file(given: Map<String, Value>, workspace: &Path) -> Result<Order, String> {
    let Written { path, content, content_base64 } = parse(given)?;
    Ok(Order::WriteFile(beneath(workspace, &path)?, contents(content, content_base64)?))
}

/// The new contents of a file, as one of the two.
pub(crate) fn contents(content: Option<String>, content_base64: Option<String>) -> Result<Vec<u8>, String> {
    let bytes = match (content, content_base64) {
        (Some(text), None) => text.into_bytes(),
        (None, Some(text)) => base64::engine::general_purpose::STANDARD
            .decode(text.as_bytes())
            .map_err(|error| format!("`content_base64` is not base64: {error}"))?,
        (Some(_), Some(_)) | (None, None) => return Err("give either `content` or `content_base64`".to_owned()),
    };
    if bytes.len() > MOST_WRITTEN {
        return Err(format!("a file of {} bytes is too long: {MOST_WRITTEN} are the most", bytes.len()));
    }
    Ok(bytes)
}

/// A path as it was given, from the workspace on.
fn beneath(workspace: &Path, path: &str) -> Result<SafePath, String> {
    SafePath::new(workspace.join(path)).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(name: &str, given: Value) -> Result<Order, String> {
        let Value::Object(given) = given else { panic!("{given} is no object") };
        read(name, given, Path::new("/work")).unwrap()
    }

    #[test]
    fn arguments_are_read_strictly() {
        let plain = Shell {
            work: Work::Script("ls".into()),
            stdin: Vec::new(),
            cwd: Some("/work/src".into()),
            time: Some(Duration::from_millis(1500)),
            variables: BTreeMap::from([("A_1".to_owned(), "x".to_owned())]),
            changes: Changes::Refused,
        };
        let given = json!({"script": "ls", "cwd": "src", "timeout_seconds": 1.5, "env": {"A_1": "x"}});
        assert_eq!(check("shell_read_only", given), Ok(Order::Shell(plain)));
        for bad in [
            json!({}),
            json!({"script": 1}),
            json!({"script": "ls", "scirpt": "ls"}),
            json!({"script": "a\0b"}),
            json!({"script": "x".repeat(MOST_SCRIPT + 1)}),
            json!({"script": "ls", "timeout_seconds": 0}),
            json!({"script": "ls", "timeout_seconds": 1e300}),
            json!({"script": "ls", "env": {"A=B": ""}}),
            json!({"script": "ls", "env": {"": ""}}),
            json!({"script": "ls", "env": ["A"]}),
        ] {
            assert!(check("shell", bad.clone()).is_err(), "{bad}");
        }
        assert_eq!(read("rm", Map::new(), Path::new("/")), None);
    }

    #[test]
    fn paths_begin_at_the_workspace_and_do_not_climb() {
        let path = |text: &str| SafePath::new(text).unwrap();
        assert_eq!(check("read_file", json!({"path": "a/b"})), Ok(Order::ReadFile(path("/work/a/b"))));
        assert_eq!(check("list_dir", json!({"path": ""})), Ok(Order::ListDir(path("/work"))));
        assert_eq!(check("list_dir", json!({"path": "/etc"})), Ok(Order::ListDir(path("/etc"))));
        for bad in ["../x", "a/../../x", "a\u{1b}b"] {
            assert!(check("read_file", json!({"path": bad})).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_file_has_one_content() {
        let path = SafePath::new("/work/f").unwrap();
        let expected = Order::WriteFile(path, vec![0, 255]);
        assert_eq!(check("write_file", json!({"path": "f", "content_base64": "AP8="})), Ok(expected));
        for bad in
            [json!({"path": "f"}), json!({"path": "f", "content": "", "content_base64": ""}), json!({"path": "f", "content_base64": "%"})]
        {
            assert!(check("write_file", bad.clone()).is_err(), "{bad}");
        }
    }
}
