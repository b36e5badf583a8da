//! What passes: HTTP/1.1, HTTP/2, WebSocket, live events, trailers, 100-continue, large bodies, SOCKS5, tunnels that are not opened.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use stockade_egress::rules::{HostRule, Tls};
use stockade_egress::{Kind, Rules, Subject, Verdict};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;

use crate::world::{AnyBody, LOCAL, Outside, Seen, VALUE, World, full, get, pattern, plain_server, rules, text, whole};

/// The server's ways to answer, by path.
pub(crate) async fn respond(mut request: Request<Incoming>, seen: Arc<Mutex<Vec<Seen>>>) -> Result<Response<AnyBody>, hyper::Error> {
    let (method, target, headers) = (request.method().to_string(), request.uri().to_string(), request.headers().clone());
    if request.uri().path() == "/websocket" {
        let upgrade = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let mut stream = TokioIo::new(upgrade.await.unwrap());
            let mut buffer = [0; 1024];
            while let Ok(count @ 1..) = stream.read(&mut buffer).await {
                stream.write_all(&buffer[..count]).await.unwrap();
                if buffer[..count].ends_with(b"leak") {
                    stream.write_all(VALUE.as_bytes()).await.unwrap();
                }
            }
        });
        seen.lock().unwrap().push(Seen { method, target, headers, body: Bytes::new() });
        let answer = Response::builder().status(101).header("upgrade", "websocket").header("connection", "upgrade");
        return Ok(answer.body(full("")).unwrap());
    }
    let path = request.uri().path().to_owned();
    let mut total = 0;
    let mut body = BytesMut::new();
    while let Some(frame) = request.body_mut().frame().await {
        if let Ok(data) = frame?.into_data() {
            total += data.len();
            if body.len() < 1 << 20 {
                body.extend_from_slice(&data);
            }
        }
    }
    let body = body.freeze();
    seen.lock().unwrap().push(Seen { method, target: target.clone(), headers: headers.clone(), body: body.clone() });
    Ok(match path.as_str() {
        // Everything back, as an interface that repeats its input would.
        "/echo" => {
            let mut text = format!("{target}\n");
            for (name, value) in &headers {
                text.extend([name.as_str(), ": ", value.to_str().unwrap(), "\n"]);
            }
            let mut answer = Response::new(full([text.as_bytes(), &body].concat()));
            if let Some(value) = headers.get("authorization") {
                answer.headers_mut().insert("x-echo", value.clone());
            }
            answer
        }
        "/count" => Response::new(full(total.to_string())),
        "/redirect" => Response::builder().status(302).header("location", "https://denied.example/").body(full("")).unwrap(),
        "/large" => {
            let (sender, receiver) = mpsc::channel(4);
            tokio::spawn(async move {
                for _ in 0..1024 {
                    if sender.send(Ok(Frame::data(Bytes::from(vec![b'x'; 64 << 10])))).await.is_err() {
                        return;
                    }
                }
            });
            Response::new(stream(receiver))
        }
        "/events" => {
            let (sender, receiver) = mpsc::channel(4);
            tokio::spawn(async move {
                for number in 0..10_000 {
                    if sender.send(Ok(Frame::data(Bytes::from(format!("data: {number}\n\n"))))).await.is_err() {
                        return;
                    }
                }
            });
            Response::builder().header("content-type", "text/event-stream").body(stream(receiver)).unwrap()
        }
        // One event, and then nothing for as long as the client waits.
        "/live" => {
            let (sender, receiver) = mpsc::channel(4);
            tokio::spawn(async move {
                sender.send(Ok(Frame::data(Bytes::from_static(b"data: now\n\n")))).await.unwrap();
                sender.closed().await;
            });
            Response::builder().header("content-type", "text/event-stream").body(stream(receiver)).unwrap()
        }
        "/trailers" => {
            let (sender, receiver) = mpsc::channel(4);
            tokio::spawn(async move {
                sender.send(Ok(Frame::data(body))).await.unwrap();
                let mut trailers = HeaderMap::new();
                trailers.insert("grpc-status", "0".parse().unwrap());
                trailers.insert("grpc-message", VALUE.parse().unwrap());
                sender.send(Ok(Frame::trailers(trailers))).await.unwrap();
            });
            Response::builder().header("content-type", "application/grpc").header("trailer", "grpc-status").body(stream(receiver)).unwrap()
        }
        "/secret/gzip" | "/secret/zstd" | "/secret/lzma" => {
            let text = format!("{{\"token\": \"{VALUE}\"}}");
            let (coding, bytes) = match path.as_str() {
                "/secret/gzip" => ("gzip", gzip(text.as_bytes())),
                "/secret/zstd" => ("zstd", zstd::encode_all(text.as_bytes(), 3).unwrap()),
                _ => ("lzma", text.into_bytes()),
            };
            Response::builder().header("content-encoding", coding).body(full(bytes)).unwrap()
        }
        "/secret/cut" => {
            let (sender, receiver) = mpsc::channel(4);
            tokio::spawn(async move {
                for byte in format!("<{VALUE}>").into_bytes() {
                    sender.send(Ok(Frame::data(Bytes::from(vec![byte])))).await.unwrap();
                }
            });
            Response::new(stream(receiver))
        }
        "/missing" => Response::builder().status(StatusCode::NOT_FOUND).body(full("not here")).unwrap(),
        "/empty" => Response::builder().status(StatusCode::NO_CONTENT).body(full("")).unwrap(),
        _ => Response::new(full("hello")),
    })
}

