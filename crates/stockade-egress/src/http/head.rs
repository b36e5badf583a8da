//! The strict look at HTTP/1 bytes from a sandbox, before hyper reads them: one reading or none.
//!
//! A request that two parsers could cut at different places (both lengths, lengths twice, folded lines, a lone CR or LF, odd chunk
//! lines) is how one request is smuggled inside another. Servers are lenient here, and so is hyper; this is not. [`Guard`] walks
//! the stream and tells how far it is unambiguous. hyper still does the framing: only plain forms get through to it, and those
//! every parser reads alike.

use memchr::{memchr, memmem};

/// The most header lines in one head.
pub const MAX_LINES: usize = 128;
/// The most bytes of trailers after a chunked body.
const MAX_TRAILERS: usize = 16 << 10;
/// The most digits in a chunk's length.
const MAX_CHUNK_DIGITS: usize = 12;

/// How a request is ambiguous or broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Shape {
    /// A line that does not end in CR LF.
    #[error("a line does not end in CR LF")]
    BareNewline,
    /// More bytes than a head may have.
    #[error("the head is too long")]
    HeadTooLong,
    /// More lines than a head may have.
    #[error("the head has too many lines")]
    TooManyLines,
    /// The first line is not `METHOD TARGET HTTP/1.x`.
    #[error("the first line is not `METHOD TARGET HTTP/1.1`")]
    RequestLine,
    /// A header line that is not `name: value`, or has white space before its colon.
    #[error("a header line is not `name: value`")]
    HeaderLine,
    /// A header that goes on in the next line.
    #[error("a header is folded over two lines")]
    Folded,
    /// `Content-Length` twice.
    #[error("`content-length` is there more than once")]
    LengthTwice,
    /// `Content-Length` that is no number.
    #[error("`content-length` is not a number")]
    BadLength,
    /// Both lengths.
    #[error("both `content-length` and `transfer-encoding` are there")]
    TwoLengths,
    /// A transfer encoding other than `chunked`, or in HTTP/1.0.
    #[error("`transfer-encoding` is not exactly `chunked`")]
    TransferEncoding,
    /// No `Host`.
    #[error("there is no `host`")]
    NoHost,
    /// Several `Host`s.
    #[error("`host` is there more than once")]
    HostTwice,
    /// An upgrade to HTTP/2 in the clear.
    #[error("an upgrade to HTTP/2 in the clear is not possible")]
    Http2Upgrade,
    /// An upgrade with a body.
    #[error("an upgrade has a body")]
    UpgradeWithBody,
    /// An expectation that nobody knows.
    #[error("`expect` is not exactly `100-continue`")]
    Expectation,
    /// A chunk's first line is not a hexadecimal number.
    #[error("a chunk has a malformed length")]
    ChunkLine,
    /// A chunk that does not end where it says.
    #[error("a chunk does not end where it says")]
    ChunkEnd,
    /// Names of one host that differ in one request.
    #[error("the target and `host` name different hosts")]
    HostDiffers,
    /// What cannot be a target.
    #[error("the target is malformed")]
    Target,
}

/// What comes after a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// This many bytes of body; none where nothing is said.
    Length(u64),
    /// Chunks.
    Chunked,
    /// Whatever the two sides agree on: `CONNECT` or an upgrade.
    Raw,
}

/// A checked head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head<'a> {
    /// The method.
    pub method: &'a str,
    /// The target as written.
    pub target: &'a str,
    /// The `Host` header; empty where HTTP/1.0 sent none.
    pub host: &'a str,
    /// What follows.
    pub framing: Framing,
    /// Bytes of the head, with its empty line.
    pub length: usize,
}

