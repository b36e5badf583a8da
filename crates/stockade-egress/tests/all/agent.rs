//! The agent of SSH: what it signs, and everything that it does not. A host here only begins a session, as far as that travels in the clear.

use std::sync::Arc;

use russh::keys::PrivateKey;
use russh::keys::signature::{Signer as _, Verifier as _};
use russh::keys::ssh_key::private::Ed25519Keypair;
use russh::keys::ssh_key::{LineEnding, Signature, certificate};
use stockade_egress::agent::wire::push_string;
use stockade_egress::agent::{Entry, keys, message};
use stockade_egress::rules::judge::{Asked, Denied, Judge};
use stockade_egress::secrets::binding::Budget;
use stockade_egress::{Binding, Event, Kind, Rules, Subject, Verdict};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, UnixStream};

use crate::world::{Outside, World, binding, pattern};

const SESSION: &[u8] = b"the hash of a key exchange......";

fn key(seed: u8) -> PrivateKey {
    PrivateKey::from(Ed25519Keypair::from_seed(&[seed; 32]))
}

fn public(key: &PrivateKey) -> Vec<u8> {
    key.public_key().to_bytes().unwrap()
}

fn signed(key: &PrivateKey, data: &[u8]) -> Vec<u8> {
    let signature: Signature = key.try_sign(data).unwrap();
    signature.try_into().unwrap()
}

/// A key as a secret's value.
fn value(key: &PrivateKey) -> String {
    key.to_openssh(LineEnding::LF).unwrap().replace('\n', "")
}

fn user_key() -> PrivateKey {
    key(1)
}

fn host_key() -> PrivateKey {
    key(2)
}

/// A host that begins a session with each who comes.
async fn host() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut said = b"SSH-2.0-Test\r\n".to_vec();
            for part in [public(&host_key()), b"ephemeral".to_vec(), signed(&host_key(), SESSION)] {
                push_string(&mut said, &part);
            }
            stream.write_all(&said).await.unwrap();
            tokio::spawn(async move { while stream.read_u8().await.is_ok() {} });
        }
    });
    port
}

/// What differs from the usual.
type Change = Box<dyn FnOnce(&mut Rules, &mut Binding)>;

struct Stage {
    world: World,
    port: u16,
}

/// A sandbox whose programs log in as `git` at the host.
async fn stage_of(budget: Budget, value: String, change: impl FnOnce(&mut Rules, &mut Binding)) -> Stage {
    let port = host().await;
    let at = format!("127.0.0.1:{port}");
    let mut rules = Rules::of_hosts([pattern(&at)]);
    rules.agent = vec![Entry { binding: 0, host_keys: vec![public(&host_key())], user: "git".into() }];
    let mut binding = Binding { budget, ..binding(&at) };
    change(&mut rules, &mut binding);
    let world = World::with_secret(Arc::new(Outside::new()), rules, vec![binding], Some(value.leak())).await;
    Stage { world, port }
}

async fn stage() -> Stage {
    stage_of(Budget::default(), value(&user_key()), |_, _| {}).await
}

/// Says a message and gives what is answered; nothing where the connection was closed.
async fn ask(agent: &mut UnixStream, message: &[u8]) -> Vec<u8> {
    let mut framed = Vec::new();
    push_string(&mut framed, message);
    agent.write_all(&framed).await.unwrap();
    let Ok(length) = agent.read_u32().await else { return Vec::new() };
    let mut answer = vec![0; length as usize];
    agent.read_exact(&mut answer).await.unwrap();
    answer
}

fn strings(kind: u8, parts: &[&[u8]], rest: &[u8]) -> Vec<u8> {
    let mut message = vec![kind];
    for part in parts {
        push_string(&mut message, part);
    }
    message.extend_from_slice(rest);
    message
}

