//! Created sandboxes: the same way out for every command in them, and what went through it can be asked for.

use serde_json::Value;

use super::as_both;
use super::world::{VALUE, words};
use crate::wall::ground::{ended, eventually};
use std::process::Stdio;

#[test]
fn a_created_sandbox_keeps_its_way_out_until_it_is_destroyed() {
    as_both(|world| {
        let mut flags = world.secure_flags();
        flags.extend(["--secret".into(), format!("TOKEN@api.test:{}", world.secure)]);
        let made = world.stockade(&[&["sandbox", "create", "--name", "box"], &words(&flags)[..]].concat());
        assert_eq!(made.code, Some(0), "{made:?}");
        let binary = world.binary.to_str().expect("a path");
        let mut follower = world.command([binary, "sandbox", "network", "box", "--follow", "--json"]);
        let follower = follower.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
        let script = format!("curl -sS -H \"Authorization: Bearer $TOKEN\" https://api.test:{}/echo", world.secure);
        for _ in 0..2 {
            let outcome = world.stockade(&["sandbox", "exec", "box", "--", "bash", "-c", &script]);
            assert!(outcome.code == Some(0) && !outcome.stdout.contains(VALUE), "{outcome:?}");
        }
        let seen = world.seen();
        assert_eq!(seen.len(), 2, "{seen:?}");
        assert!(seen.iter().all(|one| one["headers"]["authorization"] == format!("Bearer {VALUE}")));
        let refused = world.stockade(&["sandbox", "exec", "box", "--", "curl", "-sS", &format!("http://denied.test:{}/", world.plain)]);
        assert!(refused.stdout.contains("--allow-host denied.test"), "{refused:?}");
        let plain = world.stockade(&["sandbox", "exec", "box", "--env", "TOKEN", "--", "env"]);
        assert!(plain.code == Some(125) && plain.stderr.contains("placeholder"), "{plain:?}");
        let rows = || -> Vec<Value> {
            let told = world.stockade(&["sandbox", "network", "box", "--json"]);
            let value: Value = serde_json::from_str(&told.stdout).unwrap_or_else(|error| panic!("{error}: {told:?}"));
            value["network"].as_array().cloned().unwrap_or_default()
        };
        eventually("three rows", || rows().len() == 3);
        let verdicts: Vec<Value> = rows().iter().map(|row| row["verdict"].clone()).collect();
        assert_eq!(verdicts, ["allow", "allow", "deny"]);
        let shown = world.stockade(&["sandbox", "network", "box"]);
        assert!(shown.stdout.contains("secret TOKEN") && !shown.stdout.contains(VALUE), "{shown:?}");
        let gone = world.stockade(&["sandbox", "destroy", "box"]);
        assert_eq!(gone.code, Some(0), "{gone:?}");
        let followed = ended(follower);
        assert_eq!((followed.code, followed.stdout.lines().count()), (Some(0), 3), "{followed:?}");
        world.all_ended();
        assert_eq!(world.sandboxes(), Vec::<String>::new());
    });
}
