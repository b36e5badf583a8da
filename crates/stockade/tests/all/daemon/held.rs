//! What the daemon may not do, and who may not speak to it.

use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use super::{Daemon, served};
use crate::wall::ground::{finish, finish_with};
use crate::wall::{Ground, Who, as_both};

#[test]
fn doctor_has_it_try_what_it_may_not() {
    as_both(|ground| {
        let check = || {
            let outcome = finish(&mut ground.stockade(["doctor", "--json"]));
            let value: Value = serde_json::from_str(&outcome.stdout).expect("JSON");
            value["checks"].as_array().expect("checks").iter().find(|check| check["name"] == "daemon").expect("a check").clone()
        };
        assert_eq!(check()["detail"], "none runs");
        let set = finish_with(&mut ground.stockade(["secret", "set", "token"]), b"a-secret-of-the-test-0123456789\n");
        assert_eq!(set.code, Some(0), "{set:?}");
        let _daemon = Daemon::of(ground);
        let check = check();
        assert_eq!(
            (&check["state"], &check["detail"]),
            (&"good".into(), &"5 things it may not do were tried and refused".into()),
            "{check}"
        );
        // It is there for everybody else.
        assert!(finish(&mut ground.stockade(["secret", "list"])).stdout.contains("token"));
    });
}

/// What the kernel says of it, not what it says itself.
#[test]
fn the_kernel_holds_it() {
    as_both(|ground| {
        let daemon = Daemon::of(ground);
        served(ground, &[], &["true"]);
        is_held(ground, daemon.child.id());
    });
}

/// Every thread of a confined server has given up what the server has.
pub(crate) fn is_held(ground: &Ground, pid: u32) {
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).expect("its threads").flatten() {
        // One that ended meanwhile has no status.
        let Ok(status) = std::fs::read_to_string(task.path().join("status")) else { continue };
        let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim).unwrap_or_default().to_owned();
        assert_eq!((line("Seccomp:"), line("NoNewPrivs:")), ("2".to_owned(), "1".to_owned()), "{status}");
        let capabilities = u64::from_str_radix(&line("CapEff:"), 16).expect("a number");
        // CAP_CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, FSETID, KILL for root; nothing for anybody else.
        assert_eq!(capabilities, if ground.who == Who::Root { 0b11_1111 } else { 0 }, "{status}");
    }
    let mounts = std::fs::read_to_string(format!("/proc/{pid}/mountinfo")).expect("its mounts");
    let secrets = ground.state.join("stockade/secrets");
    assert!(mounts.lines().any(|line| line.split(' ').nth(4) == secrets.to_str() && line.contains(" ro,")), "{mounts}");
    let namespace = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/mnt")).expect("its mounts");
    assert_ne!(namespace(&pid.to_string()), namespace("self"));
}

/// Where no server runs, another process confines itself as one does.
#[test]
fn doctor_has_a_server_for_agents_try_it_too() {
    as_both(|ground| {
        let set = finish_with(&mut ground.stockade(["secret", "set", "token"]), b"a-secret-of-the-test-0123456789\n");
        assert_eq!(set.code, Some(0), "{set:?}");
        let outcome = finish(&mut ground.stockade(["doctor", "--json"]));
        let value: Value = serde_json::from_str(&outcome.stdout).expect("JSON");
        let check = value["checks"].as_array().expect("checks").iter().find(|check| check["name"] == "servers for agents");
        let check = check.expect("a check");
        assert_eq!(
            (&check["state"], &check["detail"]),
            (&"good".into(), &"6 things that none may do were tried and refused".into()),
            "{check}"
        );
        // What is tried says what came of it, one by one.
        let shown = finish(&mut ground.stockade(["confinement", "--json"]));
        let tried: Vec<Value> = serde_json::from_str(&shown.stdout).unwrap_or_else(|error| panic!("{error}: {shown:?}"));
        let what: Vec<&str> = tried.iter().filter_map(|one| one["what"].as_str()).collect();
        let all = ["open a connection", "run a program", "change mounts", "see the secret store", "look through another process"];
        assert_eq!(what, [&all[..], &["connect a socket of before"]].concat());
        assert!(tried.iter().all(|one| one["refused"] == true), "{tried:?}");
    });
}

#[test]
fn its_socket_is_for_one_person_and_it_is_alone() {
    let ground = Ground::new(Who::Root);
    let daemon = Daemon::of(&ground);
    let mode = std::fs::metadata(&daemon.socket).expect("a socket").permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    // Even where the directories would let somebody in.
    let mut path = daemon.socket.clone();
    while path != ground.base {
        std::fs::set_permissions(&path, PermissionsExt::from_mode(if path == daemon.socket { 0o666 } else { 0o755 })).expect("mode");
        path.pop();
    }
    let script = "import socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.settimeout(5)\ns.connect(sys.argv[1])\ntry:\n s.sendall(b'\\0\\0\\0\\2{}')\n got=s.recv(9)\nexcept OSError:\n got=b''\nprint('answer' if got else 'closed')";
    let other = finish(
        ground
            .outside("setpriv")
            .args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "python3", "-c", script])
            .arg(&daemon.socket),
    );
    assert_eq!(other.stdout, "closed\n", "{other:?}");
    let second = finish(&mut ground.stockade(["serve"]));
    assert!(second.code == Some(125) && second.stderr.contains("already"), "{second:?}");
}

/// Whatever arrives at the socket, the daemon goes on.
#[test]
fn nonsense_is_answered_by_silence() {
    as_both(|ground| {
        let _daemon = Daemon::of(ground);
        let script = "import socket,sys,os
for text in [b'', b'\\0', b'\\xff'*4, b'\\0\\0\\0\\5hello', b'\\0\\0\\0\\2{}', b'\\0\\0\\0\\x24' + b'{\"version\":\"0\",\"what\":\"prove\"}'.ljust(36), b'\\0\\0\\0\\1[' + b'['*9000]:
    s=socket.socket(socket.AF_UNIX); s.settimeout(20); s.connect(sys.argv[1])
    try:
        s.sendall(text); s.shutdown(socket.SHUT_WR); s.recv(100)
    except OSError: pass
# descriptors that nobody asked for
import array
s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])
text=b'{\"version\":\"0.1.0\",\"what\":{\"run\":{\"words\":[],\"directory\":\"/\",\"variables\":[]}}}'
s.sendmsg([len(text).to_bytes(4,'big')+text],[(socket.SOL_SOCKET,socket.SCM_RIGHTS,array.array('i',[0]*9))])
print(s.recv(200)[4:].decode())";
        let socket = ground.state.join("stockade/run/daemon.sock");
        let told = finish(ground.outside("python3").args(["-c", script]).arg(socket));
        assert!(told.code == Some(0) && told.stdout.contains("yourself"), "{told:?}");
        served(ground, &[], &["true"]);
    });
}
