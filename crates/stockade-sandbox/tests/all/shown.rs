//! Files that a way out brings along: read and not written, executed where they are programs of ours and nowhere else. As root and as an ordinary user.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use stockade_core::limits::Limits;
use stockade_core::spec::{MountMode, SandboxSpec, Workspace};
use stockade_sandbox::backends::jail::Jail;
use stockade_sandbox::backends::{BackendError, Start};
use stockade_sandbox::drive::{Ending, Sink, Streams};
use stockade_sandbox::guard::Guard;
use stockade_sandbox::sandbox::Sandbox;
use stockade_sandbox::state::{self, Owned, Sandboxes};
use stockade_sandbox::wayout::{Shown, Use, WayOut, helper};

use super::{both, safe};

const CREDENTIAL: &str = "/run/stockade/bin/stockade-credential";
const DOCKER: &str = "/run/stockade/bin/docker-credential-stockade";
const SETTINGS: &str = "/run/stockade/settings/config.json";
/// Where the desk is played inside.
const PORT: u16 = 8123;

fn as_both(name: &str, test: impl Fn(&Path)) {
    both::as_both(&format!("shown::{name}"), test);
}

/// A sandbox with the tool at both of its names and a file of settings, and what must outlive it.
fn sandbox(base: &Path, list: Option<&[&str]>) -> (Sandbox, Owned) {
    let owned = Sandboxes::open(&base.join("state")).unwrap().create().unwrap();
    let settings = owned.directory.join("config.json");
    fs::write(&settings, "#!/bin/sh\necho settings\n").unwrap();
    fs::set_permissions(&settings, fs::Permissions::from_mode(0o755)).unwrap();
    let tool = helper(&state::programs(&base.join("state")), &owned.directory).unwrap();
    let shown = [(&tool, CREDENTIAL, Use::Execute), (&tool, DOCKER, Use::Execute), (&settings, SETTINGS, Use::Read)];
    let shown = shown.map(|(file, place, use_)| Shown { file: file.clone(), place: place.into(), use_ });
    (start(base, &owned, list, shown.into()).unwrap(), owned)
}

fn start(base: &Path, owned: &Owned, list: Option<&[&str]>, shown: Vec<Shown>) -> Result<Sandbox, BackendError> {
    let workspace = base.join("work");
    fs::create_dir_all(&workspace).unwrap();
    let desk = format!("http://127.0.0.1:{PORT}/TOKEN");
    let env = [("PATH", "/usr/bin:/bin"), ("HOME", "/home/sandbox"), ("STOCKADE_DESK", &desk), ("STOCKADE_DESK_DOCKER", "D")];
    let spec = SandboxSpec {
        workspace: Workspace { path: safe(&workspace), mode: MountMode::Overlay, git_common: None },
        mounts: Vec::new(),
        env: env.map(|(name, value)| (name.to_owned(), OsString::from(value))).into(),
        cwd: safe(&workspace),
        home: safe(Path::new("/home/sandbox")),
        exec_list: list.map(|list| list.iter().map(|program| (*program).to_owned()).collect()),
        limits: Limits::default(),
        allow_degraded: BTreeSet::new(),
        path_dirs: Vec::new(),
    };
    let (channel, _egress) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    let way_out =
        WayOut { channel, proxy_port: 3128, ports: vec![443], authorities: None, java_authorities: None, shown, agent: None, alarm: None };
    let start = Start {
        spec: &spec,
        id: &owned.id,
        directory: &owned.directory,
        home: base,
        toolchain_roots: &[],
        hidden: &[],
        guard: &Guard::default(),
        programs: None,
        way_out: Some(&way_out),
        meanwhile: None,
    };
    Sandbox::start(&Jail::default(), &start)
}

/// What a script prints, on either stream.
fn sh(sandbox: &mut Sandbox, script: &str) -> String {
    let streams = Streams::Plain { stdin: None, stdout: Sink::Buffer(1 << 20), stderr: Sink::Buffer(1 << 20) };
    let outcome = sandbox.exec(&["/bin/sh".into(), "-c".into(), script.into()], streams, None).unwrap();
    assert_eq!(outcome.ending, Ending::Code(0), "{script}: {}", String::from_utf8_lossy(&outcome.stderr.bytes));
    String::from_utf8([outcome.stdout.bytes, outcome.stderr.bytes].concat()).unwrap()
}

