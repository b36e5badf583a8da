//! The broker, its connections and who may use them, end to end.

use std::future::Future;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::pin::pin;
use std::process::Command;
use std::sync::{Arc, OnceLock, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant, SystemTime};

use serde_json::json;
use stockade_core::credential::Class;
use stockade_store::settings::{SecretSetting, SecretSource};

use crate::broker::{After, Bound, Broker, SandboxLabel, Wish};
use crate::client::{ClientError, Lookup, Owner};
use crate::mint::stand_in::StandIn;
use crate::peer::Only;
use crate::server::Made;
use crate::sources::Surroundings;
use crate::store::Store;
use crate::talk::VERSION;
use crate::talk::frame;
use crate::talk::message::{Ask, Refusal, Reply, Role};
use crate::ticket::Signer;
use crate::{SecretName, SecretValue, server};

const VALUE: &str = "ghp_aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0eF3hJ6";

struct Ground {
    root: tempfile::TempDir,
    broker: Arc<Broker>,
    signer: OnceLock<Arc<Signer>>,
}

fn ground(settings: Vec<SecretSetting>) -> Ground {
    let root = tempfile::tempdir().unwrap();
    let store = Store::beneath(&root.path().join("state"));
    store.set(&name("KEPT"), &value(VALUE), SystemTime::now()).unwrap();
    let around = Surroundings { store, path: "/usr/bin:/bin".into(), home: root.path().to_owned() };
    Ground { root, broker: Arc::new(Broker::new(settings, around)), signer: OnceLock::new() }
}

impl Ground {
    /// A connection that was made for somebody, served by a thread.
    fn connection(&self, made: Made) -> UnixStream {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let broker = Arc::clone(&self.broker);
        std::thread::spawn(move || server::serve(&broker, theirs, made));
        ours
    }

    /// A connection as it comes over the socket.
    fn caller(&self) -> UnixStream {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let broker = Arc::clone(&self.broker);
        std::thread::spawn(move || server::admit(&broker, theirs));
        ours
    }

    /// The one who started the broker; later ones come over the socket and have its signer.
    fn owner(&self) -> Owner {
        if let Some(signer) = self.signer.get() {
            return Owner::join(self.caller(), Arc::clone(signer)).unwrap();
        }
        let owner = Owner::connect(self.connection(Made::ForOwner)).unwrap();
        self.signer.set(owner.signer()).unwrap();
        owner
    }

    fn lookup(&self) -> Lookup {
        Lookup::connect(self.connection(Made::ForEgress), None).unwrap()
    }
}

/// Registers for a call of a test.
trait Give {
    fn give(&mut self, sandbox: &SandboxLabel, wishes: Vec<Wish>) -> Result<Vec<Bound>, ClientError>;
}

impl Give for Owner {
    fn give(&mut self, sandbox: &SandboxLabel, wishes: Vec<Wish>) -> Result<Vec<Bound>, ClientError> {
        self.register(sandbox, "test.call", wishes).map(|registered| registered.bound)
    }
}

fn name(text: &str) -> SecretName {
    text.parse().unwrap()
}

fn value(text: &str) -> SecretValue {
    SecretValue::new(text.as_bytes().to_vec()).unwrap()
}

fn label(text: &str) -> SandboxLabel {
    text.parse().unwrap()
}

fn wish(text: &str, caller: Option<&str>) -> Wish {
    Wish { binding: text.parse().unwrap(), caller: caller.map(value), class: Class::ProxyOnly, behind: Vec::new() }
}

fn setting(text: &str, source: SecretSource) -> SecretSetting {
    SecretSetting::new(name(text), source)
}

fn sh(script: String) -> SecretSource {
    SecretSource::Command { argv: vec!["sh".to_owned(), "-c".to_owned(), script] }
}

/// Drives a future on this thread.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

