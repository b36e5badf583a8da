//! The files of authorities that programs inside trust: the machine's own and that of egress.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::java;
use crate::Context;
use crate::failure::Failure;

/// The file that holds the authority of egress, with its key, in its own directory.
pub(crate) const AUTHORITY_FILE: &str = stockade_egress::tls::authority::FILE;
/// The names of the files in a sandbox's directory.
pub(crate) const FILE: &str = "authorities.pem";
const JAVA_FILE: &str = "authorities.jks";
/// The machine's file is not read beyond this.
const MAX_BYTES: u64 = 8 << 20;

/// The files of one sandbox.
pub(crate) struct Trusted {
    /// For everybody.
    pub(crate) pem: PathBuf,
    /// For Java, where the machine has one.
    pub(crate) java: Option<PathBuf>,
}

/// Writes the files and says where they are.
pub(crate) fn write(directory: &Path, certificate: &str, context: &Context) -> Result<Trusted, Failure> {
    let mut text = machine(context);
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(certificate);
    let pem = file(directory.join(FILE), text.as_bytes())?;
    let has_java = !stockade_sandbox::wayout::java_places().is_empty();
    let java = if has_java { Some(file(directory.join(JAVA_FILE), &java::store(&text))?) } else { None };
    Ok(Trusted { pem, java })
}

/// A file that whoever runs inside can read; the directory is private.
pub(super) fn file(path: PathBuf, contents: &[u8]) -> Result<PathBuf, Failure> {
    let failed = |error: std::io::Error| Failure::new("egress", format!("writing `{}`: {error}", path.display()));
    std::fs::write(&path, contents).map_err(failed)?;
    rustix::fs::chmod(&path, rustix::fs::Mode::from_raw_mode(0o644)).map_err(|errno| failed(errno.into()))?;
    Ok(path)
}

/// The machine's own authorities, as the caller or the system names them; empty where there are none, for then only ours counts.
pub(crate) fn machine(context: &Context) -> String {
    let named = context.environment.variable("SSL_CERT_FILE").filter(|path| !path.is_empty()).map(PathBuf::from);
    let usual = stockade_sandbox::wayout::SYSTEM_AUTHORITIES.iter().map(PathBuf::from);
    named.into_iter().chain(usual).find_map(|path| read(&path)).unwrap_or_default()
}

fn read(path: &Path) -> Option<String> {
    let mut text = String::new();
    let mut file = std::fs::File::open(path).ok()?.take(MAX_BYTES + 1);
    file.read_to_string(&mut text).ok()?;
    (text.contains("-----BEGIN CERTIFICATE-----") && text.len() as u64 <= MAX_BYTES).then_some(text)
}
