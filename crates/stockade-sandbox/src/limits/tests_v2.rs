//! Version 2 against plain directories, filled as the kernel would: where the tests run, its controllers may be bound to
//! version 1.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use stockade_core::demand::{Demand, Level};
use stockade_core::limits::Limits;

use super::hierarchy::{Controller, Hierarchies, Place, Version};
use super::layout::{FileSystem, OWN_LEAF, Privilege, SLICE, Via};
use super::tests::{as_ordinary_user, limits, read, wait_for};
use super::*;

/// A tree of version 2 groups in plain files.
struct Fake(tempfile::TempDir);

impl Fake {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// A group with the controllers it has, those it hands down and its processes.
    fn group(&self, path: &str, controllers: &str, subtree: &str, procs: &str) -> PathBuf {
        let directory = self.0.path().join(path);
        fs::create_dir_all(&directory).unwrap();
        for (file, text) in [("cgroup.controllers", controllers), ("cgroup.subtree_control", subtree), ("cgroup.procs", procs)] {
            fs::write(directory.join(file), text).unwrap();
        }
        if !path.is_empty() {
            fs::write(directory.join("cgroup.type"), "domain\n").unwrap();
        }
        directory
    }

    fn layout(&self, own: &str, privilege: Privilege) -> Layout {
        let mount = self.0.path().to_owned();
        let place = Place { version: Version::Two, directory: mount.join(own), mount, with_cpuset: false };
        Layout::probe(&Hierarchies { v2: Some(place), ..Hierarchies::default() }, privilege, FileSystem::Any)
    }
}

/// Makes a directory and fills it as the kernel would for these controllers.
fn kernel(controllers: &'static str) -> impl Fn(&Path) -> Result<(), rustix::io::Errno> {
    move |path| {
        fs::create_dir(path).map_err(|error| rustix::io::Errno::from_io_error(&error).unwrap())?;
        let mut files = vec!["cgroup.procs", "cgroup.subtree_control", "cgroup.kill", "cgroup.freeze"];
        for controller in controllers.split(' ') {
            files.extend(match controller {
                "memory" => &["memory.max", "memory.swap.max", "memory.oom.group"][..],
                "pids" => &["pids.max"],
                "cpu" => &["cpu.max"],
                _ => &[],
            });
        }
        for file in files {
            fs::write(path.join(file), "").unwrap();
        }
        for (file, text) in [
            ("cgroup.controllers", controllers),
            ("cgroup.events", "populated 0\nfrozen 0\n"),
            ("memory.current", "4096\n"),
            ("memory.events", "low 0\noom 0\noom_kill 0\n"),
            ("pids.current", "1\n"),
            ("pids.events", "max 0\n"),
        ] {
            fs::write(path.join(file), text).unwrap();
        }
        Ok(())
    }
}

const ALL: &str = "cpu memory pids";

