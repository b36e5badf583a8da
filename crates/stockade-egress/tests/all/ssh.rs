//! Git over SSH: sessions with a host that speaks SSH in this process, and does by a repository's name what real ones do only now and then.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use russh::keys::PrivateKey;
use russh::keys::ssh_key::private::Ed25519Keypair;
use russh::keys::ssh_key::{LineEnding, certificate};
use russh::server::{self, Auth, ChannelOpenHandle, Msg, Session, VerifiedPublicKey};
use russh::{Channel, ChannelId};
use stockade_core::id::SandboxId;
use stockade_egress::desk::{Entry, Kind as Asker};
use stockade_egress::rules::judge::{Asked, Denied, Judge};
use stockade_egress::secrets::binding::{Budget, Form};
use stockade_egress::ssh::{Access, Use};
use stockade_egress::{Binding, Desk, Event, Kind, Rules, Verdict};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, UnixStream};

use crate::world::{Outside, World, binding, pattern};

const TOKEN: &str = "desk-token-desk-token-desk-token-0";
/// What is said at one time.
const PIECE: usize = 32 << 10;
/// More than all that may wait between two ends: windows of SSH, queues, and buffers of the kernel.
const MUCH: u64 = 32 << 20;
const OUTPUT: u8 = 1;
const EXIT: u8 = 3;
const BROKEN: u8 = 4;

fn key(seed: u8) -> PrivateKey {
    PrivateKey::from(Ed25519Keypair::from_seed(&[seed; 32]))
}

fn public(seed: u8) -> String {
    key(seed).public_key().to_openssh().unwrap()
}

/// The key that logs in, as a secret's value.
fn value() -> String {
    key(1).to_openssh(LineEnding::LF).unwrap().replace('\n', "")
}

/// What the host saw, and how much it passed.
#[derive(Default)]
struct Notes {
    seen: Mutex<Vec<String>>,
    bytes: AtomicU64,
}

impl Notes {
    fn see(&self, what: impl Into<String>) {
        self.seen.lock().unwrap().push(what.into());
    }

    fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }

    /// Waits until the host saw this.
    async fn saw(&self, what: &str) {
        for _ in 0..1000 {
            if self.seen().iter().any(|seen| seen == what) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("{what}: {:?}", self.seen());
    }

    /// Waits until nothing passes any more; there was not much.
    async fn stands_still(&self) -> u64 {
        let (mut before, mut still) = (0, 0);
        while still < 20 {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let now = self.bytes.load(Ordering::SeqCst);
            assert!(now < MUCH, "{now} bytes went where nobody takes them");
            still = if now == before && now > 0 { still + 1 } else { 0 };
            before = now;
        }
        before
    }
}

/// One connection at the host.
struct Host {
    notes: Arc<Notes>,
    channel: Option<Channel<Msg>>,
}

impl server::Handler for Host {
    type Error = russh::Error;

    async fn auth_publickey(&mut self, user: &str, shown: VerifiedPublicKey<'_>) -> Result<Auth, Self::Error> {
        let is_known = shown.public_key.key_data() == key(1).public_key().key_data();
        self.notes.see(format!("login {user} {is_known}"));
        Ok(if is_known { Auth::Accept } else { Auth::reject() })
    }

    async fn channel_open_session(&mut self, channel: Channel<Msg>, reply: ChannelOpenHandle, _: &mut Session) -> Result<(), Self::Error> {
        self.notes.see("channel");
        self.channel = Some(channel);
        reply.accept().await;
        Ok(())
    }

    async fn env_request(&mut self, _: ChannelId, name: &str, value: &str, _: &mut Session) -> Result<(), Self::Error> {
        self.notes.see(format!("env {name}={value}"));
        Ok(())
    }

    async fn pty_request(
        &mut self,
        _: ChannelId,
        _: &str,
        _: u32,
        _: u32,
        _: u32,
        _: u32,
        _: &[(russh::Pty, u32)],
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        self.notes.see("pty");
        Ok(())
    }

    async fn shell_request(&mut self, _: ChannelId, _: &mut Session) -> Result<(), Self::Error> {
        self.notes.see("shell");
        Ok(())
    }

