//! What `doctor --fix` would change, as a plan: every file with its contents, every command with its words. Pure but for reading.
//!
//! A change is narrow where that is possible: AppArmor gets a profile for this one program and its restriction stays. Only where a
//! distribution switched user namespaces off altogether is its own switch turned. What is right already is not in the plan.

use std::path::{Path, PathBuf};

use serde::Serialize;
use stockade_sandbox::surroundings::Obstacle;
use stockade_sandbox::surroundings::facts::Facts;
use stockade_store::places::Places;

/// Where AppArmor looks for profiles.
const PROFILE: &str = "/etc/apparmor.d/stockade";
/// Loads a profile. Named by its path: nothing on `PATH` is trusted, least of all as root.
const APPARMOR_PARSER: &str = "/usr/sbin/apparmor_parser";
/// Profiles that the kernel has.
const LOADED: &str = "/sys/kernel/security/apparmor/profiles";
/// Switches that stay as they are after a restart.
const SYSCTL: &str = "/etc/sysctl.d/60-stockade.conf";
/// Gives users' sessions the controllers that limits need.
const DELEGATE: &str = "/etc/systemd/system/user@.service.d/60-stockade.conf";
const DELEGATE_TEXT: &str =
    "# Written by `stockade doctor --fix`: limits of sandboxes that ordinary users start.\n[Service]\nDelegate=cpu cpuset io memory pids\n";
const SYSTEMCTL: &str = "/usr/bin/systemctl";
/// The profile as it is shipped, and the path in it that is replaced.
const SHIPPED: &str = include_str!("../../../../../packaging/apparmor/stockade");
const SHIPPED_PATH: &str = "\"/usr/bin/stockade\"";
/// As many user namespaces as Debian's kernels allow on a small machine.
const NAMESPACES: &str = "15000";

/// Who may make a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Needs {
    /// Root.
    Root,
    /// Whoever runs this.
    Anybody,
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Deed {
    /// Write a file of mode 0644, making the directory it is in.
    Write { path: PathBuf, contents: String },
    /// Turn a switch of the running kernel.
    Set { path: PathBuf, value: String },
    /// Run a program.
    Run { argv: Vec<String> },
    /// Make a directory that only this user can enter.
    Private { path: PathBuf },
}

/// A deed and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Change {
    pub(super) needs: Needs,
    pub(super) why: String,
    pub(super) deed: Deed,
}

/// What is there already.
pub(super) trait Existing {
    /// A file's text; `None` where there is no such file or it cannot be read.
    fn text(&self, path: &Path) -> Option<String>;
}

/// The machine.
pub(super) struct Machine;

impl Existing for Machine {
    fn text(&self, path: &Path) -> Option<String> {
        std::fs::read_to_string(path).ok()
    }
}

/// Everything that would be changed for ordinary users of this machine to have jails.
pub(super) fn plan(facts: &Facts, program: &Path, user: Option<u32>, existing: &dyn Existing) -> Result<Vec<Change>, String> {
    // Root is held up by less; the question is what everybody else needs.
    let foreseen = Obstacle::foreseen(&Facts { root: false, ..facts.clone() });
    let mut changes = Vec::new();
    let mut keys = Vec::new();
    for obstacle in foreseen {
        match obstacle {
            Obstacle::UserNamespacesOff => keys.push(("user.max_user_namespaces", NAMESPACES, obstacle.why())),
            Obstacle::OrdinaryUsersRefused => keys.push(("kernel.unprivileged_userns_clone", "1", obstacle.why())),
            Obstacle::AppArmor => apparmor(program, existing, &mut changes)?,
            // No matter of settings, or (memory files) a protection of the whole machine that a person has to weigh.
            Obstacle::OldKernel
            | Obstacle::MemoryFiles
            | Obstacle::UserNamespacesUsedUp
            | Obstacle::Filter(_)
            | Obstacle::ProcCovered(_)
            | Obstacle::RootWithoutMounts(_)
            | Obstacle::NoLandlock
            | Obstacle::Unknown => {}
        }
    }
    sysctls(&keys, existing, &mut changes);
    delegation(user, existing, &mut changes);
    Ok(changes)
}

