//! Connections that are passed as descriptors over a sandbox's own socket.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::net::{AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType};
use stockade_egress::Opening;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::world::{Outside, World, plain_server, read_all, rules};

fn pass(channel: &OwnedFd, message: &[u8], descriptors: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(descriptors.is_empty() || control.push(SendAncillaryMessage::ScmRights(descriptors)));
    rustix::net::sendmsg(channel, &[IoSlice::new(message)], &mut control, SendFlags::empty()).unwrap();
}

#[tokio::test]
async fn a_passed_socket_is_served_without_copying_and_rubbish_is_dropped() {
    let server = plain_server().await;
    let host = format!("api.example:{}", server.port);
    let mut world = World::new(Arc::new(Outside::new()), rules(std::slice::from_ref(&host)), vec![]).await;
    let (inside, outside) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    let guest =
        Arc::new(world.egress.add(stockade_core::id::SandboxId::from_parts(9_000, 9), rules(std::slice::from_ref(&host)), vec![]).unwrap());
    let served = tokio::spawn({
        let guest = Arc::clone(&guest);
        async move { guest.accept(outside).await }
    });
    // As the guest does: accept on loopback, pass what was accepted, forget it.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut program = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (accepted, _) = listener.accept().await.unwrap();
    let file = std::fs::File::open("/dev/null").unwrap();
    let listening: OwnedFd = rustix::net::socket(AddressFamily::UNIX, SocketType::DGRAM, None).unwrap();
    // Rubbish first: no descriptor, a file, a datagram socket, two descriptors, a broken message.
    pass(&inside, &Opening::Proxy.bytes(), &[]);
    pass(&inside, &Opening::Proxy.bytes(), &[file.as_fd()]);
    pass(&inside, &Opening::Proxy.bytes(), &[listening.as_fd()]);
    pass(&inside, &Opening::Proxy.bytes(), &[accepted.as_fd(), accepted.as_fd()]);
    pass(&inside, b"rubbish", &[accepted.as_fd()]);
    pass(&inside, &[7; 4000], &[file.as_fd()]);
    pass(&inside, &Opening::Proxy.bytes(), &[accepted.as_fd()]);
    // Whoever keeps a copy can make it block; egress must not care.
    accepted.into_std().unwrap().set_nonblocking(false).unwrap();
    program.write_all(format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = [0; 15];
    program.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200 OK");
    assert_eq!(world.event().await.sandbox, *guest.id());
    drop(program);
    drop(inside);
    served.await.unwrap().unwrap();
    assert_eq!(server.count(), 1);
}

#[tokio::test]
async fn a_transparent_connection_is_where_its_socket_says() {
    let server = plain_server().await;
    let host = format!("127.0.0.1:{}", server.port);
    let world = World::new(Arc::new(Outside::new()), rules(std::slice::from_ref(&host)), vec![]).await;
    let (inside, outside) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut program = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (accepted, _) = listener.accept().await.unwrap();
    // The message claims the allowed port; the socket was made to another.
    pass(&inside, &Opening::Transparent(host.parse().unwrap()).bytes(), &[accepted.as_fd()]);
    drop(accepted);
    drop(inside);
    program.write_all(format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").as_bytes()).await.unwrap();
    let serve = world.guest.accept(outside);
    let (served, answer) = tokio::join!(serve, read_all(&mut program));
    served.unwrap();
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    assert_eq!(server.count(), 0);
}
