//! The system call filter: the last wall a program in the sandbox meets before the kernel.
//!
//! Owns the act of installing the program that the build script made from `seccomp/allow.txt`, and the question whether
//! it is in force. Promises that afterwards every call outside that list answers ENOSYS (a condition that does not hold
//! answers the error named there), and that a call made in another calling convention, as 32-bit code does, kills its
//! process. The filter is inherited by every child and cannot be taken off. Does not set `no_new_privs`.

use rustix::io::Errno;

include!(concat!(env!("OUT_DIR"), "/seccomp_filter.rs"));

/// Puts the filter on the calling thread and all that it starts from now on.
///
/// The caller has set `no_new_privs` and has no other thread yet: those would stay unfiltered.
pub(crate) fn install() -> Result<(), Errno> {
    put_on(&GENERAL)
}

/// As [`install`], but memory files cannot be made either, so that none can be executed past an exec list.
pub(crate) fn install_without_memory_files() -> Result<(), Errno> {
    put_on(&EXEC_LIST)
}

fn put_on<const LENGTH: usize>(filter: &'static [libc::sock_filter; LENGTH]) -> Result<(), Errno> {
    const NO_FLAGS: libc::c_ulong = 0;
    const { assert!(LENGTH <= 4096, "the kernel takes at most 4096 instructions") };
    let program = libc::sock_fprog { len: LENGTH as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: `program` lives until the call returns and names `LENGTH` initialised instructions of a static table,
    // which the kernel copies and never writes, so the cast to a mutable pointer is only for the type's sake.
    let answer = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, NO_FLAGS, &raw const program) };
    if answer == 0 { Ok(()) } else { Err(last_errno()) }
}

/// Tries a refused call and says whether the filter answered it.
///
/// The call is `unshare` of nothing: every kernel has it and does nothing when asked so, hence ENOSYS can only come
/// from a filter. (`keyctl` is missing from some kernels, which then answer ENOSYS by themselves.)
pub(crate) fn probe() -> bool {
    const NOTHING: libc::c_ulong = 0;
    // SAFETY: takes no pointer and, without flags, changes nothing whether or not it is refused.
    let answer = unsafe { libc::syscall(libc::SYS_unshare, NOTHING) };
    answer == -1 && last_errno() == Errno::NOSYS
}

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
