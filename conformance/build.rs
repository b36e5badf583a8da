//! Builds the probe as a static program and leaves it where `src/probe.rs` embeds it.
//!
//! As `crates/stockade-shim-image/build.rs` does for the guest, and for the same reason: it runs where none of the host's libraries exist.
#![allow(clippy::panic, clippy::disallowed_methods, clippy::print_stdout, reason = "a build script reports by panicking and runs cargo")]

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let out = PathBuf::from(variable("OUT_DIR"));
    let destination = out.join("stockade-probe");
    let workspace = Path::new(&variable("CARGO_MANIFEST_DIR")).join("..");
    for watched in ["conformance/probe", "conformance/cases", "Cargo.lock"] {
        println!("cargo:rerun-if-changed={}", workspace.join(watched).display());
    }
    if variable("CARGO_CFG_TARGET_OS") != "linux" {
        write(&destination, &[]);
        return;
    }
    let target = static_target(&variable("CARGO_CFG_TARGET_ARCH"));
    let build = out.join("probe-target");
    let mut cargo = Command::new(variable("CARGO"));
    cargo.current_dir(&workspace).args(["build", "--locked", "-p", "stockade-probe", "--profile", "ci", "--target", &target]);
    // A target directory of its own, or this build would wait for the lock that its parent holds.
    cargo.env("CARGO_TARGET_DIR", &build);
    for inherited in
        ["CARGO_ENCODED_RUSTFLAGS", "RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER", "CARGO_BUILD_TARGET", "CARGO_MAKEFLAGS", "MAKEFLAGS"]
    {
        cargo.env_remove(inherited);
    }
    cargo.env("RUSTFLAGS", "-C target-feature=+crt-static -C relocation-model=static -C strip=symbols");
    let status = cargo.status().unwrap_or_else(|e| panic!("running cargo for the probe: {e}"));
    assert!(status.success(), "building the probe for {target} failed; if the target is missing: rustup target add {target}");
    let built = build.join(&target).join("ci/stockade-probe");
    let bytes = std::fs::read(&built).unwrap_or_else(|e| panic!("reading {}: {e}", built.display()));
    write(&destination, &bytes);
}

/// The target whose static libraries are on this machine.
fn static_target(arch: &str) -> String {
    let printed = Command::new(variable("RUSTC")).args(["--print", "sysroot"]).output();
    let sysroot = printed.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned());
    let sysroot = sysroot.unwrap_or_else(|e| panic!("asking rustc for its sysroot: {e}"));
    let names = ["musl", "gnu"].map(|library| format!("{arch}-unknown-linux-{library}"));
    let installed = names.iter().find(|target| Path::new(&sysroot).join("lib/rustlib").join(target).join("lib").is_dir());
    installed.unwrap_or_else(|| panic!("none of {names:?} is installed: rustup target add {}", names.join(" "))).clone()
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo did not set {name}"))
}

fn write(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).unwrap_or_else(|e| panic!("writing {}: {e}", path.display()));
}
