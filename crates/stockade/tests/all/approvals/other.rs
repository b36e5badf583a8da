//! Another user of the machine as the one who approves: named by root, shown what waits over a socket of the asker's daemon, and nobody else counts.

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use super::{ask_for, request_of};
use crate::Outcome;
use crate::wall::ground::{as_both, eventually, finish};
use crate::wall::{Ground, Who};

/// Who approves, and who would like to.
const APPROVER: u32 = 12_345;
const STRANGER: u32 = 23_456;

/// A machine of its own for the three of them: a copy of `/etc`, in which the approver is named.
struct Machine<'a> {
    ground: &'a Ground,
    etc: PathBuf,
    sockets: PathBuf,
}

impl<'a> Machine<'a> {
    fn new(ground: &'a Ground) -> Self {
        let machine = Self { ground, etc: ground.base.join("etc"), sockets: ground.base.join("sockets") };
        let copied = finish(
            Self::root(ground).args(["-euc", "cp -a /etc \"$0\"; install -d -m 1777 \"$1\""]).arg(&machine.etc).arg(&machine.sockets),
        );
        assert_eq!(copied.code, Some(0), "{copied:?}");
        for uid in [APPROVER, STRANGER] {
            let home = machine.home(uid);
            std::fs::create_dir(&home).expect("made");
            chown(&home, Some(uid), Some(uid)).expect("owned");
        }
        let made = machine.says(APPROVER, &["approvals", "credential", "key", "--sockets", machine.sockets.to_str().expect("text")]);
        assert_eq!(made.code, Some(0), "{made:?}");
        machine.names(&made.stdout);
        machine
    }

    /// Puts the file into place that names the approver.
    fn names(&self, document: &str) {
        let directory = self.etc.join("stockade");
        let _ = std::fs::create_dir(&directory);
        std::fs::write(directory.join("approver.json"), document).expect("written");
        std::fs::set_permissions(directory.join("approver.json"), PermissionsExt::from_mode(0o644)).expect("mode");
    }

    fn home(&self, uid: u32) -> PathBuf {
        self.ground.base.join(format!("home-{uid}"))
    }

    fn root(ground: &Ground) -> Command {
        use std::os::unix::process::CommandExt as _;
        let mut command = ground.outside("bash");
        command.uid(0).gid(0);
        command
    }

    /// `stockade` as a user, where the copy is the machine's `/etc`.
    fn command(&self, uid: u32, words: &[&str]) -> Command {
        let script = "mount --bind \"$0\" /etc; exec setpriv --reuid \"$1\" --regid \"$1\" --clear-groups \"${@:2}\"";
        let mut command = self.ground.outside("unshare");
        std::os::unix::process::CommandExt::uid(&mut command, 0);
        std::os::unix::process::CommandExt::gid(&mut command, 0);
        command.args(["--mount", "--propagation", "private", "--", "bash", "-euc", script]).arg(&self.etc);
        command.arg(uid.to_string()).arg(&self.ground.binary).args(words);
        if uid != self.ground.who.uid() {
            command.env("HOME", self.home(uid)).env("XDG_STATE_HOME", self.home(uid).join("state"));
        }
        command
    }

    fn says(&self, uid: u32, words: &[&str]) -> Outcome {
        finish(&mut self.command(uid, words))
    }

    /// Whoever asks.
    fn asks(&self, words: &[&str]) -> Outcome {
        self.says(self.ground.who.uid(), words)
    }

    /// The daemon of whoever asks, once it listens to the approver.
    fn daemon(&self) -> Daemon {
        let uid = self.ground.who.uid();
        let base = self.ground.base.to_str().expect("text").to_owned();
        let child = self.command(uid, &["serve", "--root", &base]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("started");
        let socket = self.sockets.join(format!("{uid}.sock"));
        let daemon = Daemon(child);
        eventually("it listens", || std::os::unix::net::UnixStream::connect(&socket).is_ok());
        daemon
    }
}

struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.0.wait();
    }
}

