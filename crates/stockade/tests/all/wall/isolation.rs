//! What a program behind the wall may not do, tried with the system calls themselves.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::{SocketAddr, UnixListener};

use super::ground::finish;
use super::{Ground, as_both};

/// Arguments are such that a call which gets through does no harm to the machine that runs these tests.
///
/// Tries calls by number and prints what they gave: `name ok` or `name ERRNO`.
const CALLS: &str = r"
import ctypes, errno, os, platform, sys
libc = ctypes.CDLL(None, use_errno=True)
x86 = platform.machine() == 'x86_64'
def number(a, b): return a if x86 else b
def attempt(name, nr, *args):
    pid = os.fork()
    if pid == 0:
        args = [ctypes.c_void_p(a) if isinstance(a, int) else a for a in args]
        result = libc.syscall(ctypes.c_long(nr), *args)
        # A clone that worked comes back twice; either way it worked.
        print(name, 'ok' if result >= 0 else errno.errorcode.get(ctypes.get_errno()), flush=True)
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    if os.WIFSIGNALED(status): print(name, 'SIGNAL', flush=True)
page = ctypes.create_string_buffer(256)
NEWUSER, NEWNS, NEWNET, NEWPID = 0x10000000, 0x20000, 0x40000000, 0x20000000
args = (ctypes.c_uint64 * 11)(NEWUSER, 0, 0, 0, 17)
";

fn attempts(ground: &Ground, calls: &str) -> String {
    let outcome = ground.python(&[], &format!("{CALLS}{calls}"));
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    outcome.stdout
}

#[test]
fn the_process_has_no_privileges() {
    as_both(|ground| {
        let status = ground.good(&[], "grep -E '^(Cap...|NoNewPrivs|Seccomp):' /proc/self/status | tr -d '\\t'");
        let none = "0000000000000000";
        let expected = format!("CapInh:{none}\nCapPrm:{none}\nCapEff:{none}\nCapBnd:{none}\nCapAmb:{none}\nNoNewPrivs:1\nSeccomp:2\n");
        assert_eq!(status, expected);
    });
}

#[test]
fn dangerous_calls_are_refused() {
    as_both(|ground| {
        let calls = r"
attempt('unshare-user', number(272, 97), NEWUSER)
attempt('unshare-mount', number(272, 97), NEWNS)
attempt('unshare-net', number(272, 97), NEWNET)
attempt('clone-user', number(56, 220), NEWUSER | 17, 0, 0, 0, 0)
attempt('clone-user-net', number(56, 220), NEWUSER | NEWNET | NEWNS | NEWPID | 17, 0, 0, 0, 0)
attempt('clone3-user', 435, args, 88)
attempt('setns', number(308, 268), os.open('/proc/self/ns/mnt', os.O_RDONLY), 0)
attempt('mount', number(165, 40), b'none', b'/no/such', b'tmpfs', 0, 0)
attempt('umount', number(166, 39), b'/no/such', 2)
attempt('fsopen', 430, b'tmpfs', 0)
attempt('open_tree', 428, -100, b'/usr', 1)
attempt('move_mount', 429, -100, b'/no/such', -100, b'/no/such', 0)
attempt('fsmount', 432, 0, 0, 0)
attempt('mount_setattr', 442, -100, b'/usr', 0, page, 32)
attempt('pivot_root', number(155, 41), b'/no/such', b'/no/such')
attempt('chroot', number(161, 51), b'/no/such')
attempt('ptrace', number(101, 117), 0, 0, 0, 0)
attempt('ptrace-seize', number(101, 117), 0x4206, os.getpid(), 0, 0)
attempt('process_vm_readv', number(310, 270), os.getpid(), 0, 0, 0, 0, 0)
attempt('process_vm_writev', number(311, 271), os.getpid(), 0, 0, 0, 0, 0)
attempt('keyctl', number(250, 219), 0, -3, 0, 0, 0)
attempt('add_key', number(248, 217), b'user', b'a', b'b', 1, -2)
attempt('request_key', number(249, 218), b'user', b'a', 0, -3)
attempt('bpf', number(321, 280), 0, page, 72)
attempt('io_uring_setup', 425, 4, page)
attempt('userfaultfd', number(323, 282), 1)
attempt('perf_event_open', number(298, 241), page, 0, -1, -1, 0)
attempt('init_module', number(175, 105), page, 1, b'')
attempt('finit_module', number(313, 273), 0, b'', 0)
attempt('kexec_load', number(246, 104), 0, 0, 0, -1)
attempt('reboot', number(169, 142), 0, 0, 0, 0)
attempt('swapon', number(167, 224), b'/no/such', 0)
attempt('sethostname', number(170, 161), b'x', -1)
attempt('settimeofday', number(164, 170), 1, 0)
attempt('syslog', number(103, 116), 3, page, 200)
attempt('acct', number(163, 89), b'/no/such')
attempt('quotactl', number(179, 60), 0, 0, 0, 0)
attempt('open_by_handle_at', number(304, 265), 0, page, 0)
attempt('mknod-device', number(259, 33), -100, b'/no/such/device', 0o60600, 0xfe00)
attempt('setuid-root', number(105, 146), 0)
attempt('setgid-root', number(106, 144), 0)
attempt('setgroups', number(116, 159), 0, 0)
";
        let answers = attempts(ground, calls);
        assert_eq!(answers.lines().count(), 42, "{answers}");
        for answer in answers.lines() {
            let (name, result) = answer.split_once(' ').expect("two words");
            // EINVAL, ESRCH or EFAULT would mean that the kernel looked at the arguments: it was reached.
            assert!(
                ["EPERM", "ENOSYS", "EACCES"].contains(&result) || (name == "setuid-root" || name == "setgid-root") && result == "EINVAL",
                "{answer}"
            );
        }
    });
}