fn refusal<T: std::fmt::Debug>(answer: Result<T, ClientError>) -> (Refusal, String) {
    match answer {
        Err(ClientError::Refused { why, message, hint }) => (why, format!("{message}; {hint}")),
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn a_sandbox_gets_placeholders_and_egress_the_values() {
    let ground = ground(vec![setting("PRINTED", sh(format!("echo printed-{VALUE}")))]);
    let (mut owner, lookup) = (ground.owner(), ground.lookup());
    let wishes = vec![
        wish("KEPT@a.com", Some("the callers variable loses")),
        wish("CALLER@a.com,b.com", Some("the-callers-own-value")),
        wish("PRINTED@c.com", None),
    ];
    let bound: Vec<Bound> = owner.give(&label("box"), wishes).unwrap();
    assert_eq!(bound.iter().map(|b| b.binding.to_string()).collect::<Vec<_>>(), ["KEPT@a.com", "CALLER@a.com,b.com", "PRINTED@c.com"]);
    assert!(bound[0].placeholder.as_str().starts_with("ghp_") && bound[0].placeholder.as_str() != VALUE);
    for (name_, expected) in
        [("KEPT", VALUE.to_owned()), ("CALLER", "the-callers-own-value".to_owned()), ("PRINTED", format!("printed-{VALUE}"))]
    {
        assert_eq!(*block_on(lookup.value(&label("box"), &name(name_))).unwrap(), value(&expected), "{name_}");
        assert_eq!(*lookup.value_blocking(&label("box"), &name(name_)).unwrap(), value(&expected), "{name_}");
    }
    // Another sandbox of the same secrets has other placeholders.
    let other = owner.give(&label("other"), vec![wish("KEPT@a.com", None)]).unwrap();
    assert_ne!(other[0].placeholder, bound[0].placeholder);
}

#[test]
fn what_is_not_registered_is_refused() {
    let ground = ground(Vec::new());
    let (mut owner, lookup) = (ground.owner(), ground.lookup());
    let ask = |sandbox: &str, secret: &str| refusal(block_on(lookup.value(&label(sandbox), &name(secret)))).0;
    assert_eq!(ask("box", "KEPT"), Refusal::Sandbox);
    owner.give(&label("box"), vec![wish("KEPT@a.com", None)]).unwrap();
    assert_eq!((ask("box", "OTHER"), ask("another", "KEPT")), (Refusal::NotBound, Refusal::Sandbox));
    assert_eq!(refusal(owner.give(&label("box"), Vec::new())).0, Refusal::Sandbox, "registered already");
    let (why, said) = refusal(owner.give(&label("new"), vec![wish("KEPT@a.com", None), wish("NONE@a.com", None)]));
    assert!(why == Refusal::NoValue && said.contains("stockade secret set NONE"), "{said}");
    assert_eq!(ask("new", "KEPT"), Refusal::Sandbox, "all or none");
    assert_eq!(refusal(owner.give(&label("new"), vec![wish("KEPT@a.com", None), wish("KEPT@b.com", None)])).0, Refusal::NotBound);
}

#[test]
fn a_sandbox_is_forgotten_when_released_and_when_its_owner_goes() {
    let ground = ground(Vec::new());
    let (mut owner, lookup) = (ground.owner(), ground.lookup());
    owner.give(&label("one"), vec![wish("KEPT@a.com", None)]).unwrap();
    owner.give(&label("two"), vec![wish("KEPT@a.com", None)]).unwrap();
    ground.owner().release(&label("one")).unwrap();
    block_on(lookup.value(&label("one"), &name("KEPT"))).expect("another owner cannot end it");
    owner.release(&label("one")).unwrap();
    lookup.forget(&label("one"));
    assert_eq!(refusal(block_on(lookup.value(&label("one"), &name("KEPT")))).0, Refusal::Sandbox);
    drop(owner);
    let end = Instant::now() + Duration::from_secs(20);
    while block_on(lookup.spend(&label("two"), &name("KEPT"), 0)).is_ok() {
        assert!(Instant::now() < end, "never forgotten");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(refusal(block_on(lookup.value(&label("two"), &name("KEPT")))).0, Refusal::Sandbox);
}

#[test]
fn who_owns_a_sandbox_has_messages_signed_and_never_sees_the_key() {
    let ground = ground(Vec::new());
    let mut owner = ground.owner();
    let wishes = vec![wish("KEPT@a.com", None), wish("WORDS@a.com", Some("whsec_this is no base64"))];
    owner.give(&label("gateway"), wishes).unwrap();
    let signature = owner.sign(&label("gateway"), &name("KEPT"), b"msg_1.1.{}").unwrap();
    let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, VALUE.as_bytes());
    aws_lc_rs::hmac::verify(&key, b"msg_1.1.{}", &signature).expect("the key that was kept");
    assert_eq!(refusal(owner.sign(&label("gateway"), &name("WORDS"), b"x")).0, Refusal::NoValue);
    assert_eq!(refusal(owner.sign(&label("gateway"), &name("OTHER"), b"x")).0, Refusal::NotBound);
    assert_eq!(refusal(owner.sign(&label("another"), &name("KEPT"), b"x")).0, Refusal::Sandbox);
    // Egress puts values into requests, and signs nothing.
    let mut stream = ground.connection(Made::ForEgress);
    let mut say = |ask: Ask| {
        frame::write(&mut stream, &ask.encode()).unwrap();
        Reply::decode(&frame::read(&mut stream).unwrap().unwrap()).unwrap()
    };
    say(Ask::Hello { version: VERSION, role: Role::Egress { pass: None } });
    let reply = say(Ask::Sign { id: 1, sandbox: label("gateway"), name: name("KEPT"), message: b"x".to_vec() });
    assert!(matches!(reply, Reply::Refused { why: Refusal::Role, .. }), "{reply:?}");
}

#[test]
fn roles_are_kept_apart() {
    let ground = ground(Vec::new());
    ground.owner().give(&label("box"), vec![wish("KEPT@a.com", None)]).unwrap();
    let mut stream = ground.caller();
    let mut say = |ask: Ask| {
        frame::write(&mut stream, &ask.encode()).unwrap();
        Reply::decode(&frame::read(&mut stream).unwrap().unwrap()).unwrap()
    };
    say(Ask::Hello { version: VERSION, role: Role::Owner { key: None } });
    let reply = say(Ask::Value { id: 1, sandbox: label("box"), name: name("KEPT") });
    assert!(matches!(reply, Reply::Refused { why: Refusal::Role, .. }), "{reply:?}");
    // A connection that was made for one role cannot be used as another.
    let refused = Lookup::connect(ground.connection(Made::ForOwner), None);
    assert!(matches!(refused, Err(ClientError::Gone(_))), "{refused:?}");
}

#[test]
fn over_the_socket_a_ticket_and_a_pass_are_needed() {
    let ground = ground(Vec::new());
    let mut owner = ground.owner();
    let given = owner.register(&label("one"), "git.log", vec![wish("KEPT@a.com", None)]).unwrap();
    owner.register(&label("two"), "git.log", vec![wish("KEPT@a.com", None)]).unwrap();
    // Whoever comes over the socket says for which sandbox, and has its pass.
    for pass in [None, Some([0; 16])] {
        assert!(matches!(Lookup::connect(ground.caller(), pass), Err(ClientError::Gone(_))));
    }
    let lookup = Lookup::connect(ground.caller(), Some(given.pass)).unwrap();
    assert_eq!(*block_on(lookup.value(&label("one"), &name("KEPT"))).unwrap(), value(VALUE));
    assert_eq!(refusal(block_on(lookup.value(&label("two"), &name("KEPT")))).0, Refusal::Sandbox);
    assert_eq!(refusal(block_on(lookup.spend(&label("two"), &name("KEPT"), 1))).0, Refusal::Sandbox);
    // Nobody else's tickets are taken, and nobody else says whose are.
    let mut stranger = Owner::join(ground.caller(), Arc::new(Signer::new().unwrap())).unwrap();
    assert_eq!(refusal(stranger.give(&label("three"), vec![wish("KEPT@a.com", None)])).0, Refusal::Role);
    assert!(matches!(Owner::connect(ground.caller()), Err(ClientError::Gone(_))));
    assert!(matches!(Owner::connect(ground.connection(Made::ForOwner)), Err(ClientError::Gone(_))));
    // A ticket is for one sandbox, once.
    let wishes = || vec![wish("KEPT@a.com", None)];
    let ticket = owner.signer().ticket(&label("four"), "git.log", &wishes(), SystemTime::now()).unwrap();
    assert_eq!(refusal(owner.present(&label("five"), "git.log", ticket, wishes(), &|| true)).0, Refusal::Role);
    assert_eq!(refusal(owner.present(&label("four"), "git.push", ticket, wishes(), &|| true)).0, Refusal::Role);
    owner.present(&label("four"), "git.log", ticket, wishes(), &|| true).unwrap();
    owner.release(&label("four")).unwrap();
    assert_eq!(refusal(owner.present(&label("four"), "git.log", ticket, wishes(), &|| true)).0, Refusal::Role, "used");
}

#[test]
fn what_is_given_out_in_a_minute_is_bounded() {
    let limited = SecretSetting { max_per_minute: Some(2), ..setting("KEPT", SecretSource::Store) };
    let ground = ground(vec![limited]);
    let (mut owner, lookup) = (ground.owner(), ground.lookup());
    for sandbox in ["one", "two"] {
        owner.give(&label(sandbox), vec![wish("KEPT@a.com", None)]).unwrap();
    }
    for sandbox in ["one", "two"] {
        block_on(lookup.value(&label(sandbox), &name("KEPT"))).unwrap();
    }
    let (why, said) = refusal(block_on(lookup.value(&label("one"), &name("KEPT"))));
    assert!(why == Refusal::UsedUp && said.contains("maxPerMinute"), "{said}");
}

#[test]
fn what_is_no_conversation_is_closed() {
    let ground = ground(Vec::new());
    let hello = Ask::Hello { version: VERSION, role: Role::Egress { pass: None } }.encode();
    for bodies in
        [vec![&b"nonsense"[..]], vec![&[4, 0][..]], vec![b""], vec![&hello, &hello], vec![&hello, b"\xff"], vec![&[1, 0, 9, 1][..]]]
    {
        let mut stream = ground.connection(Made::ForEgress);
        for body in &bodies {
            // The other end may have closed before the last one.
            let _ = frame::write(&mut stream, body);
        }
        let answers = std::iter::from_fn(|| frame::read(&mut stream).ok().flatten()).count();
        assert!(answers <= 1, "{bodies:?}");
    }
}

#[test]
fn budgets_are_counted_per_sandbox() {
    let limited = |text: &str| setting(text, SecretSource::Env { variable: name(text) });
    let uses = SecretSetting { max_uses: Some(3), ..limited("USES") };
    let bytes = SecretSetting { max_bytes: Some(100), ..limited("BYTES") };
    let time = SecretSetting { max_seconds: Some(3600), ..limited("TIME") };
    let ground = ground(vec![uses, bytes, time]);
    let (mut owner, lookup) = (ground.owner(), ground.lookup());
    for sandbox in ["one", "two"] {
        let wishes = ["USES@a.com", "BYTES@a.com", "TIME@a.com"].map(|text| wish(text, Some("the-callers-own-value")));
        owner.give(&label(sandbox), wishes.into()).unwrap();
        for _ in 0..3 {
            block_on(lookup.value(&label(sandbox), &name("USES"))).unwrap();
        }
        let (why, said) = refusal(block_on(lookup.value(&label(sandbox), &name("USES"))));
        assert!(why == Refusal::UsedUp && said.contains("3 times"), "{said}");
        block_on(lookup.value(&label(sandbox), &name("BYTES"))).unwrap();
        block_on(lookup.spend(&label(sandbox), &name("BYTES"), 60)).unwrap();
        block_on(lookup.value(&label(sandbox), &name("BYTES"))).unwrap();
        assert_eq!(refusal(block_on(lookup.spend(&label(sandbox), &name("BYTES"), 60))).0, Refusal::UsedUp);
        assert_eq!(refusal(block_on(lookup.value(&label(sandbox), &name("BYTES")))).0, Refusal::UsedUp, "what was kept is dropped");
        let held = block_on(lookup.held(&label(sandbox), &name("TIME"))).unwrap();
        assert!(held.expires.is_some(), "the budget's end is the value's");
    }
}

#[test]
fn the_settings_bound_the_hosts() {
    let host = |text: &str| crate::HostPattern::parse(text).unwrap();
    let bounded = SecretSetting { hosts: vec![host("api.a.com"), host("*.b.com")], ..setting("KEPT", SecretSource::Store) };
    let ground = ground(vec![bounded]);
    let mut owner = ground.owner();
    for good in ["KEPT@api.a.com", "KEPT@x.b.com,api.a.com:443", "KEPT@*.b.com"] {
        owner.give(&label("good"), vec![wish(good, None)]).unwrap();
        owner.release(&label("good")).unwrap();
    }
    for bad in ["KEPT@a.com", "KEPT@api.a.com,evil.com", "KEPT@*.com", "KEPT@*.a.com", "KEPT@api.a.com:8443"] {
        let (why, said) = refusal(owner.give(&label("bad"), vec![wish(bad, None)]));
        assert!(why == Refusal::NotBound && said.contains("secrets.KEPT.hosts"), "{bad}: {said}");
    }
}

#[test]
fn many_askers_start_one_program() {
    let root = tempfile::tempdir().unwrap();
    let log = root.path().join("log");
    // The first value is good for a second at most.
    let script = format!(
        "echo x >> {0}; sleep 0.2; [ $(wc -l < {0}) = 1 ] && good=1 || good=3600; printf '{{\"value\":\"{VALUE}\",\"expires\":%s}}' $(($(date +%s) + good))",
        log.display()
    );
    let ground = ground(vec![setting("PRINTED", sh(script))]);
    let mut owner = ground.owner();
    owner.give(&label("box"), vec![wish("PRINTED@a.com", None)]).unwrap();
    std::thread::sleep(Duration::from_millis(1100));
    let lookup = ground.lookup();
    std::thread::scope(|scope| {
        let asked: Vec<_> = (0..20).map(|_| scope.spawn(|| lookup.value_blocking(&label("box"), &name("PRINTED")))).collect();
        for answer in asked {
            assert_eq!(*answer.join().unwrap().unwrap(), value(VALUE));
        }
    });
    assert_eq!(std::fs::read_to_string(&log).unwrap(), "x\nx\n", "once to register, once for all twenty");
}

#[test]
fn everybody_is_told_when_the_broker_goes() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let (go, wait) = mpsc::channel::<()>();
    std::thread::spawn(move || {
        frame::read(&mut theirs).unwrap();
        frame::write(&mut theirs, &Reply::Welcome { version: VERSION }.encode()).unwrap();
        // Takes the question and dies.
        frame::read(&mut theirs).unwrap();
        let _ = wait.recv();
    });
    let lookup = Lookup::connect(ours, None).unwrap();
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| block_on(lookup.value(&label("box"), &name("A"))));
        drop(go);
        assert!(matches!(asked.join().unwrap(), Err(ClientError::Gone(_))));
    });
    assert!(matches!(block_on(lookup.value(&label("box"), &name("A"))), Err(ClientError::Gone(_))));
}

