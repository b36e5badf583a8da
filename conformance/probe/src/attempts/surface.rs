//! Large or young parts of the kernel that a sandboxed program has no need of. Arguments are harmless; "open" means that the kernel's code
//! behind the call was reached.

use crate::call::{self, address, pointer, raw, text};
use crate::facts::Facts;
use crate::finding::{Finding, if_it_works, if_reached};

use super::Attempt;

pub(super) const TABLE: &[(&str, Attempt)] = &[
    ("io_uring", io_uring),
    ("bpf", bpf),
    ("perf_event_open", perf_event_open),
    ("userfaultfd", userfaultfd),
    ("keyctl", keyctl),
    ("add_key", add_key),
    ("request_key", request_key),
    ("ptrace", ptrace),
    ("process_vm_readv", process_vm_readv),
    ("process_vm_writev", process_vm_writev),
    ("pidfd_getfd", pidfd_getfd),
    ("kcmp", kcmp),
    ("vmsplice", vmsplice),
    ("memfd_secret", memfd_secret),
    ("fanotify", fanotify),
    ("name_to_handle", name_to_handle),
    ("open_by_handle", open_by_handle),
    ("x32_getpid", x32_getpid),
    ("int80_getpid", int80_getpid),
    ("int80_unshare", int80_unshare),
    ("modify_ldt", modify_ldt),
    ("line_discipline", line_discipline),
    ("madvise_mergeable", madvise_mergeable),
    ("syscall_high_number", syscall_high_number),
];

fn io_uring(_: &Facts) -> Finding {
    let parameters = [0u64; 16];
    if_it_works(raw(libc::SYS_io_uring_setup, &[4, address(&parameters)]))
}

/// Too large an argument is answered before privileges are looked at: whoever hears E2BIG has reached the call.
fn bpf(_: &Facts) -> Finding {
    let attributes = [0u8; 64];
    if_reached(raw(libc::SYS_bpf, &[0, address(&attributes), 1 << 20]))
}

/// Unknown flags are answered before privileges are looked at.
fn perf_event_open(_: &Facts) -> Finding {
    let attributes = [0u8; 128];
    if_reached(raw(libc::SYS_perf_event_open, &[address(&attributes), 0, -1, -1, 1 << 20]))
}

/// `UFFD_USER_MODE_ONLY`, which needs no privilege.
fn userfaultfd(_: &Facts) -> Finding {
    if_it_works(raw(libc::SYS_userfaultfd, &[1]))
}

fn keyctl(_: &Facts) -> Finding {
    // KEYCTL_GET_KEYRING_ID of the session's ring.
    if_reached(raw(libc::SYS_keyctl, &[0, -3, 0]))
}

fn add_key(_: &Facts) -> Finding {
    let (kind, name) = (text("user"), text("stockade-conformance-probe"));
    // Into the process's own ring, which ends with it.
    if_reached(raw(libc::SYS_add_key, &[pointer(&kind), pointer(&name), pointer(&name), 4, -2]))
}

fn request_key(_: &Facts) -> Finding {
    let (kind, name) = (text("user"), text("stockade-conformance-none"));
    if_reached(raw(libc::SYS_request_key, &[pointer(&kind), pointer(&name), 0, 0]))
}

fn ptrace(_: &Facts) -> Finding {
    if_it_works(raw(libc::SYS_ptrace, &[0, 0, 0, 0]))
}

fn process_vm_readv(_: &Facts) -> Finding {
    if_it_works(raw(libc::SYS_process_vm_readv, &[i64::from(std::process::id())]))
}

fn process_vm_writev(_: &Facts) -> Finding {
    if_it_works(raw(libc::SYS_process_vm_writev, &[i64::from(std::process::id())]))
}

fn pidfd_getfd(_: &Facts) -> Finding {
    let pidfd = raw(libc::SYS_pidfd_open, &[i64::from(std::process::id()), 0]).unwrap_or(-1);
    if_it_works(raw(libc::SYS_pidfd_getfd, &[pidfd, 1, 0]))
}

fn kcmp(_: &Facts) -> Finding {
    let me = i64::from(std::process::id());
    if_reached(raw(libc::SYS_kcmp, &[me, me, 1, 0, 0]))
}

/// Lends pages to a pipe; part of the Dirty Pipe family.
fn vmsplice(_: &Facts) -> Finding {
    if_reached(raw(libc::SYS_vmsplice, &[-1, 0, 0, 0]))
}

