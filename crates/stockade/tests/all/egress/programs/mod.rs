//! Programs that people use, with a placeholder for their token: each goes through the proxy, and through without knowing one.
//!
//! A program counts as working when it says what it says without a wall, the server got the value, and the program saw the placeholder.

mod clients;
mod protocols;
mod registries;

use super::world::{VALUE, words};
use super::{World, as_both};

/// Where `cargo xtask test` puts the Python packages that `requirements.txt` names.
const PACKAGES: &str = "/var/cache/stockade-test/python";
const REQUIREMENTS: &str = include_str!("requirements.txt");
/// For programs that read them: there is no proxy.
const UNAWARE: &str = "unset HTTP_PROXY HTTPS_PROXY ALL_PROXY http_proxy https_proxy all_proxy NO_PROXY no_proxy; ";

/// The Python packages, which must be those that are asked for.
pub(crate) fn packages() -> &'static str {
    let installed = std::fs::read_to_string(format!("{PACKAGES}/requirements.txt")).unwrap_or_default();
    assert_eq!(installed, REQUIREMENTS, "`cargo xtask test` installs the Python packages of these tests");
    PACKAGES
}

/// A Python program with the packages, as a command of a script, and the flags that show them inside.
fn python(world: &World, program: &str, arguments: &str, flags: &[String]) -> (String, Vec<String>) {
    let packages = packages();
    world.file("client.py", program);
    let shown = ["--mount".to_owned(), format!("{packages}:{packages}:ro")];
    (format!("PYTHONPATH={packages} python3 client.py {arguments}"), [flags, &shown].concat())
}

/// Runs a script inside, with the proxy's variables and without; it must say this both times.
fn both_ways(world: &World, flags: &[String], script: &str, says: &str) {
    for before in ["", UNAWARE] {
        let script = format!("{before}{script}");
        let outcome = world.inside(&words(flags), &script);
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), says), "as {:?}: {script}: {outcome:?}", world.who);
        assert!(!outcome.stderr.contains(VALUE), "{}", outcome.stderr);
    }
}
