//! Placeholders go in, values come out on the other side and nowhere else.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use hyper_util::rt::TokioIo;
use stockade_egress::secrets::binding::{Budget, Place, Places};
use stockade_egress::{Binding, Verdict};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::world::{LOCAL, Outside, PLACEHOLDER, Server, VALUE, World, binding, full, get, plain_server, rules, text};

async fn world_with(change: impl FnOnce(&mut Binding)) -> (World, Server, String) {
    let outside = Arc::new(Outside::new());
    let server = outside.server(&LOCAL).await;
    let host = format!("api.example:{}", server.port);
    let mut binding = binding(&host);
    change(&mut binding);
    let allowed = rules(&[host.clone(), format!("other.example:{}", server.port)]);
    (World::new(outside, allowed, vec![binding]).await, server, host)
}

fn authorized(host: &str, target: &str, value: &str) -> Request<crate::world::AnyBody> {
    Request::get(target).header("host", host).header("authorization", value).body(full("")).unwrap()
}

#[tokio::test]
async fn a_placeholder_becomes_the_value_and_an_echo_becomes_the_placeholder() {
    let (mut world, server, host) = world_with(|_| {}).await;
    let answer = world.https(&host, authorized(&host, "/echo", &format!("Bearer {PLACEHOLDER}"))).await;
    assert_eq!(server.last().header("authorization"), format!("Bearer {VALUE}"));
    assert!(text(&answer).contains(&format!("authorization: Bearer {PLACEHOLDER}\n")), "{}", text(&answer));
    assert_eq!(answer.headers()["x-echo"], format!("Bearer {PLACEHOLDER}"));
    assert!(!format!("{answer:?}").contains(VALUE));
    let event = world.event().await;
    assert_eq!(event.secrets, ["TOKEN".into()]);
    assert_eq!((event.verdict, event.reason.as_deref()), (Verdict::Allow, Some("a secret was taken out of the answer")));
    assert!(!format!("{event:?}").contains(VALUE));
}

#[tokio::test]
async fn a_proxy_that_is_asked_for_https_without_a_tunnel_encrypts_and_holds_to_the_same() {
    // The server speaks nothing but TLS.
    let (mut world, server, host) = world_with(|_| {}).await;
    let ask = |target: &str, named: &str| {
        format!("GET {target}/echo HTTP/1.1\r\nHost: {named}\r\nAuthorization: Bearer {PLACEHOLDER}\r\nConnection: close\r\n\r\n")
    };
    let answer = world.raw(ask(&format!("https://{host}"), &host).as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains(PLACEHOLDER) && !answer.contains(VALUE), "{answer}");
    assert_eq!(server.last().header("authorization"), format!("Bearer {VALUE}"));
    let event = world.event().await;
    assert_eq!((event.verdict, event.host.as_str(), event.secrets), (Verdict::Allow, "api.example", vec!["TOKEN".into()]));
    let (other, denied) = (host.replace("api.", "other."), host.replace("api.", "denied."));
    for (target, named) in [
        // A placeholder on its way elsewhere, names that differ, a host that is not allowed, another scheme.
        (format!("https://{other}"), &other),
        (format!("https://{host}"), &other),
        (format!("https://{denied}"), &denied),
        (format!("ftp://{host}"), &host),
    ] {
        let answer = world.raw(ask(&target, named).as_bytes()).await;
        assert!(
            answer.contains("x-stockade-rule") && !answer.starts_with("HTTP/1.1 2") && !answer.contains(VALUE),
            "{target} {named}: {answer}"
        );
        assert_eq!(world.event().await.verdict, Verdict::Deny, "{target} {named}");
    }
    assert_eq!(server.count(), 1);
}

#[tokio::test]
async fn basic_credentials_are_decoded_and_encoded_again() {
    let (world, server, host) = world_with(|_| {}).await;
    let sent = format!("Basic {}", STANDARD.encode(format!("x-access-token:{PLACEHOLDER}")));
    let answer = world.https(&host, authorized(&host, "/echo", &sent)).await;
    assert_eq!(server.last().header("authorization"), format!("Basic {}", STANDARD.encode(format!("x-access-token:{VALUE}"))));
    let inner = STANDARD.encode(VALUE);
    assert!(!text(&answer).contains(&inner[4..inner.len() - 4]) && !text(&answer).contains(VALUE));
    let echoed = answer.headers()["x-echo"].to_str().unwrap();
    let decoded = STANDARD.decode(echoed.strip_prefix("Basic ").unwrap()).unwrap();
    assert!(!String::from_utf8_lossy(&decoded).contains(&VALUE[4..20]));
}

