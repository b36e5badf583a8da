//! MCP servers over HTTPS behind `mcp proxy`: through egress, with a placeholder for the token, one host, and an end of what they say.

use serde_json::{Value, json};

use super::world::{VALUE, words};
use super::{World, as_both};
use crate::mcp::{python, receipts, rules, verified};
use crate::wall::ground::finish;

const PERMIT: &str = r#"
permit (principal is Stockade::Human, action, resource);
permit (principal is Stockade::Agent, action in Stockade::Action::"invoke", resource in Stockade::Pack::"mcp.far");
"#;

const CLIENT: &str = r#"
import asyncio, json, os, resource, sys
from mcp import Client, Implementation
from mcp.client.stdio import StdioServerParameters

async def main(*words):
    env = {name: os.environ[name] for name in ["HOME", "XDG_STATE_HOME", "PATH", "SSL_CERT_FILE", "TOKEN"]}
    server = StdioServerParameters(command=words[0], args=list(words[1:]), env=env)
    said = {}
    async with Client(server, mode="legacy", client_info=Implementation(name="python", version="1")) as client:
        said["tools"] = [tool.name for tool in (await client.list_tools()).tools]
        for name in said["tools"]:
            # An agent that got hold of the value all the same.
            result = await client.call_tool(name, {"message": "hi " + os.environ["TOKEN"]})
            said[name] = [bool(result.is_error), result.content[0].text]
    said["peak"] = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    print(json.dumps(said))

asyncio.run(main(*sys.argv[1:]))
"#;

fn flags(port: u16) -> Vec<String> {
    let words = ["--secret".to_owned(), format!("TOKEN@api.test:{port}"), "--allow-host".to_owned(), format!("127.0.0.1:{port}")];
    words.into_iter().chain(["--timeout".to_owned(), "20s".to_owned()]).collect()
}

/// `stockade mcp proxy --server far --url …`, as the official client starts it.
fn drive(world: &World, url: &str, port: u16) -> Value {
    let client = world.outside.join("client.py");
    world.plant(&client, CLIENT, 0o644);
    let (python, client) = (python(), client.to_str().expect("text").to_owned());
    let flags = flags(port);
    let proxy = [world.binary.to_str().expect("text"), "mcp", "proxy", "--server", "far", "--url", url];
    let all = [python.to_str().expect("text"), client.as_str()].into_iter().chain(proxy).chain(words(&flags));
    let outcome = finish(&mut world.command(all));
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{error}: {outcome:?}"))
}

#[test]
fn a_server_over_https_is_reached_through_egress_alone() {
    as_both(|world| {
        let server = world.serve("python3", "far.py", include_str!("far.py"), "");
        let port = server.ports[0];
        let url = format!("https://api.test:{port}/mcp");
        assert_eq!(drive(world, &url, port)["tools"], json!([]), "nobody accepted any");
        let shown = world.stockade(&["mcp", "tools", "show", "far"]);
        assert!(shown.stdout.contains(&format!("from {url}")), "{shown:?}");
        let digest = shown.stdout.trim().rsplit(' ').next().expect("a digest").to_owned();
        assert_eq!(world.stockade(&["mcp", "tools", "accept", "far", "--digest", &digest]).code, Some(0));
        rules(&world.ground, PERMIT);
        let said = drive(world, &url, port);
        for tool in ["echo", "events"] {
            assert_eq!(said[tool][0], false, "{said}");
            let words = said[tool][1].as_str().expect("text");
            // The server got the real token, and its echo of that was taken out.
            assert!(words.starts_with("hi ghp_") && words.contains(" for Bearer ghp_") && !words.contains(VALUE), "{said}");
        }
        assert_eq!((&said["page"][0], &said["endless"][0]), (&json!(true), &json!(true)), "{said}");
        assert!(said["peak"].as_u64().is_some_and(|peak| peak < 300 << 10), "1 GB is not held: {said}");
        let all = receipts(&world.ground);
        assert!(!serde_json::to_string(&all).expect("JSON").contains(VALUE));
        let kept = world.host(&format!("grep -rlF {VALUE} {} || true", world.state.display()));
        assert_eq!(kept, "", "nor is it in what is kept beside them");
        let own = all.iter().rfind(|one| one["kind"] == "outcome" && one["capability"] == "stockade.mcp.proxy").expect("its own receipt");
        let row = &own["network"][0];
        assert_eq!((&row["host"], &row["secret"], &row["verdict"]), (&json!("api.test"), &json!("TOKEN"), &json!("allow")), "{own}");
        verified(&world.ground);
        world.all_ended();
        assert_eq!(world.sandboxes(), Vec::<String>::new());
    });
}

#[test]
fn it_is_held_to_https_its_host_and_the_rules() {
    let world = World::new(crate::wall::Who::Ordinary);
    let server = world.serve("python3", "far.py", include_str!("far.py"), "");
    let port = server.ports[0];
    let (plain, redirect, good) =
        (format!("http://api.test:{port}/mcp"), format!("https://api.test:{port}/redirect"), format!("https://api.test:{port}/mcp"));
    let flags = flags(port);
    let start = |url: &str| world.stockade(&[&["mcp", "proxy", "--server", "far", "--url", url], words(&flags).as_slice()].concat());
    let refused = start(&plain);
    assert!(refused.code == Some(125) && refused.stderr.contains("only `https` is spoken"), "{refused:?}");
    let led = start(&redirect);
    assert!(led.code == Some(125) && led.stderr.contains("of no use") && led.stderr.contains("307"), "{led:?}");
    let asked = std::fs::read_to_string(world.outside.join("asked.txt")).expect("asked");
    assert!(asked.contains("/redirect") && !asked.contains("other.test"), "{asked}");
    // Another authority than the server's own: its certificate counts for nothing.
    let command = ["env", "-u", "SSL_CERT_FILE", world.binary.to_str().expect("text"), "mcp", "proxy", "--server", "far", "--url", &good];
    let untrusted = finish(&mut world.command(command.into_iter().chain(words(&flags))));
    assert!(untrusted.code == Some(125) && untrusted.stderr.contains("of no use"), "{untrusted:?}");
    rules(&world.ground, "permit (principal is Stockade::Human, action == Stockade::Action::\"exec\", resource);");
    let denied = start(&good);
    assert!(denied.code == Some(126) && denied.stderr.contains("no `connect` rule permits"), "{denied:?}");
    world.all_ended();
    assert_eq!(world.sandboxes(), Vec::<String>::new());
}