    async fn subsystem_request(&mut self, _: ChannelId, name: &str, _: &mut Session) -> Result<(), Self::Error> {
        self.notes.see(format!("subsystem {name}"));
        Ok(())
    }

    async fn agent_request(&mut self, _: ChannelId, _: &mut Session) -> Result<bool, Self::Error> {
        self.notes.see("agent");
        Ok(true)
    }

    async fn tcpip_forward(&mut self, _: &str, _: &mut u32, _: &mut Session) -> Result<bool, Self::Error> {
        self.notes.see("forward");
        Ok(true)
    }

    async fn exec_request(&mut self, id: ChannelId, command: &[u8], session: &mut Session) -> Result<(), Self::Error> {
        let command = String::from_utf8(command.to_vec()).unwrap();
        self.notes.see(format!("exec {command}"));
        session.channel_success(id)?;
        let channel = self.channel.take().unwrap();
        let (notes, handle) = (Arc::clone(&self.notes), session.handle());
        tokio::spawn(async move { run(&command, channel, &notes, &handle).await });
        Ok(())
    }
}

/// What a repository does.
async fn run(command: &str, mut channel: Channel<Msg>, notes: &Notes, handle: &server::Handle) {
    let name = command.rsplit('/').next().unwrap().trim_end_matches('\'');
    match name {
        "echo" => {
            let mut said = Vec::new();
            channel.make_reader().read_to_end(&mut said).await.unwrap();
            let _ = channel.data(said.as_slice()).await;
        }
        "flood" => {
            let mut writer = channel.make_writer();
            while writer.write_all(&vec![7; PIECE]).await.is_ok() {
                notes.bytes.fetch_add(PIECE as u64, Ordering::SeqCst);
            }
        }
        "deaf" | "silent" => std::future::pending().await,
        "counts" => {
            let mut piece = vec![0; PIECE];
            let mut reader = channel.make_reader();
            while let Ok(count @ 1..) = reader.read(&mut piece).await {
                notes.bytes.fetch_add(count as u64, Ordering::SeqCst);
            }
        }
        "opens" => {
            let opened = [
                handle.channel_open_session().await.is_ok(),
                handle.channel_open_agent().await.is_ok(),
                handle.channel_open_x11("127.0.0.1", 1).await.is_ok(),
                handle.channel_open_forwarded_tcpip("127.0.0.1", 1, "127.0.0.1", 1).await.is_ok(),
                handle.channel_open_direct_tcpip("127.0.0.1", 1, "127.0.0.1", 1).await.is_ok(),
                handle.channel_open_forwarded_streamlocal("/s").await.is_ok(),
                handle.channel_open_direct_streamlocal("/s").await.is_ok(),
            ];
            notes.see(format!("opened {}", opened.iter().filter(|opened| **opened).count()));
        }
        _ => notes.see("no such repository"),
    }
    let _ = handle.exit_status_request(channel.id(), 0).await;
    let _ = channel.close().await;
}

/// A host, and a sandbox that may fetch some repositories there.
struct Stage {
    world: World,
    port: u16,
    notes: Arc<Notes>,
}

#[derive(Clone)]
struct Setting {
    how: Use,
    budget: Budget,
    rules: Rules,
    /// Instead of the host's own.
    host: Option<String>,
    value: String,
    /// Beside the one for SSH.
    desk: Vec<Entry>,
}

/// What differs from the usual.
type Change = Box<dyn FnOnce(&mut Setting)>;