#[tokio::test]
async fn http2_is_treated_alike_with_its_trailers() {
    let (world, server, host) = world_with(|_| {}).await;
    let mut sender = world.http2(&host).await;
    let request = Request::post(format!("https://{host}/trailers")).header("authorization", format!("Bearer {PLACEHOLDER}"));
    let answer = sender.send_request(request.body(full("message")).unwrap()).await.unwrap();
    let collected = answer.into_body().collect().await.unwrap();
    assert_eq!(collected.trailers().unwrap()["grpc-message"], PLACEHOLDER);
    assert_eq!(collected.to_bytes(), "message");
    assert_eq!(server.last().header("authorization"), format!("Bearer {VALUE}"));
}

#[tokio::test]
async fn a_placeholder_on_its_way_elsewhere_is_stopped() {
    let (mut world, server, host) = world_with(|_| {}).await;
    let other = host.replace("api.", "other.");
    let basic = format!("Basic {}", STANDARD.encode(format!("u:{PLACEHOLDER}")));
    let requests = [
        authorized(&other, "/", &format!("Bearer {PLACEHOLDER}")),
        authorized(&other, "/", &basic),
        get(&other, &format!("/?key={PLACEHOLDER}")),
        get(&other, &format!("/{PLACEHOLDER}")),
        Request::get("/").header("host", &other).header("user-agent", PLACEHOLDER).body(full("")).unwrap(),
        Request::post("/").header("host", &other).body(full(format!("{{\"key\": \"{PLACEHOLDER}\"}}"))).unwrap(),
        Request::post("/").header("host", &other).body(full("x".repeat(100_000) + PLACEHOLDER)).unwrap(),
    ];
    for (index, request) in requests.into_iter().enumerate() {
        let answer = world.https(&other, request).await;
        assert_eq!(answer.status(), StatusCode::FORBIDDEN, "{index}");
        assert!(text(&answer).contains(&format!("the secret `TOKEN` is not for `{other}`")), "{}", text(&answer));
        assert!(text(&answer).ends_with(&format!("\nto allow it: --secret TOKEN@{other}\n")), "{}", text(&answer));
        let event = world.event().await;
        assert_eq!((event.verdict, event.rule.as_str(), event.secrets.as_slice()), (Verdict::Deny, "secret-host", &["TOKEN".into()][..]));
    }
    assert!(server.seen.lock().unwrap().iter().all(|seen| !seen.text().contains(PLACEHOLDER)));
    assert_eq!(text(&world.https(&other, get(&other, "/")).await), "hello");
}

#[tokio::test]
async fn h17_other_places_are_not_replaced_unless_bound() {
    let (world, server, host) = world_with(|_| {}).await;
    let request = Request::post(format!("/echo?key={PLACEHOLDER}")).header("host", &host).header("user-agent", PLACEHOLDER);
    let answer = world.https(&host, request.body(full(PLACEHOLDER)).unwrap()).await;
    assert_eq!(answer.status(), StatusCode::OK);
    assert!(!server.last().text().contains(VALUE), "{}", server.last().text());
    let (world, server, host) = world_with(|binding| binding.places = Places { query: Place::Replace, body: Place::Replace }).await;
    for padding in [0, 200_000] {
        let body = format!("{}<{PLACEHOLDER}>", "x".repeat(padding));
        let request = Request::post(format!("/echo?key={PLACEHOLDER}")).header("host", &host).header("user-agent", PLACEHOLDER);
        let answer = world.https(&host, request.body(full(body)).unwrap()).await;
        let seen = server.last();
        assert_eq!(seen.target, "/echo?key=ghp_REALrealREALreal%2FREAL%2B012345");
        assert!(seen.body.ends_with(format!("<{VALUE}>").as_bytes()));
        assert_eq!(seen.header("user-agent"), PLACEHOLDER);
        assert!(!text(&answer).contains(VALUE) && !text(&answer).contains("REAL%2B012345"), "{padding}");
        assert!(text(&answer).contains(&format!("<{PLACEHOLDER}>")));
    }
}

