//! The machine itself: clocks, modules, power, names, accounting. Arguments are such that nothing happens even where the call gets through.

use crate::call::{self, address, pointer, raw, text};
use crate::facts::Facts;
use crate::finding::{Finding, if_it_works, if_reached};

use super::Attempt;

pub(super) const TABLE: &[(&str, Attempt)] = &[
    ("init_module", init_module),
    ("finit_module", finit_module),
    ("delete_module", delete_module),
    ("kexec_load", kexec_load),
    ("kexec_file_load", kexec_file_load),
    ("reboot", reboot),
    ("swapon", swapon),
    ("acct", acct),
    ("quotactl", quotactl),
    ("sethostname", sethostname),
    ("settimeofday", settimeofday),
    ("clock_settime", clock_settime),
    ("adjtimex", adjtimex),
    ("syslog", syslog),
    ("set_root_user", set_root_user),
    ("set_groups", set_groups),
    ("raise_capabilities", raise_capabilities),
    ("has_capabilities", has_capabilities),
    ("real_time", real_time),
    ("raise_limits", raise_limits),
    ("core_dump", core_dump),
    ("core_dump_file", core_dump_file),
];

fn init_module(_: &Facts) -> Finding {
    let (image, none) = ([0u8; 8], text(""));
    if_reached(raw(libc::SYS_init_module, &[address(&image), 0, pointer(&none)]))
}

fn finit_module(_: &Facts) -> Finding {
    let none = text("");
    if_reached(raw(libc::SYS_finit_module, &[-1, pointer(&none), 0]))
}

fn delete_module(_: &Facts) -> Finding {
    let none = text("stockade_no_such_module");
    if_reached(raw(libc::SYS_delete_module, &[pointer(&none), i64::from(libc::O_NONBLOCK)]))
}

fn kexec_load(_: &Facts) -> Finding {
    if_reached(raw(libc::SYS_kexec_load, &[0, 0, 0, -1]))
}

fn kexec_file_load(_: &Facts) -> Finding {
    if_reached(raw(libc::SYS_kexec_file_load, &[-1, -1, 0, 0, -1]))
}

/// Without the magic numbers nothing can happen.
fn reboot(_: &Facts) -> Finding {
    if_reached(raw(libc::SYS_reboot, &[0, 0, 0, 0]))
}

fn swapon(_: &Facts) -> Finding {
    let path = text("/no/such");
    if_reached(raw(libc::SYS_swapon, &[pointer(&path), 0]))
}

fn acct(_: &Facts) -> Finding {
    let path = text("/no/such");
    if_reached(raw(libc::SYS_acct, &[pointer(&path)]))
}

fn quotactl(_: &Facts) -> Finding {
    let path = text("/no/such");
    if_reached(raw(libc::SYS_quotactl, &[0, pointer(&path), 0, 0]))
}

/// A length below zero is refused after the privilege is looked at.
fn sethostname(_: &Facts) -> Finding {
    let name = text("x");
    if_reached(raw(libc::SYS_sethostname, &[pointer(&name), -1]))
}

/// An impossible time.
fn settimeofday(_: &Facts) -> Finding {
    let time = [0i64, -1];
    if_reached(raw(libc::SYS_settimeofday, &[address(&time), 0]))
}

fn clock_settime(_: &Facts) -> Finding {
    let time = [0i64, -1];
    if_reached(raw(libc::SYS_clock_settime, &[0, address(&time)]))
}

/// Mode 0 only reads; the kernel lets anybody do that, and the sandbox has no use for it.
fn adjtimex(_: &Facts) -> Finding {
    let state = [0u8; 256];
    if_it_works(raw(libc::SYS_adjtimex, &[address(&state)]))
}

/// The kernel's log holds addresses and devices of the host.
fn syslog(_: &Facts) -> Finding {
    let buffer = [0u8; 256];
    if_it_works(raw(libc::SYS_syslog, &[3, address(&buffer), 256]))
}

/// Becoming root where one is not, in the sense of the host.
fn set_root_user(_: &Facts) -> Finding {
    if_it_works(raw(libc::SYS_setuid, &[0]))
}

fn set_groups(_: &Facts) -> Finding {
    let groups = [0u32];
    if_it_works(raw(libc::SYS_setgroups, &[1, address(&groups)]))
}

fn raise_capabilities(_: &Facts) -> Finding {
    let header = [0x2008_0522u32, 0];
    let all = [u32::MAX; 6];
    if_it_works(raw(libc::SYS_capset, &[address(&header), address(&all)]))
}

/// Anything in the effective, permitted, inheritable, ambient or bounding set.
fn has_capabilities(_: &Facts) -> Finding {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let some: Vec<&str> =
        status.lines().filter(|l| l.starts_with("Cap")).filter(|l| l.chars().skip(7).any(|c| c.is_ascii_hexdigit() && c != '0')).collect();
    if status.is_empty() {
        Finding::Broken("no status to read".into())
    } else if some.is_empty() {
        Finding::Held("all sets are empty".into())
    } else {
        Finding::Open(some.join(", "))
    }
}

/// A real-time process starves every other on its processor.
fn real_time(_: &Facts) -> Finding {
    let parameter = 1i32;
    if_it_works(raw(libc::SYS_sched_setscheduler, &[0, i64::from(libc::SCHED_FIFO), address(&parameter)]))
}

/// Hard limits can only be lowered without a privilege.
fn raise_limits(_: &Facts) -> Finding {
    let Ok((_, hard)) = call::limit(7) else { return Finding::Broken("no limit to read".into()) };
    let higher = [hard.saturating_add(1), hard.saturating_add(1)];
    if_it_works(raw(libc::SYS_prlimit64, &[0, 7, address(&higher), 0]))
}

/// A limit of 1 keeps the kernel from starting the host's core handler, which runs as root outside; 0 only keeps it from writing files.
fn core_dump(_: &Facts) -> Finding {
    match call::limit(4) {
        Ok((_, 1)) => Finding::Held("the limit is 1 byte: neither a file nor the host's handler".into()),
        Ok((_, hard)) => Finding::Open(format!("the limit may be set to {hard}: a crash reaches the host's core handler where it has one")),
        Err(error) => Finding::Broken(error.to_string()),
    }
}

/// A core file needs a limit of at least a page.
fn core_dump_file(_: &Facts) -> Finding {
    match call::limit(4) {
        Ok((_, hard)) if hard < 4096 => Finding::Held(format!("at most {hard} bytes")),
        Ok((_, hard)) => Finding::Open(format!("up to {hard} bytes")),
        Err(error) => Finding::Broken(error.to_string()),
    }
}
