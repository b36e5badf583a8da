//! What is said to and by the secret broker, bindings of secrets to hosts, and placeholders of any value.
//!
//! Both ends of the broker's connections are ours, and are read as if they were not.

use stockade_broker::binding::SecretBinding;
use stockade_broker::broker::{After, Fact, Keep, Wish};
use stockade_broker::budget::Bytes;
use stockade_broker::placeholder::draw;
use stockade_broker::talk::MAX_FRAME;
use stockade_broker::talk::frame;
use stockade_broker::talk::message::{Ask, Refusal, Reply, Role};
use stockade_broker::ticket::{TICKET, Ticket};
use stockade_core::credential::Class;
use stockade_core::secret::{SecretName, SecretValue};

use crate::input::Input;
use crate::shown::assert_honest;

/// As long a run of a value may be in its placeholder.
const RUN: usize = 7;
/// Longer than any prefix that is the same for everybody's tokens.
const PREFIX: usize = 20;

/// The first byte says what the rest is.
pub fn body(data: &[u8]) {
    let mut input = Input(data);
    match input.byte() % 5 {
        0 => ask(input.0),
        1 => reply(input.0),
        2 => frames(input.0),
        3 => binding(&String::from_utf8_lossy(input.0)),
        _ => placeholder(input.0),
    }
}

/// What is taken for a question is exactly that question, and shows no value.
fn ask(body: &[u8]) {
    match Ask::decode(body) {
        Ok(ask) => {
            // Hosts are normalised on the way in, so the second time is the measure.
            let written = ask.encode();
            let again = Ask::decode(&written).expect("what was written is read");
            assert_eq!(again.encode(), written);
            if let Ask::Register { wishes, .. } = &ask {
                let shown = format!("{ask:?}");
                assert!(wishes.iter().filter_map(|wish| wish.caller.as_ref()).all(|value| !shown.contains(value.to_text().as_str())));
            }
        }
        Err(error) => assert_honest(&error.to_string(), &[]),
    }
}

fn reply(body: &[u8]) {
    match Reply::decode(body) {
        Ok(reply) => assert_eq!(reply.encode().as_slice(), body),
        Err(error) => assert_honest(&error.to_string(), &[]),
    }
}

/// Frames are what they were written as, and none is beyond its bound.
fn frames(mut stream: &[u8]) {
    let whole = stream;
    let mut written = Vec::new();
    loop {
        let before = stream;
        match frame::read(&mut stream) {
            Ok(Some(body)) => {
                assert!(body.len() <= MAX_FRAME);
                frame::write(&mut written, &body).expect("what was read can be written");
                assert!(whole.starts_with(&written));
            }
            Ok(None) => return assert!(before.is_empty()),
            Err(error) => return assert_honest(&error.to_string(), &[]),
        }
    }
}

fn binding(text: &str) {
    match text.parse::<SecretBinding>() {
        Ok(binding) => {
            assert!(!binding.hosts().is_empty());
            let shown = binding.to_string();
            assert_honest(&shown, &[]);
            assert_eq!(shown.parse().as_ref(), Ok(&binding), "{shown}");
        }
        Err(error) => assert_honest(&error.to_string(), &[]),
    }
}

/// Two values of one sandbox: each placeholder could stand where its value does, and shows nothing of either.
fn placeholder(bytes: &[u8]) {
    let values: Vec<SecretValue> = bytes.split(|byte| *byte == 0).take(2).filter_map(|part| SecretValue::new(part.to_vec()).ok()).collect();
    if values.iter().any(|value| value.expose().len() > 512) {
        return;
    }
    let values: Vec<&SecretValue> = values.iter().collect();
    let drawn = draw(&values).expect("there is always one");
    for (placeholder, own) in drawn.iter().zip(&values) {
        let text = placeholder.as_str();
        assert_eq!(text.len(), own.expose().len());
        assert!(SecretValue::new(text.into()).is_ok(), "{text:?}");
        for value in &values {
            let private = value.expose().get(PREFIX.min(value.expose().len())..).expect("a tail");
            assert!(!private.windows(RUN + 1).any(|run| text.as_bytes().windows(RUN + 1).any(|window| window == run)), "{text:?}");
        }
    }
    if let [one, two] = drawn.as_slice() {
        assert!(!one.as_str().contains(two.as_str()) && !two.as_str().contains(one.as_str()));
    }
}

