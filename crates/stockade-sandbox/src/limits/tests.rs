//! Groups of this machine's kernel; these tests run as root. Version 2 is in `tests_v2.rs`.
#![allow(clippy::disallowed_methods, reason = "tests start programs of their own choice")]

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::io::FdFlags;
use stockade_core::demand::{Demand, Level};
use stockade_core::limits::{Limit, Limits};

use super::hierarchy::Controller;
use super::*;

/// Names of their own, so that runs side by side do not meet.
pub(super) fn name(of: &str) -> String {
    format!("stockade-test-{of}-{}", std::process::id())
}

fn layout() -> Layout {
    let layout = Layout::discover().unwrap();
    for controller in [Controller::Cpu, Controller::Memory, Controller::Pids, Controller::Freezer] {
        assert!(layout.offers(controller), "these tests need root and the {} controller: {layout:?}", controller.name_v1());
    }
    layout
}

/// The same machine as if it had no version 2.
fn layout_v1() -> Layout {
    Layout { v2: Vec::new(), ..layout() }
}

pub(super) fn limits(memory: Option<u64>, pids: Option<u32>, cpu_millis: Option<u32>) -> Limits {
    Limits { memory: memory.map(Limit::asked), pids: pids.map(Limit::asked), cpu_millis: cpu_millis.map(Limit::asked), ..Limits::default() }
}

/// Runs a script of bash in the group; it has joined before its first line.
fn start(group: &Cgroup, script: &str) -> Child {
    let mut files = group.join_files().unwrap();
    // The shim is cloned into version 2; a shell has to write.
    let open =
        |d: &std::os::fd::OwnedFd| rustix::fs::openat(d, "cgroup.procs", rustix::fs::OFlags::WRONLY, rustix::fs::Mode::empty()).unwrap();
    files.extend(group.v2_directory().map(open));
    let mut joining = String::from("set -e; ");
    for file in &files {
        rustix::io::fcntl_setfd(file, FdFlags::empty()).unwrap();
        write!(joining, "echo 0 >&{0}; exec {0}>&-; ", file.as_raw_fd()).unwrap();
    }
    let script = format!("{joining} set +e; {script}");
    Command::new("bash").args(["-c", &script]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

fn line(child: &mut Child) -> String {
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    line.trim().to_owned()
}

pub(super) fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < end, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn is_dead(pid: &str) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).map_or(true, |stat| stat.contains(") Z "))
}

#[test]
fn limits_are_set_and_reported() {
    let group = Cgroup::create(&name("report"), &limits(Some(512 << 20), Some(64), Some(1500)), &layout()).unwrap();
    let report = group.holds();
    for demand in [Demand::Memory, Demand::Pids, Demand::Cpu] {
        let answer = &report.0[&demand];
        assert_eq!((answer.level, answer.fix.as_str()), (Level::Enforced, ""), "{demand}: {answer:?}");
    }
    assert!(report.0[&Demand::Memory].how.ends_with(" = 536870912"), "{report:?}");
    assert!(report.0[&Demand::Pids].how.ends_with("pids.max = 65"), "64 of the program's and the shim: {report:?}");
    assert!(report.0[&Demand::Cpu].how.contains("150000"), "{report:?}");
    assert_eq!((group.process_rlimit(), group.sampled_memory()), (None, None));
    assert_eq!(group.sample(), Sample { memory: Some(0), processes: Some(0), hit: None, lost: None });
    let paths: Vec<PathBuf> = group.paths().map(Path::to_owned).collect();
    assert!(paths.iter().all(|p| p.is_dir()));
    group.remove().unwrap();
    assert!(paths.iter().all(|p| !p.exists()));
}

#[test]
fn extreme_values_are_taken() {
    // More than any machine has, and the least processor time there is.
    let group = Cgroup::create(&name("huge"), &limits(Some(1 << 60), Some(u32::MAX), Some(8_192_000)), &layout()).unwrap();
    let levels: Vec<Level> = group.holds().levels().into_values().collect();
    assert_eq!(levels, [Level::Enforced; 3], "{:?}", group.holds());
    drop(group);
    let group = Cgroup::create(&name("tiny"), &limits(None, Some(1), Some(1)), &layout()).unwrap();
    assert_eq!(group.holds().level(Demand::Cpu), Level::Enforced, "{:?}", group.holds());
    assert!(matches!(Cgroup::create(&name("less"), &limits(Some(1), None, None), &layout()), Err(LimitError::MemoryTooSmall { .. })));
    for bad in ["stockade-", "stockade-a/b", "stockade-../x", "other", "stockade-\n", ""] {
        assert!(matches!(Cgroup::create(bad, &Limits::default(), &layout()), Err(LimitError::BadName(_))), "{bad:?}");
    }
}

