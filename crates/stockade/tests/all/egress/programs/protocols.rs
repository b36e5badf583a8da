//! Protocols over the way out: HTTP/1.1 and HTTP/2 as curl speaks them, gRPC, WebSocket, and events that arrive as they are sent.

use super::super::world::{VALUE, bound_flags, words};
use super::{UNAWARE, as_both, both_ways, packages, python};

const GRPC: &str = r#"
import os, queue, sys
import grpc
token = os.environ["TOKEN"]
with grpc.secure_channel(sys.argv[1], grpc.ssl_channel_credentials()) as channel:
    answer, call = channel.unary_unary("/test.Echo/One").with_call(b"hello", metadata=(("authorization", "Bearer " + token),))
    print(answer.decode(), dict(call.trailing_metadata())["x-said"] == token)
    print(sum(1 for _ in channel.unary_stream("/test.Echo/Many")(b"5000")))
    questions = queue.SimpleQueue()
    answers = channel.stream_stream("/test.Echo/Both")(iter(questions.get, None))
    for number in range(100):
        # The next question is asked only when this one is answered.
        questions.put(b"question %d" % number)
        assert next(answers) == (b"question %d" % number)[::-1]
    questions.put(None)
    print(len(list(answers)))
    try: channel.unary_unary("/test.Echo/Refuse")(b"")
    except grpc.RpcError as error: print(error.code().name, error.details())
"#;

const WEBSOCKET: &str = r#"
import os, sys
from websockets.sync.client import connect
with connect(sys.argv[1], additional_headers={"Authorization": "Bearer " + os.environ["TOKEN"]}, max_size=None) as socket:
    print(socket.recv())
    for size in (0, 1, 125, 126, 65_535, 65_536, 1_000_000):
        message = os.urandom(size)
        socket.send(message)
        assert socket.recv() == message, size
    socket.send("spoken ✓")
    print(socket.recv())
"#;

const EVENTS: &str = r#"
import os, sys
from urllib.request import Request, urlopen
url, token, count = sys.argv[1], os.environ["TOKEN"], 0
with urlopen(Request(url + "/events", headers={"Authorization": "Bearer " + token})) as answer:
    for line in answer:
        if not line.startswith(b"data: "): continue
        count += 1
        assert line == f"data: event {count} for {token}\n".encode(), line
        if count % 1000 == 0: urlopen(Request(f"{url}/reached/{count}", data=b"")).close()
print(count, "events")
"#;

#[test]
fn grpc_calls_and_streams_work() {
    as_both(|world| {
        let services = world.serve("python3", "services.py", include_str!("services.py"), packages());
        let port = services.ports[0];
        let (script, flags) = python(world, GRPC, &format!("api.test:{port}"), &bound_flags(&[port]));
        both_ways(world, &flags, &script, "hello True True\n5000\n0\nPERMISSION_DENIED not you\n");
    });
}

#[test]
fn a_websocket_echoes() {
    as_both(|world| {
        let services = world.serve("python3", "services.py", include_str!("services.py"), packages());
        let port = services.ports[1];
        let (script, flags) = python(world, WEBSOCKET, &format!("wss://api.test:{port}/"), &bound_flags(&[port]));
        both_ways(world, &flags, &script, "True\nspoken ✓\n");
    });
}

#[test]
fn ten_thousand_events_arrive_as_they_are_sent() {
    as_both(|world| {
        world.file("client.py", EVENTS);
        // The server goes on only when the client says that it has what was sent: one that waits for more would wait for ever.
        let script = format!("python3 client.py https://api.test:{}", world.secure);
        both_ways(world, &bound_flags(&[world.secure]), &script, "10000 events\n");
    });
}

#[test]
fn curl_speaks_both_versions_of_http() {
    as_both(|world| {
        let second = world.serve("node", "http2.mjs", include_str!("http2.mjs"), "");
        let flags = bound_flags(&[world.secure, second.ports[0]]);
        let token = "-H \"Authorization: Bearer $TOKEN\"";
        let script = format!("curl -sS --http1.1 -w '%{{http_version}}\\n' {token} https://api.test:{}/hello", world.secure);
        both_ways(world, &flags, &script, "hello from outside\n1.1\n");
        let url = format!("https://api.test:{}/upload", second.ports[0]);
        let script = format!("head -c 3000000 /dev/zero | curl -sS --http2 -w '%{{http_version}}\\n' {token} --data-binary @- {url}");
        both_ways(world, &flags, &script, "POST /upload 3000000 true\n2\n");
    });
}

#[test]
fn a_body_waits_for_the_word_to_continue() {
    as_both(|world| {
        let flags = bound_flags(&[world.secure]);
        let curl = "head -c 3000000 /dev/zero | curl -sS -v --http1.1 --expect100-timeout 50 -H 'Expect: 100-continue' --data-binary @-";
        let script = format!("{curl} https://api.test:{}/hello 2>&1 | grep -c '^< HTTP/1.1 100 Continue'", world.secure);
        both_ways(world, &flags, &script, "1\n");
        let seen = world.seen();
        let whole = |one: &serde_json::Value| one["body"].as_str().map(str::len) == Some(3_000_000);
        assert!(seen.len() == 2 && seen.iter().all(whole), "the server got the body");
    });
}

#[test]
fn trailers_arrive_and_are_scrubbed() {
    as_both(|world| {
        let second = world.serve("node", "http2.mjs", include_str!("http2.mjs"), "");
        let flags = bound_flags(&[world.secure, second.ports[0]]);
        for (version, port) in [("--http1.1", world.secure), ("--http2", second.ports[0])] {
            let curl = format!("curl -sS {version} -H 'TE: trailers' -D - -o /dev/null https://api.test:{port}/trailers");
            for before in ["", UNAWARE] {
                let outcome = world.inside(&words(&flags), &format!("{before}echo \"x-sum: of $TOKEN\"; {curl} | tr -d '\\r'"));
                let mut lines = outcome.stdout.lines();
                let wanted = lines.next().expect("a line");
                assert!(lines.any(|line| line.eq_ignore_ascii_case(wanted)), "{version}: {outcome:?}");
            }
            // The control: the server sends the value.
            assert!(world.without(&curl).stdout.contains(VALUE), "{version}");
        }
    });
}
