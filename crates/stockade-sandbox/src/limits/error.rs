//! What can go wrong with limits, one variant per step.

use std::path::PathBuf;

use rustix::io::Errno;

/// A step of setting, watching or removing limits failed.
#[derive(Debug, thiserror::Error)]
pub enum LimitError {
    /// Not even a shell starts with so little.
    #[error("a memory limit of {asked} bytes is too small to start a program; the minimum is {minimum} bytes (4M)")]
    MemoryTooSmall {
        /// What was asked for.
        asked: u64,
        /// The least that works.
        minimum: u64,
    },
    /// No process, no program.
    #[error("a limit of 0 processes lets no program start; the minimum is 1")]
    NoProcesses,
    /// No processor, no program.
    #[error("a limit of 0 processors lets no program run; the minimum is 0.001")]
    NoProcessor,
    /// A group's name is not one of ours.
    #[error("`{0}` is not the name of a sandbox's control group: it must be `stockade-` and letters, digits, `-`, `_` or `.`")]
    BadName(String),
    /// A file of `/proc` cannot be read.
    #[error("cannot read `{path}`; is /proc mounted?")]
    Proc {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Errno,
    },
    /// A control group cannot be made.
    #[error("cannot make the control group `{path}`")]
    Make {
        /// Its directory.
        path: PathBuf,
        /// Why.
        source: Errno,
    },
    /// Another sandbox, or what was left of one, has this name.
    #[error("the control group `{0}` exists already; `stockade prune` removes what dead sandboxes left")]
    Exists(PathBuf),
    /// A control file cannot be opened or read.
    #[error("cannot read `{path}`")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Errno,
    },
    /// A control file does not take the value.
    #[error("cannot write `{value}` to `{path}`")]
    Write {
        /// The file.
        path: PathBuf,
        /// The value.
        value: String,
        /// Why.
        source: Errno,
    },
    /// The kernel shows another value than the one written.
    #[error("wrote `{wanted}` to `{path}` but it reads `{found}`")]
    ReadBack {
        /// The file.
        path: PathBuf,
        /// What was written.
        wanted: String,
        /// What is there.
        found: String,
    },
    /// No group to freeze with.
    #[error("nothing here can freeze a sandbox: it has no cgroup v2 directory and no v1 freezer")]
    NoFreezer,
    /// Freezing or thawing took too long; it was undone.
    #[error("the control group `{path}` did not become {wanted} within {milliseconds} ms")]
    FreezeTimedOut {
        /// The group.
        path: PathBuf,
        /// `frozen` or `thawed`.
        wanted: &'static str,
        /// The bound.
        milliseconds: u128,
    },
    /// Processes outlived SIGKILL for too long.
    #[error("processes in the control group `{path}` are still alive {milliseconds} ms after SIGKILL")]
    KillTimedOut {
        /// The group.
        path: PathBuf,
        /// The bound.
        milliseconds: u128,
    },
    /// A group cannot be removed.
    #[error("cannot remove the control group `{path}`")]
    Remove {
        /// Its directory.
        path: PathBuf,
        /// Why.
        source: Errno,
    },
    /// The kernel does not list children.
    #[error("cannot read `{path}`; the kernel was built without CONFIG_PROC_CHILDREN, so memory cannot be sampled")]
    NoChildList {
        /// The file.
        path: PathBuf,
    },
    /// The process to sample is gone.
    #[error("process {0} is gone")]
    Gone(u32),
}

impl LimitError {
    /// The message with its cause, in one line, for reports that keep text only.
    pub(crate) fn line(&self) -> String {
        match std::error::Error::source(self) {
            Some(cause) => format!("{self}: {cause}"),
            None => self.to_string(),
        }
    }
}
