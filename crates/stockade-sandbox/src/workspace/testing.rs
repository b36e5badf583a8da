//! What the tests of this module share: real overlay mounts, made in a user namespace by util-linux programs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::layer::Layer;

/// Runs a program; it must succeed.
#[expect(clippy::disallowed_methods, reason = "tests start util-linux, git and shells with arguments of their own")]
pub(crate) fn run(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().unwrap();
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs an ignored test of this binary again as an ordinary user, who gets `base` with all in it. It must pass.
pub(crate) fn as_ordinary_user(test: &[&str], base: &Path) {
    let copy = base.join("test-binary");
    fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    let text = base.to_str().unwrap();
    run("chown", &["-R", "65534:65534", text]);
    run("chmod", &["755", text, copy.to_str().unwrap()]);
    let variable = format!("{BASE}={text}");
    let user = ["--reuid=65534", "--regid=65534", "--clear-groups", "env", &variable, copy.to_str().unwrap(), "--exact"];
    let output = run("setpriv", &[&user, test].concat());
    assert!(output.contains("1 passed"), "{output}");
}

const BASE: &str = "STOCKADE_TEST_BASE";

/// The directory that [`as_ordinary_user`] gave.
#[expect(clippy::disallowed_methods, reason = "a test that starts itself again has no other way to say where")]
pub(crate) fn base_of_ordinary_user() -> PathBuf {
    PathBuf::from(std::env::var_os(BASE).unwrap())
}

/// A workspace, an upper directory and what belongs to them.
pub(crate) struct Overlay {
    pub(crate) base: tempfile::TempDir,
    pub(crate) lower: PathBuf,
    pub(crate) upper: PathBuf,
}

impl Overlay {
    /// Makes the lower tree with a shell script that runs in it.
    pub(crate) fn new(prepare: &str) -> Self {
        let base = tempfile::tempdir().unwrap();
        let at = |name: &str| {
            let path = base.path().join(name);
            fs::create_dir(&path).unwrap();
            path
        };
        let (lower, upper) = (at("lower"), at("upper"));
        at("work");
        at("merged");
        run("bash", &["-ec", &format!("cd '{}'; umask 022; {prepare}", lower.display())]);
        Self { base, lower, upper }
    }

    /// Runs a shell script in the merged tree.
    pub(crate) fn inside(&self, script: &str) {
        let base = self.base.path().display();
        let script = format!(
            "cd '{base}'; mount -t overlay overlay -o userxattr,lowerdir=lower,upperdir=upper,workdir=work merged; cd merged; umask 022; {script}"
        );
        run("unshare", &["-Urm", "bash", "-ec", &script]);
    }

    /// The layer that the script left.
    pub(crate) fn layer(&self) -> Layer {
        Layer::new(&self.upper, &self.lower)
    }

    /// `KIND path` for each change.
    pub(crate) fn listed(&self) -> Vec<String> {
        self.layer().changes().unwrap().iter().map(ToString::to_string).collect()
    }
}

/// Everything beneath a directory: `path mode contents`, sorted, for whole-value comparison.
pub(crate) fn listing(root: &Path) -> Vec<String> {
    let mut out = Vec::new();
    let mut left = vec![root.to_path_buf()];
    while let Some(directory) = left.pop() {
        // The kernel takes no longer paths, and these tests make some.
        if directory.as_os_str().len() > 3500 {
            continue;
        }
        for entry in fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            let path = entry.path();
            let found = fs::symlink_metadata(&path).unwrap();
            let mode = std::os::unix::fs::MetadataExt::mode(&found) & 0o7777;
            let name = path.strip_prefix(root).unwrap().display().to_string();
            if found.is_dir() {
                out.push(format!("{name}/ {mode:o}"));
                left.push(path);
            } else if found.is_symlink() {
                out.push(format!("{name} -> {}", fs::read_link(&path).unwrap().display()));
            } else if found.is_file() {
                out.push(format!("{name} {mode:o} {}", String::from_utf8_lossy(&fs::read(&path).unwrap()).trim_end()));
            } else {
                out.push(format!("{name} special"));
            }
        }
    }
    out.sort();
    out
}