/// Directories of this user's own.
pub(super) fn own(places: &Places, is_private: impl Fn(&Path) -> bool) -> Vec<Change> {
    [&places.state, &places.runtime]
        .into_iter()
        .filter(|path| !is_private(path))
        .map(|path| Change {
            needs: Needs::Anybody,
            why: "state and sockets are for this user alone".into(),
            deed: Deed::Private { path: path.clone() },
        })
        .collect()
}

fn apparmor(program: &Path, existing: &dyn Existing, changes: &mut Vec<Change>) -> Result<(), String> {
    let contents = profile(program)?;
    let why = || format!("AppArmor gives user namespaces no rights; the profile gives them to `{}` alone", program.display());
    let stands = existing.text(Path::new(PROFILE)).is_some_and(|found| found == contents);
    if !stands {
        changes.push(Change { needs: Needs::Root, why: why(), deed: Deed::Write { path: PROFILE.into(), contents } });
    }
    // Only root can read the list; for others a profile that stands is taken for loaded.
    let loaded = existing.text(Path::new(LOADED)).is_none_or(|list| list.lines().any(|line| line.starts_with("stockade (")));
    if !(stands && loaded) {
        let argv = [APPARMOR_PARSER, "-r", PROFILE].map(str::to_owned).to_vec();
        changes.push(Change { needs: Needs::Root, why: "loads the profile".into(), deed: Deed::Run { argv } });
    }
    Ok(())
}

/// The shipped profile for the program that runs.
pub(super) fn profile(program: &Path) -> Result<String, String> {
    let path = program.to_str().ok_or("the path of this program is not text")?;
    let mut quoted = String::from("\"");
    for letter in path.chars() {
        match letter {
            '"' | '@' => {
                return Err(format!("`{path}` cannot be named in an AppArmor profile: install stockade as /usr/local/bin/stockade"));
            }
            letter if letter.is_control() => return Err("the path of this program has a control character in it".into()),
            // What means a pattern is a plain letter here.
            '*' | '?' | '[' | ']' | '{' | '}' | '^' | '\\' | ',' => quoted.extend(['\\', letter]),
            letter => quoted.push(letter),
        }
    }
    quoted.push('"');
    Ok(SHIPPED.replace(SHIPPED_PATH, &quoted))
}

fn sysctls(keys: &[(&str, &str, &str)], existing: &dyn Existing, changes: &mut Vec<Change>) {
    if keys.is_empty() {
        return;
    }
    let mut contents = existing.text(Path::new(SYSCTL)).unwrap_or_else(|| "# Written by `stockade doctor --fix`.\n".to_owned());
    for (key, value, _) in keys {
        let line = format!("{key} = {value}\n");
        if !contents.contains(&line) {
            contents.push_str(&line);
        }
    }
    let whys: Vec<&str> = keys.iter().map(|(.., why)| *why).collect();
    changes.push(Change { needs: Needs::Root, why: whys.join("; "), deed: Deed::Write { path: SYSCTL.into(), contents } });
    for (key, value, why) in keys {
        let path = Path::new("/proc/sys").join(key.replace('.', "/"));
        changes.push(Change { needs: Needs::Root, why: (*why).to_owned(), deed: Deed::Set { path, value: (*value).to_owned() } });
    }
}

