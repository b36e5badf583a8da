//! The files by which git says where a repository is, as anyone who can write to a workspace may have written them.
//!
//! Promises: the workspace found is the directory itself or one above it, never one that the files lead to; a shared git directory is believed
//! only where it points back, so no file can make Stockade mount something that is no repository of this workspace.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use stockade_sandbox::workspace::locate::locate;

use crate::input::Input;
use crate::scratch::Scratch;
use crate::shown::assert_honest;

/// Stands for the directory of the input in its texts.
const BASE: u8 = 1;

/// `.git`, `commondir`, `gitdir` and `config`, in that order; then where the last three are.
pub fn body(data: &[u8]) {
    let mut input = Input(data);
    let texts = [input.until(0), input.until(0), input.until(0), input.until(0)];
    let shape = input.byte();
    let scratch = Scratch::new();
    let base = scratch.path();
    let [dot_git, commondir, gitdir, config] = texts.map(|text| expand(text, &base));
    let workspace = scratch.directory("w");
    let inside = scratch.directory("w/in");
    let repository = scratch.directory("r/.git");
    let linked = scratch.directory("r/.git/worktrees/w");
    for directory in [&repository, &linked] {
        fs::write(directory.join("HEAD"), "ref: refs/heads/main\n").expect("room for a file");
        fs::create_dir(directory.join("objects")).expect("room for a directory");
    }
    // Somebody's, with everything a repository has, and no word about this workspace.
    let foreign = scratch.directory("foreign");
    fs::write(foreign.join("HEAD"), "ref: refs/heads/main\n").expect("room for a file");
    fs::create_dir(foreign.join("objects")).expect("room for a directory");

    fs::write(workspace.join(".git"), &dot_git).expect("room for a file");
    let place = if shape & 1 == 0 { &linked } else { &repository };
    fs::write(place.join("gitdir"), &gitdir).expect("room for a file");
    fs::write(place.join("config"), &config).expect("room for a file");
    if shape & 2 == 0 {
        fs::write(place.join("commondir"), &commondir).expect("room for a file");
    }
    let home = scratch.directory("home");
    for explicit in [None, Some(workspace.as_path())] {
        match locate(&inside, explicit, &home) {
            Ok(located) => {
                let path = located.path.as_path();
                assert!(path == workspace || (explicit.is_none() && path == inside), "{path:?} is not around {inside:?}");
                if let Some(common) = located.git_common {
                    let common = common.as_path();
                    assert!(!common.starts_with(&workspace) && common.join("HEAD").exists(), "{common:?}");
                    assert_ne!(common, foreign, "a repository that does not point back was believed");
                    assert!(common.starts_with(base.join("r")), "{common:?} is somewhere else");
                    assert!(points_back(place, &gitdir, &config, &workspace), "{common:?} does not point back");
                }
            }
            Err(error) => assert_honest(&error.to_string(), &[]),
        }
    }
}

/// Whether a text in the repository leads to the workspace: `gitdir` to its `.git`, or a setting to itself.
fn points_back(place: &Path, gitdir: &[u8], config: &[u8], workspace: &Path) -> bool {
    let leads = |text: &[u8], to: &Path| fs::canonicalize(place.join(OsStr::from_bytes(text))).is_ok_and(|real| real == to);
    let mut values = config.split(|byte| *byte == b'\n').filter_map(|line| line.splitn(2, |byte| *byte == b'=').nth(1));
    leads(gitdir.trim_ascii_end(), &workspace.join(".git")) || values.any(|value| leads(value.trim_ascii(), workspace))
}

fn expand(text: &[u8], base: &Path) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for byte in text {
        match *byte {
            BASE => out.extend_from_slice(base.as_os_str().as_bytes()),
            byte => out.push(byte),
        }
    }
    out
}

/// A linked worktree, a submodule, and lies.
pub fn seeds() -> Vec<Vec<u8>> {
    let seed = |texts: [&str; 4], shape: u8| {
        let mut bytes: Vec<u8> = texts.iter().flat_map(|text| [text.as_bytes(), &[0]].concat()).collect();
        bytes.push(shape);
        bytes
    };
    vec![
        seed(["gitdir: \u{1}/r/.git/worktrees/w\n", "../..\n", "\u{1}/w/.git\n", ""], 0),
        seed(["gitdir: ../r/.git/worktrees/w", "../..", "../../../../w/.git", ""], 0),
        seed(["gitdir: \u{1}/r/.git\n", "", "", "[core]\n\tworktree = ../../w\n\tbare = false\n"], 3),
        seed(["gitdir: \u{1}/foreign\n", "../..\n", "\u{1}/foreign/.git\n", "[core]\nworktree=\u{1}/w"], 0),
        seed(["gitdir: /\n", "/\n", "/\n", "[CORE]\nWorkTree = /\n"], 1),
        seed(["gitdir:", "", "", "[core \"x\"]\n=\n[core]\nworktree"], 2),
    ]
}
