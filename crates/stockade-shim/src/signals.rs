//! Signals: the guest handles none; it reads the few that matter from a descriptor.
//!
//! Owns the signal mask and dispositions of the guest. Because it installs no handler, nothing of it can run in a
//! child that shares its memory until `execve`, so starting a program needs no extra masking.

use std::os::fd::{FromRawFd, OwnedFd};

use rustix::io::Errno;

/// Whether the guest is the first process of its pid namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// The kernel kills everything inside when it ends, and it inherits every orphan.
    Init,
    /// An ordinary process beside others.
    Process,
}

impl Role {
    /// Reads it from the process number.
    pub(crate) fn current() -> Self {
        if rustix::process::getpid().is_init() { Self::Init } else { Self::Process }
    }
}

/// Writing to a stream that nobody reads is an error to handle, not an end.
pub(crate) fn ignore_broken_pipes() {
    // SAFETY: ignoring a signal installs no handler.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}

/// Sets default dispositions (but for SIGPIPE, which stays ignored) and returns a descriptor that
/// becomes readable on SIGCHLD, and for an ordinary process also on the signals that ask it to end.
pub(crate) fn prepare(role: Role) -> Result<OwnedFd, Errno> {
    for signal in 1..=64 {
        if signal != libc::SIGPIPE && is_ignored(signal) {
            set_default(signal);
        }
    }
    let mut set = empty_set();
    add(&mut set, libc::SIGCHLD);
    // A first process is deaf to these unless it asks for them, and its own programs could send them.
    if role == Role::Process {
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT] {
            add(&mut set, signal);
        }
    }
    // SAFETY: `set` is an initialised signal set; the old mask is not asked for.
    let masked = unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut()) };
    if masked != 0 {
        return Err(last_error());
    }
    // SAFETY: `set` is an initialised signal set, and -1 asks for a new descriptor.
    let fd = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
    if fd < 0 {
        return Err(last_error());
    }
    // SAFETY: the kernel just returned this descriptor and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// What the signal descriptor said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Woken {
    /// Children may have ended.
    Children,
    /// Somebody asked the guest to end.
    Ending,
}

/// Empties the signal descriptor.
pub(crate) fn take(fd: &OwnedFd) -> Woken {
    const INFO: usize = size_of::<libc::signalfd_siginfo>();
    let mut woken = Woken::Children;
    let mut buffer = [0u8; INFO * 8];
    while let Ok(count) = rustix::io::read(fd, &mut buffer) {
        for info in buffer.get(..count).unwrap_or_default().chunks_exact(INFO) {
            // `ssi_signo` is the first field.
            if let Some(number) = info.first_chunk::<4>()
                && u32::from_ne_bytes(*number) != libc::SIGCHLD as u32
            {
                woken = Woken::Ending;
            }
        }
        if count < buffer.len() {
            break;
        }
    }
    woken
}

/// In the child before `execve`: no signal is blocked and SIGPIPE ends a program again.
pub(crate) fn reset_in_child() {
    set_default(libc::SIGPIPE);
    let set = empty_set();
    // SAFETY: `set` is an initialised signal set; the old mask is not asked for.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut()) };
}

/// Sends a signal to every process that the guest may signal, but itself.
pub(crate) fn kill_everyone(signal: i32) {
    // SAFETY: takes plain integers and touches no memory.
    unsafe { libc::kill(-1, signal) };
}

/// Sends a signal to a process group. Takes any number, because real-time signals are allowed too.
pub(crate) fn kill_group(group: i32, signal: i32) {
    if group > 1 {
        // SAFETY: takes plain integers and touches no memory.
        unsafe { libc::kill(-group, signal) };
    }
}

/// The error of the C library call that just failed.
pub(crate) fn last_error() -> Errno {
    Errno::from_raw_os_error(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
}

fn empty_set() -> libc::sigset_t {
    let mut set = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the pointer is valid for writing a signal set.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: `sigemptyset` initialised it, and all zeroes is a signal set as well.
    unsafe { set.assume_init() }
}

fn add(set: &mut libc::sigset_t, signal: i32) {
    // SAFETY: `set` is an initialised signal set; a bad number only makes the call fail.
    unsafe { libc::sigaddset(set, signal) };
}

/// The kernel's own form of a disposition: handler, flags, restorer, mask. Zeroes are the default, 1 is to ignore.
type Disposition = [u64; 4];
/// Bytes in the kernel's signal mask.
const MASK_BYTES: usize = 8;

/// Asked of the kernel directly, because the C library hides the two signals that it uses itself.
fn is_ignored(signal: i32) -> bool {
    let mut old: Disposition = [0; 4];
    let none = std::ptr::null::<Disposition>();
    // SAFETY: `old` has room for the kernel's structure, and a null new disposition changes nothing.
    let answer = unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, none, &raw mut old, MASK_BYTES) };
    let [handler, ..] = old;
    answer == 0 && handler == libc::SIG_IGN as u64
}

fn set_default(signal: i32) {
    let new: Disposition = [0; 4];
    let none = std::ptr::null_mut::<Disposition>();
    // SAFETY: `new` is a whole structure of the kernel; the default disposition runs no code of ours.
    unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, &raw const new, none, MASK_BYTES) };
}