#[test]
#[cfg(target_arch = "x86_64")]
fn calls_of_other_architectures_are_refused() {
    as_both(|ground| {
        let answers = attempts(ground, "attempt('x32', 0x40000000 + 39)\nattempt('x32-open', 0x40000000 + 2, b'/etc/passwd', 0)\n");
        for answer in answers.lines() {
            assert!(["ENOSYS", "EPERM", "SIGNAL"].contains(&answer.split(' ').nth(1).expect("two words")), "{answers}");
        }
        // A 32-bit call through the interrupt gate: getpid, which is harmless if it works.
        let program = "#include <stdio.h>\nint main(void) { int r; __asm__ volatile(\"int $0x80\" : \"=a\"(r) : \"a\"(20)); printf(\"%d\\n\", r > 0); return 0; }\n";
        ground.file("gate.c", program);
        let outcome = ground.sh(&[], "gcc -o gate gate.c && ./gate");
        assert_ne!(outcome.stdout, "1\n", "{outcome:?}");
    });
}

#[test]
fn there_is_no_network_but_loopback() {
    as_both(|ground| {
        assert_eq!(ground.good(&[], "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '"), "lo\n");
        let listener = listen();
        let port = listener.local_addr().expect("an address").port();
        let program = format!(
            "import socket\n\
             def attempt(*where):\n\
             \x20 s = socket.socket(); s.settimeout(2)\n\
             \x20 try: s.connect(where); print('connected', where)\n\
             \x20 except OSError: pass\n\
             for host in ['127.0.0.1', '127.0.0.2', '0.0.0.0', '169.254.169.254', '192.0.2.1', '8.8.8.8']: attempt(host, {port})\n\
             u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
             try: u.sendto(b'x', ('8.8.8.8', 53)); print('sent')\n\
             except OSError: pass\n\
             own = socket.create_server(('127.0.0.1', 0)); socket.create_connection(own.getsockname()); print('own')"
        );
        let outcome = ground.python(&[], &program);
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), "own\n"), "{outcome:?}");
    });
}

#[expect(clippy::disallowed_methods, reason = "something that the sandbox must not reach")]
fn listen() -> std::net::TcpListener {
    std::net::TcpListener::bind("127.0.0.1:0").expect("a port")
}

