//! Sources as they are: files with other modes, programs that misbehave, many askers at once.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::UNIX_EPOCH;

use super::*;

const VALUE: &str = "a-value-of-some-length";

struct Ground {
    root: tempfile::TempDir,
    around: Surroundings,
}

fn ground() -> Ground {
    let root = tempfile::tempdir().unwrap();
    let store = Store::beneath(&root.path().join("state"));
    let around = Surroundings { store, path: "/usr/bin:/bin".into(), home: root.path().to_owned() };
    Ground { root, around }
}

fn name() -> SecretName {
    "TOKEN".parse().unwrap()
}

fn value() -> SecretValue {
    SecretValue::new(VALUE.as_bytes().to_vec()).unwrap()
}

fn sh(script: &str) -> SecretSource {
    SecretSource::Command { argv: ["sh", "-c", script].map(str::to_owned).to_vec() }
}

fn fetch_of(source: Option<&SecretSource>, around: &Surroundings) -> Result<Option<Lease>, SourceError> {
    let (sandbox, look_up) = ("one".parse().unwrap(), |name: &SecretName| Err(MintError::new("secrets", name.to_string())));
    fetch(&name(), source, &Asking::new(&sandbox, "test", SystemTime::now(), around, &look_up))
}

impl Ground {
    fn fetch(&self, source: &SecretSource) -> Result<SecretValue, String> {
        let told = |error: SourceError| {
            let text = format!("{error} {error:?} {:?}", error.hint());
            assert!(!text.contains("some-length"), "{text}");
            text
        };
        fetch_of(Some(source), &self.around).map(|lease| lease.unwrap().value).map_err(told)
    }
}

#[test]
fn the_store_is_asked_with_and_without_a_setting() {
    let ground = ground();
    assert!(fetch_of(None, &ground.around).unwrap().is_none());
    assert!(ground.fetch(&SecretSource::Store).unwrap_err().contains("stockade secret set TOKEN"));
    ground.around.store.set(&name(), &value(), SystemTime::now()).unwrap();
    assert_eq!(fetch_of(None, &ground.around).unwrap().unwrap().value, value());
    assert_eq!(ground.fetch(&SecretSource::Store), Ok(value()));
}

#[test]
fn files_are_read_unless_others_may_write_them() {
    let ground = ground();
    let path = ground.root.path().join("token");
    let source = SecretSource::File { path: path.clone() };
    assert!(ground.fetch(&source).unwrap_err().contains("No such file"));
    fs::write(&path, format!("{VALUE}\n")).unwrap();
    for (mode, good) in [(0o600, true), (0o444, true), (0o620, false), (0o602, false)] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(ground.fetch(&source).is_ok(), good, "{mode:o}");
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let link = ground.root.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert_eq!(ground.fetch(&SecretSource::File { path: link }), Ok(value()));
    assert!(ground.fetch(&SecretSource::File { path: ground.root.path().to_owned() }).is_err());
    for bad in ["short", "", &"x".repeat(20_000), "two\nlines of some-length"] {
        fs::write(&path, bad).unwrap();
        assert!(ground.fetch(&source).is_err(), "{}", bad.len());
    }
    std::os::unix::fs::chown(&path, Some(65534), None).unwrap();
    assert!(ground.fetch(&source).unwrap_err().contains("another user"));
}

#[test]
fn programs_give_what_they_print() {
    let ground = ground();
    assert_eq!(ground.fetch(&sh(&format!("echo {VALUE}"))), Ok(value()));
    assert_eq!(ground.fetch(&sh(&format!("printf '{{\"value\":\"{VALUE}\",\"expires\":\"2999-01-01T00:00:00Z\"}}'"))), Ok(value()));
    assert_eq!(ground.fetch(&sh(&format!("pwd >&2; cd /; echo {VALUE}; exec >&-; sleep 0.1"))), Ok(value()));
    // Something that outlives it and holds its output open is not waited for.
    assert_eq!(ground.fetch(&sh(&format!("sleep 3 & echo {VALUE}"))), Ok(value()));
}

#[test]
fn programs_that_fail_give_nothing() {
    let ground = ground();
    for (script, says) in [
        (format!("echo {VALUE}; exit 3"), "exit status: 3"),
        (format!("echo {VALUE}; kill -9 $$"), "signal: 9"),
        (format!("echo {VALUE} >&2"), "is empty"),
        (format!("while :; do echo {VALUE}; done"), "64 KiB"),
        (format!("echo {VALUE}; echo {VALUE}"), "line break"),
    ] {
        let error = ground.fetch(&sh(&script)).unwrap_err();
        assert!(error.contains(says) || error.contains("cannot be used"), "{script}: {error}");
    }
    let missing = SecretSource::Command { argv: vec!["no-such-program".to_owned()] };
    assert!(ground.fetch(&missing).unwrap_err().contains("no program `no-such-program`"));
    let argv = ["sh", "-c", "sleep 60"].map(str::to_owned);
    let slow = command::run_within(&argv, &ground.around, std::time::Duration::from_millis(50)).unwrap_err();
    assert!(slow.to_string().contains("killed"), "{slow}");
}