#[test]
fn a_connection_serves_one_call_after_another() {
    let ground = ground(Vec::new());
    let mut owner = ground.owner();
    for _ in 0..3 {
        // One that is not forgotten could not be registered again.
        owner.give(&label("box"), vec![wish("KEPT@a.com", None)]).unwrap();
        owner.leave(&label("box")).unwrap();
    }
    owner.leave(&label("box")).unwrap();
    owner.give(&label("box"), vec![wish("KEPT@a.com", None)]).unwrap();
    assert_eq!(refusal(owner.give(&label("box"), vec![wish("KEPT@a.com", None)])).0, Refusal::Sandbox);
    owner.release(&label("box")).unwrap();
    assert!(owner.is_there());
}

#[test]
fn a_broker_that_is_gone_is_noticed_without_asking() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let (go, wait) = mpsc::channel::<()>();
    let broker = std::thread::spawn(move || {
        frame::read(&mut theirs).unwrap();
        frame::write(&mut theirs, &Reply::Welcome { version: VERSION }.encode()).unwrap();
        let _ = wait.recv();
    });
    let owner = Owner::connect(ours).unwrap();
    assert!(owner.is_there());
    drop(go);
    broker.join().unwrap();
    assert!(!owner.is_there());
}

#[test]
fn many_are_served_at_once_and_one_after_another() {
    let ground = ground(Vec::new());
    let signer = ground.owner().signer();
    let path = ground.root.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let (pair, _other) = UnixStream::pair().unwrap();
    let (broker, only) = (Arc::clone(&ground.broker), Only::who_made(&pair).unwrap());
    std::thread::spawn(move || server::listen(&broker, listener, Some(only)));
    for round in 0..3 {
        // More than wait at a time, and all of them there until the last is served.
        let owners: Vec<(Owner, Lookup)> = (0..20)
            .map(|number| {
                let mut owner = Owner::join(UnixStream::connect(&path).unwrap(), Arc::clone(&signer)).unwrap();
                let sandbox = label(&format!("box-{round}-{number}"));
                let given = owner.register(&sandbox, "git.log", vec![wish("KEPT@a.com", None)]).unwrap();
                let lookup = Lookup::connect(UnixStream::connect(&path).unwrap(), Some(given.pass)).unwrap();
                assert_eq!(*lookup.value_blocking(&sandbox, &name("KEPT")).unwrap(), value(VALUE));
                (owner, lookup)
            })
            .collect();
        assert!(owners.iter().all(|(owner, _)| owner.is_there()));
    }
}

