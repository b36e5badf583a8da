//! git over SSH against a real `sshd`: the key is outside, and the repository, the direction and the host's key are held to.

#![expect(clippy::disallowed_methods, reason = "the servers that tests talk to, and the tools that set them up")]

use std::fmt::Write as _;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::as_both;
use super::stage::{Stage, bound};
use crate::Outcome;
use crate::egress::world::words;
use crate::wall::ground::eventually;

const SSHD: &str = "/usr/sbin/sshd";
/// Three refusals of a dead host must not be three minutes.
const NOT_FOREVER: Duration = Duration::from_mins(2);

/// A server of somebody else: root's, whoever runs the sandbox. It lets in whom its authority signed, and one key without.
struct Sshd {
    child: Child,
    port: u16,
    directory: PathBuf,
    host_key: String,
}

impl Sshd {
    fn start(stage: &Stage) -> Self {
        let directory = stage.world.outside.join("sshd");
        let at = directory.display();
        run(&format!(
            "install -d -m 755 /run/sshd; install -d -m 755 {at} {at}/home/org; cd {at}
             for key in host authority client signed other; do ssh-keygen -q -t ed25519 -N '' -C '' -f $key; done
             ssh-keygen -q -t rsa -b 2048 -N '' -C '' -f rsa; ssh-keygen -q -t ed25519 -N secret -C '' -f locked
             ssh-keygen -q -s authority -I a-test -n root -V -1m:+10m signed.pub
             cat client.pub other.pub > authorized; chmod 600 authorized
             for name in site other; do
               git init -q --bare home/org/$name.git; git -C home/org/$name.git symbolic-ref HEAD refs/heads/main
               git init -q -b main seed-$name; echo $name > seed-$name/file; git -C seed-$name add file
               git -C seed-$name -c user.name=a -c user.email=a@b commit -qm $name; git -C seed-$name push -q ../home/org/$name.git main
             done
             chown -R {0}:{0} client* signed* rsa* locked* host.pub",
            stage.world.who.uid()
        ));
        std::fs::write(
            directory.join("forced"),
            format!(
                "echo \"$GIT_PROTOCOL $SSH_ORIGINAL_COMMAND\" >> {at}/asked\ncase $SSH_ORIGINAL_COMMAND in *org/dies*) printf 0; kill -9 $PPID; sleep 60;;\n\
                 *org/hangs*) printf 0; cat > /dev/null; echo ended >> {at}/asked; exit;; esac\n\
                 export HOME={at}/home GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'\ncd; exec git shell -c \"$SSH_ORIGINAL_COMMAND\"\n"
            ),
        )
        .expect("written");
        let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port();
        let config = format!(
            "ListenAddress 127.0.0.1:{port}\nHostKey {at}/host\nAuthorizedKeysFile {at}/authorized\nTrustedUserCAKeys {at}/authority.pub\nPermitRootLogin yes\n\
             StrictModes no\nUsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nAcceptEnv GIT_PROTOCOL\nPidFile none\nForceCommand /bin/bash {at}/forced\n"
        );
        std::fs::write(directory.join("config"), config).expect("written");
        let mut command = Command::new(SSHD);
        command.args(["-D", "-f"]).arg(directory.join("config")).arg("-E").arg(directory.join("log")).stdin(Stdio::null());
        let child = command.spawn().expect("sshd starts; `cargo xtask test` installs it");
        let began = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(began.elapsed() < Duration::from_secs(20), "{}", std::fs::read_to_string(directory.join("log")).unwrap_or_default());
            std::thread::sleep(Duration::from_millis(20));
        }
        let host_key = std::fs::read_to_string(directory.join("host.pub")).expect("the host's key").trim().to_owned();
        Self { child, port, directory, host_key }
    }

    fn key(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }

    fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn asked(&self) -> String {
        std::fs::read_to_string(self.directory.join("asked")).unwrap_or_default()
    }

    /// How many connections it has.
    fn connections(&self) -> usize {
        let table = std::fs::read_to_string("/proc/net/tcp").expect("the machine's connections");
        let end = format!(":{:04X}", self.port);
        let is_own = |line: &&str| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            // Established, seen from the server.
            matches!(fields[..], [_, local, _, "01", ..] if local.ends_with(&end))
        };
        table.lines().filter(is_own).count()
    }

    /// A secret of this key, with these fields of `ssh` beside the host's key.
    fn secret(&self, key: &str, fields: &Value) -> Value {
        let mut ssh = json!({ "hostKeys": [self.host_key], "repositories": ["org/site"], "user": "root" });
        ssh.as_object_mut().expect("an object").extend(fields.as_object().expect("an object").clone());
        json!({ "source": "file", "path": self.key(key), "delivery": "ssh", "ssh": ssh })
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn run(script: &str) {
    let status = Command::new("bash").args(["-euc", script]).status().expect("bash");
    assert!(status.success(), "{script}");
}

/// A script inside with the secret `DEPLOY` bound to the server.
fn inside(stage: &Stage, flags: &[String], script: &str) -> Outcome {
    plainly(stage, flags, &format!("export GIT_TERMINAL_PROMPT=0\n{script}"))
}

/// The same without anything that rules about commands forbid.
fn plainly(stage: &Stage, flags: &[String], script: &str) -> Outcome {
    let script = format!("cd /tmp; {script}");
    stage.stockade(&[&["run"][..], &words(flags), &["--", "bash", "-c", &script]].concat())
}

/// What a receipt says of sessions, in an order of its own: one that ends is recorded beside the next that begins.
fn sessions(receipt: &Value) -> Vec<Value> {
    let fields = ["host", "port", "method", "path", "verdict", "rule", "secret"];
    let of = |row: &Value| fields.iter().map(|field| ((*field).to_owned(), row[field].clone())).collect();
    sorted(receipt["network"].as_array().expect("a list").iter().map(|row| Value::Object(of(row))).collect())
}

fn sorted(mut rows: Vec<Value>) -> Vec<Value> {
    rows.sort_by_key(Value::to_string);
    rows
}

fn hex_of_file(path: &str) -> String {
    let text = std::fs::read(path).expect("a key");
    // Windows of a search do not cross lines: what is kept has none.
    text.iter().filter(|byte| **byte != b'\n').fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

#[test]
fn git_fetches_over_ssh_and_the_key_is_nowhere_inside() {
    as_both(|stage| {
        let sshd = Sshd::start(stage);
        let (host, url) = (sshd.host(), format!("ssh://root@{}/~/org", sshd.host()));
        stage.settings(&json!({ "DEPLOY": sshd.secret("client", &json!({})) }));
        let hidden = hex_of_file(&sshd.key("client"));
        let script = format!(
            "git clone -q {url}/site.git copy && cat copy/file && env | grep ^GIT_SSH | sort && ls /run/stockade/bin
             cd $OLDPWD; python3 search.py {hidden}
             cd /tmp/copy; echo more >> file; git -c user.name=a -c user.email=a@b commit -qam more
             git push -q origin HEAD:main || echo no push
             git ls-remote {url}/other || echo no other
             git ls-remote {url}/../org/site || echo no dots
             git ls-remote ssh://root@127.0.0.1:9/~/org/site || echo no host
             git ls-remote ssh://nobody@{host}/~/org/site || echo no user
             $GIT_SSH_COMMAND -p {port} root@127.0.0.1 || echo no shell
             $GIT_SSH_COMMAND -p {port} root@127.0.0.1 id || echo no command
             GIT_SSH_COMMAND=\"$GIT_SSH_COMMAND -o ProxyCommand=id\" git ls-remote {url}/site || echo no proxy",
            port = sshd.port
        );
        let script = script.replace("$OLDPWD", &stage.world.work.display().to_string());
        let outcome = inside(stage, &bound("DEPLOY", &host, &["127.0.0.1:9"]), &script);
        assert_eq!(
            outcome.stdout,
            "site\nGIT_SSH_COMMAND=/run/stockade/bin/stockade-ssh\nGIT_SSH_VARIANT=ssh\nstockade-ssh\n\
             no push\nno other\nno dots\nno host\nno user\nno shell\nno command\nno proxy\n",
            "{outcome:?}"
        );
        for says in [
            "searched: True []",
            "`ssh.push` of the secret is false",
            "the repository `org/other` is none",
            "no secret for SSH is bound to `127.0.0.1:9`",
            "one logs in as `root` there, not as `nobody`",
            "there are no shells",
            "only `git-upload-pack`",
            "options of ssh cannot be set",
        ] {
            assert!(outcome.stderr.contains(says), "{says}: {}", outcome.stderr);
        }
        // Only what was allowed was ever asked, in the newer protocol.
        assert_eq!(sshd.asked(), "version=2 git-upload-pack '~/org/site.git'\n");
        let receipt = stage.receipt();
        let scope = format!("{host}: ssh as root: org/site fetch");
        assert_eq!(receipt["credentials"], json!([{"adapter": "secret", "id": "DEPLOY", "scope": scope, "delivery": "proxy-only"}]));
        let row = |port: u16, method: Option<&str>, path: Option<&str>, verdict: &str, rule: &str, secret: Option<&str>| json!({ "host": "127.0.0.1", "port": port, "method": method, "path": path, "verdict": verdict, "rule": rule, "secret": secret });
        let (fetch, push) = (Some("FETCH"), Some("PUSH"));
        let expected = [
            row(sshd.port, fetch, Some("/org/site"), "allow", &host, Some("DEPLOY")),
            row(sshd.port, push, Some("/org/site"), "deny", "ssh-push", None),
            row(sshd.port, fetch, Some("/org/other"), "deny", "ssh-repository", None),
            row(0, None, None, "deny", "ssh-command", None),
            row(9, fetch, Some("/org/site"), "deny", "ssh-host", None),
            row(sshd.port, fetch, Some("/org/site"), "deny", "ssh-user", None),
            row(0, None, None, "deny", "ssh-command", None),
        ];
        assert_eq!(sessions(&receipt), sorted(expected.to_vec()), "{receipt}");
    });
}

#[test]
fn git_pushes_where_that_is_allowed_and_a_certificate_lets_in() {
    as_both(|stage| {
        let sshd = Sshd::start(stage);
        let url = format!("ssh://{}/~/org/site", sshd.host());
        // What a program prints: a key that nobody knows, and the certificate that makes it known for ten minutes.
        let secret = sshd.secret("signed", &json!({ "push": true, "repositories": ["org/*"] }));
        let command = format!("cat {0} {0}-cert.pub", sshd.key("signed"));
        let mut minted = json!({ "source": "command", "command": ["/bin/sh", "-c", command], "delivery": "ssh" });
        minted["ssh"] = secret["ssh"].clone();
        stage.settings(&json!({ "DEPLOY": minted }));
        let script = format!(
            "git clone -q {url} copy; cd copy; echo two > file; git -c user.name=a -c user.email=a@b commit -qam two; git push -q origin HEAD:main; git ls-remote -q {url} | wc -l"
        );
        let outcome = inside(stage, &bound("DEPLOY", &sshd.host(), &[]), &format!("set -e; {script}"));
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), "2\n"), "{outcome:?}");
        let log =
            Command::new("git").args(["-C"]).arg(sshd.directory.join("home/org/site.git")).args(["log", "--format=%s", "main"]).output();
        assert_eq!(String::from_utf8(log.expect("git").stdout).expect("text"), "two\nsite\n");
        // The same key without its certificate is not let in.
        stage.settings(&json!({ "DEPLOY": secret }));
        let outcome = inside(stage, &bound("DEPLOY", &sshd.host(), &[]), &format!("git ls-remote {url}"));
        assert!(outcome.code != Some(0) && outcome.stderr.contains("does not let `root` in with the key SHA256:"), "{outcome:?}");
    });
}

