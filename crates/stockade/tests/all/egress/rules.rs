//! What settings say of hosts and secrets beyond the flags: methods and paths, TLS that passes unopened, how much is sent, where a secret is put
//! in, and what happens when it is misused.

use serde_json::{Value, json};

use super::world::{VALUE, bound_flags, words};
use super::{World, as_both};
use crate::wall::ground::eventually;

const HELLO: &str = "hello from outside\n";

fn user(world: &World, settings: &Value) {
    world.plant(&world.home.join(".config/stockade/settings.json"), &settings.to_string(), 0o600);
}

fn project(world: &World, settings: &Value) {
    world.file(".stockade/settings.json", &settings.to_string());
}

fn rules(rules: &Value) -> Value {
    json!({"sandbox": {"network": {"rules": rules}}})
}

/// What a request is answered with, and its status.
fn ask(world: &World, flags: &[String], request: &str) -> String {
    world.inside(&words(flags), &format!("curl -sS -w '%{{http_code}}' {request}")).stdout
}

#[test]
fn methods_and_paths_are_held_to() {
    as_both(|world| {
        let host = format!("api.test:{}", world.secure);
        user(world, &rules(&json!([{"host": host, "methods": ["GET"], "paths": ["/repos/acme/**"]}])));
        let flags = bound_flags(&[world.secure]);
        assert_eq!(ask(world, &flags, &format!("https://{host}/repos/acme/a")), format!("{HELLO}200"));
        let told = ask(world, &flags, &format!("-H \"X-Key: $TOKEN\" https://{host}/repos/other/a"));
        assert!(told.contains("`/repos/other/a` is not an allowed path") && told.ends_with("403"), "{told}");
        let told = ask(world, &flags, &format!("-X DELETE -H \"X-Key: $TOKEN\" https://{host}/repos/acme/a"));
        assert!(told.contains("`DELETE` is not an allowed method") && told.ends_with("403"), "{told}");
        assert_eq!(world.seen().len(), 1);
        // A project narrows that further; both hold.
        project(world, &rules(&json!([{"host": host, "paths": ["/repos/acme/a"]}])));
        assert_eq!(ask(world, &flags, &format!("https://{host}/repos/acme/a")), format!("{HELLO}200"));
        assert!(ask(world, &flags, &format!("https://{host}/repos/acme/b")).ends_with("403"));
        assert!(ask(world, &flags, &format!("-X PUT https://{host}/repos/acme/a")).ends_with("403"));
        assert_eq!(world.seen().len(), 2);
        // It never loosens, and a rule that means nothing is an error.
        project(world, &rules(&json!([{"host": host, "tls": "pass"}])));
        let outcome = world.inside(&words(&flags), "true");
        assert!(outcome.code == Some(125) && outcome.stderr.contains("sandbox.network.rules"), "{outcome:?}");
        user(world, &rules(&json!([{"host": host, "method": ["GET"]}])));
        let outcome = world.inside(&words(&flags), "true");
        assert!(outcome.code == Some(125) && outcome.stderr.contains("did you mean `methods`"), "{outcome:?}");
    });
}

#[test]
fn rules_allow_no_host() {
    as_both(|world| {
        let host = format!("denied.test:{}", world.plain);
        user(world, &rules(&json!([{"host": host, "tls": "tunnel"}])));
        assert!(ask(world, &world.plain_flags(), &format!("http://{host}/hello")).ends_with("403"));
        assert!(world.seen().is_empty());
    });
}

