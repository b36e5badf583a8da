//! The data files: sound as they are, and each kind of fault is found.

use crate::policy::{Architecture, Policy};
use crate::{HERE, VARIANTS, policy};

#[test]
fn every_known_call_is_decided_once_and_with_a_reason() {
    let policy = policy();
    for (architecture, expected) in [(Architecture::X86_64, 383), (Architecture::Aarch64, 325)] {
        for variant in VARIANTS {
            assert_eq!(policy.calls(architecture, variant).len(), expected, "{architecture:?} {variant:?}");
        }
    }
}

#[test]
fn a_fault_in_a_data_file_is_named_by_file_and_line() {
    #[track_caller]
    fn check(allow: &str, refused: &str, expected: &str) {
        let numbers = "read 0 63\nopen 2 -\nbpf 321 280\n";
        let found = match Policy::read(numbers, allow, refused) {
            Ok(_) => "sound".into(),
            Err(error) => error.to_string(),
        };
        assert_eq!(found, expected);
    }
    let fine = "read # files\nopen # files\n";
    let refused = "bpf # runs in the kernel\n";
    check(fine, refused, "sound");
    check("# note\n\nread\nopen # files\n", refused, "seccomp/allow.txt:3: a reason after `#` is missing");
    check("read # \nopen # files\n", refused, "seccomp/allow.txt:1: the reason after `#` is empty");
    check(fine, "bpf\n", "seccomp/refused.txt:1: a reason after `#` is missing");
    check("read # a\nread # b\nopen # c\n", refused, "seccomp/allow.txt:2: `read` is decided twice");
    check(fine, "bpf # a\nread # b\n", "seccomp/refused.txt:2: `read` is decided twice");
    check("read # a\nopen # b\nreed # c\n", refused, "seccomp/allow.txt:3: `reed` is not in numbers.txt");
    check(fine, "", "seccomp/numbers.txt: `bpf` is in neither allow.txt nor refused.txt");
    check(fine, "bpf if arg0 == 1 else EPERM # some\n", "seccomp/refused.txt:1: a refused call has no condition");
    check(
        "read if arg0 == 1 else EPERM unless exec-list # a\nopen # b\n",
        refused,
        "seccomp/allow.txt:1: `read if arg0 == 1 else EPERM` is not in numbers.txt",
    );
}

#[test]
fn a_fault_in_a_condition_is_named() {
    #[track_caller]
    fn check(condition: &str, expected: &str) {
        let found = Policy::read("read 0 63\n", &format!("read if {condition} # reason\n"), "");
        assert_eq!(found.expect_err("a fault").to_string(), format!("seccomp/allow.txt:1: {expected}"));
    }
    check("arg0 == 1", "a condition needs `else ERRNO`");
    check("arg0 == 1 else EWHAT", "`EWHAT` is not one of the known error names");
    check("arg6 == 1 else EPERM", "`arg6` is not arg0 to arg5");
    check("arg0 = 1 else EPERM", "`=` is not a comparison, or not one that takes a mask");
    check("arg0 & 3 != 1 else EPERM", "`!=` is not a comparison, or not one that takes a mask");
    check("arg0 & 0xf0 == 0x11 else EPERM", "`arg0 & 0xf0 == 0x11` can never hold: the value has bits outside the mask");
    check("arg0 == 0x100000000 else EPERM", "`0x100000000` is not a 32-bit number");
    check("arg0 else EPERM", "`arg0` is not a test");
}

#[test]
fn a_fault_in_the_numbers_is_named() {
    #[track_caller]
    fn check(numbers: &str, expected: &str) {
        let found = Policy::read(numbers, "", "");
        assert_eq!(found.expect_err("a fault").to_string(), format!("seccomp/numbers.txt:2: {expected}"));
    }
    check("read 0 63\nwrite 1\n", "expected a name and two numbers");
    check("read 0 63\nwrite 1 x\n", "a number is not a number or `-`");
    check("read 0 63\nwrite 1 63\n", "the number is another call's");
    check("read 0 63\nwrite 4294967295 64\n", "the number is beyond those of any call");
    check("read 0 63\nwrite 1073741825 64\n", "the number is beyond those of any call");
    check("read 0 63\nread 1 64\n", "the name appears twice");
}

/// The numbers against the C library's, for the architecture of this machine: those that matter most.
#[test]
fn the_numbers_are_those_of_the_c_library() {
    let policy = policy();
    let calls = policy.calls(HERE, crate::policy::Variant::General);
    for (name, number) in [
        ("read", libc::SYS_read),
        ("write", libc::SYS_write),
        ("openat", libc::SYS_openat),
        ("clone", libc::SYS_clone),
        ("clone3", libc::SYS_clone3),
        ("unshare", libc::SYS_unshare),
        ("setns", libc::SYS_setns),
        ("execve", libc::SYS_execve),
        ("execveat", libc::SYS_execveat),
        ("ptrace", libc::SYS_ptrace),
        ("process_vm_readv", libc::SYS_process_vm_readv),
        ("process_vm_writev", libc::SYS_process_vm_writev),
        ("bpf", libc::SYS_bpf),
        ("keyctl", libc::SYS_keyctl),
        ("add_key", libc::SYS_add_key),
        ("request_key", libc::SYS_request_key),
        ("userfaultfd", libc::SYS_userfaultfd),
        ("perf_event_open", libc::SYS_perf_event_open),
        ("mount", libc::SYS_mount),
        ("umount2", libc::SYS_umount2),
        ("pivot_root", libc::SYS_pivot_root),
        ("chroot", libc::SYS_chroot),
        ("open_by_handle_at", libc::SYS_open_by_handle_at),
        ("io_uring_setup", libc::SYS_io_uring_setup),
        ("io_uring_enter", libc::SYS_io_uring_enter),
        ("io_uring_register", libc::SYS_io_uring_register),
        ("socket", libc::SYS_socket),
        ("socketpair", libc::SYS_socketpair),
        ("setsockopt", libc::SYS_setsockopt),
        ("ioctl", libc::SYS_ioctl),
        ("prctl", libc::SYS_prctl),
        ("personality", libc::SYS_personality),
        ("madvise", libc::SYS_madvise),
        ("mknodat", libc::SYS_mknodat),
        ("seccomp", libc::SYS_seccomp),
        ("landlock_restrict_self", libc::SYS_landlock_restrict_self),
        ("pidfd_getfd", libc::SYS_pidfd_getfd),
        ("pidfd_open", libc::SYS_pidfd_open),
        ("memfd_create", libc::SYS_memfd_create),
        ("mount_setattr", libc::SYS_mount_setattr),
        ("fsopen", libc::SYS_fsopen),
        ("fsconfig", libc::SYS_fsconfig),
        ("open_tree", libc::SYS_open_tree),
        ("move_mount", libc::SYS_move_mount),
        ("init_module", libc::SYS_init_module),
        ("finit_module", libc::SYS_finit_module),
        ("kexec_load", libc::SYS_kexec_load),
        ("reboot", libc::SYS_reboot),
        ("swapon", libc::SYS_swapon),
        ("mseal", libc::SYS_mseal),
        ("openat2", libc::SYS_openat2),
        ("epoll_pwait2", libc::SYS_epoll_pwait2),
    ] {
        let number = u32::try_from(number).unwrap();
        assert_eq!(calls.get(&number).map(|(found, _)| *found), Some(name));
    }
}
