//! The store on disk: what it writes, what it refuses, and what others can do to it.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

fn store() -> (tempfile::TempDir, Store) {
    let root = tempfile::tempdir().unwrap();
    let store = Store::beneath(&root.path().join("state"));
    (root, store)
}

fn name(text: &str) -> SecretName {
    text.parse().unwrap()
}

fn value(text: &str) -> SecretValue {
    SecretValue::new(text.as_bytes().to_vec()).unwrap()
}

const ONE: &str = "one-secret-value-0123456789";
const TWO: &str = "two-secret-value-0123456789";

#[test]
fn set_get_list_remove() {
    let (_root, store) = store();
    assert_eq!((store.get(&name("A")).unwrap(), store.list().unwrap().len()), (None, 0));
    assert!(!store.path().exists(), "looking makes nothing");
    let now = UNIX_EPOCH + Duration::from_secs(1_763_000_000);
    assert_eq!(store.set(&name("A"), &value(ONE), now).unwrap(), Kept::New);
    assert_eq!(store.set(&name("A"), &value(TWO), now).unwrap(), Kept::Replaced);
    assert_eq!(store.set(&name("B"), &value(ONE), now).unwrap(), Kept::New);
    assert_eq!(store.get(&name("A")).unwrap(), Some(value(TWO)));
    let listed: Vec<_> = store.list().unwrap().into_iter().map(|l| (l.name.to_string(), l.created.unwrap())).collect();
    assert_eq!(listed, [("A".to_owned(), now), ("B".to_owned(), now)]);
    assert_eq!(store.check().unwrap(), 2);
    assert_eq!(store.remove(&name("A")).unwrap(), Removed::Gone);
    assert_eq!(store.remove(&name("A")).unwrap(), Removed::NotThere);
    assert_eq!(store.get(&name("A")).unwrap(), None);
}

#[test]
fn nothing_on_disk_shows_a_value_and_nobody_else_may_look() {
    let (_root, store) = store();
    store.set(&name("A"), &value(ONE), SystemTime::now()).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(store.path()), 0o700);
    for entry in fs::read_dir(store.path()).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
        let bytes = fs::read(&path).unwrap();
        assert!(!bytes.windows(8).any(|window| ONE.as_bytes().windows(8).any(|run| run == window)), "{}", path.display());
    }
}

#[test]
fn entries_cannot_be_swapped() {
    let (_root, store) = store();
    store.set(&name("A"), &value(ONE), SystemTime::now()).unwrap();
    store.set(&name("B"), &value(TWO), SystemTime::now()).unwrap();
    fs::rename(store.path().join("A.secret"), store.path().join("B.secret")).unwrap();
    let error = store.get(&name("B")).unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    assert!(error.hint().unwrap().contains("stockade secret remove B"), "{error}");
}

#[test]
fn files_that_others_could_touch_are_refused() {
    let (_root, store) = store();
    store.set(&name("A"), &value(ONE), SystemTime::now()).unwrap();
    let (entry, key, elsewhere) = (store.path().join("A.secret"), store.path().join("key"), store.path().join("moved"));
    let set_mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    for path in [entry.as_path(), &key, store.path()] {
        let right = fs::metadata(path).unwrap().permissions().mode() & 0o777;
        for open in [0o640, 0o604, 0o622] {
            set_mode(path, open | right);
            let error = store.get(&name("A")).unwrap_err();
            assert!(matches!(error, StoreError::Exposed { .. }) && error.hint().unwrap().contains("chmod"), "{}: {error}", path.display());
            assert!(store.set(&name("A"), &value(TWO), SystemTime::now()).is_err() || path == entry);
            set_mode(path, right);
            store.set(&name("A"), &value(ONE), SystemTime::now()).unwrap();
        }
    }
    for path in [&entry, &key] {
        fs::rename(path, &elsewhere).unwrap();
        symlink(&elsewhere, path).unwrap();
        assert!(matches!(store.get(&name("A")).unwrap_err(), StoreError::NotPlain(_)), "a link");
        fs::remove_file(path).unwrap();
        fs::hard_link(&elsewhere, path).unwrap();
        assert!(matches!(store.get(&name("A")).unwrap_err(), StoreError::NotPlain(_)), "a second name");
        fs::remove_file(path).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
        assert!(matches!(store.get(&name("A")).unwrap_err(), StoreError::NotPlain(_)), "a pipe");
        fs::remove_file(path).unwrap();
        fs::rename(&elsewhere, path).unwrap();
    }
    assert_eq!(store.get(&name("A")).unwrap(), Some(value(ONE)));
    let whole = store.path().to_owned();
    let real = whole.with_extension("real");
    fs::rename(&whole, &real).unwrap();
    symlink(&real, &whole).unwrap();
    assert!(matches!(store.get(&name("A")).unwrap_err(), StoreError::NotPlain(_)), "a linked directory");
}

