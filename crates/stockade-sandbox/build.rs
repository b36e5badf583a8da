//! Sets the `wall` condition: this system has walls to build (Linux), and nobody asked to build without them.
#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "a build script talks to cargo by printing and is told by variables")]

fn main() {
    println!("cargo:rerun-if-env-changed=STOCKADE_NO_WALL");
    println!("cargo:rustc-check-cfg=cfg(wall)");
    let linux = std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux");
    if linux && std::env::var_os("STOCKADE_NO_WALL").is_none() {
        println!("cargo:rustc-cfg=wall");
    }
}
