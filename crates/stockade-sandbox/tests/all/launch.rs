//! Walls that a launcher raises: the same as one's own, and nothing beyond what the launcher was held to. As root and as an ordinary user.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use stockade_core::limits::{Limit, Limits};
use stockade_core::spec::{BackendKind, Mount, MountMode, SandboxSpec, Workspace};
use stockade_sandbox::backends::{BackendError, Start};
use stockade_sandbox::drive::{Ending, Sink, Streams};
use stockade_sandbox::guard::Guard;
use stockade_sandbox::launch::Want;
use stockade_sandbox::launch::bounds::Bounds;
use stockade_sandbox::launch::remote::{Launcher, Ready, RemoteWall};
use stockade_sandbox::launch::serve::serve;
use stockade_sandbox::sandbox::Sandbox;
use stockade_sandbox::state::{self, Owned, Sandboxes};
use stockade_sandbox::template::STOCK;
use stockade_sandbox::wayout::{Shown, Use, WayOut, helper};

use super::{both, safe};

fn as_both(name: &str, test: impl FnOnce(&Path)) {
    both::as_both(&format!("launch::{name}"), test);
}

/// A launcher that raises these walls and shows what is in `base/home`.
fn launcher(base: &Path, walls: &[BackendKind]) -> Arc<Launcher> {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let state = base.join("state");
    let bounds = Bounds {
        state: state.clone(),
        runtime: base.join("run"),
        hidden: vec![state.clone()],
        roots: vec![base.join("home")],
        walls: walls.to_vec(),
        hint: "do otherwise".to_owned(),
    };
    std::thread::spawn(move || serve(&theirs, bounds));
    Arc::new(Launcher::new(ours, &state))
}

fn spec(base: &Path) -> SandboxSpec {
    let workspace = base.join("home/work");
    fs::create_dir_all(&workspace).unwrap();
    fs::write(workspace.join("given"), "from outside\n").unwrap();
    SandboxSpec {
        workspace: Workspace { path: safe(&workspace), mode: MountMode::Overlay, git_common: None },
        mounts: Vec::new(),
        env: vec![("PATH".into(), OsString::from("/usr/bin:/bin")), ("HOME".into(), OsString::from("/home/sandbox"))],
        cwd: safe(&workspace),
        home: safe(Path::new("/home/sandbox")),
        exec_list: None,
        limits: Limits::default(),
        allow_degraded: BTreeSet::new(),
        path_dirs: Vec::new(),
    }
}

fn start(
    wall: &RemoteWall,
    spec: &SandboxSpec,
    owned: &Owned,
    way_out: Option<&WayOut>,
    told: &Cell<u32>,
) -> Result<Sandbox, BackendError> {
    let meanwhile = || told.set(told.get() + 1);
    let start = Start {
        spec,
        id: &owned.id,
        directory: &owned.directory,
        home: spec.workspace.path.as_path(),
        toolchain_roots: &[],
        hidden: &[],
        guard: &Guard::default(),
        programs: None,
        way_out,
        meanwhile: Some(&meanwhile),
    };
    Sandbox::start(wall, &start)
}

fn sh(sandbox: &mut Sandbox, script: &str) -> String {
    let streams = Streams::Plain { stdin: None, stdout: Sink::Buffer(1 << 20), stderr: Sink::Buffer(1 << 20) };
    let outcome = sandbox.exec(&["sh".into(), "-c".into(), script.into()], streams, None).unwrap();
    assert_eq!(outcome.ending, Ending::Code(0), "{script}: {}", String::from_utf8_lossy(&outcome.stderr.bytes));
    String::from_utf8(outcome.stdout.bytes).unwrap()
}

#[test]
fn a_jail_from_afar_is_a_jail() {
    as_both("a_jail_from_afar_is_a_jail", |base| {
        let (launcher, spec) = (launcher(base, &[BackendKind::Jail]), spec(base));
        let sandboxes = Sandboxes::open(&base.join("state")).unwrap();
        let (wall, told) = (RemoteWall::new(launcher, BackendKind::Jail), Cell::new(0));
        let owned = sandboxes.create().unwrap();
        let mut sandbox = start(&wall, &spec, &owned, None, &told).unwrap();
        assert_eq!(told.get(), 1, "what may be done meanwhile is done here, and once");
        assert_eq!(sh(&mut sandbox, "cat given; echo new > made; (setsid sleep 1000 &) >/dev/null 2>&1"), "from outside\n");
        sandbox.silence();
        assert!(!sandbox.is_running());
        sandbox.destroy();
        assert!(!spec.workspace.path.as_path().join("made").exists());
        assert_eq!(fs::read_to_string(owned.directory.join("layer/upper/made")).unwrap(), "new\n", "changes are where they belong");
        // The same layer again, as a surface has it.
        let mut again = start(&wall, &spec, &owned, None, &told).unwrap();
        assert_eq!(sh(&mut again, "cat made; ls /proc | grep -c '^[0-9]'").lines().next(), Some("new"));
        again.destroy();
    });
}

