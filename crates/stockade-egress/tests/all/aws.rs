//! Requests that were signed with a made-up key reach AWS signed with the real one, as it will check them.

use std::sync::Arc;

use aws_lc_rs::{digest, hmac};
use http::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use stockade_egress::secrets::binding::{Form, Place, Places};
use stockade_egress::{Binding, Verdict};

use crate::world::{AnyBody, LOCAL, Outside, Seen, Server, World, binding, full, get, plain_server, rules, text, whole};

const KEYS: &str = r#"{"AccessKeyId":"ASIAREALREALREALREAL","SecretAccessKey":"REALreal/REALreal+REALreal/REALrealREAL1","Token":"IQoJREALrealREALreal/token+token==","Expiration":"2030-01-01T00:00:00Z"}"#;
const SECRET: &str = "REALreal/REALreal+REALreal/REALrealREAL1";
const TOKEN: &str = "IQoJREALrealREALreal/token+token==";
const MADE_UP: &str = "AKIAMADEUPMADEUPMADE";
const MOMENT: &str = "20260830T123600Z";

fn keys(host: &str) -> Binding {
    Binding { name: "AWS".into(), placeholder: MADE_UP.into(), form: Form::AwsKeys, ..binding(host) }
}

async fn world(change: impl FnOnce(&mut Binding)) -> (World, Server, String) {
    let outside = Arc::new(Outside::new());
    let server = outside.server(&LOCAL).await;
    let host = format!("api.example:{}", server.port);
    let allowed = rules(&[host.clone(), format!("other.example:{}", server.port)]);
    let mut binding = keys(&host);
    change(&mut binding);
    (World::with_secret(outside, allowed, vec![binding], Some(KEYS)).await, server, host)
}

fn authorization(service: &str, signed: &str) -> String {
    let nothing = "0".repeat(64);
    format!(
        "AWS4-HMAC-SHA256 Credential={MADE_UP}/20260830/eu-central-1/{service}/aws4_request, SignedHeaders={signed}, Signature={nothing}"
    )
}

fn signed(method: &str, target: &str, service: &str, names: &str, headers: &[(&str, &str)], body: &str) -> Request<AnyBody> {
    let request =
        Request::builder().method(method).uri(target).header("x-amz-date", MOMENT).header("x-amz-security-token", "made-up-token");
    let request = request.header("authorization", authorization(service, names));
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    request.body(full(body.to_owned())).unwrap()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

fn hash(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

/// Checks as AWS does, from what was received and the path and query it should make of that; written apart from what is tested.
fn verify(seen: &Seen, host: &str, path: &str, query: &str, payload: &str) {
    let header = seen.header("authorization");
    assert!(!seen.text().contains(MADE_UP) && !seen.text().contains("made-up-token"), "{}", seen.text());
    let (_, rest) = header.split_once("Credential=ASIAREALREALREALREAL/").unwrap();
    let (scope, rest) = rest.split_once(", SignedHeaders=").unwrap();
    let (names, signature) = rest.split_once(", Signature=").unwrap();
    assert_eq!(seen.header("x-amz-security-token"), TOKEN);
    assert!(names.split(';').any(|name| name == "x-amz-security-token") && names.split(';').is_sorted());
    let value = |name: &str| if name == "host" { host.to_owned() } else { seen.header(name).to_owned() };
    let lines: String = names
        .split(';')
        .flat_map(|name| {
            [
                name.to_owned(),
                ":".to_owned(),
                value(name),
                "
"
                .to_owned(),
            ]
        })
        .collect();
    let canonical = format!("{}\n{path}\n{query}\n{lines}\n{names}\n{payload}", seen.method);
    let text = format!("AWS4-HMAC-SHA256\n{MOMENT}\n{scope}\n{}", hash(canonical.as_bytes()));
    let mut key = format!("AWS4{SECRET}").into_bytes();
    for part in scope.split('/').chain([text.as_str()]) {
        key = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), part.as_bytes()).as_ref().to_vec();
    }
    assert_eq!(hex(&key), signature, "{canonical}");
}

