//! What holds, as the kernel tells it: read from `/proc/self` and tried out.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use stockade_wire::plan::JailReport;

use super::confine::LandlockState;
use super::{Trouble, seccomp};

const NAMESPACES: [&str; 7] = ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"];

/// Reads the state back. The probes must be refused for their layer to count as held.
pub(crate) fn report(landlock: &LandlockState, filtered: bool, probe: &OwnedFd) -> Result<JailReport, Trouble> {
    let status = read("/proc/self/status")?;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name).map(str::trim));
    let number = |name: &str| field(name).and_then(|v| v.parse::<u32>().ok());
    let capability = |name: &str| field(name).and_then(|v| u64::from_str_radix(v, 16).ok()).unwrap_or(u64::MAX);
    let mut namespaces = Vec::with_capacity(NAMESPACES.len());
    for name in NAMESPACES {
        namespaces.push((name.to_owned(), namespace(name)?));
    }
    let interfaces = read("/proc/self/net/dev")?;
    let loopback_only = interfaces.lines().skip(2).all(|line| line.trim_start().starts_with("lo:"));
    Ok(JailReport {
        steps: Vec::new(),
        namespaces,
        no_new_privs: number("NoNewPrivs:") == Some(1),
        seccomp_mode: number("Seccomp:").unwrap_or(0),
        seccomp_probe: filtered && seccomp::probe(),
        capabilities: capability("CapEff:") | capability("CapPrm:") | capability("CapInh:") | capability("CapBnd:") | capability("CapAmb:"),
        landlock_abi: landlock.abi,
        landlock_restricted: landlock.restricted,
        landlock_probe: landlock.restricted && write_is_refused(probe),
        loopback_only,
        root_detached: only_own_mounts()?,
        uid: rustix::process::getuid().as_raw(),
    })
}

fn read(path: &str) -> Result<String, Trouble> {
    std::fs::read_to_string(path).map_err(|e| Trouble::new(format!("reading {path}: {e}")))
}

fn namespace(name: &str) -> Result<u64, Trouble> {
    let link = std::fs::read_link(format!("/proc/self/ns/{name}")).map_err(|e| Trouble::new(format!("reading namespace {name}: {e}")))?;
    let text = link.to_string_lossy();
    let digits = text.trim_start_matches(|c: char| !c.is_ascii_digit()).trim_end_matches(']');
    digits.parse().map_err(|_| Trouble::new(format!("namespace {name} has the odd name {text}")))
}

/// The probe directory can be written as far as mounts and modes go; only Landlock says no.
fn write_is_refused(probe: &OwnedFd) -> bool {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    match rustix::fs::openat(probe, c"probe", flags, Mode::from_raw_mode(0o600)) {
        Ok(_) => {
            // The file would only take room; whether it can be removed changes nothing about the answer.
            let _ = rustix::fs::unlinkat(probe, c"probe", AtFlags::empty());
            false
        }
        Err(errno) => errno == Errno::ACCESS,
    }
}

/// After the detach the mount table begins with our root and holds no second mount at `/`.
fn only_own_mounts() -> Result<bool, Trouble> {
    // Bytes, not text: the names of mount points need not be UTF-8.
    let table = std::fs::read("/proc/self/mountinfo").map_err(|e| Trouble::new(format!("reading /proc/self/mountinfo: {e}")))?;
    let roots = table.split(|byte| *byte == b'\n').filter(|line| line.split(|byte| *byte == b' ').nth(4) == Some(b"/")).count();
    Ok(roots == 1)
}
