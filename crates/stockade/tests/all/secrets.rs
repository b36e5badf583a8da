//! `stockade secret` and the broker's process, as root and as an ordinary user: what they keep, what they refuse, and that a value is
//! nowhere that others could see it.

#![allow(clippy::indexing_slicing, clippy::panic, reason = "tests")]

mod adopt;
mod device;

use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;
use stockade_broker::broker::Wish;
use stockade_broker::client::{Lookup, Owner};
use stockade_broker::{SecretName, SecretValue};

use crate::Outcome;
use crate::wall::ground::{ended, eventually, finish, finish_with, processes, unique_seconds};
use crate::wall::terminal::stockade_on_terminal;
use crate::wall::{Ground, as_both};

const VALUE: &str = "ghp_aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0eF3hJ6";

fn set(ground: &Ground, name: &str, value: &str) -> Outcome {
    finish_with(&mut ground.stockade(["secret", "set", name]), value.as_bytes())
}

fn tells(ground: &Ground, words: &[&str]) -> Value {
    let outcome = finish(&mut ground.stockade(words.iter().chain(&["--json"])));
    serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{error}: {outcome:?}"))
}

/// No file of this user, and none of these texts, holds as much as eight bytes of the value.
fn assert_nowhere(ground: &Ground, texts: &[&str]) {
    let shows = |bytes: &[u8]| VALUE.as_bytes()[4..].windows(8).any(|run| bytes.windows(8).any(|window| window == run));
    assert!(shows(VALUE.as_bytes()), "the search finds what is there");
    for text in texts {
        assert!(!shows(text.as_bytes()), "{text}");
    }
    let mut directories = vec![ground.base.clone()];
    let mut files = 0;
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(&directory).expect("a directory").flatten() {
            let kind = entry.file_type().expect("a type");
            if kind.is_dir() {
                directories.push(entry.path());
            } else if kind.is_file() {
                files += 1;
                assert!(!shows(&std::fs::read(entry.path()).expect("read")), "{}", entry.path().display());
            }
        }
    }
    assert!(files > 0, "nothing was looked at");
}

#[test]
fn a_secret_is_kept_listed_and_forgotten_and_its_value_is_nowhere() {
    as_both(|ground| {
        let first = set(ground, "TOKEN", &format!("{VALUE}\n"));
        assert_eq!((first.code, first.stdout.as_str(), first.stderr.as_str()), (Some(0), "", "stockade: kept `TOKEN`\n"));
        let second = finish_with(&mut ground.stockade(["secret", "set", "TOKEN", "--json"]), VALUE.as_bytes());
        let told: Value = serde_json::from_str(&second.stdout).expect("JSON");
        assert_eq!((second.code, &told["name"], &told["replaced"]), (Some(0), &Value::from("TOKEN"), &Value::from(true)));
        let listed = tells(ground, &["secret", "list"]);
        assert_eq!(listed["secrets"][0]["name"], "TOKEN");
        assert_eq!(listed["secrets"][0]["source"], "store");
        assert_eq!(listed["secrets"][0]["created"], told["created"]);
        let shown = finish(&mut ground.stockade(["secret", "list"]));
        assert!(shown.stdout.contains("TOKEN") && shown.code == Some(0), "{shown:?}");
        assert_nowhere(ground, &[&first.stderr, &second.stdout, &listed.to_string(), &shown.stdout]);
        let secrets = ground.state.join("stockade/secrets");
        for entry in std::fs::read_dir(&secrets).expect("the store").flatten() {
            let found = entry.metadata().expect("metadata");
            assert_eq!((found.mode() & 0o7777, found.uid()), (0o600, ground.who.uid()), "{}", entry.path().display());
        }
        let doctor = tells(ground, &["doctor"]);
        let check = doctor["checks"].as_array().and_then(|all| all.iter().find(|check| check["name"] == "secret store")).expect("a row");
        assert!(check["state"] == "good" && check["detail"].as_str().is_some_and(|detail| detail.ends_with("1 secret")), "{check}");
        assert_eq!(tells(ground, &["secret", "remove", "TOKEN"])["removed"][0], "TOKEN");
        let again = finish(&mut ground.stockade(["secret", "remove", "TOKEN"]));
        assert!(again.code == Some(125) && again.stderr.contains("not in the secret store"), "{again:?}");
        assert_eq!(tells(ground, &["secret", "list"])["secrets"].as_array().map(Vec::len), Some(0));
    });
}

