//! An exec list made whole: the programs themselves, their interpreters, their loader and libraries.
//!
//! With a list, everything in the sandbox is mounted not executable, and exactly these files are mounted executable over
//! themselves. So the list must hold every file the kernel or the loader maps as code; scripts bring their interpreter.
//! Reads ELF headers itself, strictly and bounded: only the few fields that name the loader and the needed libraries.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use super::super::BackendError;

/// Programs and libraries of one list at most.
const MAX_FILES: usize = 2000;
/// Program headers and dynamic entries of one file at most.
const MAX_HEADERS: usize = 4096;
/// Bytes of a name in such a file at most.
const MAX_TEXT: usize = 4096;
/// Library directories that loaders know without being told.
const LIBRARY_DIRS: [&str; 10] = [
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
    "/usr/local/lib",
    "/usr/local/lib64",
];

/// Every file that must be executable for these programs to run, as real paths, sorted.
pub(super) fn resolve(list: &[String], path_dirs: &[PathBuf]) -> Result<Vec<PathBuf>, BackendError> {
    let mut closure = Closure { path_dirs, libraries: library_dirs(), files: BTreeSet::new() };
    for program in list {
        let found = closure.find(program).ok_or_else(|| BackendError::Step {
            step: "exec list".into(),
            detail: format!("`{}` is not a program on this machine", stockade_core::escape::escape(program)),
            fix: "give a name on PATH or an absolute path".into(),
        })?;
        closure.add(&found, 0).map_err(|detail| BackendError::Step { step: "exec list".into(), detail, fix: String::new() })?;
    }
    Ok(closure.files.into_iter().collect())
}

struct Closure<'a> {
    path_dirs: &'a [PathBuf],
    libraries: Vec<PathBuf>,
    files: BTreeSet<PathBuf>,
}

impl Closure<'_> {
    fn find(&self, program: &str) -> Option<PathBuf> {
        if program.contains('/') {
            return Path::new(program).is_absolute().then(|| fs::canonicalize(program).ok()).flatten().filter(|p| is_executable(p));
        }
        self.path_dirs
            .iter()
            .filter(|d| d.is_absolute())
            .map(|d| d.join(program))
            .find(|p| is_executable(p))
            .and_then(|p| fs::canonicalize(p).ok())
    }

    fn add(&mut self, file: &Path, depth: u32) -> Result<(), String> {
        if self.files.contains(file) {
            return Ok(());
        }
        if self.files.len() >= MAX_FILES || depth > 32 {
            return Err("the list needs too many files".into());
        }
        self.files.insert(file.to_owned());
        let shown = file.display();
        let mut head = [0u8; 256];
        let handle = fs::File::open(file).map_err(|e| format!("reading {shown}: {e}"))?;
        let n = handle.read_at(&mut head, 0).map_err(|e| format!("reading {shown}: {e}"))?;
        let head = head.get(..n).unwrap_or_default();
        if let Some(line) = head.strip_prefix(b"#!") {
            return self.add_script(line, depth);
        }
        if !head.starts_with(b"\x7fELF") {
            return Ok(());
        }
        let elf = Elf::read(&handle).ok_or_else(|| format!("{shown} is not a program this version understands"))?;
        if let Some(loader) = elf.interpreter {
            let loader = fs::canonicalize(&loader).map_err(|e| format!("the loader {} of {shown}: {e}", loader.display()))?;
            self.add(&loader, depth + 1)?;
        }
        let origin = file.parent().unwrap_or(Path::new("/")).to_owned();
        let own: Vec<PathBuf> = elf
            .run_paths
            .iter()
            .map(|p| PathBuf::from(p.replace("$ORIGIN", &origin.to_string_lossy()).replace("${ORIGIN}", &origin.to_string_lossy())))
            .collect();
        for library in elf.needed {
            let found = own.iter().chain(&self.libraries).map(|d| d.join(&library)).find_map(|p| fs::canonicalize(p).ok());
            match found {
                Some(path) => self.add(&path, depth + 1)?,
                None => return Err(format!("the library {library} of {shown} is not on this machine")),
            }
        }
        self.add_extensions(file)
    }

    fn add_script(&mut self, line: &[u8], depth: u32) -> Result<(), String> {
        let line = String::from_utf8_lossy(line.split(|b| *b == b'\n').next().unwrap_or_default()).into_owned();
        let mut words = line.split_whitespace();
        let Some(interpreter) = words.next() else { return Ok(()) };
        let real = fs::canonicalize(interpreter).map_err(|e| format!("the interpreter {interpreter}: {e}"))?;
        self.add(&real, depth + 1)?;
        if real.file_name().is_some_and(|n| n == "env")
            && let Some(program) = words.find(|w| !w.starts_with('-') && !w.contains('='))
            && let Some(found) = self.find(program)
        {
            self.add(&found, depth + 1)?;
        }
        Ok(())
    }

    /// Interpreters load parts of themselves at run time: Python's compiled modules.
    fn add_extensions(&mut self, file: &Path) -> Result<(), String> {
        let name = file.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        if !name.starts_with("python3") {
            return Ok(());
        }
        let Some(prefix) = file.parent().and_then(Path::parent) else { return Ok(()) };
        let modules = prefix.join("lib").join(&name).join("lib-dynload");
        let Ok(entries) = fs::read_dir(&modules) else { return Ok(()) };
        for entry in entries.flatten().take(MAX_FILES) {
            if entry.path().extension().is_some_and(|e| e == "so")
                && let Ok(real) = fs::canonicalize(entry.path())
            {
                self.add(&real, 1)?;
            }
        }
        Ok(())
    }
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

