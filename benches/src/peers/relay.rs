//! Timing a peer from another mount namespace: crun refuses machines that mount cgroup v1 and v2 side by side, so it is started where the
//! second is hidden. The harness starts itself there once, as a relay that spawns and times on demand, so that entering costs the
//! peer nothing.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use crate::ground::Corner;
use crate::spawn;

/// The hidden first argument that makes this program a relay.
pub(crate) const RELAY: &str = "--relay";
/// Where distributions with both layouts mount the second.
const UNIFIED: &str = "/sys/fs/cgroup/unified";
/// Hides it, if it is there, and becomes the relay.
const SCRIPT: &str = "if mountpoint -q \"$1\"; then umount \"$1\" || exit 1; fi; shift; exec \"$@\"";

/// A relay in a mount namespace of its own. Dropping ends it.
pub(crate) struct Relay {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Relay {
    /// Starts one for a command.
    pub(crate) fn start(corner: &Corner, argv: &[OsString]) -> Result<Self, String> {
        let own = std::env::current_exe().map_err(|e| e.to_string())?;
        let mut words: Vec<OsString> = ["unshare", "--mount", "sh", "-c", SCRIPT, "sh", UNIFIED].map(OsString::from).to_vec();
        words.extend([own.into_os_string(), RELAY.into()]);
        words.extend_from_slice(argv);
        let mut child = corner.command(&words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(|e| e.to_string())?;
        let (to, from) = (child.stdin.take(), child.stdout.take());
        let (Some(to), Some(from)) = (to, from) else { return Err("the relay has no pipes".into()) };
        Ok(Self { child, to, from: BufReader::new(from) })
    }

    /// One timed run.
    pub(crate) fn run(&mut self) -> Result<Duration, String> {
        self.to.write_all(b"\n").map_err(|e| format!("the relay: {e}"))?;
        let mut line = String::new();
        self.from.read_line(&mut line).map_err(|e| format!("the relay: {e}"))?;
        let line = line.trim_end();
        line.parse().map(Duration::from_nanos).map_err(|_| if line.is_empty() { "the relay ended".into() } else { line.to_owned() })
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        // It ends at the end of its input too; this is only quicker.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The relay's side: a line in, a run, nanoseconds or a message out.
pub(crate) fn serve(argv: &[String]) {
    let Some((program, arguments)) = argv.split_first() else { return };
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    for _ in std::io::stdin().lock().lines() {
        let answer = spawn::timed(&mut command).map_or_else(|message| message.replace('\n', " "), |time| time.as_nanos().to_string());
        let mut out = std::io::stdout().lock();
        if writeln!(out, "{answer}").and_then(|()| out.flush()).is_err() {
            return;
        }
    }
}
