//! Packs on a real file system: everything that an attacker could do to one, and what a person could do by mistake.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use stockade_policy::pack::{BadFile, ListingError, PackFiles, PackPath, SigningKey};

use super::*;
use crate::places::Places;

const CAPABILITY: &str = r#"
name = "demo.echo"
description = "Say something."
effect = "read"
program = "echo"
args = ["{word}"]
input = { required = ["word"], properties = { word = { type = "string" } } }
[[examples]]
input = { word = "a" }
argv = ["echo", "a"]
[[examples]]
input = { word = "-a" }
verdict = "deny"
"#;

struct Lab {
    root: tempfile::TempDir,
    places: Places,
}

fn lab() -> Lab {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    let places = Places { home: at("home"), state: at("state"), config: at("config"), runtime: at("run"), machine: at("etc") };
    Lab { root, places }
}

fn key(seed: u8) -> SigningKey {
    SigningKey::from_seed([seed; 32])
}

fn manifest(name: &str, version: &str) -> String {
    format!("name = \"{name}\"\nversion = \"{version}\"\ndescription = \"d\"\npublisher = \"acme\"\n")
}

impl Lab {
    /// A pack's directory with the capability `NAME.echo`.
    fn pack(&self, directory: &str, name: &str, version: &str) -> PathBuf {
        let path = self.root.path().join(directory);
        std::fs::create_dir_all(path.join("capabilities")).unwrap();
        std::fs::write(path.join("pack.toml"), manifest(name, version)).unwrap();
        std::fs::write(path.join(format!("capabilities/{name}.echo.toml")), CAPABILITY.replace("demo.", &format!("{name}."))).unwrap();
        path
    }

    fn trust(&self, seed: u8) {
        let mut publishers = Publishers::load(&self.places).unwrap();
        publishers.add("acme".parse().unwrap(), key(seed).public().unwrap()).unwrap();
        publishers.store(&self.places).unwrap();
    }

    fn signed(&self, directory: &str, name: &str, version: &str) -> PathBuf {
        let path = self.pack(directory, name, version);
        sign_as(&path, 1);
        path
    }

    fn install(&self, path: &Path) -> Result<(), PackError> {
        let checked = check(&self.places, path, Unsigned::Refuse)?;
        install(&self.places, &checked, Downgrade::Refuse)
    }

    fn load(&self) -> Packs {
        Packs::load(&self.places).unwrap()
    }

    /// Why the pack `demo` is left out.
    fn problem(&self) -> PackError {
        let mut packs = self.load();
        assert!(packs.capability("demo.echo").is_err(), "it loads");
        let place = packs.problems.iter().position(|problem| problem.name == "demo").expect("a problem");
        packs.problems.swap_remove(place).error
    }

    fn files(&self) -> PathBuf {
        self.places.state.join("packs/demo/files")
    }
}

fn sign_as(path: &Path, seed: u8) {
    let files = read_directory(path).unwrap();
    let pack = stockade_policy::pack::Pack::read(&files, "").unwrap_or_else(|faults| panic!("{faults}"));
    let key = key(seed);
    let signature = sign(&files, &pack.manifest, &key, key.public().unwrap().id());
    std::fs::write(path.join("signature.json"), signature).unwrap();
}

#[test]
fn a_signed_pack_is_installed_and_found() {
    let lab = lab();
    let path = lab.signed("demo", "demo", "1.0.0");
    assert!(matches!(lab.install(&path), Err(PackError::Untrusted(_))));
    lab.trust(1);
    lab.install(&path).unwrap();
    let packs = lab.load();
    let (pack, capability) = packs.capability("demo.echo").unwrap();
    assert_eq!((pack.standing.name(), capability.program.as_str()), ("signed", "echo"));
    assert!(packs.vocabulary().find("demo.echo").is_some());
    remove(&lab.places, &"demo".parse().unwrap()).unwrap();
    assert!(matches!(lab.load().capability("demo.echo"), Err(PackError::NoCapability { .. })));
    assert!(matches!(remove(&lab.places, &"demo".parse().unwrap()), Err(PackError::NoPack(_))));
}