/// Reads one head from the beginning of `bytes`. `Ok(None)` when more bytes are needed.
pub fn parse(bytes: &[u8], max_bytes: usize) -> Result<Option<Head<'_>>, Shape> {
    let Some(end) = memmem::find(bytes, b"\r\n\r\n") else {
        if bytes.len() > max_bytes {
            return Err(Shape::HeadTooLong);
        }
        return has_plain_lines(bytes).then_some(None).ok_or(Shape::BareNewline);
    };
    let length = end + 4;
    if length > max_bytes {
        return Err(Shape::HeadTooLong);
    }
    let mut lines = Lines { rest: bytes.get(..end + 2).unwrap_or_default() };
    let (method, target, version) = request_line(lines.next().ok_or(Shape::RequestLine)??)?;
    let mut facts = Facts::default();
    for (count, line) in lines.enumerate() {
        if count >= MAX_LINES {
            return Err(Shape::TooManyLines);
        }
        facts.add(line?)?;
    }
    let framing = facts.framing(method, version)?;
    let host = match (facts.host, version) {
        (Some(host), _) => host,
        (None, Version::One) => return Err(Shape::NoHost),
        (None, Version::Zero) => "",
    };
    Ok(Some(Head { method, target, host, framing, length }))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    Zero,
    One,
}

fn request_line(line: &[u8]) -> Result<(&str, &str, Version), Shape> {
    let text = std::str::from_utf8(line).map_err(|_| Shape::RequestLine)?;
    let mut parts = text.split(' ');
    let (Some(method), Some(target), Some(version), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return Err(Shape::RequestLine);
    };
    let version = match version {
        "HTTP/1.1" => Version::One,
        "HTTP/1.0" => Version::Zero,
        _ => return Err(Shape::RequestLine),
    };
    let target_is_plain = !target.is_empty() && target.bytes().all(|byte| (0x21..0x7f).contains(&byte) && byte != b'#');
    if !is_token(method.as_bytes()) || !target_is_plain {
        return Err(Shape::RequestLine);
    }
    Ok((method, target, version))
}

/// What the header lines say about framing.
#[derive(Default)]
struct Facts<'a> {
    host: Option<&'a str>,
    length: Option<u64>,
    chunked: bool,
    upgrade: bool,
}

impl<'a> Facts<'a> {
    fn add(&mut self, line: &'a [u8]) -> Result<(), Shape> {
        let (name, value) = header_line(line)?;
        let is = |wanted: &str| name.eq_ignore_ascii_case(wanted.as_bytes());
        if is("host") {
            let value = std::str::from_utf8(value).map_err(|_| Shape::HeaderLine)?;
            if self.host.replace(value).is_some() {
                return Err(Shape::HostTwice);
            }
        } else if is("content-length") {
            let digits = (1..=19).contains(&value.len()) && value.iter().all(u8::is_ascii_digit);
            let number = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()).filter(|_| digits);
            if self.length.replace(number.ok_or(Shape::BadLength)?).is_some() {
                return Err(Shape::LengthTwice);
            }
        } else if is("transfer-encoding") {
            if self.chunked || !value.eq_ignore_ascii_case(b"chunked") {
                return Err(Shape::TransferEncoding);
            }
            self.chunked = true;
        } else if is("upgrade") {
            if value.split(|byte| *byte == b',').any(|part| part.trim_ascii().get(..2).is_some_and(|two| two.eq_ignore_ascii_case(b"h2"))) {
                return Err(Shape::Http2Upgrade);
            }
            self.upgrade = true;
        } else if is("http2-settings") {
            return Err(Shape::Http2Upgrade);
        } else if is("expect") && !value.eq_ignore_ascii_case(b"100-continue") {
            return Err(Shape::Expectation);
        }
        Ok(())
    }

    fn framing(&self, method: &str, version: Version) -> Result<Framing, Shape> {
        if self.chunked && self.length.is_some() {
            return Err(Shape::TwoLengths);
        }
        if self.chunked && version == Version::Zero {
            return Err(Shape::TransferEncoding);
        }
        let has_body = self.chunked || self.length.is_some_and(|length| length > 0);
        if self.upgrade || method == "CONNECT" {
            return if has_body { Err(Shape::UpgradeWithBody) } else { Ok(Framing::Raw) };
        }
        Ok(if self.chunked { Framing::Chunked } else { Framing::Length(self.length.unwrap_or(0)) })
    }
}

