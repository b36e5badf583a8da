//! Running a whole target: a throw-away directory, a worker of the right user in a clean environment, and what it observed.

use std::io::Read;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::case::{Case, Verdict};
use crate::error::SuiteError;
use crate::lab::{TOKEN, TOKEN_NAME};
use crate::recorder;
use crate::target::{Target, Who};

/// The ordinary user.
const NOBODY: u32 = 65534;
/// What a worker says at most.
const MOST_OUTPUT: u64 = 16 << 20;

/// What came of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Seen {
    /// The attacker has what it wanted.
    Open,
    /// The wall held.
    Held,
    /// The case makes no sense here and was not tried.
    NotApplicable,
    /// The attempt could not be made, which proves nothing.
    Broken,
}

/// One case on one wall.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Observation {
    /// The case.
    pub id: String,
    /// What came of it.
    pub seen: Seen,
    /// For people who look into a deviation; differs from run to run.
    pub detail: String,
}

/// All cases on one wall.
pub type Observations = Vec<Observation>;

impl Seen {
    /// The verdict that the page shows; a broken attempt has none.
    pub fn verdict(self) -> Option<Verdict> {
        match self {
            Self::Open => Some(Verdict::Open),
            Self::Held => Some(Verdict::Held),
            Self::NotApplicable => Some(Verdict::NotApplicable),
            Self::Broken => None,
        }
    }
}

/// What is not as expected, a line each.
pub fn deviations(cases: &[Case], target: Target, observed: &[Observation]) -> Vec<String> {
    let mut lines = Vec::new();
    for case in cases {
        let expected = case.expectation(target);
        match observed.iter().find(|o| o.id == case.id) {
            None => lines.push(format!("{}: nothing was observed", case.id)),
            Some(o) if o.seen.verdict() == Some(expected.verdict) => {}
            Some(o) => lines.push(format!("{}: expected {}, saw {:?}: {}", case.id, expected.verdict.name(), o.seen, o.detail)),
        }
    }
    lines
}

/// Runs all cases, or those whose id begins with `only`, on one wall. `runner` is this crate's binary.
pub fn observe(target: Target, runner: &Path, only: &str) -> Result<Observations, SuiteError> {
    let base =
        tempfile::Builder::new().prefix("stockade-conformance-").tempdir_in("/var/tmp").map_err(SuiteError::file("create", "/var/tmp"))?;
    let path = base.path();
    // Others must be able to pass: a jail started by root runs as somebody else.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).map_err(SuiteError::file("change the mode of", path))?;
    let copy = path.join("runner");
    std::fs::copy(runner, &copy).map_err(SuiteError::file("copy the runner to", &copy))?;
    let root = rustix::process::geteuid().is_root();
    if target.who() == Who::Root && !root {
        return Err(SuiteError::NeedsRoot(target.name()));
    }
    if target.who() == Who::Ordinary && root {
        chown(path, Some(NOBODY), Some(NOBODY)).map_err(SuiteError::file("give away", path))?;
    }
    let output = work(target, path, &copy, only, root)?;
    let text = String::from_utf8_lossy(&output);
    text.lines()
        .map(|line| serde_json::from_str(line).map_err(|e| SuiteError::Program { step: "reading the worker", why: format!("{e}: {line}") }))
        .collect()
}

/// Runs the worker as whom the target is for, with an environment that holds one secret and nothing of the caller's.
#[expect(clippy::disallowed_methods, reason = "the worker is this program itself")]
fn work(target: Target, base: &Path, runner: &Path, only: &str, root: bool) -> Result<Vec<u8>, SuiteError> {
    let failed = |why: String| SuiteError::Program { step: "running the worker", why };
    let hosts = base.join("hosts");
    std::fs::write(&hosts, recorder::hosts()).map_err(SuiteError::file("write", &hosts))?;
    std::fs::set_permissions(&hosts, std::fs::Permissions::from_mode(0o644)).map_err(SuiteError::file("change the mode of", &hosts))?;
    let mut command = if root {
        // Names of the servers outside are known to the worker, and to nobody else on the machine.
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "--propagation", "private", "--", "bash", "-euc", "mount --bind \"$0\" /etc/hosts; exec \"$@\""])
            .arg(&hosts);
        if target.who() == Who::Ordinary {
            let nobody = NOBODY.to_string();
            command.args(["setpriv", "--reuid", &nobody, "--regid", &nobody, "--clear-groups"]);
        }
        command.arg(runner);
        command
    } else {
        Command::new(runner)
    };
    command.arg("worker").arg(target.name()).arg(base).arg(only).current_dir("/").env_clear();
    command.env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", base.join("bin").display()));
    command.env("HOME", base.join("home")).env("LANG", "C.UTF-8").env("TERM", "dumb").env(TOKEN_NAME, TOKEN);
    // Whom egress trusts outside.
    command.env("SSL_CERT_FILE", recorder::authority(base));
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(|e| failed(e.to_string()))?;
    let mut output = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        stdout.take(MOST_OUTPUT).read_to_end(&mut output).map_err(|e| failed(e.to_string()))?;
    }
    let status = child.wait().map_err(|e| failed(e.to_string()))?;
    if status.success() { Ok(output) } else { Err(failed(format!("{}: {status}", target.name()))) }
}