#[test]
fn without_a_signature_only_a_person_can_say_yes() {
    let lab = lab();
    let path = lab.pack("demo", "demo", "1.0.0");
    assert!(matches!(lab.install(&path), Err(PackError::Unsigned)));
    let checked = check(&lab.places, &path, Unsigned::Accept).unwrap();
    install(&lab.places, &checked, Downgrade::Refuse).unwrap();
    assert_eq!(lab.load().capability("demo.echo").unwrap().0.standing, Standing::Unsigned);
    std::fs::write(lab.files().join("capabilities/demo.echo.toml"), CAPABILITY.replace("Say", "Tell")).unwrap();
    assert!(matches!(lab.problem(), PackError::Changed), "an unsigned pack is held to what was installed");
}

#[test]
fn every_byte_of_every_file_counts_before_and_after_installation() {
    let lab = lab();
    lab.trust(1);
    let path = lab.signed("demo", "demo", "1.0.0");
    let original = read_directory(&path).unwrap();
    let flip = |root: &Path, refused: &dyn Fn() -> bool| {
        for (name, bytes) in original.iter().filter(|(name, _)| name.as_str() != "signature.json") {
            for index in 0..bytes.len() {
                let mut other = bytes.to_vec();
                other[index] ^= 1;
                std::fs::write(root.join(name.as_str()), &other).unwrap();
                assert!(refused(), "{name} byte {index}");
            }
            std::fs::write(root.join(name.as_str()), bytes).unwrap();
        }
    };
    flip(&path, &|| check(&lab.places, &path, Unsigned::Refuse).is_err());
    lab.install(&path).unwrap();
    flip(&lab.files(), &|| lab.load().capability("demo.echo").is_err());
    assert!(lab.load().capability("demo.echo").is_ok(), "as it was");
}

#[test]
fn files_that_come_go_or_move_are_noticed_at_load() {
    let lab = lab();
    lab.trust(1);
    lab.install(&lab.signed("demo", "demo", "1.0.0")).unwrap();
    let files = lab.files();
    let added = files.join("README.md");
    std::fs::write(&added, "hello").unwrap();
    assert!(matches!(lab.problem(), PackError::Listing(ListingError::Added(_))));
    std::fs::remove_file(&added).unwrap();
    let (from, to) = (files.join("capabilities/demo.echo.toml"), files.join("capabilities/demo.tell.toml"));
    std::fs::rename(&from, &to).unwrap();
    assert!(lab.load().capability("demo.tell").is_err() && lab.load().capability("demo.echo").is_err());
    std::fs::rename(&to, &from).unwrap();
    let signature = std::fs::read(files.join("signature.json")).unwrap();
    std::fs::remove_file(files.join("signature.json")).unwrap();
    assert!(matches!(lab.problem(), PackError::Unsigned));
    std::fs::write(files.join("signature.json"), signature).unwrap();
    std::fs::remove_file(&from).unwrap();
    symlink("/etc/passwd", &from).unwrap();
    assert!(matches!(lab.problem(), PackError::File(BadFile::Special(..))));
}

#[test]
fn signatures_do_not_move_between_packs_or_versions() {
    let lab = lab();
    lab.trust(1);
    let (one, two) = (lab.signed("one", "one", "1.0.0"), lab.signed("two", "two", "1.0.0"));
    std::fs::copy(one.join("signature.json"), two.join("signature.json")).unwrap();
    assert!(matches!(lab.install(&two), Err(PackError::Listing(_))));
    let (old, new) = (lab.signed("old", "demo", "1.0.0"), lab.signed("new", "demo", "1.1.0"));
    lab.install(&new).unwrap();
    assert!(matches!(lab.install(&old), Err(PackError::Downgrade { .. })));
    std::fs::copy(old.join("signature.json"), new.join("signature.json")).unwrap();
    assert!(matches!(lab.install(&new), Err(PackError::Listing(_))), "an old signature says nothing about new files");
    // The old pack put in the new one's place, soundly signed as it is, is not what was agreed to.
    for name in ["pack.toml", "signature.json", "capabilities/demo.echo.toml"] {
        std::fs::copy(old.join(name), lab.files().join(name)).unwrap();
    }
    assert!(matches!(lab.problem(), PackError::Changed));
    let checked = check(&lab.places, &old, Unsigned::Refuse).unwrap();
    install(&lab.places, &checked, Downgrade::Allow).unwrap();
    assert_eq!(lab.load().capability("demo.echo").unwrap().0.version.to_string(), "1.0.0");
}

