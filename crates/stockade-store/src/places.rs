//! Where Stockade keeps its files, from the environment as the XDG base directory specification says.
//!
//! Only paths are worked out here; nothing is created. The machine's directory is fixed: an environment variable that
//! moved it would let anybody step around the administrator.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use stockade_core::escape::escape_bytes;

/// Where the machine's own settings and policy lie.
const MACHINE: &str = "/etc/stockade";

/// The directories Stockade uses. Tests build it by hand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    /// The person's home directory.
    pub home: PathBuf,
    /// What Stockade remembers: `$XDG_STATE_HOME/stockade`.
    pub state: PathBuf,
    /// The person's settings and policy: `$XDG_CONFIG_HOME/stockade`.
    pub config: PathBuf,
    /// Sockets: `$XDG_RUNTIME_DIR/stockade` where that is private, else `run` beneath the state.
    pub runtime: PathBuf,
    /// The administrator's settings and policy.
    pub machine: PathBuf,
}

/// Every variable that places are worked out from.
pub const LOOKED_AT: [&str; 4] = ["HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"];

/// Why the places cannot be worked out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlacesError {
    /// No home directory is known.
    #[error("the environment variable HOME is not set")]
    NoHome,
    /// A home directory that depends on the current one.
    #[error("the environment variable HOME is `{0}`, which is not an absolute path")]
    RelativeHome(String),
}

impl Places {
    /// Works the places out from an environment, looked up by name.
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<OsString>) -> Result<Self, PlacesError> {
        let home = lookup("HOME").filter(|value| !value.is_empty()).map(PathBuf::from).ok_or(PlacesError::NoHome)?;
        if !home.is_absolute() {
            return Err(PlacesError::RelativeHome(escape_bytes(home.as_os_str().as_encoded_bytes())));
        }
        // The specification: a relative path in one of these variables is invalid and is to be ignored.
        let absolute = |name: &str| lookup(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let state = absolute("XDG_STATE_HOME").unwrap_or_else(|| home.join(".local/state")).join("stockade");
        let config = absolute("XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config")).join("stockade");
        let runtime = match absolute("XDG_RUNTIME_DIR") {
            Some(directory) if is_private(&directory) => directory.join("stockade"),
            Some(_) | None => state.join("run"),
        };
        Ok(Self { home, state, config, runtime, machine: PathBuf::from(MACHINE) })
    }

    /// The person's settings file.
    pub fn user_settings(&self) -> PathBuf {
        self.config.join("settings.json")
    }

    /// The machine's settings file.
    pub fn machine_settings(&self) -> PathBuf {
        self.machine.join("settings.json")
    }
}

/// Whether a directory is ours alone, as the specification demands of the runtime directory.
fn is_private(directory: &Path) -> bool {
    std::fs::symlink_metadata(directory)
        .is_ok_and(|found| found.is_dir() && found.uid() == rustix::process::geteuid().as_raw() && found.mode() & 0o7777 == 0o700)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn places(variables: &[(&str, &str)]) -> Result<Places, PlacesError> {
        Places::from_lookup(|name| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| OsString::from(v)))
    }

    #[test]
    fn defaults_lie_beneath_home() {
        let expected = Places {
            home: "/home/a".into(),
            state: "/home/a/.local/state/stockade".into(),
            config: "/home/a/.config/stockade".into(),
            runtime: "/home/a/.local/state/stockade/run".into(),
            machine: "/etc/stockade".into(),
        };
        assert_eq!(places(&[("HOME", "/home/a")]), Ok(expected.clone()));
        let relative = [("HOME", "/home/a"), ("XDG_STATE_HOME", "state"), ("XDG_CONFIG_HOME", ""), ("XDG_RUNTIME_DIR", "./run")];
        assert_eq!(places(&relative), Ok(expected));
    }

    #[test]
    fn absolute_variables_are_used() {
        let found = places(&[("HOME", "/h"), ("XDG_STATE_HOME", "/s"), ("XDG_CONFIG_HOME", "/c"), ("STOCKADE_MACHINE", "/m")]).unwrap();
        assert_eq!(
            (found.state, found.config, found.runtime, found.machine),
            ("/s/stockade".into(), "/c/stockade".into(), "/s/stockade/run".into(), PathBuf::from("/etc/stockade"))
        );
    }

    #[test]
    fn home_is_named_when_it_is_missing_or_relative() {
        assert_eq!(places(&[]), Err(PlacesError::NoHome));
        assert_eq!(places(&[("HOME", "")]), Err(PlacesError::NoHome));
        assert_eq!(places(&[("HOME", "me\u{7}")]), Err(PlacesError::RelativeHome("me\\u{7}".into())));
        assert!(PlacesError::NoHome.to_string().contains("HOME"));
    }

    #[test]
    fn the_runtime_directory_must_be_private() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_str().unwrap();
        let variables = [("HOME", "/h"), ("XDG_RUNTIME_DIR", path)];
        for (mode, private) in [(0o700, true), (0o755, false), (0o1700, false), (0o500, false)] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
            let expected = if private { directory.path().join("stockade") } else { "/h/.local/state/stockade/run".into() };
            assert_eq!(places(&variables).unwrap().runtime, expected, "{mode:o}");
        }
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700)).unwrap();
        std::os::unix::fs::chown(path, Some(65534), None).unwrap();
        assert_eq!(places(&variables).unwrap().runtime, Path::new("/h/.local/state/stockade/run"), "another's directory");
    }
}
