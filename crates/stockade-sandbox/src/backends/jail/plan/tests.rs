//! Plans of jails, as what is put where.

use stockade_core::limits::{Limit, Limits};
use stockade_core::path::SafePath;
use stockade_core::spec::{Mount, Workspace};

use super::*;

fn safe(path: &str) -> SafePath {
    SafePath::new(path).unwrap()
}

fn spec(mode: MountMode) -> SandboxSpec {
    SandboxSpec {
        workspace: Workspace { path: safe("/home/a/work"), mode, git_common: None },
        mounts: Vec::new(),
        env: Vec::new(),
        cwd: safe("/home/a/work"),
        home: safe("/home/a"),
        exec_list: None,
        limits: Limits { pids: Some(Limit::default_of(100)), ..Limits::default() },
        allow_degraded: BTreeSet::new(),
        path_dirs: Vec::new(),
    }
}

fn view() -> View {
    View {
        system: vec![
            SystemEntry::Directory("/usr".into()),
            SystemEntry::Link("/bin".into(), "usr/bin".into()),
            SystemEntry::Directory("/etc".into()),
        ],
        masks: vec!["/etc/shadow".into()],
        toolchains: vec!["/home/a/.cargo".into()],
        caches: vec!["/home/a/.cargo/registry".into()],
        resolver: Some("/etc/resolv.conf".into()),
        hosts: Some("/etc/hosts".into()),
        ..View::default()
    }
}

fn plan(spec: &SandboxSpec, guarded: &[Entry], executables: Option<&[PathBuf]>) -> Result<JailPlan, PlanError> {
    plan_opened_by(spec, guarded, executables, &mut |path, _| Ok(Source::Host { path: bytes(path), dev: 0, ino: 0 }))
}

fn plan_opened_by(
    spec: &SandboxSpec,
    guarded: &[Entry],
    executables: Option<&[PathBuf]>,
    open: &mut Open<'_>,
) -> Result<JailPlan, PlanError> {
    plan_with(spec, guarded, executables, Names::AsOutside, open)
}

fn plan_with(
    spec: &SandboxSpec,
    guarded: &[Entry],
    executables: Option<&[PathBuf]>,
    names: Names,
    open: &mut Open<'_>,
) -> Result<JailPlan, PlanError> {
    plan_showing(spec, guarded, executables, (names, &[], None), open)
}

fn plan_showing(
    spec: &SandboxSpec,
    guarded: &[Entry],
    executables: Option<&[PathBuf]>,
    (names, shown, agent): (Names, &[Shown], Option<&Path>),
    open: &mut Open<'_>,
) -> Result<JailPlan, PlanError> {
    let (view, files) = (view(), BTreeSet::new());
    let inputs = Inputs {
        spec,
        view: &view,
        workspace_source: spec.workspace.path.as_path(),
        layer: LayerPlace::Host("/state/x/layer".into()),
        mount_layers: &[],
        guarded,
        files: &files,
        executables,
        hidden: &["/home/a/.local/state/stockade".into()],
        proc: ProcPlace::Fresh,
        names,
        authorities: &[],
        shown,
        agent,
    };
    build(&inputs, open)
}

/// One word and the place of everything that is mounted, in order.
fn places(plan: &JailPlan) -> Vec<String> {
    let text = |b: &Bytes| String::from_utf8_lossy(&b.0).into_owned();
    plan.items
        .iter()
        .filter_map(|item| match item {
            Item::Bind { target, access: Access::ReadOnly {}, .. } => Some(format!("ro {}", text(target))),
            Item::Bind { target, access: Access::ReadWrite {}, .. } => Some(format!("rw {}", text(target))),
            Item::Overlay { target, access: Access::ReadOnly {}, .. } => Some(format!("shield {}", text(target))),
            Item::Overlay { target, .. } => Some(format!("overlay {}", text(target))),
            Item::Mask { path, .. } if !path.0.starts_with(b"/proc") => Some(format!("mask {}", text(path))),
            Item::Redirect { path, .. } => Some(format!("redirect {}", text(path))),
            Item::Directory { .. }
            | Item::Symlink { .. }
            | Item::File { .. }
            | Item::Mask { .. }
            | Item::Seed { .. }
            | Item::Proc { .. }
            | Item::Devices { .. }
            | Item::Agent { .. } => None,
        })
        .collect()
}

