//! Everything egress reads from a sandbox: request heads, client hellos, SOCKS5, DNS, passed openings, hosts, messages to the agent of SSH, commands
//! of git; and the search for placeholders and values, however the bytes are cut.

use std::net::Ipv4Addr;

use bytes::Bytes;
use stockade_core::host::{HostName, HostPattern};
use stockade_egress::agent::login::Login;
use stockade_egress::agent::message::{Bind, Request};
use stockade_egress::agent::policy::{self, Bound};
use stockade_egress::agent::wire::push_string;
use stockade_egress::desk::tools;
use stockade_egress::dns::{self, Known};
use stockade_egress::http::head::{self, Framing, Guard};
use stockade_egress::meter::Meter;
use stockade_egress::proxy::socks;
use stockade_egress::rules::path::{PathPattern, segments};
use stockade_egress::secrets::scrub::Scrubber;
use stockade_egress::secrets::substitute::BodyReplacer;
use stockade_egress::ssh::command::Command;
use stockade_egress::tls::hello;
use stockade_egress::{Opening, SecretValue};
use stockade_sigv4::Claim;

use crate::input::Input;

const MAX_HEAD: usize = 8 << 10;
const VALUE: &[u8] = b"ghp_REALrealREALreal/REAL+012345";
const PLACEHOLDER: &[u8] = b"ghp_fakefakefakefake0fake0012345";

/// The first byte says what the rest is.
pub fn body(data: &[u8]) {
    let mut input = Input(data);
    match input.byte() % 13 {
        0 => heads(input),
        1 => drop(hello::read(input.0)),
        2 => socks5(input.0),
        3 => names(input.0),
        4 => hosts(&String::from_utf8_lossy(input.0)),
        5 => scrubbed(input),
        6 => replaced(input),
        7 => opening(input.0),
        8 => metered(input),
        9 => signed(&String::from_utf8_lossy(input.0)),
        10 => asked(input.0),
        11 => agent(input.0),
        _ => commanded(input.0),
    }
}

/// A message to the agent that is read is the whole of what was said, and what is not a login in the session is never taken for one.
fn agent(message: &[u8]) {
    const SESSION: &[u8] = b"the hash of a key exchange......";
    let written = |kind: u8, strings: &[&[u8]], rest: &[u8]| {
        let mut bytes = vec![kind];
        for string in strings {
            push_string(&mut bytes, string);
        }
        [bytes.as_slice(), rest].concat()
    };
    match Request::parse(message) {
        None => {}
        Some(Request::Identities) => assert_eq!(message, [11]),
        Some(Request::Other(kind)) => assert_eq!(message.first(), Some(&kind)),
        Some(Request::Bind(bind)) => {
            let Bind { host_key, session, signature, is_forwarding } = bind;
            let strings = [&b"session-bind@openssh.com"[..], host_key, session, signature];
            assert_eq!(message, written(27, &strings, &[u8::from(is_forwarding)]));
            // Nobody has made a signature here.
            assert!(policy::bind(&bind).is_err());
        }
        Some(Request::Sign(sign)) => {
            assert!(
                message.starts_with(&written(13, &[sign.key, sign.data], &[])) && message.len() == 13 + sign.key.len() + sign.data.len()
            );
            let bound = Bound { host_key: b"host".to_vec(), session: SESSION.to_vec() };
            if let Ok(login) = policy::login(&bound, sign.key, sign.data) {
                assert_eq!(Login::parse(sign.data), Some(login));
                assert!(sign.data.get(4..).is_some_and(|rest| rest.starts_with(SESSION)) && login.key == sign.key);
            }
        }
    }
}

/// A claim that is read names a key, a scope and headers that are what they seem.
fn signed(header: &str) {
    if let Ok(claim) = Claim::parse(header) {
        assert!(!claim.key_id.is_empty() && claim.signed.iter().any(|name| name == "host"), "{claim:?}");
        assert!(claim.signed.iter().all(|name| !name.is_empty() && !name.bytes().any(|byte| byte.is_ascii_uppercase())), "{claim:?}");
    }
}

