//! What holds, as the kernel tells it: read from `/proc/self` and tried out.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use stockade_wire::plan::JailReport;

use super::confine::LandlockState;
use super::{Doing, Trouble, seccomp};

/// What the kernel gives at once.
const PAGE: usize = 4096;
const NAMESPACES: [&str; 7] = ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"];

/// Reads the state back. The probes must be refused for their layer to count as held.
pub(crate) fn report(landlock: &LandlockState, filtered: bool, probe: &OwnedFd) -> Result<JailReport, Trouble> {
    let status = String::from_utf8_lossy(&read("/proc/self/status")?).into_owned();
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name).map(str::trim));
    let number = |name: &str| field(name).and_then(|v| v.parse::<u32>().ok());
    let capability = |name: &str| field(name).and_then(|v| u64::from_str_radix(v, 16).ok()).unwrap_or(u64::MAX);
    let namespaces = namespaces()?;
    let interfaces = read("/proc/self/net/dev")?;
    let loopback_only = lines(&interfaces).skip(2).filter(|line| !line.is_empty()).all(|line| line.trim_ascii_start().starts_with(b"lo:"));
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
        root_detached: nothing_covers_the_root()?,
        uid: rustix::process::getuid().as_raw(),
    })
}

/// The namespaces of this process.
pub(crate) fn namespaces() -> Result<Vec<(String, u64)>, Trouble> {
    NAMESPACES.iter().map(|name| Ok(((*name).to_owned(), namespace(name)?))).collect()
}

/// Reads a file of the kernel's, which gives a page at a time and does not say how many there are.
fn read(path: &str) -> Result<Vec<u8>, Trouble> {
    let doing = || format!("reading {path}");
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).doing(doing)?;
    let mut bytes = Vec::with_capacity(4 * PAGE);
    loop {
        bytes.reserve(PAGE);
        if rustix::io::read(&file, rustix::buffer::spare_capacity(&mut bytes)).doing(doing)? == 0 {
            return Ok(bytes);
        }
    }
}

/// A namespace's number is that of its file.
fn namespace(name: &str) -> Result<u64, Trouble> {
    rustix::fs::stat(format!("/proc/self/ns/{name}")).doing(|| format!("looking at the namespace {name}")).map(|stat| stat.st_ino)
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

/// The old root lay over the new one until it was detached. What lies over the root is seen by going up from it, which ends in the root
/// again and then crosses whatever is mounted there.
fn nothing_covers_the_root() -> Result<bool, Trouble> {
    let mount = |path: &str| {
        let found = rustix::fs::statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID).doing(|| format!("looking at {path}"))?;
        if !StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::MNT_ID) {
            return Err(Trouble::new("the kernel does not tell mounts apart (before 5.8)"));
        }
        Ok(found.stx_mnt_id)
    };
    Ok(mount("/")? == mount("/..")?)
}

fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split(|byte| *byte == b'\n')
}

#[cfg(test)]
mod tests {
    use super::super::root;
    use super::*;
    use rustix::mount::{MountPropagationFlags, mount_bind, mount_change};
    use rustix::thread::{UnshareFlags, unshare_unsafe};
    use std::os::fd::AsFd;

    #[test]
    fn an_old_root_that_was_not_detached_is_seen() {
        // In a mount namespace of one thread's own, which needs root: the others keep the root they have.
        let alone = std::thread::spawn(|| {
            // SAFETY: the thread shares neither its root nor its mounts with anybody from here on, and ends soon.
            unsafe { unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::FS) }.unwrap();
            mount_change(c"/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
            mount_bind(c"/usr", c"/usr").unwrap();
            let new = rustix::fs::open(c"/usr", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap();
            assert!(nothing_covers_the_root().unwrap(), "before");
            root::pivot_to(new.as_fd()).unwrap();
            assert!(!nothing_covers_the_root().unwrap(), "the old root still lies over the new one");
            root::detach().unwrap();
            assert!(nothing_covers_the_root().unwrap(), "after");
        });
        alone.join().unwrap();
    }
}
