//! What the door for HTTP reads by hand before it knows who asks: the fields `Host`, `Origin` and `Authorization`, and the target.

use http::header::{AUTHORIZATION, HOST, ORIGIN};
use http::{HeaderMap, HeaderValue, Uri};
use stockade_http::{Guard, Head, Names, Reason, TokenFile};

use crate::input::Input;
use crate::scratch::Scratch;

const NAMES: [&str; 2] = ["127.0.0.1:7070", "localhost:7070"];
/// Stands for the token, which is another each time.
const TOKEN: &[u8] = b"TOKEN";

/// The first byte says how many of each field there are; the fields follow, then the target.
pub fn body(data: &[u8]) {
    let mut input = Input(data);
    let counts = input.byte();
    let scratch = Scratch::new();
    let (file, fresh) = TokenFile::open(&scratch.path().join("http")).expect("a token");
    let fresh = fresh.expect("a new one");
    let guard = Guard::new(Names::new("127.0.0.1:7070".parse().expect("an address"), None), file);
    let mut headers = HeaderMap::new();
    for (name, count) in [(&HOST, counts & 3), (&ORIGIN, counts >> 2 & 3), (&AUTHORIZATION, counts >> 4 & 3)] {
        for _ in 0..count {
            let given = input.counted();
            let value = match given.strip_suffix(TOKEN) {
                Some(before) => [before, fresh.reveal().as_bytes()].concat(),
                None => given.to_vec(),
            };
            // What cannot stand in a head is refused before it comes this far.
            if let Ok(value) = HeaderValue::from_bytes(&value) {
                headers.append(name, value);
            }
        }
    }
    let Ok(uri) = Uri::try_from(input.0) else { return };
    let judged = guard.judge(Head { uri: &uri, headers: &headers });
    let all = |name| headers.get_all(name).iter().map(HeaderValue::as_bytes).collect::<Vec<_>>();
    let is_ours = |name: &[u8]| NAMES.iter().any(|ours| name.eq_ignore_ascii_case(ours.as_bytes()));
    let opens =
        |value: &[u8]| value.get(..7).is_some_and(|word| word.eq_ignore_ascii_case(b"bearer ")) && &value[7..] == fresh.reveal().as_bytes();
    match judged {
        Ok(()) => {
            let (hosts, origins, shown) = (all(HOST), all(ORIGIN), all(AUTHORIZATION));
            assert!(hosts.len() == 1 && is_ours(hosts[0]), "{hosts:?}");
            assert!(uri.authority().is_none_or(|named| is_ours(named.as_str().as_bytes())), "{uri}");
            let ours = |origin: &&[u8]| origin.strip_prefix(b"http://").is_some_and(is_ours);
            assert!(origins.len() <= 1 && origins.iter().all(ours), "{origins:?}");
            assert!(uri.path() == "/healthz" || (shown.len() == 1 && opens(shown[0])), "{uri} {}", shown.len());
        }
        Err(refusal) => {
            assert!(refusal.status().is_client_error());
            let right = refusal.reason == Reason::Token && matches!(all(AUTHORIZATION)[..], [shown] if opens(shown));
            assert!(!right, "the token did not open");
        }
    }
}

/// Requests of each kind.
pub fn seeds() -> Vec<Vec<u8>> {
    let seed = |fields: [&[&str]; 3], target: &str| {
        let mut bytes = vec![(fields[0].len() | fields[1].len() << 2 | fields[2].len() << 4) as u8];
        for value in fields.concat() {
            bytes.extend(u16::try_from(value.len()).expect("short").to_le_bytes());
            bytes.extend(value.as_bytes());
        }
        bytes.extend(target.as_bytes());
        bytes
    };
    vec![
        seed([&["127.0.0.1:7070"], &[], &["Bearer TOKEN"]], "/mcp"),
        seed([&["localhost:7070"], &["http://localhost:7070"], &["bearer TOKEN"]], "/metrics"),
        seed([&["127.0.0.1:7070"], &[], &[]], "/healthz"),
        seed([&["127.0.0.1:7070"], &[], &["Bearer TOKEN"]], "http://127.0.0.1:7070/mcp"),
        seed([&["evil.example:7070"], &["null"], &["Basic TOKEN"]], "/"),
        seed([&["[::1]:7070", "a@127.0.0.1:7070"], &["https://127.0.0.1:7070/"], &["Bearer TOKEN", "Bearer TOKEN"]], "/mcp?x"),
    ]
}