/// Splits `name: value`; the value without surrounding white space.
fn header_line(line: &[u8]) -> Result<(&[u8], &[u8]), Shape> {
    if line.first().is_some_and(|byte| matches!(byte, b' ' | b'\t')) {
        return Err(Shape::Folded);
    }
    let colon = memchr(b':', line).ok_or(Shape::HeaderLine)?;
    let (name, value) = (line.get(..colon).unwrap_or_default(), line.get(colon + 1..).unwrap_or_default());
    let value_is_plain = value.iter().all(|byte| *byte == b'\t' || !(*byte < 0x20 || *byte == 0x7f));
    if !is_token(name) || !value_is_plain {
        return Err(Shape::HeaderLine);
    }
    Ok((name, value.trim_ascii()))
}

fn is_token(bytes: &[u8]) -> bool {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    !bytes.is_empty() && bytes.iter().all(plain)
}

/// Lines that end in CR LF, with no other CR or LF in them.
struct Lines<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Lines<'a> {
    type Item = Result<&'a [u8], Shape>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let end = memchr(b'\n', self.rest).unwrap_or(self.rest.len());
        let (line, rest) = (self.rest.get(..end).unwrap_or_default(), self.rest.get(end + 1..).unwrap_or_default());
        self.rest = rest;
        let line = line.strip_suffix(b"\r").filter(|line| memchr(b'\r', line).is_none());
        Some(line.ok_or(Shape::BareNewline))
    }
}

/// Whether every CR and LF so far stands in a CR LF; the last byte may be a CR that waits for its LF.
fn has_plain_lines(bytes: &[u8]) -> bool {
    let mut before = 0_u8;
    for byte in bytes {
        if (*byte == b'\n') != (before == b'\r') {
            return false;
        }
        before = *byte;
    }
    true
}

/// Walks the bytes of one connection, head after head.
#[derive(Debug)]
pub struct Guard {
    state: State,
    max_head: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Head,
    Body(u64),
    ChunkLine,
    ChunkData(u64),
    ChunkEnd,
    /// Bytes of trailers so far.
    Trailers(usize),
    Raw,
}

impl Guard {
    /// At the beginning of a connection.
    pub fn new(max_head: usize) -> Self {
        Self { state: State::Head, max_head }
    }

    /// Whether the next byte begins a request.
    pub fn is_between_requests(&self) -> bool {
        self.state == State::Head
    }

    /// How many of these bytes are unambiguous. The rest is to be given again, with what comes after it.
    pub fn advance(&mut self, bytes: &[u8]) -> Result<usize, Shape> {
        let mut done = 0;
        loop {
            let rest = bytes.get(done..).unwrap_or_default();
            if rest.is_empty() {
                return Ok(done);
            }
            match self.step(rest) {
                Ok(Some(step)) => done += step,
                Ok(None) => return Ok(done),
                // What comes before is good and goes first; the next call begins here and fails.
                Err(_) if done > 0 => return Ok(done),
                Err(shape) => return Err(shape),
            }
        }
    }

