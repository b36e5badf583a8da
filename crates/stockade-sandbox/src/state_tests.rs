//! Sweeping and keeping, on directories made by hand.

use super::*;

/// A state directory with one dead sandbox in it.
struct Scene {
    base: tempfile::TempDir,
    sandboxes: Sandboxes,
    id: SandboxId,
}

impl Scene {
    fn new() -> Self {
        let base = tempfile::tempdir().unwrap();
        let sandboxes = Sandboxes::open(&base.path().join("state")).unwrap();
        let owned = sandboxes.create().unwrap();
        let record = Record::new(owned.id.clone(), Kind::Run, "jail", &base.path().join("work"), MountMode::Rw);
        owned.write_record(&record).unwrap();
        fs::create_dir(base.path().join("work")).unwrap();
        Self { id: owned.id.clone(), base, sandboxes }
    }

    fn directory(&self) -> PathBuf {
        self.sandboxes.directory_of(&self.id)
    }

    /// The record says: kept since then.
    fn keep(&self, seconds_from_now: i64) {
        let mut record = read_record(&self.directory(), &self.id).unwrap();
        record.kept = Some(Vec::new());
        record.started.seconds += seconds_from_now;
        write_record(&self.directory(), &record).unwrap();
    }

    fn sweep(&self, keep: Duration) -> (Vec<SandboxId>, Vec<String>) {
        let swept = self.sandboxes.sweep(keep).unwrap();
        (swept.removed, swept.failed.iter().map(ToString::to_string).collect())
    }