#[test]
fn a_key_is_taken_from_the_store_and_two_secrets_share_a_host() {
    as_both(|stage| {
        let sshd = Sshd::start(stage);
        stage.store("FIRST", &std::fs::read_to_string(sshd.key("client")).expect("a key"));
        stage.store("SECOND", &std::fs::read_to_string(sshd.key("other")).expect("a key"));
        let of = |repository: &str| json!({ "source": "store", "delivery": "ssh", "ssh": sshd.secret("client", &json!({ "repositories": [repository] }))["ssh"] });
        stage.settings(&json!({ "FIRST": of("org/site"), "SECOND": of("org/other") }));
        let flags = [bound("FIRST", &sshd.host(), &[]), bound("SECOND", &sshd.host(), &[])].concat();
        let url = format!("ssh://root@{}/~/org", sshd.host());
        let outcome = inside(
            stage,
            &flags,
            &format!("for one in site other; do git clone -q {url}/$one && cat $one/file; done; git ls-remote {url}/third || echo no"),
        );
        assert_eq!(outcome.stdout, "site\nother\nno\n", "{outcome:?}");
        let log = std::fs::read_to_string(sshd.directory.join("log")).expect("a log");
        let accepted: Vec<&str> = log.lines().filter(|line| line.contains("Accepted publickey")).collect();
        assert!(accepted.len() == 2 && accepted[0].split_whitespace().last() != accepted[1].split_whitespace().last(), "{log}");
    });
}

