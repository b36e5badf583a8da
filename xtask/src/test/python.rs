//! Python packages that tests need, pinned, in the cache outside the clone.

use std::path::PathBuf;
use std::process::Command;

use crate::failure::Failure;
use crate::process;
use crate::workspace::cache_directory;

/// What the independent checker of receipts is written with.
const PACKAGES: &[&str] = &["cryptography==50.0.2"];

/// The directory that holds the packages, filled first if this machine has not got them.
pub(super) fn packages() -> Result<PathBuf, Failure> {
    let tools = cache_directory()?.join("tools");
    let directory = tools.join(format!("python-{}", PACKAGES.join("-").replace("==", "-")));
    if !directory.is_dir() {
        println!("installing {} into {} (once per machine)", PACKAGES.join(" "), directory.display());
        // Beside its place and then renamed: an installation that was cut short is never taken for a whole one.
        let draft = tools.join(format!("python-{}", std::process::id()));
        let mut install = Command::new("pip3");
        install
            .args(["install", "--quiet", "--disable-pip-version-check", "--no-warn-script-location", "--target"])
            .arg(&draft)
            .args(PACKAGES);
        process::run(&mut install)?;
        std::fs::rename(&draft, &directory).map_err(Failure::io("rename", &draft))?;
    }
    Ok(directory)
}
