//! Connections on the loopback.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};

use stockade_wire::frame::GUEST_ID_BIT;
use stockade_wire::message::{ErrorKind, Reply, Request};

use crate::client::{Guest, INPUT, OUTPUT, data};

fn read_all(guest: &mut Guest, id: u32) -> Vec<u8> {
    let mut contents = Vec::new();
    loop {
        match guest.reply(id) {
            Reply::Data { stream, bytes } => {
                assert_eq!(stream, OUTPUT);
                contents.extend_from_slice(&bytes.0);
                guest.grant(id, OUTPUT, bytes.0.len());
            }
            Reply::Eof { .. } => return contents,
            Reply::Credit { .. } => {}
            other => panic!("unexpected {other:?}"),
        }
    }
}

/// Answers one connection with what it got, once that has ended.
fn echo_server(address: &str) -> (u16, std::thread::JoinHandle<()>) {
    let listener = TcpListener::bind((address, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut contents = Vec::new();
        stream.read_to_end(&mut contents).unwrap();
        contents.reverse();
        stream.write_all(&contents).unwrap();
    });
    (port, thread)
}

#[test]
fn a_connection_carries_both_directions_and_half_closes() {
    for address in ["127.0.0.1", "::1"] {
        let (port, server) = echo_server(address);
        let mut guest = Guest::start();
        let id = guest.request(&Request::Connect { port });
        // Sent before it stands, on purpose.
        guest.send(id, &data(b"abc"));
        guest.send(id, &data(b"def"));
        guest.send(id, &Request::Eof { stream: INPUT });
        assert_eq!(guest.reply(id), Reply::Started { pid: 0, program: "".into() }, "{address}");
        assert_eq!(read_all(&mut guest, id), b"fedcba");
        assert_eq!(guest.reply(id), Reply::Done {});
        server.join().unwrap();
    }
}

#[test]
fn a_refused_connection_fails() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let mut guest = Guest::start();
    guest.ask(&Request::Ping {});
    let before = guest.open_descriptors();
    let (kind, message) = guest.failure(&Request::Connect { port });
    assert_eq!(kind, ErrorKind::Io {});
    assert!(message.contains("refused"), "{message}");
    assert_eq!(guest.open_descriptors(), before);
}

#[test]
fn a_listener_announces_each_connection() {
    let mut guest = Guest::start();
    let listener = guest.request(&Request::Listen { port: 0 });
    let Reply::Listening { port } = guest.reply(listener) else { panic!("not listening") };
    for round in 0..3 {
        let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (id, reply) = guest.next_reply().unwrap();
        assert_eq!(reply, Reply::Accepted { listener, peer_port: client.local_addr().unwrap().port() });
        assert_eq!(id, GUEST_ID_BIT | round);
        client.write_all(b"question").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(read_all(&mut guest, id), b"question");
        guest.send(id, &data(b"answer"));
        guest.send(id, &Request::Eof { stream: INPUT });
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "answer");
        assert_eq!(guest.reply(id), Reply::Done {});
    }
    assert!(matches!(guest.failure(&Request::Listen { port }), (ErrorKind::Io {}, _)));
    guest.send(listener, &Request::Cancel {});
    assert_eq!(guest.reply(listener), Reply::Done {});
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
}

#[test]
fn connections_from_inside_cannot_use_up_the_host_s_requests() {
    let mut guest = Guest::start();
    let listener = guest.request(&Request::Listen { port: 0 });
    let Reply::Listening { port } = guest.reply(listener) else { panic!("not listening") };
    let mut clients: Vec<_> = (0..600).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
    assert_eq!(guest.shell("echo served").text(), "served\n");
    let mut accepted = Vec::new();
    let ping = guest.request(&Request::Ping {});
    loop {
        match guest.next_reply().unwrap() {
            (id, Reply::Accepted { .. }) => accepted.push(id),
            (id, Reply::Pong {}) if id == ping => break,
            other => panic!("unexpected {other:?}"),
        }
    }
    assert_eq!(accepted.len(), 512);
    // Where one ends, one that waited gets in.
    guest.send(accepted[0], &Request::Cancel {});
    assert_eq!(guest.reply(accepted[0]), Reply::Done {});
    assert!(matches!(guest.next_reply(), Some((_, Reply::Accepted { .. }))));
    clients.clear();
}

#[test]
fn a_reset_connection_fails() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let mut guest = Guest::start();
    let id = guest.request(&Request::Connect { port: listener.local_addr().unwrap().port() });
    let (peer, _) = listener.accept().unwrap();
    assert_eq!(guest.reply(id), Reply::Started { pid: 0, program: "".into() });
    rustix::net::sockopt::set_socket_linger(&peer, Some(std::time::Duration::ZERO)).unwrap();
    drop(peer);
    assert!(matches!(guest.reply(id), Reply::Failed { kind: ErrorKind::Io {}, .. }));
}
