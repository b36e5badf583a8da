//! Which files passed every check before, so that the next run need not check them again.
//!
//! Checking takes many times as long as reading. What is kept is a list of stamps (device, inode, size, time of change) and this version;
//! it says nothing about what is allowed. Whoever can write it could write the rules as well: it lies in the person's private state.

use std::path::PathBuf;

use super::read::Stamp;
use crate::places::Places;
use crate::private_dir::ensure_private_dir;

/// The file beneath the state directory.
const FILE: &str = "policy-checked";
/// Longer than any list of stamps.
const MAX_BYTES: usize = 1 << 20;

/// Whether exactly these files passed, in this version.
pub(super) fn is_known(places: &Places, stamps: &[Stamp]) -> bool {
    std::fs::read(path(places)).is_ok_and(|kept| kept.len() < MAX_BYTES && kept == text(stamps).as_bytes())
}

/// Remembers that these files passed. Where it cannot be written down they are checked again, which does no harm.
pub(super) fn remember(places: &Places, stamps: &[Stamp]) {
    if ensure_private_dir(&places.state).is_ok() {
        let path = path(places);
        let draft = path.with_extension(std::process::id().to_string());
        let written = std::fs::write(&draft, text(stamps)).and_then(|()| std::fs::rename(&draft, &path));
        if written.is_err() {
            let _ = std::fs::remove_file(&draft);
        }
    }
}

fn path(places: &Places) -> PathBuf {
    places.state.join(FILE)
}

fn text(stamps: &[Stamp]) -> String {
    let lines = stamps.iter().map(Stamp::line);
    std::iter::once(format!("stockade {}", env!("CARGO_PKG_VERSION"))).chain(lines).map(|line| line + "\n").collect()
}
