//! New namespaces from inside: the door to the kernel's privileged paths.

use crate::call::{self, raw};
use crate::facts::Facts;
use crate::finding::{Finding, if_it_works, if_reached};

use super::Attempt;

pub(super) const TABLE: &[(&str, Attempt)] = &[
    ("unshare_user", unshare_user),
    ("clone_user", clone_user),
    ("clone3_user", clone3_user),
    ("clone_user_high_bits", clone_user_high_bits),
    ("user_namespace_root", user_namespace_root),
    ("setns_pidfd", setns_pidfd),
    ("setns_decoy", setns_decoy),
    ("deep_user_namespaces", deep_user_namespaces),
];

fn unshare_user(_: &Facts) -> Finding {
    if_it_works(raw(libc::SYS_unshare, &[i64::from(libc::CLONE_NEWUSER)]))
}

fn cloned(flags: i64) -> Finding {
    let result = raw(libc::SYS_clone, &[flags | i64::from(libc::SIGCHLD)]);
    if matches!(result, Ok(0)) {
        call::leave(0);
    }
    if let Ok(child) = result {
        call::wait_for(child as i32);
    }
    if_it_works(result)
}

fn clone_user(_: &Facts) -> Finding {
    cloned(i64::from(libc::CLONE_NEWUSER))
}

/// The kernel cuts the flags to 32 bits; a filter that compares 64 is fooled.
fn clone_user_high_bits(_: &Facts) -> Finding {
    cloned(i64::from(libc::CLONE_NEWUSER) | 1 << 40)
}

/// The flags lie behind a pointer, which a filter cannot follow.
fn clone3_user(_: &Facts) -> Finding {
    let mut arguments = [0u64; 11];
    let [flags, _, _, _, signal, ..] = &mut arguments;
    *flags = libc::CLONE_NEWUSER as u64;
    *signal = libc::SIGCHLD as u64;
    let result = raw(libc::SYS_clone3, &[call::address(&arguments), 88]);
    if matches!(result, Ok(0)) {
        call::leave(0);
    }
    if let Ok(child) = result {
        call::wait_for(child as i32);
    }
    if_it_works(result)
}

fn user_namespace_root(_: &Facts) -> Finding {
    if_it_works(call::gain())
}

/// Joins a namespace through a pidfd. Its own, which the kernel answers with EINVAL where the call is there.
fn setns_pidfd(_: &Facts) -> Finding {
    let pidfd = raw(libc::SYS_pidfd_open, &[i64::from(std::process::id()), 0]).unwrap_or(-1);
    if_reached(raw(libc::SYS_setns, &[pidfd, i64::from(libc::CLONE_NEWUSER)]))
}

/// Joins the victim's namespaces through /proc.
fn setns_decoy(facts: &Facts) -> Finding {
    match call::open(&format!("/proc/{}/ns/user", facts.text("decoy_pid")), libc::O_RDONLY) {
        Ok(fd) => if_reached(raw(libc::SYS_setns, &[fd, i64::from(libc::CLONE_NEWUSER)])),
        Err(error) => Finding::Held(error.to_string()),
    }
}

/// Several levels deep: each has memory of the kernel's own.
fn deep_user_namespaces(_: &Facts) -> Finding {
    for _ in 0..8 {
        if let Err(error) = call::gain() {
            return Finding::Held(error.to_string());
        }
    }
    Finding::Open("eight levels".into())
}
