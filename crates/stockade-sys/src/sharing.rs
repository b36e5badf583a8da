//! Children that share this process's memory: nothing is copied when they are made, and nothing taken down when they execute another
//! program or the caller ends. A copy costs page table entries at the clone, a fault for every page that either side writes to
//! afterwards, and its removal; here that is more than all system calls of a child together.
//!
//! The price is care. The child has a stack of its own, but the caller's thread-local storage (`errno` above all), allocator and
//! locks. So either the child makes only calls of [`crate::raw`], or the caller does nothing any more.

use std::ffi::c_void;

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use crate::raw::{self, CloneArgs};

/// A child's stack.
#[derive(Debug)]
pub(crate) struct Stack {
    start: *mut c_void,
    bytes: usize,
}

// SAFETY: the mapping belongs to this value alone, whichever thread has it.
unsafe impl Send for Stack {}
// SAFETY: nothing is read or written through a shared reference.
unsafe impl Sync for Stack {}

impl Stack {
    /// Memory is taken only as far as the child uses it.
    pub(crate) fn new(bytes: usize) -> Result<Self, Errno> {
        let flags = MapFlags::PRIVATE | MapFlags::STACK | MapFlags::NORESERVE;
        // SAFETY: a fresh anonymous mapping overlaps nothing.
        let start = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags) }?;
        Ok(Self { start, bytes })
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and who drops it knows that no child runs on it.
        let _ = unsafe { rustix::mm::munmap(self.start, self.bytes) };
    }
}

/// Makes a child that shares this process's memory and runs `entry(argument)`. Handlers of signals are not inherited. Where the
/// kernel knows no `clone3` the child is a copy, which does the same.
///
/// # Safety
/// `entry` keeps the rules of this module; `stack` and everything `argument` leads to live until the child has executed another
/// program or ended. Signals are blocked by the caller if a handler of his could be run by the child of a kernel without `clone3`.
pub(crate) unsafe fn clone(mut args: CloneArgs, stack: &Stack, entry: Entry, argument: *const c_void) -> Result<i32, Errno> {
    /// From `linux/sched.h`; it lies beyond the 32 bits of the other flags.
    const CLONE_CLEAR_SIGHAND: u64 = 1 << 32;
    let plain = CloneArgs { ..args };
    args.flags |= libc::CLONE_VM as u64 | CLONE_CLEAR_SIGHAND;
    args.stack = stack.start as u64;
    args.stack_size = stack.bytes as u64;
    // SAFETY: the caller keeps the rules; the arguments are whole.
    match unsafe { clone_onto(&args, entry, argument) } {
        // SAFETY: the child runs `entry` at once and never comes back.
        Err(Errno::NOSYS) => match unsafe { raw::clone(&plain) } {
            Ok(0) => entry(argument),
            other => other,
        },
        other => other,
    }
}

/// What a child runs; it never comes back.
pub(crate) type Entry = extern "C" fn(*const c_void) -> !;

/// `clone3` whose child begins in `entry` on the stack of the arguments: it cannot return from here, for the way back is on the
/// caller's stack.
#[cfg(target_arch = "x86_64")]
unsafe fn clone_onto(args: &CloneArgs, entry: Entry, argument: *const c_void) -> Result<i32, Errno> {
    let result: isize;
    // SAFETY: the kernel changes rax, rcx and r11 and, in the child, the stack pointer, which is aligned as a call wants it; the child
    // leaves by the call, which never returns.
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, {argument}",
            "call {entry}",
            "ud2",
            "2:",
            argument = in(reg) argument,
            entry = in(reg) entry,
            in("rdi") std::ptr::from_ref(args),
            in("rsi") size_of::<CloneArgs>(),
            inout("rax") libc::SYS_clone3 as isize => result,
            out("rcx") _,
            out("r11") _,
        );
    }
    raw::outcome(result).map(|pid| pid as i32)
}

/// As above.
#[cfg(target_arch = "aarch64")]
unsafe fn clone_onto(args: &CloneArgs, entry: Entry, argument: *const c_void) -> Result<i32, Errno> {
    let result: isize;
    // SAFETY: the kernel changes x0 and, in the child, the stack pointer; the child leaves by the call, which never returns.
    unsafe {
        std::arch::asm!(
            "svc 0",
            "cbnz x0, 2f",
            "mov x29, xzr",
            "mov x30, xzr",
            "mov x0, {argument}",
            "blr {entry}",
            "brk 1",
            "2:",
            argument = in(reg) argument,
            entry = in(reg) entry,
            inout("x0") std::ptr::from_ref(args) as isize => result,
            in("x1") size_of::<CloneArgs>(),
            in("x8") libc::SYS_clone3,
            lateout("x30") _,
        );
    }
    raw::outcome(result).map(|pid| pid as i32)
}