#[test]
fn a_shell_starts_with_the_least_memory() {
    let group = Cgroup::create(&name("least"), &limits(Some(MINIMUM_MEMORY), Some(8), None), &layout()).unwrap();
    let output = start(&group, "exec sh -c 'echo alive'").wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "alive\n");
    assert_eq!(group.hit(), None);
}

#[test]
fn a_memory_bomb_is_killed_and_named() {
    let group = Cgroup::create(&name("memory"), &limits(Some(32 << 20), Some(64), None), &layout()).unwrap();
    let mut harmless = start(&group, "exec dd if=/dev/zero of=/dev/null bs=8M count=1");
    assert!(harmless.wait().unwrap().success());
    assert_eq!(group.hit(), None, "a program within the limit is left alone");
    let mut bomb = start(&group, "exec dd if=/dev/zero of=/dev/null bs=256M count=1");
    assert_eq!(bomb.wait().unwrap().signal(), Some(9));
    assert_eq!(group.hit(), Some(Demand::Memory));
    group.kill().unwrap();
    group.remove().unwrap();
}

#[test]
fn a_fork_bomb_is_bounded_and_named() {
    let group = Cgroup::create(&name("pids"), &limits(None, Some(20), None), &layout()).unwrap();
    let mut bomb = start(&group, "bomb() { bomb | bomb & }; bomb; while :; do sleep 0.01; bomb; done");
    let mut most = 0;
    wait_for("a fork that fails", || {
        let sample = group.sample();
        most = most.max(sample.processes.unwrap());
        sample.hit == Some(Demand::Pids)
    });
    for _ in 0..50 {
        most = most.max(group.sample().processes.unwrap());
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!((15..=21).contains(&most), "{most}");
    group.kill().unwrap();
    assert!(group.paths().all(|path| read(path.join("cgroup.procs")).is_empty()), "nobody is left");
    group.remove().unwrap();
    bomb.wait().unwrap();
}

#[test]
fn processor_time_is_bounded() {
    let group = Cgroup::create(&name("cpu"), &limits(None, None, Some(200)), &layout()).unwrap();
    let script = "exec python3 -c '\nimport time\nend=time.monotonic()+1.5\nwhile time.monotonic()<end: pass\nprint(time.process_time())'";
    let used: f64 = line(&mut start(&group, script)).parse().unwrap();
    assert!(used < 0.6, "a fifth of a processor for 1.5 s, but {used} s were used");
    group.kill().unwrap();
}

fn check_freeze(of: &str, layout: &Layout) {
    let group = Cgroup::create(&name(of), &Limits::default(), layout).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    let counter = file.path().to_owned();
    let mut child = start(&group, &format!("while :; do echo -n x >> {}; done", counter.display()));
    let size = || fs::metadata(&counter).unwrap().len();
    wait_for("the program to run", || size() > 0);
    for _ in 0..3 {
        group.freeze(Frozen::Yes).unwrap();
        let before = size();
        std::thread::sleep(Duration::from_millis(30));
        assert_eq!(size(), before, "a frozen program does nothing");
        group.freeze(Frozen::No).unwrap();
        wait_for("the program to go on", || size() > before);
    }
    group.freeze(Frozen::Yes).unwrap();
    group.kill().unwrap();
    group.remove().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(9), "frozen ones die too");
}

#[test]
fn freezing_and_thawing() {
    check_freeze("freeze", &layout());
}

#[test]
fn freezing_and_thawing_with_version_1() {
    check_freeze("freeze1", &layout_v1());
}

fn check_kill(of: &str, layout: &Layout) {
    let group = Cgroup::create(&name(of), &limits(Some(256 << 20), Some(64), None), layout).unwrap();
    // One that daemonised, one that ignores every signal it can, and one that keeps forking.
    let script = "setsid bash -c 'echo $$; exec 1>&-; (trap \"\" INT TERM HUP QUIT; while :; do sleep 0.01; done) & sleep 1000' & \
                  (while :; do (sleep 0.02 &); sleep 0.005; done) >/dev/null & wait";
    let mut child = start(&group, script);
    let daemon = line(&mut child);
    assert!(!is_dead(&daemon));
    group.kill().unwrap();
    assert!(is_dead(&daemon));
    let paths: Vec<PathBuf> = group.paths().map(Path::to_owned).collect();
    // The child is a zombie as long as nobody waits; that does not hold the group.
    group.remove().unwrap();
    assert!(paths.iter().all(|p| !p.exists()));
    assert_eq!(child.wait().unwrap().signal(), Some(9));
}