#[tokio::test]
async fn answers_are_searched_in_every_coding_and_however_they_are_cut() {
    let (world, server, host) = world_with(|_| {}).await;
    for path in ["/secret/gzip", "/secret/zstd", "/secret/cut"] {
        let request = Request::get(path).header("host", &host).header("accept-encoding", "gzip, zstd, lzma").header("range", "bytes=0-9");
        let answer = world.https(&host, request.body(full("")).unwrap()).await;
        assert!(text(&answer).contains(PLACEHOLDER) && !text(&answer).contains(VALUE), "{path} {}", text(&answer));
        assert!(!answer.headers().contains_key("content-encoding"));
        assert_eq!((server.last().header("range"), server.last().header("accept-encoding")), ("", "gzip, zstd"));
    }
    let answer = world.https(&host, get(&host, "/secret/lzma")).await;
    assert_eq!(answer.status(), StatusCode::BAD_GATEWAY);
}

#[tokio::test]
async fn a_websocket_is_searched_too() {
    let (world, _server, host) = world_with(|_| {}).await;
    let stream = world.tls(&host, "api.example", &["http/1.1"]).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection.with_upgrades());
    let request = Request::get("/websocket").header("host", &host).header("upgrade", "websocket").header("connection", "Upgrade");
    let answer = sender.send_request(request.body(full("")).unwrap()).await.unwrap();
    let mut stream = TokioIo::new(hyper::upgrade::on(answer).await.unwrap());
    stream.write_all(b"leak").await.unwrap();
    let mut back = vec![0; 4 + VALUE.len()];
    stream.read_exact(&mut back).await.unwrap();
    assert_eq!(String::from_utf8(back).unwrap(), format!("leak{PLACEHOLDER}"));
}

#[tokio::test]
async fn secrets_do_not_travel_in_the_open_but_to_a_granted_address() {
    let server = plain_server().await;
    let (host, address) = (format!("api.example:{}", server.port), format!("127.0.0.1:{}", server.port));
    let outside = Arc::new(Outside::new());
    let mut world = World::new(Arc::clone(&outside), rules(std::slice::from_ref(&host)), vec![binding(&host)]).await;
    let ask = |host: &str| {
        format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {PLACEHOLDER}\r\nConnection: close\r\n\r\n")
            .into_bytes()
    };
    assert!(world.raw(&ask(&host)).await.starts_with("HTTP/1.1 403"));
    assert_eq!(world.event().await.rule, "secret-plain-http");
    assert_eq!(server.count(), 0);
    let world = World::new(outside, rules(std::slice::from_ref(&host)), vec![binding(&address)]).await;
    assert!(world.raw(&ask(&address)).await.starts_with("HTTP/1.1 200"));
    assert_eq!(server.last().header("authorization"), format!("Bearer {VALUE}"));
}

#[tokio::test]
async fn without_a_value_the_request_is_refused_and_budgets_end() {
    let outside = Arc::new(Outside::new());
    let server = outside.server(&LOCAL).await;
    let host = format!("api.example:{}", server.port);
    let world = World::with_secret(Arc::clone(&outside), rules(std::slice::from_ref(&host)), vec![binding(&host)], None).await;
    let answer = world.https(&host, authorized(&host, "/", &format!("Bearer {PLACEHOLDER}"))).await;
    assert_eq!(answer.status(), StatusCode::BAD_GATEWAY);
    assert!(text(&answer).contains("it is not set"));
    assert_eq!(server.count(), 0);
    // A request that carries none goes.
    assert_eq!(text(&world.https(&host, get(&host, "/")).await), "hello");

    let (mut world, server, host) = world_with(|binding| binding.budget = Budget { uses: Some(1), ..Budget::default() }).await;
    for expected in [StatusCode::OK, StatusCode::FORBIDDEN] {
        let answer = world.https(&host, authorized(&host, "/", &format!("Bearer {PLACEHOLDER}"))).await;
        assert_eq!(answer.status(), expected);
        world.event().await;
    }
    assert_eq!(server.count(), 1);
}