fn gzip(text: &[u8]) -> Vec<u8> {
    use std::io::Write as _;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

type Pieces = mpsc::Receiver<Result<Frame<Bytes>, Box<dyn std::error::Error + Send + Sync>>>;

fn stream(receiver: Pieces) -> AnyBody {
    struct Received(Pieces);
    impl http_body::Body for Received {
        type Data = Bytes;
        type Error = Box<dyn std::error::Error + Send + Sync>;
        fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
            self.0.poll_recv(context)
        }
    }
    Received(receiver).boxed()
}

async fn world() -> (World, crate::world::Server, String) {
    let outside = Arc::new(Outside::new());
    let server = outside.server(&LOCAL).await;
    let host = format!("api.example:{}", server.port);
    let world = World::new(outside, rules(std::slice::from_ref(&host)), vec![]).await;
    (world, server, host)
}

#[tokio::test]
async fn https_passes_and_each_request_is_an_event() {
    let (mut world, server, host) = world().await;
    let answer = world.https(&host, get(&host, "/some/path?query=1")).await;
    assert_eq!((answer.status(), text(&answer)), (StatusCode::OK, "hello"));
    assert_eq!(server.last().target, "/some/path?query=1");
    let event = world.event().await;
    assert_eq!(
        (event.subject, event.verdict, event.host.as_str(), event.port),
        (Subject::Request, Verdict::Allow, "api.example", server.port)
    );
    assert_eq!((event.method.as_deref(), event.path.as_deref(), event.status), (Some("GET"), Some("/some/path"), Some(200)));
    assert_eq!((event.rule.as_str(), event.received, event.reason), (host.as_str(), 5, None));
    world.no_event();
}

#[tokio::test]
async fn kept_connections_are_used_again_on_both_legs() {
    let (world, server, host) = world().await;
    let stream = world.tls(&host, "api.example", &["http/1.1"]).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    for target in ["/", "/empty", "/missing", "/echo", "/"] {
        let answer = whole(sender.send_request(get(&host, target)).await.unwrap()).await;
        assert!(answer.status().as_u16() < 500, "{target}");
        sender.ready().await.unwrap();
    }
    // Another connection of the same sandbox uses what the first left.
    world.https(&host, get(&host, "/")).await;
    assert_eq!((server.count(), *server.connections.lock().unwrap()), (6, 1));
}

#[tokio::test]
async fn plain_http_passes_through_the_proxy() {
    let server = plain_server().await;
    let host = format!("api.example:{}", server.port);
    let mut world = World::new(Arc::new(Outside::new()), rules(std::slice::from_ref(&host)), vec![]).await;
    let request = format!("GET http://{host}/x?y HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nProxy-Authorization: Basic eA==\r\n\r\n");
    let answer = world.raw(request.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("hello"), "{answer}");
    let seen = server.last();
    assert_eq!((seen.target.as_str(), seen.header("host"), seen.header("proxy-authorization")), ("/x?y", host.as_str(), ""));
    assert_eq!(world.event().await.verdict, Verdict::Allow);
}