/// How many directories of sandboxes there are.
fn directories(base: &Path) -> usize {
    fs::read_dir(base.join("state/sandboxes")).unwrap().count()
}

#[test]
fn a_jail_that_was_asked_for_ahead_is_the_one_that_is_wanted_or_none() {
    as_both("a_jail_that_was_asked_for_ahead_is_the_one_that_is_wanted_or_none", |base| {
        let (launcher, mut spec) = (launcher(base, &[BackendKind::Jail]), spec(base));
        spec.workspace.mode = MountMode::Ro;
        let want = |spec: &SandboxSpec| Want { spec: spec.clone(), home: base.join("home"), toolchain_roots: Vec::new() };
        let ahead = |want: &Want| launcher.ask_ahead(want.digest()).unwrap();
        let wanted = want(&spec);
        assert!(ahead(&wanted).take(&wanted).is_none(), "nothing stands yet");
        let Ready { owned, sandbox } = launcher.take(&wanted).unwrap();
        sandbox.destroy();
        owned.remove().unwrap();
        let Ready { owned, mut sandbox } = ahead(&wanted).take(&wanted).unwrap();
        assert_eq!(sh(&mut sandbox, "cat given"), "from outside\n");
        sandbox.destroy();
        owned.remove().unwrap();
        // Guessed wrongly, or not needed after all: it goes, and its directory with it.
        let other = want(&SandboxSpec { env: Vec::new(), ..spec.clone() });
        assert!(ahead(&wanted).take(&other).is_none());
        drop(ahead(&wanted));
        let end = Instant::now() + Duration::from_secs(20);
        // The template, and what it keeps ready.
        while directories(base) > 1 + STOCK.get() {
            assert!(Instant::now() < end, "{} directories are left", directories(base));
            std::thread::sleep(Duration::from_millis(5));
        }
        // What it would show is not what there is any more.
        let workspace = spec.workspace.path.as_path();
        fs::rename(workspace, base.join("home/before")).unwrap();
        fs::create_dir(workspace).unwrap();
        assert!(ahead(&wanted).take(&wanted).is_none());
    });
}

/// A way out with these files, and egress's end of it.
fn way_out(authorities: Option<PathBuf>, shown: Vec<Shown>) -> (WayOut, OwnedFd) {
    let (channel, egress) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    (WayOut { channel, proxy_port: 3128, ports: vec![443], authorities, java_authorities: None, shown, agent: None, alarm: None }, egress)
}

#[test]
fn files_of_a_way_out_come_along() {
    as_both("files_of_a_way_out_come_along", |base| {
        let (launcher, spec) = (launcher(base, &[BackendKind::Jail]), spec(base));
        let owned = Sandboxes::open(&base.join("state")).unwrap().create().unwrap();
        let (settings, place) = (owned.directory.join("settings"), "/run/stockade/settings");
        fs::write(&settings, "read\n").unwrap();
        let tool = helper(&state::programs(&base.join("state")), &owned.directory).unwrap();
        let docker = "/run/stockade/bin/docker-credential-stockade";
        let shown = vec![
            Shown { file: settings, place: place.into(), use_: Use::Read },
            Shown { file: tool, place: docker.into(), use_: Use::Execute },
        ];
        let (mut way_out, _egress) = way_out(None, shown);
        way_out.agent = Some("/run/stockade/agent".into());
        let wall = RemoteWall::new(launcher, BackendKind::Jail);
        let mut sandbox = start(&wall, &spec, &owned, Some(&way_out), &Cell::new(0)).unwrap();
        let script = format!("cat {place}; {docker} version > /dev/null && echo ran; test -S /run/stockade/agent && echo listens");
        assert_eq!(sh(&mut sandbox, &script), "read\nran\nlistens\n");
        sandbox.destroy();
    });
}

