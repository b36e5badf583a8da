//! Raw calls that may run between `clone3` and `execveat`: no allocation, no locks, no Rust runtime, and none of `errno`, which a child
//! that shares memory has in common with its parent.

use std::ffi::{c_int, c_long};

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

/// A system call with up to six arguments, by way of no library.
///
/// # Safety
/// As the call asks.
#[cfg(target_arch = "x86_64")]
pub(crate) unsafe fn call(number: c_long, arguments: [usize; 6]) -> Result<usize, Errno> {
    let [first, second, third, fourth, fifth, sixth] = arguments;
    let result: isize;
    // SAFETY: the registers are those of the kernel's convention, the changed ones are named; the caller vouches for the call.
    unsafe {
        std::arch::asm!(
            "syscall",
            inout("rax") number as isize => result,
            in("rdi") first, in("rsi") second, in("rdx") third, in("r10") fourth, in("r8") fifth, in("r9") sixth,
            out("rcx") _, out("r11") _,
            options(nostack),
        );
    }
    outcome(result)
}

/// As above.
///
/// # Safety
/// As the call asks.
#[cfg(target_arch = "aarch64")]
pub(crate) unsafe fn call(number: c_long, arguments: [usize; 6]) -> Result<usize, Errno> {
    let [first, second, third, fourth, fifth, sixth] = arguments;
    let result: isize;
    // SAFETY: the registers are those of the kernel's convention; the caller vouches for the call.
    unsafe {
        std::arch::asm!(
            "svc 0",
            inout("x0") first as isize => result,
            in("x1") second, in("x2") third, in("x3") fourth, in("x4") fifth, in("x5") sixth, in("x8") number,
            options(nostack),
        );
    }
    outcome(result)
}

/// What the kernel's answer means: small negative numbers are errors.
pub(crate) fn outcome(result: isize) -> Result<usize, Errno> {
    /// The kernel's largest error number.
    const LARGEST: isize = 4095;
    if (-LARGEST..0).contains(&result) { Err(Errno::from_raw_os_error(-result as i32)) } else { Ok(result as usize) }
}

/// Ends the process without running anything.
pub(crate) fn exit_now(code: c_int) -> ! {
    loop {
        // SAFETY: takes an integer and does not return.
        let _ = unsafe { call(libc::SYS_exit_group, [code as usize, 0, 0, 0, 0, 0]) };
    }
}

/// Reads one byte; `false` on end of file or error.
pub(crate) fn read_byte(fd: c_int) -> bool {
    let mut byte = 0u8;
    loop {
        // SAFETY: the buffer is one byte on our stack.
        match unsafe { call(libc::SYS_read, [fd as usize, &raw mut byte as usize, 1, 0, 0, 0]) } {
            Ok(count) => return count == 1,
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

/// Writes a small buffer at once.
pub(crate) fn write_all(fd: c_int, bytes: &[u8]) -> Result<(), Errno> {
    // SAFETY: the buffer is valid for reads of its length.
    unsafe { call(libc::SYS_write, [fd as usize, bytes.as_ptr() as usize, bytes.len(), 0, 0, 0]) }.map(drop)
}