#[tokio::test]
async fn http2_passes_with_trailers_and_many_streams() {
    let (world, server, host) = world().await;
    let mut sender = world.http2(&host).await;
    let uri = format!("https://{host}/trailers");
    let request = Request::post(&uri).header("te", "trailers").header("content-type", "application/grpc").body(full("message")).unwrap();
    let answer = sender.send_request(request).await.unwrap();
    let collected = answer.into_body().collect().await.unwrap();
    assert_eq!(collected.trailers().unwrap()["grpc-status"], "0");
    assert_eq!(collected.to_bytes(), "message");
    assert_eq!(server.last().header("te"), "trailers");
    let mut answers = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let request = Request::get(format!("https://{host}/")).body(full("")).unwrap();
        let sent = sender.send_request(request);
        answers.spawn(async move { whole(sent.await.unwrap()).await });
    }
    while let Some(answer) = answers.join_next().await {
        assert_eq!(text(&answer.unwrap()), "hello");
    }
    assert_eq!((server.count(), *server.connections.lock().unwrap()), (51, 1));
}

#[tokio::test]
async fn streaming_goes_both_ways_at_once_over_http2() {
    let (world, _server, host) = world().await;
    let mut sender = world.http2(&host).await;
    let (pieces, receiver) = mpsc::channel(4);
    let request = Request::post(format!("https://{host}/count")).body(stream(receiver)).unwrap();
    let answer = tokio::spawn(sender.send_request(request));
    for _ in 0..100 {
        pieces.send(Ok(Frame::data(Bytes::from_static(&[7; 1000])))).await.unwrap();
    }
    drop(pieces);
    assert_eq!(text(&whole(answer.await.unwrap().unwrap()).await), "100000");
}

#[tokio::test]
async fn large_bodies_stream_both_ways() {
    let (mut world, _server, host) = world().await;
    let answer = world.https(&host, get(&host, "/large")).await;
    assert_eq!(answer.body().len(), 64 << 20);
    assert_eq!(world.event().await.received, 64 << 20);
    let (pieces, receiver) = mpsc::channel(4);
    let request = Request::post("/count").header("host", &host).body(stream(receiver)).unwrap();
    tokio::spawn(async move {
        for _ in 0..512 {
            pieces.send(Ok(Frame::data(Bytes::from(vec![b'y'; 64 << 10])))).await.unwrap();
        }
    });
    assert_eq!(text(&world.https(&host, request).await), (32 << 20).to_string());
    assert_eq!(world.event().await.sent, 32 << 20);
}

#[tokio::test]
async fn live_events_come_at_once_and_all_of_them() {
    let (world, _server, host) = world().await;
    let answer = world.https(&host, get(&host, "/events")).await;
    let expected = (0..10_000).map(|number| format!("data: {number}\n\n")).collect::<Vec<_>>().concat();
    assert!(text(&answer) == expected);
    let stream = world.tls(&host, "api.example", &["http/1.1"]).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let mut answer = sender.send_request(get(&host, "/live")).await.unwrap();
    let first = tokio::time::timeout(Duration::from_secs(20), answer.body_mut().frame()).await.expect("the event is held back");
    assert_eq!(first.unwrap().unwrap().into_data().unwrap(), "data: now\n\n");
}