#[test]
fn another_user_approves_what_they_are_shown_and_nobody_else_does() {
    as_both(|ground| {
        ask_for(ground, "cat");
        let machine = Machine::new(ground);
        let daemon = machine.daemon();
        let uid = ground.who.uid().to_string();
        let call = || machine.asks(&["run", "--", "cat", "/dev/null"]);
        let id = request_of(&call().stderr);
        // The person themselves, their agent with them, has no say any more: not in this and not in what else an approver does.
        let own = machine.asks(&["approvals", "approve", &id, "--yes"]);
        assert!(own.code == Some(125) && own.stderr.contains(&format!("only the user with the id {APPROVER} approves")), "{own:?}");
        let secret = machine.asks(&["secret", "remove", "X"]);
        assert!(secret.code == Some(125) && secret.stderr.contains("only the user with the id"), "{secret:?}");
        // A stranger is not talked to, and the asker cannot pose as the approver.
        for (who, says) in [(STRANGER, "did not name you"), (ground.who.uid(), "did not name you")] {
            let refused = machine.says(who, &["approvals", "approve", &id, "--of", &uid, "--yes"]);
            assert!(refused.code == Some(125) && refused.stderr.contains(says), "{who}: {refused:?}");
        }
        let knock =
            "import socket, sys\ntry:\n  socket.socket(socket.AF_UNIX).connect(sys.argv[1])\nexcept PermissionError: print('closed')";
        let socket = machine.sockets.join(format!("{uid}.sock"));
        let mut knocking = Machine::root(ground);
        knocking.args(["-euc", "setpriv --reuid \"$0\" --regid \"$0\" --clear-groups python3 -c \"$1\" \"$2\""]);
        let knocked = finish(knocking.arg(STRANGER.to_string()).arg(knock).arg(&socket));
        assert_eq!(knocked.stdout, "closed\n", "{knocked:?}");
        let listed = machine.says(APPROVER, &["approvals", "list", "--of", &uid, "--json"]);
        let value: Value = serde_json::from_str(&listed.stdout).unwrap_or_else(|error| panic!("{error}: {listed:?}"));
        assert_eq!(
            (value["approvals"].as_array().map(Vec::len), &value["approvals"][0]["id"]),
            (Some(1), &Value::from(id.clone())),
            "{value}"
        );
        let shown = machine.says(APPROVER, &["approvals", "show", &id, "--of", &uid]);
        assert!(shown.code == Some(0) && shown.stdout.contains("cat") && shown.stdout.contains("look first"), "{shown:?}");
        let approved = machine.says(APPROVER, &["approvals", "approve", &id, "--of", &uid, "--yes"]);
        assert_eq!(approved.code, Some(0), "{approved:?}");
        assert_eq!(call().code, Some(0));
        let next = request_of(&call().stderr);
        assert_ne!(next, id, "once");
        let none = machine.says(APPROVER, &["approvals", "deny", "--all", "--agent", "claude/main", "--of", &uid]);
        assert!(none.code == Some(0) && none.stdout.is_empty() && none.stderr.contains("nothing was denied"), "{none:?}");
        let denied = machine.says(APPROVER, &["approvals", "deny", "--all", "--of", &uid]);
        assert!(denied.code == Some(0) && denied.stdout.starts_with(&next) && denied.stdout.contains("  cat /dev/null"), "{denied:?}");
        let again = request_of(&machine.asks(&["run", "--", "cat", "/dev/zero"]).stderr);
        let denied = machine.says(APPROVER, &["approvals", "deny", &again, "--of", &uid]);
        assert_eq!(denied.code, Some(0), "{denied:?}");
        let stays = call();
        assert!(stays.code == Some(126) && stays.stderr.contains("said no"), "{stays:?}");
        let exported = machine.asks(&["receipts", "list", "--json"]);
        let value: Value = serde_json::from_str(&exported.stdout).unwrap_or_else(|error| panic!("{error}: {exported:?}"));
        let methods: Vec<(&Value, &Value)> = value["receipts"]
            .as_array()
            .expect("receipts")
            .iter()
            .filter(|one| one["approval"].is_object())
            .map(|one| (&one["approval"]["method"], &one["approval"]["by"]))
            .collect();
        let by = Value::from(APPROVER.to_string());
        assert!(methods.len() == 5 && methods.iter().all(|(method, who)| **method == "other-uid" && **who == by), "{methods:?}");
        drop(daemon);
        assert_eq!(std::fs::read_dir(&machine.sockets).expect("a directory").count(), 0, "nothing stays");
    });
}

