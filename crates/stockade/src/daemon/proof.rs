//! What the gateway may not do, tried: it says what came of each, and whoever asked judges.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::process::{Command, Stdio};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use stockade_store::places::{LOOKED_AT, Places};

use super::confine::secrets;
use crate::Context;
use crate::failure::Failure;

/// A port that nobody listens at.
const NOBODY: u16 = 9;

/// Something that was tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tried {
    /// What, in a few words.
    pub(crate) what: String,
    /// Whether it was refused, as it must be.
    pub(crate) refused: bool,
    /// What the kernel said.
    pub(crate) said: String,
}

/// What comes of trying in a process that confines itself as servers do, and serves nobody.
#[expect(clippy::disallowed_methods, reason = "starts this very program in another role")]
pub(crate) fn elsewhere(context: &Context) -> Result<Vec<Tried>, Failure> {
    let failed = |why: String| Failure::new("confinement", why);
    let variables = LOOKED_AT.iter().filter_map(|name| Some((*name, context.environment.variable(name)?)));
    let mut command = Command::new("/proc/self/exe");
    command.args(["confinement", "--json"]).env_clear().envs(variables).current_dir("/").stdin(Stdio::null());
    let said = command.output().map_err(|error| failed(format!("starting: {error}")))?.stdout;
    let said: Value = serde_json::from_slice(&said).map_err(|_| failed("it ended without a word".to_owned()))?;
    let word = |key: &str| said.pointer(key).and_then(Value::as_str).map(str::to_owned);
    if let Some(message) = word("/error/message") {
        // Its advice would be to ask `doctor`, which is asked already.
        return Err(failed(message));
    }
    serde_json::from_value(said).map_err(|error| failed(error.to_string()))
}

/// What a process had before it was confined, to be tried afterwards; a server that listens keeps such a socket.
#[derive(Debug, Default)]
pub(super) struct Earlier {
    socket: Option<OwnedFd>,
}

impl Earlier {
    /// Makes it. Where there are no such sockets there is nothing to try.
    pub(super) fn make() -> Self {
        Self { socket: rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).ok() }
    }
}

/// Tries everything.
pub(super) fn attempts(places: &Places, earlier: &Earlier) -> Vec<Tried> {
    let mut tried = vec![connect(), execute(), mount(), read_secrets(places), look_out()];
    tried.extend(earlier.socket.as_ref().map(connect_earlier));
    tried
}

/// Making a socket is refused by one means and connecting it by another; this is the other.
fn connect_earlier(socket: &OwnedFd) -> Tried {
    let tried = rustix::net::connect(socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, NOBODY));
    of("connect a socket of before", tried == Err(Errno::ACCESS), tried.err().map(Into::into))
}

#[expect(clippy::disallowed_methods, reason = "it must fail, and nobody listens there")]
fn connect() -> Tried {
    let tried = std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, NOBODY));
    // Refused by nobody's absence would prove nothing.
    let denied = |error: &std::io::Error| error.kind() == std::io::ErrorKind::PermissionDenied;
    of("open a connection", tried.as_ref().err().is_some_and(denied), tried.err())
}

#[expect(clippy::disallowed_methods, reason = "it must fail; it would do nothing if it did not")]
fn execute() -> Tried {
    let tried = Command::new("/bin/true").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).env_clear().status();
    of("run a program", tried.is_err(), tried.err())
}

fn mount() -> Tried {
    let tried = rustix::mount::mount_change("/", rustix::mount::MountPropagationFlags::PRIVATE);
    of("change mounts", tried.is_err(), tried.err().map(Into::into))
}

/// The store is there and holds nothing: what is covered is another directory on another file system.
fn read_secrets(places: &Places) -> Tried {
    let path = secrets(places);
    let outside = path.as_ref().parent().and_then(|above| std::fs::metadata(above).ok()).map(|found| found.dev());
    let inside = std::fs::metadata(&path).map(|found| found.dev());
    let covered = inside.is_err() || inside.as_ref().ok() != outside.as_ref();
    let empty = std::fs::read_dir(&path).map_or(true, |mut entries| entries.next().is_none());
    let written = std::fs::write(path.as_ref().join("probe"), b"").is_ok();
    of("see the secret store", covered && empty && !written, inside.err())
}

/// The mounts of the process that started this one.
fn look_out() -> Tried {
    let tried = rustix::process::getppid().map(|parent| std::fs::read_dir(format!("/proc/{}/root", parent.as_raw_nonzero())));
    let refused = tried.as_ref().is_none_or(Result::is_err);
    of("look through another process", refused, tried.and_then(Result::err))
}

fn of(what: &str, refused: bool, error: Option<std::io::Error>) -> Tried {
    let said =
        error.map_or_else(|| if refused { "nothing is there".to_owned() } else { "it worked".to_owned() }, |error| error.to_string());
    Tried { what: what.to_owned(), refused, said }
}
