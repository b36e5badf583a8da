//! Raw calls that may run between `clone3` and `execveat`: no allocation, no locks, no Rust runtime.

use std::ffi::{c_int, c_long, c_void};

use rustix::io::Errno;

/// `clone3` arguments, as the kernel lays them out.
#[repr(C)]
#[derive(Default)]
pub(crate) struct CloneArgs {
    pub(crate) flags: u64,
    pub(crate) pidfd: u64,
    pub(crate) child_tid: u64,
    pub(crate) parent_tid: u64,
    pub(crate) exit_signal: u64,
    pub(crate) stack: u64,
    pub(crate) stack_size: u64,
    pub(crate) tls: u64,
    pub(crate) set_tid: u64,
    pub(crate) set_tid_size: u64,
    pub(crate) cgroup: u64,
}

/// Clones the process; returns 0 in the child. Falls back to the older call: container engines answer `clone3` with ENOSYS because
/// their filters cannot look into its arguments.
///
/// # Safety
/// The child of a threaded process may only make raw system calls on memory prepared beforehand, until it executes
/// another program or exits. Without `clone3` only `flags`, `pidfd` and `exit_signal` of the arguments are used.
pub(crate) unsafe fn clone(args: &CloneArgs) -> Result<i32, Errno> {
    // SAFETY: the caller keeps the child's rules.
    match unsafe { clone3(args) } {
        // SAFETY: as above.
        Err(Errno::NOSYS) => unsafe { clone2(args) },
        other => other,
    }
}

/// Whether `clone3` is there: without arguments it does nothing but say so.
pub(crate) fn has_clone3() -> bool {
    // SAFETY: a size of 0 is refused before the null pointer is looked at.
    let result = unsafe { libc::syscall(libc::SYS_clone3, std::ptr::null::<CloneArgs>(), 0usize) };
    check(result).err() != Some(Errno::NOSYS)
}

unsafe fn clone3(args: &CloneArgs) -> Result<i32, Errno> {
    // SAFETY: the argument structure is valid for reads through the call and its size is given; the caller keeps the child's rules.
    let result = unsafe { libc::syscall(libc::SYS_clone3, std::ptr::from_ref(args), size_of::<CloneArgs>()) };
    check(result).map(|pid| pid as i32)
}

unsafe fn clone2(args: &CloneArgs) -> Result<i32, Errno> {
    let flags = args.flags | args.exit_signal;
    // SAFETY: a null stack means a copy of ours; the third argument is where the kernel stores the pidfd, on every architecture we
    // build for, and the caller keeps that place valid; the others are not used by these flags.
    let result = unsafe { libc::syscall(libc::SYS_clone, flags, 0u64, args.pidfd, 0u64, 0u64) };
    check(result).map(|pid| pid as i32)
}

/// The error of a raw call, read from `errno`.
pub(crate) fn check(result: c_long) -> Result<c_long, Errno> {
    if result >= 0 { Ok(result) } else { Err(last()) }
}

/// The current `errno`.
pub(crate) fn last() -> Errno {
    // SAFETY: the location is always valid in a running thread.
    let location = unsafe { libc::__errno_location() };
    // SAFETY: reading an int through that valid pointer.
    Errno::from_raw_os_error(unsafe { *location })
}

/// Ends the process without running anything.
pub(crate) fn exit_now(code: c_int) -> ! {
    // SAFETY: _exit touches no memory and does not return.
    unsafe { libc::_exit(code) }
}

/// Reads one byte; `false` on end of file or error.
pub(crate) fn read_byte(fd: c_int) -> bool {
    let mut byte = 0u8;
    loop {
        // SAFETY: the buffer is one byte on our stack.
        let n = unsafe { libc::read(fd, (&raw mut byte).cast::<c_void>(), 1) };
        if n == 1 {
            return true;
        }
        if n == 0 || last() != Errno::INTR {
            return false;
        }
    }
}

/// Writes a small buffer, ignoring the outcome (used to report a failure just before exiting).
pub(crate) fn write_all(fd: c_int, bytes: &[u8]) -> Result<(), Errno> {
    // SAFETY: the buffer is valid for reads of its length.
    let n = unsafe { libc::write(fd, bytes.as_ptr().cast::<c_void>(), bytes.len()) };
    check(n as c_long).map(drop)
}
