//! `ssh` with the agent inside, against a real `sshd`: logins at known hosts as a known user, and no other signature.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Stdio};

use serde_json::{Value, json};

use super::as_both;
use super::stage::{Stage, bound};
use crate::wall::ground::eventually;

/// Nobody else's servers are asked: settings of this machine's own `ssh` stay out of it.
const OPTIONS: &str = "-F none -o BatchMode=yes -o UserKnownHostsFile=known_hosts -o LogLevel=ERROR -o ConnectTimeout=20";
/// The same for one that runs at the server, which knows nobody and has no keys.
const HOP: &str =
    "-F none -o BatchMode=yes -o UserKnownHostsFile=/dev/null -o StrictHostKeyChecking=no -o IdentityFile=none -o LogLevel=ERROR";

/// A server, for as long as this lives. It is root's: only root can let others in.
struct Sshd {
    child: Child,
    port: u16,
    host_key: String,
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A key for the user, and one server for each name that lets it in.
fn servers<const COUNT: usize>(stage: &Stage, names: [&str; COUNT]) -> [Sshd; COUNT] {
    let base = &stage.world.outside;
    stage.world.host(&format!("cd {}; ssh-keygen -q -t ed25519 -N '' -C '' -f user", base.display()));
    let servers = names.map(|name| {
        let directory = stage.world.base.join(format!("sshd-{name}"));
        start(&directory, &base.join("user.pub"))
    });
    let known: Vec<String> = servers.iter().map(|sshd| format!("[127.0.0.1]:{} {}\n", sshd.port, sshd.host_key)).collect();
    stage.world.file("known_hosts", &known.concat());
    stage.world.file("user.pub", &std::fs::read_to_string(base.join("user.pub")).expect("a key"));
    servers
}

#[expect(clippy::disallowed_methods, reason = "the servers that tests talk to")]
fn start(directory: &Path, authorized: &Path) -> Sshd {
    let command = |program: &str| std::process::Command::new(program);
    std::fs::create_dir_all(directory).expect("a directory");
    std::fs::create_dir_all("/run/sshd").expect("what sshd needs");
    let key = directory.join("host");
    let made = command("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-C", "", "-f"]).arg(&key).status().expect("ssh-keygen");
    assert!(made.success());
    let port = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port").port();
    let settings = format!(
        "ListenAddress 127.0.0.1:{port}\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\nPidFile none\n\
         PermitRootLogin prohibit-password\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nAllowAgentForwarding yes\n",
        key.display(),
        authorized.display()
    );
    std::fs::write(directory.join("settings"), settings).expect("settings");
    let child = command("/usr/sbin/sshd")
        .args(["-D", "-e", "-f"])
        .arg(directory.join("settings"))
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("sshd starts");
    eventually("sshd listens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    let public = std::fs::read_to_string(key.with_extension("pub")).expect("a key");
    Sshd { child, port, host_key: public.trim().to_owned() }
}

/// Says in the settings what the key is for.
fn settings(stage: &Stage, sshd: &Sshd, more: &Value) {
    let mut key = json!({
        "source": "file", "path": stage.outside("user"), "delivery": "ssh-agent", "ssh": { "hostKeys": [sshd.host_key], "user": "root" },
    });
    for (field, value) in more.as_object().expect("an object") {
        key[field] = value.clone();
    }
    stage.settings(&json!({ "KEY": key }));
}

/// Looks for what must not be inside: the secret half of the key, as its file has it.
fn searched(stage: &Stage) -> String {
    let text = std::fs::read_to_string(stage.world.outside.join("user")).expect("the key");
    // Its 32 bytes are from the 161st on, that is in the fourth line of base64; the public half stands around them.
    let half = text.lines().nth(4).and_then(|line| line.get(8..44)).expect("a line of the key");
    format!("python3 search.py {}", half.bytes().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}")))
}

/// The rows about the agent: method, path, verdict.
fn uses(ran: &Value) -> Vec<(String, String, String)> {
    let rows = ran["network"].as_array().expect("a list").iter();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    rows.filter(|row| row["rule"] == "ssh-agent" || row["rule"] == "secret-budget")
        .map(|row| (text(&row["method"]), text(&row["path"]), text(&row["verdict"])))
        .collect()
}

#[test]
fn ssh_logs_in_with_a_key_that_is_not_inside() {
    as_both(|stage| {
        let [sshd] = servers(stage, ["a"]);
        settings(stage, &sshd, &json!({}));
        let at = format!("127.0.0.1:{}", sshd.port);
        let script = format!(
            "set -e; echo $SSH_AUTH_SOCK; ssh-add -l | cut -d' ' -f3,4
             ssh {OPTIONS} -p {port} root@127.0.0.1 echo in as '$(id -un)'
             ssh {OPTIONS} -p {port} daemon@127.0.0.1 echo wrong 2>/dev/null || echo refused
             ssh-keygen -Y sign -n git -f user.pub known_hosts 2>/dev/null && echo signed
             ssh -A {OPTIONS} -p {port} root@127.0.0.1 'ssh-add -l | cut -c-3; ssh {HOP} -p {port} root@127.0.0.1 echo hopped 2>/dev/null || echo stayed'
             {search} 2>&1; ls -A ~/.ssh 2>/dev/null || true",
            port = sshd.port,
            search = searched(stage),
        );
        let said = stage.inside(&bound("KEY", &at, &[]), &script);
        let expected = "/run/stockade/ssh-agent\nKEY (ED25519)\nin as root\nrefused\n256\nstayed\nsearched: True []\n";
        assert_eq!(said, expected);
        let receipt = stage.receipt();
        assert_eq!(receipt["credentials"], json!([{"adapter": "secret", "id": "KEY", "scope": at, "delivery": "proxy-only"}]));
    });
}

#[test]
fn each_use_and_each_refusal_is_recorded() {
    as_both(|stage| {
        let [sshd, other] = servers(stage, ["a", "b"]);
        settings(stage, &sshd, &json!({ "maxUses": 2 }));
        let hosts = format!("127.0.0.1:{},127.0.0.1:{}", sshd.port, other.port);
        let script = format!(
            "try() {{ ssh {OPTIONS} -p $1 $2@127.0.0.1 echo in 2>/dev/null || echo out; }}
             try {a} root; try {a} daemon; try {b} root; try {a} root; try {a} root",
            a = sshd.port,
            b = other.port,
        );
        let outcome = stage.stockade(&["run", "--json", "--secret", &format!("KEY@{hosts}"), "--", "bash", "-c", &script]);
        let ran: Value = serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{error}: {outcome:?}"));
        assert_eq!(ran["stdout"], "in\nout\nout\nin\nout\n", "{ran}");
        let print = |sshd: &Sshd| {
            let line = stage.world.host(&format!("echo '{}' | ssh-keygen -l -f -", sshd.host_key));
            line.split(' ').nth(1).expect("a fingerprint").to_owned()
        };
        let row = |method: &str, path: String, verdict: &str| (method.to_owned(), path, verdict.to_owned());
        let (own, foreign) = (print(&sshd), print(&other));
        assert_eq!(
            uses(&ran),
            [
                row("SIGN", format!("root@{own}"), "allow"),
                row("SIGN", format!("daemon@{own}"), "deny"),
                row("BIND", foreign, "deny"),
                row("SIGN", String::new(), "deny"),
                row("SIGN", format!("root@{own}"), "allow"),
                row("SIGN", format!("root@{own}"), "deny"),
            ],
            "{ran}"
        );
        assert_eq!(uses(&stage.receipt()), uses(&ran), "the receipt has them, too");
        for reason in ["the login is as `daemon`", "is no key of a host that the secret is for", "has no uses left"] {
            assert!(outcome.stderr.contains(reason), "{reason}: {}", outcome.stderr);
        }
    });
}

#[test]
fn the_agent_signs_nothing_else_and_garbage_does_no_harm() {
    as_both(|stage| {
        let [sshd] = servers(stage, ["a"]);
        settings(stage, &sshd, &json!({}));
        stage.world.file("agent.py", include_str!("ssh_agent.py"));
        let said = stage.inside(&bound("KEY", &format!("127.0.0.1:{}", sshd.port), &[]), "python3 agent.py");
        let expected = "listed 12 ssh-ed25519\nbytes [5]\nsshsig [5]\nforeign session [5]\nbind [5] [5]\n\
                        huge b''\nempty b''\ncut b''\nand still 12\n";
        assert_eq!(said, expected);
    });
}

#[test]
fn a_sandbox_without_such_a_secret_has_no_agent() {
    as_both(|stage| {
        let script = "echo \"[$SSH_AUTH_SOCK]\"; ls -A /run/stockade; find / -xdev -type s 2>/dev/null; true";
        let said = stage.inside(&bound("TOKEN", &stage.plain, &[]), script);
        assert_eq!(said, "[]\nauthorities.pem\n");
    });
}
