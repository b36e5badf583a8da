//! A confined server's calls have their way out all the same: egress and broker are started for it, and the value of a secret is never in it.

use serde_json::json;

use super::world::VALUE;
use super::{World, as_both};
use crate::daemon::held::is_held;
use crate::mcp::client::Client;
use crate::mcp::{rules, verified};
use crate::wall::ground::finish_with;

const PERMIT: &str = "permit (principal, action, resource);";

/// Installs a pack whose capability asks a server with a secret.
fn install(world: &World) {
    let port = world.secure;
    world.file("net/pack.toml", "name = \"net\"\nversion = \"1.0.0\"\ndescription = \"d\"\npublisher = \"acme\"\n");
    let capability = format!(
        r#"
name = "net.ask"
description = "Ask a server."
effect = "read"
program = "sh"
args = ["-c", "exec curl --disable -sS -H \"Authorization: Bearer $TOKEN\" https://api.test:{port}/echo"]
credentials = [{{ adapter = "secret", secret = "TOKEN", hosts = ["api.test:{port}"] }}]
[sandbox]
hosts = ["api.test:{port}", "127.0.0.1:{port}"]
exec = ["curl"]
[[examples]]
input = {{}}
argv = ["sh", "-c", "exec curl --disable -sS -H \"Authorization: Bearer $TOKEN\" https://api.test:{port}/echo"]
"#
    );
    world.file("net/capabilities/net.ask.toml", &capability);
    let outcome = world.stockade(&["pack", "install", "net", "--unsigned", "--yes"]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
}

#[test]
fn a_secret_goes_out_and_the_server_never_has_it() {
    as_both(|world| {
        install(world);
        rules(&world.ground, PERMIT);
        let set = [world.binary.to_str().expect("a path"), "secret", "set", "TOKEN"];
        let kept = finish_with(&mut world.command(set), VALUE.as_bytes());
        assert_eq!(kept.code, Some(0), "{kept:?}");
        // Only the store has it: the one place that the server does not see.
        let words = ["env", "-u", "TOKEN", world.binary.to_str().expect("a path"), "mcp"];
        let mut client = Client::greeted(Client::of(&mut world.command(words)));
        for _ in 0..2 {
            let told = client.call("net_ask", &json!({}));
            assert_eq!(told["structuredContent"]["exit_code"], 0, "{told}");
            assert!(!told.to_string().contains(VALUE), "{told}");
        }
        let seen = world.seen();
        assert_eq!(seen.len(), 2, "{seen:?}");
        assert_eq!(seen[0]["headers"]["authorization"], format!("Bearer {VALUE}"), "{seen:?}");
        is_held(&world.ground, client.pid());
        assert_eq!(client.close().0, Some(0));
        world.all_ended();
        verified(&world.ground);
    });
}