#[test]
fn sockets_that_reach_the_kernel_are_refused() {
    as_both(|ground| {
        // NETLINK_ROUTE is there for getifaddrs; it can only tell of an own, empty network.
        let program = "import socket as s\n\
                       kinds = dict(raw=(2, 3, 1), raw6=(10, 3, 58), packet=(17, 3, 768), packet_dgram=(17, 2, 768), netlink_diag=(16, 3, 4), netlink_audit=(16, 3, 9), netlink_nf=(16, 3, 12), netlink_uevent=(16, 3, 15), netlink_generic=(16, 3, 16),\n\
                       \x20            vsock=(40, 1, 0), alg=(38, 5, 0), bluetooth=(31, 3, 1), can=(29, 3, 1), xdp=(44, 3, 0), kcm=(41, 5, 0), tipc=(30, 1, 0), smc=(43, 1, 0), ping=(2, 2, 1))\n\
                       for name, kind in kinds.items():\n\
                       \x20 try: s.socket(*kind); print(name)\n\
                       \x20 except OSError: pass\n";
        let outcome = ground.python(&[], program);
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), ""), "{outcome:?}");
    });
}

#[test]
fn no_descriptor_is_inherited() {
    as_both(|ground| {
        ground.plant(&ground.base.join("secret"), "PLANTED", 0o644);
        let script = "exec 7<\"$0\" 9<>\"$0\" 200</; exec \"$@\"";
        let program = "import os\nfor fd in range(3, 1024):\n  try: print(fd, os.readlink(f'/proc/self/fd/{fd}'))\n  except OSError: pass";
        let mut command = ground.outside("bash");
        command.arg("-c").arg(script).arg(ground.base.join("secret")).arg(&ground.binary);
        let outcome = finish(command.args(["run", "--", "/usr/bin/python3", "-c", program]));
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), ""), "{outcome:?}");
    });
}

#[test]
fn the_guest_cannot_be_reached_from_the_program() {
    as_both(|ground| {
        let program = "import os\n\
                       for name in ['mem', 'environ', 'maps', 'fd', 'root/etc/passwd', 'cwd/x', 'exe', 'auxv', 'stack']:\n\
                       \x20 try: path = '/proc/1/' + name; print(name, os.listdir(path) if name == 'fd' else open(path, 'rb').read(1))\n\
                       \x20 except OSError: pass\n";
        let outcome = ground.python(&[], program);
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), ""), "{outcome:?}");
        assert_eq!(ground.sh(&[], "kill -9 1; kill -TERM 1; kill -STOP 1; sleep 0.2; echo still").stdout, "still\n");
    });
}

#[test]
fn setuid_programs_give_nothing() {
    as_both(|ground| {
        for mode in ["overlay", "rw", "ro"] {
            let path = ground.work.join("id");
            std::fs::copy("/usr/bin/id", &path).expect("copied");
            chown(&path, Some(0), Some(0)).expect("chown");
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o6755)).expect("mode");
            let ids = ground.good(&["--workspace-mode", mode], "id -u; ./id -u; ./id -g; ./id -un >/dev/null");
            let ids: Vec<&str> = ids.split_whitespace().collect();
            assert!(ids.len() == 3 && ids[0] == ids[1] && ids[2] != "0", "{mode}: {ids:?}");
        }
        assert_ne!(ground.sh(&[], "echo | su -c 'id -u'").code, Some(0));
    });
}

#[test]
fn nothing_outside_the_workspace_can_be_written() {
    as_both(|ground| {
        // Opened, never written: should the wall not hold, an empty file of an odd name is all that comes of it.
        let name = ground.base.file_name().expect("a name").to_string_lossy().into_owned();
        let directories = ["/", "/usr", "/usr/bin", "/etc", "/lib", "/opt", "/sys", "/dev", "/run", "/home", "/mnt", "/var", "/proc"];
        let files = "/etc/passwd /usr/bin/env /proc/sys/kernel/hostname /proc/sys/kernel/core_pattern /proc/sys/vm/overcommit_memory /proc/sysrq-trigger /proc/1/oom_score_adj /proc/1/mem";
        let script = format!(
            "for f in {files}; do [ ! -e $f ] || {{ : >>$f; }} 2>/dev/null && [ -e $f ] && echo $f; done; \
             for d in {}; do {{ : >>$d/{name}; }} 2>/dev/null && echo $d; mkdir $d/{name} 2>/dev/null && echo $d; done; touch /tmp/x /dev/shm/x && echo private",
            directories.join(" ")
        );
        let outcome = ground.sh(&[], &script);
        for directory in directories {
            drop(std::fs::remove_file(std::path::Path::new(directory).join(&name)));
        }
        assert_eq!(outcome.stdout, "private\n", "{outcome:?}");
    });
}