fn bind_message(host: &PrivateKey, session: &[u8], signature: &[u8], forwarding: u8) -> Vec<u8> {
    strings(27, &[b"session-bind@openssh.com", &public(host), session, signature], &[forwarding])
}

fn bind() -> Vec<u8> {
    bind_message(&host_key(), SESSION, &signed(&host_key(), SESSION), 0)
}

#[derive(Clone)]
struct Login {
    session: Vec<u8>,
    user: &'static str,
    service: &'static str,
    algorithm: &'static str,
    key: Vec<u8>,
    host_key: Option<Vec<u8>>,
}

fn login() -> Login {
    Login {
        session: SESSION.to_vec(),
        user: "git",
        service: "ssh-connection",
        algorithm: "ssh-ed25519",
        key: public(&user_key()),
        host_key: Some(public(&host_key())),
    }
}

impl Login {
    fn data(&self) -> Vec<u8> {
        let method = if self.host_key.is_some() { "publickey-hostbound-v00@openssh.com" } else { "publickey" };
        let mut data = Vec::new();
        push_string(&mut data, &self.session);
        data.push(50);
        for part in [self.user, self.service, method] {
            push_string(&mut data, part.as_bytes());
        }
        data.push(1);
        push_string(&mut data, self.algorithm.as_bytes());
        push_string(&mut data, &self.key);
        self.host_key.iter().for_each(|key| push_string(&mut data, key));
        data
    }
}

fn sign_message(key: &[u8], data: &[u8]) -> Vec<u8> {
    strings(13, &[key, data], &[0; 4])
}

const FAILURE: [u8; 1] = [5];
const SUCCESS: [u8; 1] = [6];

impl Stage {
    /// A session with the host, which is under way as long as this is kept.
    async fn session(&self) -> UnixStream {
        let mut stream = self.world.connect(Kind::Transparent(format!("127.0.0.1:{}", self.port).parse().unwrap()));
        stream.write_all(b"SSH-2.0-Client\r\n").await.unwrap();
        let mut said = vec![0; 14 + 4 + public(&host_key()).len() + 13 + 4 + signed(&host_key(), SESSION).len()];
        stream.read_exact(&mut said).await.unwrap();
        stream
    }

    fn agent(&self) -> UnixStream {
        self.world.connect(Kind::Agent)
    }

    /// The next event about the agent: what, what was decided, and why.
    async fn noted(&mut self) -> (String, Verdict, Option<String>) {
        let event = self.event(Subject::Request).await;
        assert_eq!(event.rule, "ssh-agent");
        (event.method.unwrap_or_default(), event.verdict, event.reason)
    }

    async fn event(&mut self, subject: Subject) -> Event {
        loop {
            let event = self.world.event().await;
            if event.subject == subject {
                return event;
            }
        }
    }

    /// Asks for a signature over this in a session of one's own; the refusal's words.
    async fn refused(&mut self, data: &[u8]) -> String {
        let _session = self.session().await;
        let mut agent = self.agent();
        assert_eq!(ask(&mut agent, &bind()).await, SUCCESS);
        assert_eq!(ask(&mut agent, &sign_message(&public(&user_key()), data)).await, FAILURE);
        let (method, verdict, reason) = self.noted().await;
        assert_eq!((method.as_str(), verdict), ("SIGN", Verdict::Deny));
        reason.unwrap()
    }
}

