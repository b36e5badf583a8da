//! A server, and a client that writes requests as text.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::wall::Ground;

/// Longer than anything here takes on the busiest machine.
const PATIENCE: Duration = Duration::from_mins(2);

/// A server that runs.
pub(crate) struct Server {
    child: Child,
    stderr: BufReader<std::process::ChildStderr>,
    /// Everything it said until it listened.
    pub(crate) said: String,
    pub(crate) port: u16,
    pub(crate) token: String,
}

/// What came back.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Server {
    /// Starts one at a port that is free.
    pub(crate) fn new(ground: &Ground) -> Self {
        Self::with(ground, &[])
    }

    /// The same with more flags. The token is that which was shown, if one was.
    pub(crate) fn with(ground: &Ground, flags: &[&str]) -> Self {
        Self::at(ground, "127.0.0.1:0", flags)
    }

    /// The same at an address.
    pub(crate) fn at(ground: &Ground, address: &str, flags: &[&str]) -> Self {
        let words = ["serve", "--listen", address];
        let mut command = ground.stockade(words.iter().chain(flags));
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the server starts");
        let mut stderr = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut said = String::new();
        while !said.contains("/mcp\n") {
            let read = stderr.read_line(&mut said).expect("stderr is UTF-8");
            assert!(read > 0, "the server ended: {said}");
        }
        let port = said.rsplit_once("/mcp").and_then(|(before, _)| before.rsplit_once(':')).expect("an address").1;
        let port = port.parse().expect("a port");
        let token = said.lines().find_map(|line| line.split_once("stk_")).map_or_else(String::new, |(_, rest)| format!("stk_{rest}"));
        Self { child, stderr, said, port, token }
    }

    /// A connection.
    #[expect(clippy::disallowed_methods, reason = "the client that the server is tested with")]
    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).expect("connected");
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        stream
    }

    /// Sends text and reads until the other side closes.
    pub(crate) fn raw(&self, text: &[u8]) -> String {
        let mut stream = self.connect();
        // A server that has heard enough may close before all is sent.
        let _ = stream.write_all(text);
        let _ = stream.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// A request with these fields, `Host` and the length besides, over a connection of its own.
    pub(crate) fn request(&self, what: &str, fields: &[(&str, &str)], body: &str) -> Answer {
        let mut stream = self.connect();
        stream.write_all(self.text(what, fields, body).as_bytes()).expect("sent");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("an answer");
        Answer::parse(&String::from_utf8(answer).expect("UTF-8"))
    }

    /// The text of such a request.
    pub(crate) fn text(&self, what: &str, fields: &[(&str, &str)], body: &str) -> String {
        let mut text = format!("{what} HTTP/1.1\r\nConnection: close\r\n");
        if !fields.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            write!(text, "Host: 127.0.0.1:{}\r\n", self.port).expect("written");
        }
        for (name, value) in fields {
            write!(text, "{name}: {}\r\n", value.replace("TOKEN", &self.token)).expect("written");
        }
        text + &format!("Content-Length: {}\r\n\r\n{body}", body.len())
    }

    /// A JSON-RPC request without a session.
    pub(crate) fn modern(&self, method: &str, name: &str, params: Value) -> Answer {
        self.request("POST /mcp", &modern_fields(method, name), &modern_body(method, params))
    }

    /// A tool call without a session, and its result.
    pub(crate) fn call(&self, tool: &str, arguments: &Value) -> Value {
        let answer = self.modern("tools/call", tool, json!({ "name": tool, "arguments": arguments }));
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.message()["result"].clone()
    }

    /// A JSON-RPC message in a session; none opens one. The answer, and the session's name.
    pub(crate) fn legacy(&self, session: Option<&str>, message: &Value) -> (Answer, Option<String>) {
        let mut fields = MCP.to_vec();
        if let Some(session) = session {
            fields.extend([("Mcp-Session-Id", session), ("MCP-Protocol-Version", "2025-11-25")]);
        }
        let answer = self.request("POST /mcp", &fields, &message.to_string());
        let opened = answer.field("mcp-session-id");
        (answer, opened)
    }

    /// Shakes hands and gives the session's name.
    pub(crate) fn open(&self) -> String {
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "by hand", "version": "1"}});
        let (answer, session) = self.legacy(None, &json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}));
        let session = session.unwrap_or_else(|| panic!("no session: {answer:?}"));
        assert_eq!(answer.message()["result"]["serverInfo"]["name"], "stockade", "{answer:?}");
        let (answer, _) = self.legacy(Some(&session), &json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        assert_eq!(answer.status, 202, "{answer:?}");
        session
    }

    /// What the metrics say of one of them.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        let page = self.request("GET /metrics", &[BEARER], "").body;
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name}: {page}")).parse().expect("a number")
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(i32::try_from(self.child.id()).expect("a pid")).expect("a pid");
        rustix::process::kill_process(pid, signal).expect("sent");
    }

    /// Waits for its end; the code, and what it said since it listened.
    pub(crate) fn ended(mut self) -> (Option<i32>, String) {
        let mut said = String::new();
        self.stderr.read_to_string(&mut said).expect("stderr is UTF-8");
        (self.child.wait().expect("an end").code(), said)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The field that opens.
pub(crate) const BEARER: (&str, &str) = ("Authorization", "Bearer TOKEN");

/// What every message of MCP comes with.
pub(crate) const MCP: [(&str, &str); 3] = [BEARER, ("Content-Type", "application/json"), ("Accept", "application/json, text/event-stream")];

/// And what one without a session comes with besides.
pub(crate) fn modern_fields<'a>(method: &'a str, name: &'a str) -> Vec<(&'a str, &'a str)> {
    let mut fields = MCP.to_vec();
    fields.extend([("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", method)]);
    if !name.is_empty() {
        fields.push(("Mcp-Name", name));
    }
    fields
}

/// A message that says who sends it and how.
pub(crate) fn modern_body(method: &str, mut params: Value) -> String {
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = "2026-07-28".into();
    params["_meta"]["io.modelcontextprotocol/clientInfo"] = json!({"name": "by hand", "version": "1"});
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string()
}

impl Answer {
    /// From the bytes of a connection that was closed after it.
    fn parse(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("no status: {head}"));
        let body = if head.contains("transfer-encoding: chunked") { unchunked(body) } else { body.to_owned() };
        Self { status, head: head.to_owned(), body }
    }

    /// A field of the head.
    pub(crate) fn field(&self, name: &str) -> Option<String> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).map(str::to_owned)
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The messages in it, whether one or a stream.
    pub(crate) fn messages(&self) -> Vec<Value> {
        if self.field("content-type").as_deref() != Some("text/event-stream") {
            return vec![self.json()];
        }
        let data = self.body.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim).filter(|data| !data.is_empty());
        data.map(|data| serde_json::from_str(data).unwrap_or_else(|error| panic!("{error}: {self:?}"))).collect()
    }

    /// The last of them.
    pub(crate) fn message(&self) -> Value {
        self.messages().pop().unwrap_or_else(|| panic!("no message: {self:?}"))
    }

    /// The status and the words of a refusal, which must be JSON.
    pub(crate) fn refusal(&self) -> (u16, String) {
        let value = self.json();
        let message = value["error"]["message"].as_str().unwrap_or_else(|| panic!("no message: {self:?}"));
        (self.status, message.to_owned())
    }
}

fn unchunked(mut text: &str) -> String {
    let mut whole = String::new();
    while let Some((length, rest)) = text.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).expect("a length");
        whole.push_str(rest.get(..length).unwrap_or(rest));
        text = rest.get(length + 2..).unwrap_or_default();
    }
    whole
}