#[test]
fn tls_passes_unopened_where_somebody_wrote_so() {
    as_both(|world| {
        let host = format!("api.test:{}", world.secure);
        let issuer = format!("curl -sS -v https://{host}/hello 2>&1 | grep -c 'issuer: CN=outside'");
        let opened = world.inside(&words(&world.secure_flags()), &issuer);
        assert_eq!(opened.stdout, "0\n", "{opened:?}");
        user(world, &rules(&json!([{"host": host, "tls": "pass"}])));
        for before in ["", "unset HTTPS_PROXY https_proxy ALL_PROXY all_proxy; "] {
            let passed = world.inside(&words(&world.secure_flags()), &format!("{before}{issuer}"));
            assert_eq!(passed.stdout, "1\n", "{passed:?}");
        }
        // The name is held to all the same, and a secret opens it in any case.
        let other = format!("curl -sS --connect-to other.test:{0}:{host} https://other.test:{0}/hello", world.secure);
        assert_ne!(world.inside(&words(&world.secure_flags()), &other).code, Some(0));
        let bound = world.inside(&words(&bound_flags(&[world.secure])), &issuer);
        assert_eq!(bound.stdout, "0\n", "{bound:?}");
    });
}

#[test]
fn no_more_is_sent_than_settings_say() {
    as_both(|world| {
        user(world, &json!({"sandbox": {"network": {"sentBytes": 100_000}}}));
        let url = format!("https://api.test:{}/hello", world.secure);
        assert_eq!(ask(world, &world.secure_flags(), &format!("-d small {url}")), format!("{HELLO}200"));
        let told =
            world.inside(&words(&world.secure_flags()), &format!("head -c 1000000 /dev/zero | curl -sS --fail --data-binary @- {url}"));
        assert_ne!(told.code, Some(0), "{told:?}");
        let arrived: usize = world.seen().iter().filter_map(|one| one["body"].as_str()).map(str::len).sum();
        assert!(arrived <= 100_000, "{arrived} bytes arrived");
    });
}

#[test]
fn a_secret_is_put_into_query_and_body_only_where_settings_say_so() {
    as_both(|world| {
        let request = format!("-d \"key=$TOKEN\" \"https://api.test:{}/echo?key=$TOKEN\"", world.secure);
        for (places, is_in) in [(json!([]), [false, false]), (json!(["query"]), [true, false]), (json!(["query", "body"]), [true, true])] {
            user(world, &json!({"secrets": {"TOKEN": {"source": "env", "places": places}}}));
            let told = ask(world, &bound_flags(&[world.secure]), &request);
            assert!(told.ends_with("200") && !told.contains(VALUE), "{places}: {told}");
            let seen = world.seen();
            let got = ["path", "body"].map(|part| seen[0][part].as_str().is_some_and(|text| text.contains(VALUE)));
            assert_eq!(got, is_in, "{places}: {seen:?}");
            world.forget();
        }
    });
}

#[test]
fn misuse_of_a_secret_ends_the_sandbox_where_settings_say_so() {
    as_both(|world| {
        user(world, &json!({"secrets": {"TOKEN": {"source": "env", "onMisuse": "end"}}}));
        let mut flags = bound_flags(&[world.secure]);
        flags.extend(["--allow-host".into(), format!("other.test:{}", world.secure)]);
        let script = format!("curl -sS -H \"X-Key: $TOKEN\" https://other.test:{}/hello; sleep 600", world.secure);
        let outcome = world.inside(&words(&flags), &script);
        assert!(outcome.code == Some(137) && outcome.stderr.contains("everything in the sandbox was killed"), "{outcome:?}");
        let value = world.inside_json(&words(&flags), &script);
        assert_eq!((&value["limit"], &value["network"][0]["rule"]), (&json!("secrets"), &json!("secret-host")), "{value}");
        assert!(world.seen().is_empty());
        // A created sandbox ends too.
        let made = world.stockade(&[&["sandbox", "create", "--name", "box"], &words(&flags)[..]].concat());
        assert_eq!(made.code, Some(0), "{made:?}");
        let outcome = world.stockade(&["sandbox", "exec", "box", "--", "bash", "-c", &script]);
        assert_eq!(outcome.code, Some(137), "{outcome:?}");
        eventually("it is gone", || world.sandboxes().is_empty());
        world.all_ended();
    });
}
