//! A bundle for runc and crun, and the small root that docker's image is made of: `/bin/true` of this machine with its libraries, and busybox
//! where there is one.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::spawn;

/// What every root needs to be there.
const DIRECTORIES: &[&str] = &["bin", "dev", "proc", "sys", "tmp"];

/// Arguments that run the bundle; the state of the runtime lies on the ground.
pub(crate) fn arguments(ground: &Path, name: &str) -> Vec<OsString> {
    let state = ground.join(format!("{name}-state"));
    let mut words: Vec<OsString> = vec!["--root".into(), state.into(), "run".into(), "--bundle".into()];
    words.extend([bundle(ground).into(), format!("stockade-bench-{name}").into()]);
    words
}

/// The bundle's root.
pub(crate) fn root(ground: &Path) -> PathBuf {
    bundle(ground).join("rootfs")
}

/// Makes the bundle.
pub(crate) fn make_bundle(ground: &Path) -> Result<(), String> {
    let root = root(ground);
    for directory in DIRECTORIES {
        std::fs::create_dir_all(root.join(directory)).map_err(|e| e.to_string())?;
    }
    for file in libraries("/bin/true")?.into_iter().chain([PathBuf::from("/bin/true")]) {
        copy_into(&root, &file)?;
    }
    if Path::new("/bin/busybox").exists() {
        copy_into(&root, Path::new("/bin/busybox"))?;
    }
    std::fs::write(bundle(ground).join("config.json"), configuration().to_string()).map_err(|e| e.to_string())
}

fn bundle(ground: &Path) -> PathBuf {
    ground.join("bundle")
}

/// Absolute paths that the dynamic linker names for a program.
fn libraries(program: &str) -> Result<Vec<PathBuf>, String> {
    let text = spawn::output(Command::new("ldd").arg(program)).map_err(|e| format!("ldd: {e}"))?;
    Ok(text.split_whitespace().filter(|w| w.starts_with('/')).map(PathBuf::from).collect())
}

fn copy_into(root: &Path, file: &Path) -> Result<(), String> {
    let target = root.join(file.strip_prefix("/").unwrap_or(file));
    if let Some(parent) = target.parent() {
        std::fs::create_dir_all(parent).map_err(|e| e.to_string())?;
    }
    std::fs::copy(file, &target).map(drop).map_err(|e| format!("{}: {e}", file.display()))
}

/// What `runc spec` writes, as far as it matters: own namespaces, a read-only root, no capabilities, no new privileges.
fn configuration() -> serde_json::Value {
    let namespaces: Vec<_> = ["pid", "network", "ipc", "uts", "mount"].iter().map(|kind| json!({ "type": kind })).collect();
    let mount = |at: &str, kind: &str, options: &[&str]| json!({ "destination": at, "type": kind, "source": kind, "options": options });
    json!({
        "ociVersion": "1.0.2",
        "process": {
            "terminal": false,
            "user": { "uid": 0, "gid": 0 },
            "args": ["/bin/true"],
            "env": ["PATH=/bin"],
            "cwd": "/",
            "capabilities": { "bounding": [], "effective": [], "permitted": [], "ambient": [] },
            "noNewPrivileges": true,
        },
        "root": { "path": "rootfs", "readonly": true },
        "hostname": "bench",
        "mounts": [
            mount("/proc", "proc", &[]),
            mount("/dev", "tmpfs", &["nosuid", "mode=755", "size=65536k"]),
            mount("/tmp", "tmpfs", &["nosuid", "nodev"]),
        ],
        "linux": {
            "resources": { "devices": [{ "allow": false, "access": "rwm" }] },
            "namespaces": namespaces,
            "maskedPaths": ["/proc/kcore", "/proc/keys", "/proc/timer_list"],
            "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
        },
    })
}
