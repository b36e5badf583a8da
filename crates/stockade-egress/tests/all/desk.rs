//! The desk: placeholders for whoever shows the token, metadata for whoever asks, and a value at one place only.

use std::sync::Arc;

use http::{Request, StatusCode};
use stockade_core::id::SandboxId;
use stockade_egress::desk::{Entry, Kind as Asker};
use stockade_egress::secrets::binding::{Budget, Form};
use stockade_egress::{Binding, Desk, Kind, Rules, Subject, Verdict};
use tokio::io::AsyncWriteExt as _;

use crate::transparent::ask as look_up;
use crate::world::{LOCAL, Outside, PLACEHOLDER, VALUE, World, binding, full, read_all, rules, text};

const TOKEN: &str = "desk-token-desk-token-desk-token-0";
const AWS: &str = "placeholder-of-aws-keys";

fn entries() -> Vec<Entry> {
    let gcp =
        Asker::GcpMetadata { project: Some("acme-1".into()), email: "a@acme.example".into(), scopes: vec!["https://scope.example".into()] };
    let user = || "me".to_owned();
    let kinds = [Asker::Git { user: user() }, Asker::Docker { user: user() }, Asker::Kubernetes, gcp];
    kinds.into_iter().map(|kind| Entry { binding: 0, kind }).chain([Entry { binding: 1, kind: Asker::AwsEndpoint }]).collect()
}

fn bindings(uses: Option<u64>) -> Vec<Binding> {
    let keys =
        Binding { name: "KEYS".into(), placeholder: AWS.into(), budget: Budget { uses, ..Budget::default() }, ..binding("aws.example") };
    vec![binding("api.example"), keys]
}

async fn world_of(rules: Rules, entries: Vec<Entry>, uses: Option<u64>) -> World {
    World::with_desk(Arc::new(Outside::new()), rules, bindings(uses), Some(VALUE), Some(Desk { token: TOKEN.into(), entries })).await
}

async fn world() -> World {
    world_of(rules(&[]), entries(), None).await
}

fn ask(line: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("{line} HTTP/1.1\r\nHost: 127.0.0.1:3128\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}").into_bytes()
}

fn bearer() -> String {
    format!("Authorization: Bearer {TOKEN}\r\n")
}

fn status(answer: &str) -> &str {
    answer.get(9..12).unwrap_or_default()
}