#[test]
fn values_are_refused_as_arguments_and_when_they_are_of_no_use() {
    as_both(|ground| {
        for words in [
            &["secret", "set", "TOKEN", VALUE][..],
            &["secret", "set", VALUE],
            &["secret", "set", &format!("TOKEN={VALUE}")],
            &["secret", "set", &format!("--{VALUE}")],
            &["run", "--secret", VALUE, "--", "true"],
        ] {
            let outcome = finish(&mut ground.stockade(words));
            assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(125), ""), "{outcome:?}");
            assert!(!outcome.stderr.contains("aB3dE6gH") && outcome.stderr.contains("hint:"), "{outcome:?}");
        }
        for (value, says) in [
            ("\n", "is empty"),
            ("only-15-bytes..", "shorter than 16 bytes"),
            (&"x".repeat(20_000), "longer than"),
            ("two lines of\nsome length", "line break"),
            ("0123456789abcdef\u{e9}", "beyond ASCII"),
            (" 0123456789abcdef", "blank"),
        ] {
            let outcome = set(ground, "TOKEN", value);
            assert!(outcome.code == Some(125) && outcome.stderr.contains(says), "{says}: {outcome:?}");
        }
        assert!(!ground.state.join("stockade/secrets").exists(), "nothing was made");
    });
}

#[test]
fn at_a_terminal_the_value_is_asked_for_and_not_shown() {
    as_both(|ground| {
        let act = format!("until(b'shown): ')\nos.write(fd, b'wrong\\x15{VALUE}\\r')\n");
        let said = stockade_on_terminal(ground, &["secret", "set", "TOKEN"], &act);
        assert_eq!(said, "Value of TOKEN (not shown): \nstockade: kept `TOKEN`\ncode 0 restored True\n");
        assert_nowhere(ground, &[&said]);
        let said = stockade_on_terminal(ground, &["secret", "set", "OTHER"], "until(b'shown): ')\nos.write(fd, b'abc\\x03')\n");
        assert!(said.contains("you gave up") && said.ends_with("code 125 restored True\n"), "{said}");
    });
}

#[test]
fn a_damaged_store_is_named_with_what_mends_it() {
    as_both(|ground| {
        set(ground, "TOKEN", VALUE);
        let entry = ground.state.join("stockade/secrets/TOKEN.secret");
        std::fs::set_permissions(&entry, PermissionsExt::from_mode(0o644)).expect("mode");
        let state = |says: &str| {
            let doctor = tells(ground, &["doctor"]);
            let check = doctor["checks"]
                .as_array()
                .and_then(|all| all.iter().find(|check| check["name"] == "secret store"))
                .expect("a row")
                .clone();
            assert!(check["state"] == "missing" && check.to_string().contains(says), "{check}");
        };
        state("chmod 600");
        assert!(tells(ground, &["secret", "list"])["secrets"][0]["problem"].is_string());
        ground.plant(&entry, "not ours", 0o600);
        state("stockade secret remove TOKEN && stockade secret set TOKEN");
        assert_eq!(set(ground, "TOKEN", VALUE).code, Some(0), "setting it again is enough");
        std::fs::remove_file(ground.state.join("stockade/secrets/key")).expect("removed");
        let outcome = set(ground, "OTHER", VALUE);
        assert!(outcome.code == Some(125) && outcome.stderr.contains("is gone") && outcome.stderr.contains("hint:"), "{outcome:?}");
    });
}