#[tokio::test]
async fn a_login_in_a_session_of_ones_own_is_signed_and_recorded() {
    let mut stage = stage().await;
    let _session = stage.session().await;
    let mut agent = stage.agent();
    assert_eq!(ask(&mut agent, &bind()).await, SUCCESS);
    let expected = message::Answer::Identities(vec![(public(&user_key()), "TOKEN".to_owned())]).bytes();
    assert_eq!(ask(&mut agent, &[11]).await, expected[4..]);
    let host = public(&host_key());
    for host_key in [Some(host.clone()), None] {
        let data = Login { host_key, ..login() }.data();
        let answer = ask(&mut agent, &sign_message(&public(&user_key()), &data)).await;
        assert_eq!(answer.first(), Some(&14));
        let signature = Signature::try_from(&answer[5..]).unwrap();
        user_key().public_key().key_data().verify(&data, &signature).unwrap();
        let event = stage.event(Subject::Request).await;
        assert_eq!(
            (event.verdict, event.rule.as_str(), event.host.as_str(), event.port),
            (Verdict::Allow, "ssh-agent", "127.0.0.1", stage.port)
        );
        assert_eq!(event.method.as_deref(), Some("SIGN"));
        assert_eq!(event.path, Some(format!("git@{}", keys::fingerprint(&host))));
        assert_eq!(event.secrets.iter().map(AsRef::as_ref).collect::<Vec<_>>(), ["TOKEN"]);
    }
}

#[tokio::test]
async fn nothing_but_such_a_login_is_signed() {
    let mut stage = stage().await;
    for (data, why) in [
        (Login { session: b"another session.................".to_vec(), ..login() }.data(), "for another session"),
        (Login { user: "root", ..login() }.data(), "the login is as `root`"),
        (Login { service: "ssh-userauth", ..login() }.data(), "another service"),
        (Login { key: public(&key(9)), ..login() }.data(), "with another key"),
        (Login { algorithm: "rsa-sha2-512", ..login() }.data(), "as `rsa-sha2-512`"),
        (Login { host_key: Some(public(&key(9))), ..login() }.data(), "another host's key"),
        (b"SSHSIG\0\0\0\x03git\0\0\0\0\0\0\0\x06sha512\0\0\0\x02hh".to_vec(), "only logins are signed"),
        (b"any bytes at all".to_vec(), "only logins are signed"),
        ([login().data(), vec![0]].concat(), "only logins are signed"),
    ] {
        let reason = stage.refused(&data).await;
        assert!(reason.contains(why), "{why}: {reason}");
    }
    // A key that is not here.
    let data = Login { key: public(&key(9)), ..login() }.data();
    let _session = stage.session().await;
    let mut agent = stage.agent();
    assert_eq!(ask(&mut agent, &bind()).await, SUCCESS);
    assert_eq!(ask(&mut agent, &sign_message(&public(&key(9)), &data)).await, FAILURE);
    assert_eq!(stage.noted().await.2.as_deref(), Some("there is no such key"));
}

