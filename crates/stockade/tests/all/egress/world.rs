//! The stage: two servers outside with an authority of their own, names that lead to them, and ways to run programs inside and outside.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::ops::Deref;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use serde_json::Value;

use crate::Outcome;
use crate::wall::ground::{eventually, finish, processes};
use crate::wall::{Ground, Who};

/// What only the servers and the caller's environment know.
pub(crate) const VALUE: &str = "ghp_aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0eF3hJ6";
/// Names of the servers.
const NAMES: [&str; 3] = ["api.test", "other.test", "denied.test"];

/// Runs a test as root and as an ordinary user.
pub(crate) fn as_both(test: impl Fn(&World)) {
    for who in [Who::Root, Who::Ordinary] {
        let world = World::new(who);
        // A failed assertion inside does not say who it was.
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| test(&world)));
        assert!(result.is_ok(), "as {who:?}: see above");
    }
}

/// The servers and one user's ground.
pub(crate) struct World {
    pub(crate) ground: Ground,
    pub(crate) outside: PathBuf,
    pub(crate) plain: u16,
    pub(crate) secure: u16,
    _server: Server,
}

/// A program of the test's own outside, for as long as this lives.
pub(crate) struct Server {
    child: Child,
    // Closing it ends the program.
    _input: Option<ChildStdin>,
    pub(crate) ports: Vec<u16>,
}

