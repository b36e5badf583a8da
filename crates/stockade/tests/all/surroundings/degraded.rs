//! What is held without namespaces, where a person allowed that: tried from inside, and as the report says.

use serde_json::Value;

use super::{NAMESPACES, Surroundings, text};
use crate::wall::ground::{eventually, processes, unique_seconds};
use crate::wall::{Ground, Who};

const OFF: Surroundings<'_> = Surroundings { setup: "", pretend: &["ids", "user.max_user_namespaces=0"] };
const OFF_WITHOUT_LANDLOCK: Surroundings<'_> =
    Surroundings { setup: "", pretend: &["ids", "user.max_user_namespaces=0", "EOPNOTSUPP:landlock_create_ruleset"] };

fn run(ground: &Ground, flags: &[&str], argv: &[&str]) -> crate::Outcome {
    OFF.stockade(ground, &[&["run", NAMESPACES], flags, &["--"], argv].concat())
}

#[test]
fn the_report_says_what_is_left() {
    let ground = Ground::new(Who::Ordinary);
    let levels = [
        ("files", "partial"),
        ("network", "enforced"),
        ("processes", "partial"),
        ("privileges", "enforced"),
        ("syscalls", "enforced"),
        ("secrets", "partial"),
        ("pids", "unavailable"),
        ("time", "partial"),
    ];
    OFF.reports(&ground, &[NAMESPACES, "--workspace-mode", "ro"], &levels);
    let (_, doctor) = OFF.json(&ground, &["doctor"]);
    for (demand, level) in levels {
        assert_eq!(text(&doctor["degraded"][demand]["level"]), level, "{demand}: {doctor}");
    }
    let without = [
        ("files", "unavailable"),
        ("secrets", "unavailable"),
        ("processes", "unavailable"),
        ("network", "enforced"),
        ("syscalls", "enforced"),
    ];
    OFF_WITHOUT_LANDLOCK.reports(&ground, &[NAMESPACES, "--workspace-mode", "ro"], &without);
}

/// Confinement needs what a jail needs, and more. Where it cannot be had nobody is served, whatever `--allow-degraded` would leave of a jail.
#[test]
fn a_server_that_cannot_be_confined_does_not_start() {
    let ground = Ground::new(Who::Ordinary);
    let old = Surroundings { setup: "", pretend: &["landlock=3"] };
    for (surroundings, why) in [(OFF, "leaving the mounts"), (old, "")] {
        for words in [&["mcp"][..], &["serve", "--listen", "127.0.0.1:0"], &["serve"]] {
            let outcome = surroundings.stockade(&ground, words);
            assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(125), ""), "{words:?}: {outcome:?}");
            assert!(outcome.stderr.contains("confining the server") && outcome.stderr.contains(why), "{words:?}: {outcome:?}");
            assert!(outcome.stderr.contains("stockade doctor"), "{words:?}: {outcome:?}");
        }
        let (_, doctor) = surroundings.json(&ground, &["doctor"]);
        let check = doctor["checks"].as_array().expect("checks").iter().find(|check| check["name"] == "servers for agents");
        assert_eq!(text(&check.expect("a check")["state"]), "missing", "{doctor}");
    }
}

/// A kernel that says yes and does nothing: what was promised is tried before anybody is served, and found not to hold.
#[test]
fn a_server_that_is_confined_in_name_only_does_not_start() {
    for who in [Who::Root, Who::Ordinary] {
        let ground = Ground::new(who);
        for (surroundings, why) in [("DONE:mount", "see the secret store"), ("DONE:landlock_restrict_self", "connect a socket of before")] {
            let surroundings = Surroundings { setup: "", pretend: &[surroundings] };
            for words in [&["mcp"][..], &["serve", "--listen", "127.0.0.1:0"], &["serve"]] {
                let outcome = surroundings.stockade(&ground, words);
                assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(125), ""), "{words:?}: {outcome:?}");
                assert!(outcome.stderr.contains(&format!("it can still {why}")), "{words:?}: {outcome:?}");
            }
            let (_, doctor) = surroundings.json(&ground, &["doctor"]);
            assert!(doctor.to_string().contains(&format!("confined, it can {why}")), "{doctor}");
        }
    }
}