#[tokio::test]
async fn a_connection_belongs_to_one_session_with_a_known_host_or_gets_nothing() {
    let mut stage = stage().await;
    let other = b"another session.................";
    let session = stage.session().await;
    for (message, why) in [
        (bind_message(&host_key(), SESSION, &signed(&host_key(), SESSION), 1), "not forwarded"),
        (bind_message(&host_key(), SESSION, &signed(&key(9), SESSION), 0), "did not sign this session"),
        (bind_message(&host_key(), other, &signed(&host_key(), SESSION), 0), "did not sign this session"),
        (bind_message(&key(9), SESSION, &signed(&key(9), SESSION), 0), "is no key of a host"),
        // As if somebody elsewhere had a session with that host.
        (bind_message(&host_key(), other, &signed(&host_key(), other), 0), "no session with the key"),
    ] {
        let mut agent = stage.agent();
        assert_eq!(ask(&mut agent, &message).await, FAILURE, "{why}");
        let (method, verdict, reason) = stage.noted().await;
        assert_eq!((method.as_str(), verdict), ("BIND", Verdict::Deny));
        assert!(reason.as_ref().is_some_and(|reason| reason.contains(why)), "{why}: {reason:?}");
        if why == "not forwarded" {
            // What was forwarded once stays so.
            assert_eq!(ask(&mut agent, &bind()).await, FAILURE);
            assert!(stage.noted().await.2.unwrap().contains(why));
        }
        assert_eq!(ask(&mut agent, &sign_message(&public(&user_key()), &login().data())).await, FAILURE);
        let reason = stage.noted().await.2.unwrap();
        let unbound = if why == "not forwarded" { why } else { "belongs to no session" };
        assert!(reason.contains(unbound), "{reason}");
    }
    // Nobody said.
    let mut agent = stage.agent();
    assert_eq!(ask(&mut agent, &sign_message(&public(&user_key()), &login().data())).await, FAILURE);
    assert!(stage.noted().await.2.unwrap().contains("belongs to no session"));
    // Twice, and then forwarded.
    assert_eq!(ask(&mut agent, &bind()).await, SUCCESS);
    assert_eq!(ask(&mut agent, &bind()).await, FAILURE);
    assert!(stage.noted().await.2.unwrap().contains("another session already"));
    assert_eq!(ask(&mut agent, &bind_message(&host_key(), SESSION, &signed(&host_key(), SESSION), 1)).await, FAILURE);
    assert!(stage.noted().await.2.unwrap().contains("not forwarded"));
    assert_eq!(ask(&mut agent, &sign_message(&public(&user_key()), &login().data())).await, FAILURE);
    assert!(stage.noted().await.2.unwrap().contains("not forwarded"));
    // What is over is over.
    let mut agent = stage.agent();
    assert_eq!(ask(&mut agent, &bind()).await, SUCCESS);
    drop(session);
    let event = stage.event(Subject::Connection).await;
    assert_eq!((event.verdict, event.port), (Verdict::Allow, stage.port));
    assert_eq!(ask(&mut agent, &sign_message(&public(&user_key()), &login().data())).await, FAILURE);
    assert_eq!(stage.noted().await.2.as_deref(), Some("the session is over"));
}

#[tokio::test]
async fn a_key_is_for_the_hosts_of_its_own_secret() {
    // The same key, once for another host, and once for another user.
    let port = host().await;
    let at = format!("127.0.0.1:{port}");
    let mut rules = Rules::of_hosts([pattern(&at)]);
    let entry = |binding, user: &str| Entry { binding, host_keys: vec![public(&host_key())], user: user.into() };
    rules.agent = vec![entry(0, "deploy"), entry(1, "git")];
    let elsewhere = Binding { name: "OTHER".into(), placeholder: "0123456789abcdef0123".into(), ..binding("127.0.0.1:9") };
    let bindings = vec![binding(&at), elsewhere];
    let world = World::with_secret(Arc::new(Outside::new()), rules, bindings, Some(value(&user_key()).leak())).await;
    let mut stage = Stage { world, port };
    assert!(stage.refused(&login().data()).await.contains("another host than those that the secret is for"));
    let _session = stage.session().await;
    let mut agent = stage.agent();
    assert_eq!(ask(&mut agent, &bind()).await, SUCCESS);
    let data = Login { user: "deploy", ..login() }.data();
    assert_eq!(ask(&mut agent, &sign_message(&public(&user_key()), &data)).await.first(), Some(&14));
}

#[tokio::test]
async fn the_key_of_a_host_counts_for_its_own_secret_alone() {
    // One secret is for the user and another host's key, one for this host's key and another user.
    let port = host().await;
    let at = format!("127.0.0.1:{port}");
    let mut rules = Rules::of_hosts([pattern(&at)]);
    let entry = |binding, host: &PrivateKey, user: &str| Entry { binding, host_keys: vec![public(host)], user: user.into() };
    rules.agent = vec![entry(0, &key(9), "git"), entry(1, &host_key(), "deploy")];
    let other = Binding { name: "OTHER".into(), placeholder: "0123456789abcdef0123".into(), ..binding(&at) };
    let world = World::with_secret(Arc::new(Outside::new()), rules, vec![binding(&at), other], Some(value(&user_key()).leak())).await;
    let reason = Stage { world, port }.refused(&login().data()).await;
    assert!(reason.contains("the login is as `git`"), "{reason}");
}