#[test]
fn what_is_one_calls_own_is_said_to_be_given_back() {
    let vault = StandIn::new(|asked| match asked.method.as_str() {
        "GET" => (200, json!({"data": {"f": "leased-0123456789"}, "lease_id": "a/1", "lease_duration": 60})),
        _ => (204, serde_json::Value::Null),
    });
    let written = json!({"V": {"source": "vault", "address": vault.address, "path": "aws/creds/x", "field": "f",
                               "auth": {"method": "token", "token": "KEPT"}}});
    let ground = ground(stockade_store::settings::secrets::from_json(written.as_object().unwrap()).unwrap());
    let mut owner = ground.owner();
    let bound = owner.give(&label("box"), vec![wish("V@a.com", None), wish("KEPT@a.com", None)]).unwrap();
    assert_eq!([bound[0].fact.after, bound[1].fact.after], [After::GivenBack, After::Stays]);
    owner.release(&label("box")).unwrap();
    assert_eq!(vault.asked().last().unwrap().target, "/v1/sys/leases/revoke");
}

#[test]
fn what_was_minted_for_a_call_that_is_refused_is_given_back_or_said_not_to_be() {
    for (back, says) in
        [(204, None), (503, Some("the credential of `V` could not be given back: giving a lease back to Vault: it answers 503"))]
    {
        let vault = StandIn::new(move |asked| match asked.method.as_str() {
            "GET" => (200, json!({"data": {"f": "leased-0123456789"}, "lease_id": "a/1", "lease_duration": 60})),
            _ => (back, serde_json::Value::Null),
        });
        let written = json!({"V": {"source": "vault", "address": vault.address, "path": "aws/creds/x", "field": "f",
                                   "auth": {"method": "token", "token": "KEPT"}}});
        let ground = ground(stockade_store::settings::secrets::from_json(written.as_object().unwrap()).unwrap());
        let (why, told) = refusal(ground.owner().give(&label("box"), vec![wish("V@a.com", None), wish("NOWHERE@a.com", None)]));
        assert_eq!(vault.asked().last().unwrap().target, "/v1/sys/leases/revoke");
        assert!(why == Refusal::NoValue && told.starts_with("there is no value for the secret `NOWHERE`"), "{told}");
        assert_eq!(says.is_some(), told.contains("given back"), "{told}");
        assert!(says.is_none_or(|says| told.contains(says)), "{told}");
    }
}

