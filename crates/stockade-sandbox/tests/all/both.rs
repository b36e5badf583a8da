//! Tests that hold for root and for ordinary users, run as both.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Where an inner run works.
pub(crate) const BASE: &str = "STOCKADE_TEST_BASE";

/// Runs a test here and, if that was as root, again as an ordinary user; `name` is its whole path.
#[expect(clippy::disallowed_methods, reason = "a test that starts itself again")]
pub(crate) fn as_both(name: &str, test: impl FnOnce(&Path)) {
    if let Some(base) = std::env::var_os(BASE) {
        return test(Path::new(&base));
    }
    let outer = tempfile::tempdir_in("/var/tmp").unwrap();
    let base = fs::canonicalize(outer.path()).unwrap();
    fs::create_dir(base.join("own")).unwrap();
    test(&base.join("own"));
    if rustix::process::geteuid().is_root() {
        let copy = base.join("test-binary");
        // Another process copies: what a thread of this one begins meanwhile would hold the file open for writing, and it could not be executed.
        let copied = Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&copy).status().unwrap();
        assert!(copied.success());
        let users = base.join("users");
        fs::create_dir(&users).unwrap();
        std::os::unix::fs::chown(&users, Some(65534), Some(65534)).unwrap();
        for path in [&base, &copy] {
            fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        }
        let output = Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(&copy)
            .args(["--exact", name, "--nocapture"])
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env(BASE, &users)
            .current_dir("/")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{text}{}", String::from_utf8_lossy(&output.stderr));
    }
}