/// The usual directories and those that `/etc/ld.so.conf` names.
fn library_dirs() -> Vec<PathBuf> {
    let mut dirs: Vec<PathBuf> = LIBRARY_DIRS.iter().map(PathBuf::from).collect();
    let Ok(entries) = fs::read_dir("/etc/ld.so.conf.d") else { return dirs };
    for entry in entries.flatten().take(200) {
        for line in fs::read_to_string(entry.path()).unwrap_or_default().lines().take(200) {
            let line = line.trim();
            if line.starts_with('/') {
                dirs.push(PathBuf::from(line));
            }
        }
    }
    dirs
}

/// The few facts about a program file that matter here.
struct Elf {
    interpreter: Option<PathBuf>,
    needed: Vec<String>,
    run_paths: Vec<String>,
}

struct Segment {
    kind: u32,
    offset: u64,
    address: u64,
    size: u64,
}

impl Elf {
    /// Reads a 64-bit little-endian file; `None` when it is anything else or is damaged.
    fn read(file: &fs::File) -> Option<Self> {
        let header = bytes_at(file, 0, 64)?;
        if header.get(4..6)? != [2, 1] {
            return None;
        }
        let (table, entry, count) = (u64_at(&header, 32)?, u16_at(&header, 54)?, usize::from(u16_at(&header, 56)?));
        if entry != 56 || count > MAX_HEADERS {
            return None;
        }
        let raw = bytes_at(file, table, count * 56)?;
        let segments: Vec<Segment> = raw
            .chunks_exact(56)
            .map(|c| Some(Segment { kind: u32_at(c, 0)?, offset: u64_at(c, 8)?, address: u64_at(c, 16)?, size: u64_at(c, 32)? }))
            .collect::<Option<_>>()?;
        let find = |kind: u32| segments.iter().find(|s| s.kind == kind);
        let interpreter = match find(3) {
            Some(s) => Some(PathBuf::from(text_at(file, s.offset)?)),
            None => None,
        };
        let mut elf = Self { interpreter, needed: Vec::new(), run_paths: Vec::new() };
        let Some(dynamic) = find(2) else { return Some(elf) };
        let size = usize::try_from(dynamic.size).ok()?.min(MAX_HEADERS * 16);
        let entries: Vec<(u64, u64)> =
            bytes_at(file, dynamic.offset, size)?.chunks_exact(16).map(|c| Some((u64_at(c, 0)?, u64_at(c, 8)?))).collect::<Option<_>>()?;
        let strings = entries.iter().find(|e| e.0 == 5)?.1;
        let home = segments.iter().find(|s| s.kind == 1 && strings >= s.address && strings - s.address < s.size)?;
        let base = home.offset + (strings - home.address);
        for (tag, value) in entries.into_iter().take_while(|e| e.0 != 0) {
            match tag {
                1 => elf.needed.push(text_at(file, base.checked_add(value)?)?),
                15 | 29 => elf.run_paths.extend(text_at(file, base.checked_add(value)?)?.split(':').map(str::to_owned)),
                _ => {}
            }
        }
        Some(elf)
    }
}

fn bytes_at(file: &fs::File, offset: u64, size: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; size];
    file.read_exact_at(&mut bytes, offset).ok()?;
    Some(bytes)
}

fn text_at(file: &fs::File, offset: u64) -> Option<String> {
    let mut bytes = [0; MAX_TEXT];
    let read = file.read_at(&mut bytes, offset).ok()?;
    let text = bytes.get(..read)?;
    let end = text.iter().position(|b| *b == 0)?;
    String::from_utf8(text.get(..end)?.to_vec()).ok()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_brings_its_loader_and_libraries() {
        let dirs = [PathBuf::from("/usr/bin"), PathBuf::from("/bin")];
        let files = resolve(&["ls".into()], &dirs).unwrap();
        let has = |needle: &str| files.iter().any(|f| f.to_string_lossy().contains(needle));
        assert!(has("/ls") && has("libc.so") && has("ld-linux"), "{files:?}");
        assert!(!has("bash"), "{files:?}");
    }

    #[test]
    fn unknown_and_relative_programs_are_refused() {
        let dirs = [PathBuf::from("/usr/bin")];
        for bad in ["no-such-program", "./ls", "../bin/ls", "", "/etc/passwd", "/usr"] {
            assert!(resolve(&[bad.into()], &dirs).is_err(), "{bad}");
        }
    }
}
