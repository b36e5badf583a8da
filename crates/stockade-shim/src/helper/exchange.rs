//! One request of HTTP/1.1 and its answer, over the sandbox's own loopback.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// The longest answer, its head included.
const MOST_ANSWERED: usize = 64 << 10;
/// The answer of a desk that goes on in another protocol.
pub(super) const UPGRADED: u16 = 101;

/// Sends a request and waits for the answer, all of it for so long at most. Gives the connection as well, which an answer 101 leaves open.
pub(super) fn exchange(port: u16, request: &[u8], patience: Duration) -> io::Result<(Answer, TcpStream)> {
    let end = Instant::now() + patience;
    let left = || Some(end.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero()).ok_or(ErrorKind::TimedOut);
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    #[expect(clippy::disallowed_methods, reason = "inside a sandbox, to the sandbox's own loopback")]
    let mut stream = TcpStream::connect_timeout(&address, left()?)?;
    let mut unsaid = request;
    while !unsaid.is_empty() {
        stream.set_write_timeout(Some(left()?))?;
        let count = stream.write(unsaid)?;
        unsaid = unsaid.get(count..).filter(|_| count > 0).ok_or(ErrorKind::WriteZero)?;
    }
    let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
    let answer = loop {
        stream.set_read_timeout(Some(left()?))?;
        let count = stream.read(&mut piece)?;
        bytes.extend_from_slice(piece.get(..count).unwrap_or_default());
        match Arrived::of(&bytes) {
            Arrived::All(answer) => break answer,
            Arrived::Perhaps(answer) if count == 0 => break answer,
            Arrived::Nonsense => return Err(ErrorKind::InvalidData.into()),
            Arrived::More if count == 0 => return Err(ErrorKind::UnexpectedEof.into()),
            Arrived::Perhaps(_) | Arrived::More if bytes.len() > MOST_ANSWERED => return Err(ErrorKind::FileTooLarge.into()),
            Arrived::Perhaps(_) | Arrived::More => {}
        }
    };
    stream.set_write_timeout(None)?;
    stream.set_read_timeout(None)?;
    Ok((answer, stream))
}

/// What the desk said. Where it changes the protocol (101), what follows its head is of the new one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
}

/// What has arrived of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Arrived {
    All(Answer),
    /// All, if nothing follows.
    Perhaps(Answer),
    More,
    Nonsense,
}

impl Arrived {
    pub(super) fn of(bytes: &[u8]) -> Self {
        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { return Self::More };
        let (head, body) = bytes.split_at_checked(end).unwrap_or_default();
        let body = body.get(4..).unwrap_or_default();
        let Ok(head) = std::str::from_utf8(head) else { return Self::Nonsense };
        let mut lines = head.split("\r\n");
        let line = lines.next().and_then(|line| line.strip_prefix("HTTP/1.1 ").or_else(|| line.strip_prefix("HTTP/1.0 ")));
        let status = line.and_then(|line| line.get(..3)).filter(|status| status.bytes().all(|byte| byte.is_ascii_digit()));
        let Some(status) = status.and_then(|status| status.parse().ok()) else { return Self::Nonsense };
        let mut length = None;
        for (name, value) in lines.filter_map(|line| line.split_once(':')) {
            if name.eq_ignore_ascii_case("transfer-encoding") {
                return Self::Nonsense;
            }
            if name.eq_ignore_ascii_case("content-length") {
                let Ok(value) = value.trim().parse::<usize>() else { return Self::Nonsense };
                length = Some(value);
            }
        }
        match length {
            _ if status == UPGRADED => Self::All(Answer { status, body: body.to_vec() }),
            None => Self::Perhaps(Answer { status, body: body.to_vec() }),
            Some(length) => body.get(..length).map_or(Self::More, |body| Self::All(Answer { status, body: body.to_vec() })),
        }
    }
}
