//! Part H of the exam: ways around an allowlist, each named for its number. Every test also shows that the same world lets the honest
//! request through, so that a refusal proves something.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use stockade_egress::rules::judge::{Asked, Denied, Judge};
use stockade_egress::rules::path::PathPattern;
use stockade_egress::rules::{HostRule, Limits, Methods, Mode, Paths, Tls};
use stockade_egress::{Kind, Rules, Subject, Verdict};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::world::{LOCAL, Outside, PLACEHOLDER, Server, World, binding, full, get, pattern, plain_server, read_all, rules, text, whole};

async fn world() -> (World, Server, String) {
    let outside = Arc::new(Outside::new());
    let server = outside.server(&LOCAL).await;
    let host = format!("api.example:{}", server.port);
    let world = World::new(outside, rules(std::slice::from_ref(&host)), vec![]).await;
    (world, server, host)
}

async fn plain_world() -> (World, Server, String) {
    let server = plain_server().await;
    let host = format!("api.example:{}", server.port);
    let world = World::new(Arc::new(Outside::new()), rules(std::slice::from_ref(&host)), vec![]).await;
    (world, server, host)
}

#[tokio::test]
async fn h02_an_unlisted_host_is_refused_with_the_narrowest_change() {
    let (mut world, server, _host) = world().await;
    let answer = world.tunnel("denied.example:443").await.unwrap_err();
    assert!(answer.starts_with("HTTP/1.1 403 Forbidden"), "{answer}");
    assert!(answer.contains("`denied.example:443` is not an allowed host"), "{answer}");
    assert!(answer.contains("to allow it: --allow-host denied.example\n"), "{answer}");
    let event = world.event().await;
    assert_eq!(
        (event.subject, event.verdict, event.host.as_str(), event.port),
        (Subject::Connection, Verdict::Deny, "denied.example", 443)
    );
    assert_eq!(event.rule, "allow-host");
    let answer = world.raw(b"GET http://denied.example/ HTTP/1.1\r\nHost: denied.example\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    assert_eq!(server.count(), 0);
}

#[tokio::test]
async fn h06_names_are_matched_by_label() {
    let (world, _server, host) = world().await;
    let port = host.split(':').nth(1).unwrap();
    for name in ["api.example.attacker.tld", "evil-api.example", "x.api.example", "example", "xapi.example"] {
        assert!(world.tunnel(&format!("{name}:{port}")).await.is_err(), "{name}");
    }
    assert!(world.tunnel(&host).await.is_ok());
}

#[tokio::test]
async fn h07_names_that_could_be_read_twice_are_refused() {
    let (world, server, host) = world().await;
    let port = server.port;
    for name in
        ["api.example.", "api%2eexample", "user@api.example", "api.example#x", "\u{430}pi.example", "api.example\0", "api.example:1"]
    {
        let answer = world.raw(format!("CONNECT {name}:{port} HTTP/1.1\r\nHost: {name}:{port}\r\n\r\n").as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 40"), "{name:?} {answer}");
    }
    assert!(world.tunnel(&host).await.is_ok());
}

#[tokio::test]
async fn a_user_before_a_host_is_refused_and_not_repeated() {
    let (mut world, server, host) = plain_world().await;
    for head in [format!("CONNECT u:pass-word@{host} HTTP/1.1"), format!("GET http://u:pass-word@{host}/ HTTP/1.1")] {
        let answer = world.raw(format!("{head}\r\nHost: {host}\r\nConnection: close\r\n\r\n").as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 403") && answer.contains("without a user's name"), "{answer}");
        let event = world.event().await;
        assert_eq!((event.rule.as_str(), event.host.as_str()), ("host-form", host.as_str()));
        assert!(!format!("{event:?} {answer}").contains("pass-word"));
    }
    assert_eq!(server.count(), 0);
}

#[tokio::test]
async fn h08_spellings_of_an_address_are_refused() {
    let (world, server, _host) = world().await;
    let port = server.port;
    for name in ["2130706433", "0177.0.0.1", "0x7f.0.0.1", "0x7f000001", "127.1", "[::ffff:127.0.0.1]", "[::1%25lo]", "[::1]", "127.0.0.2"]
    {
        assert!(world.tunnel(&format!("{name}:{port}")).await.is_err(), "{name}");
    }
    // The address that was granted, as it was granted.
    assert!(world.tunnel(&format!("127.0.0.1:{port}")).await.is_ok());
}

#[tokio::test]
async fn h09_an_allowed_name_that_leads_inside_is_refused() {
    let outside = Arc::new(Outside::new());
    let server = outside.server(&LOCAL).await;
    let host = format!("api.example:{}", server.port);
    // The name is allowed, the address is not granted.
    let mut world = World::new(outside, Rules::of_hosts([pattern(&host)]), vec![]).await;
    for address in ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "100.100.100.200", "0.0.0.0"]
    {
        world.names.0.lock().unwrap().insert("api.example".into(), vec![address.parse().unwrap()]);
        let answer = world.https(&host, get(&host, "/")).await;
        assert_eq!(answer.status(), StatusCode::FORBIDDEN, "{address}");
        assert!(text(&answer).contains("address"), "{address}");
        let event = world.event().await;
        assert_eq!((event.verdict, event.rule.as_str()), (Verdict::Deny, "address-class"), "{address}");
    }
    assert_eq!(*server.connections.lock().unwrap(), 0);
}

#[tokio::test]
async fn h10_connect_server_name_host_and_authority_must_agree() {
    let outside = Arc::new(Outside::new());
    let server = outside.server(&LOCAL).await;
    let (host, other) = (format!("api.example:{}", server.port), format!("other.example:{}", server.port));
    let mut world = World::new(outside, rules(&[host.clone(), other.clone()]), vec![]).await;
    // Server name of another host that is allowed, too.
    assert!(world.tls(&host, "other.example", &["http/1.1"]).await.is_err());
    let event = world.event().await;
    assert_eq!((event.subject, event.verdict, event.rule.as_str()), (Subject::Connection, Verdict::Deny, "one-host"));
    // No server name at all.
    assert!(world.tls(&host, "127.0.0.1", &["http/1.1"]).await.is_err());
    assert_eq!(world.event().await.rule, "tls-hello");
    // `Host` of another.
    let answer = world.https(&host, get(&other, "/")).await;
    assert_eq!(answer.status(), StatusCode::FORBIDDEN);
    assert_eq!(world.event().await.rule, "one-host");
    // The target's own authority of another.
    let request = Request::get(format!("https://{other}/")).header("host", &host).body(full("")).unwrap();
    assert_eq!(world.https(&host, request).await.status(), StatusCode::FORBIDDEN);
    assert_eq!(world.event().await.rule, "one-host");
    // HTTP/2: `:authority` of another, and `host` beside it.
    let mut sender = world.http2(&host).await;
    let request = Request::get(format!("https://{other}/")).body(full("")).unwrap();
    assert_eq!(sender.send_request(request).await.unwrap().status(), StatusCode::FORBIDDEN);
    assert_eq!(world.event().await.rule, "one-host");
    let request = Request::get(format!("https://{host}/")).header("host", &other).body(full("")).unwrap();
    assert_eq!(sender.send_request(request).await.unwrap().status(), StatusCode::FORBIDDEN);
    assert_eq!(world.event().await.rule, "one-host");
    // `CONNECT` whose `Host` differs.
    let answer = world.raw(format!("CONNECT {host} HTTP/1.1\r\nHost: {other}\r\n\r\n").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    assert_eq!(server.count(), 0);
    assert_eq!(text(&world.https(&host, get(&host, "/")).await), "hello");
}

#[tokio::test]
async fn h11_a_redirect_is_a_new_request() {
    let (world, _server, host) = world().await;
    let answer = world.https(&host, get(&host, "/redirect")).await;
    assert_eq!(answer.headers()["location"], "https://denied.example/");
    assert!(world.tunnel("denied.example:443").await.is_err());
}

#[tokio::test]
async fn h12_metadata_services_are_refused() {
    let (world, _server, _host) = world().await;
    for url in ["http://169.254.169.254/latest/", "http://metadata.google.internal/", "http://[fd00:ec2::254]/"] {
        let host = url.split('/').nth(2).unwrap();
        let answer = world.raw(format!("GET {url} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 403"), "{url} {answer}");
    }
}

#[tokio::test]
async fn h15_methods_and_paths_are_held_to() {
    let outside = Arc::new(Outside::new());
    let server = outside.server(&LOCAL).await;
    let host = format!("api.example:{}", server.port);
    let mut rules = rules(std::slice::from_ref(&host));
    rules.hosts[0] = HostRule {
        methods: Methods::Only(vec![Method::GET]),
        paths: Paths::Only(vec![PathPattern::parse("/repos/acme/**").unwrap()]),
        ..HostRule::allow(pattern(&host))
    };
    let mut world = World::new(outside, rules, vec![crate::world::binding(&host)]).await;
    for (method, path, status) in [
        (Method::GET, "/repos/acme/x", 200),
        (Method::DELETE, "/repos/acme/x", 403),
        (Method::GET, "/repos/other/x", 403),
        (Method::GET, "/repos/acme/%2e%2e/other", 403),
    ] {
        let request = Request::builder().method(method).uri(path).header("host", &host);
        let request = request.header("authorization", format!("Bearer {}", crate::world::PLACEHOLDER)).body(full("")).unwrap();
        assert_eq!(world.https(&host, request).await.status().as_u16(), status, "{path}");
        assert_eq!(world.event().await.verdict == Verdict::Allow, status == 200);
    }
    assert_eq!(server.count(), 1);
}

#[tokio::test]
async fn h16_smuggling_shapes_are_refused_and_answered() {
    let (mut world, server, host) = plain_world().await;
    for bad in [
        "POST http://H/ HTTP/1.1\r\nHost: H\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST http://H/ HTTP/1.1\r\nHost: H\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        "GET http://H/ HTTP/1.1\r\nHost: H\r\nX: a\r\n b\r\n\r\n",
        "GET http://H/ HTTP/1.1\r\nHost: H\nX: y\r\n\r\n",
        "GET http://H/ HTTP/1.1\r\nHost: H\r\nHost: other.example\r\n\r\n",
        "GET http://H/ HTTP/1.1\r\nHost: H\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        let answer = world.raw(bad.replace("//H/", &format!("//{host}/")).replace("Host: H", &format!("Host: {host}")).as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{bad:?} {answer}");
        let event = world.event().await;
        assert_eq!((event.verdict, event.rule.as_str()), (Verdict::Deny, "request-form"), "{bad:?}");
    }
    // As the second request of a connection, too.
    let good = format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let answer = world.raw(format!("{good}GET http://{host}/ HTTP/1.1\nHost: {host}\r\n\r\n").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("HTTP/1.1 400"), "{answer}");
    // Target and `Host` that differ.
    let answer = world.raw(format!("GET http://{host}/ HTTP/1.1\r\nHost: other.example\r\n\r\n").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    assert_eq!(server.count(), 1);
}

#[tokio::test]
async fn h20_uploads_end_at_the_limit() {
    let (outside, server) = (Arc::new(Outside::new()), plain_server().await);
    let host = format!("api.example:{}", server.port);
    let limits = Limits { body_bytes: 100_000, sent_bytes: 170_000, ..Limits::default() };
    let mut world = World::new(outside, Rules { limits, ..rules(std::slice::from_ref(&host)) }, vec![]).await;
    let upload = |size: usize| {
        let head = format!("POST http://{host}/count HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {size}\r\n\r\n");
        [head.into_bytes(), vec![b'x'; size]].concat()
    };
    assert!(world.raw(&upload(90_000)).await.ends_with("90000"));
    assert_eq!(world.event().await.sent, 90_000);
    let answer = world.raw(&upload(100_001)).await;
    assert!(answer.starts_with("HTTP/1.1 429"), "{answer}");
    let event = world.event().await;
    assert_eq!((event.verdict, event.rule.as_str()), (Verdict::Deny, "limit"));
    // The whole of the sandbox's share is used up now.
    let answer = world.raw(&upload(90_000)).await;
    assert!(answer.starts_with("HTTP/1.1 429"), "{answer}");
}

#[tokio::test]
async fn other_protocols_are_refused() {
    let (mut world, server, host) = world().await;
    let mut tunnel = world.tunnel(&host).await.unwrap();
    tunnel.write_all(b"\x00\x01SSH-2.0-x\r\n").await.unwrap();
    assert_eq!(read_all(&mut tunnel).await, "");
    assert_eq!(world.event().await.rule, "protocol");
    // SSH, which looks like the beginning of HTTP.
    let mut tunnel = world.tunnel(&host).await.unwrap();
    tunnel.write_all(b"SSH-2.0-OpenSSH_9.6\r\n").await.unwrap();
    assert_eq!(read_all(&mut tunnel).await, "");
    let event = world.event().await;
    assert_eq!((event.rule.as_str(), event.change), ("protocol", Some(format!("--secret NAME@{host}"))));
    assert!(event.reason.is_some_and(|reason| reason.contains("whose `delivery` is `ssh`")));
    // TLS to the proxy itself.
    let mut stream = world.connect(Kind::Proxy);
    stream.write_all(&[0x16, 3, 1]).await.unwrap();
    assert_eq!(read_all(&mut stream).await, "");
    assert_eq!(world.event().await.rule, "proxy");
    assert_eq!(*server.connections.lock().unwrap(), 0);
    // A method that only begins like it goes.
    let mut tunnel = world.tunnel(&host).await.unwrap();
    tunnel.write_all(b"S").await.unwrap();
    tokio::task::yield_now().await;
    tunnel.write_all(format!("EARCH / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").as_bytes()).await.unwrap();
    read_all(&mut tunnel).await;
    assert_eq!(world.event().await.method.as_deref(), Some("SEARCH"));
}

#[tokio::test]
async fn who_waits_for_the_server_to_speak_first_is_told_so_soon() {
    let server = plain_server().await;
    let host = format!("api.example:{}", server.port);
    let mut allowed = rules(std::slice::from_ref(&host));
    allowed.limits.idle = std::time::Duration::from_millis(50);
    let mut world = World::new(Arc::new(Outside::new()), allowed, vec![]).await;
    for begin in ["", "SSH-"] {
        let mut tunnel = world.tunnel(&host).await.unwrap();
        tunnel.write_all(begin.as_bytes()).await.unwrap();
        assert_eq!(read_all(&mut tunnel).await, "");
        let event = world.event().await;
        assert_eq!((event.verdict, event.rule.as_str(), event.port), (Verdict::Deny, "protocol", server.port));
        assert!(event.reason.is_some_and(|reason| reason.contains("clients speak first")));
    }
    // One that is opened and closed again did nothing.
    drop(world.tunnel(&host).await.unwrap());
    let mut tunnel = world.tunnel(&host).await.unwrap();
    tunnel.write_all(b"\0").await.unwrap();
    assert!(world.event().await.reason.is_some_and(|reason| reason.starts_with("only HTTP and TLS")));
}

#[tokio::test]
async fn a_server_that_cannot_be_verified_is_not_reached() {
    let outside = Arc::new(Outside::new());
    let server = Outside::new().server(&LOCAL).await;
    let host = format!("api.example:{}", server.port);
    let mut world = World::new(outside, rules(std::slice::from_ref(&host)), vec![]).await;
    let answer = world.https(&host, get(&host, "/")).await;
    assert_eq!(answer.status(), StatusCode::BAD_GATEWAY);
    assert!(text(&answer).contains("certificate"), "{}", text(&answer));
    assert_eq!(world.event().await.status, Some(502));
    assert_eq!(server.count(), 0);
}

#[tokio::test]
async fn a_sandbox_has_only_so_many_connections_and_none_after_its_end() {
    let server = plain_server().await;
    let host = format!("api.example:{}", server.port);
    let limits = Limits { connections: 1, ..Limits::default() };
    let mut world = World::new(Arc::new(Outside::new()), Rules { limits, ..rules(std::slice::from_ref(&host)) }, vec![]).await;
    let mut first = world.tunnel(&host).await.unwrap();
    let mut second = world.connect(Kind::Proxy);
    assert_eq!(read_all(&mut second).await, "");
    assert_eq!(world.event().await.rule, "limit");
    first.write_all(format!("GET / HTTP/1.1\r\nhost: {host}\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = [0; 15];
    first.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200 OK");
    let World { egress, guest, .. } = world;
    drop(guest);
    // What was open ends, and nothing new begins.
    read_all(&mut first).await;
    drop(egress);
}

#[tokio::test]
async fn two_sandboxes_have_their_own_rules() {
    let (world, server, host) = plain_world().await;
    let id = stockade_core::id::SandboxId::from_parts(2_000, 8);
    let other = world.egress.add(id.clone(), Rules::default(), vec![]).unwrap();
    assert!(world.egress.add(id.clone(), Rules::default(), vec![]).is_err());
    let (mut inside, outside) = tokio::net::UnixStream::pair().unwrap();
    let (egress, origin) = (world.egress.clone(), stockade_egress::Origin { sandbox: id, kind: Kind::Proxy });
    tokio::spawn(async move { egress.serve(stockade_egress::Connection { stream: outside, origin }).await });
    inside.write_all(format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").as_bytes()).await.unwrap();
    assert!(read_all(&mut inside).await.starts_with("HTTP/1.1 403"));
    assert_eq!((server.count(), other.id().as_str().len()), (0, 16));
}

#[tokio::test]
async fn learning_lets_pass_and_tells_what_is_missing() {
    let outside = Arc::new(Outside::new());
    let server = outside.server(&LOCAL).await;
    let host = format!("api.example:{}", server.port);
    let mut rules = rules(&[format!("cdn.example:{}", server.port)]);
    rules.mode = Mode::Learn;
    let mut world = World::new(outside, rules, vec![]).await;
    assert_eq!(text(&world.https(&host, get(&host, "/")).await), "hello");
    let event = world.event().await;
    assert_eq!((event.verdict, event.rule.as_str()), (Verdict::Learn, "allow-host"));
    let missing: Vec<String> = world.guest.learnt().missing().iter().map(ToString::to_string).collect();
    assert_eq!(missing, [host]);
    // What protects others is not learnt.
    world.names.0.lock().unwrap().insert("inside.example".into(), vec!["10.0.0.1".parse().unwrap()]);
    let answer = world.https("inside.example:443", get("inside.example", "/")).await;
    assert_eq!(answer.status(), StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn nothing_goes_out_when_nobody_keeps_the_record() {
    let (mut world, server, host) = plain_world().await;
    world.stop_listening();
    let answer = world.raw(format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert_eq!(server.count(), 0);
}

#[tokio::test]
async fn the_last_of_many_pipelined_requests_is_judged_as_the_first() {
    let (world, server, host) = world().await;
    let stream = world.tls(&host, "api.example", &["http/1.1"]).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    for _ in 0..20 {
        assert_eq!(whole(sender.send_request(get(&host, "/")).await.unwrap()).await.body(), &Bytes::from("hello"));
        sender.ready().await.unwrap();
    }
    assert_eq!(whole(sender.send_request(get("denied.example", "/")).await.unwrap()).await.status(), StatusCode::FORBIDDEN);
    assert_eq!(server.count(), 20);
}

#[tokio::test]
async fn servers_of_tools_are_reached_over_https_only_unless_an_address_was_granted() {
    let (mut world, server, host) = plain_world().await;
    let ask = |host: &str, head: &str| {
        format!("{} HTTP/1.1\r\nHost: {host}\r\n{}Connection: close\r\n\r\n", head.split('|').next().unwrap(), {
            head.split('|').skip(1).flat_map(|line| [line, "\r\n"]).collect::<String>()
        })
    };
    let spoken = [
        "POST http://HOST/mcp|Accept: application/json, text/event-stream|Content-Length: 0",
        "POST http://HOST/mcp|Accept: text/event-stream;q=0.5|accept: Application/JSON|Content-Length: 0",
        "GET http://HOST/mcp|Accept: text/event-stream|Mcp-Session-Id: 7",
        "DELETE http://HOST/mcp|mcp-session-id: 7",
        "POST http://HOST/mcp|MCP-Protocol-Version: 2026-07-28|Content-Length: 0",
        "POST http://HOST/mcp|Mcp-Method: tools/call|Content-Length: 0",
    ];
    for head in spoken {
        let answer = world.raw(ask(&host, &head.replace("HOST", &host)).as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 403") && answer.contains("over HTTPS only"), "{head}: {answer}");
        assert_eq!(world.event().await.rule, "mcp-plain-http", "{head}");
    }
    assert_eq!(server.count(), 0);
    // What is no server of tools passes as before, and so does an address that a person wrote out.
    let address = host.replace("api.example", "127.0.0.1");
    for (host, head) in [
        (&host, "POST http://HOST/|Accept: application/json|Content-Length: 0"),
        (&host, "GET http://HOST/|Accept: application/json, text/event-stream"),
        (&address, "POST http://HOST/|Accept: application/json, text/event-stream|Content-Length: 0"),
    ] {
        let answer = world.raw(ask(host, &head.replace("HOST", host)).as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{head}: {answer}");
    }
}

#[tokio::test]
async fn servers_of_tools_over_https_are_reached() {
    let (world, server, host) = world().await;
    let request =
        Request::post("/").header("host", &host).header("accept", "application/json, text/event-stream").header("mcp-session-id", "7");
    assert_eq!(world.https(&host, request.body(full("")).unwrap()).await.status(), StatusCode::OK);
    assert_eq!(server.last().header("mcp-session-id"), "7");
}

/// Rules that are kept elsewhere.
#[derive(Debug)]
struct Elsewhere;

impl Judge for Elsewhere {
    fn judge(&self, asked: &Asked<'_>) -> Result<(), Denied> {
        let denied = asked.method == "DELETE" || asked.path == "/kept" || asked.secret == Some("TOKEN") || !asked.tls;
        if denied { Err(Denied { rule: "elsewhere".into(), why: format!("not {} {}", asked.method, asked.path) }) } else { Ok(()) }
    }
}

#[tokio::test]
async fn who_else_has_rules_is_asked_about_every_request() {
    let outside = Arc::new(Outside::new());
    let server = outside.server(&LOCAL).await;
    let host = format!("api.example:{}", server.port);
    let mut rules = rules(std::slice::from_ref(&host));
    // Though it says that connections are passed on, they are opened: nobody could be asked about what is not seen.
    rules.hosts.iter_mut().for_each(|rule| rule.tls = Tls::Pass);
    rules.judge = Some(Arc::new(Elsewhere));
    let mut world = World::new(outside, rules, vec![binding(&host)]).await;
    let ask = |method: Method, path: &str| Request::builder().method(method).uri(path).header("host", &host);
    assert_eq!(text(&world.https(&host, ask(Method::GET, "/").body(full("")).unwrap()).await), "hello");
    let _ = world.event().await;
    let with_token = ask(Method::GET, "/").header("authorization", format!("Bearer {PLACEHOLDER}"));
    for (request, rule) in [
        (ask(Method::DELETE, "/"), "elsewhere"),
        (ask(Method::GET, "/kept"), "elsewhere"),
        (ask(Method::GET, "/%6bept"), "elsewhere"),
        (ask(Method::GET, "/a/../kept"), "request-path"),
        (with_token, "elsewhere"),
    ] {
        let answer = world.https(&host, request.body(full("")).unwrap()).await;
        let event = world.event().await;
        assert_eq!((answer.status(), event.verdict, event.rule.as_str()), (StatusCode::FORBIDDEN, Verdict::Deny, rule));
    }
    assert_eq!(server.count(), 1);
}
