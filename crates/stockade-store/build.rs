//! Puts the built-in packs (`packs/` of the repository) into the program: a list of names and bytes, and a number that changes with them.
#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "a build script talks to cargo by printing and is told by variables")]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let root = Path::new(&env::var("CARGO_MANIFEST_DIR").unwrap_or_default()).join("../../packs");
    println!("cargo::rerun-if-changed={}", root.display());
    let mut text = String::from("&[\n");
    let mut number = FNV_OFFSET;
    for pack in entries(&root)?.into_iter().filter(|path| path.is_dir()) {
        let name = pack.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let _ = writeln!(text, "    (\"{name}\", &[");
        for file in files(&pack)? {
            let path = file.strip_prefix(&pack).unwrap_or(&file).to_string_lossy().into_owned();
            let bytes = fs::read(&file)?;
            number = [name.as_bytes(), b"\0", path.as_bytes(), b"\0", &bytes].iter().fold(number, |number, part| mix(number, part));
            let _ = writeln!(text, "        (\"{path}\", include_bytes!({:?})),", file.display().to_string());
        }
        text.push_str("    ]),\n");
    }
    text.push_str("]\n");
    fs::write(PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("builtin.rs"), text)?;
    println!("cargo::rustc-env=STOCKADE_BUILTIN_PACKS={number:016x}");
    Ok(())
}

fn files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for path in entries(directory)? {
        let more = if path.is_dir() { files(&path)? } else { vec![path] };
        found.extend(more);
    }
    Ok(found)
}

fn entries(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = fs::read_dir(directory)?.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

/// FNV-1a: this number only tells one build from another.
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;

fn mix(number: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(number, |number, byte| (number ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