#[test]
fn files_outside_stay_closed() {
    let ground = Ground::new(Who::Ordinary);
    ground.plant(&ground.home.join("secret"), "PLANTED", 0o644);
    ground.plant(&ground.home.join(".cargo/bin/tool"), "#!/bin/sh\necho tool\n", 0o755);
    ground.plant(&ground.home.join(".cargo/credentials.toml"), "PLANTED", 0o644);
    ground.file("file", "before\n");
    let outside = ground.base.join("outside");
    ground.directory(&outside);
    let script = "cat file; cat ~+/../home/secret ../home/.cargo/credentials.toml; echo x >../outside/new; echo x >/tmp/stockade-was-here; \
                  ls ../state; echo x >file; echo x >~/own && cat ~/own; mktemp >/dev/null && echo temporary; cat /etc/shadow";
    for (mode, after) in [("ro", "before\n"), ("rw", "x\n")] {
        let outcome = run(&ground, &["--workspace-mode", mode], &["bash", "-c", script]);
        assert_eq!(outcome.stdout, "before\nx\ntemporary\n", "{mode}: {outcome:?}");
        assert_eq!(ground.read("file"), after, "{mode}");
        ground.file("file", "before\n");
    }
    assert_eq!(std::fs::read_dir(&outside).expect("there").count(), 0);
    assert!(!std::path::Path::new("/tmp/stockade-was-here").exists());
    assert_eq!(ground.sandboxes(), Vec::<String>::new());
}

#[test]
fn no_socket_no_privilege_no_forbidden_call() {
    let ground = Ground::new(Who::Ordinary);
    let program = "import ctypes, os, socket\n\
        for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX, socket.AF_NETLINK):\n\
        \ttry: socket.socket(family); print('socket', family)\n\
        \texcept PermissionError: pass\n\
        a, b = socket.socketpair(); a.send(b'x'); print('pair', b.recv(1).decode())\n\
        status = dict(line.split(':\\t') for line in open('/proc/self/status').read().splitlines() if ':\\t' in line)\n\
        print(status['NoNewPrivs'], status['Seccomp'], int(status['CapEff'], 16))\n\
        libc = ctypes.CDLL(None, use_errno=True)\n\
        print(libc.unshare(0x10000000), libc.syscall(101, 16, os.getppid(), 0, 0))\n";
    let outcome = run(&ground, &["--workspace-mode", "ro"], &["python3", "-c", program]);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), "pair x\n1 2 0\n-1 -1\n"), "{outcome:?}");
}

#[test]
fn processes_outside_are_left_alone_and_those_inside_end() {
    let ground = Ground::new(Who::Ordinary);
    let mut outside = ground.outside("sleep").arg("600").spawn().expect("started");
    let seconds = unique_seconds();
    let script =
        format!("kill -9 {}; cat /proc/{}/environ; setsid sleep {seconds} & disown; setsid -f sleep {seconds}", outside.id(), outside.id());
    let outcome = run(&ground, &["--workspace-mode", "ro"], &["bash", "-c", &script]);
    let still = outside.try_wait().expect("asked");
    outside.kill().expect("killed");
    outside.wait().expect("waited");
    assert_eq!((outcome.stdout.as_str(), still), ("", None), "{outcome:?}");
    eventually("everything inside has ended", || processes(&seconds).is_empty());
}

#[test]
fn what_cannot_be_had_is_refused_with_another_way() {
    let ground = Ground::new(Who::Ordinary);
    let refused = |flags: &[&str], says: &[&str]| {
        let outcome = run(&ground, flags, &["true"]);
        assert_eq!(outcome.code, Some(125), "{flags:?}: {outcome:?}");
        assert!(says.iter().all(|word| outcome.stderr.contains(word)), "{flags:?}: {says:?} in {outcome:?}");
        assert_eq!(ground.sandboxes(), Vec::<String>::new());
    };
    refused(&[], &["overlay", "--workspace-mode ro"]);
    refused(&["--workspace-mode", "ro", "--mount", "/usr:/other"], &["another path"]);
    refused(&["--workspace-mode", "ro", "--timeout", "5s"], &["time cannot be enforced"]);
    refused(&["--workspace-mode", "ro", "--exec-allow", "true"], &["exec cannot be enforced"]);
    refused(&["--workspace-mode", "ro", "--pids", "5"], &["pids cannot be enforced"]);
    let created = OFF.stockade(&ground, &["sandbox", "create", NAMESPACES, "--workspace-mode", "ro"]);
    assert!(created.code == Some(125) && created.stderr.contains("stockade run"), "{created:?}");
    // Root without namespaces would stay root.
    let root = Ground::new(Who::Root);
    let outcome = run(&root, &["--workspace-mode", "ro"], &["true"]);
    assert!(outcome.code == Some(125) && outcome.stderr.contains("ordinary user"), "{outcome:?}");
}

#[test]
fn limits_that_were_allowed_to_be_degraded_still_work() {
    let ground = Ground::new(Who::Ordinary);
    let flags = [NAMESPACES, "--allow-degraded=time", "--workspace-mode", "ro", "--timeout", "1s"];
    let seconds = unique_seconds();
    let (code, value): (_, Value) =
        OFF.json(&ground, &[&["run"], &flags[..], &["--", "bash", "-c", &format!("setsid sleep {seconds} & sleep {seconds}")]].concat());
    assert_eq!((code, &value["timed_out"]), (Some(124), &Value::Bool(true)), "{value}");
    eventually("everything inside has ended", || processes(&seconds).is_empty());
}
