//! The shim as a tool inside a sandbox: a client of the desk, which answers git, docker and kubectl with placeholders, and holds git's sessions of SSH.
//!
//! Started by the name of a tool it is no guest: it asks one question over the sandbox's own loopback, prints the answer as its caller wants it (or
//! passes bytes for as long as a session lasts: `ssh`), and ends. It holds nothing but what its caller's environment has anyway, and reaches nothing but 127.0.0.1. Every read is bounded.
//!
//! ```text
//! git ─ stdin ─▶ stockade-credential git NAME get ─ POST /git/NAME?action=get ─▶ desk
//!   ◀─ stdout ──┘                              ◀──────────────── answer ──────────┘
//! ```

mod exchange;
mod ssh;

use std::io::{self, Read as _, Write as _};
use std::time::Duration;

use exchange::{Answer, exchange};

/// Where the desk is: `http://127.0.0.1:PORT/TOKEN`.
const DESK: &str = "STOCKADE_DESK";
/// The secret that docker asks for; its protocol has no word for it.
const DOCKER_SECRET: &str = "STOCKADE_DESK_DOCKER";
/// What kubectl tells its plugins.
const EXEC_INFO: &str = "KUBERNETES_EXEC_INFO";
/// The most that a caller may say.
const MOST_SAID: usize = 16 << 10;
/// How long a question and its answer may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest name and the longest token.
const MOST_WORD: usize = 256;

/// Which tool it was started as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tool {
    /// `stockade-credential`, for git and kubectl.
    Credential,
    /// `docker-credential-stockade`.
    Docker,
    /// `stockade-ssh`, for git.
    Ssh,
}

impl Tool {
    /// The tool of this name, wherever it lies.
    pub(crate) fn named(first: &[u8]) -> Option<Self> {
        match first.rsplit(|byte| *byte == b'/').next()? {
            b"stockade-credential" => Some(Self::Credential),
            b"docker-credential-stockade" => Some(Self::Docker),
            b"stockade-ssh" => Some(Self::Ssh),
            _ => None,
        }
    }

    /// Does what it was started for; gives the exit code.
    pub(crate) fn run(self, arguments: &[&[u8]]) -> i32 {
        if self == Self::Ssh {
            return ssh::run(arguments);
        }
        let secret = variable(DOCKER_SECRET);
        let end = match Question::of(self, arguments, secret.as_deref()) {
            Ok(Errand::Ask(question)) => question.told(ask(&question)),
            Ok(Errand::Print(text)) => End { stdout: text.into(), ..End::default() },
            Err(why) if self == Self::Docker => End { stdout: format!("stockade: {why}\n").into(), code: 1, ..End::default() },
            Err(why) => End { stderr: format!("stockade: {why}\n").into(), code: 1, ..End::default() },
        };
        let printed = io::stdout().write_all(&end.stdout).and_then(|()| io::stdout().flush());
        let _ = io::stderr().write_all(&end.stderr);
        if printed.is_ok() { end.code } else { 1 }
    }
}

/// Who asks, and so how refusals are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Caller {
    Git,
    Docker,
    Kubernetes,
}

/// What is asked of the desk.
#[derive(Debug, PartialEq, Eq)]
struct Question<'a> {
    caller: Caller,
    name: &'a str,
    action: Option<&'a str>,
}