    /// Takes one element; `None` when there is not enough of it yet.
    fn step(&mut self, bytes: &[u8]) -> Result<Option<usize>, Shape> {
        let available = bytes.len() as u64;
        match self.state {
            State::Raw => Ok(Some(bytes.len())),
            State::Head => {
                let Some(head) = parse(bytes, self.max_head)? else { return Ok(None) };
                self.state = match head.framing {
                    Framing::Length(0) => State::Head,
                    Framing::Length(length) => State::Body(length),
                    Framing::Chunked => State::ChunkLine,
                    Framing::Raw => State::Raw,
                };
                Ok(Some(head.length))
            }
            State::Body(left) => {
                let taken = left.min(available);
                self.state = if taken == left { State::Head } else { State::Body(left - taken) };
                Ok(usize::try_from(taken).ok())
            }
            State::ChunkData(left) => {
                let taken = left.min(available);
                self.state = if taken == left { State::ChunkEnd } else { State::ChunkData(left - taken) };
                Ok(usize::try_from(taken).ok())
            }
            State::ChunkLine => {
                let Some(line) = line(bytes, MAX_CHUNK_DIGITS, Shape::ChunkLine)? else { return Ok(None) };
                let digits = !line.is_empty() && line.iter().all(u8::is_ascii_hexdigit);
                let text = std::str::from_utf8(line).ok().filter(|_| digits).ok_or(Shape::ChunkLine)?;
                let length = u64::from_str_radix(text, 16).map_err(|_| Shape::ChunkLine)?;
                self.state = if length == 0 { State::Trailers(0) } else { State::ChunkData(length) };
                Ok(Some(line.len() + 2))
            }
            State::ChunkEnd => match bytes {
                [b'\r', b'\n', ..] => {
                    self.state = State::ChunkLine;
                    Ok(Some(2))
                }
                [b'\r'] => Ok(None),
                _ => Err(Shape::ChunkEnd),
            },
            State::Trailers(so_far) => {
                let Some(line) = line(bytes, MAX_TRAILERS - so_far, Shape::HeadTooLong)? else { return Ok(None) };
                if line.is_empty() {
                    self.state = State::Head;
                } else {
                    let (name, _) = header_line(line)?;
                    if ["content-length", "transfer-encoding", "host"].iter().any(|word| name.eq_ignore_ascii_case(word.as_bytes())) {
                        return Err(Shape::HeaderLine);
                    }
                    self.state = State::Trailers(so_far + line.len());
                }
                Ok(Some(line.len() + 2))
            }
        }
    }
}

