//! What the workspace needs to know of git's files, read without running git.
//!
//! A `.git` file is text that anyone who can write to the workspace may have written, so where it leads is believed only
//! when that place points back.

use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The most that is read of a `.git`, `commondir`, `gitdir` or `config` file.
const MAX_FILE: u64 = 256 * 1024;

/// Whether `directory` is the top of a work tree.
pub(super) fn is_top_level(directory: &Path) -> bool {
    let entry = directory.join(".git");
    let (Ok(found), Ok(around)) = (std::fs::symlink_metadata(&entry), std::fs::symlink_metadata(directory)) else { return false };
    // Where everybody may write (`/tmp`), somebody else's `.git` must not widen our workspace.
    let mine = rustix::process::geteuid();
    if found.uid() != mine.as_raw() && found.uid() != around.uid() {
        return false;
    }
    if found.is_dir() {
        return is_git_directory(&entry);
    }
    if found.file_type().is_symlink() {
        return std::fs::canonicalize(&entry).is_ok_and(|real| is_git_directory(&real));
    }
    found.is_file() && git_directory(directory).is_some()
}

/// The git directory that a linked worktree shares, or that a submodule has in its parent repository.
pub(super) fn common_directory(workspace: &Path) -> Option<PathBuf> {
    let directory = git_directory(workspace)?;
    let common = match read_line(&directory.join("commondir")) {
        Some(text) => {
            let common = std::fs::canonicalize(directory.join(text)).ok()?;
            let back = read_line(&directory.join("gitdir"))?;
            let back = std::fs::canonicalize(directory.join(back)).ok()?;
            let linked = directory.parent() == Some(&common.join("worktrees")) && back == workspace.join(".git");
            linked.then_some(common)?
        }
        None => (work_tree(&directory)? == workspace).then_some(directory)?,
    };
    is_git_directory(&common).then_some(common)
}

/// Where the `.git` file of a work tree leads.
fn git_directory(workspace: &Path) -> Option<PathBuf> {
    let text = read_line(&workspace.join(".git"))?;
    let target = text.as_os_str().as_bytes().strip_prefix(b"gitdir:")?.trim_ascii();
    let directory = std::fs::canonicalize(workspace.join(std::ffi::OsStr::from_bytes(target))).ok()?;
    std::fs::symlink_metadata(directory.join("HEAD")).ok()?;
    Some(directory)
}

/// Whether a directory looks like one of git's.
fn is_git_directory(directory: &Path) -> bool {
    std::fs::symlink_metadata(directory.join("HEAD")).is_ok()
        && std::fs::metadata(directory.join("objects")).is_ok_and(|found| found.is_dir())
}

/// `core.worktree` of a git directory, resolved.
fn work_tree(directory: &Path) -> Option<PathBuf> {
    let config = read(&directory.join("config"))?;
    let mut in_core = false;
    for line in config.split(|byte| *byte == b'\n') {
        let line = line.trim_ascii();
        if line.starts_with(b"[") {
            in_core = line.eq_ignore_ascii_case(b"[core]");
        } else if in_core
            && let Some((name, value)) = split_once(line)
            && name.eq_ignore_ascii_case(b"worktree")
        {
            return std::fs::canonicalize(directory.join(std::ffi::OsStr::from_bytes(value))).ok();
        }
    }
    None
}

fn split_once(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = line.iter().position(|byte| *byte == b'=')?;
    Some((line.get(..at)?.trim_ascii(), line.get(at + 1..)?.trim_ascii()))
}

fn read_line(path: &Path) -> Option<PathBuf> {
    let bytes = read(path)?;
    let text = bytes.trim_ascii_end();
    (!text.is_empty() && !text.contains(&b'\n') && !text.contains(&0)).then(|| PathBuf::from(std::ffi::OsStr::from_bytes(text)))
}

/// Reads a small regular file; links are not followed and FIFOs do not block.
fn read(path: &Path) -> Option<Vec<u8>> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    let flags = i32::try_from(flags.bits()).ok()?;
    let file = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= MAX_FILE).then_some(bytes)
}