#[test]
fn without_a_wall_programs_end_all_the_same() {
    as_both("without_a_wall_programs_end_all_the_same", |base| {
        let mut spec = spec(base);
        spec.workspace.mode = MountMode::Rw;
        spec.limits.time = Some(Limit::asked(Duration::from_millis(500)));
        let owned = Sandboxes::open(&base.join("state")).unwrap().create().unwrap();
        let wall = RemoteWall::new(launcher(base, &[BackendKind::Local]), BackendKind::Local);
        let mut sandbox = start(&wall, &spec, &owned, None, &Cell::new(0)).unwrap();
        let streams = Streams::Plain { stdin: None, stdout: Sink::Buffer(1 << 20), stderr: Sink::Buffer(1 << 20) };
        let outcome = sandbox.exec(&["sh".into(), "-c".into(), "echo $$ > pid; sleep 1000; true".into()], streams, None).unwrap();
        assert_eq!(outcome.ending, Ending::TimedOut);
        let pid = fs::read_to_string(spec.workspace.path.as_path().join("pid")).unwrap();
        // A guest that is merely killed leaves its programs to themselves.
        let lives = || Path::new("/proc").join(pid.trim()).join("exe").read_link().is_ok();
        let end = Instant::now() + Duration::from_secs(20);
        while lives() {
            assert!(Instant::now() < end, "it lives on");
            std::thread::sleep(Duration::from_millis(10));
        }
        sandbox.destroy();
    });
}

#[test]
fn what_was_not_agreed_on_is_refused() {
    as_both("what_was_not_agreed_on_is_refused", |base| {
        let (launcher, good) = (launcher(base, &[BackendKind::Jail]), spec(base));
        let sandboxes = Sandboxes::open(&base.join("state")).unwrap();
        fs::create_dir_all(base.join("elsewhere")).unwrap();
        let owned = sandboxes.create().unwrap();
        let refused = |wall: BackendKind, spec: &SandboxSpec, way_out: Option<&WayOut>, owned: &Owned| {
            let wall = RemoteWall::new(Arc::clone(&launcher), wall);
            let error = start(&wall, spec, owned, way_out, &Cell::new(0)).err().unwrap();
            assert_eq!((error.step(), error.hint()), ("launcher".to_owned(), Some("do otherwise".to_owned())), "{error}");
            error.to_string()
        };
        assert!(refused(BackendKind::Local, &good, None, &owned).contains("`local` was not chosen"));
        assert!(refused(BackendKind::Docker, &good, None, &owned).contains("`docker`"));
        let mut other = good.clone();
        other.workspace.path = safe(&base.join("elsewhere"));
        assert!(refused(BackendKind::Jail, &other, None, &owned).contains("outside the directories"));
        let mut own = good.clone();
        let state = safe(&base.join("state/sandboxes"));
        own.mounts.push(Mount { host: state.clone(), guest: state, mode: MountMode::Ro });
        assert!(refused(BackendKind::Jail, &own, None, &owned).contains("Stockade's own"));
        let elsewhere = ["/etc/passwd".into(), owned.directory.join("../../../elsewhere")];
        for file in elsewhere {
            let shown = Shown { file: file.clone(), place: "/run/stockade/x".into(), use_: Use::Read };
            for (authorities, shown) in [(Some(file), Vec::new()), (None, vec![shown])] {
                let (way_out, _egress) = way_out(authorities, shown);
                assert!(refused(BackendKind::Jail, &good, Some(&way_out), &owned).contains("no file of this sandbox"));
            }
        }
        let gone = sandboxes.create().unwrap();
        fs::remove_dir_all(&gone.directory).unwrap();
        assert!(refused(BackendKind::Jail, &good, None, &gone).contains("has no directory"));
        // It goes on after all that.
        start(&RemoteWall::new(Arc::clone(&launcher), BackendKind::Jail), &good, &owned, None, &Cell::new(0)).unwrap().destroy();
        launcher.end();
        let wall = RemoteWall::new(launcher, BackendKind::Jail);
        let lost = start(&wall, &good, &owned, None, &Cell::new(0)).err().unwrap();
        assert_eq!((lost.step().as_str(), lost.hint().as_deref()), ("launcher", Some("start the server again")), "{lost}");
    });
}