/// What others can see of a process: nothing of the value, and nothing at all of its memory and environment.
fn assert_private(ground: &Ground, pid: u32) {
    let place = Path::new("/proc").join(pid.to_string());
    for file in ["cmdline", "environ"] {
        let bytes = std::fs::read(place.join(file)).expect("read as root");
        assert!(!bytes.windows(8).any(|window| window == b"aB3dE6gH"), "{file}");
    }
    assert!(is_private(&place), "of {:?}", ground.who);
}

/// Undumpable, and without core files. The kernel gives an undumpable process's files to root; of root's own only the limit tells.
fn is_private(place: &Path) -> bool {
    let limits = std::fs::read_to_string(place.join("limits")).expect("limits");
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).expect("a limit");
    let environ = std::fs::metadata(place.join("environ")).expect("metadata");
    core.split_whitespace().skip(4).take(2).eq(["0", "0"]) && environ.uid() == 0
}

#[test]
fn while_a_value_is_read_nobody_can_look() {
    as_both(|ground| {
        let mut command = ground.stockade(["secret", "set", "TOKEN"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
        let mut stdin = child.stdin.take().expect("a pipe");
        std::io::Write::write_all(&mut stdin, &VALUE.as_bytes()[..20]).expect("written");
        let place = Path::new("/proc").join(child.id().to_string());
        eventually("it has made itself private", || is_private(&place));
        assert_private(ground, child.id());
        std::io::Write::write_all(&mut stdin, &VALUE.as_bytes()[20..]).expect("written");
        drop(stdin);
        let outcome = ended(child);
        assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), "stockade: kept `TOKEN`\n"));
    });
}

#[test]
fn no_secret_takes_the_place_of_a_variable_that_says_how_programs_run() {
    as_both(|ground| {
        for (name, is_refused) in [
            ("LD_PRELOAD", true),
            ("PATH", true),
            ("HTTPS_PROXY", true),
            ("NODE_EXTRA_CA_CERTS", true),
            ("GITHUB_TOKEN", false),
            ("NPM_TOKEN", false),
        ] {
            let outcome = ground.run(&["--secret", &format!("{name}@example.com")], &["true"]);
            let is_told = outcome.stderr.contains("which says how programs run");
            // Nobody has a value for the others.
            assert!(outcome.code == Some(125) && is_told == is_refused, "{name}: {outcome:?}");
        }
    });
}

#[test]
fn whoever_ends_a_run_that_waits_for_a_secret_ends_its_broker_and_program_too() {
    as_both(|ground| {
        for signal in [rustix::process::Signal::TERM, rustix::process::Signal::INT, rustix::process::Signal::KILL] {
            let seconds = unique_seconds();
            let settings = format!(r#"{{"secrets": {{"SLOW": {{"source": "command", "command": ["sleep", "{seconds}"]}}}}}}"#);
            ground.plant(&ground.home.join(".config/stockade/settings.json"), &settings, 0o600);
            let mut command = ground.stockade(["run", "--secret", "SLOW@127.0.0.1:9", "--", "touch", "it-ran"]);
            let run = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
            eventually("it is asked for", || !processes(&seconds).is_empty());
            let asked = std::fs::read_to_string(format!("/proc/{}/stat", processes(&seconds)[0])).expect("its state");
            let broker = asked.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1)).expect("its parent").to_owned();
            let begun = std::time::Instant::now();
            rustix::process::kill_process(rustix::process::Pid::from_child(&run), signal).expect("sent");
            let outcome = ended(run);
            if signal == rustix::process::Signal::KILL {
                assert_eq!(outcome.code, None);
            } else {
                assert!(outcome.code == Some(125) && outcome.stderr.contains("secret: nobody waits for it any more"), "{outcome:?}");
            }
            eventually("nothing is left", || processes(&seconds).is_empty() && !Path::new("/proc").join(&broker).exists());
            // By itself the program would have been ended after 30 seconds.
            assert!(begun.elapsed().as_secs() < 20, "{signal:?}: {:?}", begun.elapsed());
            assert!(!ground.work.join("it-ran").exists());
        }
    });
}