/// A command for a server of git, once understood, is sent as text that means the same, and to a shell is two words and nothing else.
fn commanded(text: &[u8]) {
    let Ok(command) = Command::parse(text) else { return };
    let sent = command.text();
    assert_eq!(Command::parse(sent.as_bytes()).as_ref(), Ok(&command), "{sent}");
    let (program, quoted) = sent.split_once(' ').expect("two words");
    assert!(program.starts_with("git-") && program.bytes().all(|byte| byte == b'-' || byte.is_ascii_lowercase()), "{sent}");
    // As a shell reads it, written for the purpose: nothing outside quotes but an escaped letter.
    let (mut within, mut escaped) = (false, false);
    for letter in quoted.chars() {
        match letter {
            _ if escaped => escaped = false,
            '\'' => within = !within,
            '\\' if !within => escaped = true,
            _ => assert!(within, "{sent}"),
        }
    }
    assert!(!within && !escaped, "{sent}");
    assert!(command.repository.as_str().split('/').all(|part| !matches!(part, "" | "." | ".." | ".git")), "{sent}");
}

/// What tools say at the desk is read without a panic, and a server that is named is one line of what was said.
fn asked(body: &[u8]) {
    let _ = tools::action(&String::from_utf8_lossy(body));
    let _ = tools::git_place(body);
    if let Ok(version) = tools::kubernetes_version(body) {
        assert!(version.starts_with("client.authentication.k8s.io/"), "{version}");
    }
    if let Some((server, places)) = tools::docker_server(body) {
        assert!(!server.contains('\n') && !places.is_empty(), "{server}");
    }
}

/// What an answer of a model says was used is read alike however it is cut, and nothing of it is kept but numbers and a short, plain name.
fn metered(mut input: Input<'_>) {
    let kind = if input.byte().is_multiple_of(2) { "application/json" } else { "text/event-stream" };
    let cut = usize::from(input.byte()).max(1);
    let read = |cut: usize| {
        let mut meter = Meter::of_kind(kind).expect("a kind that is read");
        input.0.chunks(cut).for_each(|piece| meter.push(piece));
        meter.usage()
    };
    let whole = read(input.0.len().max(1));
    assert_eq!(whole, read(cut), "cut at {cut}");
    if let Some(name) = whole.and_then(|usage| usage.model) {
        assert!(name.len() <= 96 && name.bytes().all(|byte| byte.is_ascii_graphic()), "{name}");
    }
}

/// A stream of requests is judged alike however it is cut, and what is let through has one reading.
fn heads(mut input: Input<'_>) {
    let cut = usize::from(input.byte()).max(1);
    let whole = walk(input.0, input.0.len().max(1));
    assert_eq!(whole, walk(input.0, cut), "cut at {cut}");
    if let Ok(Some(head)) = head::parse(input.0, MAX_HEAD) {
        let text = input.0.get(..head.length).expect("a head within its input");
        assert!(text.ends_with(b"\r\n\r\n") && head.length <= MAX_HEAD);
        assert!(!head.method.is_empty() && !head.target.contains([' ', '\r', '\n', '\0', '#']));
        let lower = String::from_utf8_lossy(text).to_ascii_lowercase();
        let count = |name: &str| lower.lines().filter(|line| line.starts_with(name)).count();
        assert!(count("content-length:") + count("transfer-encoding:") <= 1, "{lower}");
        assert!(count("host:") <= 1);
        assert_eq!(head.framing == Framing::Chunked, count("transfer-encoding:") == 1, "{lower}");
        // Every line feed has its carriage return and the other way round.
        assert!(lower.split("\r\n").all(|line| !line.contains(['\r', '\n'])));
    }
}

fn walk(bytes: &[u8], cut: usize) -> (usize, bool) {
    let mut guard = Guard::new(MAX_HEAD);
    let (mut held, mut passed) = (Vec::new(), 0);
    for piece in bytes.chunks(cut) {
        held.extend_from_slice(piece);
        loop {
            match guard.advance(&held) {
                Ok(0) => break,
                Ok(good) => {
                    passed += good;
                    held.drain(..good);
                }
                Err(_) => return (passed, false),
            }
        }
    }
    (passed, true)
}