#[test]
fn a_host_that_is_not_known_or_not_well_is_told_and_does_not_hang() {
    as_both(|stage| {
        let sshd = Sshd::start(stage);
        let url = |host: &str, name: &str| format!("ssh://root@{host}/~/org/{name}");
        let other = std::fs::read_to_string(sshd.key("authority.pub")).expect("a key").trim().to_owned();
        stage.settings(&json!({ "DEPLOY": sshd.secret("client", &json!({ "hostKeys": [other] })) }));
        let outcome = inside(stage, &bound("DEPLOY", &sshd.host(), &[]), &format!("git ls-remote {}", url(&sshd.host(), "site")));
        let shown = Command::new("ssh-keygen").args(["-lf", &sshd.key("host.pub")]).output().expect("ssh-keygen").stdout;
        let fingerprint = String::from_utf8(shown).expect("text").split_whitespace().nth(1).expect("a fingerprint").to_owned();
        assert!(outcome.code != Some(0) && outcome.stderr.contains(&fingerprint), "{fingerprint}: {outcome:?}");
        assert!(outcome.stderr.contains(&format!("add \"{}\" to `ssh.hostKeys`", sshd.host_key)), "{outcome:?}");
        assert_eq!(sshd.asked(), "", "nothing was asked of it");

        // One that dies in the middle, and one that never says anything.
        let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
        let silent_host = silent.local_addr().expect("an address").to_string();
        stage.settings(&json!({ "DEPLOY": sshd.secret("client", &json!({ "repositories": ["org/*"] })) }));
        let began = Instant::now();
        let flags = bound("DEPLOY", &format!("{},{silent_host}", sshd.host()), &[]);
        let script = format!(
            "git ls-remote {} && echo lives; git ls-remote {} && echo speaks; echo over",
            url(&sshd.host(), "dies"),
            url(&silent_host, "site")
        );
        let outcome = inside(stage, &flags, &script);
        assert_eq!(outcome.stdout, "over\n", "{outcome:?}");
        assert!(outcome.stderr.contains("broke off") && outcome.stderr.contains("did not stand in time"), "{outcome:?}");
        assert!(began.elapsed() < NOT_FOREVER, "{:?}", began.elapsed());
    });
}

