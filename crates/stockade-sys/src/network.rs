//! Network namespaces with nothing but loopback, made for a guest while it does other things: making one takes the kernel longer than
//! everything else that a start needs.
//!
//! A short-lived child enters the guest's user namespace, so that the guest is the one who may do things to it, and makes it there.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::io::Errno;
use rustix::process::{Pid, WaitId, WaitIdOptions};

use crate::raw;
use crate::sharing::{self, Stack};

/// More than the child ever uses.
const STACK: usize = 16 << 10;
/// From `linux/sockios.h`: the network namespace of a socket.
const SIOCGSKNS: usize = 0x894c;

/// What the child needs and says.
struct Job {
    user_namespace: RawFd,
    /// The new namespace's descriptor, or an error number less than 0.
    made: AtomicI32,
}

/// Makes a network namespace that belongs to this user namespace, with loopback switched on.
pub fn make(user_namespace: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let stack = Stack::new(STACK)?;
    let job = Job { user_namespace: user_namespace.as_raw_fd(), made: AtomicI32::new(-Errno::IO.raw_os_error()) };
    // Descriptors are shared too: what the child opens last is ours. The caller stands still until it has ended.
    let flags = (libc::CLONE_VFORK | libc::CLONE_FILES) as u64;
    let args = raw::CloneArgs { flags, exit_signal: libc::SIGCHLD as u64, ..raw::CloneArgs::default() };
    // SAFETY: the child makes raw calls only, and has ended when this returns.
    let pid = unsafe { sharing::clone(args, &stack, run, (&raw const job).cast()) }?;
    if let Some(pid) = Pid::from_raw(pid) {
        while matches!(rustix::process::waitid(WaitId::Pid(pid), WaitIdOptions::EXITED), Err(Errno::INTR)) {}
    }
    match job.made.load(Ordering::Acquire) {
        // SAFETY: the child left this descriptor for us.
        fd @ 0.. => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        errno => Err(Errno::from_raw_os_error(-errno)),
    }
}

/// Runs in the child: makes raw calls only, never returns.
extern "C" fn run(job: *const c_void) -> ! {
    // SAFETY: `make` passed a job, and stands still until this process has ended.
    let job = unsafe { &*job.cast::<Job>() };
    let made = try_make(job.user_namespace).unwrap_or_else(|errno| -errno.raw_os_error());
    job.made.store(made, Ordering::Release);
    raw::exit_now(0)
}

fn try_make(user_namespace: RawFd) -> Result<c_int, Errno> {
    call(libc::SYS_setns, [user_namespace as usize, libc::CLONE_NEWUSER as usize, 0])?;
    call(libc::SYS_unshare, [libc::CLONE_NEWNET as usize, 0, 0])?;
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
    let socket = call(libc::SYS_socket, [libc::AF_INET as usize, kind as usize, 0])?;
    let made = loopback(socket).and_then(|()| call(libc::SYS_ioctl, [socket, SIOCGSKNS, 0]));
    let _ = call(libc::SYS_close, [socket, 0, 0]);
    made.map(|fd| fd as c_int)
}

fn loopback(socket: usize) -> Result<(), Errno> {
    // SAFETY: all-zero bytes are a valid ifreq: integers, arrays and a union of plain data.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (slot, byte) in request.ifr_name.iter_mut().zip(b"lo") {
        *slot = *byte as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    call(libc::SYS_ioctl, [socket, libc::SIOCSIFFLAGS as usize, &raw const request as usize]).map(drop)
}

/// A call whose arguments are integers, or lead to what lives through it.
fn call(number: libc::c_long, arguments: [usize; 3]) -> Result<usize, Errno> {
    let [a, b, c] = arguments;
    // SAFETY: as the callers here use it.
    unsafe { raw::call(number, [a, b, c, 0, 0, 0]) }
}