#[tokio::test]
async fn ssh_passes_only_to_hosts_of_such_a_secret() {
    let mut stage = stage_of(Budget::default(), value(&user_key()), |_, binding| binding.hosts = vec![pattern("127.0.0.1:9")]).await;
    let mut stream = stage.world.connect(Kind::Transparent(format!("127.0.0.1:{}", stage.port).parse().unwrap()));
    stream.write_all(b"SSH-2.0-Client\r\n\r\n").await.unwrap();
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said).await;
    assert!(!said.starts_with(b"SSH-2.0-"), "{said:?}");
    assert_eq!(stage.world.event().await.verdict, Verdict::Deny);
}

#[tokio::test]
async fn uses_end_and_only_signatures_count() {
    let mut stage = stage_of(Budget { uses: Some(1), ..Budget::default() }, value(&user_key()), |_, _| {}).await;
    let _session = stage.session().await;
    let mut agent = stage.agent();
    assert_eq!(ask(&mut agent, &bind()).await, SUCCESS);
    for _ in 0..3 {
        assert_eq!(ask(&mut agent, &[11]).await.first(), Some(&12));
    }
    assert_eq!(ask(&mut agent, &sign_message(&public(&user_key()), &Login { user: "root", ..login() }.data())).await, FAILURE);
    assert!(stage.noted().await.2.is_some());
    assert_eq!(ask(&mut agent, &sign_message(&public(&user_key()), &login().data())).await.first(), Some(&14));
    assert_eq!(stage.noted().await.1, Verdict::Allow);
    assert_eq!(ask(&mut agent, &sign_message(&public(&user_key()), &login().data())).await, FAILURE);
    let event = stage.event(Subject::Request).await;
    assert_eq!((event.verdict, event.rule.as_str()), (Verdict::Deny, "secret-budget"));
}

#[tokio::test]
async fn garbage_closes_and_other_messages_fail() {
    let mut stage = stage().await;
    for bytes in [&[0, 0, 0, 0][..], &[0, 1, 0, 1, 11], &[0xff; 8], &[0, 0, 0, 2, 11, 0], &[0, 0, 0, 3, 13, 0, 0]] {
        let mut agent = stage.agent();
        agent.write_all(bytes).await.unwrap();
        assert!(agent.read_u8().await.is_err(), "{bytes:?}");
        let (method, verdict, reason) = stage.noted().await;
        assert_eq!((method.as_str(), verdict), ("ASK", Verdict::Deny));
        assert!(reason.unwrap().contains("no message of its protocol"));
    }
    let mut agent = stage.agent();
    // Adding, removing, locking, and a question what else there is.
    for message in [vec![17, 0, 0], vec![18], vec![19], vec![22], vec![25], strings(27, &[b"query"], b"")] {
        assert_eq!(ask(&mut agent, &message).await, FAILURE);
        assert!(stage.noted().await.2.unwrap().contains(&format!("(message {})", message[0])));
    }
    assert_eq!(ask(&mut agent, &[11]).await.first(), Some(&12), "and it still answers");
}

#[tokio::test]
async fn there_is_no_agent_for_a_sandbox_without_keys() {
    let stage = stage_of(Budget::default(), value(&user_key()), |rules, _| rules.agent.clear()).await;
    let mut agent = stage.agent();
    let _ = agent.write_all(&[0, 0, 0, 1, 11]).await;
    assert!(agent.read_u8().await.is_err());
    // And SSH is nothing that passes.
    let mut stream = stage.world.connect(Kind::Transparent(format!("127.0.0.1:{}", stage.port).parse().unwrap()));
    stream.write_all(b"SSH-2.0-Client\r\n\r\n").await.unwrap();
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said).await;
    assert!(!said.starts_with(b"SSH-2.0-"), "{said:?}");
}

#[derive(Debug)]
struct Never;