    fn quarantined(&self) -> Vec<String> {
        let entries = fs::read_dir(self.base.path().join("state/quarantine")).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

const WEEK: Duration = Duration::from_hours(7 * 24);

#[test]
fn a_clock_that_was_put_back_or_forward_keeps_nothing_for_ever_and_loses_nothing_at_once() {
    for (from_now, keep, stays) in [
        (0, WEEK, true),
        (3600, WEEK, true),
        (100 * 365 * 86400, WEEK, true),
        (-6 * 86400, WEEK, true),
        (-8 * 86400, WEEK, false),
        (0, Duration::ZERO, false),
        (100 * 365 * 86400, Duration::ZERO, false),
    ] {
        let scene = Scene::new();
        scene.keep(from_now);
        let removed = if stays { Vec::new() } else { vec![scene.id.clone()] };
        assert_eq!(scene.sweep(keep), (removed, Vec::new()), "{from_now} {keep:?}");
        assert_eq!(scene.directory().exists(), stays);
    }
}

#[test]
fn a_directory_without_a_record_is_dead_when_nobody_makes_one() {
    let scene = Scene::new();
    fs::remove_file(scene.directory().join("record.json")).unwrap();
    fs::remove_file(scene.directory().join("lock")).unwrap();
    assert_eq!(scene.sweep(WEEK), (vec![scene.id.clone()], Vec::new()));
    assert!(!scene.directory().exists());
}

#[test]
fn a_record_that_is_there_and_cannot_be_understood_is_given_time() {
    let scene = Scene::new();
    scene.keep(0);
    let record = scene.directory().join("record.json");
    fs::write(&record, "").unwrap();
    assert_eq!(scene.sweep(WEEK), (Vec::new(), Vec::new()));
    let old = fs::FileTimes::new().set_modified(SystemTime::now() - Duration::from_mins(2));
    File::open(scene.directory()).unwrap().set_times(old).unwrap();
    assert_eq!(scene.sweep(WEEK).0, vec![scene.id.clone()]);
}

#[test]
fn a_record_that_cannot_be_read_this_time_is_told_and_kept() {
    let scene = Scene::new();
    let record = scene.directory().join("record.json");
    fs::remove_file(&record).unwrap();
    // Neither gone nor readable, for root as well.
    fs::create_dir(&record).unwrap();
    let old = fs::FileTimes::new().set_modified(SystemTime::now() - Duration::from_mins(2));
    File::open(scene.directory()).unwrap().set_times(old).unwrap();
    let (removed, failed) = scene.sweep(WEEK);
    assert!(removed.is_empty() && failed.len() == 1 && scene.directory().exists(), "{removed:?} {failed:?}");
}

#[test]
fn while_others_are_made_a_directory_without_a_record_is_judged_by_its_age_on_either_side_of_now() {
    for (from_now, stays) in [(0, true), (-30, true), (30, true), (-120, false), (120, false), (100 * 365 * 86400, false)] {
        let scene = Scene::new();
        fs::remove_file(scene.directory().join("record.json")).unwrap();
        let seconds = Duration::from_secs(i64::unsigned_abs(from_now));
        let time = if from_now < 0 { SystemTime::now() - seconds } else { SystemTime::now() + seconds };
        File::open(scene.directory()).unwrap().set_times(fs::FileTimes::new().set_modified(time)).unwrap();
        let _birth = scene.sandboxes.births(FlockOperation::LockShared).unwrap();
        scene.sweep(WEEK);
        assert_eq!(scene.directory().exists(), stays, "{from_now}");
    }
}

#[test]
fn a_quarantine_outlives_its_sandbox_or_the_sandbox_stays() {
    let scene = Scene::new();
    let quarantine = scene.directory().join("quarantine");
    let fill = || {
        fs::create_dir_all(&quarantine).unwrap();
        fs::write(quarantine.join("file"), "x").unwrap();
    };
    // None: nothing to do.
    save_quarantine(&scene.directory(), &scene.id, &scene.base.path().join("state")).unwrap();
    assert_eq!(scene.quarantined(), Vec::<String>::new());
    // The place is taken by a file: an error, and nothing is removed.
    fill();
    fs::write(scene.base.path().join("state/quarantine"), "in the way").unwrap();
    let (removed, failed) = scene.sweep(WEEK);
    assert_eq!((removed, failed.len(), quarantine.join("file").exists()), (Vec::new(), 1, true), "{failed:?}");
    fs::remove_file(scene.base.path().join("state/quarantine")).unwrap();
    // Twice under the same id: both are there.
    save_quarantine(&scene.directory(), &scene.id, &scene.base.path().join("state")).unwrap();
    fill();
    assert_eq!(scene.sweep(WEEK), (vec![scene.id.clone()], Vec::new()));
    assert_eq!(scene.quarantined(), [scene.id.to_string(), format!("{}-1", scene.id)]);
    assert!(!scene.directory().exists());
}

#[test]
fn one_that_cannot_be_removed_does_not_keep_the_others() {
    let scene = Scene::new();
    fs::write(scene.directory().join("quarantine"), "not a directory").unwrap();
    let other = scene.sandboxes.create().unwrap();
    let record = Record::new(other.id.clone(), Kind::Run, "jail", Path::new("/nowhere"), MountMode::Ro);
    other.write_record(&record).unwrap();
    let id = other.id.clone();
    drop(other);
    let (removed, failed) = scene.sweep(WEEK);
    assert_eq!((removed, failed.len()), (vec![id], 1), "{failed:?}");
}

#[test]
fn what_people_add_after_a_run_ended_is_theirs() {
    let check = |kept: bool| {
        let scene = Scene::new();
        let work = scene.base.path().join("work");
        Guard::take(&writing_to(&work)).unwrap().write(&scene.directory()).unwrap();
        if kept {
            scene.keep(-30 * 86400);
        }
        fs::write(work.join(".envrc"), "mine").unwrap();
        assert_eq!(scene.sweep(WEEK), (vec![scene.id.clone()], Vec::new()));
        (work.join(".envrc").exists(), scene.quarantined().len())
    };
    assert_eq!(check(true), (true, 0), "it ended and was looked at then");
    assert_eq!(check(false), (false, 1), "it was killed, so nobody looked");
}

/// A sandbox that writes through to a directory.
fn writing_to(work: &Path) -> stockade_core::spec::SandboxSpec {
    let path = stockade_core::path::SafePath::new(work).unwrap();
    stockade_core::spec::SandboxSpec {
        workspace: stockade_core::spec::Workspace { path: path.clone(), mode: MountMode::Rw, git_common: None },
        mounts: Vec::new(),
        env: Vec::new(),
        cwd: path.clone(),
        home: path,
        exec_list: None,
        limits: stockade_core::limits::Limits::default(),
        allow_degraded: std::collections::BTreeSet::new(),
        path_dirs: Vec::new(),
    }
}
