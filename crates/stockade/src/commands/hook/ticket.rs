//! What binds a script that was permitted to the one run of it.
//!
//! A ticket is a file of the person's private state, which nothing inside a sandbox can reach. Whoever takes it renames it first, so that
//! of many who try one has it; and it holds the script itself, so that nothing else can be run with it. Its name begins with when it was made:
//! whoever issues the next one sees which are old without looking at each.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use stockade_store::places::Places;
use stockade_store::private_dir::ensure_private_dir;
use stockade_verify::text::to_hex;

use crate::failure::Failure;

/// How long one counts.
const LIFE: Duration = Duration::from_mins(10);
/// Longer than any.
const MAX_BYTES: u64 = 16 << 20;
/// More than can be waiting.
const MAX_WAITING: usize = 1000;
const STEP: &str = "ticket";

/// A script that was permitted.
#[derive(Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub(super) struct Ticket {
    /// The script.
    pub(super) script: String,
    /// Where it was asked for.
    pub(super) cwd: PathBuf,
    /// Who asked: what a subagent is called.
    pub(super) name: String,
    /// In which of its sessions.
    pub(super) session: String,
}

impl Ticket {
    /// Writes it down; gives its name.
    pub(super) fn issue(&self, places: &Places) -> Result<String, Failure> {
        let directory = directory(places);
        ensure_private_dir(&places.state).map_err(|error| Failure::from_error(STEP, &error))?;
        ensure_private_dir(&directory).map_err(|error| Failure::from_error(STEP, &error))?;
        make_room(&directory)?;
        let name = name()?;
        let bytes = serde_json::to_vec(self).map_err(|error| failed(&directory, &error.into()))?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(Failure::new(STEP, format!("the script has more than {MAX_BYTES} bytes")));
        }
        let path = directory.join(&name);
        let written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).and_then(|mut file| file.write_all(&bytes));
        written.map_err(|error| failed(&path, &error))?;
        Ok(name)
    }

    /// Takes it: whoever comes second finds none.
    pub(super) fn take(name: &str, places: &Places) -> Result<Self, Failure> {
        let gone = || Failure::new(STEP, "there is no such ticket: it was used, or it is too old").with_hint("ask again");
        let is_name = name.len() == 32 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_name || is_old(name, now()) {
            return Err(gone());
        }
        let (path, mine) = (directory(places).join(name), directory(places).join(format!("{name}.{}", std::process::id())));
        std::fs::rename(&path, &mine).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => gone(),
            _ => failed(&path, &error),
        })?;
        let read = || -> std::io::Result<Vec<u8>> {
            let mut bytes = Vec::new();
            File::open(&mine)?.take(MAX_BYTES).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        let read = read();
        // It was taken, whatever comes of it.
        let removed = std::fs::remove_file(&mine);
        let bytes = read.map_err(|error| failed(&mine, &error))?;
        removed.map_err(|error| failed(&mine, &error))?;
        serde_json::from_slice(&bytes).map_err(|error| Failure::new(STEP, format!("the ticket is damaged: {error}")))
    }
}

fn directory(places: &Places) -> PathBuf {
    places.state.join("tickets")
}

/// Removes what nobody came for; refuses where still too many wait.
fn make_room(directory: &Path) -> Result<(), Failure> {
    let (mut waiting, now) = (0, now());
    for entry in std::fs::read_dir(directory).map_err(|error| failed(directory, &error))?.flatten() {
        let is_old = entry.file_name().to_str().is_none_or(|name| is_old(name, now));
        // One that cannot be removed was just taken.
        if !is_old || std::fs::remove_file(entry.path()).is_err() {
            waiting += 1;
        }
    }
    if waiting >= MAX_WAITING {
        return Err(Failure::new(STEP, format!("{MAX_WAITING} tickets wait already")).with_hint("wait some minutes"));
    }
    Ok(())
}

/// A name that nobody guesses, with the second in which it was made before it.
fn name() -> Result<String, Failure> {
    let mut bytes = [0_u8; 12];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|errno| Failure::new(STEP, format!("the kernel gives no random bytes: {errno}")))?;
    Ok(format!("{:08x}{}", now(), to_hex(&bytes)))
}

/// Whether one of this name counts no more. One from the future is from before the clock was put back.
fn is_old(name: &str, now: u32) -> bool {
    let made = name.get(..8).and_then(|digits| u32::from_str_radix(digits, 16).ok());
    made.is_none_or(|made| u64::from(now.abs_diff(made)) > LIFE.as_secs())
}

/// The second, as names have it.
fn now() -> u32 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as u32)
}

fn failed(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(STEP, format!("`{}`: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(root: &Path) -> Places {
        let at = |name: &str| root.join(name);
        Places { home: at("home"), state: at("state"), config: at("config"), runtime: at("run"), machine: at("etc") }
    }

    fn ticket() -> Ticket {
        Ticket { script: "ls".into(), cwd: "/w".into(), name: "main".into(), session: "s".into() }
    }

    #[test]
    fn one_of_many_has_it() {
        let root = tempfile::tempdir().unwrap();
        let places = places(root.path());
        let name = ticket().issue(&places).unwrap();
        let taken = std::thread::scope(|scope| {
            let tries: Vec<_> = (0..16).map(|_| scope.spawn(|| Ticket::take(&name, &places).is_ok())).collect();
            tries.into_iter().map(|one| one.join().unwrap()).filter(|taken| *taken).count()
        });
        assert_eq!(taken, 1);
        assert_eq!(std::fs::read_dir(directory(&places)).unwrap().count(), 0);
    }

    #[test]
    fn an_old_one_counts_no_more() {
        let root = tempfile::tempdir().unwrap();
        let places = places(root.path());
        let past = |name: &str| {
            let old = format!("{:08x}{}", now() - LIFE.as_secs() as u32 - 2, name.get(8..).unwrap());
            std::fs::rename(directory(&places).join(name), directory(&places).join(&old)).unwrap();
            old
        };
        let name = past(&ticket().issue(&places).unwrap());
        assert!(Ticket::take(&name, &places).is_err());
        let other = ticket().issue(&places).unwrap();
        assert_eq!(std::fs::read_dir(directory(&places)).unwrap().count(), 1, "the old one is cleared away");
        assert_eq!(Ticket::take(&other, &places).unwrap(), ticket());
        let young = ticket().issue(&places).unwrap();
        past(&young);
        assert!(Ticket::take(&young, &places).is_err(), "what is known by another name is not there");
    }

    #[test]
    fn names_lead_nowhere_else() {
        let root = tempfile::tempdir().unwrap();
        let places = places(root.path());
        std::fs::create_dir_all(root.path().join("state/tickets")).unwrap();
        std::fs::write(root.path().join("state/secret"), "x").unwrap();
        for name in ["", "../secret", "..", "0123456789abcdef0123456789abcde/", "/etc/passwd"] {
            assert!(Ticket::take(name, &places).is_err(), "{name}");
        }
        assert!(root.path().join("state/secret").exists());
    }
}
