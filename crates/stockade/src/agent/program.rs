//! Where an agent is installed, so that it is there inside: read-only, and no more of it than it needs.
//!
//! Agents come by npm, by installers of their own and by Python tools, mostly below home. A link on `PATH` is followed to what it leads to.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Shown inside in any case.
const SYSTEM: [&str; 9] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store"];

/// Finds a program as a shell would.
pub(crate) fn find(program: &OsStr, path: &[PathBuf], cwd: &Path) -> Option<PathBuf> {
    let is_program = |path: &PathBuf| path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok();
    if Path::new(program).components().count() > 1 {
        return Some(cwd.join(program)).filter(is_program);
    }
    path.iter().filter(|directory| directory.is_absolute()).map(|directory| directory.join(program)).find(is_program)
}

/// The directories that hold a program and what it is made of. Never home, nor anything around it.
pub(crate) fn directories(found: &Path, home: &Path, workspace: &Path) -> Vec<PathBuf> {
    let Ok(real) = std::fs::canonicalize(found) else { return Vec::new() };
    let mut wanted: Vec<PathBuf> = Vec::new();
    // An interpreter that is itself of an environment is a link out of it, so the name that was found says which.
    let named = found.parent().and_then(|parent| Some(std::fs::canonicalize(parent).ok()?.join(found.file_name()?)));
    wanted.extend(named.and_then(|named| environment(&named)));
    match modules(&real).or_else(|| environment(&real)) {
        Some(root) => wanted.push(root),
        None => wanted.extend(real.parent().map(Path::to_owned)),
    }
    // The interpreter of such an environment may be another tool's.
    if let Some(python) = environment(&real).and_then(|root| std::fs::canonicalize(root.join("bin/python")).ok()) {
        wanted.extend(python.parent().and_then(Path::parent).map(Path::to_owned));
    }
    let home = std::fs::canonicalize(home).unwrap_or_else(|_| home.to_owned());
    let is_shown = |path: &Path| SYSTEM.iter().any(|system| path.starts_with(system)) || path.starts_with(workspace);
    let is_narrow = |path: &Path| !home.starts_with(path) && !workspace.starts_with(path) && path.components().count() > 2;
    wanted.retain(|path| !is_shown(path) && is_narrow(path));
    wanted.sort();
    wanted.dedup();
    let all = wanted.clone();
    wanted.retain(|path| !all.iter().any(|other| other != path && path.starts_with(other)));
    wanted
}

/// The outermost `node_modules` around a program.
fn modules(real: &Path) -> Option<PathBuf> {
    real.ancestors().filter(|path| path.file_name().is_some_and(|name| name == "node_modules")).last().map(Path::to_owned)
}

/// The Python environment that a program belongs to.
fn environment(real: &Path) -> Option<PathBuf> {
    let root = real.parent()?.parent()?;
    root.join("pyvenv.cfg").is_file().then(|| root.to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn program(path: &Path) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "").unwrap();
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
    }

    #[test]
    fn a_program_brings_what_it_is_made_of() {
        let directory = tempfile::tempdir().unwrap();
        let home = std::fs::canonicalize(directory.path()).unwrap();
        let bin = home.join(".local/bin");
        std::fs::create_dir_all(&bin).unwrap();
        let check = |name: &str, target: &str, expected: &[&str]| {
            let target = home.join(target);
            program(&target);
            symlink(&target, bin.join(name)).unwrap();
            let found = find(OsStr::new(name), &[PathBuf::from("relative"), bin.clone()], Path::new("/")).unwrap();
            let expected: Vec<PathBuf> = expected.iter().map(|path| home.join(path)).collect();
            assert_eq!(directories(&found, &home, Path::new("/w/w/w")), expected, "{name}");
        };
        check("claude", ".local/share/claude/versions/2", &[".local/share/claude/versions"]);
        check("codex", ".npm-global/lib/node_modules/@openai/codex/node_modules/x/bin/codex.js", &[".npm-global/lib/node_modules"]);
        std::fs::create_dir_all(home.join(".venvs/aider")).unwrap();
        std::fs::write(home.join(".venvs/aider/pyvenv.cfg"), "").unwrap();
        check("aider", ".venvs/aider/bin/aider", &[".venvs/aider"]);
        symlink("/usr/bin/env", home.join(".venvs/aider/bin/python")).unwrap();
        let python = find(OsStr::new(".venvs/aider/bin/python"), &[], &home).unwrap();
        assert_eq!(directories(&python, &home, Path::new("/w/w/w")), [home.join(".venvs/aider")]);
        // Nothing that would show home.
        check("loose", "loose", &[]);
        assert_eq!(directories(Path::new("/usr/bin/env"), &home, Path::new("/w/w/w")), Vec::<PathBuf>::new());
        assert_eq!(find(OsStr::new("nothing-of-that-name"), &[bin], Path::new("/")), None);
    }
}
