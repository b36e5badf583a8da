//! System calls by number, and the few that std has no form of. All of the probe's `unsafe` but the pointers of shared memory is here.

use std::ffi::CString;
use std::io::{self, Read};
use std::os::fd::AsRawFd;

/// A call by number with up to six arguments; missing ones are 0.
pub(crate) fn raw(number: libc::c_long, arguments: &[i64]) -> io::Result<i64> {
    let at = |index: usize| arguments.get(index).copied().unwrap_or(0);
    // SAFETY: pointers among the arguments point to values that the caller keeps alive over the call, or are deliberately wrong, which the
    // kernel answers with an error; memory of this process is never freed or remapped by the calls that are tried.
    let result = unsafe { libc::syscall(number, at(0), at(1), at(2), at(3), at(4), at(5)) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Text as a pointer's owner; interior NULs end it.
pub(crate) fn text(text: &str) -> CString {
    CString::new(text.split('\0').next().unwrap_or_default()).unwrap_or_default()
}

/// The address of a value, as an argument.
pub(crate) fn address<T: ?Sized>(value: &T) -> i64 {
    std::ptr::from_ref(value).cast::<u8>() as i64
}

/// The address of text, as an argument.
pub(crate) fn pointer(text: &CString) -> i64 {
    text.as_ptr() as i64
}

/// Forks; the probe has one thread.
pub(crate) fn fork() -> io::Result<i32> {
    // SAFETY: no other thread exists, so the child may use everything the parent could.
    let pid = unsafe { libc::fork() };
    if pid < 0 { Err(io::Error::last_os_error()) } else { Ok(pid) }
}

/// Ends this process at once, running no destructor that belongs to the parent.
pub(crate) fn leave(code: i32) -> ! {
    // SAFETY: does not return and touches no memory.
    unsafe { libc::_exit(code) }
}

/// SIGALRM after some seconds.
pub(crate) fn alarm(seconds: u32) {
    // SAFETY: takes a number.
    unsafe { libc::alarm(seconds) };
}

/// Waits for a child and gives its status.
pub(crate) fn wait_for(child: i32) -> i32 {
    let mut status = 0;
    // SAFETY: `status` outlives the call.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    status
}

/// What a pipe holds now, without waiting for its end.
pub(crate) fn read_available(mut pipe: io::PipeReader) -> Vec<u8> {
    let _ = raw(libc::SYS_fcntl, &[i64::from(pipe.as_raw_fd()), i64::from(libc::F_SETFL), i64::from(libc::O_NONBLOCK)]);
    let mut bytes = vec![0; 4096];
    let count = pipe.read(&mut bytes).unwrap_or(0);
    bytes.truncate(count);
    bytes
}

/// A soft and hard limit.
pub(crate) fn limit(resource: i64) -> io::Result<(u64, u64)> {
    let mut both = [0u64; 2];
    raw(libc::SYS_prlimit64, &[0, resource, 0, std::ptr::from_mut(&mut both) as i64])?;
    let [soft, hard] = both;
    Ok((soft, hard))
}

/// Opens a path with flags.
pub(crate) fn open(path: &str, flags: i32) -> io::Result<i64> {
    let path = text(path);
    raw(libc::SYS_openat, &[i64::from(libc::AT_FDCWD), pointer(&path), i64::from(flags), 0o600])
}

/// Enters a user namespace with every other kind of namespace, mapped to root in it. What a nested namespace gives an attacker.
pub(crate) fn gain() -> io::Result<()> {
    let (uid, gid) = (raw(libc::SYS_geteuid, &[])?, raw(libc::SYS_getegid, &[])?);
    let kinds =
        libc::CLONE_NEWUSER | libc::CLONE_NEWNS | libc::CLONE_NEWNET | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS | libc::CLONE_NEWCGROUP;
    raw(libc::SYS_unshare, &[i64::from(kinds)])?;
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("0 {gid} 1"))
}
