//! The file of authorities that programs inside trust: the machine's own and that of egress.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use crate::Context;
use crate::failure::Failure;

/// The file that holds the authority of egress, with its key, in its own directory.
pub(crate) const AUTHORITY_FILE: &str = stockade_egress::tls::authority::FILE;
/// The file's name in a sandbox's directory.
pub(crate) const FILE: &str = "authorities.pem";
/// The machine's file is not read beyond this.
const MAX_BYTES: u64 = 8 << 20;

/// Writes the file and says where it is.
pub(crate) fn write(directory: &Path, certificate: &str, context: &Context) -> Result<PathBuf, Failure> {
    let path = directory.join(FILE);
    let mut text = machine(context);
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(certificate);
    let failed = |error: std::io::Error| Failure::new("egress", format!("writing `{}`: {error}", path.display()));
    std::fs::write(&path, text).map_err(failed)?;
    // Read by whoever runs inside; the directory is private.
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
