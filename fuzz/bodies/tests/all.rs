//! The targets on stable Rust: every seed, every input that once broke something, and as many mutated inputs as fit into a few seconds.
//!
//! Started by root, each test starts itself again as an ordinary user: what an input may break is then only what that user owns.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use stockade_fuzz::TARGETS;
use stockade_fuzz::mutate::Mutator;

/// Inputs that once broke something: `regressions/TARGET/NAME`.
const REGRESSIONS: &str = "../regressions";
/// Says where the second process finds the regressions and which target it tries.
const PLACE: &str = "STOCKADE_FUZZ_REGRESSIONS";
const NAME: &str = "STOCKADE_FUZZ_TARGET";

macro_rules! tests {
    ($($name:ident),*) => {
        $(#[test]
        fn $name() {
            try_as_ordinary_user(stringify!($name));
        })*

        #[test]
        fn every_target_has_a_test_and_a_binary() {
            let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
            assert_eq!(names, [$(stringify!($name)),*]);
            let manifest = fs::read_to_string("../Cargo.toml").unwrap();
            let binaries: Vec<&str> = manifest.split("[[bin]]\nname = \"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
            assert_eq!(names, binaries);
        }
    };
}

tests!(
    wire, host, guest, seccomp, settings, text, layer, state, broker, git, egress, shell, policy, pack, receipts, door, carried, rest,
    providers
);

#[test]
fn every_regression_belongs_to_a_target() {
    for entry in fs::read_dir(REGRESSIONS).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(TARGETS.iter().any(|target| target.name == name), "{name}");
    }
}

#[test]
#[ignore = "started by another test, as another user"]
#[expect(clippy::disallowed_methods, reason = "a test that starts itself again has no other way to say what and where")]
fn as_an_ordinary_user() {
    let name = std::env::var(NAME).unwrap();
    try_target(&name, &PathBuf::from(std::env::var_os(PLACE).unwrap()));
}

fn try_target(name: &str, regressions: &Path) {
    let target = TARGETS.iter().find(|target| target.name == name).unwrap();
    let mut inputs = (target.seeds)();
    if let Ok(entries) = fs::read_dir(regressions.join(name)) {
        inputs.extend(entries.map(|entry| fs::read(entry.unwrap().path()).unwrap()));
    }
    assert!(!inputs.is_empty());
    for input in &inputs {
        attempt(name, target.body, input);
    }
    let mut mutator = Mutator::new(&inputs);
    for _ in 0..target.tries {
        attempt(name, target.body, &mutator.next_input());
    }
}

/// Tries an input and says which it was if it broke something.
fn attempt(name: &str, body: fn(&[u8]), input: &[u8]) {
    struct Last<'a>(&'a str, &'a [u8]);
    impl Drop for Last<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                println!("broken by this input of `{}`:\n{}", self.0, self.1.escape_ascii());
            }
        }
    }
    let _last = Last(name, input);
    body(input);
}

fn try_as_ordinary_user(name: &str) {
    if fs::metadata("/proc/self").is_ok_and(|found| std::os::unix::fs::MetadataExt::uid(&found) != 0) {
        return try_target(name, Path::new(REGRESSIONS));
    }
    let base = tempfile::tempdir().unwrap();
    let (program, copy) = (base.path().join("test-binary"), base.path().join("regressions"));
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    fs::create_dir_all(copy.join(name)).unwrap();
    if let Ok(entries) = fs::read_dir(Path::new(REGRESSIONS).join(name)) {
        for entry in entries.map(Result::unwrap) {
            fs::copy(entry.path(), copy.join(name).join(entry.file_name())).unwrap();
        }
    }
    for path in [base.path(), &program] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    #[expect(clippy::disallowed_methods, reason = "the test starts itself again, through a program of util-linux")]
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "env", "-i"]);
    command.arg(format!("{NAME}={name}")).arg(format!("{PLACE}={}", copy.display())).arg(&program);
    command.args(["--exact", "as_an_ordinary_user", "--ignored", "--nocapture"]).current_dir("/");
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}
