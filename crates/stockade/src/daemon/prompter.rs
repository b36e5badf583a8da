//! The process that asks at the terminal of `stockade serve --foreground`.
//!
//! One of its own: whoever types a passphrase into it has it let nobody look into it, and a process like that can raise no wall; and the daemon is
//! confined. It ends when its input does, so it does not outlive the server, however that ends.

use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::termios::{OptionalActions, Termios};

use crate::failure::Failure;

/// This program, though its file may have been replaced since.
const ITSELF: &str = "/proc/self/exe";
/// How long it may take to end by itself: it may wait for somebody who types.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often it is looked whether it did.
const GLANCE: Duration = Duration::from_millis(20);

/// Asks until the value goes.
pub(crate) struct Prompter {
    child: Child,
    terminal: File,
    before: Termios,
}

impl Prompter {
    /// Starts it, where there is a terminal to ask at. To be called before signals are caught and before this process is confined.
    #[expect(clippy::disallowed_methods, reason = "starts this very program in another role")]
    pub(crate) fn start() -> Result<Self, Failure> {
        let nobody = || {
            Failure::new("foreground", "there is no terminal to ask at")
                .with_hint("leave out --foreground; `stockade approvals list` shows what waits")
        };
        let terminal = File::options().read(true).write(true).open("/dev/tty").map_err(|_| nobody())?;
        let before = rustix::termios::tcgetattr(&terminal).map_err(|_| nobody())?;
        let mut command = Command::new(ITSELF);
        command.args(["approvals", "prompt"]).stdin(Stdio::piped()).stdout(Stdio::null());
        let child = command.spawn().map_err(|error| Failure::new("foreground", format!("starting: {error}")))?;
        Ok(Self { child, terminal, before })
    }
}

impl Drop for Prompter {
    fn drop(&mut self) {
        // The end of its input is its end.
        drop(self.child.stdin.take());
        let end = Instant::now() + PATIENCE;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < end {
            std::thread::sleep(GLANCE);
        }
        if matches!(self.child.try_wait(), Ok(None)) {
            // It reads a passphrase, and the terminal is as it left it. Nothing can be done about one that went away.
            let _ = self.child.kill();
            let _ = self.child.wait();
            let _ = rustix::termios::tcsetattr(&self.terminal, OptionalActions::Now, &self.before);
        }
    }
}
