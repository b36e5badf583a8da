//! Values that are more than a word, and the parsers that clap calls for them.
//!
//! What can be checked without looking at the machine is checked here, so a bad value is a usage error and nothing starts.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::{OsStringValueParser, PossibleValuesParser, StringValueParser, TypedValueParser};
use stockade_broker::binding::SecretBinding;
use stockade_core::demand::Demand;
use stockade_core::escape::escape_bytes;
use stockade_core::host::HostPattern;
use stockade_core::id::{BadName, SandboxId, SandboxName};
use stockade_core::path::SafePath;
use stockade_core::spec::{BackendKind, MountMode};

/// A value that cannot be used; the text says why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BadValue(String);

impl std::fmt::Display for BadValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadValue {}

/// A wall, or the choice left to Stockade.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BackendChoice {
    /// The best that this machine has; never `local`.
    Auto,
    /// This one.
    Named(BackendKind),
}

impl BackendChoice {
    /// The word in settings and on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Named(kind) => kind.name(),
        }
    }
}

/// A sandbox as people name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SandboxRef {
    /// By id.
    Id(SandboxId),
    /// By the name it was given.
    Name(SandboxName),
}

impl SandboxRef {
    /// The text that was written.
    pub(crate) fn as_str(&self) -> &str {
        match self {
            Self::Id(id) => id.as_str(),
            Self::Name(name) => name.as_str(),
        }
    }
}

impl std::fmt::Display for SandboxRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for SandboxRef {
    type Err = BadName;
    fn from_str(text: &str) -> Result<Self, BadName> {
        text.parse().map(Self::Id).or_else(|_| text.parse().map(Self::Name))
    }
}

/// `--mount HOST:GUEST[:MODE]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MountFlag {
    /// As written; may be relative to the current directory.
    pub(crate) host: PathBuf,
    /// Where it appears.
    pub(crate) guest: SafePath,
    /// What may be done to it.
    pub(crate) mode: MountMode,
}

/// `--env NAME[=VALUE]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EnvFlag {
    /// The variable.
    pub(crate) name: String,
    /// Its value; `None` takes the caller's own.
    pub(crate) value: Option<OsString>,
}

/// One end of `sandbox cp`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CopyEnd {
    /// A path here, as written.
    Host(PathBuf),
    /// A path in a sandbox.
    Sandbox {
        /// Which.
        sandbox: SandboxRef,
        /// Where in it.
        path: SafePath,
        /// It was written with a slash at the end, so it means a directory.
        into_directory: bool,
    },
}

pub(super) fn backend_parser() -> impl TypedValueParser<Value = BackendChoice> {
    let names = ["auto"].into_iter().chain(BackendKind::ALL.into_iter().map(BackendKind::name));
    PossibleValuesParser::new(names)
        .map(|word| BackendKind::ALL.into_iter().find(|kind| kind.name() == word).map_or(BackendChoice::Auto, BackendChoice::Named))
}

pub(super) fn mode_parser() -> impl TypedValueParser<Value = MountMode> {
    PossibleValuesParser::new(["overlay", "rw", "ro"]).try_map(|word| word.parse::<MountMode>().map_err(BadValue))
}

pub(super) fn demand_parser() -> impl TypedValueParser<Value = Demand> {
    PossibleValuesParser::new(Demand::ALL.map(Demand::name)).try_map(|word| word.parse::<Demand>())
}

pub(super) fn mount_parser() -> impl TypedValueParser<Value = MountFlag> {
    OsStringValueParser::new().try_map(|text| parse_mount(&text))
}

pub(super) fn env_parser() -> impl TypedValueParser<Value = EnvFlag> {
    OsStringValueParser::new().try_map(|text| parse_env(&text))
}

pub(super) fn secret_parser() -> impl TypedValueParser<Value = SecretBinding> {
    StringValueParser::new().try_map(|text| text.parse::<SecretBinding>())
}

pub(super) fn host_parser() -> impl TypedValueParser<Value = HostPattern> {
    StringValueParser::new().try_map(|text| HostPattern::parse(&text))
}

pub(super) fn safe_path_parser() -> impl TypedValueParser<Value = SafePath> {
    OsStringValueParser::new().try_map(SafePath::new)
}

pub(super) fn copy_parser() -> impl TypedValueParser<Value = CopyEnd> {
    OsStringValueParser::new().try_map(parse_copy_end)
}

