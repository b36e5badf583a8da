//! A client that writes lines of JSON and reads lines of JSON, and knows nothing else.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};

use crate::wall::Ground;

/// Longer than anything here takes on the busiest machine.
const PATIENCE: Duration = Duration::from_mins(2);

/// A server and the two pipes to it.
pub(crate) struct Client {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<Value>,
    next: i64,
    /// What arrived while something else was waited for.
    aside: Vec<Value>,
}

impl Client {
    /// Starts a server and shakes hands with it, in the era of `initialize`.
    pub(crate) fn new(ground: &Ground) -> Self {
        Self::known_as(ground, "by hand", &json!({}))
    }

    /// The same by another name, and able to do this.
    pub(crate) fn known_as(ground: &Ground, name: &str, capabilities: &Value) -> Self {
        Self::bare(ground, &[]).greeting(name, capabilities)
    }

    /// Shakes hands with a server that was started.
    pub(crate) fn greeted(client: Self) -> Self {
        client.greeting("by hand", &json!({}))
    }

    fn greeting(self, name: &str, capabilities: &Value) -> Self {
        let mut client = self;
        let answer = client.ask(
            "initialize",
            &json!({
                "protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": { "name": name, "version": "1" },
            }),
        );
        assert_eq!(answer["result"]["serverInfo"]["name"], "stockade", "{answer}");
        assert_eq!(answer["result"]["protocolVersion"], "2025-11-25", "{answer}");
        client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        client
    }

    /// Starts a server and says nothing.
    pub(crate) fn bare(ground: &Ground, flags: &[&str]) -> Self {
        let mut command = ground.stockade(["mcp"].iter().chain(flags));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the server starts");
        let (input, output) = (child.stdin.take(), child.stdout.take().expect("a pipe"));
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let value = serde_json::from_str(&line).unwrap_or_else(|error| json!({ "not the protocol": format!("{error}: {line}") }));
                if send.send(value).is_err() {
                    return;
                }
            }
        });
        Self { child, input, lines, next: 0, aside: Vec::new() }
    }

    /// Writes one line.
    pub(crate) fn send(&mut self, message: &Value) {
        self.write(format!("{message}\n").as_bytes());
    }

    /// Writes bytes.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.input.as_mut().expect("open").write_all(bytes).expect("written");
    }

    /// Sends a request and does not wait.
    pub(crate) fn request(&mut self, method: &str, params: &Value) -> i64 {
        self.next += 1;
        self.send(&json!({ "jsonrpc": "2.0", "id": self.next, "method": method, "params": params }));
        self.next
    }

    /// The next message, whatever it is.
    pub(crate) fn message(&mut self) -> Value {
        let value = self.lines.recv_timeout(PATIENCE).expect("a message");
        assert!(value.get("not the protocol").is_none(), "{value}");
        value
    }

    /// The answer to a request.
    pub(crate) fn answer(&mut self, id: i64) -> Value {
        if let Some(at) = self.aside.iter().position(|value| value["id"] == id) {
            return self.aside.remove(at);
        }
        loop {
            let value = self.message();
            if value["id"] == id {
                return value;
            }
            self.aside.push(value);
        }
    }

    /// The next message of this kind that the server sends by itself.
    pub(crate) fn told(&mut self, method: &str) -> Value {
        if let Some(at) = self.aside.iter().position(|value| value["method"] == method) {
            return self.aside.remove(at);
        }
        loop {
            let value = self.message();
            if value["method"] == method {
                return value;
            }
            self.aside.push(value);
        }
    }

    /// What arrived besides answers that were waited for.
    pub(crate) fn aside(&self) -> &[Value] {
        &self.aside
    }

    /// A request and its answer.
    pub(crate) fn ask(&mut self, method: &str, params: &Value) -> Value {
        let id = self.request(method, params);
        self.answer(id)
    }

    /// A tool call and its result.
    pub(crate) fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        let answer = self.ask("tools/call", &json!({ "name": tool, "arguments": arguments }));
        answer.get("result").cloned().unwrap_or_else(|| panic!("{tool}: {answer}"))
    }

    /// A script and its result.
    pub(crate) fn shell(&mut self, script: &str) -> Value {
        self.call("shell", &json!({ "script": script }))
    }

    /// A tool call of somebody who wants progress, not waited for.
    pub(crate) fn begin_patiently(&mut self, tool: &str, arguments: &Value) -> i64 {
        self.request("tools/call", &json!({ "name": tool, "arguments": arguments, "_meta": { "progressToken": "tok" } }))
    }

    /// A tool call that is not waited for.
    pub(crate) fn begin(&mut self, tool: &str, arguments: &Value) -> i64 {
        self.request("tools/call", &json!({ "name": tool, "arguments": arguments }))
    }

    /// Closes the input and gives the code and what was said on stderr.
    pub(crate) fn close(mut self) -> (Option<i32>, String) {
        drop(self.input.take());
        self.ended()
    }

    /// Waits for its end.
    pub(crate) fn ended(mut self) -> (Option<i32>, String) {
        let mut said = String::new();
        let mut stderr = self.child.stderr.take().expect("a pipe");
        stderr.read_to_string(&mut said).expect("stderr is UTF-8");
        (self.child.wait().expect("an end").code(), said)
    }

    /// The server's process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