/// Where systemd runs a user's session without the controllers that limits need.
fn delegation(user: Option<u32>, existing: &dyn Existing, changes: &mut Vec<Change>) {
    let Some(user) = user else { return };
    let controllers = format!("/sys/fs/cgroup/user.slice/user-{user}.slice/user@{user}.service/cgroup.controllers");
    let Some(found) = existing.text(Path::new(&controllers)) else { return };
    let complete = ["cpu", "io", "memory", "pids"].iter().all(|wanted| found.split_whitespace().any(|word| word == *wanted));
    let written = existing.text(Path::new(DELEGATE)).is_some_and(|text| text == DELEGATE_TEXT);
    if complete || written {
        return;
    }
    let why = "sessions of ordinary users lack controllers that limits need; in force after the next login".to_owned();
    changes.push(Change { needs: Needs::Root, why, deed: Deed::Write { path: DELEGATE.into(), contents: DELEGATE_TEXT.into() } });
    let argv = [SYSTEMCTL, "daemon-reload"].map(str::to_owned).to_vec();
    changes.push(Change { needs: Needs::Root, why: "systemd reads it".into(), deed: Deed::Run { argv } });
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    struct Given(BTreeMap<PathBuf, String>);

    impl Existing for Given {
        fn text(&self, path: &Path) -> Option<String> {
            self.0.get(path).cloned()
        }
    }

    fn given(files: &[(&str, &str)]) -> Given {
        Given(files.iter().map(|(path, text)| (PathBuf::from(path), (*text).to_owned())).collect())
    }

    fn facts() -> Facts {
        Facts { root: true, kernel: (6, 8), max_user_namespaces: Some(9), ..Facts::default() }
    }

    const PROGRAM: &str = "/usr/local/bin/stockade";

    fn deeds(facts: &Facts, user: Option<u32>, existing: &Given) -> Vec<Deed> {
        plan(facts, Path::new(PROGRAM), user, existing).unwrap().into_iter().map(|change| change.deed).collect()
    }

    #[test]
    fn nothing_is_changed_where_nothing_is_wrong() {
        assert_eq!(deeds(&facts(), Some(1000), &given(&[])), []);
    }

    #[test]
    fn apparmor_keeps_its_restriction() {
        let ubuntu = Facts { apparmor_restriction: Some(1), ..facts() };
        let found = deeds(&ubuntu, None, &given(&[]));
        let [Deed::Write { path, contents }, Deed::Run { argv }] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!(path, Path::new(PROFILE));
        assert!(contents.contains("profile stockade \"/usr/local/bin/stockade\" flags=(unconfined) {\n  userns,"), "{contents}");
        assert_eq!(argv.join(" "), "/usr/sbin/apparmor_parser -r /etc/apparmor.d/stockade");
        // A second time: only what is not right yet.
        let written = given(&[(PROFILE, contents), (LOADED, "unconfined (unconfined)\n")]);
        assert!(matches!(deeds(&ubuntu, None, &written).as_slice(), [Deed::Run { .. }]));
        assert_eq!(deeds(&ubuntu, None, &given(&[(PROFILE, contents)])), []);
        let loaded = given(&[(PROFILE, contents), (LOADED, "unconfined (unconfined)\nstockade (unconfined)\n")]);
        assert_eq!(deeds(&ubuntu, None, &loaded), []);
    }

    #[test]
    fn paths_in_profiles_are_letters_and_not_patterns() {
        assert!(profile(Path::new("/opt/a b*{c}/stockade")).unwrap().contains("profile stockade \"/opt/a b\\*\\{c\\}/stockade\" "));
        for bad in ["/opt/\"x", "/opt/@{HOME}", "/opt/new\nline"] {
            assert!(profile(Path::new(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_switch_is_turned_and_stays() {
        let off = Facts { max_user_namespaces: Some(0), unprivileged_userns_clone: Some(0), ..facts() };
        let found = deeds(&off, None, &given(&[(SYSCTL, "# mine\nuser.max_user_namespaces = 15000\n")]));
        let set = |path: &str, value: &str| Deed::Set { path: path.into(), value: value.into() };
        let contents = "# mine\nuser.max_user_namespaces = 15000\nkernel.unprivileged_userns_clone = 1\n".to_owned();
        let expected = [
            Deed::Write { path: SYSCTL.into(), contents },
            set("/proc/sys/user/max_user_namespaces", NAMESPACES),
            set("/proc/sys/kernel/unprivileged_userns_clone", "1"),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn controllers_are_delegated_where_a_session_lacks_them() {
        let session = "/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/cgroup.controllers";
        assert_eq!(deeds(&facts(), Some(1000), &given(&[(session, "cpu io memory pids\n")])), []);
        let found = deeds(&facts(), Some(1000), &given(&[(session, "memory pids\n")]));
        assert!(matches!(found.as_slice(), [Deed::Write { .. }, Deed::Run { .. }]), "{found:?}");
        assert_eq!(deeds(&facts(), Some(1000), &given(&[(session, "memory pids\n"), (DELEGATE, DELEGATE_TEXT)])), []);
    }
}
