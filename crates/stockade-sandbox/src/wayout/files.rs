//! Files that a way out brings along: settings of programs that ask for credentials, and the tool that they ask with.
//!
//! They are shown beneath one directory of our own and nowhere else, each read-only. What may be executed is executable whatever the exec list says:
//! it is a part of the wall, as the guest is.

use std::io;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::AUTHORITIES;
use crate::backends::BackendError;
use crate::backends::jail::plan::REDIRECTS;
use crate::guest;

/// The directory beneath which files are shown.
pub const PLACE: &str = REDIRECTS;
/// The most files of one way out. Started by root, a sandbox takes each as a descriptor of one message.
pub const MOST_SHOWN: usize = 32;
/// Where copies of git configurations are.
const REDIRECTED: &str = "git-config-";

/// A file that is shown inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// The file on the host, in the sandbox's own directory. Whoever runs inside must be allowed to read it.
    pub file: PathBuf,
    /// Where it is inside, beneath [`PLACE`].
    pub place: PathBuf,
    /// What it is for.
    pub use_: Use,
}

/// What a shown file is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Use {
    /// It is read.
    Read,
    /// It is executed, too, whatever list there is.
    Execute,
}

/// Puts the guest program into a sandbox's directory as a file to be shown for [`Use::Execute`]: started by the name of a tool it is that tool. It
/// is made once per version in `programs` (see [`crate::state::programs`]) and linked from there, so that a sandbox costs no copy.
pub fn helper(programs: &Path, directory: &Path) -> io::Result<PathBuf> {
    guest::tool(programs, directory).map_err(|errno| match errno {
        rustix::io::Errno::NOEXEC => io::Error::other(format!("nothing may be executed on the file system of `{}`", directory.display())),
        errno => errno.into(),
    })
}

/// Refuses what is too much, or would be anywhere else than at a place of its own.
pub(super) fn check(shown: &[Shown], agent: Option<&Path>) -> Result<(), BackendError> {
    let refuse = |detail: String| Err(BackendError::Step { step: "way out".into(), detail, fix: String::new() });
    if shown.len() > MOST_SHOWN {
        return refuse(format!("{} files are to be shown, and {MOST_SHOWN} can be", shown.len()));
    }
    let places: Vec<&Path> = shown.iter().map(|one| one.place.as_path()).chain(agent).collect();
    for (at, place) in places.iter().enumerate() {
        let written = stockade_core::escape::escape(&place.to_string_lossy());
        if !is_ours(place) {
            return refuse(format!("`{written}` is no place for a file of ours: they are beneath `{PLACE}`"));
        }
        if places.iter().take(at).any(|other| place.starts_with(other) || other.starts_with(place)) {
            return refuse(format!("`{written}` is the place of two files"));
        }
    }
    Ok(())
}

/// Whether a path is a file beneath a directory by its words alone.
pub(crate) fn is_beneath(path: &Path, directory: &Path) -> bool {
    let Ok(rest) = path.strip_prefix(directory) else { return false };
    rest.components().next().is_some() && rest.components().all(|part| matches!(part, Component::Normal(_)))
}

/// Beneath our directory, written in one way only, and nothing else's place.
fn is_ours(place: &Path) -> bool {
    let plain = place.components().collect::<PathBuf>().as_os_str() == place.as_os_str();
    let first = place.strip_prefix(PLACE).ok().and_then(|rest| rest.components().next());
    let redirected = first.is_some_and(|first| first.as_os_str().to_string_lossy().starts_with(REDIRECTED));
    plain && is_beneath(place, Path::new(PLACE)) && !redirected && !place.starts_with(AUTHORITIES)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(places: &[&str]) -> Vec<Shown> {
        places.iter().map(|place| Shown { file: "/state/x/f".into(), place: place.into(), use_: Use::Read }).collect()
    }

    #[test]
    fn places_are_ours_and_apart() {
        assert!(
            check(&shown(&["/run/stockade/bin/a", "/run/stockade/bin/b", "/run/stockade/c"]), Some(Path::new("/run/stockade/d"))).is_ok()
        );
        for place in [
            "/run/stockade",
            "/run/stockade/",
            "/run/stockade/../x",
            "/run/stockade/./x",
            "/run/stockade//x",
            "/run/stockade/x/",
            "/run/stockadex/y",
            "run/stockade/x",
            "/etc/passwd",
            "/run/stockade/authorities.pem",
            "/run/stockade/git-config-1/config",
            "",
        ] {
            assert!(check(&shown(&[place]), None).is_err(), "{place}");
            assert!(check(&[], Some(Path::new(place))).is_err(), "{place}");
        }
        for places in
            [["/run/stockade/a", "/run/stockade/a"], ["/run/stockade/a", "/run/stockade/a/b"], ["/run/stockade/a/b", "/run/stockade/a"]]
        {
            assert!(check(&shown(&places), None).is_err(), "{places:?}");
            assert!(check(&shown(&places[..1]), Some(Path::new(places[1]))).is_err(), "{places:?}");
        }
        let many: Vec<String> = (0..=MOST_SHOWN).map(|at| format!("/run/stockade/{at}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(check(&shown(&many), None).is_err());
        assert!(check(&shown(&many[1..]), None).is_ok());
    }

    #[test]
    fn words_that_lead_out_of_a_directory_are_not_beneath_it() {
        for (path, expected) in [("/s/x/f", true), ("/s/x/d/f", true), ("/s/x", false), ("/s/xf", false), ("/s/x/../y", false)] {
            assert_eq!(is_beneath(Path::new(path), Path::new("/s/x")), expected, "{path}");
        }
    }
}
