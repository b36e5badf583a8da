//! The door with little patience, and nothing behind it.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, channel};

use super::*;

struct Nobody;

impl ServerHandler for Nobody {}

/// A door on a thread of its own.
struct Open {
    address: SocketAddr,
    token: String,
    end: Option<tokio::sync::oneshot::Sender<()>>,
    ended: Receiver<()>,
    _directory: tempfile::TempDir,
}

impl Open {
    fn new(patience: Patience) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (token, fresh) = TokenFile::open(&directory.path().join("http")).unwrap();
        let door = Door::open("127.0.0.1:0".parse().unwrap(), None, token).unwrap().with_patience(patience);
        let (address, token) = (door.address(), fresh.unwrap().reveal().to_owned());
        let (end, ending) = tokio::sync::oneshot::channel();
        let (tell, ended) = channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let ending = async { drop(ending.await) };
            runtime.block_on(door.serve(|| Nobody, Arc::default(), ending, std::future::ready(()))).unwrap();
            tell.send(()).unwrap();
        });
        Self { address, token, end: Some(end), ended, _directory: directory }
    }

    #[expect(clippy::disallowed_methods, reason = "the client that the door is tested with")]
    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
        stream
    }

    /// What is answered to this before the connection is closed, whoever closes it.
    fn says(&self, text: &str) -> String {
        let mut stream = self.connect();
        stream.write_all(text.replace("HOST", &self.address.to_string()).replace("TOKEN", &self.token).as_bytes()).unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        said
    }
}

fn short() -> Patience {
    Patience { head: Duration::from_millis(200), body: Duration::from_millis(200), end: Duration::from_millis(200) }
}

#[test]
fn whoever_is_slow_is_cut_off() {
    let door = Open::new(short());
    let answered = |said: &str| said.is_empty() || said.starts_with("HTTP/1.1 408");
    for slow in ["", "G", "GET /healthz HTTP/1.1\r\nHost: HOST\r\n"] {
        let said = door.says(slow);
        assert!(answered(&said), "{slow:?}: {said}");
    }
    // After a request too.
    let said = door.says("GET /healthz HTTP/1.1\r\nHost: HOST\r\n\r\n");
    assert!(said.starts_with("HTTP/1.1 200") && said.ends_with("{\"status\":\"ok\"}"), "{said}");
    let said = door.says("POST /mcp HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer TOKEN\r\nContent-Length: 9\r\n\r\n{");
    assert!(said.starts_with("HTTP/1.1 408") && said.contains("took too long"), "{said}");
}

#[test]
fn a_head_has_64_kib_and_no_byte_more() {
    let door = Open::new(Patience { head: Duration::from_mins(1), ..short() });
    let head = |bytes: usize| {
        let begin = format!("GET /healthz HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nX-Long: ", door.address);
        format!("{begin}{}\r\n\r\n", "x".repeat(bytes - begin.len() - 4))
    };
    for (bytes, status) in [(MOST_HEAD, "200"), (MOST_HEAD + 1, "431")] {
        let mut stream = door.connect();
        stream.write_all(head(bytes).as_bytes()).unwrap();
        // Whoever said too much is not listened to until the end, and may find the connection reset after the answer.
        let mut said = [0; 12];
        stream.read_exact(&mut said).unwrap();
        assert_eq!(std::str::from_utf8(&said).unwrap(), format!("HTTP/1.1 {status}"), "{bytes}");
    }
}

#[test]
fn more_connections_than_places_wait_and_are_served_in_the_end() {
    let door = Open::new(Patience { head: Duration::from_secs(1), ..short() });
    let silent: Vec<TcpStream> = (0..MOST_CONNECTIONS + 8).map(|_| door.connect()).collect();
    // The silent ones are cut off, and this one has its turn.
    let said = door.says("GET /healthz HTTP/1.1\r\nHost: HOST\r\nConnection: close\r\n\r\n");
    assert!(said.starts_with("HTTP/1.1 200"), "{said}");
    drop(silent);
}

#[test]
fn the_end_waits_for_nobody_who_says_nothing() {
    let mut door = Open::new(Patience { head: Duration::from_mins(10), body: Duration::from_mins(10), ..short() });
    let (mut idle, mut half) = (door.connect(), door.connect());
    half.write_all(
        format!("POST /mcp HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Length: 9\r\n\r\n", door.address, door.token)
            .as_bytes(),
    )
    .unwrap();
    assert!(door.says("GET /healthz HTTP/1.1\r\nHost: HOST\r\nConnection: close\r\n\r\n").starts_with("HTTP/1.1 200"));
    drop(door.end.take());
    door.ended.recv_timeout(Duration::from_mins(1)).unwrap();
    let mut rest = Vec::new();
    let _ = idle.read_to_end(&mut rest);
    let _ = half.read_to_end(&mut rest);
}
