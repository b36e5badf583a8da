//! A provider on loopback for tests: answers by a closure, and remembers what it was asked.

use std::io::{BufReader, Write as _};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use crate::shared::lock;

/// What was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) target: String,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Asked {
    /// A header, or nothing.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }
}

/// A provider.
pub(crate) struct StandIn {
    /// Where it is.
    pub(crate) address: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl StandIn {
    /// Begins to answer: a status and JSON; a string is sent as it is.
    pub(crate) fn new(answer: impl Fn(&Asked) -> (u16, serde_json::Value) + Send + 'static) -> Self {
        #[expect(clippy::disallowed_methods, reason = "a provider on loopback, for tests")]
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::<Mutex<Vec<Asked>>>::default();
        let seen = Arc::clone(&asked);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut reader = BufReader::new(stream.unwrap());
                let Some(request) = read(&mut reader) else { continue };
                let (status, body) = answer(&request);
                lock(&seen).push(request);
                let body = match body {
                    serde_json::Value::Null => String::new(),
                    serde_json::Value::String(text) => text,
                    json => json.to_string(),
                };
                let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
                let _ = reader.get_mut().write_all((head + &body).as_bytes());
            }
        });
        Self { address, asked }
    }

    /// Everything it was asked so far.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        lock(&self.asked).clone()
    }
}

fn read(reader: &mut impl std::io::BufRead) -> Option<Asked> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end().to_owned();
        if line.is_empty() {
            break;
        }
        lines.push(line);
    }
    let mut first = lines.first()?.split(' ');
    let (method, target) = (first.next()?.to_owned(), first.next()?.to_owned());
    let headers: Vec<(String, String)> = lines
        .iter()
        .skip(1)
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length").map_or(0, |(_, value)| value.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Asked { method, target, headers, body: String::from_utf8(body).unwrap() })
}

/// Asks a provider with these secrets.
pub(crate) fn ask(provider: &serde_json::Value, secrets: &[(&str, &str)]) -> Result<super::Minted, super::MintError> {
    ask_in("/usr/bin:/bin", provider, secrets)
}

/// Asks a provider with these secrets, and with programs that are here.
pub(crate) fn ask_in(
    path: impl Into<std::ffi::OsString>,
    provider: &serde_json::Value,
    secrets: &[(&str, &str)],
) -> Result<super::Minted, super::MintError> {
    let written = serde_json::json!({ "T": provider });
    let settings = stockade_store::settings::secrets::from_json(written.as_object().unwrap()).unwrap();
    let stockade_store::settings::SecretSource::Provider(provider) = &settings[0].source else { panic!("no provider") };
    let root = tempfile::tempdir().unwrap();
    let around = around(root.path(), path);
    let now = std::time::SystemTime::now();
    let look_up = |name: &crate::SecretName| {
        let found = secrets.iter().find(|(known, _)| *known == name.as_str());
        let (_, value) = found.ok_or_else(|| super::MintError::new("secrets", format!("no `{name}`")))?;
        let value = crate::SecretValue::new(value.as_bytes().to_vec()).unwrap();
        Ok(Arc::new(crate::sources::of_caller(&value, now)))
    };
    let sandbox = "0123456789abcdef".parse().unwrap();
    super::mint(provider, &super::Asking::new(&sandbox, "test.call", now, &around, &look_up))
}

/// A directory with one program in it, a script of `sh`. It is written by a child: what this process itself has open for writing, a child of
/// another test may have too for a moment, and then nobody can start it.
pub(crate) fn program(name: &str, script: &str) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let write = r#"printf '#!/bin/sh\n%s\n' "$1" > "$2" && chmod 755 "$2""#;
    let target = root.path().join(name).to_str().unwrap().to_owned();
    let argv = ["sh", "-c", write, "sh", script, &target].map(str::to_owned);
    crate::sources::command::run(&argv, &around(root.path(), "/usr/bin:/bin")).unwrap();
    root
}

fn around(root: &std::path::Path, path: impl Into<std::ffi::OsString>) -> crate::sources::Surroundings {
    crate::sources::Surroundings { store: crate::store::Store::beneath(&root.join("state")), path: path.into(), home: root.to_owned() }
}
