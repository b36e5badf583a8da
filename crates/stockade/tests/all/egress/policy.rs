//! Where a person has rules, a host must be named by them and by the call.

use super::as_both;
use super::world::words;

#[test]
fn hosts_of_a_call_are_intersected_with_connect_rules() {
    as_both(|world| {
        let any = "permit (principal, action == Stockade::Action::\"exec\", resource);";
        let connect = |host: &str, port: u16| {
            format!(
                "permit (principal, action == Stockade::Action::\"connect\", resource == Stockade::Host::\"{host}\") when {{ context.port == {port} }};"
            )
        };
        let file = world.ground.home.join(".config/stockade/policy/rules.cedar");
        let script = format!("curl -sS --fail https://api.test:{}/hello", world.secure);
        world.ground.plant(&file, &format!("{any} {} {}", connect("api.test", world.secure), connect("127.0.0.1", world.secure)), 0o600);
        let outcome = world.inside(&words(&world.secure_flags()), &script);
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), "hello from outside\n"), "{outcome:?}");
        assert_ne!(world.inside(&["--allow-host", "example.org"], &script).code, Some(0), "a rule alone reaches nothing");
        world.forget();
        world.ground.plant(&file, any, 0o600);
        let outcome = world.inside(&words(&world.secure_flags()), &script);
        assert!(outcome.code != Some(0) && outcome.stderr.contains("no `connect` rule permits"), "{outcome:?}");
        assert_eq!(world.seen(), Vec::<serde_json::Value>::new());
    });
}
