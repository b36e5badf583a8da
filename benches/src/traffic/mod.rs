//! Traffic on loopback: a server, egress in front of it, and a client, as three processes, so that another proxy can stand in egress's place.
//!
//! The server and egress are this program under another name; each prints the port it listens on and ends when its standard input closes.

pub(crate) mod client;
mod egress;
mod server;

use std::fmt::Display;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The hidden first argument that makes this program one of them.
pub(crate) const ROLE: &str = "--traffic";
/// The only name there is.
pub(crate) const HOST: &str = "api.example";
/// The key that the server wants to see.
pub(crate) const VALUE: &str = "ghp_REALrealREALrealREALrealREALreal0000";
/// What the client sends in its place.
pub(crate) const PLACEHOLDER: &str = "ghp_fakefakefakefakefakefakefakefake0000";
/// Who signed the server's certificate.
pub(crate) const OUTSIDE: &str = "outside.pem";
/// Who signs egress's.
pub(crate) const INSIDE: &str = "inside.pem";

/// What egress does with connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opened {
    /// Opens them, swaps the placeholder, searches what comes back.
    Inspect,
    /// Looks at the name and lets them pass.
    Pass,
}

/// Plays the role that the words name.
pub(crate) fn play(words: &[String]) -> Result<(), String> {
    let (open, closed) = tokio::sync::oneshot::channel::<()>();
    // Whoever started this is gone when its end of the pipe is.
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        drop(open);
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(said)?;
    runtime.block_on(async {
        tokio::select! {
            served = serve(words) => served,
            _ = closed => Ok(()),
        }
    })
}

async fn serve(words: &[String]) -> Result<(), String> {
    match words {
        [role, directory] if role == "server" => server::serve(Path::new(directory)).await,
        [role, directory, port, opened] if role == "egress" => {
            let opened = if opened == "pass" { Opened::Pass } else { Opened::Inspect };
            egress::serve(Path::new(directory), port.parse().map_err(said)?, opened).await
        }
        _ => Err("no such role".to_owned()),
    }
}

/// A process that listens on a port. Dropping ends it.
pub(crate) struct Listening {
    child: Child,
    /// Its port.
    pub(crate) port: u16,
}

impl Listening {
    /// The server, whose files go to a directory.
    pub(crate) fn server(directory: &Path) -> Result<Self, String> {
        Self::role(|command| command.arg("server").arg(directory))
    }

    /// Egress in front of a server.
    pub(crate) fn egress(directory: &Path, server: u16, opened: Opened) -> Result<Self, String> {
        let word = if opened == Opened::Pass { "pass" } else { "inspect" };
        Self::role(|command| command.arg("egress").arg(directory).arg(server.to_string()).arg(word))
    }

    /// Something else that was started and listens.
    pub(crate) fn other(child: Child, port: u16) -> Self {
        Self { child, port }
    }

    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    fn role(words: impl FnOnce(&mut Command) -> &mut Command) -> Result<Self, String> {
        let mut command = Command::new(std::env::current_exe().map_err(said)?);
        words(command.arg(ROLE)).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut listening = Self { child: command.spawn().map_err(said)?, port: 0 };
        let mut line = String::new();
        let output = listening.child.stdout.take().ok_or("it has no output")?;
        BufReader::new(output).read_line(&mut line).map_err(said)?;
        listening.port = line.trim().parse().map_err(|_| "it does not say its port".to_owned())?;
        Ok(listening)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        // It may be gone already; then there is nothing to end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An error as a row of a table tells it.
fn said(error: impl Display) -> String {
    error.to_string()
}