async fn stage_of(change: impl FnOnce(&mut Setting)) -> Stage {
    let notes = Arc::new(Notes::default());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let config = Arc::new(server::Config { keys: vec![key(2)], auth_rejection_time: Duration::ZERO, ..server::Config::default() });
    let kept = Arc::clone(&notes);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (config, notes) = (Arc::clone(&config), Arc::clone(&kept));
            tokio::spawn(async move {
                if let Ok(session) = server::run_stream(config, stream, Host { notes: Arc::clone(&notes), channel: None }).await {
                    let _ = session.await;
                }
                notes.see("gone");
            });
        }
    });
    let at = format!("127.0.0.1:{port}");
    let how = Use { user: "git".into(), host_keys: vec![public(2)], repositories: vec!["org/*".parse().unwrap()], access: Access::Fetch };
    let mut setting =
        Setting { how, budget: Budget::default(), rules: Rules::of_hosts([pattern(&at)]), host: None, value: value(), desk: Vec::new() };
    change(&mut setting);
    let Setting { how, budget, rules, host, value, desk } = setting;
    let binding = Binding { budget, form: Form::SshKey, ..binding(host.as_deref().unwrap_or(&at)) };
    let desk = Desk { token: TOKEN.into(), entries: [vec![Entry { binding: 0, kind: Asker::Ssh(how) }], desk].concat() };
    let other = Binding { name: "OTHER".into(), placeholder: "0123456789abcdef0123".into(), ..crate::world::binding("api.example") };
    let world = World::with_desk(Arc::new(Outside::new()), rules, vec![binding, other], Some(value.leak()), Some(desk)).await;
    Stage { world, port, notes }
}

/// What a program inside asks for.
#[derive(Clone)]
struct Wanted<'a> {
    host: &'a str,
    port: Option<u16>,
    user: &'a str,
    command: &'a str,
    more: &'a str,
    /// What is said in the place of something else.
    instead: (&'a str, &'a str),
}

fn fetch(command: &str) -> Wanted<'_> {
    Wanted { host: "127.0.0.1", port: None, user: "git", command, more: "", instead: ("", "") }
}

/// A session as a program inside has it.
struct Inside(UnixStream);

impl Stage {
    async fn asked(&self, wanted: &Wanted<'_>) -> (String, Inside) {
        self.asked_at(Kind::Proxy, wanted).await
    }

    async fn asked_at(&self, way: Kind, wanted: &Wanted<'_>) -> (String, Inside) {
        let Wanted { host, port, user, command, more, instead } = wanted;
        let port = port.unwrap_or(self.port);
        let hex = command.bytes().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
        let mut stream = self.world.connect(way);
        let head = format!(
            "POST /ssh HTTP/1.1\r\nHost: 127.0.0.1:3128\r\nAuthorization: Bearer {TOKEN}\r\nConnection: upgrade\r\nUpgrade: stockade-ssh\r\n\
             Stockade-Host: {host}\r\nStockade-Port: {port}\r\nStockade-User: {user}\r\nStockade-Command: {hex}\r\n{more}\r\n"
        );
        let head = if instead.0.is_empty() { head } else { head.replace(instead.0, instead.1) };
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            answer.push(stream.read_u8().await.unwrap());
        }
        (String::from_utf8(answer).unwrap(), Inside(stream))
    }

    async fn session(&self, command: &str) -> Inside {
        let (answer, inside) = self.asked(&fetch(command)).await;
        assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
        inside
    }

    /// What is said to whoever is refused, and what is recorded.
    async fn refused(&mut self, wanted: &Wanted<'_>) -> (String, Event) {
        let (answer, mut inside) = self.asked(wanted).await;
        assert!(answer.starts_with("HTTP/1.1 4") || answer.starts_with("HTTP/1.1 5"), "{answer}");
        let length = answer.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap().parse().unwrap();
        let mut body = vec![0; length];
        inside.0.read_exact(&mut body).await.unwrap();
        (String::from_utf8(body).unwrap(), self.world.event().await)
    }
}

impl Inside {
    async fn say(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.0.write_all(&[&[0][..], &(bytes.len() as u32).to_be_bytes(), bytes].concat()).await
    }

    async fn end(&mut self) {
        self.0.write_all(&[1, 0, 0, 0, 0]).await.unwrap();
    }

    /// The next that is heard; nothing where it is over.
    async fn hear(&mut self) -> Option<(u8, Vec<u8>)> {
        let next = async {
            let kind = self.0.read_u8().await.ok()?;
            let mut body = vec![0; self.0.read_u32().await.ok()? as usize];
            self.0.read_exact(&mut body).await.ok()?;
            Some((kind, body))
        };
        tokio::time::timeout(Duration::from_secs(30), next).await.expect("nothing is heard, and it is not over")
    }

    /// The last words of a session that is broken off.
    async fn broken(&mut self) -> String {
        loop {
            let (kind, body) = self.hear().await.expect("it ended without a word");
            if kind == BROKEN {
                assert_eq!(self.hear().await, None);
                return String::from_utf8(body).unwrap();
            }
        }
    }
}

