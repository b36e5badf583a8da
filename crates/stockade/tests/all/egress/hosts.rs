//! Hosts: what is allowed is reached, by every kind of program; what is not is refused with the flag that would allow it.

use serde_json::json;

use super::world::words;
use super::{World, as_both};
use crate::wall::ground::finish;

const HELLO: &str = "hello from outside\n";

/// The attempt succeeds without a wall, and nothing was seen yet.
fn control(world: &World, script: &str) {
    let outcome = world.without(script);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), HELLO), "without a wall: {outcome:?}");
    world.forget();
}

#[test]
fn curl_reaches_allowed_hosts_through_the_proxy_and_without_knowing_it() {
    as_both(|world| {
        let plain = format!("curl -sS --fail http://api.test:{}/hello", world.plain);
        let secure = format!("curl -sS --fail https://api.test:{}/hello", world.secure);
        for (script, flags) in [(plain, world.plain_flags()), (secure, world.secure_flags())] {
            control(world, &script);
            let unaware = format!("unset HTTP_PROXY HTTPS_PROXY ALL_PROXY http_proxy https_proxy all_proxy; {script}");
            for script in [&script, &unaware] {
                let outcome = world.inside(&words(&flags), script);
                assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), HELLO), "{script}: {outcome:?}");
                let seen = world.seen();
                assert_eq!((seen.len(), &seen[0]["path"]), (1, &json!("/hello")), "{seen:?}");
                world.forget();
            }
        }
        world.all_ended();
    });
}

#[test]
fn python_reaches_allowed_hosts() {
    as_both(|world| {
        let program =
            |url: String| format!("python3 -c 'import urllib.request as u; print(u.urlopen(\"{url}\").read().decode(), end=\"\")'");
        let secure = program(format!("https://api.test:{}/hello", world.secure));
        control(world, &secure);
        for script in [secure.clone(), format!("unset HTTPS_PROXY https_proxy ALL_PROXY all_proxy; {secure}")] {
            let outcome = world.inside(&words(&world.secure_flags()), &script);
            assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), HELLO), "{script}: {outcome:?}");
        }
    });
}

#[test]
fn the_hosts_of_the_machine_itself_are_reached_only_by_address() {
    as_both(|world| {
        let script = format!("curl -sS http://127.0.0.1:{}/hello", world.plain);
        control(world, &script);
        // Without a grant that is the sandbox's own loopback, where nothing listens.
        let outcome = world.inside(&["--allow-host", "example.org"], &script);
        assert!(outcome.code == Some(7) && world.seen().is_empty(), "{outcome:?}");
        let outcome = world.inside(&["--allow-host", &format!("127.0.0.1:{}", world.plain)], &script);
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), HELLO), "{outcome:?}");
        // A name that leads there needs the address too, and is told so.
        let named = format!("curl -sS -w '%{{http_code}}' http://api.test:{}/hello", world.plain);
        let outcome = world.inside(&["--allow-host", &format!("api.test:{}", world.plain)], &named);
        let flag = format!("--allow-host 127.0.0.1:{}", world.plain);
        assert!(outcome.stdout.contains(&flag) && outcome.stdout.ends_with("403") && outcome.stderr.contains(&flag), "{outcome:?}");
    });
}

#[test]
fn a_host_that_is_not_allowed_is_refused_with_the_flag_that_would_allow_it() {
    as_both(|world| {
        let script = format!("curl -sS http://denied.test:{}/hello", world.plain);
        control(world, &script);
        let value = world.inside_json(&words(&world.plain_flags()), &format!("{script}; curl -sS http://api.test:{}/hello", world.plain));
        let flag = format!("--allow-host denied.test:{}", world.plain);
        let stdout = value["stdout"].as_str().unwrap_or_default();
        assert!(stdout.contains(&flag) && stdout.ends_with(HELLO), "{value}");
        let reached = |verdict: &str, host: &str, rule: String| json!({"host": host, "port": world.plain, "method": "GET", "path": "/hello", "verdict": verdict, "rule": rule, "secret": null});
        let allowed = reached("allow", "api.test", format!("api.test:{}", world.plain));
        assert_eq!(value["network"], json!([reached("deny", "denied.test", "allow-host".into()), allowed]));
        assert_eq!(world.seen().len(), 1, "only the allowed one arrived");
        // Said once, though it was tried twice.
        let outcome = world.inside(&words(&world.plain_flags()), &format!("{script} >/dev/null; {script} >/dev/null"));
        assert_eq!(outcome.stderr.matches(&flag).count(), 1, "{outcome:?}");
    });
}

