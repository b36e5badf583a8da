//! A tree and a branch of an agent's own, beside the repository: several agents work side by side, and the result is a branch.
//!
//! ```text
//!  repository ── clone that shares its objects, read-only ──▶ repository-NAME, branch stockade/NAME ── the agent, rw
//!      ▲                                                                  │
//!      └────────────── fetch, with the other end in a sandbox ────────────┘
//! ```
//!
//! A clone and not a linked worktree: of that, git's own directory would be the repository's, and whoever can commit there can move every
//! branch and spoil every object. The tree is untrusted once the agent was in it, so git never runs in it but in a sandbox; what comes back is
//! fetched and checked object by object. Git itself is the person's own, run in their own repository.

use std::cell::Cell;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use super::roll::Branch;
use crate::failure::Failure;

/// What is believed of a message of git's.
const MAX_MESSAGE: usize = 2000;
/// Where a branch is put that is only looked at.
const LOOKED_AT: &str = "refs/stockade";

/// A tree in which no agent has been yet; it goes again unless it is kept.
#[derive(Debug)]
pub(crate) struct Fresh {
    worktree: PathBuf,
    is_kept: Cell<bool>,
}

impl Fresh {
    /// Leaves the tree to an agent.
    pub(crate) fn keep(&self) {
        self.is_kept.set(true);
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        if !self.is_kept.get() {
            // Made a moment ago and used by nobody. What cannot be removed is named by the next attempt to make it.
            let _ = std::fs::remove_dir_all(&self.worktree);
        }
    }
}

/// Makes a tree with a branch for an agent of this name. Whatever stops the agent from starting takes the tree away again.
pub(crate) fn make(repository: &Path, name: &str) -> Result<(Branch, Fresh), Failure> {
    let base = line(&git(repository, &["rev-parse", "--verify", "--quiet", "HEAD^{commit}"])?).filter(|base| !base.is_empty()).ok_or_else(
        || Failure::new("worktree", format!("`{}` has no commit yet", repository.display())).with_hint("commit something first"),
    )?;
    let objects = line(&git(repository, &["rev-parse", "--path-format=absolute", "--git-path", "objects"])?).map(PathBuf::from);
    let objects = objects.and_then(|path| std::fs::canonicalize(path).ok());
    let objects = objects.ok_or_else(|| Failure::new("worktree", format!("`{}` is no git repository", repository.display())))?;
    let mut file = repository.file_name().unwrap_or_default().to_owned();
    file.push(format!("-{name}"));
    let worktree = repository.with_file_name(file);
    if worktree.symlink_metadata().is_ok() {
        return Err(Failure::new("worktree", format!("`{}` is there already", worktree.display())).with_hint("choose another --name"));
    }
    let branch = format!("stockade/{name}");
    let fresh = Fresh { worktree: worktree.clone(), is_kept: Cell::new(false) };
    let cloned = git(
        repository,
        &[
            "clone".into(),
            "--quiet".into(),
            "--shared".into(),
            "--no-checkout".into(),
            repository.as_os_str().to_owned(),
            worktree.as_os_str().to_owned(),
        ],
    )?;
    succeeded(&cloned, "worktree")?;
    // Who commits is said by the repository, unless it is said for all.
    for name in ["user.name", "user.email"] {
        if let Some(value) = line(&git(repository, &["config", "--get", name])?).filter(|value| !value.is_empty()) {
            succeeded(&git(&worktree, &["config", name, value.as_str()])?, "worktree")?;
        }
    }
    succeeded(&git(&worktree, &["checkout", "--quiet", "-b", &branch, &base])?, "worktree")?;
    Ok((Branch { name: branch, base, repository: repository.to_owned(), worktree, objects }, fresh))
}

/// Brings the branch into the repository.
pub(crate) fn fetch(branch: &Branch) -> Result<(), Failure> {
    fetch_as(branch, &format!("refs/heads/{0}:refs/heads/{0}", branch.name))
}

/// What the branch changed, as git shows it.
pub(crate) fn diff(branch: &Branch, flags: &[&str]) -> Result<Vec<u8>, Failure> {
    let looked_at = format!("{LOOKED_AT}/{}", branch.name);
    fetch_as(branch, &format!("+refs/heads/{}:{looked_at}", branch.name))?;
    let range = format!("{}..{looked_at}", branch.base);
    let words: Vec<&str> = [&["diff", "--no-color", "--no-ext-diff", "--no-textconv"], flags, &[range.as_str()]].concat();
    let shown = git(&branch.repository, &words)?;
    succeeded(&shown, "diff")?;
    Ok(shown.stdout)
}

fn fetch_as(branch: &Branch, refs: &str) -> Result<(), Failure> {
    let program = std::env::current_exe().map_err(|error| Failure::from_error("worktree", &error))?;
    let mut other_end = OsString::new();
    let objects = [branch.objects.as_os_str(), ":".as_ref(), branch.objects.as_os_str()].join(std::ffi::OsStr::new(""));
    let words = [
        program.as_os_str(),
        "run".as_ref(),
        "--quiet".as_ref(),
        "--workspace-mode".as_ref(),
        "ro".as_ref(),
        "--workspace".as_ref(),
        branch.worktree.as_os_str(),
        "--mount".as_ref(),
        &objects,
        "--".as_ref(),
        "git".as_ref(),
        "upload-pack".as_ref(),
    ];
    // Git hands this to a shell.
    for word in words {
        other_end.push(quoted(word));
        other_end.push(" ");
    }
    let mut flag = OsString::from("--upload-pack=");
    flag.push(other_end);
    let fetched = git(
        &branch.repository,
        &[
            "-c".into(),
            "fetch.fsckObjects=true".into(),
            "fetch".into(),
            "--quiet".into(),
            "--no-tags".into(),
            "--no-write-fetch-head".into(),
            "--no-recurse-submodules".into(),
            flag,
            branch.worktree.as_os_str().to_owned(),
            refs.into(),
        ],
    )?;
    succeeded(&fetched, "fetch")
}

/// A word for a shell.
fn quoted(word: &std::ffi::OsStr) -> OsString {
    use std::os::unix::ffi::OsStringExt as _;
    let inner: Vec<u8> = word.as_bytes().iter().flat_map(|byte| if *byte == b'\'' { b"'\\''".to_vec() } else { vec![*byte] }).collect();
    OsString::from_vec([b"'".as_slice(), &inner, b"'"].concat())
}

#[expect(clippy::disallowed_methods, reason = "the person's own git, in their own repository")]
fn git(directory: &Path, words: &[impl AsRef<std::ffi::OsStr>]) -> Result<Output, Failure> {
    let mut command = Command::new("git");
    command.arg("-C").arg(directory).args(words).stdin(Stdio::null());
    command.output().map_err(|error| Failure::new("git", error.to_string()).with_hint("is git installed?"))
}

fn line(output: &Output) -> Option<String> {
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}

fn succeeded(output: &Output, step: &str) -> Result<(), Failure> {
    if output.status.success() {
        return Ok(());
    }
    let said: String = String::from_utf8_lossy(&output.stderr).chars().take(MAX_MESSAGE).collect();
    Err(Failure::new(step, format!("git says: {}", stockade_core::escape::escape(said.trim()))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_reach_a_shell_as_they_are() {
        assert_eq!(quoted("a b'c$(x)".as_ref()), "'a b'\\''c$(x)'");
    }
}
