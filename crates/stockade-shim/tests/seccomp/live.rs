//! The shipped filter on this machine's kernel. Each test starts a process that puts the filter on before its program
//! begins, as the guest does.

use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, Output};

use crate::policy::Variant;
use crate::program::compile;
use crate::{HERE, policy, shipped};

#[test]
fn the_shipped_tables_are_the_compiled_policy() {
    for (variant, table) in [(Variant::General, shipped::GENERAL.as_slice()), (Variant::ExecList, shipped::EXEC_LIST.as_slice())] {
        let program = compile(&policy(), HERE, variant).unwrap();
        let table: Vec<_> = table.iter().map(|i| (i.code, i.jt, i.jf, i.k)).collect();
        assert_eq!(table, program.iter().map(|i| (i.code, i.jump_true, i.jump_false, i.operand)).collect::<Vec<_>>());
    }
}

#[test]
fn the_probe_tells_whether_the_filter_is_on() {
    assert!(!shipped::probe());
    inside("live::inside_the_filter_the_probe_answers", Variant::General);
    inside("live::inside_the_filter_the_probe_answers", Variant::ExecList);
}

#[test]
#[ignore = "started by another test, inside the filter"]
fn inside_the_filter_the_probe_answers() {
    assert!(shipped::probe());
}

#[test]
fn refused_calls_answer_and_threads_run() {
    inside("live::inside_the_filter_calls_are_refused", Variant::General);
}

#[test]
#[ignore = "started by another test, inside the filter"]
fn inside_the_filter_calls_are_refused() {
    #[track_caller]
    fn check(number: libc::c_long, arguments: [u64; 3], expected: i32) {
        let [first, second, third] = arguments;
        // SAFETY: every pointer among the arguments is null, which the kernel answers with an error.
        let answer = unsafe { libc::syscall(number, first, second, third) };
        let errno = if answer == -1 { std::io::Error::last_os_error().raw_os_error().unwrap() } else { 0 };
        assert_eq!(errno, expected, "call {number}");
    }
    check(libc::SYS_keyctl, [0, 0, 0], libc::ENOSYS);
    check(libc::SYS_unshare, [0x1000_0000, 0, 0], libc::ENOSYS);
    check(libc::SYS_setns, [0, 0, 0], libc::ENOSYS);
    check(libc::SYS_clone3, [0, 0, 0], libc::ENOSYS);
    check(libc::SYS_ptrace, [0, 0, 0], libc::ENOSYS);
    check(libc::SYS_bpf, [0, 0, 0], libc::ENOSYS);
    check(libc::SYS_io_uring_setup, [1, 0, 0], libc::ENOSYS);
    check(libc::SYS_userfaultfd, [0, 0, 0], libc::ENOSYS);
    check(libc::SYS_mount, [0, 0, 0], libc::ENOSYS);
    check(9999, [0, 0, 0], libc::ENOSYS);
    check(libc::SYS_clone, [0x1000_0011, 0, 0], libc::EPERM);
    check(libc::SYS_clone, [0xffff_ffff_1000_0011, 0, 0], libc::EPERM);
    check(libc::SYS_socket, [40, 1, 0], libc::EAFNOSUPPORT);
    check(libc::SYS_socket, [2, 3, 1], libc::EAFNOSUPPORT);
    check(libc::SYS_ioctl, [0, 0x5412, 0], libc::EPERM);
    check(libc::SYS_ioctl, [0, 0x7_0000_5412, 0], libc::EPERM);
    check(libc::SYS_prctl, [35, 0, 0], libc::EINVAL);
    check(libc::SYS_personality, [8, 0, 0], libc::EPERM);
    check(libc::SYS_personality, [0xffff_ffff, 0, 0], 0);
    check(libc::SYS_seccomp, [2, 0, 0], libc::EFAULT);
    check(libc::SYS_landlock_create_ruleset, [0, 0, 99], libc::EINVAL);
    #[cfg(target_arch = "x86_64")]
    check(0x4000_0000 | libc::SYS_getpid, [0, 0, 0], libc::ENOSYS);

    let sum: u32 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8_u32).map(|part| scope.spawn(move || part)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(sum, 28);
    assert!(Command::new("/bin/true").status().unwrap().success());
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    std::os::unix::net::UnixStream::pair().unwrap();
}

#[test]
fn memory_files_come_and_go_with_the_variant() {
    inside("live::inside_the_filter_a_memory_file_can_be_made", Variant::General);
    inside("live::inside_the_filter_no_memory_file_can_be_made", Variant::ExecList);
}

#[test]
#[ignore = "started by another test, inside the filter"]
fn inside_the_filter_a_memory_file_can_be_made() {
    rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
}

#[test]
#[ignore = "started by another test, inside the filter"]
fn inside_the_filter_no_memory_file_can_be_made() {
    let answer = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC);
    assert_eq!(answer.expect_err("refused"), rustix::io::Errno::NOSYS);
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_32_bit_call_kills_its_process() {
    let output = run_inside("live::inside_the_filter_a_32_bit_call_is_made", Variant::General);
    assert_eq!(output.status.signal(), Some(libc::SIGSYS), "{output:?}");
}

#[cfg(target_arch = "x86_64")]
#[test]
#[ignore = "started by another test, inside the filter"]
fn inside_the_filter_a_32_bit_call_is_made() {
    let mut answer = 20_u64; // getpid of i386
    // SAFETY: `int 0x80` with getpid touches no memory; the registers it may change are declared.
    unsafe { std::arch::asm!("int 0x80", inlateout("rax") answer, lateout("r8") _, lateout("r9") _, lateout("r10") _, lateout("r11") _) };
    panic!("answered {answer}");
}

#[test]
fn shells_run() {
    let script = "set -e; printf 'b\\na\\n' | sort | head -n1; (sleep 0 & wait); mkfifo \"$0.fifo\"; rm \"$0.fifo\"; echo done";
    let directory = tempfile();
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script]).arg(&directory);
    put_on(&mut command, Variant::General);
    let output = command.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "a\ndone\n", "{output:?}");
}

/// Runs one of the ignored tests of this binary inside the filter.
#[track_caller]
fn inside(test: &str, variant: Variant) {
    let output = run_inside(test, variant);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{}\n{said}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
}

fn run_inside(test: &str, variant: Variant) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "--ignored", test]);
    put_on(&mut command, variant);
    command.output().unwrap()
}

fn put_on(command: &mut Command, variant: Variant) {
    let install = move || {
        rustix::thread::set_no_new_privs(true)?;
        match variant {
            Variant::General => shipped::install()?,
            Variant::ExecList => shipped::install_without_memory_files()?,
        }
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes two system calls and allocates nothing.
    unsafe { command.pre_exec(install) };
}

fn tempfile() -> std::path::PathBuf {
    std::env::temp_dir().join(format!("stockade-seccomp-{}", std::process::id()))
}
