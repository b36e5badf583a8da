//! The ground that a worker makes for its attempts: a workspace, what lies beside it, a home with keys in it, and the decoy.
//!
//! Everything lies below one throw-away directory and belongs to the user who runs the worker, so that an attempt that gets through reaches
//! only what was made for it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::error::SuiteError;
use crate::probe::PROBE;
use crate::recorder::Recorder;

/// What lies in files and in the decoy.
pub const SECRET: &str = "s3cr3t-value";
/// What lies in the caller's environment.
pub const TOKEN: &str = "tok-s3cr3t-value";
/// Under which name.
pub const TOKEN_NAME: &str = "SECRET_TOKEN";
/// What the program that is on no list says.
pub const MARK: &str = "EVIL-RAN";

/// The ground of one worker.
pub struct Lab {
    /// The throw-away directory.
    pub base: PathBuf,
    /// A directory in the shared /tmp.
    pub tmp: tempfile::TempDir,
    facts: Vec<String>,
    decoy: Option<Child>,
    recorder: Option<Recorder>,
}

impl Lab {
    /// Makes the ground below `base` and starts the decoy.
    pub fn make(base: &Path) -> Result<Self, SuiteError> {
        for (name, mode) in [
            ("bin", 0o755),
            ("home", 0o755),
            ("home/.ssh", 0o755),
            ("home/.aws", 0o755),
            ("out", 0o777),
            ("cases", 0o755),
            ("state", 0o700),
        ] {
            directory(&base.join(name), mode)?;
        }
        for name in ["secret", "home/.ssh/id_ed25519", "home/.aws/credentials", "home/.bash_history"] {
            write(&base.join(name), SECRET.as_bytes(), 0o644)?;
        }
        write(&base.join("home/.gitconfig"), b"[user]\n\tname = A\n\temail = a@example.com\n", 0o644)?;
        write(&base.join("bin/stockade-probe"), PROBE, 0o755)?;
        write(&base.join("bin/listed"), PROBE, 0o755)?;
        write(&base.join("state/record"), b"what other sandboxes did", 0o600)?;
        let evil = format!("#!/bin/sh\necho {MARK} >&2\necho {MARK}\n[ -w . ] && : > ./evil-marker\nexit 0\n");
        write(&base.join("bin/evil"), evil.as_bytes(), 0o755)?;
        repository(&base.join("template"))?;
        copy(&base.join("template"), &base.join("work"))?;
        let tmp =
            tempfile::Builder::new().prefix("stockade-conformance-").tempdir_in("/tmp").map_err(SuiteError::file("create", "/tmp"))?;
        let mut lab = Self { base: base.to_owned(), tmp, facts: Vec::new(), decoy: None, recorder: None };
        lab.start_decoy()?;
        Ok(lab)
    }

    /// The ground that another process made, without a decoy of its own.
    pub fn at(base: &Path) -> Result<Self, SuiteError> {
        let tmp = tempfile::tempdir().map_err(SuiteError::file("create", "/tmp"))?;
        Ok(Self { base: base.to_owned(), tmp, facts: Vec::new(), decoy: None, recorder: None })
    }

    /// Starts the servers outside.
    pub(crate) fn start_recorder(&mut self) -> Result<(), SuiteError> {
        self.recorder = Some(Recorder::start(&self.base)?);
        Ok(())
    }

    /// The servers outside.
    pub(crate) fn recorder(&self) -> Result<&Recorder, SuiteError> {
        self.recorder.as_ref().ok_or_else(|| SuiteError::Program { step: "looking for the recorder", why: "it was not started".into() })
    }

    /// A workspace of its own for one case: `ws` with a repository, `out` and `secret` beside it.
    pub fn for_case(&self, id: &str) -> Result<PathBuf, SuiteError> {
        let place = self.base.join("cases").join(id);
        directory(&place, 0o755)?;
        copy(&self.base.join("template"), &place.join("ws"))?;
        directory(&place.join("out"), 0o777)?;
        write(&place.join("out/keep"), b"k", 0o644)?;
        write(&place.join("secret"), format!("{SECRET}\n").as_bytes(), 0o644)?;
        Ok(place)
    }

    /// The probe's own file.
    pub fn probe(&self) -> PathBuf {
        self.base.join("bin/stockade-probe")
    }

    /// What the probe is told, with the workspace that it works in.
    pub fn facts(&self, work: &Path) -> Vec<String> {
        let mut facts = self.facts.clone();
        facts.push(format!("work={}", work.display()));
        facts
    }