#[tokio::test]
async fn requests_are_signed_anew_as_they_are_sent() {
    let (mut world, server, host) = world(|_| {}).await;
    let plain = "host;x-amz-date;x-amz-security-token";
    let with_hash = "host;range;x-amz-content-sha256;x-amz-date";
    let body = r#"{"TableName":"a"}"#;
    let sum = hash(b"hello object");
    let cases = [
        (
            signed("GET", "/a%20b/c:d/?b=2&a=%2f%20x&a=1&c", "sts", plain, &[("host", &host)], ""),
            "/a%2520b/c%3Ad/",
            "a=%2F%20x&a=1&b=2&c=",
            hash(b""),
        ),
        (
            signed(
                "POST",
                "/",
                "dynamodb",
                "content-type;host;x-amz-date;x-amz-target",
                &[("host", &host), ("content-type", "application/x-amz-json-1.0"), ("x-amz-target", "T.Get  x")],
                body,
            ),
            "/",
            "",
            hash(body.as_bytes()),
        ),
        (
            signed("PUT", "/bucket/k%20e+y/%C3%A9~", "s3", with_hash, &[("host", &host), ("x-amz-content-sha256", &sum)], "hello object"),
            "/bucket/k%20e%2By/%C3%A9~",
            "",
            sum.clone(),
        ),
        (
            signed("PUT", "/b/streamed", "s3", with_hash, &[("host", &host), ("x-amz-content-sha256", "UNSIGNED-PAYLOAD")], "abc"),
            "/b/streamed",
            "",
            "UNSIGNED-PAYLOAD".into(),
        ),
        // A part of an object is asked for as one, and what does not travel is not signed.
        (
            signed(
                "GET",
                "/b/../b//k",
                "s3",
                "connection;host;range;x-amz-content-sha256;x-amz-date",
                &[("host", &host), ("connection", "keep-alive"), ("range", "bytes=0-9"), ("x-amz-content-sha256", &hash(b""))],
                "",
            ),
            "/b/../b//k",
            "",
            hash(b""),
        ),
    ];
    for (index, (request, path, query, payload)) in cases.into_iter().enumerate() {
        let (target, sent) = (request.uri().to_string(), request.headers().clone());
        let answer = world.https(&host, request).await;
        assert_eq!(answer.status(), StatusCode::OK, "{index} {}", text(&answer));
        let seen = server.last();
        assert_eq!((seen.target.as_str(), seen.headers.get("range")), (target.as_str(), sent.get("range")));
        // Nothing that is searched as it is may be coded only on its way.
        assert_eq!(seen.header("accept-encoding"), "identity");
        let mut spaced = seen.clone();
        if index == 1 {
            assert_eq!(seen.header("x-amz-target"), "T.Get  x");
            spaced.headers.insert("x-amz-target", "T.Get x".parse().unwrap());
        }
        verify(&spaced, &host, path, query, &payload);
        let event = world.event().await;
        assert_eq!((event.verdict, event.secrets), (Verdict::Allow, vec!["AWS".into()]));
    }
    // Over HTTP/2, with a body of unknown length and one that is long.
    let mut sender = world.http2(&host).await;
    for body in [body.to_owned(), "x".repeat(300_000)] {
        let request = signed("POST", &format!("https://{host}/q?x=%7E"), "sqs", plain, &[], &body);
        assert_eq!(whole(sender.send_request(request).await.unwrap()).await.status(), StatusCode::OK);
        let seen = server.last();
        assert_eq!(seen.body, body);
        verify(&seen, &host, "/q", "x=~", &hash(body.as_bytes()));
    }
}

#[tokio::test]
async fn what_comes_back_holds_no_key() {
    let (mut world, server, host) = world(|_| {}).await;
    let request = signed("POST", "/echo", "sts", "host;x-amz-date", &[("host", &host)], &format!("{SECRET} {TOKEN}"));
    let answer = world.https(&host, request).await;
    assert_eq!(server.last().header("x-amz-security-token"), TOKEN);
    assert!(
        !text(&answer).contains(TOKEN) && !text(&answer).contains(SECRET) && text(&answer).contains("ASIAREALREALREALREAL"),
        "{}",
        text(&answer)
    );
    assert!(text(&answer).contains(&format!("x-amz-security-token: {MADE_UP}")));
    let event = format!("{:?}", world.event().await);
    assert!(!event.contains(TOKEN) && !event.contains(SECRET));
}

