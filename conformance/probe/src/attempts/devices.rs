//! Device nodes: those that are there, and making new ones.

use std::os::unix::fs::FileTypeExt;

use crate::call::{self, pointer, raw, text};
use crate::facts::Facts;
use crate::finding::{Finding, if_it_works};

use super::Attempt;

pub(super) const TABLE: &[(&str, Attempt)] =
    &[("devices", devices), ("make_device", make_device), ("make_whiteout", make_whiteout), ("rename_whiteout", rename_whiteout)];

/// What every program expects.
const ORDINARY: [&str; 8] = ["null", "zero", "full", "random", "urandom", "tty", "ptmx", "console"];

/// Devices beyond the ordinary ones, anywhere below /dev; terminals of one's own do not count.
fn devices(_: &Facts) -> Finding {
    let mut found = Vec::new();
    let mut left = vec![std::path::PathBuf::from("/dev")];
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(&directory).into_iter().flatten().flatten() {
            let (Ok(kind), name) = (entry.file_type(), entry.file_name().to_string_lossy().into_owned()) else { continue };
            if kind.is_dir() && name != "pts" && name != "shm" {
                left.push(entry.path());
            } else if kind.is_block_device() || kind.is_char_device() && !ORDINARY.contains(&name.as_str()) {
                found.push(name);
            }
        }
    }
    found.sort();
    if found.is_empty() { Finding::Held("only the ordinary ones".into()) } else { Finding::Open(found.join(" ")) }
}

fn make(facts: &Facts, mode: i64, device: i64) -> Finding {
    let path = text(&format!("{}/device-{}", facts.text("work"), std::process::id()));
    let made = raw(libc::SYS_mknodat, &[i64::from(libc::AT_FDCWD), pointer(&path), mode, device]);
    let finding = if_it_works(made);
    let _ = raw(libc::SYS_unlinkat, &[i64::from(libc::AT_FDCWD), pointer(&path), 0]);
    finding
}

/// A second /dev/null, which is harmless.
fn make_device(facts: &Facts) -> Finding {
    let _ = call::gain();
    make(facts, i64::from(libc::S_IFCHR | 0o600), 0x103)
}

/// Device 0:0 needs no privilege, and hides a file from whoever stacks an overlay on it later.
fn make_whiteout(facts: &Facts) -> Finding {
    make(facts, i64::from(libc::S_IFCHR | 0o600), 0)
}

/// The same by renaming.
fn rename_whiteout(facts: &Facts) -> Finding {
    let from = format!("{}/whiteout-{}", facts.text("work"), std::process::id());
    let to = format!("{from}-to");
    let _ = std::fs::write(&from, "");
    let here = i64::from(libc::AT_FDCWD);
    let (old, new) = (text(&from), text(&to));
    let finding = if_it_works(raw(libc::SYS_renameat2, &[here, pointer(&old), here, pointer(&new), 4]));
    let _ = std::fs::remove_file(&from);
    let _ = std::fs::remove_file(&to);
    finding
}