#[test]
fn a_key_that_is_not_trusted_any_more_takes_its_packs_along() {
    let lab = lab();
    lab.trust(1);
    let path = lab.signed("demo", "demo", "1.0.0");
    lab.install(&path).unwrap();
    let change = |act: &dyn Fn(&mut Publishers)| {
        let mut publishers = Publishers::load(&lab.places).unwrap();
        act(&mut publishers);
        publishers.store(&lab.places).unwrap();
    };
    change(&|publishers| drop(publishers.remove("acme").unwrap()));
    assert!(matches!(lab.problem(), PackError::Untrusted(_)));
    lab.trust(1);
    assert!(lab.load().capability("demo.echo").is_ok());
    change(&|publishers| drop(publishers.revoke(key(1).public().unwrap().id()).unwrap()));
    assert!(matches!(lab.problem(), PackError::Revoked(_)));
    assert!(matches!(check(&lab.places, &path, Unsigned::Accept), Err(PackError::Revoked(_))), "not even unsigned");
    let mut publishers = Publishers::load(&lab.places).unwrap();
    assert!(publishers.add("acme".parse().unwrap(), key(1).public().unwrap()).is_err(), "it never counts again");
    assert!(publishers.remove("acme").is_err());
    std::fs::write(lab.places.state.join("publishers.json"), "{}").unwrap();
    assert!(Publishers::load(&lab.places).is_err(), "a damaged list is no empty list");
    assert!(lab.load().capability("demo.echo").is_err());
}

#[test]
fn one_publisher_cannot_sign_for_another() {
    let lab = lab();
    lab.trust(1);
    let mut publishers = Publishers::load(&lab.places).unwrap();
    publishers.add("other".parse().unwrap(), key(2).public().unwrap()).unwrap();
    publishers.store(&lab.places).unwrap();
    let path = lab.pack("demo", "demo", "1.0.0");
    sign_as(&path, 2);
    assert!(matches!(lab.install(&path), Err(PackError::OtherPublisher { .. })));
    lab.install(&lab.signed("mine", "demo", "1.0.0")).unwrap();
    let text = manifest("demo", "2.0.0").replace("acme", "other");
    std::fs::write(path.join("pack.toml"), text).unwrap();
    sign_as(&path, 2);
    assert!(matches!(lab.install(&path), Err(PackError::Takeover { .. })));
}

#[test]
fn one_capability_is_one_packs() {
    let lab = lab();
    lab.trust(1);
    lab.install(&lab.signed("demo", "demo", "1.0.0")).unwrap();
    let second = lab.pack("second", "second", "1.0.0");
    std::fs::write(second.join("capabilities/demo.echo.toml"), CAPABILITY).unwrap();
    sign_as(&second, 1);
    assert!(matches!(lab.install(&second), Err(PackError::Claimed { .. })));
    let built_in = lab.pack("third", "third", "1.0.0");
    std::fs::write(built_in.join("capabilities/git.log.toml"), CAPABILITY.replace("demo.echo", "git.log")).unwrap();
    sign_as(&built_in, 1);
    assert!(matches!(lab.install(&built_in), Err(PackError::Claimed { .. })));
    let named = lab.signed("fourth", "git", "9.0.0");
    assert!(matches!(lab.install(&named), Err(PackError::BuiltIn(_))));
    assert_eq!(std::fs::read_dir(lab.places.state.join("packs")).unwrap().flatten().filter(|entry| entry.path().is_dir()).count(), 1);
}

