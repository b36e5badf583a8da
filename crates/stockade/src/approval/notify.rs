//! Telling a person that something waits for them: a program that their own settings name, such as `notify-send`, is run with two words.
//!
//! It is told that there is a request and what it is in one line; it decides nothing, and nothing waits for it. What an agent wrote is escaped, for
//! terminals and for the marks that desktops read. Many requests at once are one message: people are not to be worn down.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::Context;

/// The next message is not sent before this time is over.
const PAUSE: Duration = Duration::from_secs(10);
/// How long the program may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// The first word that it is given; the second says what is asked for.
const TITLE: &str = "Stockade: approval needed";
/// How often it is looked whether it ended.
const GLANCE: Duration = Duration::from_millis(50);
/// What it needs of the caller's environment to find their desktop.
const VARIABLES: [&str; 6] = ["HOME", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"];

/// When the last message was sent.
static LAST: Mutex<Option<Instant>> = Mutex::new(None);

/// Tells of a new request. What goes wrong is a warning: the request waits either way.
pub(super) fn tell(program: &str, step: &str, principal: &str, title: &str, context: &Context) {
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if last.is_some_and(|last| last.elapsed() < PAUSE) {
        return;
    }
    *last = Some(Instant::now());
    drop(last);
    let text = unmarked(&format!("{principal} asks: {title}\n{step}"));
    let told = match context.steward() {
        Some(steward) => steward.tell(program, &text).map_err(|failure| failure.message),
        // Its end is nobody's business, but it must not last, nor stay in the table of processes.
        None => run(program, &text, context).map(|child| drop(std::thread::spawn(move || end(child)))),
    };
    if let Err(why) = told {
        context.printer.warning(format!("nobody is told that a request waits ({step}): {why} (approvals.notify.command)"));
    }
}

/// Runs the program.
#[expect(clippy::disallowed_methods, reason = "the person's own settings name this program; a project's cannot")]
pub(crate) fn run(program: &str, text: &str, context: &Context) -> Result<Child, String> {
    let mut line = program.split_whitespace();
    let path = line.next().map(Path::new).filter(|path| path.is_absolute()).ok_or("its program is not an absolute path")?;
    let variables = VARIABLES.iter().filter_map(|name| Some((*name, context.environment.variable(name)?)));
    let mut command = Command::new(path);
    command.args(line).args([TITLE, text]).env_clear().env("PATH", "/usr/bin:/bin").envs(variables).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().map_err(|error| error.to_string())
}

/// Waits for its end, but not for long.
pub(crate) fn end(mut child: Child) {
    let end = Instant::now() + PATIENCE;
    while matches!(child.try_wait(), Ok(None)) {
        if Instant::now() >= end {
            let _ = child.kill();
            let _ = child.wait();
            return;
        }
        std::thread::sleep(GLANCE);
    }
}

/// Text without what desktops take for marks.
fn unmarked(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