#[test]
fn version_2_desktop_goes_to_the_slice_of_the_user() {
    if !as_ordinary_user(module_path!(), "version_2_desktop_goes_to_the_slice_of_the_user") {
        return;
    }
    let fake = Fake::new();
    let top = fake.group("", "cpuset cpu io memory pids", ALL, "1\n");
    let user = fake.group("user.slice", ALL, ALL, "");
    let slice = fake.group("user.slice/app.slice", ALL, "memory pids", "");
    fake.group("user.slice/app.slice/terminal.scope", "memory pids", "", "100\n200\n");
    // What belongs to root is what we may not write.
    for directory in [&top, &user] {
        for file in ["cgroup.procs", "cgroup.subtree_control", ""] {
            let path = directory.join(file);
            let mut mode = fs::metadata(&path).unwrap().permissions();
            std::os::unix::fs::PermissionsExt::set_mode(&mut mode, if file.is_empty() { 0o555 } else { 0o444 });
            fs::set_permissions(path, mode).unwrap();
        }
    }
    let layout = fake.layout("user.slice/app.slice/terminal.scope", Privilege::Ordinary);
    let group = Cgroup::build("stockade-a", &limits(Some(1 << 29), Some(64), None), &layout, &kernel("memory pids")).unwrap();
    let child = slice.join("stockade-a");
    assert_eq!(group.paths().collect::<Vec<_>>(), [child.as_path()]);
    assert_eq!(read(slice.join("cgroup.subtree_control")), "memory pids", "what is there already is not written again");
    assert_eq!(group.holds().0[&Demand::Memory].how, "cgroup v2 memory.max = 536870912");
    assert_eq!(group.holds().0[&Demand::Pids].how, "cgroup v2 pids.max = 65");
    // Processor time must be enabled in the slice first.
    let group = Cgroup::build("stockade-b", &limits(None, None, Some(500)), &layout, &kernel(ALL)).unwrap();
    assert!(read(slice.join("cgroup.subtree_control")).starts_with("+cpu"), "asked the kernel for it");
    assert_eq!(group.holds().0[&Demand::Cpu].how, "cgroup v2 cpu.max = 50000 100000");
    // Let tempfile remove the tree.
    for directory in [top, user] {
        fs::set_permissions(directory, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
}

#[test]
fn version_2_delegated_scope_moves_us_into_a_leaf() {
    let fake = Fake::new();
    let own = std::process::id();
    fake.group("", ALL, ALL, "1\n");
    let scope = fake.group("run.scope", ALL, "", &format!("{own}\n"));
    let layout = fake.layout("run.scope", Privilege::Ordinary);
    assert_eq!(layout.v2[0].via, Via::OwnLeaf);
    let group = Cgroup::build("stockade-a", &limits(Some(1 << 29), Some(64), Some(1000)), &layout, &kernel(ALL)).unwrap();
    assert_eq!(read(scope.join(OWN_LEAF).join("cgroup.procs")), own.to_string());
    assert_eq!(read(scope.join("cgroup.subtree_control")), "+cpu +memory +pids");
    assert_eq!(group.paths().collect::<Vec<_>>(), [scope.join("stockade-a").as_path()]);
    assert_eq!(group.holds().levels().into_values().collect::<Vec<_>>(), [Level::Enforced; 3]);
    // From inside the leaf, the scope is where children go: never leaf in leaf.
    fake.group("run.scope", ALL, ALL, "");
    fs::write(scope.join(OWN_LEAF).join("cgroup.type"), "domain\n").unwrap();
    let layout = fake.layout(&format!("run.scope/{OWN_LEAF}"), Privilege::Ordinary);
    assert_eq!((layout.v2[0].directory.as_path(), layout.v2[0].via), (scope.as_path(), Via::Direct));
}

#[test]
fn version_2_root_makes_a_slice_at_the_top() {
    let fake = Fake::new();
    let top = fake.group("", ALL, "memory pids", "1\n2\n");
    fake.group("session.scope", "memory pids", "", "100\n200\n");
    let layout = fake.layout("session.scope", Privilege::Root);
    let group = Cgroup::build("stockade-a", &limits(Some(1 << 29), Some(64), Some(1000)), &layout, &kernel(ALL)).unwrap();
    assert_eq!(group.paths().collect::<Vec<_>>(), [top.join(SLICE).join("stockade-a").as_path()]);
    assert!(read(top.join("cgroup.subtree_control")).starts_with("+cpu +memory +pids"));
    assert_eq!(read(top.join(SLICE).join("cgroup.subtree_control")), "+cpu +memory +pids");
    // A second sandbox finds the slice there.
    Cgroup::build("stockade-b", &limits(Some(1 << 29), None, None), &layout, &kernel(ALL)).unwrap();
}

#[test]
fn version_2_container_whose_group_is_full_of_others() {
    let fake = Fake::new();
    fake.group("", ALL, "", "");
    let own = fake.group("ns", ALL, "", "1\n7\n");
    // The namespace's root is the mount: nothing above it is ours to see.
    let place = Place { version: Version::Two, mount: own.clone(), directory: own.clone(), with_cpuset: false };
    let layout = Layout::probe(&Hierarchies { v2: Some(place), ..Hierarchies::default() }, Privilege::Root, FileSystem::Any);
    assert!(!layout.offers(Controller::Memory) && layout.offers(Controller::Freezer), "{layout:?}");
    let group = Cgroup::build("stockade-a", &limits(Some(1 << 29), None, None), &layout, &kernel("")).unwrap();
    let memory = &group.holds().0[&Demand::Memory];
    assert_eq!((memory.level, group.sampled_memory()), (Level::Partial, Some(1 << 29)));
    assert!(
        memory.how.contains("`memory` cannot be enabled for children of") && memory.fix.contains("only process of its group"),
        "{memory:?}"
    );
    assert!(group.v2_directory().is_some(), "still good for killing and freezing");
}

#[test]
fn version_2_threaded_groups_are_no_place() {
    let fake = Fake::new();
    let own = fake.group("threads", ALL, "", "");
    fs::write(own.join("cgroup.type"), "threaded\n").unwrap();
    assert!(fake.layout("threads", Privilege::Ordinary).v2.is_empty(), "and the top was never made");
}

#[test]
fn version_2_events_freezing_and_killing() {
    let fake = Fake::new();
    let own = fake.group("own", ALL, ALL, "");
    let layout = fake.layout("own", Privilege::Ordinary);
    let group = Cgroup::build("stockade-a", &limits(Some(1 << 29), Some(64), None), &layout, &kernel(ALL)).unwrap();
    let child = own.join("stockade-a");
    assert_eq!(group.sample(), Sample { memory: Some(4096), processes: Some(1), hit: None, lost: None });
    fs::write(child.join("pids.events"), "max 3\n").unwrap();
    assert_eq!(group.hit(), Some(Demand::Pids));
    fs::write(child.join("memory.events"), "oom 1\noom_kill 1\noom_group_kill 1\n").unwrap();
    assert_eq!(group.hit(), Some(Demand::Memory));
    // Somebody takes the controller away.
    fs::remove_file(child.join("memory.current")).unwrap();
    assert_eq!(group.sample().lost, Some(Demand::Memory));
    // A thread plays the kernel.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            wait_for("cgroup.freeze", || read(child.join("cgroup.freeze")) == "1");
            std::thread::sleep(Duration::from_millis(20));
            fs::write(child.join("cgroup.events"), "populated 1\nfrozen 1\n").unwrap();
            wait_for("cgroup.kill", || read(child.join("cgroup.kill")) == "1");
            std::thread::sleep(Duration::from_millis(20));
            fs::write(child.join("cgroup.events"), "populated 0\nfrozen 1\n").unwrap();
        });
        group.freeze(Frozen::Yes).unwrap();
        assert!(read(child.join("cgroup.events")).contains("frozen 1"));
        group.kill().unwrap();
        assert!(read(child.join("cgroup.events")).contains("populated 0"));
    });
    assert!(group.join_files().unwrap().is_empty() && group.v2_directory().is_some(), "the shim is cloned into it");
}

#[test]
fn version_2_freezing_that_never_happens_is_undone() {
    let fake = Fake::new();
    let own = fake.group("own", ALL, ALL, "");
    let group = Cgroup::build("stockade-a", &Limits::default(), &fake.layout("own", Privilege::Ordinary), &kernel(ALL)).unwrap();
    let error = group.freeze(Frozen::Yes).unwrap_err();
    assert!(error.to_string().ends_with("did not become frozen within 2000 ms"), "{error}");
    assert_eq!(read(own.join("stockade-a/cgroup.freeze")), "0");
}
