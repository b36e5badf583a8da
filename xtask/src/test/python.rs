//! Python packages that tests need, pinned, in the cache outside the clone.

use std::path::PathBuf;
use std::process::Command;

use crate::failure::Failure;
use crate::process;
use crate::workspace::cache_directory;

/// What independent checks of receipts and of REST are written with, and what that needs in turn.
const PACKAGES: &[&str] = &[
    "cryptography==50.0.2",
    "cffi==2.1.1",
    "pycparser==3.12",
    // The published schema of OCSF, and what validates with it.
    "ocsf-json-schema==1.2.0",
    "jsonschema==4.26.0",
    "attrs==26.1.0",
    "jsonschema-specifications==2025.9.1",
    "referencing==0.37.0",
    "rpds-py==2026.9.1",
    "typing-extensions==4.16.0",
    // in-toto's own statements, and the envelopes of its library.
    "in-toto-attestation==0.9.3",
    "protobuf==7.36.2",
    "securesystemslib==1.6.0",
    // What asks REST for everything that its document names, and more.
    "schemathesis==4.32.5",
    "anyio==4.16.0",
    "certifi==2026.10.18",
    "charset-normalizer==3.5.2",
    "click==8.5.1",
    "graphql-core==3.3.2",
    "harfile==0.6.0",
    "hypothesis==6.170.15",
    "hypothesis-graphql==0.13.5",
    "idna==3.20",
    "iniconfig==2.3.1",
    "jsonschema-rs==0.60.3",
    "markdown-it-py==4.3.0",
    "markupsafe==3.0.4",
    "mdurl==0.1.2",
    "packaging==26.3",
    "pluggy==1.7.0",
    "pygments==2.21.0",
    "pyrate-limiter==4.5.1",
    "pytest==9.2.0",
    "pyyaml==6.0.3",
    "requests==2.34.2",
    "rich==15.0.0",
    "sortedcontainers==2.4.0",
    "urllib3==2.8.0",
    "werkzeug==3.1.9",
];

/// The directory that holds the packages, filled first if this machine has not got them.
pub(super) fn packages() -> Result<PathBuf, Failure> {
    let tools = cache_directory()?.join("tools");
    let directory = tools.join(format!("python-{:016x}", digest(&PACKAGES.join(" "))));
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

/// A number that is another for another list (FNV-1a).
fn digest(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}