#[test]
fn a_provider_is_asked_with_a_variable_of_the_caller_for_that_caller_alone() {
    let vault = StandIn::new(|asked| match (asked.target.as_str(), asked.header("x-vault-token")) {
        ("/v1/auth/approle/login", _) => {
            let body: serde_json::Value = serde_json::from_str(&asked.body).unwrap();
            let token = format!("hvs.of-{}", body["secret_id"].as_str().unwrap());
            (200, json!({"auth": {"client_token": token, "lease_duration": 60, "token_type": "batch"}}))
        }
        (_, token) => (200, json!({"data": {"f": format!("read-with-{token}")}})),
    });
    let written = json!({
        "V": {"source": "vault", "address": vault.address, "path": "secret/x", "field": "f", "cache": "shared",
              "auth": {"method": "approle", "roleId": "r", "secretId": "SID"}},
        "W": {"source": "vault", "address": vault.address, "path": "secret/y", "field": "f", "auth": {"method": "token", "token": "V"}},
        "SID": {"source": "env", "variable": "CI_SID"},
    });
    let settings = stockade_store::settings::secrets::from_json(written.as_object().unwrap()).unwrap();
    for secret in ["V", "W"] {
        assert_eq!(Broker::variables_behind(&settings, &name(secret)), [(name("SID"), name("CI_SID"))]);
    }
    assert!(Broker::variables_behind(&settings, &name("SID")).is_empty() && Broker::variables_behind(&settings, &name("X")).is_empty());
    let ground = ground(settings);
    let mut owner = ground.owner();
    let lookup = ground.lookup();
    for (at, own) in [("one", "sid-111111111111"), ("two", "sid-222222222222")] {
        for (secret, expected) in [("V", format!("read-with-hvs.of-{own}")), ("W", format!("read-with-read-with-hvs.of-{own}"))] {
            let sandbox = label(&format!("{at}-{}", secret.to_lowercase()));
            let wish = Wish { behind: vec![(name("SID"), value(own))], ..wish(&format!("{secret}@a.com"), None) };
            owner.give(&sandbox, vec![wish]).unwrap();
            let had = block_on(lookup.value(&sandbox, &name(secret))).unwrap();
            assert_eq!(had.to_text().as_str(), expected);
        }
    }
    let (_, told) = refusal(owner.give(&label("three"), vec![wish("V@a.com", None)]));
    assert!(told.contains("no variable `CI_SID`"), "{told}");
}

