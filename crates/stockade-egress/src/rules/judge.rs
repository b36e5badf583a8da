//! Rules that are kept elsewhere and asked about every request: egress knows when a request is one, and somebody else whether it may go.

use stockade_core::host::HostName;

/// One request, before anything of it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked<'a> {
    /// Where it goes.
    pub host: &'a HostName,
    /// At which port.
    pub port: u16,
    /// Whether over TLS.
    pub tls: bool,
    /// Its method.
    pub method: &'a str,
    /// Its path, which can be read in one way only.
    pub path: &'a str,
    /// The secret that would be put in.
    pub secret: Option<&'a str>,
}

/// Why it may not go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denied {
    /// The rule's name.
    pub rule: String,
    /// In words.
    pub why: String,
}

/// Whoever keeps the rules. Where there is one, every connection is opened: it could not be asked about what nobody sees.
pub trait Judge: std::fmt::Debug + Send + Sync {
    /// Whether a request may go.
    fn judge(&self, asked: &Asked<'_>) -> Result<(), Denied>;
}
