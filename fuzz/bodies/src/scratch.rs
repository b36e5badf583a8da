//! A directory for targets that need files: made anew for each input, in memory where the machine has such a place. It is removed by the code
//! that removes sandboxes, which must be able to, whatever lies in it.

use std::path::{Path, PathBuf};

use stockade_sandbox::workspace::remove::remove_tree;

/// A directory that is gone when the value is.
#[derive(Debug)]
pub struct Scratch(tempfile::TempDir);

impl Scratch {
    /// Makes one.
    pub fn new() -> Self {
        let memory = Path::new("/dev/shm");
        let place = if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() };
        let directory = tempfile::Builder::new().prefix("stockade-fuzz-").tempdir_in(place).expect("a directory for the input's files");
        Self(directory)
    }

    /// Where it is, without links in it.
    pub fn path(&self) -> PathBuf {
        self.0.path().canonicalize().expect("the directory that was just made")
    }

    /// A new directory in it.
    pub fn directory(&self, name: &str) -> PathBuf {
        let path = self.path().join(name);
        std::fs::create_dir_all(&path).expect("a directory in the scratch directory");
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let removed = remove_tree(self.0.path());
        assert!(removed.is_ok() || std::thread::panicking(), "what an input left cannot be removed: {removed:?}");
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}