#[test]
fn a_directory_with_links_pipes_or_strangers_is_refused() {
    let lab = lab();
    let path = lab.pack("demo", "demo", "1.0.0");
    let refused = |name: &str| {
        let error = read_directory(&path).unwrap_err();
        let target = path.join(name);
        if target.is_dir() && !target.is_symlink() {
            std::fs::remove_dir_all(&target).unwrap();
        } else {
            std::fs::remove_file(&target).unwrap();
        }
        error
    };
    symlink("/etc/passwd", path.join("README.md")).unwrap();
    assert!(matches!(refused("README.md"), PackError::File(BadFile::Special(_, "a symbolic link"))));
    rustix::fs::mknodat(rustix::fs::CWD, path.join("LICENSE"), rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
    assert!(matches!(refused("LICENSE"), PackError::File(BadFile::Special(_, "a pipe"))));
    symlink("/tmp", path.join("policy")).unwrap();
    assert!(matches!(refused("policy"), PackError::File(BadFile::Special(..))));
    std::fs::write(path.join(".hidden"), "").unwrap();
    assert!(matches!(refused(".hidden"), PackError::File(BadFile::Name(_))));
    std::fs::create_dir(path.join("bin")).unwrap();
    assert!(matches!(refused("bin"), PackError::File(BadFile::Place(_))));
    std::fs::write(path.join("capabilities/DEMO.echo.toml"), "").unwrap();
    assert!(matches!(refused("capabilities/DEMO.echo.toml"), PackError::File(BadFile::Twins(..))));
    std::fs::write(path.join("README.md"), vec![0; (1 << 20) + 1]).unwrap();
    assert!(matches!(refused("README.md"), PackError::File(BadFile::Large(_))));
    read_directory(&path).unwrap();
}

/// One entry of an archive: its name as it is, whatever the library thinks of it.
fn entry(name: &[u8], kind: u8, bytes: &[u8]) -> Vec<u8> {
    let mut header = tar::Header::new_ustar();
    header.set_size(bytes.len() as u64);
    header.set_mode(0o644);
    let block = header.as_mut_bytes();
    block[..name.len()].copy_from_slice(name);
    block[156] = kind;
    if matches!(kind, b'1' | b'2') {
        block[157..168].copy_from_slice(b"/etc/passwd");
    }
    header.set_cksum();
    let padding = vec![0; bytes.len().next_multiple_of(512) - bytes.len()];
    [header.as_bytes().as_slice(), bytes, &padding].concat()
}

fn archive(entries: &[Vec<u8>]) -> Vec<u8> {
    let tar = [entries.concat(), vec![0; 1024]].concat();
    zstd::stream::encode_all(tar.as_slice(), 1).unwrap()
}

#[test]
fn an_archive_is_the_same_pack() {
    let lab = lab();
    lab.trust(1);
    let path = lab.signed("demo", "demo", "1.0.0");
    let files = read_directory(&path).unwrap();
    let mut bytes = Vec::new();
    write_archive(&files, &mut bytes).unwrap();
    assert_eq!(unpack(bytes.as_slice()).unwrap(), files);
    let file = lab.root.path().join("demo.tar.zst");
    std::fs::write(&file, &bytes).unwrap();
    lab.install(&file).unwrap();
    assert!(lab.load().capability("demo.echo").is_ok());
}

#[test]
fn archives_that_lead_out_or_hold_more_than_files_are_refused() {
    let check = |name: &[u8], kind: u8, expected: fn(&BadFile) -> bool| {
        let error = unpack(archive(&[entry(name, kind, b"x")]).as_slice()).unwrap_err();
        assert!(matches!(&error, PackError::File(bad) if expected(bad)), "{name:?} {kind}: {error:?}");
    };
    check(b"/etc/passwd", b'0', |bad| matches!(bad, BadFile::Absolute(_)));
    check(b"../pack.toml", b'0', |bad| matches!(bad, BadFile::Climbs(_)));
    check(b"capabilities/../../x.toml", b'0', |bad| matches!(bad, BadFile::Climbs(_)));
    check(b"../", b'5', |bad| matches!(bad, BadFile::Climbs(_)));
    check(b"/tmp/", b'5', |bad| matches!(bad, BadFile::Absolute(_)));
    check(b"README.md", b'2', |bad| matches!(bad, BadFile::Special(_, "a symbolic link")));
    check(b"README.md", b'1', |bad| matches!(bad, BadFile::Special(_, "a hard link")));
    check(b"README.md", b'3', |bad| matches!(bad, BadFile::Special(_, "a device")));
    check(b"README.md", b'4', |bad| matches!(bad, BadFile::Special(_, "a device")));
    check(b"README.md", b'6', |bad| matches!(bad, BadFile::Special(_, "a pipe")));
    for extension in [b'x', b'g', b'L', b'K', b'S', b'7'] {
        check(b"README.md", extension, |bad| matches!(bad, BadFile::Special(..)));
    }
    check(b"evil", b'0', |bad| matches!(bad, BadFile::Place(_)));
    let twins = [entry(b"policy/a.cedar", b'0', b""), entry(b"policy/A.cedar", b'0', b"")];
    assert!(matches!(unpack(archive(&twins).as_slice()), Err(PackError::File(BadFile::Twins(..)))));
    let twice = [entry(b"README.md", b'0', b"a"), entry(b"README.md", b'0', b"b")];
    assert!(matches!(unpack(archive(&twice).as_slice()), Err(PackError::File(BadFile::Twice(_)))));
}

#[test]
fn bombs_are_refused_before_they_are_held() {
    // Zeroes read as an empty archive, so the bomb is in an entry: ten gigabytes that are said and never come.
    let mut header = tar::Header::new_ustar();
    header.set_size(10 << 30);
    header.as_mut_bytes()[..9].copy_from_slice(b"README.md");
    header.as_mut_bytes()[156] = b'0';
    header.set_cksum();
    let said = zstd::stream::encode_all(header.as_bytes().as_slice(), 1).unwrap();
    assert!(matches!(unpack(said.as_slice()), Err(PackError::File(BadFile::Large(_)))));
    // Many files, each as large as one may be.
    let many: Vec<Vec<u8>> = (0..40).map(|n| entry(format!("policy/{n}.cedar").as_bytes(), b'0', &vec![0; 1 << 20])).collect();
    let bytes = archive(&many);
    assert!(bytes.len() < 1 << 20, "it is small");
    assert!(matches!(unpack(bytes.as_slice()), Err(PackError::File(BadFile::Heavy))));
    // Directories without number.
    let directories: Vec<Vec<u8>> = (0..30_000).map(|_| entry(b"policy/", b'5', b"")).collect();
    assert!(matches!(unpack(archive(&directories).as_slice()), Err(PackError::File(BadFile::Many))));
    // Padding behind a directory that claims to be long.
    let padded = entry(b"policy/", b'5', &vec![0; 64 << 20]);
    assert!(matches!(unpack(archive(&[padded]).as_slice()), Err(PackError::Bomb)));
    for broken in [&b""[..], b"not an archive", &bytes[..100]] {
        assert!(matches!(unpack(broken), Err(PackError::Archive(_))), "{broken:?}");
    }
}

#[test]
fn what_fails_leaves_what_was_there() {
    let lab = lab();
    lab.trust(1);
    lab.install(&lab.signed("one", "demo", "1.0.0")).unwrap();
    let broken = lab.signed("two", "demo", "1.1.0");
    std::fs::write(broken.join("pack.toml"), manifest("demo", "1.2.0")).unwrap();
    assert!(lab.install(&broken).is_err());
    let faulty = lab.pack("three", "demo", "1.3.0");
    let text = CAPABILITY.replace("argv = [\"echo\", \"a\"]", "argv = [\"echo\", \"b\"]");
    std::fs::write(faulty.join("capabilities/demo.echo.toml"), text).unwrap();
    sign_as(&faulty, 1);
    assert!(matches!(lab.install(&faulty), Err(PackError::Faults(_))), "examples are tried");
    assert_eq!(lab.load().capability("demo.echo").unwrap().0.version.to_string(), "1.0.0");
    let other = lab.pack("four", "demo", "1.0.0");
    std::fs::write(other.join("README.md"), "more").unwrap();
    sign_as(&other, 1);
    assert!(matches!(lab.install(&other), Err(PackError::SameVersion { .. })));
    let left: Vec<_> = std::fs::read_dir(lab.places.state.join("packs")).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left.iter().filter(|name| !name.to_string_lossy().starts_with(".lock")).count(), 1, "{left:?}");
}

