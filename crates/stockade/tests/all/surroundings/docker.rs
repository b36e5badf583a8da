//! A real container of a real engine, without privileges: Debian's `docker.io`, with a daemon of this test's own that ends with it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use super::{NAMESPACES, text};
use crate::Outcome;
use crate::wall::ground::{eventually, finish};
use crate::wall::{Ground, Who};

/// What lets a container have namespaces and a `/proc` of its own inside.
const NESTING: [&str; 4] = ["--security-opt", "seccomp=unconfined", "--security-opt", "systempaths=unconfined"];

/// An engine with one image: empty but for links into the host's `/usr`, which containers get read-only.
struct Engine {
    daemon: Child,
    place: TempDir,
    binary: PathBuf,
}

impl Engine {
    #[expect(clippy::disallowed_methods, reason = "the engine that this test is about")]
    fn start(ground: &Ground) -> Self {
        let place = tempfile::Builder::new().prefix("stockade-docker-").tempdir_in("/var/tmp").expect("a directory");
        let at = |name: &str| place.path().join(name);
        // An engine of this age takes the mixed layout of control groups for version 1 once the empty version 2 is out of sight.
        let script = "umount --lazy /sys/fs/cgroup/unified 2>/dev/null || true; exec dockerd --bridge=none --iptables=false --ip6tables=false \
                      --storage-driver vfs --data-root \"$1/data\" --exec-root \"$1/exec\" --pidfile \"$1/pid\" --host \"unix://$1/socket\"";
        let log = std::fs::File::create(at("log")).expect("a log");
        let mut command = Command::new("unshare");
        command.args(["--mount", "bash", "-c", script, "x"]).arg(place.path()).stdin(Stdio::null());
        command.stdout(log.try_clone().expect("a log")).stderr(log).env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        let daemon = command.spawn().expect("unshare starts");
        let engine = Self { daemon, place, binary: ground.binary.clone() };
        eventually("the engine answers", || engine.client(&["version"]).code == Some(0));
        engine.import();
        engine
    }

    fn at(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    #[expect(clippy::disallowed_methods, reason = "the engine's client")]
    fn client(&self, words: &[&str]) -> Outcome {
        let mut command = Command::new("/usr/bin/docker");
        command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", self.place.path()).stdin(Stdio::null());
        command.arg("--host").arg(format!("unix://{}", self.at("socket").display())).args(words);
        finish(&mut command)
    }

    fn import(&self) {
        let root = self.at("root");
        for directory in ["usr", "etc", "proc", "sys", "dev", "tmp", "run", "var/tmp", "home/user", "work", "stockade"] {
            std::fs::create_dir_all(root.join(directory)).expect("made");
        }
        for writable in ["tmp", "var/tmp", "home/user", "work"] {
            std::fs::set_permissions(root.join(writable), std::os::unix::fs::PermissionsExt::from_mode(0o1777)).expect("mode");
        }
        for link in ["bin", "sbin", "lib", "lib64"] {
            std::os::unix::fs::symlink(Path::new("usr").join(link), root.join(link)).expect("linked");
        }
        for file in ["passwd", "group", "ld.so.cache"] {
            std::fs::copy(Path::new("/etc").join(file), root.join("etc").join(file)).expect("copied");
        }
        let archive = self.at("image.tar");
        let packed = finish(tar().arg("-C").arg(&root).arg("-cf").arg(&archive).arg("."));
        assert_eq!(packed.code, Some(0), "{packed:?}");
        let imported = self.client(&["import", archive.to_str().expect("text"), "here"]);
        assert_eq!(imported.code, Some(0), "{imported:?}\n{}", self.log());
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.at("log")).unwrap_or_default()
    }