#[test]
fn programs_are_found_in_absolute_directories_only() {
    let mut ground = ground();
    let planted = ground.root.path().join("gh");
    fs::write(&planted, format!("#!/bin/sh\necho {VALUE}\n")).unwrap();
    fs::set_permissions(&planted, fs::Permissions::from_mode(0o755)).unwrap();
    let source = SecretSource::Command { argv: vec!["gh".to_owned()] };
    for path in ["", ".", "./:", "x/.."] {
        ground.around.path = path.into();
        assert!(ground.fetch(&source).is_err(), "{path:?}");
    }
    ground.around.path = ground.root.path().into();
    assert_eq!(ground.fetch(&source), Ok(value()));
}

/// A clock that tests turn.
fn clock(seconds: &AtomicU64) -> impl Fn() -> SystemTime + '_ {
    || UNIX_EPOCH + Duration::from_secs(seconds.load(Ordering::SeqCst))
}

#[test]
fn a_value_is_asked_for_again_before_its_end() {
    let seconds = AtomicU64::new(1000);
    let (slot, asked) = (Slot::default(), AtomicUsize::new(0));
    let lease = |until: u64| {
        asked.fetch_add(1, Ordering::SeqCst);
        let end = UNIX_EPOCH + Duration::from_secs(until);
        Ok(Some(Lease::new(value(), Some(end), clock(&seconds)(), FRESH_COMMAND)))
    };
    let fail = || {
        asked.fetch_add(1, Ordering::SeqCst);
        Err(SourceError::NotKept(name()))
    };
    // Good for an hour: asked for again in its last minute.
    slot.ask(clock(&seconds), || lease(4600)).unwrap();
    seconds.store(4530, Ordering::SeqCst);
    slot.ask(clock(&seconds), || lease(0)).unwrap();
    assert!(slot.ready(clock(&seconds)()).is_some());
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    seconds.store(4545, Ordering::SeqCst);
    assert!(slot.ready(clock(&seconds)()).is_none());
    // The source fails: the old one is good until its end, and the source is left alone for a while.
    slot.ask(clock(&seconds), fail).unwrap();
    slot.ask(clock(&seconds), fail).unwrap();
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    seconds.store(4560, Ordering::SeqCst);
    slot.ask(clock(&seconds), fail).unwrap();
    assert_eq!(asked.load(Ordering::SeqCst), 3);
    seconds.store(4600, Ordering::SeqCst);
    slot.ask(clock(&seconds), fail).unwrap_err();
    slot.ask(clock(&seconds), || lease(9000)).unwrap();
    assert_eq!(asked.load(Ordering::SeqCst), 5);
}

#[test]
fn a_value_without_an_end_is_not_used_when_asking_again_fails() {
    let seconds = AtomicU64::new(1000);
    let slot = Slot::default();
    slot.ask(clock(&seconds), || Ok(Some(Lease::new(value(), None, clock(&seconds)(), FRESH)))).unwrap();
    seconds.store(1061, Ordering::SeqCst);
    slot.ask(clock(&seconds), || Err(SourceError::NotKept(name()))).unwrap_err();
}

#[test]
fn of_many_askers_one_goes_to_the_source_and_all_get_its_answer() {
    for fails in [false, true] {
        let (slot, asked, waiting) = (Arc::new(Slot::default()), AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            let ask = || {
                waiting.fetch_add(1, Ordering::SeqCst);
                slot.ask(SystemTime::now, || {
                    asked.fetch_add(1, Ordering::SeqCst);
                    // Until everybody is at the door.
                    while waiting.load(Ordering::SeqCst) < 16 {
                        std::thread::yield_now();
                    }
                    std::thread::sleep(Duration::from_millis(50));
                    if fails { Err(SourceError::NotKept(name())) } else { Ok(Some(of_caller(&value(), SystemTime::now()))) }
                })
            };
            let answers: Vec<_> = (0..16).map(|_| scope.spawn(ask)).collect();
            for answer in answers {
                assert_eq!(answer.join().unwrap().is_err(), fails);
            }
        });
        assert_eq!(asked.load(Ordering::SeqCst), 1, "fails: {fails}");
    }
}