#[test]
fn the_whole_of_a_plain_jail() {
    let plan = plan(&spec(MountMode::Overlay), &[], None).unwrap();
    assert_eq!(
        places(&plan),
        [
            "ro /usr",
            "ro /etc",
            "rw /tmp",
            "rw /home/a",
            "rw /var/tmp",
            "ro /home/a/.cargo",
            "overlay /home/a/work",
            "overlay /home/a/.cargo/registry",
            "mask /etc/shadow",
            "mask /home/a/.local/state/stockade",
        ]
    );
    let writable: Vec<String> = plan.landlock.writable.iter().map(|b| String::from_utf8_lossy(&b.0).into_owned()).collect();
    assert_eq!(writable, ["/tmp", "/home/a", "/var/tmp", "/home/a/work", "/home/a/.cargo/registry", "/dev/shm"]);
    assert_eq!(rlimits(&spec(MountMode::Overlay), 101), [(Resource::CoreSize {}, 1), (Resource::Processes {}, 101)]);
    assert_eq!((plan.landlock_layer, plan.seccomp_layer, plan.landlock.executable), (Layer::Required {}, Layer::Required {}, None));
    assert!(plan.landlock.connectable.is_empty() && !plan.items.iter().any(|item| matches!(item, Item::Agent { .. })), "no agent");
}

#[test]
fn a_cache_whose_owner_cannot_be_mapped_is_shown_read_only() {
    let cache = Path::new("/home/a/.cargo/registry");
    let plan = plan_opened_by(&spec(MountMode::Overlay), &[], None, &mut |path, ownership| match ownership {
        Ownership::Write if path == cache => Err(PlanError::Source { path: shown(path), why: "cannot be mapped".into() }),
        Ownership::Write | Ownership::Read | Ownership::System => Ok(Source::Host { path: bytes(path), dev: 0, ino: 0 }),
    })
    .unwrap();
    assert!(places(&plan).contains(&"ro /home/a/.cargo/registry".to_owned()), "{:?}", places(&plan));
    assert!(!plan.landlock.writable.contains(&bytes(cache)));
}

#[test]
fn names_are_asked_inside_only_where_there_is_a_way_out() {
    let of = |names| {
        let plan =
            plan_with(&spec(MountMode::Overlay), &[], None, names, &mut |path, _| Ok(Source::Host { path: bytes(path), dev: 0, ino: 0 }));
        let resolver = Bytes::from("/etc/resolv.conf");
        let items = plan.unwrap().items;
        items.into_iter().find_map(|item| match item {
            Item::File { path, contents, .. } if path == resolver => Some(contents),
            _ => None,
        })
    };
    assert_eq!(of(Names::AsOutside), None);
    assert_eq!(of(Names::ThroughEgress), Some("nameserver 127.0.0.1\n".into()));
}

#[test]
fn modes_of_the_workspace() {
    let of = |mode| places(&plan(&spec(mode), &[], None).unwrap()).into_iter().find(|p| p.ends_with("/work")).unwrap();
    assert_eq!(of(MountMode::Overlay), "overlay /home/a/work");
    assert_eq!(of(MountMode::Rw), "rw /home/a/work");
    assert_eq!(of(MountMode::Ro), "shield /home/a/work");
    let ro = plan(&spec(MountMode::Ro), &[], None).unwrap();
    assert!(!ro.landlock.writable.contains(&"/home/a/work".into()));
}

#[test]
fn protected_paths_are_guarded_after_the_workspace_stands() {
    let both = |path: &str| (PathBuf::from(path), PathBuf::from(path));
    let (host, guest) = both("/home/a/work/.git");
    let pinned = Entry::Pinned { host, guest };
    let (host, guest) = both("/home/a/work/.git/config");
    let redirected = Entry::Redirected { host, guest, contents: b"[core]\n".to_vec() };
    let (host, guest) = both("/home/a/work/.git/hooks");
    let sealed = Entry::ReadOnly { host, guest };
    let covered = Entry::Covered { guest: "/home/a/work/s.sock".into() };
    let plan = plan(&spec(MountMode::Rw), &[pinned, redirected, sealed, covered], None).unwrap();
    let places = places(&plan);
    let at = |what: &str| places.iter().position(|p| p == what).unwrap_or_else(|| panic!("{what} in {places:?}"));
    assert!(at("rw /home/a/work") < at("rw /home/a/work/.git"));
    assert!(at("rw /home/a/work/.git") < at("redirect /home/a/work/.git/config"));
    assert!(at("rw /home/a/work/.git") < at("ro /home/a/work/.git/hooks"));
    assert!(at("rw /home/a/work") < at("mask /home/a/work/s.sock"));
    assert!(plan.export.contains(&"git-config-1".into()));
}