    /// `stockade WORDS` in a new container, as this user.
    fn stockade(&self, user: &str, options: &[&str], words: &[&str]) -> Outcome {
        let binary = format!("{}:/stockade/stockade:ro", self.binary.display());
        let fixed =
            ["run", "--rm", "--network", "none", "--user", user, "--workdir", "/work", "--volume", "/usr:/usr:ro", "--volume", &binary];
        let environment = ["--env", "HOME=/home/user", "--env", "PATH=/usr/bin:/bin"];
        self.client(&[&fixed[..], &environment, options, &["here", "/stockade/stockade"], words].concat())
    }

    fn json(&self, user: &str, options: &[&str], words: &[&str]) -> (Option<i32>, Value) {
        let outcome = self.stockade(user, options, words);
        let value = serde_json::from_str(&outcome.stdout).unwrap_or_else(|e| panic!("{e}: {outcome:?}\n{}", self.log()));
        (outcome.code, value)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // Asked to end, it ends its helpers and unmounts what it mounted.
        if let Some(pid) = rustix::process::Pid::from_raw(self.daemon.id() as i32) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = self.daemon.wait();
    }
}

#[expect(clippy::disallowed_methods, reason = "packs the image")]
fn tar() -> Command {
    Command::new("tar")
}

/// One test, because an engine takes seconds to start: as the engine comes, opened up half-way and all the way, and degraded.
#[test]
fn inside_a_container_without_privileges() {
    let ground = Ground::new(Who::Ordinary);
    let engine = Engine::start(&ground);
    for user in ["65534:65534", "0:0"] {
        // As it comes: refused, with the command that starts another container, and doctor says the same.
        let (code, value) = engine.json(user, &[], &["run", "--json", "--", "true"]);
        let (message, hint) = (text(&value["error"]["message"]), text(&value["error"]["hint"]));
        assert!(code == Some(125) && message.contains("files, network, processes, privileges and secrets"), "{user}: {value}");
        assert!(message.contains("container's system call filter") && hint.starts_with("docker run "), "{user}: {value}");
        let (code, doctor) = engine.json(user, &[], &["doctor", "--json"]);
        assert!(code == Some(1) && doctor.to_string().contains(hint), "{user}: {doctor}");
        // The filter lifted: now the covered /proc is in the way.
        let (code, value) = engine.json(user, &NESTING[..2], &["run", "--json", "--", "true"]);
        assert!(code == Some(125) && text(&value["error"]["hint"]).contains("systempaths=unconfined"), "{user}: {value}");
    }
    // With what the hint says everything is enforced.
    let (code, value) = engine.json("65534:65534", &NESTING, &["run", "--json", "--", "cat", "/proc/self/comm"]);
    assert_eq!((code, text(&value["stdout"])), (Some(0), "cat\n"), "{value}");
    for demand in ["files", "network", "processes", "privileges", "syscalls", "secrets", "exec"] {
        assert_eq!(text(&value["enforcement"][demand]), "enforced", "{demand}: {value}");
    }
    // Root of a container is root of little: its sandbox would run as its own user.
    let (code, value) = engine.json("0:0", &NESTING, &["run", "--json", "--", "true"]);
    assert!(code == Some(125) && text(&value["error"]["hint"]).contains("--user"), "{value}");
    let (code, value) = engine.json("0:0", &NESTING, &["run", "--json", "--allow-degraded", "privileges", "--", "id", "-u"]);
    assert_eq!((code, text(&value["stdout"]), text(&value["enforcement"]["privileges"])), (Some(0), "1000\n", "partial"), "{value}");
    // A person who allows it gets what needs no namespaces, in the container as it comes.
    let script = "echo written >file && cat file; echo x >/home/user/x; cat /etc/passwd | wc -l >/dev/null && echo read";
    let (code, value) = engine.json("65534:65534", &[], &["run", "--json", NAMESPACES, "--workspace-mode", "rw", "--", "sh", "-c", script]);
    assert_eq!((code, text(&value["stdout"])), (Some(0), "written\nread\n"), "{value}");
    for (demand, level) in [("files", "partial"), ("network", "enforced"), ("syscalls", "enforced"), ("processes", "partial")] {
        assert_eq!(text(&value["enforcement"][demand]), level, "{demand}: {value}");
    }
}
