//! The official Python client, in both eras: it checks every result against the tool's schema.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::{ASKS, DEVELOPER, OWN_WORD, receipts, rules};
use crate::Outcome;
use crate::wall::Who;
use crate::wall::ground::{Ground, finish};

const PROGRAM: &str = r#"
import asyncio, json, sys
from mcp import Client, Implementation
from mcp.client.stdio import StdioServerParameters

async def main(binary, mode, home, state):
    server = StdioServerParameters(command=binary, args=["mcp"], env={"HOME": home, "XDG_STATE_HOME": state})
    said = {}
    async with Client(server, mode=mode, client_info=Implementation(name="python", version="1")) as client:
        said["tools"] = [tool.name for tool in (await client.list_tools()).tools]
        progress = []
        async def tell(done, total, message):
            progress.append(done)
        ran = await client.call_tool("shell", {"script": "echo hi > f; cat f; sleep 1.1"}, progress_callback=tell)
        said["ran"] = ran.structured_content
        said["text"] = ran.content[0].text
        said["progress"] = len(progress)
        read = await client.call_tool("read_file", {"path": "f"})
        said["read"] = read.structured_content["content"]
        denied = await client.call_tool("shell", {"script": "git push"})
        said["denied"] = [denied.is_error, denied.content[0].text]
    print(json.dumps(said))

asyncio.run(main(*sys.argv[1:]))
"#;

/// Asked through the client: what it says to each of two calls, and what came of them.
const ELICITED: &str = r#"
import asyncio, json, sys
from mcp import Client, Implementation
from mcp.client.stdio import StdioServerParameters
from mcp.types import ElicitResult

async def main(binary, mode, home, state):
    server = StdioServerParameters(command=binary, args=["mcp"], env={"HOME": home, "XDG_STATE_HOME": state})
    said = {"asked": []}
    async def answer(context, params):
        said["asked"].append(params.message)
        if "touch yes" in params.message:
            return ElicitResult(action="accept", content={"approve": True})
        return ElicitResult(action="decline")
    info = Implementation(name="python", version="1")
    async with Client(server, mode=mode, client_info=info, elicitation_callback=answer) as client:
        for word in ["yes", "no"]:
            result = await client.call_tool("shell", {"script": f"touch {word}"})
            said[word] = [result.is_error, result.structured_content]
        said["files"] = (await client.call_tool("list_dir", {"path": "."})).structured_content["entries"]
    print(json.dumps(said))

asyncio.run(main(*sys.argv[1:]))
"#;

/// Where something that `cargo xtask test` installed is.
#[expect(clippy::disallowed_methods, reason = "where clients are installed is the caller's to say")]
pub(crate) fn installed(name: &str) -> PathBuf {
    let named = std::env::var_os("STOCKADE_TEST_AGENTS").map(PathBuf::from);
    let tools = named.unwrap_or_else(|| panic!("STOCKADE_TEST_AGENTS is not set: `cargo xtask test` installs the clients and sets it"));
    tools.join(name)
}

/// The SDK for agents is built on the client.
pub(crate) fn python() -> PathBuf {
    installed("python-claude-agent-sdk/bin/python")
}

/// What a program of the client says.
fn drive(ground: &Ground, mode: &str, text: &str) -> (Outcome, Value) {
    let program = ground.base.join("client.py");
    ground.plant(&program, text, 0o644);
    let binary = ground.stockade(["mcp"]).get_program().to_owned();
    let mut command = ground.outside(python());
    command.arg(&program).arg(binary).arg(mode).arg(&ground.home).arg(&ground.state);
    let outcome = finish(&mut command);
    assert_eq!(outcome.code, Some(0), "{mode}: {outcome:?}");
    let said: Value = serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{mode}: {error}: {outcome:?}"));
    (outcome, said)
}

#[test]
fn the_python_client_is_asked_in_both_eras() {
    for (who, mode) in [(Who::Ordinary, "legacy"), (Who::Root, "auto")] {
        let ground = Ground::new(who);
        rules(&ground, &format!("{ASKS}{OWN_WORD}"));
        let (_, said) = drive(&ground, mode, ELICITED);
        assert_eq!(said["asked"].as_array().map(Vec::len), Some(2), "{mode}: {said}");
        assert!(said["asked"][0].as_str().expect("words").contains("script      | touch yes"), "{mode}: {said}");
        assert_eq!((&said["yes"][0], &said["yes"][1]["exit_code"]), (&json!(false), &json!(0)), "{mode}: {said}");
        assert_eq!((&said["no"][0], &said["no"][1]["approval"]["state"]), (&json!(true), &json!("denied")), "{mode}: {said}");
        assert_eq!(said["files"].as_array().map(Vec::len), Some(1), "{mode}: {said}");
        let methods: Vec<Value> = receipts(&ground).into_iter().map(|one| one["approval"]["method"].clone()).collect();
        assert_eq!(methods.iter().filter(|method| **method == "elicitation").count(), 4, "{mode}: {methods:?}");
    }
}

#[test]
fn the_python_client_works_in_both_eras() {
    for (who, mode) in [(Who::Ordinary, "legacy"), (Who::Root, "auto")] {
        let ground = Ground::new(who);
        rules(&ground, DEVELOPER);
        let (outcome, said) = drive(&ground, mode, PROGRAM);
        assert_eq!(said["tools"][0], "shell", "{mode}: {said}");
        assert_eq!((&said["ran"]["stdout"], &said["read"]), (&"hi\n".into(), &"hi\n".into()), "{mode}: {said}");
        assert_eq!(said["text"], "hi\n", "{mode}: {said}");
        assert!(said["progress"].as_u64() >= Some(1), "{mode}: {said}");
        assert_eq!(said["denied"][0], true, "{mode}: {said}");
        assert!(said["denied"][1].as_str().expect("text").contains("agents-do-not-push"), "{mode}: {said}");
        assert!(outcome.stderr.contains("1 file changed"), "{mode}: {outcome:?}");
        let agents: Vec<Value> = receipts(&ground).into_iter().map(|receipt| receipt["principal"]["agent"].clone()).collect();
        assert!(agents.iter().all(|agent| agent == "python/main") && agents.len() >= 5, "{mode}: {agents:?}");
    }
}