fn socks5(bytes: &[u8]) {
    if let Ok(Some(length)) = socks::greeting(bytes) {
        assert!(length <= bytes.len());
    }
    if let Ok(Some(request)) = socks::request(bytes) {
        assert!(request.length <= bytes.len() && request.length <= socks::MAX_MESSAGE && request.port != 0);
        assert_eq!(HostName::parse(&request.host.to_string()).as_ref(), Ok(&request.host));
    }
}

/// No name but the one that is known has an address, and every answer can be read again.
fn names(message: &[u8]) {
    let mut asked = None;
    let answer = dns::answer(message, |host| {
        asked = Some(host.clone());
        if host.to_string() == "api.example" { Known::At(Ipv4Addr::new(198, 18, 0, 1)) } else { Known::Nothing }
    });
    if let Some(answer) = answer {
        assert!(message.len() <= dns::MAX_MESSAGE && answer.len() <= dns::MAX_MESSAGE * 2);
        let address = [198, 18, 0, 1];
        let told = answer.windows(4).any(|window| window == address) && !message.windows(4).any(|window| window == address);
        assert!(!told || asked.is_some_and(|host| host.to_string() == "api.example"));
    }
}

/// A name that was taken means one thing, and a pattern for exactly it matches it and no longer name.
fn hosts(text: &str) {
    if let Ok(host) = HostName::parse(text) {
        let shown = host.to_string();
        assert_eq!(HostName::parse(&shown).as_ref(), Ok(&host));
        assert!(shown.bytes().all(|byte| byte.is_ascii_graphic() && !byte.is_ascii_uppercase() && !b"@#%/\\?".contains(&byte)));
        let pattern = HostPattern::exactly(&host, 443);
        assert!(pattern.matches(&host, 443) && !pattern.matches(&host, 444));
        assert!(HostName::parse(&format!("x{shown}")).map_or(true, |other| !pattern.matches(&other, 443)));
        assert!(HostName::parse(&format!("{shown}.attacker.tld")).map_or(true, |other| !pattern.matches(&other, 443)));
    }
    if let Some(parts) = segments(text) {
        let below = PathPattern::parse("/a/**").expect("a pattern");
        assert_eq!(below.matches(&parts), parts.first().is_some_and(|first| first == b"a"));
        assert!(parts.iter().all(|part| part != b".." && part != b"." && !part.contains(&b'/')));
    }
    let _ = PathPattern::parse(text).map(|pattern| pattern.as_str().len());
}

/// Pieces of value, placeholder and noise, as the input says.
fn text(input: &mut Input<'_>) -> Vec<u8> {
    let mut text = Vec::new();
    while !input.is_empty() && text.len() < 4096 {
        match input.byte() {
            0 => text.extend_from_slice(VALUE),
            1 => text.extend_from_slice(PLACEHOLDER),
            2 => {
                let length = usize::from(input.byte()) % VALUE.len();
                text.extend_from_slice(VALUE.get(..length).unwrap_or_default());
            }
            3 => {
                let length = usize::from(input.byte()) % PLACEHOLDER.len();
                text.extend_from_slice(PLACEHOLDER.get(..length).unwrap_or_default());
            }
            other => text.push(other),
        }
    }
    text
}

fn scrubbed(mut input: Input<'_>) {
    let cut = usize::from(input.byte()).max(1);
    let text = text(&mut input);
    let mut scrubber = Scrubber::for_value(VALUE, PLACEHOLDER).expect("a value");
    let mut out = Vec::new();
    for piece in text.chunks(cut) {
        out.extend_from_slice(&scrubber.push(Bytes::copy_from_slice(piece)));
        assert!(scrubber.waiting() < scrubber.longest());
    }
    out.extend_from_slice(&scrubber.finish());
    assert_eq!(out.len(), text.len());
    assert!(!out.windows(VALUE.len()).any(|window| window == VALUE));
}

/// All of a text, scrubbed.
fn scrub(text: Vec<u8>) -> Vec<u8> {
    let mut scrubber = Scrubber::for_value(VALUE, PLACEHOLDER).expect("a value");
    let mut out = scrubber.push(Bytes::from(text)).to_vec();
    out.extend_from_slice(&scrubber.finish());
    out
}