/// A line of at most so many bytes; `None` when its end has not come yet.
fn line(bytes: &[u8], longest: usize, too_long: Shape) -> Result<Option<&[u8]>, Shape> {
    let window = bytes.get(..longest + 2).unwrap_or(bytes);
    let Some(end) = memchr(b'\n', window) else {
        let early = memchr(b'\r', window).is_some_and(|at| at + 1 < window.len());
        return match (early, bytes.len() > longest + 1) {
            (true, _) => Err(Shape::BareNewline),
            (false, true) => Err(too_long),
            (false, false) => Ok(None),
        };
    };
    let line = window.get(..end).and_then(|line| line.strip_suffix(b"\r")).filter(|line| memchr(b'\r', line).is_none());
    line.map(Some).ok_or(Shape::BareNewline)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 4096;

    fn walk(bytes: &[u8], cut: usize) -> Result<(usize, bool), Shape> {
        let mut guard = Guard::new(MAX);
        let (mut held, mut passed) = (Vec::new(), 0);
        for piece in bytes.chunks(cut.max(1)) {
            held.extend_from_slice(piece);
            loop {
                let done = guard.advance(&held)?;
                passed += done;
                held.drain(..done);
                if done == 0 || held.is_empty() {
                    break;
                }
            }
        }
        Ok((passed, guard.is_between_requests()))
    }

    #[test]
    fn plain_requests_pass_however_they_are_cut() {
        for text in [
            "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET http://a/ HTTP/1.1\r\nhost: a\r\nx:\t y \r\n\r\nGET /2 HTTP/1.1\r\nhost: a\r\n\r\n",
            "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\nExpect: 100-continue\r\n\r\nhelloGET / HTTP/1.0\r\n\r\n",
            "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\nA\r\n0123456789\r\n0\r\n\r\n",
            "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: Chunked\r\n\r\n0\r\nx-sum: 1\r\ny: 2\r\n\r\nGET / HTTP/1.1\r\nhost: a\r\n\r\n",
        ] {
            for cut in [1, 2, 3, 7, 1000] {
                assert_eq!(walk(text.as_bytes(), cut), Ok((text.len(), true)), "{text:?} {cut}");
            }
        }
        let upgrade = "GET / HTTP/1.1\r\nhost: a\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n\x01\n\r\x02";
        assert_eq!(walk(upgrade.as_bytes(), 1), Ok((upgrade.len(), false)));
    }

    #[test]
    fn h16_smuggling_shapes_are_refused_however_they_are_cut() {
        let many = format!("GET / HTTP/1.1\r\nhost: a\r\n{}\r\n", "x: y\r\n".repeat(MAX_LINES));
        let long = format!("GET / HTTP/1.1\r\nhost: a\r\nx: {}\r\n\r\n", "y".repeat(MAX));
        for (text, shape) in [
            ("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", Shape::TwoLengths),
            ("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n", Shape::TwoLengths),
            ("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\ncontent-length: 5\r\n\r\nhello", Shape::LengthTwice),
            ("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\nContent-Length: 6\r\n\r\nhello", Shape::LengthTwice),
            ("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5, 5\r\n\r\nhello", Shape::BadLength),
            ("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: +5\r\n\r\nhello", Shape::BadLength),
            ("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0x5\r\n\r\nhello", Shape::BadLength),
            ("POST / HTTP/1.1\r\nhost: a\r\ncontent-length:\r\n\r\n", Shape::BadLength),
            ("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip, chunked\r\n\r\n", Shape::TransferEncoding),
            ("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: xchunked\r\n\r\n", Shape::TransferEncoding),
            ("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n", Shape::TransferEncoding),
            ("POST / HTTP/1.0\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n", Shape::TransferEncoding),
            ("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding : chunked\r\n\r\n", Shape::HeaderLine),
            ("POST / HTTP/1.1\r\nhost: a\r\nx: y\r\n folded: z\r\n\r\n", Shape::Folded),
            ("GET / HTTP/1.1\r\n host: a\r\n\r\n", Shape::Folded),
            ("GET / HTTP/1.1\nhost: a\n\n", Shape::BareNewline),
            ("GET / HTTP/1.1\r\nhost: a\nx: y\r\n\r\n", Shape::BareNewline),
            ("GET / HTTP/1.1\r\nhost: a\rx: y\r\n\r\n", Shape::BareNewline),
            ("\r\nGET / HTTP/1.1\r\nhost: a\r\n\r\n", Shape::RequestLine),
            ("GET  / HTTP/1.1\r\nhost: a\r\n\r\n", Shape::RequestLine),
            ("GET / HTTP/2.0\r\nhost: a\r\n\r\n", Shape::RequestLine),
            ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Shape::RequestLine),
            ("GET / x HTTP/1.1\r\nhost: a\r\n\r\n", Shape::RequestLine),
            ("GET /\t HTTP/1.1\r\nhost: a\r\n\r\n", Shape::RequestLine),
            ("GET / HTTP/1.1\r\n\r\n", Shape::NoHost),
            ("GET / HTTP/1.1\r\nhost: a\r\nHost: b\r\n\r\n", Shape::HostTwice),
            ("GET / HTTP/1.1\r\nhost: a\r\nno colon\r\n\r\n", Shape::HeaderLine),
            ("GET / HTTP/1.1\r\nhost: a\r\nx: \x00\r\n\r\n", Shape::HeaderLine),
            ("GET / HTTP/1.1\r\nhost: a\r\n: y\r\n\r\n", Shape::HeaderLine),
            ("GET / HTTP/1.1\r\nhost: a\r\nupgrade: h2c\r\n\r\n", Shape::Http2Upgrade),
            ("GET / HTTP/1.1\r\nhost: a\r\nHTTP2-Settings: x\r\n\r\n", Shape::Http2Upgrade),
            ("GET / HTTP/1.1\r\nhost: a\r\nupgrade: websocket\r\ncontent-length: 3\r\n\r\nabc", Shape::UpgradeWithBody),
            ("GET / HTTP/1.1\r\nhost: a\r\nexpect: 200-ok\r\n\r\n", Shape::Expectation),
            ("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\n\r\n", Shape::ChunkLine),
            ("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n", Shape::BareNewline),
            ("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n", Shape::ChunkLine),
            ("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhello\r\n0\r\n\r\n", Shape::ChunkEnd),
            ("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\n", Shape::ChunkLine),
            ("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\nhost: b\r\n\r\n", Shape::HeaderLine),
            (&many, Shape::TooManyLines),
            (&long, Shape::HeadTooLong),
        ] {
            for cut in [1, 5, 10_000] {
                assert_eq!(walk(text.as_bytes(), cut).err(), Some(shape), "{text:?} {cut}");
            }
        }
    }
}
