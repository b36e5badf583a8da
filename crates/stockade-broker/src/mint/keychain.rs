//! The operating system's keychain: Linux's Secret Service by `secret-tool`, that of macOS by `security`.
//!
//! Decision: programs, and no crate. The Secret Service is spoken to over D-Bus; the crate `keyring` brings 37 others for that, with an async
//! runtime and its own cryptography, into the process that holds every secret. The broker runs programs already, bounded in bytes and time, and
//! these two come from whoever made the keychain. It would change if a desktop came without them, or if items had to be written.
//!
//! Both take the first item that has the two attributes. `security` prints what is not ASCII as digits in base sixteen, so such a value cannot
//! be used from there; from Linux it is refused as every such value is.

use stockade_store::settings::providers::Keychain;

use super::program::{Hints, operand, value_of};
use super::{Asking, MintError, Minted, told};

const STEP: &str = "reading from the keychain";

/// Whose keychain it is.
#[derive(Clone, Copy)]
enum System {
    Linux,
    Mac,
}

/// This machine.
const HERE: System = if cfg!(target_os = "macos") { System::Mac } else { System::Linux };

/// Has the keychain's own program print the item.
pub(crate) fn mint(keychain: &Keychain, asking: &Asking<'_>) -> Result<Minted, MintError> {
    let service = operand(STEP, "service", &keychain.service)?;
    let account = operand(STEP, "account", &keychain.account)?;
    let scope = format!("service {service} account {account}");
    let argv = HERE.argv(&service, &account);
    Ok(Minted::new(value_of(STEP, &argv, asking, HERE.hints())?, None, told::scope(&scope)))
}

impl System {
    fn argv(self, service: &str, account: &str) -> Vec<String> {
        match self {
            Self::Linux => ["secret-tool", "lookup", "service", service, "account", account].map(str::to_owned).to_vec(),
            Self::Mac => ["security", "find-generic-password", "-s", service, "-a", account, "-w"].map(str::to_owned).to_vec(),
        }
    }

    fn hints(self) -> Hints {
        let (missing, keep) = match self {
            Self::Linux => (
                "install secret-tool (Debian and Ubuntu: libsecret-tools; Fedora: libsecret)",
                "secret-tool store --label=LABEL service SERVICE account ACCOUNT",
            ),
            Self::Mac => {
                ("`security` is part of macOS; see whether /usr/bin is in PATH", "security add-generic-password -s SERVICE -a ACCOUNT -w")
            }
        };
        Hints { missing: missing.to_owned(), failed: format!("unlock the keychain, or keep the item once: {keep}") }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::mint::stand_in::{ask, ask_in, program};

    fn setting(service: &str, account: &str) -> serde_json::Value {
        json!({"source": "keychain", "service": service, "account": account})
    }

    #[test]
    fn each_system_is_asked_in_its_own_words() {
        let words = |system: System| system.argv("a b", "c").join("|");
        assert_eq!(words(System::Linux), "secret-tool|lookup|service|a b|account|c");
        assert_eq!(words(System::Mac), "security|find-generic-password|-s|a b|-a|c|-w");
        let here = if cfg!(target_os = "macos") { "security" } else { "secret-tool" };
        let tool = program(here, "echo the-value-of-the-item");
        let minted = ask_in(tool.path(), &setting("example.com", "me"), &[]).unwrap();
        assert_eq!((minted.value.to_text().as_str(), minted.scope.as_str()), ("the-value-of-the-item", "service example.com account me"));
        assert!(minted.expires.is_none() && minted.revoke.is_none());
    }

    #[test]
    fn what_is_not_there_or_not_a_value_is_told_with_what_to_do() {
        for script in ["exit 1", "echo the-value-of-the-item; exit 1", "printf 'the-value\\nof-the-item'", "true"] {
            let error = ask_in(program("secret-tool", script).path(), &setting("s", "a"), &[]).err().unwrap();
            let told = format!("{error} {error:?}");
            assert!(
                told.contains("reading from the keychain") && told.contains("secret-tool store") && !told.contains("the-value"),
                "{told}"
            );
        }
        assert!(ask_in("/nowhere", &setting("s", "a"), &[]).err().unwrap().hint.unwrap().contains("libsecret-tools"));
        for (service, account) in [("--all", "a"), ("s", "-w")] {
            assert!(ask(&setting(service, account), &[]).err().unwrap().why.contains("option"));
        }
    }

    /// The real thing: a bus and a keyring of its own, with an item in it. Needs `dbus-daemon`, `gnome-keyring` and `libsecret-tools`.
    #[test]
    fn gnome_keyring_gives_what_secret_tool_kept() {
        let script = r#"
            export HOME="$PWD" XDG_RUNTIME_DIR="$PWD" XDG_DATA_HOME="$PWD" XDG_CACHE_HOME="$PWD" PATH=/usr/bin:/bin
            unset DISPLAY WAYLAND_DISPLAY DBUS_SESSION_BUS_ADDRESS
            exec dbus-run-session -- sh -c '
                printf "\n" | gnome-keyring-daemon --unlock --components=secrets > /dev/null
                printf the-value-in-the-keyring | secret-tool store --label=test service example.com account me
                exec secret-tool "$@"' sh "$@""#;
        let tool = program("secret-tool", script);
        let found = ask_in(tool.path(), &setting("example.com", "me"), &[]).map(|minted| minted.value.to_text().to_string());
        assert_eq!(found.as_deref(), Ok("the-value-in-the-keyring"), "packages: dbus-daemon gnome-keyring libsecret-tools");
        let error = ask_in(tool.path(), &setting("example.com", "somebody else"), &[]).err().unwrap();
        assert!(error.why.contains("exit status: 1"), "{error}");
    }
}
