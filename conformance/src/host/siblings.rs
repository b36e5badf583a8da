//! Two sandboxes at once: what one offers, the other does not reach.

use std::ffi::OsString;

use crate::case::Ground;
use crate::lab::SECRET;
use crate::probe;
use crate::stage::Seen;

use super::{Came, Function, Outside, eventually, open_if, shell};

pub(super) const TABLE: &[(&str, Function)] = &[("sibling_sandbox", sibling_sandbox)];

/// What the second tries on the first.
const ATTEMPTS: [&str; 10] = [
    "see_processes",
    "abstract_socket",
    "abstract_datagram",
    "tcp_loopback",
    "udp_loopback",
    "sysv_memory",
    "posix_memory",
    "read_victim_environment",
    "any_root",
    "read_beside_workspace",
];

/// A decoy inside one sandbox, an attacker inside another.
fn sibling_sandbox(outside: &Outside<'_>) -> Came {
    let place = outside.place()?;
    let (work, probe_path) = (place.join("ws"), outside.lab.probe());
    let mut victim = outside.stand(&work, Ground::Rw)?;
    let base = format!("base={}", work.display());
    // The decoy wants the secret in its base, and ends when its input does: a pipe that nobody closes while the sandbox lives.
    let script = format!(
        "cp f secret; echo {SECRET} > secret; mkdir -p inner; mkfifo hold; (exec 9<> hold; DECOY={SECRET} exec -a stockade-conformance-decoy '{}' decoy {base} secret={SECRET} work={}/inner <&9 > facts 2>&1) > /dev/null 2>&1 &",
        probe_path.display(),
        work.display()
    );
    victim.run(&shell(&script))?;
    let facts = || std::fs::read_to_string(work.join("facts")).unwrap_or_default();
    if !eventually(|| facts().lines().any(|line| line == "ready")) {
        return Ok((Seen::Broken, format!("the decoy inside: {}", facts())));
    }
    let other = outside.lab.for_case(&format!("{}-attacker", outside.id))?.join("ws");
    let mut attacker = outside.stand(&other, Ground::Shared)?;
    let mut argv: Vec<OsString> = vec![probe_path.into(), "try".into(), base.into(), format!("secret={SECRET}").into()];
    argv.push(format!("secret_file={}/secret", work.display()).into());
    argv.extend(facts().lines().map(OsString::from));
    argv.push("--".into());
    argv.extend(ATTEMPTS.map(OsString::from));
    let ran = attacker.run(&argv)?;
    let answers = probe::read(&ran.stdout);
    // Without a wall the decoy would stay.
    super::clean_up(&format!("work={}/inner", work.display()));
    let _ = std::fs::remove_file(format!("/dev/shm/{}", facts().lines().find_map(|l| l.strip_prefix("abstract=")).unwrap_or("none")));
    let open: Vec<&str> = answers.iter().filter(|(_, (seen, _))| *seen == Seen::Open).map(|(name, _)| name.as_str()).collect();
    if answers.len() != ATTEMPTS.len() {
        return Ok((Seen::Broken, format!("{:?} {}", ran.ending, String::from_utf8_lossy(&ran.stdout))));
    }
    Ok(open_if(!open.is_empty(), format!("open: {open:?}")))
}
