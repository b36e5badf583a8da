//! Writes the list of the guest's modules as its own `main.rs` has it, without the jail: so that a module that is added there need not be
//! added here.
#![allow(clippy::panic, clippy::print_stdout, clippy::disallowed_methods, reason = "a build script talks to cargo and fails by panicking")]

use std::path::Path;

fn main() {
    let manifest = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|error| panic!("cargo sets it: {error}"));
    let out = std::env::var("OUT_DIR").unwrap_or_else(|error| panic!("cargo sets it: {error}"));
    let sources = Path::new(&manifest).join("../../crates/stockade-shim/src");
    let main = sources.join("main.rs");
    println!("cargo:rerun-if-changed={}", main.display());
    let text = std::fs::read_to_string(&main).unwrap_or_else(|error| panic!("reading {}: {error}", main.display()));
    let modules = text.lines().filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';'));
    let list: String = modules
        // The helper is another program in the same file.
        .filter(|module| !["jail", "helper"].contains(module))
        .map(|module| format!("#[path = {:?}]\nmod {module};\n", sources.join(format!("{module}.rs"))))
        .collect();
    assert!(list.contains("mod server;"), "{} has no modules as this script knows them", main.display());
    std::fs::write(Path::new(&out).join("modules.rs"), list).unwrap_or_else(|error| panic!("writing the list of modules: {error}"));
}
