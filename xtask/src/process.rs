//! Running programs and saying which one failed.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::failure::Failure;

/// Longest line of a child that is looked at; a longer one is passed on in pieces.
const LONGEST_LINE: u64 = 64 * 1024;

/// Runs to the end with the terminal passed through.
pub(crate) fn run(command: &mut Command) -> Result<(), Failure> {
    let text = describe(command);
    let status = command.status().map_err(|error| Failure::new(format!("cannot start `{text}`: {error}")))?;
    if status.success() { Ok(()) } else { Err(Failure::new(format!("`{text}` ended with {status}"))) }
}

/// Runs to the end and returns standard output; standard error is passed through.
pub(crate) fn output(command: &mut Command) -> Result<String, Failure> {
    let text = describe(command);
    let output = command.stderr(Stdio::inherit()).output().map_err(|error| Failure::new(format!("cannot start `{text}`: {error}")))?;
    if !output.status.success() {
        return Err(Failure::new(format!("`{text}` ended with {}", output.status)));
    }
    String::from_utf8(output.stdout).map_err(|_| Failure::new(format!("`{text}` printed something that is not UTF-8")))
}

/// A stream of the child that is read line by line.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Watched {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Runs to the end, passes everything through, and shows each line of one stream to `look`.
pub(crate) fn watch(command: &mut Command, watched: Watched, mut look: impl FnMut(&str)) -> Result<(), Failure> {
    let text = describe(command);
    match watched {
        Watched::Stdout => command.stdout(Stdio::piped()),
        Watched::Stderr => command.stderr(Stdio::piped()),
    };
    let mut child = command.spawn().map_err(|error| Failure::new(format!("cannot start `{text}`: {error}")))?;
    let stream: Option<Box<dyn std::io::Read>> = match watched {
        Watched::Stdout => child.stdout.take().map(|stream| Box::new(stream) as _),
        Watched::Stderr => child.stderr.take().map(|stream| Box::new(stream) as _),
    };
    if let Some(stream) = stream {
        let mut reader = BufReader::new(stream);
        loop {
            let mut line = Vec::new();
            let read = std::io::Read::take(&mut reader, LONGEST_LINE).read_until(b'\n', &mut line);
            if read.map_err(|error| Failure::new(format!("cannot read from `{text}`: {error}")))? == 0 {
                break;
            }
            let line = String::from_utf8_lossy(&line);
            look(line.trim_end());
            match watched {
                Watched::Stdout => print!("{line}"),
                Watched::Stderr => eprint!("{line}"),
            }
        }
    }
    let status = child.wait().map_err(|error| Failure::new(format!("cannot wait for `{text}`: {error}")))?;
    if status.success() { Ok(()) } else { Err(Failure::new(format!("`{text}` ended with {status}"))) }
}

/// Where `PATH` leads for this program name.
pub(crate) fn find_program(name: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|file| is_executable(file))
}

fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

/// The command as a person would type it: the program without its directory, then the arguments.
fn describe(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let words = std::iter::once(program.file_name().unwrap_or(program.as_os_str())).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_program_is_named_with_its_arguments() {
        let failure = run(Command::new("/bin/false").arg("word")).unwrap_err().to_string();
        assert!(failure.contains("`false word`"), "{failure}");
    }

    #[test]
    fn watched_lines_are_seen() {
        let mut lines = Vec::new();
        watch(Command::new("printf").arg("one\ntwo\n"), Watched::Stdout, |line| lines.push(line.to_owned())).unwrap();
        assert_eq!(lines, ["one", "two"]);
    }

    #[test]
    fn programs_are_found_on_the_path_only() {
        assert!(find_program("sh").is_some());
        assert!(find_program("no-such-program-here").is_none());
    }
}
