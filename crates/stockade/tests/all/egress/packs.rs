//! Capabilities with hosts: what a pack's manifest names is reached and nothing else, and one that only reads sends GET and HEAD alone.

use super::world::VALUE;
use super::{World, as_both};
use crate::wall::ground::finish_with;

/// Installs a pack whose capability runs curl with a method of the caller's choice.
fn install(world: &World, effect: &str) {
    let port = world.secure;
    world.file("net/pack.toml", "name = \"net\"\nversion = \"1.0.0\"\ndescription = \"d\"\npublisher = \"acme\"\n");
    let capability = format!(
        r#"
name = "net.ask"
description = "Ask a server."
effect = "{effect}"
program = "curl"
args = ["--disable", "-sS", "-w", "%{{{{http_code}}}}", "-X", "{{method}}", "-H", "X-Key: sandbox", "https://{{host}}:{port}/hello"]
[input]
required = ["host", "method"]
[input.properties]
host = {{ type = "string" }}
method = {{ type = "string" }}
[sandbox]
hosts = ["api.test:{port}", "127.0.0.1:{port}"]
[[examples]]
input = {{ host = "a", method = "GET" }}
argv = ["curl", "--disable", "-sS", "-w", "%{{http_code}}", "-X", "GET", "-H", "X-Key: sandbox", "https://a:{port}/hello"]
"#
    );
    world.file("net/capabilities/net.ask.toml", &capability);
    let outcome = world.stockade(&["pack", "install", "net", "--unsigned", "--yes"]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
}

fn ask(world: &World, host: &str, method: &str) -> String {
    let (host, method) = (format!("host={host}"), format!("method={method}"));
    world.stockade(&["cap", "run", "net.ask", "-i", &host, "-i", &method]).stdout
}

#[test]
fn a_capability_that_reads_sends_nothing_else() {
    as_both(|world| {
        install(world, "read");
        assert_eq!(ask(world, "api.test", "GET"), "hello from outside\n200");
        let before = world.seen().len();
        for method in ["POST", "PUT", "DELETE", "PATCH"] {
            let told = ask(world, "api.test", method);
            assert!(told.contains("is not an allowed method") && told.ends_with("403"), "{method}: {told}");
        }
        assert_eq!(world.seen().len(), before, "nothing of it got out");
        assert!(!ask(world, "denied.test", "GET").ends_with("200"), "a host that the manifest does not name");
        world.all_ended();
    });
}

/// A capability of the built-in pack `gh`, asking the server outside in place of GitHub.
fn install_issues(world: &World) {
    let port = world.secure;
    let manifest = include_str!("../../../../../packs/gh/capabilities/gh.issues.toml");
    let manifest = manifest
        .replace("\"gh.issues\"", "\"hub.issues\"")
        .replace("\"--\", \"repos/", &format!("\"--\", \"https://api.test:{port}/echo/repos/"))
        .replace("hosts = [\"api.github.com\"] }]", &format!("hosts = [\"api.test:{port}\"] }}]"))
        .replace("hosts = [\"api.github.com\"]", &format!("hosts = [\"api.test:{port}\", \"127.0.0.1:{port}\"]"))
        // What gh calls the token of a host that is not GitHub's own.
        .replace("\"GH_TOKEN\"", "\"GH_ENTERPRISE_TOKEN\"");
    assert!(!manifest.contains("github.com\"") && !manifest.contains("\"GH_TOKEN\""), "{manifest}");
    world.file("hub/pack.toml", "name = \"hub\"\nversion = \"1.0.0\"\ndescription = \"d\"\npublisher = \"acme\"\n");
    world.file("hub/capabilities/hub.issues.toml", &manifest);
    let outcome = world.stockade(&["pack", "install", "hub", "--unsigned", "--yes"]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
}

#[test]
fn gh_asks_with_a_token_that_it_never_holds() {
    as_both(|world| {
        install_issues(world);
        let call = ["cap", "run", "hub.issues", "-i", "owner=cli", "-i", "repo=.github", "-i", "labels=a b&state=closed"];
        let without = world.stockade(&call);
        assert!(without.code == Some(125) && without.stderr.contains("stockade secret set GH_ENTERPRISE_TOKEN"), "{without:?}");
        let set = [world.binary.to_str().expect("a path"), "secret", "set", "GH_ENTERPRISE_TOKEN"];
        let kept = finish_with(&mut world.command(set), VALUE.as_bytes());
        assert_eq!(kept.code, Some(0), "{kept:?}");
        let outcome = world.stockade(&call);
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        let seen = world.seen();
        assert_eq!(seen.len(), 1, "{seen:?}");
        assert_eq!((&seen[0]["method"], &seen[0]["headers"]["authorization"]), (&"GET".into(), &format!("token {VALUE}").into()));
        let asked = "/echo/repos/cli/.github/issues?labels=a+b%26state%3Dclosed&page=1&per_page=30&state=open";
        assert_eq!(seen[0]["path"], asked, "one value stays one value");
        assert!(outcome.stdout.contains("token ghp_") && !outcome.stdout.contains(VALUE), "the echo shows the placeholder: {outcome:?}");
        world.all_ended();
    });
}