#[test]
fn a_refresh_token_is_no_variable() {
    let written = json!({
        "T": {"source": "oauth", "tokenEndpoint": "http://127.0.0.1:9/token", "clientId": "c", "grant": {"type": "refresh-token", "refreshToken": "R"}},
        "R": {"source": "env"},
    });
    let settings = stockade_store::settings::secrets::from_json(written.as_object().unwrap()).unwrap();
    assert!(Broker::variables_behind(&settings, &name("T")).is_empty());
    let (_, told) = refusal(ground(settings).owner().give(&label("box"), vec![wish("T@a.com", None)]));
    assert!(told.contains("a refresh token is renewed"), "{told}");
}

#[test]
fn a_secret_that_is_needed_for_itself_is_refused_and_nobody_waits() {
    let oauth = |client_secret: &str| {
        json!({"source": "oauth", "tokenEndpoint": "http://127.0.0.1:9/token", "clientId": "c", "clientSecret": client_secret,
               "grant": {"type": "client-credentials"}})
    };
    let renewed = json!({"source": "oauth", "tokenEndpoint": "http://127.0.0.1:9/token", "clientId": "c",
                         "grant": {"type": "refresh-token", "refreshToken": "R"}});
    let written = json!({"K": oauth("K"), "A": oauth("B"), "B": oauth("C"), "C": oauth("A"), "INTO": oauth("A"), "R": renewed, "FINE": oauth("KEPT")});
    let ground = ground(stockade_store::settings::secrets::from_json(written.as_object().unwrap()).unwrap());
    let mut owner = ground.owner();
    for (secret, way) in [("K", "K → K"), ("A", "A → B → C → A"), ("INTO", "INTO → A → B → C → A"), ("R", "R → R")] {
        let (_, told) = refusal(owner.give(&label("box"), vec![wish(&format!("{secret}@a.com"), None)]));
        assert!(told.contains("needed to ask for itself") && told.contains(way), "{told}");
    }
    // Each for the other, at once.
    let (_, told) = refusal(owner.give(&label("box"), vec![wish("A@a.com", None), wish("B@b.com", None), wish("C@c.com", None)]));
    assert!(told.contains("needed to ask for itself"), "{told}");
    let (_, told) = refusal(owner.give(&label("box"), vec![wish("FINE@a.com", None)]));
    assert!(told.contains("cannot be reached"), "{told}");
}