    /// `PATH` of everything that is run.
    pub fn path(&self) -> String {
        format!("{}:/usr/local/bin:/usr/bin:/bin", self.base.join("bin").display())
    }

    #[expect(clippy::disallowed_methods, reason = "the decoy is the suite's own program")]
    fn start_decoy(&mut self) -> Result<(), SuiteError> {
        let failed = |why: String| SuiteError::Program { step: "starting the decoy", why };
        let place = |name: &str| self.base.join(name).display().to_string();
        let mut facts = vec![
            format!("base={}", self.base.display()),
            format!("secret={SECRET}"),
            format!("token={TOKEN}"),
            format!("secret_file={}", place("secret")),
            format!("home={}", place("home")),
            format!("out={}", place("out")),
            format!("state={}", place("state")),
            format!("evil={}", place("bin/evil")),
            format!("listed={}", place("bin/listed")),
            format!("tmp={}", self.tmp.path().display()),
            format!("host_name={}", rustix::system::uname().nodename().to_string_lossy()),
        ];
        let mut command = Command::new(self.probe());
        command.arg0("stockade-conformance-decoy").arg("decoy").args(&facts).arg(format!("work={}", place("work")));
        command.env_clear().env("DECOY", SECRET).current_dir(&self.base).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|e| failed(e.to_string()))?;
        let stdout = child.stdout.take().ok_or_else(|| failed("no output".into()))?;
        for line in BufReader::new(stdout).lines() {
            let line = line.map_err(|e| failed(e.to_string()))?;
            if line == "ready" {
                self.facts = facts;
                self.decoy = Some(child);
                return Ok(());
            }
            facts.push(line);
        }
        let _ = child.kill();
        let _ = child.wait();
        Err(failed(format!("it said {:?}", facts.last())))
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if let Some(mut decoy) = self.decoy.take() {
            // Its input ends, and it removes what it made.
            drop(decoy.stdin.take());
            let _ = decoy.wait();
        }
    }
}

/// Makes a directory with exactly this mode.
pub(crate) fn directory(path: &Path, mode: u32) -> Result<(), SuiteError> {
    fs::create_dir_all(path).map_err(SuiteError::file("create", path))?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(SuiteError::file("change the mode of", path))
}

/// Writes a file with exactly this mode.
pub(crate) fn write(path: &Path, bytes: &[u8], mode: u32) -> Result<(), SuiteError> {
    fs::write(path, bytes).map_err(SuiteError::file("write", path))?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(SuiteError::file("change the mode of", path))
}

/// A repository with one commit, copied for each case instead of made again.
fn repository(path: &Path) -> Result<(), SuiteError> {
    directory(path, 0o755)?;
    outside("git init -q -b main . && echo hello > f && git add f && git commit -qm i", path)
}

fn copy(from: &Path, to: &Path) -> Result<(), SuiteError> {
    outside(&format!("cp -a '{}' '{}'", from.display(), to.display()), Path::new("/"))
}

/// Runs a script of the suite's own outside.
#[expect(clippy::disallowed_methods, reason = "prepares the suite's own ground")]
pub(crate) fn outside(script: &str, at: &Path) -> Result<(), SuiteError> {
    let failed = |why: String| SuiteError::Program { step: "preparing", why };
    let mut command = Command::new("bash");
    command.args(["-c", script]).current_dir(at).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    for (name, value) in IDENTITY {
        command.env(name, value);
    }
    let output = command.output().map_err(|e| failed(e.to_string()))?;
    if output.status.success() { Ok(()) } else { Err(failed(format!("{script}: {}", String::from_utf8_lossy(&output.stderr)))) }
}

/// Who commits.
pub(crate) const IDENTITY: [(&str, &str); 5] = [
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_AUTHOR_NAME", "a"),
    ("GIT_AUTHOR_EMAIL", "a@example.com"),
    ("GIT_COMMITTER_NAME", "a"),
    ("GIT_COMMITTER_EMAIL", "a@example.com"),
];

impl Lab {
    /// Where a trace would be on the host.
    pub(crate) fn trace(&self, text: &str, work: &Path) -> PathBuf {
        let named = [("$WORK", work.to_owned()), ("$BASE", self.base.clone()), ("$TMP", self.tmp.path().to_owned())];
        PathBuf::from(named.iter().fold(text.to_owned(), |text, (name, path)| text.replace(name, &path.display().to_string())))
    }
}
