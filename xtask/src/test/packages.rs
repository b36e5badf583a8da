//! What the tests need from the machine, as data, and its installation where that is possible.
//!
//! A missing program is installed with apt-get when root runs the tests, and is otherwise a failure that names the command:
//! a test that quietly skipped itself would prove nothing.

use std::process::Command;

use crate::failure::Failure;
use crate::process;

/// One program the tests run, the Debian package that has it, and why.
struct Need {
    program: &'static str,
    package: &'static str,
    reason: &'static str,
}

const NEEDS: &[Need] = &[
    Need { program: "setpriv", package: "util-linux", reason: "jail tests run as an ordinary user as well as root" },
    Need { program: "gcc", package: "gcc", reason: "links the guest; inside: compilers must run as outside" },
    Need { program: "make", package: "make", reason: "inside: build tools must run as outside" },
    Need { program: "git", package: "git", reason: "inside: commits in an overlay, linked worktrees" },
    Need { program: "python3", package: "python3", reason: "inside: an interpreter, and attacks written in it" },
    Need { program: "pip3", package: "python3-pip", reason: "receipts: installs what the independent checker needs, outside the clone" },
    Need { program: "curl", package: "curl", reason: "egress: a client that knows proxies" },
    Need { program: "gh", package: "gh", reason: "packs: the built-in pack is checked against the real program" },
    Need { program: "openssl", package: "openssl", reason: "egress: certificates of the servers outside" },
    Need { program: "sshd", package: "openssh-server", reason: "credentials: a real server for git over SSH" },
    Need { program: "ssh-keygen", package: "openssh-client", reason: "credentials: its keys and certificates" },
    Need { program: "dbus-run-session", package: "dbus-daemon", reason: "secrets: a bus of its own for a keyring" },
    Need { program: "gnome-keyring-daemon", package: "gnome-keyring", reason: "secrets: a real keychain" },
    Need { program: "secret-tool", package: "libsecret-tools", reason: "secrets: how the keychain is read" },
    Need { program: "node", package: "nodejs", reason: "inside: a just-in-time compiler under the filter" },
    Need { program: "npm", package: "npm", reason: "inside: package caches over the empty home" },
    Need { program: "dockerd", package: "docker.io", reason: "surroundings: inside a real container without privileges" },
    Need { program: "docker", package: "docker.io", reason: "credentials: asks a registry with what its helper inside says" },
    Need { program: "kubectl", package: "kubernetes-client", reason: "credentials: asks an API server with what its plugin inside says" },
    Need { program: "mkfs.btrfs", package: "btrfs-progs", reason: "surroundings: a workspace on btrfs" },
    Need { program: "mkfs.xfs", package: "xfsprogs", reason: "surroundings: a workspace on XFS" },
    Need { program: "apparmor_parser", package: "apparmor", reason: "surroundings: reads the AppArmor profile that is shipped" },
    Need {
        program: "bwrap",
        package: "bubblewrap",
        reason: "the conformance suite runs on somebody else's wall too, which tests the suite",
    },
    Need { program: "perl", package: "perl-base", reason: "the conformance suite: attempts written in it" },
    Need { program: "java", package: "default-jdk-headless", reason: "inside: many threads and memory maps" },
    Need {
        program: "javac",
        package: "default-jdk-headless",
        reason: "egress: a client with a list of authorities of its own, as a source",
    },
];

/// Makes sure that every needed program is there. Returns one line that sums up.
pub(crate) fn ensure() -> Result<String, Failure> {
    let missing: Vec<&Need> = NEEDS.iter().filter(|need| process::find_program(need.program).is_none()).collect();
    if missing.is_empty() {
        return Ok(format!("{} programs are there", NEEDS.len()));
    }
    for need in &missing {
        println!("missing `{}` ({}): {}", need.program, need.package, need.reason);
    }
    let mut packages: Vec<&str> = missing.iter().map(|need| need.package).collect();
    packages.dedup();
    if !is_root()? || process::find_program("apt-get").is_none() {
        return Err(Failure::new(format!("programs are missing\nhint: sudo apt-get install {}", packages.join(" "))));
    }
    process::run(apt_get().args(["update", "-qq"]))?;
    process::run(apt_get().args(["install", "-y", "-qq", "--no-install-recommends"]).args(&packages))?;
    Ok(format!("installed {}", packages.join(" ")))
}

fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}

/// Whether the effective user is root, as the kernel tells it.
fn is_root() -> Result<bool, Failure> {
    use std::os::unix::fs::MetadataExt;
    let path = std::path::Path::new("/proc/self");
    path.metadata().map(|data| data.uid() == 0).map_err(Failure::io("read", path))
}