#[test]
fn files_are_read_and_nothing_else() {
    as_both("files_are_read_and_nothing_else", |base| {
        let (mut sandbox, owned) = sandbox(base, None);
        assert_eq!(sh(&mut sandbox, &format!("cat {SETTINGS}")), "#!/bin/sh\necho settings\n");
        for attempt in [
            format!("echo x > {SETTINGS}"),
            format!("echo x > {CREDENTIAL}"),
            format!("chmod 777 {SETTINGS}"),
            format!("chmod 777 {CREDENTIAL}"),
            format!("rm -f {SETTINGS}"),
            format!("mv {SETTINGS} /tmp/x"),
            format!("ln {CREDENTIAL} /tmp/x"),
            "touch /run/stockade/bin/git".to_owned(),
            SETTINGS.to_owned(),
        ] {
            assert_eq!(sh(&mut sandbox, &format!("({attempt}) > /dev/null 2>&1 || echo refused")), "refused\n", "{attempt}");
        }
        sandbox.destroy();
        assert_eq!(fs::read_to_string(owned.directory.join("config.json")).unwrap(), "#!/bin/sh\necho settings\n");
    });
}

#[test]
fn programs_of_ours_run_whatever_the_list_says() {
    as_both("programs_of_ours_run_whatever_the_list_says", |base| {
        for list in [None, Some(&["/bin/sh", "/bin/cp"][..])] {
            let (mut sandbox, _owned) = sandbox(base, list);
            let version = sh(&mut sandbox, &format!("{DOCKER} version"));
            assert!(version.starts_with("docker-credential-stockade (stockade) v"), "{version}");
            assert_eq!(sh(&mut sandbox, &format!("{CREDENTIAL} git A unknown")), "");
            let copied = format!(
                "cp {DOCKER} /tmp/docker-credential-stockade; /tmp/docker-credential-stockade version > /dev/null 2>&1 || echo refused"
            );
            let expected = if list.is_some() { "refused\n" } else { "" };
            assert_eq!(sh(&mut sandbox, &copied), expected, "the program is shown, not its bytes");
            sandbox.destroy();
        }
    });
}

/// Answers every question with how it was asked; `D` and what is unknown are refused.
const ANSWERING: &str = r"
import http.server, sys
class Desk(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        said = self.rfile.read(int(self.headers['content-length'])).decode().strip()
        status = 404 if '/D?' in self.path else 200
        asked = ' '.join([self.path, self.headers['authorization'], said]) + chr(10)
        answer = asked.encode() if status == 200 else b'none'
        self.send_response(status); self.send_header('content-length', str(len(answer))); self.end_headers(); self.wfile.write(answer)
    def log_message(self, *_): pass
server = http.server.HTTPServer(('127.0.0.1', int(sys.argv[1])), Desk)
open('ready', 'w').close()
server.serve_forever()
";

#[test]
fn the_tool_asks_the_desk() {
    as_both("the_tool_asks_the_desk", |base| {
        let (mut sandbox, _owned) = sandbox(base, None);
        assert_eq!(sh(&mut sandbox, &format!("{DOCKER} list; echo $?")).lines().last(), Some("1"), "nobody is at the desk yet");
        sandbox.write_file(&safe(&base.join("work/desk.py")), 0o644, &mut ANSWERING.as_bytes()).unwrap();
        let ready = "for _ in $(seq 1000); do [ -e ready ] && exit 0; sleep 0.02; done; cat errors >&2; exit 1";
        sh(&mut sandbox, &format!("/usr/bin/python3 desk.py {PORT} > errors 2>&1 & {ready}"));
        for (asked, expected) in [
            (format!("echo host=x | {CREDENTIAL} git A get"), "/git/A?action=get Bearer TOKEN host=x\n"),
            (format!("echo host=x | {CREDENTIAL} git D get; echo $?"), "0\n"),
            (format!("KUBERNETES_EXEC_INFO='{{}}' {CREDENTIAL} kubernetes K"), "/kubernetes/K Bearer TOKEN {}\n"),
            (format!("echo x.example | STOCKADE_DESK_DOCKER=E {DOCKER} get"), "/docker/E?action=get Bearer TOKEN x.example\n"),
            (format!("echo x.example | {DOCKER} get; echo $?"), "none1\n"),
            (format!("STOCKADE_DESK=http://10.0.0.1:{PORT}/T {CREDENTIAL} kubernetes K || echo refused"), "refused\n"),
        ] {
            let said = sh(&mut sandbox, &asked);
            assert!(said.starts_with(expected), "{asked}: {said}");
        }
        sandbox.destroy();
    });
}

#[test]
fn a_place_that_is_not_ours_is_refused() {
    as_both("a_place_that_is_not_ours_is_refused", |base| {
        let owned = Sandboxes::open(&base.join("state")).unwrap().create().unwrap();
        let file = owned.directory.join("f");
        fs::write(&file, "x").unwrap();
        for place in ["/usr/bin/git", "/run/stockade/../x", "/run/stockade/authorities.pem"] {
            let shown = vec![Shown { file: file.clone(), place: place.into(), use_: Use::Read }];
            let error = start(base, &owned, None, shown).err().unwrap();
            assert!(error.step() == "way out" && error.to_string().contains("no place"), "{error}");
        }
    });
}
