//! Failures: how an error of the kernel becomes the kind and the text that the host gets.
//!
//! Owns the mapping and the wording. Texts name the path and carry no final stop; the host escapes them before
//! a person sees them.

use rustix::io::Errno;
use stockade_wire::message::ErrorKind;

/// The most bytes of a path or program name that a message repeats.
const SHOWN: usize = 512;

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) kind: ErrorKind,
    pub(crate) message: String,
}

impl Failure {
    /// A request that makes no sense.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Invalid {}, message: message.into() }
    }

    /// A limit of the guest was reached.
    pub(crate) fn too_many(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::TooMany {}, message: message.into() }
    }

    /// An error of the kernel about something that has a name.
    pub(crate) fn about(name: &[u8], errno: Errno) -> Self {
        Self { kind: kind(errno), message: format!("{}: {}", quoted(name), describe(errno)) }
    }

    /// An error of the kernel while doing something.
    pub(crate) fn during(what: &str, errno: Errno) -> Self {
        Self { kind: kind(errno), message: format!("cannot {what}: {}", describe(errno)) }
    }
}

/// Bytes as text in backticks, shortened.
pub(crate) fn quoted(name: &[u8]) -> String {
    match name.get(..SHOWN) {
        Some(start) if name.len() > SHOWN => format!("`{}…`", String::from_utf8_lossy(start)),
        _ => format!("`{}`", String::from_utf8_lossy(name)),
    }
}

/// What the host should make of an error.
pub(crate) fn kind(errno: Errno) -> ErrorKind {
    match errno {
        Errno::NOENT => ErrorKind::NotFound {},
        Errno::ACCESS | Errno::PERM | Errno::ROFS => ErrorKind::Permission {},
        Errno::NOTDIR => ErrorKind::NotDirectory {},
        Errno::ISDIR => ErrorKind::IsDirectory {},
        Errno::EXIST => ErrorKind::Exists {},
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG => ErrorKind::NoSpace {},
        Errno::MFILE | Errno::NFILE | Errno::AGAIN | Errno::NOMEM | Errno::NOBUFS => ErrorKind::TooMany {},
        Errno::INVAL | Errno::NAMETOOLONG | Errno::LOOP | Errno::NOTEMPTY | Errno::TOOBIG | Errno::XDEV => ErrorKind::Invalid {},
        _ => ErrorKind::Io {},
    }
}

/// An error in words.
pub(crate) fn describe(errno: Errno) -> String {
    let words = match errno {
        Errno::NOENT => "no such file or directory",
        Errno::ACCESS => "permission denied",
        Errno::PERM => "operation not permitted",
        Errno::ROFS => "read-only file system",
        Errno::NOTDIR => "not a directory",
        Errno::ISDIR => "is a directory",
        Errno::EXIST => "already exists",
        Errno::NOSPC => "no space left",
        Errno::DQUOT => "disk quota exceeded",
        Errno::FBIG => "file too large",
        Errno::MFILE | Errno::NFILE => "too many open files",
        Errno::AGAIN => "no more processes or resources allowed",
        Errno::NOMEM => "out of memory",
        Errno::INVAL => "invalid argument",
        Errno::NAMETOOLONG => "name too long",
        Errno::LOOP => "too many symbolic links",
        Errno::NOTEMPTY => "directory not empty",
        Errno::TOOBIG => "argument list too long",
        Errno::XDEV => "on another file system",
        Errno::BUSY => "busy",
        Errno::TXTBSY => "program file is being written",
        Errno::CONNREFUSED => "connection refused",
        Errno::CONNRESET => "connection reset",
        Errno::PIPE => "broken pipe",
        Errno::ADDRINUSE => "address already in use",
        Errno::IO => "input/output error",
        _ => return format!("error {}", errno.raw_os_error()),
    };
    words.to_owned()
}