#[test]
fn what_is_temporary_is_private() {
    as_both(|ground| {
        let name = ground.base.file_name().expect("a name").to_string_lossy().into_owned();
        for directory in ["/tmp", "/dev/shm"] {
            ground.plant(&std::path::Path::new(directory).join(&name), "PLANTED", 0o644);
        }
        let outcome = ground.sh(
            &[],
            &format!("cat /tmp/{name} /dev/shm/{name}; ls -A /tmp /dev/shm; echo mine >/tmp/{name}-mine; echo mine >/var/tmp/{name}-mine"),
        );
        for directory in ["/tmp", "/dev/shm"] {
            std::fs::remove_file(format!("{directory}/{name}")).expect("removed");
        }
        assert_eq!(outcome.stdout, "/dev/shm:\n\n/tmp:\n", "{outcome:?}");
        assert!(!["/tmp", "/var/tmp"].iter().any(|d| std::path::Path::new(d).join(format!("{name}-mine")).exists()));
    });
}

#[test]
fn devices_are_few() {
    as_both(|ground| {
        let listed = ground.good(&[], "ls /dev");
        let known = [
            "fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty", "urandom", "zero", "console",
            "mqueue",
        ];
        let more: Vec<&str> = listed.lines().filter(|name| !known.contains(name)).collect();
        assert!(more.is_empty(), "{more:?}");
        ground.good(
            &[],
            "head -c 8 /dev/urandom >/dev/null && echo >/dev/null && ls -l /dev/fd/ >/dev/null && mkdir /tmp/d && ! mknod /tmp/d/x b 254 0",
        );
    });
}

#[test]
fn abstract_sockets_of_the_host_cannot_be_reached() {
    as_both(|ground| {
        let name = ground.base.file_name().expect("a name").to_string_lossy().into_owned();
        let address = SocketAddr::from_abstract_name(&name).expect("an address");
        let listener = UnixListener::bind_addr(&address).expect("bound");
        let program = format!(
            "import socket\ntry: socket.socket(socket.AF_UNIX).connect('\\0{name}'); print('connected')\nexcept OSError: print('refused')"
        );
        assert_eq!(finish(ground.outside("/usr/bin/python3").args(["-c", &program])).stdout, "connected\n");
        assert_eq!(ground.python(&[], &program).stdout, "refused\n");
        drop(listener);
    });
}

#[test]
fn shared_memory_of_the_host_is_not_there() {
    as_both(|ground| {
        let made = ground.host("ipcmk -M 4096 -p 0666; ipcmk -Q -p 0666; ipcmk -S 1 -p 0666");
        let ids: Vec<&str> = made.split_whitespace().filter(|word| word.parse::<u32>().is_ok()).collect();
        let inside = ground.sh(&[], "tail -qn +2 /proc/sysvipc/*; ipcs -mqs | grep -E '^0x'");
        ground.host(&format!("ipcrm -m {} -q {} -s {}", ids[0], ids[1], ids[2]));
        assert_eq!(inside.stdout, "", "{inside:?}");
    });
}

#[test]
fn the_enforcement_that_is_reported_is_whole() {
    as_both(|ground| {
        let (code, value) = ground.json(&[], &["true"]);
        assert_eq!(code, 0, "{value}");
        for demand in ["files", "network", "processes", "privileges", "syscalls", "secrets", "exec", "pids", "time", "output"] {
            assert_eq!(value["enforcement"][demand], "enforced", "{demand}: {value}");
        }
    });
}
