//! A witness that is a program of the person's own choice: it is given each checkpoint, and prints a signature line.
//!
//! Standard input has the form of a request to a C2SP `tlog-witness`: `old SIZE`, the hashes of a consistency proof in base64, an empty line, the note.
//! What it prints is not believed but checked against its public key.

use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use stockade_core::escape::escape;
use stockade_verify::key::PublicKey;
use stockade_verify::note::{Checkpoint, MAX_NOTE, Note};
use stockade_verify::text::to_base64;

use crate::error::LedgerError;
use crate::query::Reader;
use crate::tree::Tree;

/// How long the program may take, unless another time is given.
const PATIENCE: Duration = Duration::from_secs(20);
/// The most that is shown of what it complains about.
const MOST_COMPLAINT: usize = 300;

/// A program that signs checkpoints.
#[derive(Debug, Clone)]
pub struct CommandWitness {
    program: PathBuf,
    arguments: Vec<String>,
    name: String,
    key: PublicKey,
    patience: Duration,
}

impl CommandWitness {
    /// A program by its absolute path, its arguments, and the name and key its signatures must have.
    pub fn new(program: PathBuf, arguments: Vec<String>, name: String, key: PublicKey) -> Self {
        Self { program, arguments, name, key, patience: PATIENCE }
    }

    /// The same, with another time to answer in.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    pub(super) fn cosign(&self, note: &str, checkpoint: &Checkpoint, reader: &Reader) -> Result<String, LedgerError> {
        let is_signed = |text: &str| Note::parse(text).is_ok_and(|parsed| parsed.cosigned_by(&self.name, &self.key).is_ok());
        if is_signed(note) {
            return Ok(note.to_owned());
        }
        let moment = reader.moment()?;
        let notes = reader.notes(&moment)?;
        let old = notes.iter().rev().find(|(size, text)| *size <= checkpoint.size && is_signed(text)).map_or(0, |(size, _)| *size);
        let proof = Tree::new(&moment, &reader.path, checkpoint.size)?.consistency(old)?;
        let mut request = format!("old {old}\n");
        for hash in proof {
            request.push_str(&to_base64(&hash));
            request.push('\n');
        }
        request.push('\n');
        request.push_str(note);
        let cosigned = format!("{note}{}", self.ask(&request)?);
        if is_signed(&cosigned) { Ok(cosigned) } else { Err(LedgerError::Witness("what it printed is no signature of its key".to_owned())) }
    }

    fn ask(&self, request: &str) -> Result<String, LedgerError> {
        let fail = |error: std::io::Error| LedgerError::Witness(format!("cannot run `{}`: {error}", self.program.display()));
        if !self.program.is_absolute() {
            return Err(LedgerError::Witness(format!("`{}` is not an absolute path", self.program.display())));
        }
        #[expect(clippy::disallowed_methods, reason = "the person's own settings name this program as their witness")]
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).env_clear().env("PATH", "/usr/bin:/bin");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(fail)?;
        let (input, output, complaints) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        std::thread::scope(|scope| {
            // It may answer before it has read everything, and the other way round.
            scope.spawn(move || input.map(|mut input| input.write_all(request.as_bytes())));
            let answer = scope.spawn(move || read(output));
            let complaint = scope.spawn(move || read(complaints));
            let status = wait(&mut child, self.patience).map_err(fail)?;
            let (answer, complaint) = (answer.join().unwrap_or_default(), complaint.join().unwrap_or_default());
            match status {
                Some(status) if status.success() => Ok(answer),
                Some(_) => Err(LedgerError::Witness(
                    escape(complaint.lines().next().unwrap_or("it failed")).chars().take(MOST_COMPLAINT).collect(),
                )),
                None => Err(LedgerError::Witness(format!("it did not answer within {} s", self.patience.as_secs()))),
            }
        })
    }
}

fn read(stream: Option<impl std::io::Read>) -> String {
    let mut text = String::new();
    let most = u64::try_from(MAX_NOTE).unwrap_or(u64::MAX);
    match stream.map(|stream| stream.take(most).read_to_string(&mut text)) {
        Some(Ok(_)) => text,
        _ => String::new(),
    }
}

/// Waits for the end, but not for ever; one that takes too long is killed.
fn wait(child: &mut Child, patience: Duration) -> std::io::Result<Option<std::process::ExitStatus>> {
    let end = Instant::now() + patience;
    while Instant::now() < end {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}