#[test]
fn what_cannot_work_is_refused_with_the_fix() {
    as_both(|stage| {
        let sshd = Sshd::start(stage);
        let url = format!("ssh://root@{}/~/org/site", sshd.host());
        for (key, says) in [("rsa", "ssh-keygen -t ed25519"), ("locked", "passphrase")] {
            stage.settings(&json!({ "DEPLOY": sshd.secret(key, &json!({})) }));
            let outcome = inside(stage, &bound("DEPLOY", &sshd.host(), &[]), &format!("git ls-remote {url}"));
            assert!(outcome.code != Some(0) && outcome.stderr.contains(says), "{key}: {outcome:?}");
        }
        // Settings that say too little are never in force.
        for (fields, says) in [(json!({ "hostKeys": [] }), "ssh-keyscan"), (json!({ "repositories": [] }), "org/repository")] {
            let written = json!({ "DEPLOY": sshd.secret("client", &fields) });
            let set = stage.stockade(&["config", "set", "secrets", &written.to_string()]);
            assert!(set.code != Some(0) && set.stderr.contains(says), "{set:?}");
        }
        assert_eq!(sshd.asked(), "");
    });
}

#[test]
fn rules_of_the_person_are_told_to_git_and_recorded() {
    as_both(|stage| {
        let sshd = Sshd::start(stage);
        stage.settings(&json!({ "DEPLOY": sshd.secret("client", &json!({ "push": true, "repositories": ["org/*"] })) }));
        let rules = stage.world.home.join(".config/stockade/policy/rules.cedar");
        let any = "permit (principal, action, resource);";
        let forbid = |id: &str, reason: &str, condition: String| {
            format!(
                "@id(\"{id}\") @reason(\"{reason}\") forbid (principal, action == Stockade::Action::\"connect\", resource) when {{ {condition} }};"
            )
        };
        let policy = [
            any.to_owned(),
            forbid("no-push", "releases are made by hand", "context.method == \"PUSH\"".to_owned()),
            forbid("no-other", "that one is private", "context.path == \"/org/other\"".to_owned()),
        ];
        stage.world.plant(&rules, &policy.concat(), 0o600);
        let url = format!("ssh://root@{}/~/org", sshd.host());
        let script = format!(
            "git clone -q {url}/site copy && cat copy/file; cd copy; git push -q origin HEAD:new || echo no push; git ls-remote {url}/other || echo no other"
        );
        let outcome = plainly(stage, &bound("DEPLOY", &sshd.host(), &[]), &script);
        assert_eq!(outcome.stdout, "site\nno push\nno other\n", "{outcome:?}");
        for says in ["no-push", "releases are made by hand", "no-other", "that one is private"] {
            assert!(outcome.stderr.contains(says), "{says}: {}", outcome.stderr);
        }
        assert_eq!(sshd.asked(), "version=2 git-upload-pack '~/org/site'\n");
        let of = |row: &Value| (row["method"].clone(), row["path"].clone(), row["verdict"].clone(), row["rule"].clone());
        let told: Vec<_> = sessions(&stage.receipt()).iter().map(of).collect();
        for row in [("PUSH", "/org/site", "deny", "no-push"), ("FETCH", "/org/other", "deny", "no-other")] {
            assert!(told.contains(&(json!(row.0), json!(row.1), json!(row.2), json!(row.3))), "{row:?}: {told:?}");
        }
        // The host itself.
        stage.world.plant(
            &rules,
            &[any.to_owned(), forbid("no-host", "not there", format!("context.port == {}", sshd.port))].concat(),
            0o600,
        );
        let outcome = plainly(stage, &bound("DEPLOY", &sshd.host(), &[]), &format!("git ls-remote {url}/site"));
        assert!(outcome.code != Some(0) && outcome.stderr.contains("is not an allowed host"), "{outcome:?}");
        let rows = sessions(&stage.receipt());
        let refused = |row: &&Value| row["verdict"] == "deny" && row["rule"] == "allow-host" && row["port"] == sshd.port;
        assert!(rows.len() == 1 && rows.iter().any(|row| refused(&row)), "{rows:?}");
        assert_eq!(sshd.asked(), "version=2 git-upload-pack '~/org/site'\n", "nothing more was asked of it");
    });
}

