//! A client of `stockade mcp`: lines of JSON on two pipes, and nothing else that could cost time.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// A server and the pipes to it. Dropping closes them, and the server ends.
pub(super) struct Client {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    next: u64,
}

impl Client {
    /// Starts a server and shakes hands with it.
    pub(super) fn start(command: &mut Command) -> Result<Self, String> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(|error| error.to_string())?;
        let (input, output) = (child.stdin.take(), child.stdout.take().ok_or("the server has no output")?);
        let mut client = Self { child, input, output: BufReader::new(output), next: 0 };
        let about = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "bench", "version": "1" } });
        client.send("initialize", &about)?;
        client.receive()?;
        client.write(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))?;
        client.send("tools/list", &json!({}))?;
        client.receive()?;
        Ok(client)
    }

    /// One call, from its first byte to the last of its answer.
    pub(super) fn call(&mut self, tool: &str) -> Result<Duration, String> {
        let begin = Instant::now();
        self.ask(tool)?;
        let answer = self.receive()?;
        let time = begin.elapsed();
        judge(tool, &answer).map(|()| time)
    }

    /// So many callers, each of whom calls again when it has its answer.
    pub(super) fn call_many(&mut self, tool: &str, callers: usize, each: usize) -> Result<Duration, String> {
        let begin = Instant::now();
        for _ in 0..callers {
            self.ask(tool)?;
        }
        for left in (0..callers * each).rev() {
            judge(tool, &self.receive()?)?;
            if left >= callers {
                self.ask(tool)?;
            }
        }
        Ok(begin.elapsed())
    }

    fn ask(&mut self, tool: &str) -> Result<(), String> {
        self.send("tools/call", &json!({ "name": tool, "arguments": {} }))
    }

    fn send(&mut self, method: &str, params: &Value) -> Result<(), String> {
        self.next += 1;
        self.write(&json!({ "jsonrpc": "2.0", "id": self.next, "method": method, "params": params }))
    }

    fn write(&mut self, message: &Value) -> Result<(), String> {
        let input = self.input.as_mut().ok_or("the pipe is closed")?;
        input.write_all(format!("{message}\n").as_bytes()).map_err(|error| error.to_string())
    }

    /// The next answer.
    fn receive(&mut self) -> Result<Value, String> {
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line).map_err(|error| error.to_string())? == 0 {
                return Err("the server is gone".to_owned());
            }
            let message: Value = serde_json::from_str(&line).map_err(|error| error.to_string())?;
            if message.get("id").is_some() {
                return Ok(message);
            }
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        drop(self.input.take());
        // It ends with its input.
        let _ = self.child.wait();
    }
}

/// What was called must have ended as its name says.
fn judge(tool: &str, answer: &Value) -> Result<(), String> {
    let result = answer.get("result").ok_or_else(|| answer.to_string())?;
    let is_error = result.get("isError").and_then(Value::as_bool) == Some(true);
    if is_error == (tool == super::DENIED) { Ok(()) } else { Err(result.to_string()) }
}
