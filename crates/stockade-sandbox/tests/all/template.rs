//! Jails from a template: the same wall as one from nothing, and nothing of one jail in another. Everything as root and as an ordinary user.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use stockade_core::id::SandboxId;
use stockade_core::limits::{Limit, Limits};
use stockade_core::spec::{Mount, MountMode, SandboxSpec, Workspace};
use stockade_sandbox::backends::Start;
use stockade_sandbox::backends::jail::Jail;
use stockade_sandbox::connection::Passing;
use stockade_sandbox::drive::{Ending, Sink, Streams};
use stockade_sandbox::guard::Guard;
use stockade_sandbox::sandbox::Sandbox;
use stockade_sandbox::state::{self, Sandboxes};
use stockade_sandbox::sweep::{Extent, sweep};
use stockade_sandbox::template::{Recipe, Taken, Template, TemplateError};

use super::both::{self, BASE};
use super::safe;

/// How often something is looked for that must come, and how long between.
const LOOKS: usize = 1000;
const BETWEEN: Duration = Duration::from_millis(20);

/// Runs a test here and, if that was as root, again as an ordinary user.
fn as_both(name: &str, test: impl FnOnce(&Path)) {
    both::as_both(&format!("template::{name}"), test);
}

/// A specification with everything that a plan treats differently: a workspace in a home, a toolchain and caches in it, further mounts.
fn recipe(base: &Path) -> Recipe {
    let home = base.join("home");
    for directory in ["home/work", "home/.cargo/bin", "home/.cargo/registry", "home/.cache/pip", "data", "shown"] {
        fs::create_dir_all(base.join(directory)).unwrap();
    }
    for (file, text) in [
        ("home/work/given", "from outside\n"),
        ("home/.cargo/credentials.toml", "secret\n"),
        ("home/.cargo/registry/crate", "cached\n"),
        ("home/.gitconfig", "[user]\n name = A\n"),
        ("data/given", "data\n"),
        ("shown/file", "shown\n"),
    ] {
        fs::write(base.join(file), text).unwrap();
    }
    let workspace = safe(&home.join("work"));
    let mount = |name: &str, mode| Mount { host: safe(&base.join(name)), guest: safe(&base.join(name)), mode };
    let spec = SandboxSpec {
        cwd: workspace.clone(),
        workspace: Workspace { path: workspace, mode: MountMode::Overlay, git_common: None },
        mounts: vec![mount("data", MountMode::Overlay), mount("shown", MountMode::Ro), mount("shown/file", MountMode::Ro)],
        env: vec![("PATH".into(), OsString::from("/usr/bin:/bin")), ("HOME".into(), home.clone().into())],
        home: safe(&home),
        exec_list: None,
        limits: Limits {
            memory: Some(Limit::default_of(1 << 30)),
            pids: Some(Limit::default_of(200)),
            open_files: Some(Limit::default_of(1024)),
            ..Limits::default()
        },
        allow_degraded: BTreeSet::new(),
        path_dirs: vec![home.join(".cargo/bin"), "/usr/bin".into()],
    };
    Recipe {
        spec,
        state: base.join("state"),
        hidden: vec![base.join("state")],
        home,
        toolchain_roots: Vec::new(),
        passing: Passing::Possible,
        stock: NonZeroUsize::new(2).unwrap(),
    }
}

/// The same from nothing.
fn from_nothing(recipe: &Recipe) -> (Sandbox, state::Owned) {
    let owned = Sandboxes::open(&recipe.state).unwrap().create().unwrap();
    let start = Start {
        spec: &recipe.spec,
        id: &owned.id,
        directory: &owned.directory,
        home: &recipe.home,
        toolchain_roots: &[],
        hidden: &recipe.hidden,
        guard: &Guard::default(),
        programs: Some(&state::programs(&recipe.state)),
        way_out: None,
        meanwhile: None,
    };
    (Sandbox::start(&Jail::default(), &start).unwrap(), owned)
}