#[test]
fn a_session_ends_with_its_sandbox_however_that_ends() {
    as_both(|stage| {
        let sshd = Sshd::start(stage);
        stage.settings(&json!({ "DEPLOY": sshd.secret("client", &json!({ "repositories": ["org/*"] })) }));
        let ended = || sshd.asked().lines().filter(|line| *line == "ended").count();
        // It stands, and says nothing more.
        let hangs = format!(
            "mkfifo keep; exec 3<>keep; $GIT_SSH_COMMAND -p {} root@127.0.0.1 \"git-upload-pack '~/org/hangs'\" <&3 > out & until test -s out; do sleep 0.05; done",
            sshd.port
        );
        let outcome = inside(stage, &bound("DEPLOY", &sshd.host(), &[]), &format!("{hangs}; cat out"));
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), "0"), "{outcome:?}");
        eventually("the host sees the end", || ended() == 1 && sshd.connections() == 0);
        let flags = bound("DEPLOY", &sshd.host(), &[]);
        let script = format!("cd /tmp; {hangs}; sleep 600");
        let binary = stage.world.binary.to_str().expect("a path");
        let words = [&[binary, "run"][..], &words(&flags), &["--", "bash", "-c", &script]].concat();
        let mut killed =
            stage.world.command(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("started");
        eventually("the session stands", || sshd.asked().matches("org/hangs").count() == 2 && sshd.connections() == 1);
        killed.kill().expect("killed");
        killed.wait().expect("it was there");
        eventually("the host sees the end", || ended() == 2 && sshd.connections() == 0);
    });
}

#[test]
fn sessions_are_counted_against_the_secrets_budget_and_its_minute() {
    as_both(|stage| {
        let sshd = Sshd::start(stage);
        let url = format!("ssh://root@{}/~/org/site", sshd.host());
        for (field, says) in [("maxUses", "1 times"), ("maxPerMinute", "1 times in a minute")] {
            let before = sshd.asked().lines().count();
            let mut secret = sshd.secret("client", &json!({}));
            secret[field] = json!(1);
            stage.settings(&json!({ "DEPLOY": secret }));
            let script = format!("git ls-remote -q {url} | wc -l; git ls-remote {url} || echo no more");
            let outcome = inside(stage, &bound("DEPLOY", &sshd.host(), &[]), &script);
            assert_eq!(outcome.stdout, "2\nno more\n", "{field}: {outcome:?}");
            assert!(outcome.stderr.contains(says), "{field}: {outcome:?}");
            assert_eq!(sshd.asked().lines().count(), before + 1, "{field}");
            let verdicts: Vec<Value> = sessions(&stage.receipt()).iter().map(|row| json!([row["verdict"], row["secret"]])).collect();
            assert!(
                verdicts.contains(&json!(["allow", "DEPLOY"])) && verdicts.contains(&json!(["deny", "DEPLOY"])),
                "{field}: {verdicts:?}"
            );
        }
    });
}