const LOGIN: &str = "login git true";

#[tokio::test]
async fn a_session_is_one_command_and_nothing_else_and_its_record_has_all_of_it() {
    let mut stage = stage_of(|_| {}).await;
    let more = "Stockade-Protocol: version=2\r\n";
    let (answer, mut inside) = stage.asked(&Wanted { more, ..fetch("git-upload-pack 'org/echo'") }).await;
    assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
    inside.say(b"what is said").await.unwrap();
    inside.end().await;
    assert_eq!(inside.hear().await, Some((OUTPUT, b"what is said".to_vec())));
    assert_eq!(inside.hear().await, Some((EXIT, vec![0; 4])));
    assert_eq!(inside.hear().await, None);
    stage.notes.saw("gone").await;
    assert_eq!(stage.notes.seen(), [LOGIN, "channel", "env GIT_PROTOCOL=version=2", "exec git-upload-pack 'org/echo'", "gone"]);
    let event = stage.world.event().await;
    assert_eq!((event.verdict, event.host.as_str(), event.port, event.status), (Verdict::Allow, "127.0.0.1", stage.port, Some(101)));
    assert_eq!((event.method.as_deref(), event.path.as_deref()), (Some("FETCH"), Some("/org/echo")));
    assert_eq!((event.sent, event.received, event.secrets), (12, 12, vec!["TOKEN".into()]));
}

#[tokio::test]
async fn what_is_not_allowed_is_told_and_recorded_and_never_reaches_the_host() {
    let mut stage = stage_of(|_| {}).await;
    let good = fetch("git-upload-pack 'org/echo'");
    for (wanted, rule, says) in [
        (fetch("git-upload-pack 'other/echo'"), "ssh-repository", "the repository `other/echo` is none"),
        (fetch("git-receive-pack 'org/echo'"), "ssh-push", "may be fetched and not pushed to"),
        (fetch("git-upload-pack 'org/../other/echo'"), "ssh-command", "no repository"),
        (fetch("sh"), "ssh-command", "only `git-upload-pack`"),
        (fetch("git-upload-pack 'org/echo'; id"), "ssh-command", "only `git-upload-pack`"),
        (Wanted { user: "root", ..good.clone() }, "ssh-user", "not as `root`"),
        (Wanted { port: Some(9), ..good.clone() }, "allow-host", "127.0.0.1:9"),
        (Wanted { host: "other.example", ..good.clone() }, "allow-host", "other.example"),
        (Wanted { port: Some(0), ..good.clone() }, "desk", "which port is not said"),
        (Wanted { instead: ("Stockade-Port: ", "Stockade-Port: +"), ..good.clone() }, "desk", "which port is not said"),
        (Wanted { instead: (TOKEN, "another-token-another-token-00000"), ..good.clone() }, "desk", "shows the token"),
        (Wanted { instead: ("Authorization", "Other"), ..good.clone() }, "desk", "shows the token"),
        (Wanted { instead: ("Upgrade: stockade-ssh", "Upgrade: websocket"), ..good.clone() }, "desk", "Upgrade: stockade-ssh"),
        (Wanted { more: "Stockade-User: root\r\n", ..good.clone() }, "desk", "said twice"),
        (Wanted { more: "Stockade-Host: other.example\r\n", ..good.clone() }, "desk", "or twice"),
        (Wanted { more: "Stockade-Command: 00\r\n", ..good.clone() }, "desk", "which command is not said"),
    ] {
        let (said, event) = stage.refused(&wanted).await;
        assert!(said.contains(says), "{says}: {said}");
        assert_eq!((event.verdict, event.rule.as_str()), (Verdict::Deny, rule), "{event:?}");
        assert!(event.reason.as_ref().is_some_and(|reason| reason.contains(says)), "{event:?}");
        // A host that is allowed without a secret would be of no use.
        let flag = event.change.as_deref().is_some_and(|change| change.starts_with("--secret NAME@"));
        assert_eq!(flag, rule == "allow-host", "{event:?}");
    }
    assert_eq!(stage.notes.seen(), Vec::<String>::new());
    // A protocol that is none is not passed on.
    let odd = Wanted { more: "Stockade-Protocol: a b$(id)\r\n", ..good };
    let (answer, _inside) = stage.asked(&odd).await;
    assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
    assert_eq!(stage.notes.seen(), [LOGIN, "channel", "exec git-upload-pack 'org/echo'"]);
}

