//! Secrets: used outside, and nowhere inside.

use super::world::{VALUE, bound_flags, words};
use super::{World, as_both};
use crate::wall::ground::finish_with;

/// Looks for the value in everything that a program inside can look at: its own and others' environments, memory, files.
const SEARCH: &str = r#"
import glob, os, sys
wanted = bytes.fromhex(sys.argv[1])
parts = [wanted[at:at + 12] for at in range(4, len(wanted) - 12)]
found, looked = [], 0
def look(name, data):
    global looked
    looked += len(data)
    if any(part in data for part in parts): found.append(name)
for pid in [p for p in os.listdir("/proc") if p.isdigit()]:
    for name in ("environ", "cmdline"):
        try: look(f"/proc/{pid}/{name}", open(f"/proc/{pid}/{name}", "rb").read())
        except OSError: pass
for top in ("/run", "/tmp", "/var", "/dev/shm", os.environ["HOME"], os.getcwd()):
    for base, _, files in os.walk(top):
        for file in files:
            path = os.path.join(base, file)
            try:
                if os.path.isfile(path) and os.path.getsize(path) < 8 << 20: look(path, open(path, "rb").read())
            except OSError: pass
print(looked > 1000, found)
"#;

fn bound(world: &World) -> Vec<String> {
    bound_flags(&[world.secure])
}

fn hex(text: &str) -> String {
    text.bytes().flat_map(|byte| [byte >> 4, byte & 15]).filter_map(|digit| char::from_digit(digit.into(), 16)).collect()
}

#[test]
fn the_value_is_put_in_outside_and_taken_out_of_what_comes_back() {
    as_both(|world| {
        let script = format!("curl -sS --fail -i -H \"Authorization: Bearer $TOKEN\" https://api.test:{}/echo", world.secure);
        let outcome = world.inside(&words(&bound(world)), &format!("echo \"$TOKEN\"; {script}"));
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        let seen = world.seen();
        assert_eq!(seen.len(), 1, "{seen:?}");
        assert_eq!(seen[0]["headers"]["authorization"], format!("Bearer {VALUE}"), "the server got the value");
        let placeholder = outcome.stdout.lines().next().expect("a line");
        assert!(placeholder.starts_with("ghp_") && placeholder.len() == VALUE.len() && placeholder != VALUE, "{placeholder}");
        assert!(!outcome.stdout.contains(VALUE) && outcome.stdout.contains("HTTP/1.1 200"), "scrubbed: {outcome:?}");
        // The control: without a wall the server's echo shows it.
        assert!(world.without(&script).stdout.contains(VALUE));
        world.all_ended();
    });
}

#[test]
fn a_value_from_the_store_is_used_and_the_event_names_the_secret() {
    as_both(|world| {
        let set = [world.binary.to_str().expect("a path"), "secret", "set", "STORED"];
        let kept = finish_with(&mut world.command(set), VALUE.as_bytes());
        assert_eq!(kept.code, Some(0), "{kept:?}");
        let mut flags = world.secure_flags();
        flags.extend(["--secret".into(), format!("STORED@api.test:{}", world.secure)]);
        let script = format!("curl -sS -u git:$STORED https://api.test:{}/hello", world.secure);
        let value = world.inside_json(&words(&flags), &script);
        assert_eq!((&value["network"][0]["secret"], &value["network"][0]["verdict"]), (&"STORED".into(), &"allow".into()), "{value}");
        let seen = world.seen();
        // `git:` and the value, in base64: decoded, swapped and encoded again.
        let sent = seen[0]["headers"]["authorization"].as_str().expect("a header");
        let decoded = world.without(&format!("echo {} | base64 -d", sent.trim_start_matches("Basic ")));
        assert_eq!(decoded.stdout, format!("git:{VALUE}"));
        assert!(!value.to_string().contains(VALUE));
    });
}

#[test]
fn a_secret_for_everything_below_one_label_is_warned_of() {
    as_both(|world| {
        for (host, warned) in [("*.test", true), ("*.api.test", false)] {
            let outcome = world.inside(&["--secret", &format!("TOKEN@{host}:{}", world.secure)], "true");
            let told = format!("the secret `TOKEN` may go to whatever `{host}:{}` means", world.secure);
            assert_eq!((outcome.code, outcome.stderr.contains(&told)), (Some(0), warned), "{outcome:?}");
        }
    });
}

#[test]
fn a_placeholder_on_its_way_elsewhere_is_stopped() {
    as_both(|world| {
        let mut flags = bound(world);
        flags.extend(["--allow-host".into(), format!("other.test:{}", world.secure)]);
        let script =
            format!("curl -sS -H \"X-Key: $TOKEN\" https://other.test:{}/hello; curl -sS https://other.test:{0}/hello", world.secure);
        let value = world.inside_json(&words(&flags), &script);
        let stdout = value["stdout"].as_str().unwrap_or_default();
        let told = format!("the secret `TOKEN` is not for `other.test:{}`", world.secure);
        assert!(stdout.contains(&told) && stdout.ends_with("hello from outside\n"), "{value}");
        assert_eq!((&value["network"][0]["rule"], &value["network"][0]["secret"]), (&"secret-host".into(), &"TOKEN".into()), "{value}");
        assert_eq!(world.seen().len(), 1, "the one without it arrived");
    });
}

#[test]
fn the_value_is_nowhere_inside() {
    as_both(|world| {
        let search = |value: &str| format!("python3 -c '{SEARCH}' {}", hex(value));
        let use_it = format!("curl -sS -H \"Authorization: Bearer $TOKEN\" https://api.test:{}/echo > /tmp/answer", world.secure);
        let outcome = world.inside(&words(&bound(world)), &format!("{use_it}; {}", search(VALUE)));
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), "True []\n"), "{outcome:?}");
        assert_eq!(world.seen()[0]["headers"]["authorization"], format!("Bearer {VALUE}"));
        // The control: a variable that is passed as it is is found.
        let outcome = world.inside(&["--env", "TOKEN"], &search(VALUE));
        assert!(outcome.stdout.contains("environ"), "the search finds what is there: {outcome:?}");
        let outcome = world.inside(&[&words(&bound(world))[..], &["--env", "TOKEN"]].concat(), "true");
        assert!(outcome.code == Some(125) && outcome.stderr.contains("--env TOKEN"), "{outcome:?}");
    });
}

#[test]
fn a_secret_that_nobody_has_stops_the_start() {
    as_both(|world| {
        let secret = format!("NOBODYS@api.test:{}", world.secure);
        let outcome = world.inside(&["--secret", &secret], "true");
        assert!(outcome.code == Some(125) && outcome.stderr.contains("NOBODYS") && outcome.stderr.contains("hint:"), "{outcome:?}");
        assert_eq!(world.sandboxes(), Vec::<String>::new());
        world.all_ended();
    });
}