#[test]
fn an_exec_list_leaves_nothing_else_executable() {
    let list = [PathBuf::from("/usr/bin/ls"), PathBuf::from("/usr/lib/ld.so")];
    let plan = plan(&spec(MountMode::Overlay), &[], Some(&list)).unwrap();
    for item in &plan.items {
        if let Item::Bind { target, execution, .. } | Item::Overlay { target, execution, .. } = item {
            let listed = list.iter().any(|l| bytes(l) == *target);
            assert_eq!(*execution == (Execution::Allowed {}), listed, "{target:?}");
        }
    }
    assert_eq!(plan.landlock.executable, Some(vec!["/usr/bin/ls".into(), "/usr/lib/ld.so".into()]));
    assert!(plan.no_memory_files);
}

#[test]
fn files_of_the_way_out_are_read_and_programs_of_it_run_whatever_the_list_says() {
    let one = |place: &str, use_| Shown { file: "/state/x/f".into(), place: place.into(), use_ };
    let files = [one("/run/stockade/c", Use::Read), one("/run/stockade/bin/p", Use::Execute)];
    let agent = Some(Path::new("/run/stockade/agent"));
    let with = |spec: &SandboxSpec, list: Option<&[PathBuf]>| {
        plan_showing(spec, &[], list, (Names::ThroughEgress, &files, agent), &mut |path, _| {
            Ok(Source::Host { path: bytes(path), dev: 0, ino: 0 })
        })
    };
    let bind = |place: &str, execution| Item::Bind {
        source: Source::Host { path: "/state/x/f".into(), dev: 0, ino: 0 },
        target: place.into(),
        access: Access::ReadOnly {},
        execution,
    };
    let list = [PathBuf::from("/usr/bin/ls")];
    for list in [None, Some(&list[..])] {
        let plan = with(&spec(MountMode::Overlay), list).unwrap();
        for item in [bind("/run/stockade/c", Execution::Denied {}), bind("/run/stockade/bin/p", Execution::Allowed {})] {
            assert!(plan.items.contains(&item), "{item:?}");
        }
        let executable = list.map(|_| vec!["/usr/bin/ls".into(), "/run/stockade/bin/p".into()]);
        assert_eq!(plan.landlock.executable, executable);
        assert!(plan.items.contains(&Item::Agent { path: "/run/stockade/agent".into() }), "{:?}", plan.items);
        assert_eq!(plan.landlock.connectable, ["/run/stockade/agent".into()]);
    }
    let mut covered = spec(MountMode::Overlay);
    covered.mounts.push(Mount { host: safe("/data"), guest: safe("/run/stockade/bin"), mode: MountMode::Rw });
    assert!(matches!(with(&covered, None), Err(PlanError::Covers(_))));
    let open = &mut |path: &Path, _| Ok(Source::Host { path: bytes(path), dev: 0, ino: 0 });
    let covered = plan_showing(&covered, &[], None, (Names::ThroughEgress, &[], agent), open);
    assert!(matches!(covered, Err(PlanError::Covers(_))), "an agent's place, too");
}

#[test]
fn mounts_that_collide_or_cover_the_system_are_refused() {
    let with = |guest: &str| {
        let mut spec = spec(MountMode::Overlay);
        spec.mounts.push(Mount { host: safe("/data"), guest: safe(guest), mode: MountMode::Ro });
        plan(&spec, &[], None).map(|p| places(&p))
    };
    assert!(matches!(with("/home/a/work"), Err(PlanError::Collision(_))));
    for fresh in ["/tmp", "/home/a", "/var/tmp"] {
        let places = with(fresh).unwrap();
        assert!(places.contains(&format!("shield {fresh}")) && !places.contains(&format!("rw {fresh}")), "{places:?}");
    }
    for system in ["/", "/usr", "/bin", "/etc", "/proc", "/proc/self", "/dev", "/sys/x", "/run"] {
        assert!(matches!(with(system), Err(PlanError::Covers(_))), "{system}");
    }
    assert!(with("/data").unwrap().contains(&"shield /data".to_owned()));
    // What a person mounted shows its own toolchains.
    assert!(!with("/home/a/.cargo").unwrap().contains(&"ro /home/a/.cargo".to_owned()));
}

#[test]
fn a_layer_may_be_missing_only_where_a_person_said_so() {
    let mut spec = spec(MountMode::Overlay);
    spec.allow_degraded.insert(Demand::Files);
    let plan = plan(&spec, &[], None).unwrap();
    assert_eq!((plan.landlock_layer, plan.seccomp_layer), (Layer::Wanted {}, Layer::Required {}));
}