/// One of every message, and values of every shape.
pub fn seeds() -> Vec<Vec<u8>> {
    let sandbox = || "0123456789abcdef".parse().expect("an id");
    let name = || "GITHUB_TOKEN".parse::<SecretName>().expect("a name");
    let value = || SecretValue::new(b"ghp_aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0eF3hJ6".to_vec()).expect("a value");
    let wish = |text: &str, caller| Wish { binding: text.parse().expect("a binding"), caller, class: Class::Reference, behind: Vec::new() };
    let at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_763_000_000);
    let asks = [
        Ask::Hello { version: 4, role: Role::Owner { key: Some([1; 32]) } },
        Ask::Hello { version: 4, role: Role::Owner { key: None } },
        Ask::Hello { version: 4, role: Role::Egress { pass: Some([2; 16]) } },
        Ask::Register {
            id: 1,
            sandbox: sandbox(),
            purpose: "git.log".into(),
            ticket: Ticket([3; TICKET]),
            wishes: vec![wish("A@a.com,*.b.com:8443", Some(value())), Wish { behind: vec![(name(), value())], ..wish("B@[::1]:80", None) }],
        },
        Ask::Release { id: 2, sandbox: sandbox() },
        Ask::Value { id: 3, sandbox: sandbox(), name: name() },
        Ask::Sign { id: 5, sandbox: sandbox(), name: name(), message: b"msg_1.1763000000.{}".to_vec() },
        Ask::Spend { id: 4, sandbox: sandbox(), name: name(), bytes: 1 << 40 },
    ];
    let replies = [
        Reply::Welcome { version: 1 },
        Reply::Registered {
            id: 1,
            pass: [4; 16],
            placeholders: vec![
                ("x".repeat(16), Fact { adapter: "secret".into(), ..Fact::default() }),
                (
                    "y".repeat(40),
                    Fact {
                        adapter: "vault".into(),
                        scope: Some("path aws/creds/a".into()),
                        expires: Some(at),
                        after: After::GivenBack,
                        note: Some("the login was not given back".into()),
                    },
                ),
            ],
        },
        Reply::Value { id: 3, value: value(), expires: Some(at), fresh_until: at, keep: Keep::Once, bytes: Bytes::Counted },
        Reply::Value { id: 3, value: value(), expires: None, fresh_until: at, keep: Keep::UntilStale, bytes: Bytes::Free },
        Reply::Signed { id: 5, signature: [7; 32] },
        Reply::Done { id: 2 },
        Reply::Refused { id: 3, why: Refusal::UsedUp, message: "used up".into(), hint: "raise it".into() },
    ];
    let mut seeds: Vec<Vec<u8>> = asks.iter().map(|ask| [&[0], ask.encode().as_slice()].concat()).collect();
    seeds.extend(replies.iter().map(|reply| [&[1], reply.encode().as_slice()].concat()));
    let mut stream = vec![2];
    for ask in &asks {
        frame::write(&mut stream, &ask.encode()).expect("a frame");
    }
    seeds.push(stream);
    for text in ["TOKEN@api.github.com", "T@a.com,*.x.org:8443", "T@127.0.0.1:3000,[::1]:80", "T@", "T=x@a"] {
        seeds.push([&[3], text.as_bytes()].concat());
    }
    for text in [
        "ghp_aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0eF3hJ6\0AKIAIOSFODNN7EXAMPLE",
        "f47ac10b-58cc-4372-a567-0e02b2c3d479\0----------------",
        "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkpvaG4gRG9lIn0.c2lnbmF0dXJlLW9mLXNvbWUtc29ydA",
        "xoxb-123456789012-1234567890123-AbCdEfGhIjKlMnOpQrStUvWx\0aaaaaaaaaaaaaaaa",
        "MDEyMzQ1Njc4OWFiY2RlZg==",
    ] {
        seeds.push([&[4], text.as_bytes()].concat());
    }
    seeds
}