/// What there is to do.
#[derive(Debug, PartialEq, Eq)]
enum Errand<'a> {
    Ask(Question<'a>),
    Print(&'static str),
}

/// What is printed, and the exit code.
#[derive(Debug, Default, PartialEq, Eq)]
struct End {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    code: i32,
}

impl<'a> Question<'a> {
    fn of(tool: Tool, arguments: &[&'a [u8]], docker_secret: Option<&'a [u8]>) -> Result<Errand<'a>, &'static str> {
        let named = |name: &'a [u8]| word(name, b"_").ok_or("a secret's name has letters, digits and `_` only");
        let ask = |caller, name, action| Ok(Errand::Ask(Question { caller, name: named(name)?, action }));
        match (tool, arguments) {
            (Tool::Credential, [b"git", name, action]) => match known(action, &["get", "store", "erase"]) {
                Some(action) => ask(Caller::Git, name, Some(action)),
                // Git's own rule for operations that a helper does not know.
                None => Ok(Errand::Print("")),
            },
            (Tool::Credential, [b"kubernetes", name]) => ask(Caller::Kubernetes, name, None),
            (Tool::Credential, _) => Err("usage: stockade-credential git NAME get|store|erase, or stockade-credential kubernetes NAME"),
            (Tool::Docker, [b"version"]) => {
                Ok(Errand::Print(concat!("docker-credential-stockade (stockade) v", env!("CARGO_PKG_VERSION"), "\n")))
            }
            (Tool::Docker, [action]) => match (known(action, &["get", "list", "store", "erase"]), docker_secret) {
                (Some(action), Some(name)) => ask(Caller::Docker, name, Some(action)),
                (Some(_), None) => Err("this sandbox has no secret for docker"),
                (None, _) => Err("docker asks for get, list, store, erase or version"),
            },
            (Tool::Docker, _) => Err("usage: docker-credential-stockade get|list|store|erase|version"),
            (Tool::Ssh, _) => Err("it asks for a session, not for a placeholder"),
        }
    }

    /// What goes with it: what the caller wrote, or what kubectl put into the environment.
    fn body(&self) -> Result<Vec<u8>, String> {
        let body = match (self.caller, self.action) {
            (Caller::Kubernetes, _) => variable(EXEC_INFO).unwrap_or_default(),
            (Caller::Docker, Some("list")) => Vec::new(),
            (Caller::Git | Caller::Docker, _) => {
                let mut said = Vec::new();
                let read = io::stdin().take(MOST_SAID as u64 + 1).read_to_end(&mut said);
                read.map_err(|error| format!("reading standard input: {error}"))?;
                said
            }
        };
        if body.len() > MOST_SAID { Err(format!("more than {MOST_SAID} bytes were said")) } else { Ok(body) }
    }

    fn request(&self, desk: &Desk<'_>, body: &[u8]) -> Vec<u8> {
        let kind = match self.caller {
            Caller::Git => "git",
            Caller::Docker => "docker",
            Caller::Kubernetes => "kubernetes",
        };
        let (query, action) = self.action.map_or(("", ""), |action| ("?action=", action));
        let (name, Desk { port, token }, length) = (self.name, desk, body.len());
        let head = format!(
            "POST /{kind}/{name}{query}{action} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
        );
        [head.as_bytes(), body].concat()
    }

    /// What the caller gets to see of an answer, by its own protocol.
    fn told(&self, answer: Result<Answer, String>) -> End {
        let (refused, text) = match answer {
            Ok(Answer { status: 200..=299, body }) => return End { stdout: body, ..End::default() },
            Ok(Answer { status: 400..=499, body }) => (true, body),
            Ok(Answer { status, body }) => {
                (false, [format!("stockade: the desk answered {status}: ").as_bytes(), body.as_slice(), b"\n"].concat())
            }
            Err(why) => (false, format!("stockade: {why}\n").into()),
        };
        match self.caller {
            // It goes on without, and fails with its own words if it must.
            Caller::Git if refused => End::default(),
            Caller::Git | Caller::Kubernetes => End { stderr: text, code: 1, ..End::default() },
            Caller::Docker => End { stdout: text, code: 1, ..End::default() },
        }
    }
}

/// Where the desk is, and the word that opens it.
#[derive(Debug, PartialEq, Eq)]
struct Desk<'a> {
    port: u16,
    token: &'a str,
}

impl<'a> Desk<'a> {
    /// Nothing but this very address is taken.
    fn parse(text: &'a [u8]) -> Option<Self> {
        let (port, token) = std::str::from_utf8(text).ok()?.strip_prefix("http://127.0.0.1:")?.split_once('/')?;
        let digits = port.bytes().all(|byte| byte.is_ascii_digit());
        let port = port.parse().ok().filter(|port| digits && *port != 0)?;
        Some(Self { port, token: word(token.as_bytes(), b"_-")? })
    }
}

fn ask(question: &Question<'_>) -> Result<Answer, String> {
    let text = variable(DESK).ok_or("this sandbox has no desk")?;
    let desk = Desk::parse(&text).ok_or("`STOCKADE_DESK` names no desk of this sandbox")?;
    let request = question.request(&desk, &question.body()?);
    exchange(desk.port, &request, PATIENCE).map(|(answer, _)| answer).map_err(|error| format!("the desk does not answer: {error}"))
}

/// Text of letters, digits and these.
fn word<'a>(text: &'a [u8], others: &[u8]) -> Option<&'a str> {
    let good = text.iter().all(|byte| byte.is_ascii_alphanumeric() || others.contains(byte));
    if good && (1..=MOST_WORD).contains(&text.len()) { std::str::from_utf8(text).ok() } else { None }
}

fn known(action: &[u8], actions: &[&'static str]) -> Option<&'static str> {
    actions.iter().copied().find(|known| known.as_bytes() == action)
}

#[expect(clippy::disallowed_methods, reason = "the tool's caller speaks through these, and no other place reads them")]
fn variable(name: &str) -> Option<Vec<u8>> {
    std::env::var_os(name).map(std::os::unix::ffi::OsStringExt::into_vec)
}

#[cfg(test)]
mod tests;
