//! Approvals over HTTP: the official Python client is asked, with a session and without.

use serde_json::{Value, json};

use super::server::Server;
use crate::mcp::{ASKS, OWN_WORD, python, receipts, rules};
use crate::wall::Who;
use crate::wall::ground::{Ground, finish};

const PROGRAM: &str = r#"
import asyncio, json, sys
from mcp import Client, Implementation
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client
from mcp.types import ElicitResult

async def main(url, token, mode):
    said = {"asked": 0}
    async def answer(context, params):
        said["asked"] += 1
        if "touch yes" in params.message:
            return ElicitResult(action="accept", content={"approve": True})
        return ElicitResult(action="cancel")
    async with create_mcp_http_client(headers={"Authorization": f"Bearer {token}"}) as http:
        server = streamable_http_client(url, http_client=http)
        info = Implementation(name=f"python-{mode}", version="1")
        async with Client(server, mode=mode, client_info=info, elicitation_callback=answer) as client:
            for word in ["yes", "no"]:
                result = await client.call_tool("shell", {"script": f"touch {word}"})
                said[word] = result.structured_content
    print(json.dumps(said))

asyncio.run(main(*sys.argv[1:]))
"#;

#[test]
fn the_python_client_is_asked_over_http_in_both_eras() {
    let ground = Ground::new(Who::Ordinary);
    rules(&ground, &format!("{ASKS}{OWN_WORD}"));
    let server = Server::new(&ground);
    let program = ground.base.join("client.py");
    ground.plant(&program, PROGRAM, 0o644);
    for mode in ["legacy", "auto"] {
        let url = format!("http://127.0.0.1:{}/mcp", server.port);
        let outcome = finish(ground.outside(python()).arg(&program).args([&url, &server.token, mode]));
        assert_eq!(outcome.code, Some(0), "{mode}: {outcome:?}");
        let said: Value = serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{mode}: {error}: {outcome:?}"));
        assert_eq!((&said["asked"], &said["yes"]["exit_code"]), (&json!(2), &json!(0)), "{mode}: {said}");
        assert_eq!(said["no"]["approval"]["state"], "denied", "{mode}: {said}");
    }
    let approved = receipts(&ground).into_iter().filter(|one| one["kind"] == "intent" && one["approval"]["method"] == "elicitation");
    assert_eq!(approved.count(), 2);
}

/// A call that is held is there for the next connection of its agent, and `approval_wait` runs it there.
#[test]
fn without_a_session_a_request_is_waited_for_by_the_next_call() {
    let ground = Ground::new(Who::Ordinary);
    rules(&ground, ASKS);
    let server = Server::new(&ground);
    let asked = server.call("shell", &json!({"script": "touch x; echo made"}));
    let id = asked["structuredContent"]["decision"]["approval_id"].as_str().expect("a request").to_owned();
    let approved = finish(&mut ground.stockade(["approvals", "approve", &id]));
    assert_eq!(approved.code, Some(0), "{approved:?}");
    let ran = server.call("approval_wait", &json!({"approval_id": id}));
    assert_eq!(ran["structuredContent"]["stdout"], "made\n", "{ran}");
}
