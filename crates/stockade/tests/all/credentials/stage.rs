//! The stage: the world of `egress`, one more server that mints and guards, and settings that say where secrets come from.

use std::path::Path;

use serde_json::Value;

use crate::Outcome;
use crate::egress::world::{Server, VALUE, World, words};
use crate::wall::Who;
use crate::wall::ground::{finish, finish_with};

/// In every token that a provider gives out.
const MARK: &str = "mInTeD7qX9zK4wR8vB2nL5";
/// Proves the client to the authorization server.
pub(super) const CLIENT_SECRET: &str = "cLiEnT-sEcReT-0a1b2c3d4e5f";
/// The first refresh token, and what later ones end with.
pub(super) const REFRESH: &str = "rEfReSh-0-6f5e4d3c2b1a";
/// What must be nowhere.
const VALUES: [&str; 4] = [VALUE, MARK, CLIENT_SECRET, REFRESH];

/// Runs a test as root and as an ordinary user.
pub(super) fn as_both(test: impl Fn(&Stage)) {
    for who in [Who::Root, Who::Ordinary] {
        let stage = Stage::new(who);
        // A failed assertion inside does not say who it was.
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| test(&stage)));
        assert!(result.is_ok(), "as {who:?}: see above");
    }
}

/// One user's ground, and the servers.
pub(super) struct Stage {
    pub(super) world: World,
    /// Where the providers are without TLS: `127.0.0.1:PORT`.
    pub(super) plain: String,
    /// And with it.
    pub(super) secure: String,
    _server: Server,
}

impl Stage {
    pub(super) fn new(who: Who) -> Self {
        let world = World::new(who);
        // An App's and a service account's key; one is enough for both.
        world.host(&format!(
            "cd {}; umask 077; openssl genrsa -out private.pem 2048 2>&1; openssl rsa -in private.pem -pubout -out public.pem 2>&1",
            world.outside.display()
        ));
        world.file("search.py", include_str!("search.py"));
        let server = world.serve("python3", "providers.py", include_str!("providers.py"), "");
        let at = |port: u16| format!("127.0.0.1:{port}");
        Self { plain: at(server.ports[0]), secure: at(server.ports[1]), world, _server: server }
    }

    /// A file outside, for this user alone.
    pub(super) fn keep(&self, name: &str, contents: &str) -> String {
        let path = self.world.outside.join(name);
        self.world.plant(&path, contents, 0o600);
        path.display().to_string()
    }

    /// A file outside.
    pub(super) fn outside(&self, name: &str) -> String {
        self.world.outside.join(name).display().to_string()
    }

    /// Says in the settings where secrets come from.
    pub(super) fn settings(&self, secrets: &Value) {
        let set = self.stockade(&["config", "set", "secrets", &secrets.to_string()]);
        assert_eq!(set.code, Some(0), "{set:?}");
    }

    /// Keeps a secret in the store.
    pub(super) fn store(&self, name: &str, value: &str) {
        let words = [self.world.binary.to_str().expect("a path"), "secret", "set", name];
        let kept = finish_with(&mut self.world.command(words), value.as_bytes());
        assert_eq!(kept.code, Some(0), "{kept:?}");
    }

    /// `stockade` with these words; nobody trusts the authority of the servers unless settings say so.
    pub(super) fn stockade(&self, words: &[&str]) -> Outcome {
        let binary = self.world.binary.to_str().expect("a path");
        finish(self.world.command(std::iter::once(binary).chain(words.iter().copied())).env_remove("SSL_CERT_FILE"))
    }

    /// A script inside, which must succeed; then everything inside and outside is searched for values. Returns what it printed.
    pub(super) fn inside(&self, flags: &[String], script: &str) -> String {
        let values: Vec<String> = VALUES.iter().map(|value| hex(value)).collect();
        let searched = format!("({script}\n)\ncode=$?\npython3 search.py {}\nexit $code", values.join(" "));
        let outcome = self.stockade(&[&["run"][..], &words(flags), &["--", "bash", "-c", &searched]].concat());
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        assert!(outcome.stderr.contains("searched: True []\n"), "{}", outcome.stderr);
        self.nowhere(&[&outcome.stdout, &outcome.stderr]);
        outcome.stdout
    }

    /// The newest receipt.
    pub(super) fn receipt(&self) -> Value {
        let outcome = self.stockade(&["receipts", "list", "--json"]);
        let mut listed: Value = serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{error}: {outcome:?}"));
        self.nowhere(&[&outcome.stdout]);
        listed["receipts"][0].take()
    }

    /// What the providers were asked so far.
    pub(super) fn asked(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.outside("asked.jsonl")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    /// No file of this user's but those of the servers, and none of these texts, holds as much as twelve bytes of a value.
    pub(super) fn nowhere(&self, texts: &[&str]) {
        let shows = |bytes: &[u8]| {
            VALUES.iter().any(|value| value.as_bytes()[4..].windows(12).any(|run| bytes.windows(12).any(|window| window == run)))
        };
        assert!(shows(VALUE.as_bytes()), "the search finds what is there");
        for text in texts {
            assert!(!shows(text.as_bytes()), "{text}");
        }
        for directory in [&self.world.home, &self.world.state, &self.world.work] {
            for file in files(directory) {
                // What is there for a moment may be gone.
                let Ok(bytes) = std::fs::read(&file) else { continue };
                assert!(!shows(&bytes), "{}", file.display());
            }
        }
    }
}

/// All files below.
fn files(directory: &Path) -> Vec<std::path::PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let of = |entry: std::fs::DirEntry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => files(&entry.path()),
        Ok(kind) if kind.is_file() => vec![entry.path()],
        Ok(_) | Err(_) => Vec::new(),
    };
    entries.flatten().flat_map(of).collect()
}

fn hex(text: &str) -> String {
    text.bytes().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"))
}

/// `--secret NAME@HOST`, and hosts beside it.
pub(super) fn bound(name: &str, host: &str, allowed: &[&str]) -> Vec<String> {
    let mut flags = vec!["--secret".to_owned(), format!("{name}@{host}")];
    flags.extend(allowed.iter().flat_map(|host| ["--allow-host".to_owned(), (*host).to_owned()]));
    flags
}
