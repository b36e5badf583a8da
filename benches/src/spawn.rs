//! Starting programs and timing them: from before the spawn until they are reaped.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How much of a failing program's message is shown.
const LONGEST_MESSAGE: usize = 300;

/// A command whose program is told to end when the harness is gone, however that ended.
pub(crate) fn bound_to_us(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "TERM"]).arg(program);
    command
}

/// Spawns, waits, and gives the time; anything but exit code 0 is a failure with the program's message.
pub(crate) fn timed(command: &mut Command) -> Result<Duration, String> {
    let begin = Instant::now();
    let status = command.spawn().and_then(|mut child| child.wait());
    let time = begin.elapsed();
    match status {
        Ok(status) if status.success() => Ok(time),
        Ok(status) => Err(match complaint(command) {
            Some(text) => format!("{status}: {text}"),
            None => status.to_string(),
        }),
        Err(error) => Err(error.to_string()),
    }
}

/// Runs to the end and gives what it printed; anything but exit code 0 is a failure with its message.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let output = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).output().map_err(|e| e.to_string())?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(last_line(&output.stderr).or_else(|| last_line(&output.stdout)).unwrap_or_else(|| output.status.to_string()))
    }
}

/// Runs it once more to hear what it has to say: its streams were closed while it was timed.
fn complaint(command: &mut Command) -> Option<String> {
    let output = command.stdout(Stdio::piped()).stderr(Stdio::piped()).output();
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let output = output.ok()?;
    last_line(&output.stderr).or_else(|| last_line(&output.stdout))
}

/// The last line of a message that says something, without control characters.
fn last_line(bytes: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(bytes);
    let line = text.lines().rev().map(str::trim).find(|l| !l.is_empty())?;
    Some(line.chars().filter(|c| !c.is_control()).take(LONGEST_MESSAGE).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_program_is_quoted() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo first >&2; echo because >&2; exit 3"]).stdout(Stdio::null()).stderr(Stdio::null());
        assert_eq!(timed(&mut command), Err("exit status: 3: because".into()));
        assert!(timed(&mut Command::new("/bin/true")).is_ok());
        assert!(timed(&mut Command::new("/no/such")).is_err());
    }
}
