//! Builds the guest program for its own target and leaves its path where `lib.rs` embeds it.
//!
//! The guest must be static: it runs where none of the host's libraries exist. The target is musl where its libraries
//! are installed, else gnu with a static C library. `STOCKADE_SHIM_DIR` takes prebuilt programs instead
//! (`stockade-shim-<arch>`), for distributors.
#![allow(clippy::panic, clippy::disallowed_methods, clippy::print_stdout, reason = "a build script reports by panicking and runs cargo")]

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=STOCKADE_SHIM_DIR");
    let out = PathBuf::from(variable("OUT_DIR"));
    let destination = out.join("stockade-shim");
    if variable("CARGO_CFG_TARGET_OS") != "linux" {
        // The jail does not exist elsewhere; walls that carry a Linux guest bring a prebuilt one.
        write(&destination, &[]);
        return;
    }
    let arch = variable("CARGO_CFG_TARGET_ARCH");
    if let Some(directory) = env::var_os("STOCKADE_SHIM_DIR") {
        let prebuilt = Path::new(&directory).join(format!("stockade-shim-{arch}"));
        println!("cargo:rerun-if-changed={}", prebuilt.display());
        let bytes = std::fs::read(&prebuilt).unwrap_or_else(|e| panic!("STOCKADE_SHIM_DIR: reading {}: {e}", prebuilt.display()));
        write(&destination, &bytes);
        return;
    }
    let workspace = Path::new(&variable("CARGO_MANIFEST_DIR")).join("../..");
    for watched in [
        "crates/stockade-shim/src",
        "crates/stockade-shim/seccomp",
        "crates/stockade-shim/build.rs",
        "crates/stockade-shim/Cargo.toml",
        "crates/stockade-wire/src",
        "Cargo.lock",
    ] {
        println!("cargo:rerun-if-changed={}", workspace.join(watched).display());
    }
    let target = static_target(&arch);
    let build = out.join("shim-target");
    let mut cargo = Command::new(variable("CARGO"));
    cargo.current_dir(&workspace).args(["build", "--locked", "-p", "stockade-shim", "--profile", "shim", "--target", &target]);
    // A target directory of its own, or this build would wait for the lock that its parent holds.
    cargo.env("CARGO_TARGET_DIR", &build);
    for inherited in [
        "RUSTFLAGS",
        "CARGO_ENCODED_RUSTFLAGS",
        "RUSTC_WRAPPER",
        "RUSTC_WORKSPACE_WRAPPER",
        "CARGO_BUILD_TARGET",
        "CARGO_MAKEFLAGS",
        "MAKEFLAGS",
    ] {
        cargo.env_remove(inherited);
    }
    cargo.env("RUSTFLAGS", "-C target-feature=+crt-static -C relocation-model=static");
    let status = cargo.status().unwrap_or_else(|e| panic!("running cargo for the guest program: {e}"));
    assert!(status.success(), "building the guest program for {target} failed; if the target is missing: rustup target add {target}");
    let built = build.join(&target).join("shim/stockade-shim");
    let bytes = std::fs::read(&built).unwrap_or_else(|e| panic!("reading {}: {e}", built.display()));
    assert!(bytes.len() < 2 << 20, "the guest program is {} bytes; it must stay under 2 MiB", bytes.len());
    write(&destination, &bytes);
}

/// The target whose static libraries are on this machine.
fn static_target(arch: &str) -> String {
    let sysroot =
        Command::new(variable("RUSTC")).args(["--print", "sysroot"]).output().map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned());
    let sysroot = sysroot.unwrap_or_else(|e| panic!("asking rustc for its sysroot: {e}"));
    let installed = |target: &str| Path::new(&sysroot).join("lib/rustlib").join(target).join("lib").is_dir();
    let (musl, gnu) = (format!("{arch}-unknown-linux-musl"), format!("{arch}-unknown-linux-gnu"));
    if installed(&musl) {
        musl
    } else if installed(&gnu) {
        gnu
    } else {
        panic!("neither {musl} nor {gnu} is installed: rustup target add {musl}")
    }
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo did not set {name}"))
}

fn write(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).unwrap_or_else(|e| panic!("writing {}: {e}", path.display()));
    println!("cargo:rustc-env=STOCKADE_SHIM_NAME=stockade-shim-{:016x}-{:x}", fingerprint(bytes), bytes.len());
}

/// FNV-1a: tells builds apart, and is no defence; the file that is named with it lies where only its owner can write.
fn fingerprint(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
