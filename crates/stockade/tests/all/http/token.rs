//! The token: shown once, kept as a digest, replaced at once; and the flags around it.

use std::os::unix::fs::MetadataExt as _;

use super::server::{BEARER, Server};
use crate::wall::Who;
use crate::wall::ground::{Ground, as_both, finish};

#[test]
fn a_token_is_made_at_the_first_start_and_never_shown_again() {
    as_both(|ground| {
        let first = Server::new(ground);
        assert_eq!(first.token.len(), 47, "{}", first.said);
        assert_eq!(first.request("GET /metrics", &[BEARER], "").status, 200);
        let token = first.token.clone();
        drop(first);
        let mut second = Server::new(ground);
        assert_eq!(second.token, "", "{}", second.said);
        assert_eq!(second.request("GET /metrics", &[("Authorization", "Bearer stk_nothing")], "").status, 401);
        second.token.clone_from(&token);
        assert_eq!(second.request("GET /metrics", &[BEARER], "").status, 200);
        let kept = ground.state.join("stockade/http/token.json");
        let found = std::fs::metadata(&kept).expect("kept");
        assert_eq!((found.mode() & 0o7777, found.uid()), (0o600, ground.who.uid()));
        let holds = ground.host(&format!("grep -rlF {token} {} || true", ground.state.display()));
        assert_eq!(holds, "", "the token itself is nowhere");
    });
}

#[test]
fn a_new_token_voids_the_old_one_in_a_server_that_runs() {
    let ground = Ground::new(Who::Ordinary);
    let mut server = Server::new(&ground);
    let outcome = finish(&mut ground.stockade(["serve", "--new-token"]));
    assert!(outcome.code == Some(0) && outcome.stdout.starts_with("stk_") && !outcome.stderr.contains("stk_"), "{outcome:?}");
    assert_eq!(server.request("GET /metrics", &[BEARER], "").status, 401);
    server.token = outcome.stdout.trim_end().to_owned();
    assert_eq!(server.request("GET /metrics", &[BEARER], "").status, 200);
    let outcome = finish(&mut ground.stockade(["serve", "--new-token", "--json"]));
    let told: serde_json::Value = serde_json::from_str(&outcome.stdout).expect("JSON");
    server.token = told["token"].as_str().expect("a token").to_owned();
    assert_eq!(server.request("GET /metrics", &[BEARER], "").status, 200);
}

#[test]
fn what_it_listens_on_is_said_and_must_be_loopback() {
    let ground = Ground::new(Who::Ordinary);
    let check = |flags: &[&str], says: &str| {
        let outcome = finish(&mut ground.stockade(["serve"].iter().chain(flags)));
        assert!(outcome.code == Some(125) && outcome.stderr.contains(says), "{flags:?}: {outcome:?}");
    };
    check(&["--workspace", "."], "--listen");
    check(&["--listen", "127.0.0.1:0", "--attended"], "cannot be used with");
    check(&["--listen", "0.0.0.0:0"], "without TLS only loopback is served");
    check(&["--listen", "[::]:0"], "give --tls-cert and --tls-key");
    check(&["--listen", "192.0.2.1:80"], "without TLS only loopback is served");
    assert!(!ground.state.join("stockade/http/token.json").exists(), "a token that nobody saw is not kept");
    check(&["--listen", "7070"], "invalid value");
    check(&["--listen", "127.0.0.1:0", "--tls-key", "/nowhere"], "--tls-cert");
    check(&["--listen", "127.0.0.1:0", "--tls-key", "/nowhere", "--tls-cert", "/nowhere"], "cannot read `/nowhere`");
    check(&["--listen", "127.0.0.1:0", "--workspace", "/"], "workspace");
    let server = Server::new(&ground);
    check(&["--listen", &format!("127.0.0.1:{}", server.port)], "cannot listen on");
    std::fs::write(ground.state.join("stockade/http/token.json"), "{}").expect("written");
    check(&["--listen", "127.0.0.1:0"], "stockade serve --new-token makes another");
    assert_eq!(server.request("GET /metrics", &[BEARER], "").status, 401, "what is damaged opens nothing");
    let outcome = finish(&mut ground.stockade(["serve", "--new-token"]));
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
}