impl Judge for Never {
    fn judge(&self, asked: &Asked<'_>) -> Result<(), Denied> {
        assert_eq!((asked.method, asked.path, asked.secret), ("CONNECT", "/", Some("TOKEN")));
        Err(Denied { rule: "mine".into(), why: "never".into() })
    }
}

#[tokio::test]
async fn rules_that_look_inside_keep_sessions_from_passing() {
    use stockade_egress::rules::{HostRule, Methods};
    let narrow = |rules: &mut Rules, binding: &mut Binding| {
        let rule = HostRule::allow(binding.hosts[0].clone());
        rules.narrower = vec![vec![HostRule { methods: Methods::Only(vec![http::Method::GET]), ..rule }]];
    };
    let judged = |rules: &mut Rules, _: &mut Binding| rules.judge = Some(Arc::new(Never));
    let changes: [Change; 2] = [Box::new(narrow), Box::new(judged)];
    for (change, why) in changes.into_iter().zip(["`CONNECT` is not an allowed method", "never"]) {
        let mut stage = stage_of(Budget::default(), value(&user_key()), change).await;
        let mut stream = stage.world.connect(Kind::Transparent(format!("127.0.0.1:{}", stage.port).parse().unwrap()));
        stream.write_all(b"SSH-2.0-Client\r\n").await.unwrap();
        assert!(stream.read_u8().await.is_err());
        let event = stage.world.event().await;
        assert_eq!(event.verdict, Verdict::Deny);
        assert!(event.reason.as_ref().is_some_and(|reason| reason.contains(why)), "{event:?}");
    }
}

#[tokio::test]
async fn a_certificate_is_shown_and_signed_with() {
    let user = user_key();
    let mut builder = certificate::Builder::new(vec![7; 16], user.public_key().key_data().clone(), 0, u64::MAX - 1).unwrap();
    builder.valid_principal("git").unwrap().key_id("k").unwrap();
    let certificate = builder.sign(&key(3)).unwrap();
    let blob = certificate.to_bytes().unwrap();
    let both = format!("{} {}", value(&user), certificate.to_openssh().unwrap());
    let mut stage = stage_of(Budget::default(), both, |_, _| {}).await;
    let _session = stage.session().await;
    let mut agent = stage.agent();
    assert_eq!(ask(&mut agent, &bind()).await, SUCCESS);
    let identities = [blob.clone(), public(&user)].map(|shown| (shown, "TOKEN".to_owned()));
    assert_eq!(ask(&mut agent, &[11]).await, message::Answer::Identities(identities.into()).bytes()[4..]);
    let login = Login { key: blob.clone(), algorithm: "ssh-ed25519-cert-v01@openssh.com", ..login() };
    assert_eq!(ask(&mut agent, &sign_message(&blob, &login.data())).await.first(), Some(&14));
    assert_eq!(stage.noted().await.1, Verdict::Allow);
}

#[test]
fn values_that_are_no_keys_say_nothing_of_themselves() {
    use stockade_egress::SecretValue;
    use stockade_egress::agent::keys::{BadKey, Key};
    let parse = |text: &str| Key::parse(&SecretValue::new(text.as_bytes().to_vec()).unwrap()).err();
    let good = value(&user_key());
    assert_eq!(parse(&good), None);
    assert_eq!(parse("a token and no key at all"), Some(BadKey::Form));
    assert_eq!(parse(&good.replace("OPENSSH", "RSA")), Some(BadKey::Form));
    assert_eq!(parse(&format!("{good} ssh-ed25519 AAAA")), Some(BadKey::Certificate));
    let mut builder = certificate::Builder::new(vec![7; 16], key(9).public_key().key_data().clone(), 0, u64::MAX - 1).unwrap();
    builder.all_principals_valid().unwrap();
    let others = builder.sign(&key(3)).unwrap().to_openssh().unwrap();
    assert_eq!(parse(&format!("{good} {others}")), Some(BadKey::Certificate), "another key's");
}
