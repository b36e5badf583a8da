//! The victim: a process of the caller's own, outside the wall, that offers what must not be reached from inside.
//!
//! A secret in its environment and memory, TCP and UDP on loopback, Unix sockets with a path and without, a System V segment and queue,
//! POSIX shared memory, a key, an open file. It answers whoever comes with the secret. Prints `NAME=VALUE` for each, then `ready`, and removes
//! everything when its standard input ends.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::path::Path;
use std::process::ExitCode;

use crate::call::{self, raw};
use crate::facts::Facts;

/// Size of the segments; the secret is much shorter.
const SEGMENT: i64 = 4096;
/// Keys and queues are gone after this many seconds, whatever happens to this process.
const KEY_SECONDS: i64 = 600;

/// Runs until standard input ends.
pub(crate) fn run(facts: &Facts) -> ExitCode {
    match offer(facts) {
        Ok(left) => {
            println!("ready");
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            left.remove();
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("failed={error}");
            ExitCode::FAILURE
        }
    }
}

/// What outlives a process and must be removed by hand.
struct Left {
    segment: i64,
    queue: i64,
    keys: Vec<i64>,
    shared: String,
}

impl Left {
    fn remove(&self) {
        let _ = raw(libc::SYS_shmctl, &[self.segment, i64::from(libc::IPC_RMID), 0]);
        let _ = raw(libc::SYS_msgctl, &[self.queue, i64::from(libc::IPC_RMID), 0]);
        for key in &self.keys {
            // KEYCTL_INVALIDATE
            let _ = raw(libc::SYS_keyctl, &[21, *key]);
        }
        let _ = std::fs::remove_file(&self.shared);
    }
}

fn offer(facts: &Facts) -> std::io::Result<Left> {
    let secret = facts.text("secret").to_owned();
    let base = facts.text("base").to_owned();
    let me = std::process::id();
    // Signals to this process leave a trace that only it can make.
    signalled(&base)?;
    // Whoever may trace at all may trace this one, whatever the machine's Yama says about parents.
    let _ = raw(libc::SYS_prctl, &[i64::from(libc::PR_SET_PTRACER), -1]);
    println!("decoy_pid={me}");

    let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    println!("tcp_port={}", tcp.local_addr()?.port());
    let answer = secret.clone();
    std::thread::spawn(move || {
        for mut stream in tcp.incoming().flatten() {
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    println!("udp_port={}", udp.local_addr()?.port());
    let answer = secret.clone();
    std::thread::spawn(move || {
        let mut buffer = [0; 64];
        while let Ok((_, from)) = udp.recv_from(&mut buffer) {
            let _ = udp.send_to(answer.as_bytes(), from);
        }
    });
    let name = format!("stockade-conformance-{me}");
    serve(UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?, &secret);
    println!("abstract={name}");
    // Held open for as long as the process lives, like the file below.
    std::mem::forget(UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(format!("{name}-datagram"))?)?);
    // One beside the workspace, as the sockets of services are, and one in it, as those of build servers are.
    for (fact, directory) in [("socket", base.as_str()), ("work_socket", facts.text("work"))] {
        let path = Path::new(directory).join("host.sock");
        serve(UnixListener::bind(&path)?, &secret);
        println!("{fact}={}", path.display());
    }

    let shm_key = 0x5354_0000_i64 + i64::from(me);
    let mode = i64::from(libc::IPC_CREAT | 0o666);
    let segment = raw(libc::SYS_shmget, &[shm_key, SEGMENT, mode])?;
    let at = raw(libc::SYS_shmat, &[segment, 0, 0])?;
    // SAFETY: the kernel has just mapped SEGMENT writable bytes there, and the secret is shorter.
    unsafe { std::ptr::copy_nonoverlapping(secret.as_ptr(), at as *mut u8, secret.len().min(SEGMENT as usize)) };
    println!("shm_key={shm_key}");
    println!("memory={at}");
    let queue = raw(libc::SYS_msgget, &[shm_key, mode])?;
    println!("msg_key={shm_key}");
    let mut message = 1i64.to_ne_bytes().to_vec();
    message.extend_from_slice(secret.as_bytes());
    raw(libc::SYS_msgsnd, &[queue, call::address(message.as_slice()), secret.len() as i64, i64::from(libc::IPC_NOWAIT)])?;

    let shared = format!("/dev/shm/{name}");
    std::fs::write(&shared, &secret)?;
    println!("posix_shm={shared}");

    // The user's keyring and the session's: a sandbox of the same user would have both.
    let keys = add_keys(&name, &secret);
    println!("key={name}");

    let open = std::fs::File::open(Path::new(&base).join("secret"))?;
    println!("decoy_fd={}", open.as_raw_fd());
    // Held open for as long as the process lives.
    std::mem::forget(open);
    Ok(Left { segment, queue, keys, shared })
}

/// One in each ring; a person's keys are few, so every one of them must go again.
fn add_keys(name: &str, secret: &str) -> Vec<i64> {
    let (kind, description) = (call::text("user"), call::text(name));
    let mut keys = Vec::new();
    for ring in [-3, -4] {
        let words = [call::pointer(&kind), call::pointer(&description), call::address(secret.as_bytes()), secret.len() as i64, ring];
        let Ok(key) = raw(libc::SYS_add_key, &words) else { continue };
        // KEYCTL_SET_TIMEOUT, and KEYCTL_SETPERM so that the same user may read it without possessing it.
        let _ = raw(libc::SYS_keyctl, &[15, key, KEY_SECONDS]);
        let _ = raw(libc::SYS_keyctl, &[5, key, 0x3f3f_0000]);
        keys.push(key);
    }
    keys
}

fn serve(listener: UnixListener, secret: &str) {
    let secret = secret.to_owned();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.write_all(secret.as_bytes());
            let _ = stream.shutdown(Shutdown::Write);
            // Until the other side is done: it may have something to hand over.
            std::thread::spawn(move || stream.read_to_end(&mut Vec::new()));
        }
    });
}

/// Makes the file `signalled` beside the workspace when SIGUSR1 arrives, instead of dying.
fn signalled(base: &str) -> std::io::Result<()> {
    let path = Path::new(base).join("signalled");
    let mask: u64 = 1 << (libc::SIGUSR1 - 1);
    raw(libc::SYS_rt_sigprocmask, &[i64::from(libc::SIG_BLOCK), call::address(&mask), 0, 8])?;
    std::thread::spawn(move || {
        while raw(libc::SYS_rt_sigtimedwait, &[call::address(&mask), 0, 0, 8]).is_ok() {
            let _ = std::fs::write(&path, "");
        }
    });
    Ok(())
}