#[test]
fn a_strangers_store_is_refused() {
    let (_root, store) = store();
    store.set(&name("A"), &value(ONE), SystemTime::now()).unwrap();
    std::os::unix::fs::chown(store.path().join("A.secret"), Some(65534), None).unwrap();
    assert!(matches!(store.get(&name("A")).unwrap_err(), StoreError::NotOurs { owner: 65534, .. }));
}

#[test]
fn damage_is_named_and_can_be_cleared() {
    let (_root, store) = store();
    let put = |file: &str, bytes: &[u8]| {
        fs::write(store.path().join(file), bytes).unwrap();
        fs::set_permissions(store.path().join(file), fs::Permissions::from_mode(0o600)).unwrap();
    };
    store.set(&name("A"), &value(ONE), SystemTime::now()).unwrap();
    store.set(&name("B"), &value(TWO), SystemTime::now()).unwrap();
    put("A.secret", b"not ours");
    assert!(matches!(store.get(&name("A")).unwrap_err(), StoreError::Damaged { .. }));
    assert!(store.check().is_err());
    let listed = store.list().unwrap();
    assert_eq!(listed.iter().map(|l| (l.name.as_str(), l.created.is_ok())).collect::<Vec<_>>(), [("A", false), ("B", true)]);
    put("A.secret", &vec![0; MAX_ENTRY + 1]);
    assert!(matches!(store.get(&name("A")).unwrap_err(), StoreError::Damaged { why: "it is too long", .. }));
    assert_eq!(store.remove(&name("A")).unwrap(), Removed::Gone);
    assert_eq!(store.check().unwrap(), 1);
    // Without its key nothing opens, and no new key is made that would bury what is there.
    fs::remove_file(store.path().join("key")).unwrap();
    assert!(matches!(store.get(&name("B")).unwrap_err(), StoreError::NoKey(_)));
    assert!(matches!(store.set(&name("C"), &value(ONE), SystemTime::now()).unwrap_err(), StoreError::NoKey(_)));
    put("key", Key::generate().unwrap().to_file().as_slice());
    assert!(matches!(store.get(&name("B")).unwrap_err(), StoreError::OtherKey { .. }));
    put("key", b"STKDK\x01");
    assert!(matches!(store.get(&name("B")).unwrap_err(), StoreError::Damaged { .. }));
    store.remove(&name("B")).unwrap();
    fs::remove_file(store.path().join("key")).unwrap();
    assert_eq!(store.set(&name("B"), &value(ONE), SystemTime::now()).unwrap(), Kept::New);
}

#[test]
fn what_a_killed_writer_left_is_cleared_away_and_writers_wait_for_one_another() {
    let (_root, store) = store();
    store.set(&name("A"), &value(ONE), SystemTime::now()).unwrap();
    fs::write(store.path().join(".new-1-0"), "half").unwrap();
    std::thread::scope(|scope| {
        for at in 0..8 {
            let store = &store;
            scope.spawn(move || store.set(&name(&format!("N{at}")), &value(TWO), SystemTime::now()).unwrap());
        }
    });
    assert!(!store.path().join(".new-1-0").exists());
    assert_eq!(store.check().unwrap(), 9);
}