/// Runs a shell script that must return 0, and gives what it printed.
fn sh(sandbox: &mut Sandbox, script: &str) -> String {
    let streams = Streams::Plain { stdin: None, stdout: Sink::Buffer(1 << 20), stderr: Sink::Buffer(1 << 20) };
    let outcome = sandbox.exec(&["sh".into(), "-c".into(), script.into()], streams, None).unwrap();
    let errors = String::from_utf8_lossy(&outcome.stderr.bytes).into_owned();
    assert_eq!((&outcome.ending, errors.as_str()), (&Ending::Code(0), ""), "{script}");
    String::from_utf8(outcome.stdout.bytes).unwrap()
}

/// Mount points with their options and kinds, in no order.
fn mounts(sandbox: &mut Sandbox) -> Vec<String> {
    let table = sh(sandbox, "cat /proc/self/mountinfo");
    let mut mounts: Vec<String> = table
        .lines()
        .map(|line| {
            let (mount, kind) = line.split_once(" - ").unwrap();
            let place_and_options: Vec<&str> = mount.split(' ').skip(4).take(2).collect();
            format!("{} {}", place_and_options.join(" "), kind.split(' ').next().unwrap())
        })
        .collect();
    mounts.sort();
    mounts
}

/// What can be seen of files, the kernel's own left out.
const LOOK: &str = "id; hostname; ulimit -a; grep -E '^(Cap|NoNew|Seccomp|Groups|Uid|Gid)' /proc/self/status; cat /etc/passwd; \
    ls -lan --time-style=+ / /dev /run /var /home /tmp /var/tmp \"$HOME\" \"$HOME/.cargo\" . | awk '!/^total/ { $2 = \"\"; print }'; \
    stat -c '%A %u %g %n' /proc /dev/shm /dev/pts /etc/shadow; cat given ~/.gitconfig ~/.cargo/registry/crate ../../data/given ../../shown/file; \
    wc -c < ~/.cargo/credentials.toml; ls -a ../../state 2>&1 | sed 's/.*: //'; cat /proc/self/net/dev | wc -l; set -- /proc/[0-9]*; echo $#";

#[test]
fn a_jail_from_a_template_is_one_from_nothing() {
    as_both("a_jail_from_a_template_is_one_from_nothing", |base| {
        let recipe = recipe(base);
        let (mut cold, owned) = from_nothing(&recipe);
        let template = Template::prepare(recipe).unwrap();
        for round in 0..4 {
            let mut taken = template.take().unwrap();
            assert_eq!(taken.enforcement(), cold.enforcement(), "{round}");
            assert_eq!(taken.notes(), cold.notes(), "{round}");
            assert_eq!(mounts(&mut taken), mounts(&mut cold), "{round}");
            assert_eq!(sh(&mut taken, LOOK), sh(&mut cold, LOOK), "{round}");
        }
        cold.destroy();
        owned.remove().unwrap();
    });
}

/// Leaves something of every kind behind, and stays.
const LEAVE: &str = "for place in /tmp /var/tmp /dev/shm . ~ ~/.cargo/registry ../../data; do echo left > $place/left || exit 1; done; \
    rm given; perl -e 'shmget(42, 4096, 01666) or msgget(42, 01666) or exit 1'; \
    perl -MSocket -e 'for ([AF_UNIX, pack_sockaddr_un(qq(\\0left))], [AF_INET, pack_sockaddr_in(4242, inet_aton(q(127.0.0.1)))]) { \
        socket(my $s, $_->[0], SOCK_STREAM, 0) or die; bind($s, $_->[1]) or die; listen($s, 5) or die; push @s, $s } \
        open STDOUT, q(>/dev/null); open STDERR, q(>/dev/null); if (fork) { exit } sleep 1000'";
/// Prints what is found of it.
const FIND: &str = "find /tmp /var/tmp /dev/shm . ~ ../../data -name left; cat given; tail -n +2 /proc/sysvipc/shm; tail -n +2 /proc/sysvipc/msg; \
    perl -MSocket -e 'for ([AF_UNIX, pack_sockaddr_un(qq(\\0left))], [AF_INET, pack_sockaddr_in(4242, inet_aton(q(127.0.0.1)))]) { \
        socket(my $s, $_->[0], SOCK_STREAM, 0) or die; print qq(reached $_->[0]\\n) if connect($s, $_->[1]) }'; \
    set -- /proc/[0-9]*; echo $#; cat /proc/net/unix | tail -n +2; grep -c . /proc/net/tcp";

