//! What the tool asks, what it makes of answers, and what its callers see.

use std::net::{TcpListener, TcpStream};
use std::time::Instant;

use super::exchange::Arrived;
use super::*;

/// What comes of asking a desk that does this with the connection.
fn answered_by(desk: impl FnOnce(TcpStream) + Send + 'static, request: &[u8], patience: Duration) -> io::Result<(Answer, TcpStream)> {
    #[expect(clippy::disallowed_methods, reason = "a desk on loopback, for tests")]
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let served = std::thread::spawn(move || desk(listener.accept().unwrap().0));
    let answer = exchange(port, request, patience);
    served.join().unwrap();
    answer
}

#[test]
fn a_desk_that_does_not_read_or_trickles_or_never_ends_is_given_up() {
    let (patience, longer) = (Duration::from_millis(300), Duration::from_millis(900));
    let began = Instant::now();
    // More than any buffer of the kernel's takes.
    let error = answered_by(move |stream| (std::thread::sleep(longer), drop(stream)).0, &vec![b'x'; 64 << 20], patience).unwrap_err();
    assert!(matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut), "{error:?}");
    let trickle = |mut stream: TcpStream| {
        while stream.write_all(b"H").is_ok() && stream.flush().is_ok() {
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let error = answered_by(trickle, b"x", patience).unwrap_err();
    assert!(matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut), "{error:?}");
    let endless = |mut stream: TcpStream| while stream.write_all(&[b'H'; 4096]).is_ok() {};
    let error = answered_by(endless, b"x", Duration::from_mins(1)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
}

#[test]
fn a_connection_that_goes_on_is_given_without_limits_of_time() {
    let upgraded = |mut stream: TcpStream| {
        stream.read_exact(&mut [0]).unwrap();
        stream.write_all(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: stockade-ssh\r\n\r\nab").unwrap();
    };
    let (answer, mut stream) = answered_by(upgraded, b"x", Duration::from_secs(20)).unwrap();
    let mut rest = answer.body;
    stream.read_to_end(&mut rest).unwrap();
    assert_eq!((answer.status, rest.as_slice()), (101, &b"ab"[..]));
    assert_eq!((stream.read_timeout().unwrap(), stream.write_timeout().unwrap()), (None, None));
}

#[test]
fn a_tool_is_known_by_its_name_alone() {
    for (first, tool) in [
        (&b"stockade-credential"[..], Some(Tool::Credential)),
        (b"/run/stockade/bin/stockade-credential", Some(Tool::Credential)),
        (b"/x/docker-credential-stockade", Some(Tool::Docker)),
        (b"/run/stockade/bin/stockade-ssh", Some(Tool::Ssh)),
        (b"stockade-shim", None),
        (b"stockade-credential/", None),
        (b"xstockade-credential", None),
        (b"", None),
    ] {
        assert_eq!(Tool::named(first), tool, "{first:?}");
    }
}

#[test]
fn questions_are_checked() {
    let ask = |caller, name, action| Ok(Errand::Ask(Question { caller, name, action }));
    let of = |tool, arguments: &[&'static str], secret: Option<&'static str>| {
        let arguments: Vec<&[u8]> = arguments.iter().map(|argument| argument.as_bytes()).collect();
        Question::of(tool, &arguments, secret.map(str::as_bytes)).map_err(drop)
    };
    for (tool, arguments, secret, expected) in [
        (Tool::Credential, &["git", "A_1", "get"][..], None, ask(Caller::Git, "A_1", Some("get"))),
        (Tool::Credential, &["git", "A_1", "erase"], None, ask(Caller::Git, "A_1", Some("erase"))),
        (Tool::Credential, &["git", "A_1", "capability"], None, Ok(Errand::Print(""))),
        (Tool::Credential, &["git", "A/../B", "get"], None, Err(())),
        (Tool::Credential, &["git", "", "get"], None, Err(())),
        (Tool::Credential, &["git", "A"], None, Err(())),
        (Tool::Credential, &["kubernetes", "K"], None, ask(Caller::Kubernetes, "K", None)),
        (Tool::Credential, &["kubernetes", "K?x"], None, Err(())),
        (Tool::Credential, &["docker", "K", "get"], None, Err(())),
        (Tool::Credential, &[], None, Err(())),
        (Tool::Docker, &["get"], Some("D"), ask(Caller::Docker, "D", Some("get"))),
        (Tool::Docker, &["get"], Some("D D"), Err(())),
        (Tool::Docker, &["get"], None, Err(())),
        (Tool::Docker, &["get", "x"], Some("D"), Err(())),
        (Tool::Docker, &["get&x"], Some("D"), Err(())),
    ] {
        assert_eq!(of(tool, arguments, secret), expected, "{arguments:?}");
    }
    assert!(matches!(of(Tool::Docker, &["version"], None), Ok(Errand::Print(text)) if text.ends_with('\n')));
}

#[test]
fn a_desk_is_on_loopback_and_nowhere_else() {
    assert_eq!(Desk::parse(b"http://127.0.0.1:61080/ab-C_9"), Some(Desk { port: 61080, token: "ab-C_9" }));
    for text in [
        "https://127.0.0.1:61080/t",
        "http://127.0.0.2:61080/t",
        "http://localhost:61080/t",
        "http://127.0.0.1:61080",
        "http://127.0.0.1:61080/",
        "http://127.0.0.1/t",
        "http://127.0.0.1:0/t",
        "http://127.0.0.1:+80/t",
        "http://127.0.0.1:65536/t",
        "http://127.0.0.1:80@evil.example/t",
        "http://127.0.0.1:80/t/u",
        "http://127.0.0.1:80/t\r\nX: y",
    ] {
        assert_eq!(Desk::parse(text.as_bytes()), None, "{text}");
    }
}

#[test]
fn a_request_is_one_and_whole() {
    let desk = Desk { port: 8, token: "T" };
    let with = Question { caller: Caller::Git, name: "A", action: Some("get") }.request(&desk, b"host=x\n");
    assert_eq!(
        String::from_utf8(with).unwrap(),
        "POST /git/A?action=get HTTP/1.1\r\nHost: 127.0.0.1:8\r\nAuthorization: Bearer T\r\nContent-Length: 7\r\nConnection: close\r\n\r\nhost=x\n"
    );
    let without = Question { caller: Caller::Kubernetes, name: "K", action: None }.request(&desk, b"");
    assert!(without.starts_with(b"POST /kubernetes/K HTTP/1.1\r\n"));
}

#[test]
fn answers_are_read_whole_or_not_at_all() {
    let all = |status, body: &[u8]| Arrived::All(Answer { status, body: body.to_vec() });
    for (bytes, expected) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab", all(200, b"ab")),
        ("HTTP/1.1 200 OK\r\ncontent-LENGTH:2\r\n\r\nabc", all(200, b"ab")),
        ("HTTP/1.1 404 \r\nContent-Length: 0\r\n\r\n", all(404, b"")),
        ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", Arrived::More),
        ("HTTP/1.1 200 OK\r\n", Arrived::More),
        ("HTTP/1.1 200 OK\r\n\r\nab", Arrived::Perhaps(Answer { status: 200, body: b"ab".to_vec() })),
        ("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\nab", all(101, b"ab")),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", Arrived::Nonsense),
        ("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", Arrived::Nonsense),
        ("HTTP/1.1 +20 OK\r\n\r\n", Arrived::Nonsense),
        ("SSH-2.0\r\n\r\n", Arrived::Nonsense),
    ] {
        assert_eq!(Arrived::of(bytes.as_bytes()), expected, "{bytes:?}");
    }
}

#[test]
fn each_caller_is_told_by_its_own_protocol() {
    let end = |stdout: &str, stderr: &str, code| End { stdout: stdout.into(), stderr: stderr.into(), code };
    let told = |caller, status, body: &str| {
        Question { caller, name: "A", action: None }.told(Ok(Answer { status, body: body.as_bytes().to_vec() }))
    };
    for caller in [Caller::Git, Caller::Docker, Caller::Kubernetes] {
        assert_eq!(told(caller, 200, "yes"), end("yes", "", 0));
    }
    assert_eq!(told(Caller::Git, 404, "no"), end("", "", 0));
    assert_eq!(told(Caller::Docker, 404, "no"), end("no", "", 1));
    assert_eq!(told(Caller::Kubernetes, 403, "no"), end("", "no", 1));
    assert_eq!(told(Caller::Git, 502, "x"), end("", "stockade: the desk answered 502: x\n", 1));
    let lost = |caller| Question { caller, name: "A", action: None }.told(Err("gone".into()));
    assert_eq!(lost(Caller::Git), end("", "stockade: gone\n", 1));
    assert_eq!(lost(Caller::Docker), end("stockade: gone\n", "", 1));
}