#[test]
fn without_hosts_there_is_no_way_out_and_no_process_for_one() {
    as_both(|world| {
        let script = format!("curl -sS --noproxy '*' --max-time 5 http://127.0.0.1:{}/hello || echo $?$HTTP_PROXY", world.plain);
        let outcome = world.inside(&[], &script);
        assert_eq!(outcome.stdout, "7\n", "{outcome:?}");
        assert!(!world.state.join("stockade/egress").exists() && world.seen().is_empty());
    });
}

#[test]
fn settings_allow_hosts_and_flags_take_their_place() {
    as_both(|world| {
        let list = [format!("api.test:{}", world.plain), format!("127.0.0.1:{}", world.plain)];
        world.plant(&world.home.join(".config/stockade/settings.json"), &json!({"sandbox": {"allowedHosts": list}}).to_string(), 0o600);
        let script = format!("curl -sS --fail http://api.test:{}/hello", world.plain);
        let outcome = world.inside(&[], &script);
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), HELLO), "{outcome:?}");
        let outcome = world.inside(&["--allow-host", "example.org"], &script);
        assert!(outcome.code != Some(0) && outcome.stderr.contains("--allow-host api.test"), "{outcome:?}");
    });
}

#[test]
fn what_the_machine_fixes_no_flag_widens() {
    as_both(|world| {
        let machine = world.base.join("machine");
        world.plant(&machine.join("stockade/settings.json"), r#"{"sandbox": {"allowedHosts": ["example.org"]}}"#, 0o644);
        let binary = world.binary.to_str().expect("a path");
        // The machine's own directory is only looked through, never written.
        let over = format!("mount -t overlay machine -o lowerdir={}:/etc /etc; exec \"$@\"", machine.display());
        let run = |flags: &[&str]| finish(&mut world.command_after(&over, [&[binary, "run"], flags, &["--", "true"]].concat()));
        for flags in [&["--secret", "TOKEN@api.test"][..], &["--learn"]] {
            let outcome = run(flags);
            assert!(outcome.code == Some(125) && outcome.stderr.contains("machine's settings"), "{flags:?}: {outcome:?}");
        }
        let outcome = run(&["--secret", "TOKEN@example.org"]);
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
    });
}

#[test]
fn learning_lets_through_and_says_the_smallest_list() {
    as_both(|world| {
        let script = format!("curl -sS http://api.test:{0}/hello http://other.test:{0}/hello", world.plain);
        let outcome = world.inside(&["--learn", "--allow-host", &format!("127.0.0.1:{}", world.plain)], &script);
        assert_eq!((outcome.code, outcome.stdout), (Some(0), HELLO.repeat(2)), "{}", outcome.stderr);
        let needed = format!("--allow-host api.test:{0} --allow-host other.test:{0}\n", world.plain);
        assert!(outcome.stderr.contains(&needed), "{}", outcome.stderr);
    });
}

#[test]
fn variables_that_a_person_set_stay() {
    as_both(|world| {
        let outcome = world.inside(&["--allow-host", "example.org", "--env", "HTTPS_PROXY=http://p:1"], "echo $HTTPS_PROXY $https_proxy");
        assert_eq!(outcome.stdout, "http://p:1 http://127.0.0.1:61080\n", "{outcome:?}");
    });
}
