//! Compiles the system call filter of `seccomp/` for the target, so that the shim carries a finished table and no
//! compiler. The build fails when a call is undecided or lacks a reason.
#![expect(clippy::disallowed_methods, reason = "cargo speaks to build scripts through the environment")]

use std::env;
use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

#[path = "seccomp/policy.rs"]
mod policy;
#[path = "seccomp/program.rs"]
mod program;

use policy::{Architecture, Policy, Variant};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=seccomp");
    if env::var("CARGO_CFG_TARGET_OS")? != "linux" {
        return Ok(());
    }
    let source = match env::var("CARGO_CFG_TARGET_ARCH")?.as_str() {
        "x86_64" => filter_source(Architecture::X86_64)?,
        "aarch64" => filter_source(Architecture::Aarch64)?,
        other => format!("compile_error!(\"stockade-shim has no system call filter for `{other}`: it runs on x86_64 and aarch64\");\n"),
    };
    fs::write(Path::new(&env::var("OUT_DIR")?).join("seccomp_filter.rs"), source)?;
    Ok(())
}

fn filter_source(architecture: Architecture) -> Result<String, Box<dyn Error>> {
    let file = |name: &str| fs::read_to_string(Path::new("seccomp").join(name)).map_err(|error| format!("seccomp/{name}: {error}"));
    let policy = Policy::read(&file("numbers.txt")?, &file("allow.txt")?, &file("refused.txt")?)?;
    let mut source = String::new();
    for (name, variant) in [("GENERAL", Variant::General), ("EXEC_LIST", Variant::ExecList)] {
        let program = program::compile(&policy, architecture, variant)?;
        writeln!(source, "pub(crate) static {name}: [libc::sock_filter; {}] = [", program.len())?;
        for program::Instruction { code, jump_true, jump_false, operand } in program {
            let (high, low) = (operand >> 16, operand & 0xffff);
            writeln!(source, "    libc::sock_filter {{ code: {code:#x}, jt: {jump_true}, jf: {jump_false}, k: 0x{high:04x}_{low:04x} }},")?;
        }
        writeln!(source, "];")?;
    }
    Ok(source)
}
