//! The broker of a server: one process for all its calls, reached at a private socket by that server alone; killed, it is started anew.

use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;

use serde_json::json;
use stockade_broker::client::{ClientError, Lookup, Owner};
use stockade_broker::ticket::Signer;

use crate::mcp::client::Client;
use crate::mcp::rules;
use crate::wall::Ground;
use crate::wall::ground::{as_both, eventually, finish_with};

const RULES: &str = "permit (principal, action == Stockade::Action::\"gh.repo\", resource);
permit (principal, action == Stockade::Action::\"connect\", resource);
permit (principal is Stockade::Human, action, resource);";
const VALUE: &str = "ghp_aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0eF3hJ6";

/// The brokers of this ground: those whose environment has its home. Other tests have theirs.
fn brokers(ground: &Ground) -> Vec<u32> {
    let named = crate::wall::ground::processes("/proc/self/exe\0broker\0");
    let home = format!("HOME={}\0", ground.home.display());
    let ours = |pid: &u32| std::fs::read(format!("/proc/{pid}/environ")).is_ok_and(|all| String::from_utf8_lossy(&all).contains(&home));
    named.into_iter().filter(ours).collect()
}

#[test]
fn a_server_has_one_broker_that_nobody_else_reaches() {
    as_both(|ground| {
        rules(ground, RULES);
        let kept = finish_with(&mut ground.stockade(["secret", "set", "GH_TOKEN"]), VALUE.as_bytes());
        assert_eq!(kept.code, Some(0), "{kept:?}");
        let mut client = Client::new(ground);
        // There is no such host here; that a credential was given is what counts.
        let call = |client: &mut Client| client.call("gh_repo", &json!({"owner": "cli", "repo": "cli"}));
        let told = call(&mut client);
        assert!(!told.to_string().contains(VALUE), "{told:#}");
        let first = brokers(ground);
        assert_eq!(first.len(), 1, "one for all: {told:#}");
        call(&mut client);
        assert_eq!(brokers(ground), first, "the same for the next call");
        let directory = ground.state.join("stockade/run/broker");
        let mode = std::fs::metadata(&directory).expect("its directory").permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        let socket = std::fs::read_dir(&directory)
            .expect("read")
            .flatten()
            .map(|entry| entry.path())
            .find(|path| std::fs::metadata(path).is_ok_and(|found| found.file_type().is_socket()));
        let socket = socket.expect("a socket");
        // This process has the same user and no sandbox around it, and did not start it.
        let connect = || UnixStream::connect(&socket).expect("connected");
        let refused = Owner::join(connect(), std::sync::Arc::new(Signer::new().expect("a key")));
        assert!(matches!(refused, Err(ClientError::Gone(_))), "{refused:?}");
        let refused = Lookup::connect(connect(), Some([0; 16]));
        assert!(matches!(refused, Err(ClientError::Gone(_))), "{refused:?}");
        // Killed in the middle of things it is started anew.
        let broker = rustix::process::Pid::from_raw(first[0].cast_signed()).expect("a number");
        rustix::process::kill_process(broker, rustix::process::Signal::KILL).expect("killed");
        eventually("it is gone", || brokers(ground).is_empty());
        call(&mut client);
        let second = brokers(ground);
        assert!(second.len() == 1 && second != first, "{second:?}");
        assert_eq!(client.close().0, Some(0));
        eventually("it ends with its server", || brokers(ground).is_empty());
    });
}
