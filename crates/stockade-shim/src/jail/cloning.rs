//! Clones of a template: each in namespaces of its own, with a stream of its own, jailed before it does anything else.
//!
//! ```text
//! template:  Clone ─▶ clone3(user, pid) ─▶ Cloned + pidfd ─▶ next
//! clone:                └▶ descriptors ─▶ id maps ─▶ namespaces ─▶ Begin ─▶ Jail ─▶ Enter ─▶ Jailed ─▶ serve
//! ```
//!
//! A clone is a fork without an exec: the template is one thread, so its memory is whole in the copy. It holds nothing that a clone must
//! not have but its stream, which the clone's own replaces before anything else.
//!
//! The user namespace is new too, inside the template's: the kernel counts processes and other things per user namespace, and what one
//! jail uses up must not be felt in another.

use std::ffi::{c_int, c_long, c_uint};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::process::DumpableBehavior;
use stockade_wire::message::{Reply, Request};

use super::template::Moulded;
use super::{Doing, Steps, Trouble, mounts};
use crate::CONTROL;
use crate::channel::Channel;

/// What a clone unshares by itself; the clone call makes two, and the rest is made or entered when its root stands.
const UNSHARED: c_int = libc::CLONE_NEWNS | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;

/// A clone, before it is jailed.
pub(crate) struct Cloned {
    /// Its own stream.
    pub(crate) channel: Channel,
    /// What it begins with.
    pub(crate) moulded: Moulded,
}

/// Serves a template until its stream ends. In each clone it returns with the clone.
pub(crate) fn clones(mut channel: Channel, moulded: Moulded) -> Option<Cloned> {
    // Clones are not waited for: the host sees their end by itself.
    // SAFETY: plain integers; to ignore a signal runs no code.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    loop {
        match channel.read_one() {
            Ok((id, Request::Clone {})) => {
                let stream = channel.take_descriptors(usize::MAX).into_iter().next()?;
                match clone_self() {
                    Ok(Side::Clone) => return begin(channel, moulded, stream),
                    Ok(Side::Template(process)) => channel.write_one(id, &Reply::Cloned {}, &[process]).ok()?,
                    Err(errno) => {
                        let detail = format!("cloning a guest from its template: {errno}");
                        channel
                            .write_one(id, &Reply::JailFailed { step: "clone".into(), detail, errno: errno.raw_os_error() }, &[])
                            .ok()?;
                    }
                }
            }
            Ok(_) | Err(_) => return None,
        }
    }
}

/// What a clone does before it listens to its host.
fn begin(template: Channel, moulded: Moulded, stream: OwnedFd) -> Option<Cloned> {
    let mut channel = own_stream(template, stream).ok()?;
    let mut steps = Steps { took: Vec::new() };
    let begun = steps.run("clone", || {
        only_the_stream()?;
        rustix::process::setsid().doing(|| "leaving the template's session".into())?;
        id_maps(moulded.ids)?;
        // SAFETY: plain integers; this process has one thread and shares nothing.
        let result = unsafe { libc::unshare(UNSHARED) };
        if result == 0 { Ok(()) } else { Err(mounts::last_error()).doing(|| "making namespaces".into()) }
    });
    match begun {
        Ok(()) => Some(Cloned { channel, moulded }),
        Err(failure) => {
            let reply = Reply::JailFailed { step: failure.step.to_owned(), detail: failure.detail, errno: failure.errno };
            let _ = channel.write_one(0, &reply, &[]);
            None
        }
    }
}

/// Puts the clone's stream where the template's was, so that the clone has no way to the template's host any more.
fn own_stream(template: Channel, stream: OwnedFd) -> Result<Channel, Errno> {
    // SAFETY: plain integers; the descriptor that is replaced is that of the template's stream, which is forgotten below.
    let result = unsafe { libc::dup3(stream.as_raw_fd(), CONTROL, libc::O_CLOEXEC) };
    drop(stream);
    if result != CONTROL {
        return Err(mounts::last_error());
    }
    // Its descriptor is the clone's own now; what it had buffered is nobody's.
    std::mem::forget(template);
    // SAFETY: it was just made, and the value that owned this number is forgotten.
    Ok(Channel::new(unsafe { OwnedFd::from_raw_fd(CONTROL) }))
}

/// Closes every descriptor but the standard ones and the stream, whatever the template had open.
fn only_the_stream() -> Result<(), Trouble> {
    // SAFETY: plain integers; nothing of this process owns a descriptor above the stream's.
    let result = unsafe { libc::syscall(libc::SYS_close_range, (CONTROL + 1) as c_uint, c_uint::MAX, 0 as c_uint) };
    if result == 0 { Ok(()) } else { Err(mounts::last_error()).doing(|| "closing descriptors".into()) }
}

/// The ids of the new user namespace: the same as in the template's.
fn id_maps((uid, gid): (u32, u32)) -> Result<(), Trouble> {
    // The files belong to who may look into the process. Nothing runs in this sandbox yet, and before anything does that ends.
    rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable).doing(|| "opening the id maps".into())?;
    for (file, text) in [("setgroups", "deny".to_owned()), ("uid_map", format!("{uid} {uid} 1\n")), ("gid_map", format!("{gid} {gid} 1\n"))]
    {
        std::fs::write(format!("/proc/self/{file}"), text)
            .map_err(|e| Trouble { detail: format!("writing {file}: {e}"), errno: e.raw_os_error().unwrap_or(0) })?;
    }
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).doing(|| "closing the id maps".into())
}

/// Who returned from the clone call.
enum Side {
    Clone,
    Template(OwnedFd),
}

/// Copies this process into new user and pid namespaces.
fn clone_self() -> Result<Side, Errno> {
    let mut process: c_int = -1;
    let flags = libc::CLONE_NEWUSER | libc::CLONE_NEWPID | libc::CLONE_PIDFD | libc::SIGCHLD;
    // SAFETY: a null stack means a copy of ours; the third argument is where the kernel stores the descriptor, on every architecture we build
    // for; the others are not used by these flags. One thread runs here, so the copy is whole.
    let result: c_long = unsafe { libc::syscall(libc::SYS_clone, flags as u64, 0u64, &raw mut process, 0u64, 0u64) };
    match result {
        0 => Ok(Side::Clone),
        1.. => {
            // SAFETY: the kernel stored a fresh descriptor, owned by nobody else.
            Ok(Side::Template(unsafe { OwnedFd::from_raw_fd(process) }))
        }
        _ => Err(mounts::last_error()),
    }
}