#[tokio::test]
async fn tools_get_the_placeholder_in_their_own_words() {
    let mut world = world().await;
    for (line, body, expected) in [
        ("POST /git/TOKEN?action=get", "protocol=https\nhost=api.example\n", format!("username=me\npassword={PLACEHOLDER}\n")),
        ("POST /docker/TOKEN?action=get", "https://api.example/v2/", format!(r#""Secret":"{PLACEHOLDER}""#)),
        ("POST /docker/TOKEN?action=list", "", r#"{"https://api.example":"me"}"#.to_owned()),
        ("POST /kubernetes/TOKEN", "", format!(r#""status":{{"token":"{PLACEHOLDER}"}}"#)),
    ] {
        let answer = world.raw(&ask(line, &bearer(), body)).await;
        assert!(status(&answer) == "200" && answer.contains(&expected) && !answer.contains(VALUE), "{line}: {answer}");
        assert!(answer.contains("cache-control: no-store"));
        for wrong in ["", "Authorization: Bearer wrong\r\n", &format!("Authorization: {TOKEN}\r\n"), &format!("{0}{0}", bearer())] {
            let answer = world.raw(&ask(line, wrong, body)).await;
            assert!(status(&answer) == "403" && !answer.contains(PLACEHOLDER) && !answer.contains(VALUE), "{wrong}: {answer}");
            let event = world.event().await;
            assert_eq!((event.verdict, event.rule.as_str(), event.subject), (Verdict::Deny, "desk", Subject::Request));
        }
        assert_eq!(status(&world.raw(&ask(&line.replace("POST", "GET"), &bearer(), body)).await), "405");
    }
    for (line, body, expected) in [
        ("POST /git/TOKEN?action=get", "protocol=https\nhost=evil.example\n", "404"),
        ("POST /git/TOKEN?action=store", "protocol=https\nhost=api.example\npassword=x\n", "204"),
        ("POST /git/OTHER?action=get", "protocol=https\nhost=api.example\n", "404"),
        ("POST /git/KEYS?action=get", "protocol=https\nhost=aws.example\n", "404"),
        ("POST /git/TOKEN/x?action=get", "", "404"),
        ("POST /git/%54OKEN?action=get", "", "404"),
        ("POST /docker/TOKEN?action=erase", "x", "403"),
        ("POST /other", "", "404"),
    ] {
        let answer = world.raw(&ask(line, &bearer(), body)).await;
        assert!(status(&answer) == expected && !answer.contains(PLACEHOLDER), "{line}: {answer}");
    }
    assert_eq!(status(&world.raw(&ask("POST /kubernetes/TOKEN", &bearer(), &"x".repeat(16_385))).await), "413");
    let chunked = format!(
        "POST /kubernetes/TOKEN HTTP/1.1\r\nHost: localhost:1\r\n{}Transfer-Encoding: chunked\r\n\r\n4001\r\n{}\r\n0\r\n\r\n",
        bearer(),
        "x".repeat(0x4001)
    );
    assert_eq!(status(&world.raw(chunked.as_bytes()).await), "413");
    world.no_event();
}

#[tokio::test]
async fn keys_of_amazon_are_handed_out_with_the_token_counted_and_recorded() {
    let mut world = world_of(rules(&[]), entries(), Some(2)).await;
    let shown = format!("Authorization: {TOKEN}\r\n");
    for wrong in [
        String::new(),
        bearer(),
        format!("Authorization: {}\r\n", &TOKEN[1..]),
        format!("{shown}{shown}"),
        format!("Authorization: {TOKEN}x\r\n"),
    ] {
        let answer = world.raw(&ask("GET /aws/KEYS", &wrong, "")).await;
        assert!(status(&answer) == "403" && !answer.contains(VALUE), "{wrong}: {answer}");
        let event = world.event().await;
        assert_eq!((event.verdict, event.host.as_str(), event.path.as_deref()), (Verdict::Deny, "127.0.0.1", Some("/aws/KEYS")));
    }
    for line in ["GET /aws/TOKEN", "GET /aws/", "GET /aws/KEYS/", "GET /aws/keys", "GET /aws//KEYS", "GET /./aws/KEYS", "GET /aws"] {
        let answer = world.raw(&ask(line, &shown, "")).await;
        assert!(["404", "403"].contains(&status(&answer)) && !answer.contains(VALUE), "{line}: {answer}");
    }
    assert_eq!(status(&world.raw(&ask("POST /aws/KEYS", &shown, "")).await), "405");
    world.no_event();
    for _ in 0..2 {
        let answer = world.raw(&ask("GET /aws/KEYS", &shown, "")).await;
        assert!(status(&answer) == "200" && answer.ends_with(VALUE), "{answer}");
        assert!(answer.contains("content-type: application/json") && answer.contains("cache-control: no-store"));
        let event = world.event().await;
        assert_eq!((event.verdict, event.host.as_str(), event.path.as_deref()), (Verdict::Allow, "127.0.0.1", Some("/aws/KEYS")));
        assert_eq!((event.secrets.as_slice(), event.status, event.port), (&["KEYS".into()][..], Some(200), 3128));
        assert!(!format!("{event:?}").contains(VALUE) && !format!("{event:?}").contains(TOKEN));
    }
    let answer = world.raw(&ask("GET /aws/KEYS", &shown, "")).await;
    assert!(status(&answer) == "403" && answer.contains("has no uses left") && !answer.contains(VALUE), "{answer}");
    let event = world.event().await;
    assert_eq!((event.verdict, event.rule.as_str(), event.secrets.as_slice()), (Verdict::Deny, "secret-budget", &["KEYS".into()][..]));
    world.stop_listening();
    assert_eq!(status(&world.raw(&ask("GET /aws/KEYS", &shown, "")).await), "503");
}

#[tokio::test]
async fn what_was_handed_out_is_not_looked_for_and_its_placeholder_goes_nowhere() {
    let outside = Arc::new(Outside::new());
    let server = outside.server(&LOCAL).await;
    let host = format!("api.example:{}", server.port);
    let desk = Desk { token: TOKEN.into(), entries: vec![Entry { binding: 0, kind: Asker::AwsEndpoint }] };
    let keys = Binding { form: Form::AwsKeys, ..binding(&host) };
    let world = World::with_desk(outside, rules(std::slice::from_ref(&host)), vec![keys], Some(VALUE), Some(desk)).await;
    // A program that has the keys signs itself; what it signed must arrive as it was.
    let request = Request::get("/echo").header("host", &host).header("range", "bytes=0-9").header("x-signed", VALUE);
    let answer = world.https(&host, request.body(full("")).unwrap()).await;
    assert_eq!((server.last().header("range"), server.last().header("x-signed")), ("bytes=0-9", VALUE));
    assert!(text(&answer).contains(VALUE));
    let request = Request::get("/").header("host", &host).header("x-key", PLACEHOLDER);
    assert_eq!(world.https(&host, request.body(full("")).unwrap()).await.status(), StatusCode::FORBIDDEN);
    assert_eq!(server.count(), 1);
}

#[tokio::test]
async fn libraries_of_google_find_their_metadata_server() {
    let mut world = world().await;
    let flavor = "Metadata-Flavor: Google\r\n";
    let token = "/computeMetadata/v1/instance/service-accounts/default/token";
    let answer = world.raw(&ask(&format!("GET {token}"), flavor, "")).await;
    assert!(answer.contains(&format!(r#"{{"access_token":"{PLACEHOLDER}","expires_in":3599,"token_type":"Bearer"}}"#)), "{answer}");
    assert!(answer.contains("metadata-flavor: Google\r\n") && answer.contains("server: Metadata Server for VM\r\n"));
    for (line, headers, expected) in [
        ("GET /".to_owned(), "", "200"),
        (format!("GET {token}"), "", "403"),
        (format!("GET {token}"), "Metadata-Flavor: google\r\n", "403"),
        (format!("GET {token}"), "Metadata-Flavor: Google\r\nX-Forwarded-For: 10.0.0.1\r\n", "403"),
        (format!("POST {token}"), flavor, "405"),
        ("GET /computeMetadata/v1/instance/zone".to_owned(), flavor, "404"),
        ("PUT /latest/api/token".to_owned(), "", "404"),
    ] {
        let answer = world.raw(&ask(&line, headers, "")).await;
        assert!(status(&answer) == expected && answer.contains("metadata-flavor: Google") && !answer.contains(VALUE), "{line}: {answer}");
        assert!(!answer.contains(PLACEHOLDER));
    }
    // Through a proxy that is taken for every host, and without one.
    for host in ["metadata.google.internal", "169.254.169.254", "169.254.169.254:80"] {
        let through = format!("GET http://{host}{token} HTTP/1.1\r\nHost: {host}\r\n{flavor}Connection: close\r\n\r\n");
        assert!(world.raw(through.as_bytes()).await.contains(PLACEHOLDER), "{host}");
        let mut stream = world.connect(Kind::Transparent("169.254.169.254:80".parse().unwrap()));
        let direct = format!("GET {token} HTTP/1.1\r\nHost: {host}\r\n{flavor}Connection: close\r\n\r\n");
        stream.write_all(direct.as_bytes()).await.unwrap();
        assert!(read_all(&mut stream).await.contains(PLACEHOLDER), "{host}");
    }
    world.no_event();
    let mut resolver = world.connect(Kind::Dns);
    assert_eq!(look_up(&mut resolver, "metadata.google.internal.").await.1, Some("169.254.169.254".parse().unwrap()));
    // The metadata server's address serves nothing else of the desk.
    let mut stream = world.connect(Kind::Transparent("169.254.169.254:80".parse().unwrap()));
    stream.write_all(&ask("GET /aws/KEYS", &format!("Authorization: {TOKEN}\r\n"), "")).await.unwrap();
    assert_eq!(status(&read_all(&mut stream).await), "404");
    let aws = format!(
        "GET http://169.254.169.254/aws/KEYS HTTP/1.1\r\nHost: 169.254.169.254\r\nAuthorization: {TOKEN}\r\n{flavor}Connection: close\r\n\r\n"
    );
    let answer = world.raw(aws.as_bytes()).await;
    assert!(status(&answer) == "404" && !answer.contains(VALUE), "{answer}");
    world.no_event();
    for other in ["169.254.169.254:8080", "169.254.169.253:80"] {
        let mut stream = world.connect(Kind::Transparent(other.parse().unwrap()));
        stream.write_all(&ask(&format!("GET {token}"), flavor, "")).await.unwrap();
        assert_eq!(status(&read_all(&mut stream).await), "403", "{other}");
        assert_eq!(world.event().await.verdict, Verdict::Deny);
    }
}

#[tokio::test]
async fn names_that_are_not_the_desks_are_not_answered_and_nothing_loops() {
    let mut world = world().await;
    let token = bearer();
    for (request, expected) in [
        (format!("POST /kubernetes/TOKEN HTTP/1.1\r\nHost: api.example\r\n{token}Connection: close\r\n\r\n"), "501"),
        (format!("POST /kubernetes/TOKEN HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: api.example\r\n{token}\r\n"), "400"),
        (format!("POST /kubernetes/TOKEN HTTP/1.1\r\n{token}\r\n"), "400"),
        (format!("POST /kubernetes/TOKEN HTTP/1.0\r\n{token}\r\n"), "400"),
        (
            format!("POST http://127.0.0.1:3128/kubernetes/TOKEN HTTP/1.1\r\nHost: 127.0.0.1:3128\r\n{token}Connection: close\r\n\r\n"),
            "403",
        ),
        (format!("POST http://localhost/kubernetes/TOKEN HTTP/1.1\r\nHost: localhost\r\n{token}Connection: close\r\n\r\n"), "403"),
        ("GET http://metadata.google.internal/ HTTP/1.1\r\nHost: 169.254.169.254\r\nConnection: close\r\n\r\n".to_owned(), "400"),
        ("GET https://metadata.google.internal/ HTTP/1.1\r\nHost: metadata.google.internal\r\nConnection: close\r\n\r\n".to_owned(), "403"),
        ("CONNECT 127.0.0.1:3128 HTTP/1.1\r\nHost: 127.0.0.1:3128\r\n\r\n".to_owned(), "403"),
        (
            format!(
                "POST /kubernetes/TOKEN HTTP/1.1\r\nHost: 127.0.0.1\r\n{token}Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
            ),
            "400",
        ),
    ] {
        let answer = world.raw(request.as_bytes()).await;
        assert!(status(&answer) == expected && !answer.contains(PLACEHOLDER) && !answer.contains(VALUE), "{request}: {answer}");
        assert_eq!(world.event().await.verdict, Verdict::Deny, "{request}");
    }
    // One connection may ask here and there; an upgrade ends it.
    let (one, other) = (
        "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        "GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
    );
    let answer = world.raw(format!("{one}{other}").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("`evil.example:80` is not an allowed host"), "{answer}");
    let answer = world.raw(format!("GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n{one}").as_bytes()).await;
    assert!(answer.contains("connection: close") && answer.matches("HTTP/1.1").count() == 1, "{answer}");
}

#[tokio::test]
async fn without_a_desk_or_its_entries_all_is_as_before() {
    let mut world = World::new(Arc::new(Outside::new()), rules(&[]), bindings(None)).await;
    let answer = world.raw(&ask("GET /aws/KEYS", &format!("Authorization: {TOKEN}\r\n"), "")).await;
    assert!(status(&answer) == "501" && !answer.contains(VALUE), "{answer}");
    assert_eq!(world.event().await.rule, "proxy");
    let git = vec![Entry { binding: 0, kind: Asker::Git { user: "me".into() } }];
    for mut world in [world, world_of(rules(&[]), git, None).await] {
        let mut stream = world.connect(Kind::Transparent("169.254.169.254:80".parse().unwrap()));
        stream.write_all(&ask("GET /", "Metadata-Flavor: Google\r\n", "")).await.unwrap();
        assert_eq!(status(&read_all(&mut stream).await), "403");
        assert_eq!(world.event().await.verdict, Verdict::Deny);
        let answer = world.raw(b"GET http://169.254.169.254/ HTTP/1.1\r\nHost: 169.254.169.254\r\nConnection: close\r\n\r\n").await;
        assert_eq!(status(&answer), "403");
        assert_eq!(world.event().await.verdict, Verdict::Deny);
    }
}

#[tokio::test]
async fn a_desk_that_cannot_be_served_is_not_set_up() {
    let world = world().await;
    let add = |token: &str, entry: Entry| {
        let desk = Desk { token: token.into(), entries: vec![entry] };
        world.egress.add_with_desk(SandboxId::from_parts(3_000, 9), Rules::default(), bindings(None), desk).map(drop)
    };
    assert!(add(TOKEN, Entry { binding: 0, kind: Asker::Kubernetes }).is_ok());
    assert!(add("short", Entry { binding: 0, kind: Asker::Kubernetes }).is_err());
    assert!(add(TOKEN, Entry { binding: 2, kind: Asker::Kubernetes }).is_err());
    assert!(add(TOKEN, Entry { binding: 0, kind: Asker::Git { user: "a\nb".into() } }).is_err());
    let gcp = Asker::GcpMetadata { project: None, email: "a/b".into(), scopes: vec![] };
    assert!(add(TOKEN, Entry { binding: 0, kind: gcp }).is_err());
    assert!(!format!("{:?}", Desk { token: TOKEN.into(), entries: vec![] }).contains(TOKEN));
}