#[tokio::test]
async fn bytes_of_heads_and_of_whatever_came_before_a_placeholder_count() {
    let (mut world, server, host) = world_with(|binding| binding.budget = Budget { bytes: Some(1_000), ..Budget::default() }).await;
    let ask = |padding: usize| {
        let request = Request::get("/").header("host", &host).header("authorization", format!("Bearer {PLACEHOLDER}"));
        request.header("x-padding", "x".repeat(padding)).body(full("")).unwrap()
    };
    for (padding, expected) in [(500, StatusCode::OK), (500, StatusCode::FORBIDDEN), (0, StatusCode::FORBIDDEN)] {
        assert_eq!(world.https(&host, ask(padding)).await.status(), expected, "{padding}");
        let event = world.event().await;
        // Named once, though it was used and then refused.
        assert_eq!(event.secrets, ["TOKEN".into()], "{event:?}");
        assert_eq!(event.rule == "secret-budget", expected == StatusCode::FORBIDDEN, "{event:?}");
    }
    assert_eq!(server.count(), 1);
    let places = Places { query: Place::Leave, body: Place::Replace };
    let budget = Budget { bytes: Some(1_000), ..Budget::default() };
    let (world, server, host) = world_with(|binding| (binding.places, binding.budget) = (places, budget)).await;
    for (padding, expected) in [(100, StatusCode::OK), (900, StatusCode::FORBIDDEN), (200_000, StatusCode::FORBIDDEN)] {
        let body = full("x".repeat(padding) + PLACEHOLDER);
        let answer = world.https(&host, Request::post("/").header("host", &host).body(body).unwrap()).await;
        assert_eq!(answer.status(), expected, "{padding}");
    }
    assert_eq!(server.count(), 1);
}

#[tokio::test]
async fn bytes_after_an_upgrade_count_for_the_secrets_that_opened_it() {
    let (mut world, _server, host) = world_with(|binding| binding.budget = Budget { bytes: Some(1_000), ..Budget::default() }).await;
    for (authorization, most) in [(format!("Bearer {PLACEHOLDER}"), 1_000), ("none".to_owned(), 3_000)] {
        let stream = world.tls(&host, "api.example", &["http/1.1"]).await.unwrap();
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection.with_upgrades());
        let request = Request::get("/websocket").header("host", &host).header("upgrade", "websocket").header("connection", "Upgrade");
        let answer = sender.send_request(request.header("authorization", &authorization).body(full("")).unwrap()).await.unwrap();
        assert_eq!(answer.status(), StatusCode::SWITCHING_PROTOCOLS);
        let mut stream = TokioIo::new(hyper::upgrade::on(answer).await.unwrap());
        let mut passed = 0;
        let mut back = [0; 100];
        while passed < 3_000 && stream.write_all(&[7; 100]).await.is_ok() && stream.read_exact(&mut back).await.is_ok() {
            passed += 100;
        }
        drop(stream);
        let event = world.event().await;
        // The head of the handshake counts too.
        assert!(passed >= most / 2 && passed <= most && event.sent == passed, "{most}: {passed} {event:?}");
        assert_eq!((event.rule == "secret-budget", event.secrets.is_empty()), (most == 1_000, most != 1_000), "{event:?}");
    }
}

/// A server that says this, whatever it is asked.
async fn server_that_says(answer: String) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut asked = Vec::new();
            while !asked.ends_with(b"\r\n\r\n") {
                asked.push(stream.read_u8().await.unwrap());
            }
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    address
}

#[tokio::test]
async fn the_words_after_a_status_are_never_the_servers() {
    for (status, upgrade, says) in [
        (200, false, "HTTP/1.1 200 OK\r\n"),
        (403, true, "HTTP/1.1 403 Forbidden\r\n"),
        (101, true, "HTTP/1.1 101 Switching Protocols\r\n"),
    ] {
        let more = if status == 101 { "connection: upgrade\r\nupgrade: websocket" } else { "content-length: 0" };
        let address = server_that_says(format!("HTTP/1.1 {status} {VALUE}\r\n{more}\r\n\r\n")).await;
        let world = World::new(Arc::new(Outside::new()), rules(std::slice::from_ref(&address)), vec![binding(&address)]).await;
        let connection = if upgrade { "Connection: upgrade\r\nUpgrade: websocket" } else { "Connection: close" };
        let ask =
            format!("GET http://{address}/ HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {PLACEHOLDER}\r\n{connection}\r\n\r\n");
        let answer = world.raw(ask.as_bytes()).await;
        assert!(answer.starts_with(says) && !answer.contains(VALUE), "{answer}");
    }
}

#[tokio::test]
async fn a_live_stream_stays_live_while_it_is_searched() {
    let (world, _server, host) = world_with(|_| {}).await;
    let stream = world.tls(&host, "api.example", &["http/1.1"]).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let mut answer = sender.send_request(get(&host, "/live")).await.unwrap();
    let first = tokio::time::timeout(std::time::Duration::from_secs(20), answer.body_mut().frame()).await.expect("the event is held back");
    assert_eq!(first.unwrap().unwrap().into_data().unwrap(), "data: now\n\n");
    drop(answer);
    let answer = world.https(&host, get(&host, "/events")).await;
    assert_eq!(text(&answer).lines().filter(|line| !line.is_empty()).count(), 10_000);
}