fn memfd_secret(_: &Facts) -> Finding {
    if_reached(raw(447, &[1 << 20]))
}

/// `FAN_REPORT_FID` groups need no privilege.
fn fanotify(_: &Facts) -> Finding {
    if_it_works(raw(libc::SYS_fanotify_init, &[0x200, 0]))
}

fn handle_of(path: &str, handle: &[u8; 144]) -> std::io::Result<i64> {
    let path = text(path);
    let mount = 0i32;
    raw(libc::SYS_name_to_handle_at, &[i64::from(libc::AT_FDCWD), pointer(&path), address(handle), address(&mount), 0])
}

fn empty_handle() -> [u8; 144] {
    let mut handle = [0; 144];
    if let Some(first) = handle.first_mut() {
        *first = 128;
    }
    handle
}

fn name_to_handle(_: &Facts) -> Finding {
    if_it_works(handle_of("/", &empty_handle()))
}

/// Opens by inode, past every path: the "shocker" escape of early containers.
fn open_by_handle(facts: &Facts) -> Finding {
    let mut handle = empty_handle();
    if handle_of(facts.text("work"), &handle).is_err() {
        // Inode 2 is the root of most file systems.
        handle = [0; 144];
        let [size, _, _, _, kind, _, _, _, inode, ..] = &mut handle;
        (*size, *kind, *inode) = (8, 1, 2);
    }
    match call::open(facts.text("work"), libc::O_RDONLY) {
        Ok(mount) => if_it_works(raw(libc::SYS_open_by_handle_at, &[mount, address(&handle), 0])),
        Err(error) => Finding::Broken(error.to_string()),
    }
}

/// A call of the x32 table: same number space, other entries.
fn x32_getpid(_: &Facts) -> Finding {
    if cfg!(target_arch = "x86_64") { if_it_works(raw(0x4000_0000 + 39, &[])) } else { Finding::Held("no such table here".into()) }
}

/// The gate of 32-bit programs, open to 64-bit ones too.
#[cfg(target_arch = "x86_64")]
fn int80(number: i32, argument: i32) -> i32 {
    let mut result = number;
    // SAFETY: the calls made here read no memory; rbx, which the compiler reserves, is restored.
    unsafe {
        std::arch::asm!(
            "push rbx", "mov ebx, {argument:e}", "int 0x80", "pop rbx",
            argument = in(reg) argument, inout("eax") result, out("r8") _, out("r9") _, out("r10") _, out("r11") _
        );
    }
    result
}

#[cfg(not(target_arch = "x86_64"))]
fn int80(_: i32, _: i32) -> i32 {
    -libc::ENOSYS
}

fn gate(result: i32) -> Finding {
    if result >= 0 { Finding::Open("it worked".into()) } else { Finding::Held(std::io::Error::from_raw_os_error(-result).to_string()) }
}

fn int80_getpid(_: &Facts) -> Finding {
    gate(int80(20, 0))
}

/// 310 is `unshare` in the 32-bit table, and something else in the 64-bit one.
fn int80_unshare(_: &Facts) -> Finding {
    gate(int80(310, libc::CLONE_NEWUSER))
}

#[cfg(target_arch = "x86_64")]
fn modify_ldt(_: &Facts) -> Finding {
    if_reached(raw(libc::SYS_modify_ldt, &[0, 0, 0]))
}

#[cfg(not(target_arch = "x86_64"))]
fn modify_ldt(_: &Facts) -> Finding {
    Finding::Held("no such call here".into())
}

/// `TIOCSETD` loads line disciplines, a stream of kernel bugs.
fn line_discipline(_: &Facts) -> Finding {
    let number = 15i32;
    if_reached(raw(libc::SYS_ioctl, &[0, 0x5423, address(&number)]))
}

/// Pages merged with another's tell their contents by timing.
fn madvise_mergeable(_: &Facts) -> Finding {
    let pages = vec![0u8; 1 << 16];
    let start = (address(pages.as_slice()) + 4095) & !4095;
    if_it_works(raw(libc::SYS_madvise, &[start, 4096, 12]))
}

/// A number with bits that only a careless comparison leaves out: `unshare` plus 2^32.
fn syscall_high_number(_: &Facts) -> Finding {
    if_it_works(raw(libc::SYS_unshare + (1 << 32), &[i64::from(libc::CLONE_NEWUSER)]))
}