#[tokio::test]
async fn a_secret_goes_to_its_own_host_and_port_though_rules_allow_others() {
    for host in ["127.0.0.1:9", "api.example"] {
        let mut stage = stage_of(|setting| setting.host = Some(host.into())).await;
        let (said, event) = stage.refused(&fetch("git-upload-pack 'org/echo'")).await;
        assert!(said.contains("no secret for SSH is bound to `127.0.0.1:"), "{said}");
        assert_eq!((event.rule.as_str(), event.secrets.len()), ("ssh-host", 0), "{event:?}");
        assert_eq!(stage.notes.seen(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn rules_about_hosts_methods_and_paths_hold_for_a_secrets_own_host() {
    use stockade_egress::rules::{HostRule, Methods};
    let mut stage = stage_of(|setting| setting.rules = Rules::of_hosts([pattern("127.0.0.1:9")])).await;
    let (said, event) = stage.refused(&fetch("git-upload-pack 'org/echo'")).await;
    assert!(said.contains("is not an allowed host") && event.rule == "allow-host", "{said}: {event:?}");
    assert_eq!(stage.notes.seen(), Vec::<String>::new());
    let push = http::Method::from_bytes(b"PUSH").unwrap();
    let mut stage =
        stage_of(|setting| setting.rules.hosts.iter_mut().for_each(|rule: &mut HostRule| rule.methods = Methods::Only(vec![push.clone()])))
            .await;
    let (said, event) = stage.refused(&fetch("git-upload-pack 'org/echo'")).await;
    assert!(said.contains("`FETCH` is not an allowed method") && event.verdict == Verdict::Deny, "{said}: {event:?}");
    assert_eq!(stage.notes.seen(), Vec::<String>::new());
}

#[tokio::test]
async fn nobody_logs_in_whom_nobody_records() {
    let mut stage = stage_of(|_| {}).await;
    stage.world.stop_listening();
    let (answer, _inside) = stage.asked(&fetch("git-upload-pack 'org/echo'")).await;
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert_eq!(stage.notes.seen(), Vec::<String>::new());
}

#[tokio::test]
async fn a_certificate_of_another_key_is_not_shown() {
    let mut builder = certificate::Builder::new(vec![7; 16], key(9).public_key().key_data().clone(), 0, u64::MAX - 1).unwrap();
    builder.all_principals_valid().unwrap();
    let others = builder.sign(&key(3)).unwrap().to_openssh().unwrap();
    let mut stage = stage_of(|setting| setting.value = format!("{} {others}", value())).await;
    let (said, event) = stage.refused(&fetch("git-upload-pack 'org/echo'")).await;
    assert!(said.contains("the certificate is of another key") && event.rule == "secret-value", "{said}: {event:?}");
    assert_eq!(stage.notes.seen(), Vec::<String>::new());
}

#[tokio::test]
async fn the_metadata_server_has_no_sessions() {
    let kind = Asker::GcpMetadata { project: None, email: "a@acme.example".into(), scopes: Vec::new() };
    let stage = stage_of(|setting| setting.desk = vec![Entry { binding: 1, kind }]).await;
    let metadata = Kind::Transparent("169.254.169.254:80".parse().unwrap());
    let (answer, _inside) = stage.asked_at(metadata, &fetch("git-upload-pack 'org/echo'")).await;
    assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
    assert_eq!(stage.notes.seen(), Vec::<String>::new());
}

#[tokio::test]
async fn a_key_without_keys_of_hosts_or_repositories_has_no_desk() {
    let stage = stage_of(|_| {}).await;
    let good = Use { user: "git".into(), host_keys: vec![public(2)], repositories: vec!["org/*".parse().unwrap()], access: Access::Fetch };
    let added = |how: &Use, form: Form, id: u32| {
        let desk = Desk { token: TOKEN.into(), entries: vec![Entry { binding: 0, kind: Asker::Ssh(how.clone()) }] };
        let binding = Binding { form, ..binding("api.example") };
        stage.world.egress.add_with_desk(SandboxId::from_parts(1, id), Rules::default(), vec![binding], desk).is_ok()
    };
    assert!(added(&good, Form::SshKey, 1));
    assert!(!added(&good, Form::Plain, 2));
    for (id, how) in [
        Use { host_keys: Vec::new(), ..good.clone() },
        Use { host_keys: vec![public(2), "ssh-ed25519 AAAA".into()], ..good.clone() },
        Use { repositories: Vec::new(), ..good.clone() },
    ]
    .iter()
    .enumerate()
    {
        assert!(!added(how, Form::SshKey, 3 + id as u32), "{how:?}");
    }
}

#[tokio::test]
async fn a_host_with_another_key_is_told_nothing() {
    let mut stage = stage_of(|setting| setting.how.host_keys = vec![public(3)]).await;
    let (said, event) = stage.refused(&fetch("git-upload-pack 'org/echo'")).await;
    assert!(said.contains("shows a key that is not known") && said.contains(public(2).trim()), "{said}");
    assert_eq!((event.verdict, event.rule.as_str()), (Verdict::Deny, "ssh-host-key"));
    stage.notes.saw("gone").await;
    assert_eq!(stage.notes.seen(), ["gone"], "nobody logs in there");
}

#[tokio::test]
async fn a_host_opens_nothing_towards_us() {
    let stage = stage_of(|_| {}).await;
    let mut inside = stage.session("git-upload-pack 'org/opens'").await;
    assert_eq!(inside.hear().await, Some((EXIT, vec![0; 4])));
    assert!(stage.notes.seen().contains(&"opened 0".to_owned()), "{:?}", stage.notes.seen());
}

#[tokio::test]
async fn silence_ends_a_session() {
    let mut stage = stage_of(|setting| setting.rules.limits.idle = Duration::from_millis(300)).await;
    let mut inside = stage.session("git-upload-pack 'org/silent'").await;
    assert_eq!(inside.broken().await, "nothing was said for too long");
    stage.notes.saw("gone").await;
    let event = stage.world.event().await;
    assert_eq!((event.verdict, event.reason.as_deref()), (Verdict::Allow, Some("nothing was said for too long")));
}

#[tokio::test]
async fn who_reads_slowly_holds_the_host_back_and_who_never_reads_is_let_go() {
    let stage = stage_of(|_| {}).await;
    let mut inside = stage.session("git-upload-pack 'org/flood'").await;
    let waits = stage.notes.stands_still().await;
    for _ in 0..waits / PIECE as u64 + 64 {
        assert_eq!(inside.hear().await.map(|(kind, _)| kind), Some(OUTPUT));
    }
    assert!(stage.notes.stands_still().await > waits, "it goes on when it is read");
    drop(inside);
    stage.notes.saw("gone").await;
    // Who never reads at all is as silent as who says nothing.
    let stage = stage_of(|setting| setting.rules.limits.idle = Duration::from_millis(500)).await;
    let mut inside = stage.session("git-upload-pack 'org/flood'").await;
    stage.notes.saw("gone").await;
    // The host is gone before the last word is heard.
    assert_eq!(inside.broken().await, "nothing was said for too long");
}

#[tokio::test]
async fn a_host_that_does_not_read_holds_back_who_speaks() {
    let stage = stage_of(|_| {}).await;
    let mut inside = stage.session("git-upload-pack 'org/deaf'").await;
    let notes = Arc::clone(&stage.notes);
    tokio::spawn(async move {
        while inside.say(&vec![7; PIECE]).await.is_ok() {
            notes.bytes.fetch_add(PIECE as u64, Ordering::SeqCst);
        }
    });
    stage.notes.stands_still().await;
}

#[tokio::test]
async fn bytes_have_an_end_of_the_secrets_and_of_the_sandboxs() {
    const MOST: u64 = 100_000;
    let of_secret: Change = Box::new(|setting| setting.budget.bytes = Some(MOST));
    let of_sandbox: Change = Box::new(|setting| setting.rules.limits.sent_bytes = MOST);
    for (change, rule, says) in
        [(of_secret, "secret-budget", "has no bytes left"), (of_sandbox, "limit", "100000 bytes sent by this sandbox")]
    {
        let mut stage = stage_of(change).await;
        let mut inside = stage.session("git-upload-pack 'org/counts'").await;
        for _ in 0..4 {
            // It may be over already.
            let _ = inside.say(&vec![7; PIECE]).await;
        }
        let said = inside.broken().await;
        assert!(said.contains(says), "{said}");
        stage.notes.saw("gone").await;
        assert!(stage.notes.bytes.load(Ordering::SeqCst) <= MOST);
        let event = stage.world.event().await;
        assert_eq!((event.verdict, event.rule.as_str(), event.sent), (Verdict::Deny, rule, 3 * PIECE as u64), "{event:?}");
        assert!(event.secrets.contains(&"TOKEN".into()), "{event:?}");
    }
}

#[tokio::test]
async fn sessions_are_uses_of_the_secret_and_requests_of_the_sandbox() {
    let over = SystemTime::now();
    let changes: [(Change, usize, &str, &str); 3] = [
        (Box::new(|setting| setting.budget.uses = Some(2)), 2, "secret-budget", "has no uses left"),
        (Box::new(move |setting| setting.budget.expires = Some(over)), 0, "secret-budget", "has expired"),
        (Box::new(|setting| setting.rules.limits.requests_per_second = 1), 2, "limit", "1 requests in a second"),
    ];
    for (change, sessions, rule, says) in changes {
        let mut stage = stage_of(change).await;
        // What is refused for other reasons is no use.
        if rule == "secret-budget" {
            assert_eq!(stage.refused(&fetch("git-receive-pack 'org/echo'")).await.1.rule, "ssh-push");
        }
        let mut open = Vec::new();
        for _ in 0..sessions {
            open.push(stage.session("git-upload-pack 'org/silent'").await);
        }
        let (said, event) = stage.refused(&fetch("git-upload-pack 'org/silent'")).await;
        assert!(said.contains(says), "{said}");
        assert_eq!((event.verdict, event.rule.as_str()), (Verdict::Deny, rule), "{event:?}");
        assert_eq!(stage.notes.seen().iter().filter(|seen| *seen == LOGIN).count(), sessions);
    }
}

#[tokio::test]
async fn with_the_sandbox_its_sessions_end() {
    let Stage { world, notes, port } = stage_of(|_| {}).await;
    let stage = Stage { world, notes: Arc::clone(&notes), port };
    let mut quiet = stage.session("git-upload-pack 'org/silent'").await;
    // One whose bytes wait on both sides.
    let _loud = stage.session("git-upload-pack 'org/flood'").await;
    notes.stands_still().await;
    assert!(!notes.seen().contains(&"gone".to_owned()));
    let World { guest, egress, .. } = stage.world;
    drop(guest);
    assert_eq!(quiet.hear().await, None);
    for _ in 0..1000 {
        if notes.seen().iter().filter(|seen| *seen == "gone").count() == 2 {
            drop(egress);
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{:?}", notes.seen());
}

#[derive(Debug)]
struct NoPush;

impl Judge for NoPush {
    fn judge(&self, asked: &Asked<'_>) -> Result<(), Denied> {
        assert_eq!((asked.tls, asked.secret), (true, Some("TOKEN")));
        if (asked.method, asked.path) == ("PUSH", "/org/echo") {
            return Err(Denied { rule: "mine".into(), why: "not on a Friday".into() });
        }
        Ok(())
    }
}

#[tokio::test]
async fn rules_of_others_are_asked_about_each_session() {
    let mut stage = stage_of(|setting| {
        setting.rules.judge = Some(Arc::new(NoPush));
        setting.how.access = Access::Push;
    })
    .await;
    let (said, event) = stage.refused(&fetch("git-receive-pack 'org/echo'")).await;
    assert!(said.contains("not on a Friday") && said.contains("mine"), "{said}");
    assert_eq!((event.verdict, event.rule.as_str(), event.method.as_deref()), (Verdict::Deny, "mine", Some("PUSH")), "{event:?}");
    assert_eq!(stage.notes.seen(), Vec::<String>::new());
    stage.session("git-receive-pack 'org/silent'").await;
    stage.session("git-upload-pack 'org/echo'").await;
}