#[tokio::test]
async fn what_cannot_be_signed_is_refused_and_what_is_not_signed_stays() {
    let (mut world, server, host) = world(|binding| binding.places = Places { query: Place::Replace, body: Place::Replace }).await;
    let host_header = ("host", host.as_str());
    let content = "host;x-amz-content-sha256;x-amz-date";
    let with = |name: &'static str, value: String| {
        Request::get("/").header("host", &host).header("x-amz-date", MOMENT).header(name, value).body(full("")).unwrap()
    };
    for (request, expected) in [
        (
            signed("PUT", "/b/k", "s3", content, &[host_header, ("x-amz-content-sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD")], "x"),
            "AWS_REQUEST_CHECKSUM_CALCULATION",
        ),
        (
            get(&host, &format!("/b/k?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={MADE_UP}%2F20260830%2Fx%2Fs3%2Faws4_request")),
            "presigned",
        ),
        (with("authorization", authorization("s3", "host;x-amz-date").replace("HMAC", "ECDSA-P256")), "4A"),
        (with("authorization", format!("Bearer {MADE_UP}")), "version 4"),
        (signed("POST", "/", "sqs", "host;x-amz-date", &[host_header], &"x".repeat((8 << 20) + 1)), "8 MiB"),
    ] {
        let answer = world.https(&host, request).await;
        assert_eq!(answer.status(), StatusCode::FORBIDDEN);
        assert!(text(&answer).contains(expected) && text(&answer).contains("rule: aws-signature"), "{}", text(&answer));
        let event = world.event().await;
        assert_eq!((event.verdict, event.rule.as_str()), (Verdict::Deny, "aws-signature"));
    }
    let other = host.replace("api.", "other.");
    let answer = world.https(&other, signed("GET", "/", "s3", "host;x-amz-date", &[("host", &other)], "")).await;
    assert!(answer.status() == StatusCode::FORBIDDEN && text(&answer).contains(&format!("the secret `AWS` is not for `{other}`")));
    assert_eq!(server.count(), 0);
    // Elsewhere in a request to its own host the placeholder stays what it is, whatever the places say.
    let request = Request::post(format!("/echo?AccessKeyId={MADE_UP}")).header("host", &host).header("x-key", MADE_UP);
    assert_eq!(world.https(&host, request.body(full(MADE_UP)).unwrap()).await.status(), StatusCode::OK);
    let seen = server.last();
    assert_eq!(
        (seen.target.as_str(), seen.header("x-key"), &seen.body[..]),
        (format!("/echo?AccessKeyId={MADE_UP}").as_str(), MADE_UP, MADE_UP.as_bytes())
    );
    assert!(!seen.text().contains("SecretAccessKey"));
}

#[tokio::test]
async fn keys_do_not_travel_in_the_open_nor_with_an_upgrade() {
    let (world, server, host) = world(|_| {}).await;
    let stream = world.tls(&host, "api.example", &["http/1.1"]).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection.with_upgrades());
    let request = signed(
        "GET",
        "/websocket",
        "transcribe",
        "host;x-amz-date",
        &[("host", &host), ("upgrade", "websocket"), ("connection", "upgrade")],
        "",
    );
    assert_eq!(sender.send_request(request).await.unwrap().status(), StatusCode::FORBIDDEN);
    assert_eq!(server.count(), 0);

    let server = plain_server().await;
    let (host, address) = (format!("api.example:{}", server.port), format!("127.0.0.1:{}", server.port));
    for (bound, asked, expected) in [(&host, &host, "HTTP/1.1 403"), (&address, &address, "HTTP/1.1 200")] {
        let world = World::with_secret(Arc::new(Outside::new()), rules(std::slice::from_ref(&host)), vec![keys(bound)], Some(KEYS)).await;
        let authorization = authorization("s3", "host;x-amz-date");
        let text = format!(
            "GET http://{asked}/ HTTP/1.1\r\nHost: {asked}\r\nX-Amz-Date: {MOMENT}\r\nAuthorization: {authorization}\r\nConnection: close\r\n\r\n"
        );
        let answer = world.raw(text.as_bytes()).await;
        assert!(answer.starts_with(expected), "{answer}");
    }
    verify(&server.last(), &address, "/", "", &hash(b""));
}

#[tokio::test]
async fn a_value_that_is_no_keys_is_told() {
    let outside = Arc::new(Outside::new());
    let server = outside.server(&LOCAL).await;
    let host = format!("api.example:{}", server.port);
    let world =
        World::with_secret(outside, rules(std::slice::from_ref(&host)), vec![keys(&host)], Some("not JSON at all, just text")).await;
    let answer = world.https(&host, signed("GET", "/", "s3", "host;x-amz-date", &[("host", &host)], "")).await;
    assert!(answer.status() == StatusCode::BAD_GATEWAY && text(&answer).contains("not keys of AWS"), "{}", text(&answer));
    assert_eq!(server.count(), 0);
}
