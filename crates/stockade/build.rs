//! Sets the `wall` condition: this system has walls to build (Linux), and nobody asked to build without them. Links the program
//! statically where that is possible.
#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "a build script talks to cargo by printing and is told by variables")]

use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=STOCKADE_NO_WALL");
    println!("cargo:rustc-check-cfg=cfg(wall)");
    let linux = variable("CARGO_CFG_TARGET_OS") == "linux";
    if linux && std::env::var_os("STOCKADE_NO_WALL").is_none() {
        println!("cargo:rustc-cfg=wall");
    }
    let native = variable("HOST") == variable("TARGET");
    if linux && native && variable("CARGO_CFG_TARGET_ENV") == "gnu" {
        link_statically();
    }
}

/// A program that starts another one is mostly its own start, and half of that is dynamic linking.
///
/// `+crt-static` in the flags would do it, but those reach procedural macros too, which must be dynamic, unless a target is
/// named, and then the program is not where `cargo build --release` puts it. So the compiler goes on believing that it links
/// dynamically, and the linker finds static libraries under the names it is given. Where the C library has no static form
/// the program is linked as usual; it is only slower to start.
fn link_statically() {
    let names = PathBuf::from(variable("OUT_DIR")).join("static");
    if std::fs::create_dir_all(&names).is_err() {
        return;
    }
    // The shared helper library of the compiler has no static form under its own name.
    let mut scripts = vec![("libgcc_s.a", "GROUP ( -lgcc_eh -lgcc )\n".to_owned())];
    for name in ["libc.a", "libm.a", "libdl.a", "libpthread.a", "librt.a", "libutil.a"] {
        let Some(path) = static_library(name) else { return };
        scripts.push((name, format!("INPUT ( {} )\n", path.display())));
    }
    if static_library("libgcc_eh.a").is_none() || scripts.iter().any(|(name, text)| std::fs::write(names.join(name), text).is_err()) {
        return;
    }
    println!("cargo:rustc-link-arg-bin=stockade=-L{}", names.display());
    for argument in ["-static", "-no-pie"] {
        println!("cargo:rustc-link-arg-bin=stockade={argument}");
    }
}

/// Where the C compiler finds a library; it answers with the bare name where it finds none.
fn static_library(name: &str) -> Option<PathBuf> {
    let output = Command::new("cc").arg(format!("-print-file-name={name}")).output().ok()?;
    let path = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    path.is_absolute().then_some(path)
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}
