//! Programs that know no proxy: names with made-up addresses, and connections to those.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use hickory_proto::op::{Message, Query, ResponseCode};
use hickory_proto::rr::{Name, RData, RecordType};
use hyper_util::rt::TokioIo;
use stockade_egress::{Kind, Subject, Verdict};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use crate::world::{LOCAL, Outside, World, get, plain_server, read_all, rules, text, whole};

pub(crate) async fn ask(stream: &mut UnixStream, name: &str) -> (ResponseCode, Option<Ipv4Addr>) {
    let mut message = Message::query();
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), RecordType::A));
    let bytes = message.to_vec().unwrap();
    stream.write_u16(bytes.len() as u16).await.unwrap();
    stream.write_all(&bytes).await.unwrap();
    let mut answer = vec![0; usize::from(stream.read_u16().await.unwrap())];
    stream.read_exact(&mut answer).await.unwrap();
    let answer = Message::from_vec(&answer).unwrap();
    let address = answer.answers.iter().find_map(|record| if let RData::A(address) = &record.data { Some(address.0) } else { None });
    (answer.metadata.response_code, address)
}

#[tokio::test]
async fn names_lead_to_their_hosts_and_nowhere_else() {
    let outside = Arc::new(Outside::new());
    let server = outside.server(&LOCAL).await;
    let (host, other) = (format!("api.example:{}", server.port), format!("other.example:{}", server.port));
    let mut world = World::new(outside, rules(&[host.clone(), other]), vec![]).await;
    let mut resolver = world.connect(Kind::Dns);
    let (_, api) = ask(&mut resolver, "api.example.").await;
    let (_, second) = ask(&mut resolver, "other.example.").await;
    assert_ne!(api, second);
    assert_eq!(ask(&mut resolver, "secret-data.attacker.example.").await, (ResponseCode::NXDomain, None));
    let event = world.event().await;
    assert_eq!((event.subject, event.verdict, event.host.as_str()), (Subject::Name, Verdict::Deny, "secret-data.attacker.example"));

    let address = SocketAddr::new(IpAddr::V4(api.unwrap()), server.port);
    let stream = world.handshake(world.connect(Kind::Transparent(address)), "api.example", &["http/1.1"]).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    assert_eq!(text(&whole(sender.send_request(get(&host, "/")).await.unwrap()).await), "hello");
    assert_eq!(world.event().await.verdict, Verdict::Allow);

    // The server name of another host, even of an allowed one.
    assert!(world.handshake(world.connect(Kind::Transparent(address)), "other.example", &["http/1.1"]).await.is_err());
    assert_eq!(world.event().await.rule, "one-host");
    // An address that nobody was told, and one of the world.
    for address in ["198.18.77.77:443", "203.0.113.7:443", "127.0.0.1:22"] {
        let mut stream = world.connect(Kind::Transparent(address.parse().unwrap()));
        stream.write_all(&[0x16, 3, 1]).await.unwrap();
        assert_eq!(read_all(&mut stream).await, "");
        assert_eq!(world.event().await.verdict, Verdict::Deny);
    }
    assert_eq!(server.count(), 1);
}

#[tokio::test]
async fn plain_http_is_held_to_its_host() {
    let server = plain_server().await;
    let host = format!("api.example:{}", server.port);
    let world = World::new(Arc::new(Outside::new()), rules(std::slice::from_ref(&host)), vec![]).await;
    let (_, address) = ask(&mut world.connect(Kind::Dns), "api.example.").await;
    let address = SocketAddr::new(IpAddr::V4(address.unwrap()), server.port);
    for (said, expected) in [(host.as_str(), "HTTP/1.1 200"), ("denied.example", "HTTP/1.1 403")] {
        let mut stream = world.connect(Kind::Transparent(address));
        stream.write_all(format!("GET / HTTP/1.1\r\nHost: {said}\r\nConnection: close\r\n\r\n").as_bytes()).await.unwrap();
        let answer = read_all(&mut stream).await;
        assert!(answer.starts_with(expected), "{said} {answer}");
    }
    // Somebody who speaks HTTP to an address that belongs to nobody is told.
    let mut stream = world.connect(Kind::Transparent("93.184.216.34:80".parse().unwrap()));
    stream.write_all(b"GET / HTTP/1.1\r\nHost: denied.example\r\n\r\n").await.unwrap();
    assert!(read_all(&mut stream).await.starts_with("HTTP/1.1 403"));
    assert_eq!(server.count(), 1);
}