#[test]
fn what_a_provider_refuses_is_told_apart_from_what_it_never_saw() {
    for (status, expected) in [(400, Refusal::Provider), (403, Refusal::Provider), (429, Refusal::NoValue), (500, Refusal::NoValue)] {
        let vault = StandIn::new(move |_| (status, json!({"errors": ["no"]})));
        let written = json!({"V": {"source": "vault", "address": vault.address, "path": "secret/x", "field": "f",
                                   "auth": {"method": "token", "token": "KEPT"}}});
        let ground = ground(stockade_store::settings::secrets::from_json(written.as_object().unwrap()).unwrap());
        assert_eq!(refusal(ground.owner().give(&label("box"), vec![wish("V@a.com", None)])).0, expected, "{status}");
    }
}

/// Connects, says hello as an owner, and prints how many bytes of an answer came.
const CALLER: &str = "import socket, sys
s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])
try: s.sendall(b'\\0\\0\\0\\4\\1\\0\\4\\1'); print(len(s.recv(99)))
except (BrokenPipeError, ConnectionResetError): print(0)";

#[test]
fn other_users_and_those_in_a_namespace_of_their_own_are_turned_away() {
    let ground = ground(Vec::new());
    let path = ground.root.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    // Wide open, so that only the broker itself is in the way.
    std::fs::set_permissions(ground.root.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).unwrap();
    let broker = Arc::clone(&ground.broker);
    std::thread::spawn(move || server::listen(&broker, listener, None));
    let answer = |through: &[&str]| {
        let words: Vec<&str> = through.iter().copied().chain(["/usr/bin/python3", "-c", CALLER, path.to_str().unwrap()]).collect();
        #[expect(clippy::disallowed_methods, reason = "a test is somebody else")]
        let output = Command::new(words[0]).args(&words[1..]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(answer(&[]), "7", "our own are welcome");
    assert_eq!(answer(&["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]), "0", "another user");
    assert_eq!(answer(&["unshare", "--pid", "--fork"]), "0", "inside");
}