#[test]
fn the_broker_gives_placeholders_to_the_owner_and_values_to_egress_and_ends_with_its_owner() {
    as_both(|ground| {
        set(ground, "KEPT", VALUE);
        let script = format!("#!/bin/sh\nprintf '%s' {}\n", VALUE.chars().rev().collect::<String>());
        ground.plant(&ground.home.join("tool"), &script, 0o755);
        let settings =
            format!(r#"{{"secrets": {{"PRINTED": {{"source": "command", "command": ["{}"]}}}}}}"#, ground.home.join("tool").display());
        ground.plant(&ground.home.join(".config/stockade/settings.json"), &settings, 0o600);
        let ((owner, owners), (egress, egresses)) = (UnixStream::pair().expect("a pair"), UnixStream::pair().expect("a pair"));
        let mut command = ground.stockade(["broker"]);
        command.stdin(OwnedFd::from(owners)).stdout(OwnedFd::from(egresses)).stderr(Stdio::piped());
        let child = command.spawn().expect("started");
        // Else the ends that the broker has stay open here as well.
        drop(command);
        let mut owner = Owner::connect(owner).expect("welcome");
        let lookup = Lookup::connect(egress, None).expect("welcome");
        let wish = |text: &str, caller: Option<&str>| Wish {
            binding: text.parse().expect("a binding"),
            caller: caller.map(|value| SecretValue::new(value.into()).expect("a value")),
            class: stockade_core::credential::Class::ProxyOnly,
            behind: Vec::new(),
        };
        let sandbox = "0123456789abcdef".parse().expect("an id");
        let wishes =
            vec![wish("KEPT@api.github.com", None), wish("PRINTED@b.com", None), wish("CALLER@c.com", Some("the-callers-own-value"))];
        let bound = owner.register(&sandbox, "run", wishes).expect("registered").bound;
        assert!(bound[0].placeholder.as_str().starts_with("ghp_") && bound[0].placeholder.as_str().len() == VALUE.len(), "{bound:?}");
        let value = |name: &str| {
            let name: SecretName = name.parse().expect("a name");
            lookup.value_blocking(&sandbox, &name).map(|value| value.to_text().to_string()).map_err(|error| error.to_string())
        };
        assert_eq!(value("KEPT").as_deref(), Ok(VALUE));
        assert_eq!(value("PRINTED"), Ok(VALUE.chars().rev().collect()));
        assert_eq!(value("CALLER").as_deref(), Ok("the-callers-own-value"));
        assert!(value("OTHER").is_err());
        assert_private(ground, child.id());
        drop(owner);
        let outcome = ended(child);
        assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""));
        assert!(lookup.value_blocking(&"other".parse().expect("a name"), &"KEPT".parse().expect("a name")).is_err(), "it is gone");
    });
}

#[test]
fn a_key_in_pem_is_kept_as_it_is_and_nothing_else_with_line_breaks() {
    as_both(|ground| {
        let pem = "-----BEGIN PRIVATE KEY-----\nAQIDBAUGBwgJ\nCgsMDQ4PEBES\n-----END PRIVATE KEY-----\n";
        let kept = set(ground, "APP_KEY", pem);
        assert_eq!((kept.code, kept.stderr.as_str()), (Some(0), "stockade: kept `APP_KEY`\n"));
        let refused = set(ground, "OTHER", &pem.replace("PRIVATE KEY-----\nAQID", "PRIVATE KEY-----\nX-Header: y"));
        assert!(refused.code == Some(125) && refused.stderr.contains("line break"), "{refused:?}");
    });
}