fn parse_mount(text: &OsStr) -> Result<MountFlag, BadValue> {
    let parts: Vec<&[u8]> = text.as_bytes().split(|byte| *byte == b':').collect();
    let (host, guest, mode) = match parts.as_slice() {
        [host, guest] => (*host, *guest, MountMode::Ro),
        [host, guest, mode] => {
            let mode = std::str::from_utf8(mode).unwrap_or_default().parse().map_err(BadValue)?;
            (*host, *guest, mode)
        }
        _ => return Err(BadValue("write HOST:GUEST, or HOST:GUEST:MODE with ro, rw or overlay; the paths cannot hold a colon".to_owned())),
    };
    if host.is_empty() {
        return Err(BadValue("the host path is empty".to_owned()));
    }
    let guest = SafePath::new(OsStr::from_bytes(guest)).map_err(|error| BadValue(format!("inside: {error}")))?;
    Ok(MountFlag { host: PathBuf::from(OsStr::from_bytes(host)), guest, mode })
}

fn parse_env(text: &OsStr) -> Result<EnvFlag, BadValue> {
    let bytes = text.as_bytes();
    let (name, value) = match bytes.iter().position(|byte| *byte == b'=') {
        Some(at) => {
            let (name, rest) = bytes.split_at(at);
            (name, rest.split_first().map(|(_, value)| OsString::from_vec(value.to_vec())))
        }
        None => (bytes, None),
    };
    Ok(EnvFlag { name: variable_name(name)?, value })
}

fn variable_name(name: &[u8]) -> Result<String, BadValue> {
    let first = name.first().is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'_');
    let rest = name.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-'));
    match std::str::from_utf8(name) {
        Ok(name) if first && rest => Ok(name.to_owned()),
        _ => Err(BadValue(format!("`{}` is not the name of a variable", escape_bytes(name)))),
    }
}

/// `word:/path` is a sandbox where `word` can be one; a host path of that shape is written `./word:/path`.
fn parse_copy_end(text: OsString) -> Result<CopyEnd, BadValue> {
    let bytes = text.as_bytes();
    if bytes.is_empty() {
        return Err(BadValue("the path is empty".to_owned()));
    }
    let mut halves = bytes.splitn(2, |byte| *byte == b':');
    let (Some(word), Some(path)) = (halves.next(), halves.next()) else { return Ok(CopyEnd::Host(text.into())) };
    let Some(sandbox) = std::str::from_utf8(word).ok().and_then(|word| word.parse::<SandboxRef>().ok()) else {
        return Ok(CopyEnd::Host(text.into()));
    };
    let into_directory = path.ends_with(b"/");
    let path = SafePath::new(OsStr::from_bytes(path)).map_err(|error| BadValue(format!("inside {sandbox}: {error}")))?;
    Ok(CopyEnd::Sandbox { sandbox, path, into_directory })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts() {
        let check = |text: &str, host: &str, guest: &str, mode| {
            let expected = MountFlag { host: host.into(), guest: SafePath::new(guest).unwrap(), mode };
            assert_eq!(parse_mount(OsStr::new(text)), Ok(expected), "{text}");
        };
        check("/a:/b", "/a", "/b", MountMode::Ro);
        check("data:/b/:rw", "data", "/b", MountMode::Rw);
        check("/a:/b:overlay", "/a", "/b", MountMode::Overlay);
        for bad in ["", "/a", ":/b", "/a:b", "/a:/../b", "/a:/b:rx", "/a:/b:", "/a:/b:rw:ro", "/a:ro"] {
            assert!(parse_mount(OsStr::new(bad)).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn variables() {
        let check = |text: &[u8], name: &str, value: Option<&[u8]>| {
            let value = value.map(|value| OsString::from_vec(value.to_vec()));
            assert_eq!(parse_env(OsStr::from_bytes(text)), Ok(EnvFlag { name: name.into(), value }), "{text:?}");
        };
        check(b"A", "A", None);
        check(b"A=", "A", Some(b""));
        check(b"_a1=x=y", "_a1", Some(b"x=y"));
        check(b"A=\xff", "A", Some(b"\xff"));
        for bad in [&b""[..], b"=x", b"1A=x", b"A B=x", b"\xff=x", b"BASH_FUNC_x%%=() { :; }"] {
            assert!(parse_env(OsStr::from_bytes(bad)).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn copy_ends() {
        let host = |text: &str| CopyEnd::Host(text.into());
        for text in ["a", "/a/b", "./box:/x", "/a:/b", "-:/x"] {
            assert_eq!(parse_copy_end(text.into()), Ok(host(text)), "{text}");
        }
        let inside = |path: &str, into_directory| CopyEnd::Sandbox {
            sandbox: "box".parse().unwrap(),
            path: SafePath::new(path).unwrap(),
            into_directory,
        };
        assert_eq!(parse_copy_end("box:/x".into()), Ok(inside("/x", false)));
        assert_eq!(parse_copy_end("box:/x/".into()), Ok(inside("/x", true)));
        for bad in ["", "box:", "box:x", "box:/../x"] {
            assert!(parse_copy_end(bad.into()).is_err(), "{bad:?}");
        }
    }
}