/// Substituting and scrubbing gives back what was there, where no value was there before, in whatever form.
fn replaced(mut input: Input<'_>) {
    let cut = usize::from(input.byte()).max(1);
    let text = text(&mut input);
    let value = SecretValue::new(VALUE.to_vec()).expect("a value");
    let mut replacer = BodyReplacer::for_value(PLACEHOLDER, &value);
    let mut sent = Vec::new();
    for piece in text.chunks(cut) {
        sent.extend_from_slice(&replacer.push(piece));
    }
    sent.extend_from_slice(&replacer.finish());
    assert!(!sent.windows(PLACEHOLDER.len()).any(|window| window == PLACEHOLDER));
    assert_eq!(sent.len(), text.len());
    if scrub(text.clone()) == text {
        assert_eq!(scrub(sent), text);
    }
}

fn opening(bytes: &[u8]) {
    if let Some(opening) = Opening::parse(bytes) {
        assert_eq!(opening.bytes().as_slice(), bytes);
    }
}

/// One of each kind.
pub fn seeds() -> Vec<Vec<u8>> {
    let request = b"POST http://api.example/ HTTP/1.1\r\nHost: api.example\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc";
    let hello = b"\x16\x03\x01\x00\x43\x01\x00\x00\x3f\x03\x03\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f\x00\x00\x02\x13\x01\x01\x00\x00\x14\x00\x00\x00\x10\x00\x0e\x00\x00\x0bapi.example";
    let question = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03api\x07example\x00\x00\x01\x00\x01";
    let seed = |kind: u8, bytes: &[u8]| [&[kind][..], bytes].concat();
    vec![
        seed(0, &[&[7][..], request].concat()),
        seed(1, hello),
        seed(2, b"\x05\x01\x00\x03\x0bapi.example\x01\xbb"),
        seed(2, b"\x05\x02\x00\x02"),
        seed(9, b"AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE0123456789/20150830/us-east-1/s3/aws4_request, SignedHeaders=host;x-amz-date, Signature=5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
        seed(10, b"protocol=https\nhost=github.com:443\npath=a/b\n\n"),
        seed(10, b"https://index.docker.io/v1/"),
        seed(10, br#"{"apiVersion":"client.authentication.k8s.io/v1beta1","kind":"ExecCredential","spec":{}}"#),
        seed(10, b"action=get"),
        seed(11, &[11]),
        seed(11, b"\x1b\x00\x00\x00\x18session-bind@openssh.com\x00\x00\x00\x04host\x00\x00\x00\x01s\x00\x00\x00\x01x\x00"),
        seed(11, b"\x0d\x00\x00\x00\x0f\x00\x00\x00\x0bssh-ed25519\x00\x00\x00\x6e\x00\x00\x00\x20the hash of a key exchange......\x32\x00\x00\x00\x03git\x00\x00\x00\x0essh-connection\x00\x00\x00\x09publickey\x01\x00\x00\x00\x0bssh-ed25519\x00\x00\x00\x0f\x00\x00\x00\x0bssh-ed25519\x00\x00\x00\x00"),
        seed(12, b"git-upload-pack 'org/site.git'"),
        seed(12, br"git receive-pack '~ann/a'\''b'\!'c'"),
        seed(3, question),
        seed(4, b"xn--bcher-kva.example"),
        seed(4, b"/a/b%20c/d"),
        seed(5, &[5, b'x', 0, 2, 9, 0, 1, b'y']),
        seed(6, &[5, b'x', 1, 3, 9, 1, b'y', 1]),
        seed(7, &Opening::Transparent("198.18.0.1:443".parse().expect("an address")).bytes()),
        seed(7, &Opening::Proxy.bytes()),
        seed(7, &Opening::Agent.bytes()),
        seed(8, b"\x00\x05{\"model\":\"m-1\",\"usage\":{\"input_tokens\":7,\"input_tokens_details\":{\"cached_tokens\":3},\"output_tokens\":2}}"),
        seed(8, b"\x01\x03event: x\ndata: {\"message\":{\"model\":\"m\",\"usage\":{\"input_tokens\":1}}}\n\ndata: {\"usage\":{\"output_tokens\":2}}\n\n"),
    ]
}
