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

#[test]
fn rules_about_requests_are_asked_for_each_request() {
    as_both(|world| {
        let rules = "permit (principal, action == Stockade::Action::\"exec\", resource);
            @id(\"reads\") permit (principal, action == Stockade::Action::\"connect\", resource) when { [\"GET\", \"HEAD\"].contains(context.method) };
            @id(\"no-secrets-page\") @reason(\"it is private\") forbid (principal, action == Stockade::Action::\"connect\", resource)
            when { context.path like \"/private/*\" };";
        world.ground.plant(&world.ground.home.join(".config/stockade/policy/rules.cedar"), rules, 0o600);
        let address = format!("https://api.test:{}", world.secure);
        let script = format!(
            "curl -sS {address}/hello; for way in '-X POST' '-X DELETE' '--path-as-is -G'; do curl -sS -o- -w ' %{{http_code}}\\n' $way {address}/private/x; done; \
             curl -sS -w ' %{{http_code}}\\n' -d x {address}/hello; curl -sS -w ' %{{http_code}}\\n' {address}/%70rivate/x; curl -sS -w ' %{{http_code}}\\n' --path-as-is {address}/a/../private/x"
        );
        let outcome = world.inside(&words(&world.secure_flags()), &script);
        let lines: Vec<&str> = outcome.stdout.lines().filter(|line| line.ends_with(" 403")).collect();
        assert!(outcome.stdout.starts_with("hello from outside\n") && lines.len() == 6, "{outcome:?}");
        for named in ["no-secrets-page", "it is private", "does not permit POST /hello", "read in more than one way"] {
            assert!(outcome.stdout.contains(named), "{named}: {outcome:?}");
        }
        assert_eq!(world.seen().len(), 1, "{:?}", world.seen());
    });
}

#[test]
fn a_projects_forbid_about_hosts_counts_without_a_policy_of_a_person() {
    as_both(|world| {
        let file = world.ground.work.join(".stockade/policy/p.cedar");
        let script = format!("curl -sS --fail https://api.test:{}/hello", world.secure);
        assert_eq!(world.inside(&words(&world.secure_flags()), &script).code, Some(0));
        world.forget();
        for condition in ["", "when { context.method == \"GET\" }"] {
            let rule = format!("forbid (principal, action == Stockade::Action::\"connect\", resource) {condition};");
            world.ground.plant(&file, &rule, 0o644);
            let outcome = world.inside(&words(&world.secure_flags()), &script);
            assert_ne!(outcome.code, Some(0), "{condition}: {outcome:?}");
        }
        assert_eq!(world.seen(), Vec::<serde_json::Value>::new());
    });
}

#[test]
fn a_forbid_of_one_host_holds_while_learning() {
    as_both(|world| {
        let rules = "permit (principal, action, resource);
            @reason(\"not there\") forbid (principal, action == Stockade::Action::\"connect\", resource == Stockade::Host::\"other.test\");";
        world.ground.plant(&world.ground.home.join(".config/stockade/policy/rules.cedar"), rules, 0o600);
        let script = format!("curl -sS http://api.test:{0}/hello http://other.test:{0}/hello", world.plain);
        let outcome = world.inside(&["--learn", "--allow-host", &format!("127.0.0.1:{}", world.plain)], &script);
        assert!(outcome.stdout.starts_with("hello from outside\n") && outcome.stdout.contains("not there"), "{outcome:?}");
        assert_eq!(world.seen().len(), 1, "{:?}", world.seen());
    });
}