#[test]
fn nothing_of_a_jail_is_in_another() {
    as_both("nothing_of_a_jail_is_in_another", |base| {
        let template = Template::prepare(recipe(base)).unwrap();
        let mut untouched = template.take().unwrap();
        let clean = sh(&mut untouched, FIND);
        assert!(clean.starts_with("from outside\n"), "{clean}");
        let mut first = template.take().unwrap();
        sh(&mut first, LEAVE);
        let found = sh(&mut first, &FIND.replace("cat given;", ""));
        for trace in ["/tmp/left", "/var/tmp/left", "/dev/shm/left", "./left", "data/left", "reached 1", "reached 2", "@left"] {
            assert!(found.contains(trace), "the test finds nothing it should: {trace} in {found}");
        }
        // While it lives, in one that waited meanwhile; and in later ones when it is gone.
        assert_eq!(sh(&mut template.take().unwrap(), FIND), clean);
        assert_eq!(sh(&mut untouched, FIND), clean);
        drop(first);
        for _ in 0..4 {
            assert_eq!(sh(&mut template.take().unwrap(), FIND), clean);
        }
        assert_eq!(fs::read_to_string(base.join("home/work/given")).unwrap(), "from outside\n");
        assert!(!base.join("home/work/left").exists() && !base.join("data/left").exists());
    });
}

#[test]
fn every_namespace_of_every_jail_is_its_own() {
    as_both("every_namespace_of_every_jail_is_its_own", |base| {
        let template = Template::prepare(recipe(base)).unwrap();
        let mut taken: Vec<Taken> = (0..4).map(|_| template.take().unwrap()).collect();
        let mut seen = BTreeSet::new();
        for jail in &mut taken {
            for name in ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"] {
                let link = sh(jail, &format!("readlink /proc/self/ns/{name}"));
                assert!(seen.insert(link.clone()), "{link}");
            }
        }
        let ids: BTreeSet<&str> = taken.iter().map(|t| t.id().as_str()).collect();
        assert_eq!(ids.len(), taken.len());
    });
}

#[test]
fn what_one_jail_uses_up_others_still_have() {
    as_both("what_one_jail_uses_up_others_still_have", |base| {
        let mut recipe = recipe(base);
        recipe.spec.limits.pids = Some(Limit::default_of(20));
        let template = Template::prepare(recipe).unwrap();
        let (mut first, mut second) = (template.take().unwrap(), template.take().unwrap());
        // Whatever holds it, a group or the count of its user namespace: a shell that cannot fork ends with an error.
        let full = "exec 2> /dev/null; for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14; do sleep 1000 > /dev/null & done; echo full";
        assert_eq!(sh(&mut first, full), "full\n");
        assert_eq!(sh(&mut second, full), "full\n");
    });
}

#[test]
fn a_dropped_template_leaves_nothing() {
    as_both("a_dropped_template_leaves_nothing", |base| {
        let recipe = recipe(base);
        let sandboxes = Sandboxes::open(&recipe.state).unwrap();
        let template = Template::prepare(recipe).unwrap();
        let mut last = template.take().unwrap();
        for _ in 0..3 {
            sh(&mut template.take().unwrap(), "sleep 1000 > /dev/null 2>&1 & true");
        }
        drop(template);
        // What was taken lives on; its template is held for it.
        assert_eq!(sh(&mut last, "cat given"), "from outside\n");
        let ids = sandboxes.ids().unwrap();
        assert_eq!(ids.len(), 2, "{ids:?}");
        assert_eq!(groups_of(&ids).is_empty(), !rustix::process::geteuid().is_root(), "groups are where they are looked for");
        drop(last);
        assert_eq!(sandboxes.ids().unwrap(), []);
        assert_eq!(fs::read_dir(base.join("state/sandboxes")).unwrap().count(), 0);
        assert_eq!(groups_of(&ids), Vec::<PathBuf>::new());
    });
}

