//! The real `server-everything` behind the proxy, driven by the official Python client in both eras.

use serde_json::Value;

use super::super::real::{installed, python};
use super::{receipts, rules, verified};
use crate::wall::Who;
use crate::wall::ground::{Ground, finish};

const PERMIT: &str = r#"
permit (principal is Stockade::Human, action, resource);
permit (principal is Stockade::Agent, action in Stockade::Action::"invoke", resource in Stockade::Pack::"mcp.everything");
@id("no-environment")
forbid (principal, action == Stockade::Action::"mcp.everything.get-env", resource);
"#;

const PROGRAM: &str = r#"
import asyncio, json, sys
from mcp import Client, Implementation
from mcp.client.stdio import StdioServerParameters

async def main(binary, mode, home, state, *args):
    server = StdioServerParameters(command=binary, args=list(args), env={"HOME": home, "XDG_STATE_HOME": state, "PATH": "/usr/bin:/bin"})
    said = {}
    async with Client(server, mode=mode, client_info=Implementation(name="python", version="1")) as client:
        said["tools"] = [tool.name for tool in (await client.list_tools()).tools]
        if "echo" in said["tools"]:
            said["echo"] = (await client.call_tool("echo", {"message": "hi"})).content[0].text
            said["sum"] = (await client.call_tool("get-sum", {"a": 2, "b": 3})).content[0].text
            said["image"] = [part.type for part in (await client.call_tool("get-tiny-image", {})).content]
            said["structured"] = (await client.call_tool("get-structured-content", {"location": "Chicago"})).structured_content
            denied = await client.call_tool("get-env", {})
            said["denied"] = [denied.is_error, denied.content[0].text]
    print(json.dumps(said))

asyncio.run(main(*sys.argv[1:]))
"#;

#[test]
fn server_everything_works_behind_the_proxy() {
    let server = installed("server-everything");
    let program = server.join("node_modules/@modelcontextprotocol/server-everything/dist/index.js");
    let (server, program) = (server.to_str().expect("text"), program.to_str().expect("text"));
    for (who, mode) in [(Who::Ordinary, "legacy"), (Who::Root, "auto")] {
        let ground = Ground::new(who);
        ground.plant(&ground.base.join("client.py"), PROGRAM, 0o644);
        let mount = format!("{server}:{server}");
        let drive = || {
            let mut command = ground.outside(python());
            command.arg(ground.base.join("client.py")).arg(&ground.binary).arg(mode).arg(&ground.home).arg(&ground.state);
            command.args(["mcp", "proxy", "--server", "everything", "--mount", &mount, "--", "node", program, "stdio"]);
            let outcome = finish(&mut command);
            assert_eq!(outcome.code, Some(0), "{mode}: {outcome:?}");
            serde_json::from_str::<Value>(&outcome.stdout).unwrap_or_else(|error| panic!("{mode}: {error}: {outcome:?}"))
        };
        assert_eq!(drive()["tools"], serde_json::json!([]), "{mode}");
        let shown = finish(&mut ground.stockade(["mcp", "tools", "show", "everything"]));
        let digest = shown.stdout.trim().rsplit(' ').next().expect("a digest").to_owned();
        let accepted = finish(&mut ground.stockade(["mcp", "tools", "accept", "everything", "--digest", &digest]));
        assert_eq!(accepted.code, Some(0), "{mode}: {accepted:?}");
        rules(&ground, PERMIT);
        let said = drive();
        assert!(said["tools"].as_array().is_some_and(|tools| tools.len() >= 8), "{mode}: {said}");
        assert_eq!(said["echo"], "Echo: hi", "{mode}: {said}");
        assert!(said["sum"].as_str().is_some_and(|text| text.contains('5')), "{mode}: {said}");
        assert!(said["image"].as_array().is_some_and(|parts| parts.contains(&"image".into())), "{mode}: {said}");
        assert!(said["structured"].is_object(), "{mode}: {said}");
        assert_eq!(said["denied"][0], true, "{mode}: {said}");
        assert!(said["denied"][1].as_str().expect("text").contains("no-environment"), "{mode}: {said}");
        let outcomes = receipts(&ground).into_iter().filter(|one| one["kind"] == "outcome" && one["capability"] != Value::Null).count();
        assert_eq!(outcomes, 4, "{mode}");
        verified(&ground);
    }
}