impl Deref for World {
    type Target = Ground;
    fn deref(&self) -> &Ground {
        &self.ground
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    /// Starts a program whose first line says its ports.
    fn start(command: &mut Command, who: Who) -> Self {
        command.uid(who.uid()).gid(who.uid()).stdin(Stdio::piped()).stdout(Stdio::piped());
        // Connections that end badly are part of the tests.
        let mut child = command.stderr(Stdio::null()).spawn().expect("the server starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("the ports");
        let ports = line.split_whitespace().map(|port| port.parse().expect("a port")).collect();
        Self { _input: child.stdin.take(), child, ports }
    }
}

impl World {
    #[expect(clippy::disallowed_methods, reason = "the servers that tests talk to")]
    pub(crate) fn new(who: Who) -> Self {
        let ground = Ground::new(who);
        let outside = ground.base.join("outside");
        ground.directory(&outside);
        let names: Vec<String> = NAMES.iter().map(|name| format!("127.0.0.1 {name}\n")).collect();
        ground.plant(&outside.join("hosts"), &format!("127.0.0.1 localhost\n{}", names.concat()), 0o644);
        let sans: Vec<String> = NAMES.iter().map(|name| format!("DNS:{name}")).collect();
        ground.plant(&outside.join("names"), &format!("subjectAltName={},IP:127.0.0.1\n", sans.join(",")), 0o644);
        ground.host(&format!(
            "cd {outside}
             key='-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes'
             openssl req -x509 $key -keyout ca.key -out ca.pem -days 2 -subj /CN=outside 2>&1
             openssl req $key -keyout server.key -out server.csr -subj /CN=api.test 2>&1
             openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out server.pem -days 2 -extfile names 2>&1",
            outside = outside.display()
        ));
        let program = outside.join("server.py");
        ground.plant(&program, include_str!("server.py"), 0o644);
        let server = Server::start(Command::new("python3").arg(&program).arg(&outside).arg(VALUE), who);
        Self { ground, outside, plain: server.ports[0], secure: server.ports[1], _server: server }
    }

    /// One more server outside, with the same certificates.
    pub(crate) fn serve(&self, program: &str, name: &str, contents: &str, path: &str) -> Server {
        let file = self.outside.join(name);
        self.plant(&file, contents, 0o644);
        let mut command = self.ground.outside(program);
        Server::start(command.arg(&file).arg(&self.outside).arg(VALUE).env("PYTHONPATH", path), self.who)
    }

    /// A command as this user where the names of the servers are known. The authority is the servers' own.
    pub(crate) fn command(&self, words: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
        self.command_after("mount --bind \"$0\" /etc/hosts; exec \"$@\"", words)
    }

    /// A command as this user after a script of root's, in a mount namespace of its own.
    pub(crate) fn command_after(&self, script: &str, words: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
        let mut command = self.ground.outside("unshare");
        // Only root can make the names known; the command itself is the user's.
        command.uid(0).gid(0);
        command.args(["--mount", "--propagation", "private", "--", "bash", "-euc"]);
        command.arg(script).arg(self.outside.join("hosts"));
        if self.who == Who::Ordinary {
            command.args(["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]);
        }
        command.args(words).env("SSL_CERT_FILE", self.outside.join("ca.pem")).env("TOKEN", VALUE);
        command
    }

    /// `stockade` with these words.
    pub(crate) fn stockade(&self, words: &[&str]) -> Outcome {
        finish(&mut self.command(std::iter::once(self.binary.to_str().expect("a path")).chain(words.iter().copied())))
    }

    /// A script without any wall.
    pub(crate) fn without(&self, script: &str) -> Outcome {
        finish(self.command(["bash", "-c", script]).env("CURL_CA_BUNDLE", self.outside.join("ca.pem")))
    }

    /// A script inside, with these flags.
    pub(crate) fn inside(&self, flags: &[&str], script: &str) -> Outcome {
        self.stockade(&[&["run"], flags, &["--", "bash", "-c", script]].concat())
    }

    /// The same with `--json`.
    pub(crate) fn inside_json(&self, flags: &[&str], script: &str) -> Value {
        let outcome = self.inside(&[&["--json"], flags].concat(), script);
        serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{error}: {outcome:?}"))
    }

    /// What reached the servers so far.
    pub(crate) fn seen(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.outside.join("seen.jsonl")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    /// Forgets what reached the servers.
    pub(crate) fn forget(&self) {
        let _ = std::fs::remove_file(self.outside.join("seen.jsonl"));
    }

    /// The flags that allow `api.test` with TLS, and the loopback address behind it.
    pub(crate) fn secure_flags(&self) -> Vec<String> {
        flags("api.test", self.secure)
    }

    /// The same without TLS.
    pub(crate) fn plain_flags(&self) -> Vec<String> {
        flags("api.test", self.plain)
    }

    /// The egress processes of this user.
    pub(crate) fn egress(&self) -> Vec<u32> {
        let state = format!("{}/", self.base.display());
        let named = processes("/proc/self/exe\0egress\0");
        named.into_iter().filter(|pid| runs(*pid, &self.binary) && has_open_below(*pid, &state)).collect()
    }

    /// The brokers of the same owners.
    pub(crate) fn brokers(&self) -> Vec<u32> {
        let parent = |pid: &u32| {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            status.lines().find_map(|line| line.strip_prefix("PPid:")).map(|pid| pid.trim().to_owned())
        };
        let owners: Vec<_> = self.egress().iter().filter_map(parent).collect();
        processes("/proc/self/exe\0broker\0").into_iter().filter(|pid| parent(pid).is_some_and(|pid| owners.contains(&pid))).collect()
    }

    /// The newest receipt.
    pub(crate) fn receipt(&self) -> Value {
        let outcome = self.stockade(&["receipts", "list", "--json"]);
        let mut listed: Value = serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{error}: {outcome:?}"));
        listed["receipts"][0].take()
    }

    /// No egress of this user is left.
    pub(crate) fn all_ended(&self) {
        eventually("egress ends with its owner", || self.egress().is_empty());
    }
}

/// The flags that allow `api.test` at these ports, with `TOKEN` for them.
pub(crate) fn bound_flags(ports: &[u16]) -> Vec<String> {
    let hosts: Vec<String> = ports.iter().map(|port| format!("api.test:{port}")).collect();
    let allowed = ports.iter().flat_map(|port| flags("api.test", *port));
    allowed.chain(["--secret".into(), format!("TOKEN@{}", hosts.join(","))]).collect()
}

fn flags(name: &str, port: u16) -> Vec<String> {
    vec!["--allow-host".into(), format!("{name}:{port}"), "--allow-host".into(), format!("127.0.0.1:{port}")]
}

fn runs(pid: u32, binary: &Path) -> bool {
    std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|path| path == binary)
}

/// Whether a process has a file of this directory open: its record.
fn has_open_below(pid: u32, directory: &str) -> bool {
    let Ok(open) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    open.flatten().any(|entry| std::fs::read_link(entry.path()).is_ok_and(|path| path.to_string_lossy().starts_with(directory)))
}

/// Borrowed words.
pub(crate) fn words(owned: &[String]) -> Vec<&str> {
    owned.iter().map(String::as_str).collect()
}