#[test]
fn everything_dies_however_it_daemonised() {
    check_kill("kill", &layout());
}

#[test]
fn everything_dies_with_version_1() {
    check_kill("kill1", &layout_v1());
}

#[test]
fn everything_dies_without_a_freezer() {
    let mut layout = layout_v1();
    layout.v1.remove(&Controller::Freezer);
    check_kill("kill0", &layout);
    let group = Cgroup::create(&name("nofreezer"), &Limits::default(), &layout).unwrap();
    assert!(!group.can_freeze() && matches!(group.freeze(Frozen::Yes), Err(LimitError::NoFreezer)));
}

#[test]
fn dropping_kills_and_removes() {
    let group = Cgroup::create(&name("drop"), &limits(Some(64 << 20), Some(8), None), &layout()).unwrap();
    let mut child = start(&group, "echo ready; exec sleep 1000");
    assert_eq!(line(&mut child), "ready");
    let paths: Vec<PathBuf> = group.paths().map(Path::to_owned).collect();
    drop(group);
    assert!(paths.iter().all(|p| !p.exists()));
    assert_eq!(child.wait().unwrap().signal(), Some(9));
}

#[test]
fn making_groups_while_others_sweep() {
    let layout = layout();
    let ours = format!("test-race-{}", std::process::id());
    let making = AtomicBool::new(true);
    let make = |number: usize| {
        let group = Cgroup::create(&format!("stockade-{ours}-{number}"), &limits(Some(64 << 20), Some(8), None), &layout)?;
        let levels = group.holds().levels().into_values().collect::<Vec<_>>();
        group.remove().map(|()| levels)
    };
    let (made, swept) = std::thread::scope(|scope| {
        // Sweepers that know nothing of these sandboxes, as those of another settings directory would not.
        let sweeper = || {
            let mut removed = BTreeSet::new();
            while making.load(Ordering::Relaxed) {
                removed.append(&mut sweep(&layout, |id| !id.starts_with(&ours)).removed);
            }
            removed
        };
        let sweepers = [scope.spawn(sweeper), scope.spawn(sweeper)];
        let made: Vec<_> = (0..100).map(make).collect();
        making.store(false, Ordering::Relaxed);
        (made, sweepers.map(|sweeper| sweeper.join().unwrap()))
    });
    for levels in made {
        assert_eq!(levels.unwrap(), [Level::Enforced; 3]);
    }
    assert_eq!(swept, [const { BTreeSet::new() }; 2]);
}

#[test]
fn what_was_half_made_is_removed() {
    let (layout, name) = (layout(), name("half"));
    // The last hierarchy that is used has the name already.
    let taken = layout.v1[&Controller::Pids].directory.join(&name);
    fs::create_dir(&taken).unwrap();
    let error = Cgroup::create(&name, &limits(Some(64 << 20), Some(8), Some(1000)), &layout).unwrap_err();
    fs::remove_dir(&taken).unwrap();
    assert!(matches!(&error, LimitError::Exists(path) if *path == taken), "{error}");
    for place in layout.v1.values() {
        assert!(!place.directory.join(&name).exists(), "{place:?}");
    }
    for candidate in &layout.v2 {
        assert!(!candidate.directory.join(&name).exists(), "{candidate:?}");
    }
}

#[test]
fn leftovers_are_swept_and_the_living_are_not() {
    let layout = layout();
    let ours = format!("test-swept-{}", std::process::id());
    let is_alive = |id: &str| !id.starts_with(&ours);
    let (dead, living) = (format!("stockade-{ours}-dead"), format!("stockade-{ours}-living"));
    let owner = Cgroup::create(&living, &limits(Some(64 << 20), Some(8), None), &layout).unwrap();
    // What a killed owner leaves: directories that nobody has locked, and a process inside that is frozen.
    let mut left = Vec::new();
    let mut joining = String::new();
    for controller in [Controller::Memory, Controller::Pids, Controller::Freezer] {
        let path = layout.v1[&controller].directory.join(&dead);
        fs::create_dir(&path).unwrap();
        write!(joining, "echo $$ > {}/cgroup.procs; ", path.display()).unwrap();
        left.push(path);
    }
    let mut child =
        Command::new("bash").args(["-c", &format!("{joining} echo in; exec sleep 1000")]).stdout(Stdio::piped()).spawn().unwrap();
    assert_eq!(line(&mut child), "in");
    fs::write(left[2].join("freezer.state"), "FROZEN").unwrap();

    let swept = sweep(&layout, is_alive);
    assert_eq!(swept.removed, BTreeSet::from([format!("{ours}-dead")]), "{swept:?}");
    assert!(swept.failed.is_empty(), "{swept:?}");
    assert!(left.iter().all(|path| !path.exists()));
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    assert!(owner.paths().count() > 1 && owner.paths().all(Path::exists), "its lock is held, whatever the list of the living says");
    assert!(sweep(&layout, is_alive).removed.is_empty());
}