#[test]
fn what_is_known_is_not_believed_after_a_change() {
    let lab = lab();
    lab.trust(1);
    lab.install(&lab.signed("demo", "demo", "1.0.0")).unwrap();
    lab.load();
    let known = lab.places.state.join("packs-known.json");
    // Too young to be told from a change in the same instant: verified again each time.
    assert!(!std::fs::read_to_string(&known).unwrap().contains("demo.echo"));
    std::thread::sleep(std::time::Duration::from_millis(3100));
    lab.load();
    assert!(std::fs::read_to_string(&known).unwrap().contains("demo.echo"));
    assert!(lab.load().capability("demo.echo").is_ok());
    let file = lab.files().join("capabilities/demo.echo.toml");
    std::fs::write(&file, CAPABILITY.replace("Say", "Yas")).unwrap();
    assert!(lab.load().capability("demo.echo").is_err());
    std::fs::write(&file, CAPABILITY).unwrap();
    std::fs::write(&known, "nonsense").unwrap();
    assert!(lab.load().capability("demo.echo").is_ok(), "a damaged cache is no cache");
}

#[test]
fn a_process_that_asks_again_has_the_same_packs_until_anything_changes() {
    let lab = lab();
    lab.trust(1);
    lab.install(&lab.signed("demo", "demo", "1.0.0")).unwrap();
    let remembered = Remembered::default();
    let load = || Packs::load_with(&lab.places, &remembered).unwrap();
    assert!(!Arc::ptr_eq(&load(), &load()), "too young to be told from a change in the same instant");
    std::thread::sleep(std::time::Duration::from_millis(3100));
    let first = load();
    assert!(first.capability("demo.echo").is_ok() && Arc::ptr_eq(&first, &load()));
    let file = lab.files().join("capabilities/demo.echo.toml");
    std::fs::write(&file, CAPABILITY.replace("Say", "Yas")).unwrap();
    assert!(load().capability("demo.echo").is_err());
    assert!(!Arc::ptr_eq(&load(), &load()), "what does not verify is tried each time");
    std::fs::write(&file, CAPABILITY).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(3100));
    assert!(Arc::ptr_eq(&load(), &load()));
    remove(&lab.places, &"demo".parse().unwrap()).unwrap();
    assert!(matches!(load().capability("demo.echo"), Err(PackError::NoCapability { .. })));
}

