//! The environment of programs inside: a short list of names, never the caller's whole environment.

use std::collections::BTreeMap;
use std::ffi::OsString;

/// Passed as they are when the caller has them.
const PLAIN: [&str; 9] = ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TERM", "COLORTERM", "TZ"];

/// Variables that name a toolchain's root; passed when that directory exists inside.
pub const TOOLCHAIN_ROOTS: [&str; 16] = [
    "RUSTUP_HOME",
    "CARGO_HOME",
    "NVM_DIR",
    "PYENV_ROOT",
    "RBENV_ROOT",
    "NODENV_ROOT",
    "GOENV_ROOT",
    "ASDF_DATA_DIR",
    "VOLTA_HOME",
    "BUN_INSTALL",
    "SDKMAN_DIR",
    "JAVA_HOME",
    "GOPATH",
    "GOROOT",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
];

/// Variables that choose among installed toolchains; harmless and expected.
const TOOLCHAIN_CHOICES: [&str; 4] = ["RUSTUP_TOOLCHAIN", "PYENV_VERSION", "NODE_VERSION", "CONDA_DEFAULT_ENV"];

/// Used when the caller has no `PATH`.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// One `--env` flag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    /// The variable.
    pub name: String,
    /// Its value; `None`: as the caller has it.
    pub value: Option<OsString>,
}

/// Locale variables; the environment is looked up by name, never copied.
const LOCALE: [&str; 13] = [
    "LC_ALL",
    "LC_ADDRESS",
    "LC_COLLATE",
    "LC_CTYPE",
    "LC_IDENTIFICATION",
    "LC_MEASUREMENT",
    "LC_MESSAGES",
    "LC_MONETARY",
    "LC_NAME",
    "LC_NUMERIC",
    "LC_PAPER",
    "LC_TELEPHONE",
    "LC_TIME",
];

/// Every variable of the caller's that is looked at though no flag names it.
pub const LOOKED_AT: [&[&str]; 4] = [&PLAIN, &LOCALE, &TOOLCHAIN_CHOICES, &TOOLCHAIN_ROOTS];

/// Builds the environment from the caller's variables, the flags, and what is mounted.
pub fn build(
    caller: impl Fn(&str) -> Option<OsString>,
    given: &[Given],
    is_visible: impl Fn(&std::path::Path) -> bool,
) -> Vec<(String, OsString)> {
    let mut inside: BTreeMap<String, OsString> = BTreeMap::new();
    inside.insert("PATH".into(), DEFAULT_PATH.into());
    for name in PLAIN.iter().chain(&LOCALE).chain(&TOOLCHAIN_CHOICES) {
        if let Some(value) = caller(name) {
            inside.insert((*name).to_owned(), value);
        }
    }
    for name in TOOLCHAIN_ROOTS {
        if let Some(value) = caller(name).filter(|v| std::env::split_paths(v).all(|p| is_visible(&p))) {
            inside.insert(name.to_owned(), value);
        }
    }
    for Given { name, value } in given {
        match value.clone().or_else(|| caller(name)) {
            Some(value) => inside.insert(name.clone(), value),
            None => inside.remove(name),
        };
    }
    inside.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller<'a>(pairs: &'a [(&str, &str)]) -> impl Fn(&str) -> Option<OsString> + 'a {
        |name| pairs.iter().find(|(k, _)| *k == name).map(|(_, v)| OsString::from(v))
    }

    #[test]
    fn only_listed_names_go_in() {
        let caller = caller(&[
            ("PATH", "/bin"),
            ("HOME", "/home/a"),
            ("LC_ALL", "C"),
            ("AWS_SECRET_ACCESS_KEY", "x"),
            ("ANTHROPIC_API_KEY", "x"),
            ("SSH_AUTH_SOCK", "/run/x"),
            ("LD_PRELOAD", "/tmp/x.so"),
            ("CARGO_HOME", "/home/a/.cargo"),
            ("NVM_DIR", "/elsewhere"),
            ("KEPT", "1"),
        ]);
        let given = [
            Given { name: "KEPT".into(), value: None },
            Given { name: "NEW".into(), value: Some("2".into()) },
            Given { name: "ABSENT".into(), value: None },
        ];
        let inside = build(caller, &given, |p| p.starts_with("/home/a"));
        let names: Vec<&str> = inside.iter().map(|(n, _)| n.as_str()).collect();
        assert_eq!(names, ["CARGO_HOME", "HOME", "KEPT", "LC_ALL", "NEW", "PATH"]);
    }

    #[test]
    fn path_is_never_missing() {
        let inside = build(|_| None, &[], |_| false);
        assert_eq!(inside, [("PATH".to_owned(), OsString::from(DEFAULT_PATH))]);
    }
}
