//! `stockade mcp proxy`: another MCP server behind the wall, its tools accepted by a person, its calls judged and recorded.

mod accepted;
mod hostile;
mod judged;
mod real;

use serde_json::{Value, json};

use super::client::Client;
use super::{receipts, rules, verified};
use crate::Outcome;
use crate::wall::Ground;
use crate::wall::ground::finish;

const SERVER: &str = include_str!("server.py");
/// The person may do anything; agents may call every tool of the server `demo`.
const PERMIT: &str = r#"
permit (principal is Stockade::Human, action, resource);
@id("demo")
permit (principal is Stockade::Agent, action in Stockade::Action::"invoke", resource in Stockade::Pack::"mcp.demo");
"#;

/// Puts the server into the workspace; `mode` says how it begins.
fn plant(ground: &Ground, mode: &str) {
    ground.file("server.py", SERVER);
    ground.file("mode", mode);
}

/// Starts the proxy, and says nothing.
fn started(ground: &Ground, flags: &[&str]) -> Client {
    let words = ["proxy", "--server", "demo"].iter().chain(flags).chain(&["--", "/usr/bin/python3", "server.py"]);
    Client::bare(ground, &words.copied().collect::<Vec<_>>())
}

/// Starts the proxy and shakes hands.
fn proxy(ground: &Ground, flags: &[&str]) -> Client {
    Client::greeted(started(ground, flags))
}

/// `stockade mcp tools …`
fn tools(ground: &Ground, words: &[&str]) -> Outcome {
    finish(&mut ground.stockade(["mcp", "tools"].iter().chain(words)))
}

/// Accepts everything that waits.
fn accept(ground: &Ground, flags: &[&str]) {
    let shown = tools(ground, &["show", "demo", "--json"]);
    let value: Value = serde_json::from_str(&shown.stdout).unwrap_or_else(|error| panic!("{error}: {shown:?}"));
    let digest = value["digest"].as_str().expect("a digest");
    let accepted = tools(ground, &[&["accept", "demo", "--digest", digest], flags].concat());
    assert_eq!(accepted.code, Some(0), "{accepted:?}");
}

/// A client of a server whose tools were all accepted, and may all be called.
fn ready(ground: &Ground, flags: &[&str]) -> Client {
    plant(ground, "");
    let mut client = proxy(ground, flags);
    assert_eq!(offered(&mut client), Vec::<String>::new());
    accept(ground, &[]);
    rules(ground, PERMIT);
    client
}

/// The names of the tools that are offered.
fn offered(client: &mut Client) -> Vec<String> {
    let listed = client.ask("tools/list", &json!({}));
    let tools = listed["result"]["tools"].as_array().unwrap_or_else(|| panic!("{listed}"));
    tools.iter().map(|tool| tool["name"].as_str().expect("a name").to_owned()).collect()
}

/// The words of a result.
fn words(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{result}"))
}