#[tokio::test]
async fn a_websocket_is_relayed() {
    let (mut world, server, host) = world().await;
    let stream = world.tls(&host, "api.example", &["http/1.1"]).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection.with_upgrades());
    let request = Request::get("/websocket").header("host", &host).header("upgrade", "websocket").header("connection", "Upgrade");
    let answer = sender.send_request(request.header("sec-websocket-key", "x").body(full("")).unwrap()).await.unwrap();
    assert_eq!(answer.status(), StatusCode::SWITCHING_PROTOCOLS);
    assert_eq!(server.last().header("upgrade"), "websocket");
    let mut stream = TokioIo::new(hyper::upgrade::on(answer).await.unwrap());
    for round in 0..10_u8 {
        stream.write_all(&[round; 100]).await.unwrap();
        let mut back = [0; 100];
        stream.read_exact(&mut back).await.unwrap();
        assert_eq!(back, [round; 100]);
    }
    stream.shutdown().await.unwrap();
    drop(stream);
    let event = world.event().await;
    assert_eq!((event.status, event.sent, event.received, event.reason), (Some(101), 1000, 1000, None));
}

#[tokio::test]
async fn a_refused_upgrade_closes_the_connection() {
    let (world, server, host) = world().await;
    let mut stream = world.tls(&host, "api.example", &["http/1.1"]).await.unwrap();
    let request = format!("GET / HTTP/1.1\r\nhost: {host}\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n");
    // What follows was not looked at as a request, so it must not become one.
    stream.write_all(format!("{request}GET /second HTTP/1.1\nhost: {host}\n\n").as_bytes()).await.unwrap();
    let answer = crate::world::read_all(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("connection: close") && answer.ends_with("hello"), "{answer}");
    // One that the rules refuse, likewise.
    let mut stream = world.tls(&host, "api.example", &["http/1.1"]).await.unwrap();
    let request = "GET / HTTP/1.1\r\nhost: denied.example\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n";
    stream.write_all(format!("{request}GET /second HTTP/1.1\nhost: {host}\n\n").as_bytes()).await.unwrap();
    let answer = crate::world::read_all(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 403") && answer.contains("connection: close"), "{answer}");
    assert_eq!(server.count(), 1);
}

#[tokio::test]
async fn a_body_is_asked_for_when_the_client_waits_for_it() {
    let (world, _server, host) = world().await;
    let mut stream = world.tls(&host, "api.example", &["http/1.1"]).await.unwrap();
    let head = format!("POST /count HTTP/1.1\r\nhost: {host}\r\ncontent-length: 5\r\nexpect: 100-continue\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut first = [0; 25];
    stream.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"hello").await.unwrap();
    assert!(crate::world::read_all(&mut stream).await.ends_with("\r\n\r\n5"));
}

#[tokio::test]
async fn socks5_leads_to_the_same_place() {
    let (world, server, host) = world().await;
    let mut stream = world.connect(Kind::Proxy);
    stream.write_all(&[5, 1, 0]).await.unwrap();
    let mut answer = [0; 2];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer, [5, 0]);
    let request = [&[5, 1, 0, 3, 11][..], b"api.example", &server.port.to_be_bytes()].concat();
    stream.write_all(&request).await.unwrap();
    let mut answer = [0; 10];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer[1], 0);
    let stream = world.handshake(stream, "api.example", &["http/1.1"]).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    assert_eq!(text(&whole(sender.send_request(get(&host, "/")).await.unwrap()).await), "hello");
}

#[tokio::test]
async fn a_tunnel_may_pass_unopened() {
    let outside = Arc::new(Outside::new());
    let server = outside.server(&LOCAL).await;
    let host = format!("cdn.example:{}", server.port);
    let hosts = vec![
        HostRule { tls: Tls::Pass, ..HostRule::allow(pattern(&host)) },
        HostRule::allow(pattern(&format!("127.0.0.1:{}", server.port))),
    ];
    let mut world = World::new(outside, Rules { hosts, ..Rules::default() }, vec![]).await;
    let tunnel = world.tunnel(&host).await.unwrap();
    // The server's own certificate comes through: nobody stands between.
    let mut stream = world.handshake_outside(tunnel, "cdn.example").await.unwrap();
    stream.write_all(format!("GET / HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").as_bytes()).await.unwrap();
    assert!(crate::world::read_all(&mut stream).await.ends_with("hello"));
    drop(stream);
    let event = world.event().await;
    assert_eq!((event.subject, event.verdict, event.host.as_str()), (Subject::Connection, Verdict::Allow, "cdn.example"));
    assert!(event.sent > 100 && event.received > 500);
}