#[test]
fn rules_of_a_pack_are_about_its_own_capabilities() {
    let lab = lab();
    lab.trust(1);
    let path = lab.pack("demo", "demo", "1.0.0");
    std::fs::create_dir(path.join("policy")).unwrap();
    for foreign in [
        "permit (principal, action, resource);",
        "permit (principal, action in Stockade::Action::\"invoke\", resource);",
        "permit (principal, action == Stockade::Action::\"exec\", resource);",
        "forbid (principal, action in [Stockade::Action::\"demo.echo\", Stockade::Action::\"git.log\"], resource);",
    ] {
        std::fs::write(path.join("policy/rules.cedar"), foreign).unwrap();
        sign_as(&path, 1);
        assert!(matches!(lab.install(&path), Err(PackError::Faults(_))), "{foreign}");
    }
    let own = "@id(\"no-secrets\")\nforbid (principal, action == Stockade::Action::\"demo.echo\", resource) when { context.args.word like \"*secret*\" };";
    std::fs::write(path.join("policy/rules.cedar"), own).unwrap();
    sign_as(&path, 1);
    lab.install(&path).unwrap();
    assert_eq!(lab.load().policy_files().unwrap().len(), 1);
}

#[test]
fn every_built_in_pack_lints() {
    for name in builtin::names() {
        let files = builtin::files(name).unwrap();
        let pack = stockade_policy::pack::Pack::read(&files, name).unwrap_or_else(|faults| panic!("{faults}"));
        pack.lint(&files, name).unwrap_or_else(|faults| panic!("{faults}"));
    }
    let packs = lab().load();
    assert!(packs.problems.is_empty() && packs.packs.len() == builtin::names().count(), "{:?}", packs.problems);
}

#[test]
fn an_empty_pack_and_a_wrong_file_name_are_faults() {
    let mut files = PackFiles::default();
    files.add(PackPath::parse(b"pack.toml").unwrap(), manifest("demo", "1.0.0").into_bytes()).unwrap();
    assert!(stockade_policy::pack::Pack::read(&files, "").is_err());
    files.add(PackPath::parse(b"capabilities/demo.other.toml").unwrap(), CAPABILITY.as_bytes().to_vec()).unwrap();
    let faults = stockade_policy::pack::Pack::read(&files, "").unwrap_err();
    assert!(faults.to_string().contains("capabilities/demo.echo.toml"), "{faults}");
}