#[test]
fn fifty_at_once_and_what_one_costs() {
    let layout = layout();
    let limits = limits(Some(64 << 20), Some(32), Some(1000));
    let begin = Instant::now();
    let groups: Vec<Cgroup> = (0..50).map(|number| Cgroup::create(&name(&format!("many{number}")), &limits, &layout).unwrap()).collect();
    let made = begin.elapsed();
    let begin = Instant::now();
    assert!(groups.iter().all(|g| g.sample() == Sample { memory: Some(0), processes: Some(0), hit: None, lost: None }));
    let sampled = begin.elapsed();
    let begin = Instant::now();
    for group in groups {
        group.remove().unwrap();
    }
    let removed = begin.elapsed();
    println!("each: create {:?}, sample {:?}, remove {:?}", made / 50, sampled / 50, removed / 50);
    assert!(made + removed < Duration::from_secs(5), "{made:?} {removed:?}");
}

#[test]
fn without_any_group_the_report_says_what_holds_and_what_would_help() {
    let layout = Layout::none();
    let group = Cgroup::create(&name("none"), &limits(Some(64 << 20), Some(8), Some(1000)), &layout).unwrap();
    let answer = |demand| group.holds().0[&demand].clone();
    assert_eq!(answer(Demand::Memory).level, Level::Partial);
    assert!(answer(Demand::Memory).how.starts_with("sampled every 50 ms"), "{:?}", answer(Demand::Memory));
    assert!(answer(Demand::Memory).fix.contains("mount -t cgroup2"), "{:?}", answer(Demand::Memory));
    assert_eq!(
        (answer(Demand::Pids).level, answer(Demand::Pids).how.as_str()),
        (Level::Enforced, "RLIMIT_NPROC in its own user namespace")
    );
    assert_eq!(answer(Demand::Cpu).level, Level::Unavailable);
    assert_eq!((group.process_rlimit(), group.sampled_memory()), (Some(9), Some(64 << 20)));
    assert_eq!(group.sample(), Sample::default());
    assert!(group.join_files().unwrap().is_empty() && group.v2_directory().is_none());
    group.kill().unwrap();
    let default = Limits { cpu_millis: Some(Limit::default_of(1000)), ..Limits::default() };
    let group = Cgroup::create(&name("none2"), &default, &layout).unwrap();
    assert_eq!(group.holds().level(Demand::Cpu), Level::Partial, "a built-in limit may be held in part");
    assert_eq!(group.holds().level(Demand::Memory), Level::Enforced, "no limit is always held");
}

/// Runs this very test again as another user; the inner run does the looking.
pub(super) fn as_ordinary_user(module: &str, test: &str) -> bool {
    const INNER: &str = "STOCKADE_TEST_ORDINARY";
    if std::env::var_os(INNER).is_some() {
        assert!(!rustix::process::geteuid().is_root());
        return true;
    }
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", &format!("{}::{test}", module.split_once("::").unwrap().1), "--nocapture"])
        .env(INNER, "1")
        .env("TMPDIR", "/tmp")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}{}", String::from_utf8_lossy(&output.stderr));
    false
}

#[test]
fn an_ordinary_user_without_delegation() {
    if !as_ordinary_user(module_path!(), "an_ordinary_user_without_delegation") {
        return;
    }
    let layout = Layout::discover().unwrap();
    assert!(Controller::ALL.iter().all(|c| !layout.offers(*c)), "{layout:?}");
    let group = Cgroup::create(&name("user"), &limits(Some(64 << 20), Some(8), None), &layout).unwrap();
    assert_eq!(group.paths().count(), 0);
    let memory = &group.holds().0[&Demand::Memory];
    assert_eq!(memory.level, Level::Partial);
    assert!(memory.how.contains("no group can be made in"), "{memory:?}");
    assert!(memory.fix.contains("systemd-run --user --scope -p Delegate=yes stockade"), "{memory:?}");
    assert_eq!(group.process_rlimit(), Some(9));
    assert!(sweep(&layout, |_| false).removed.is_empty(), "nothing of others is touched");
}

pub(super) fn read(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