/// Prepares a template, takes a jail with a program that stays, says so, and waits to be killed.
#[test]
#[ignore = "started by another test, which kills it"]
#[expect(clippy::disallowed_methods, reason = "a test that was started by another")]
fn an_owner_that_is_killed() {
    let base = PathBuf::from(std::env::var_os(BASE).unwrap());
    let template = Template::prepare(recipe(&base)).unwrap();
    let mut taken = template.take().unwrap();
    sh(&mut taken, "(sleep 1000; sleep 1000) > /dev/null 2>&1 & true");
    until("the stock is full", || template.waiting() == 2);
    println!("\nready");
    std::thread::sleep(Duration::from_secs(1000));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test that starts another as a process of its own")]
fn a_killed_owner_leaves_nothing() {
    as_both("a_killed_owner_leaves_nothing", |base| {
        let mut owner = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "template::an_owner_that_is_killed", "--ignored", "--nocapture"])
            .env(BASE, base)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        assert!(BufReader::new(owner.stdout.take().unwrap()).lines().any(|line| line.unwrap() == "ready"));
        let state = base.join("state");
        let sandboxes = Sandboxes::open(&state).unwrap();
        let ids = sandboxes.ids().unwrap();
        let inside = descendants(owner.id());
        owner.kill().unwrap();
        owner.wait().unwrap();
        assert_eq!(ids.len(), 4, "a template and three jails: {ids:?}");
        assert!(inside.len() >= 5, "four guests and a program: {inside:?}");
        until("its processes are gone", || inside.iter().all(|pid| !Path::new(&format!("/proc/{pid}")).exists()));
        // The directories are without an owner now, and the next start removes them, and their groups.
        sweep(&state, &base.join("run"), Duration::from_hours(1), Extent::Everything).unwrap();
        assert_eq!(sandboxes.ids().unwrap(), []);
        assert_eq!(groups_of(&ids), Vec::<PathBuf>::new());
    });
}

#[test]
fn what_is_written_through_has_no_template() {
    as_both("what_is_written_through_has_no_template", |base| {
        let mut recipe = recipe(base);
        recipe.spec.workspace.mode = MountMode::Rw;
        let refused = Template::prepare(recipe.clone());
        assert!(matches!(refused, Err(TemplateError::WrittenThrough(path)) if path.ends_with("home/work")));
        recipe.spec.workspace.mode = MountMode::Ro;
        recipe.passing = Passing::Impossible;
        let template = Template::prepare(recipe).unwrap();
        assert_eq!(sh(&mut template.take().unwrap(), "cat given; echo x 2> /dev/null > new || echo refused"), "from outside\nrefused\n");
    });
}

#[test]
fn many_at_once_are_all_fresh() {
    as_both("many_at_once_are_all_fresh", |base| {
        let template = Template::prepare(recipe(base)).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..5 {
                        let mut taken = template.take().unwrap();
                        assert_eq!(sh(&mut taken, "test ! -e left && echo > left && ls"), "given\nleft\n");
                    }
                });
            }
        });
        until("the stock is full again", || template.waiting() == 2);
    });
}

/// Waits for what must come.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    assert!(
        (0..LOOKS).any(|_| {
            let so = is_so();
            if !so {
                std::thread::sleep(BETWEEN);
            }
            so
        }),
        "{what}"
    );
}

/// Control groups of sandboxes, wherever they are.
fn groups_of(ids: &[SandboxId]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(directory) = left.pop() {
        // A group of somebody else may go while it is looked at.
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                let name = entry.file_name();
                if ids.iter().any(|id| name.to_string_lossy().ends_with(id.as_str())) {
                    found.push(entry.path());
                }
                left.push(entry.path());
            }
        }
    }
    found
}

/// Every process below another.
fn descendants(of: u32) -> Vec<u32> {
    let parent = |pid: u32| -> Option<u32> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok())
    };
    let all: Vec<u32> = fs::read_dir("/proc").unwrap().flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).collect();
    let mut found = vec![of];
    let mut at = 0;
    while let Some(current) = found.get(at).copied() {
        found.extend(all.iter().filter(|pid| parent(**pid) == Some(current)));
        at += 1;
    }
    found.split_off(1)
}
