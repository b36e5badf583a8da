//! Talking to the victim past the network: shared memory, queues, keys, Unix sockets.

use std::io::Read;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixStream};
use std::time::Duration;

use crate::call::{address, pointer, raw, text};
use crate::facts::Facts;
use crate::finding::{Finding, if_it_works, if_secret};

use super::Attempt;

pub(super) const TABLE: &[(&str, Attempt)] = &[
    ("sysv_memory", sysv_memory),
    ("sysv_queue", sysv_queue),
    ("sysv_listing", sysv_listing),
    ("posix_memory", posix_memory),
    ("abstract_socket", abstract_socket),
    ("abstract_datagram", abstract_datagram),
    ("path_socket", |facts| path_socket(facts, "socket")),
    ("workspace_socket", |facts| path_socket(facts, "work_socket")),
    ("pass_descriptor", pass_descriptor),
    ("session_key", |facts| key(facts, -3)),
    ("user_key", |facts| key(facts, -4)),
    ("listed_keys", listed_keys),
];

fn sysv_memory(facts: &Facts) -> Finding {
    let read = || -> std::io::Result<Vec<u8>> {
        let segment = raw(libc::SYS_shmget, &[facts.number("shm_key"), 0, 0])?;
        let at = raw(libc::SYS_shmat, &[segment, 0, i64::from(libc::SHM_RDONLY)])?;
        // SAFETY: the kernel has just mapped the segment there; it is a page, and 256 bytes of it are copied.
        Ok(unsafe { std::slice::from_raw_parts(at as *const u8, 256) }.to_vec())
    };
    if_secret(read(), facts.text("secret"))
}

/// Looks at the message without taking it (`MSG_COPY`), so that the next attempt finds it too.
fn sysv_queue(facts: &Facts) -> Finding {
    let read = || -> std::io::Result<Vec<u8>> {
        let queue = raw(libc::SYS_msgget, &[facts.number("msg_key"), 0])?;
        let buffer = [0u8; 264];
        raw(libc::SYS_msgrcv, &[queue, address(&buffer), 256, 0, i64::from(libc::IPC_NOWAIT | 0o40000)])?;
        Ok(buffer.to_vec())
    };
    if_secret(read(), facts.text("secret"))
}

/// The kernel's own list of segments names the victim's.
fn sysv_listing(facts: &Facts) -> Finding {
    match std::fs::read_to_string("/proc/sysvipc/shm") {
        Ok(list) if list.split_whitespace().any(|word| word == facts.text("shm_key")) => {
            Finding::Open("the victim's segment is listed".into())
        }
        Ok(_) => Finding::Held("not listed".into()),
        Err(error) => Finding::Held(error.to_string()),
    }
}

fn posix_memory(facts: &Facts) -> Finding {
    if_secret(std::fs::read(facts.text("posix_shm")), facts.text("secret"))
}

fn answer(stream: std::io::Result<UnixStream>) -> std::io::Result<Vec<u8>> {
    let mut stream = stream?;
    stream.set_read_timeout(Some(Duration::from_secs(3)))?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn abstract_socket(facts: &Facts) -> Finding {
    let stream = SocketAddr::from_abstract_name(facts.text("abstract")).and_then(|a| UnixStream::connect_addr(&a));
    if_secret(answer(stream), facts.text("secret"))
}

/// As datagrams, which have a path of their own in the kernel.
fn abstract_datagram(facts: &Facts) -> Finding {
    let address = SocketAddr::from_abstract_name(format!("{}-datagram", facts.text("abstract")));
    if_it_works(address.and_then(|a| UnixDatagram::unbound()?.connect_addr(&a)))
}

fn path_socket(facts: &Facts, name: &str) -> Finding {
    if_secret(answer(UnixStream::connect(facts.text(name))), facts.text("secret"))
}

/// Hands a descriptor of a file inside to a process of the host, which could be fooled into using it.
fn pass_descriptor(facts: &Facts) -> Finding {
    let send = |path: &str| -> std::io::Result<Vec<u8>> {
        use std::os::fd::AsRawFd;
        let stream = UnixStream::connect(path)?;
        let byte = [0u8; 1];
        let part = [address(&byte), 1];
        let mut control = [0u8; 24];
        // Length, level and type of one descriptor, in the layout of 64-bit machines.
        for (to, from) in control.iter_mut().zip([20u64.to_ne_bytes(), [1, 0, 0, 0, 1, 0, 0, 0]].concat()) {
            *to = from;
        }
        let header = [0i64, 0, address(&part), 1, address(&control), 24, 0];
        raw(libc::SYS_sendmsg, &[i64::from(stream.as_raw_fd()), address(&header), 0])?;
        answer(Ok(stream))
    };
    let first = if_secret(send(facts.text("socket")), facts.text("secret"));
    if matches!(first, Finding::Open(_)) { first } else { if_secret(send(facts.text("work_socket")), facts.text("secret")) }
}

fn key(facts: &Facts, ring: i64) -> Finding {
    let read = || -> std::io::Result<Vec<u8>> {
        let (kind, name) = (text("user"), text(facts.text("key")));
        // KEYCTL_SEARCH, then KEYCTL_READ.
        let key = raw(libc::SYS_keyctl, &[10, ring, pointer(&kind), pointer(&name), 0])?;
        let buffer = [0u8; 256];
        raw(libc::SYS_keyctl, &[11, key, address(&buffer), 256])?;
        Ok(buffer.to_vec())
    };
    if_secret(read(), facts.text("secret"))
}

/// The kernel's own list of keys.
fn listed_keys(facts: &Facts) -> Finding {
    if_secret(std::fs::read("/proc/keys"), facts.text("key"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_control_message_of_one_descriptor_has_the_layout_of_the_kernel() {
        // SAFETY: computes a number.
        assert_eq!(unsafe { libc::CMSG_LEN(4) }, 20);
        // SAFETY: computes a number.
        assert_eq!(unsafe { libc::CMSG_SPACE(4) }, 24);
        assert_eq!((libc::SOL_SOCKET, libc::SCM_RIGHTS, crate::call::limit(7).is_ok()), (1, 1, true));
    }
}
