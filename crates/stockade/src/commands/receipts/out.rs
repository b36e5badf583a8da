//! Where an export goes: standard output, or a file of the person's.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use crate::Context;
use crate::failure::Failure;

/// Gives `write` somewhere to write to. What receipts say is the owner's affair, so a new file is for nobody else.
pub(super) fn to<T>(
    output: Option<&Path>,
    context: &Context,
    write: impl FnOnce(&mut dyn Write) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let Some(path) = output else {
        let mut out = BufWriter::new(Stdout(context));
        let written = write(&mut out)?;
        out.flush().map_err(|error| Failure::new("output", error.to_string()))?;
        return Ok(written);
    };
    let shown = stockade_core::escape::escape(&path.to_string_lossy());
    let failed = |error: std::io::Error| Failure::new("output", format!("`{shown}`: {error}"));
    let file = File::options().write(true).create(true).truncate(true).mode(0o600).open(path).map_err(failed)?;
    let mut out = BufWriter::new(file);
    let written = write(&mut out)?;
    out.flush().map_err(failed)?;
    Ok(written)
}

/// stdout as every command writes to it: a reader that goes away is no failure.
struct Stdout<'a>(&'a Context);

impl Write for Stdout<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.printer.bytes(bytes).map_err(|failure| std::io::Error::other(failure.message))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