#[test]
fn what_the_asker_writes_into_the_store_does_not_count() {
    let ground = Ground::new(Who::Ordinary);
    ask_for(&ground, "cat");
    let machine = Machine::new(&ground);
    let call = || machine.asks(&["run", "--", "cat", "/dev/null"]);
    let id = request_of(&call().stderr);
    let database = ground.state.join("stockade/approvals/approvals.db");
    let forged = format!(
        "import sqlite3, time\nc = sqlite3.connect('{}')\nc.execute(\"UPDATE requests SET state = 'approved', decided = ?, expires = ?, \
         decided_by = '{APPROVER}', method = 'other-uid', signature = x'00' WHERE id = '{id}'\", (int(time.time()), int(time.time()) + 3000))\nc.commit()\n",
        database.display()
    );
    let written = finish(ground.outside("python3").args(["-c", &forged]));
    assert_eq!(written.code, Some(0), "{written:?}");
    let refused = call();
    assert!(refused.code == Some(126) && refused.stderr.contains("its signature does not hold"), "{refused:?}");
}

#[test]
fn only_root_names_the_approver_and_only_where_nobody_can_take_a_name() {
    let ground = Ground::new(Who::Ordinary);
    ask_for(&ground, "cat");
    let machine = Machine::new(&ground);
    let file = machine.etc.join("stockade/approver.json");
    // Whoever could write it could name themselves.
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o666)).expect("mode");
    let loose = machine.asks(&["run", "--", "cat", "/dev/null"]);
    assert!(loose.code == Some(125) && loose.stderr.contains("is no approver credential"), "{loose:?}");
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).expect("mode");
    chown(&file, Some(ground.who.uid()), None).expect("owned");
    let owned = machine.asks(&["run", "--", "cat", "/dev/null"]);
    assert!(owned.code == Some(125) && owned.stderr.contains("is no approver credential"), "{owned:?}");
    chown(&file, Some(0), None).expect("owned");
    // A person's own file cannot name anybody.
    let text = std::fs::read_to_string(&file).expect("read");
    std::fs::remove_file(&file).expect("removed");
    ground.plant(&ground.state.join("stockade/approvals/approver.json"), &text, 0o600);
    let own = machine.asks(&["run", "--", "cat", "/dev/null"]);
    assert!(own.code == Some(125) && own.stderr.contains("is no approver credential"), "{own:?}");
    std::fs::remove_file(ground.state.join("stockade/approvals/approver.json")).expect("removed");
    machine.names(&text);
    // A directory in which sockets could be exchanged is not used.
    std::fs::set_permissions(&machine.sockets, PermissionsExt::from_mode(0o777)).expect("mode");
    let refused = machine.asks(&["serve"]);
    assert!(refused.code == Some(125) && refused.stderr.contains("install -d -m 1777"), "{refused:?}");
    std::fs::set_permissions(&machine.sockets, PermissionsExt::from_mode(0o1777)).expect("mode");
    // A stranger who took the asker's name first is found out.
    let path = machine.sockets.join(format!("{}.sock", ground.who.uid()));
    let squatter = std::os::unix::net::UnixListener::bind(&path).expect("bound");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).expect("mode");
    let found = machine.says(APPROVER, &["approvals", "list", "--of", &ground.who.uid().to_string()]);
    assert!(found.code == Some(125) && found.stderr.contains("is not theirs"), "{found:?}");
    drop(squatter);
}
