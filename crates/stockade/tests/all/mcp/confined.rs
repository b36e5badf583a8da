//! The server is confined: what the kernel says of it, what it cannot be talked into, and that everything it needs is started by others.

use serde_json::json;

use super::client::Client;
use super::{ASKS, DEVELOPER, receipts, rules, verified};
use crate::daemon::held::is_held;
use crate::wall::ground::{as_both, eventually, finish};
use crate::wall::{Ground, Who};

fn set(ground: &Ground, key: &str, value: &str) {
    let outcome = finish(&mut ground.stockade(["config", "set", key, value]));
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
}

/// Those that it started before it was confined, by their role.
fn helper(client: &Client, role: &str) -> u32 {
    let pid = client.pid();
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("children");
    let is = |pid: &u32| std::fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.contains(role));
    children.split_whitespace().filter_map(|pid| pid.parse().ok()).find(is).unwrap_or_else(|| panic!("no {role}: {children}"))
}

#[test]
fn the_kernel_holds_it_while_it_works() {
    as_both(|ground| {
        rules(ground, DEVELOPER);
        let mut client = Client::new(ground);
        is_held(ground, client.pid());
        assert_eq!(client.shell("echo made > made; cat made")["content"][0]["text"], "made\n");
        for _ in 0..3 {
            let read = client.call("shell_read_only", &json!({"script": "cat made"}));
            assert_eq!(read["content"][0]["text"], "made\n");
        }
        assert_eq!(client.call("read_file", &json!({"path": "made"}))["content"][0]["text"], "made\n");
        is_held(ground, client.pid());
        // The launcher has nothing of the caller's environment, and the steward's is nobody's business.
        let launcher = helper(&client, "launcher");
        assert_eq!(std::fs::read(format!("/proc/{launcher}/environ")).expect("its environment"), b"");
        let steward = helper(&client, "steward");
        if ground.who == Who::Ordinary {
            let looked = finish(ground.outside("cat").arg(format!("/proc/{steward}/environ")));
            assert!(looked.code != Some(0) && looked.stdout.is_empty(), "{looked:?}");
        }
        let (code, said) = client.close();
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains("1 file changed"), "{said}");
        verified(ground);
    });
}

/// Without the wall that a person chose before the server started there is none to be had.
#[test]
fn no_wall_is_taken_down_while_it_serves() {
    as_both(|ground| {
        rules(ground, DEVELOPER);
        let mut client = Client::new(ground);
        set(ground, "sandbox.backend", "local");
        let refused = client.shell("true");
        let words = refused["content"][0]["text"].as_str().expect("words");
        assert!(refused["isError"] == true && words.contains("`local` was not chosen when this server started"), "{refused}");
        assert!(words.contains("start the server again"), "{words}");
        drop(client);
        // Chosen before, it is what it is.
        let mut client = Client::new(ground);
        let ran = client.shell("echo here > here; echo ran");
        assert_eq!((&ran["content"][0]["text"], &ran["structuredContent"]["backend"]), (&json!("ran\n"), &json!("local")), "{ran}");
        assert_eq!(ground.read("here"), "here\n");
        let (_, said) = client.close();
        assert!(said.contains("SANDBOX DISABLED"), "{said}");
    });
}

/// Installs a pack whose one capability reads a file of a directory of the host.
fn install(ground: &Ground, name: &str, shown: &std::path::Path) {
    ground.directory(shown);
    ground.plant(&shown.join("file"), "shown\n", 0o644);
    let file = shown.join("file");
    let (shown, file) = (shown.display(), file.display());
    ground.file(
        &format!("{name}/pack.toml"),
        &format!("name = \"{name}\"\nversion = \"1.0.0\"\ndescription = \"d\"\npublisher = \"acme\"\n"),
    );
    let capability = format!(
        "name = \"{name}.look\"\ndescription = \"Look.\"\neffect = \"read\"\nprogram = \"cat\"\nargs = [\"{file}\"]\n\
         [sandbox]\nmounts = [{{ host = \"{shown}\" }}]\n[[examples]]\ninput = {{}}\nargv = [\"cat\", \"{file}\"]\n"
    );
    ground.file(&format!("{name}/capabilities/{name}.look.toml"), &capability);
    let outcome = finish(&mut ground.stockade(["pack", "install", name, "--unsigned", "--yes"]));
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
}

/// Places that packs show besides home and the workspace are fixed with the rest.
#[test]
fn packs_show_what_they_did_when_it_started() {
    as_both(|ground| {
        rules(ground, "permit (principal, action, resource);");
        install(ground, "early", &ground.base.join("early"));
        let mut client = Client::new(ground);
        for _ in 0..3 {
            let shown = client.call("early_look", &json!({}));
            assert_eq!(shown["content"][0]["text"], "shown\n", "{shown}");
        }
        install(ground, "late", &ground.base.join("late"));
        let refused = client.call("late_look", &json!({}));
        let words = refused["content"][0]["text"].as_str().expect("words");
        assert!(words.contains("outside the directories") && words.contains("start the server again"), "{refused}");
        drop(client);
        let shown = Client::new(ground).call("late_look", &json!({}));
        assert_eq!(shown["content"][0]["text"], "shown\n", "{shown}");
    });
}

/// What needs no other process goes on; what does is told why it cannot.
#[test]
fn without_its_steward_only_the_way_out_is_gone() {
    as_both(|ground| {
        rules(ground, "permit (principal, action, resource);");
        set(ground, "sandbox.allowedHosts", "[\"example.org\"]");
        let mut client = Client::new(ground);
        let steward = helper(&client, "steward");
        ground.host(&format!("kill -9 {steward}"));
        eventually("it is gone", || std::fs::read(format!("/proc/{steward}/cmdline")).is_ok_and(|line| line.is_empty()));
        let failed = client.shell("true");
        let words = failed["content"][0]["text"].as_str().expect("words");
        assert!(failed["isError"] == true && words.contains("steward") && words.contains("start the server again"), "{failed}");
        set(ground, "sandbox.allowedHosts", "[]");
        assert_eq!(client.shell("echo ran")["content"][0]["text"], "ran\n");
        assert_eq!(client.close().0, Some(0));
        verified(ground);
    });
}

/// What it writes down for the supervisor of a sandbox that stays is held against what was fixed, by the supervisor itself.
#[test]
fn a_supervisor_holds_nothing_that_was_not_agreed_on() {
    as_both(|ground| {
        let made = finish(&mut ground.stockade(["sandbox", "create"]));
        let id = made.stdout.trim().to_owned();
        let directory = ground.state.join("stockade/sandboxes").join(&id);
        let charge = std::fs::read_to_string(directory.join("charge.json")).expect("a charge");
        assert_eq!(finish(&mut ground.stockade(["sandbox", "destroy", &id])).code, Some(0), "{made:?}");
        let held = |charge: &str, within: &std::path::Path| {
            ground.directory(&directory);
            ground.plant(&directory.join("charge.json"), charge, 0o600);
            let within = within.to_str().expect("a path");
            finish(&mut ground.stockade(["hold", &id, "--wall", "jail", "--within", within]))
        };
        let elsewhere = held(&charge, &ground.home);
        assert!(elsewhere.code == Some(125) && elsewhere.stdout.contains("outside the directories"), "{elsewhere:?}");
        let bare = held(&charge.replace("\"backend\":\"jail\"", "\"backend\":\"local\""), &ground.base);
        assert!(bare.code == Some(125) && bare.stdout.contains("`local` was not chosen"), "{bare:?}");
        assert!(!directory.exists(), "nothing is left of it");
    });
}

#[test]
fn without_its_launcher_calls_fail_and_it_still_ends() {
    as_both(|ground| {
        rules(ground, DEVELOPER);
        let mut client = Client::new(ground);
        let launcher = helper(&client, "launcher");
        ground.host(&format!("kill -9 {launcher}"));
        eventually("calls fail", || {
            let failed = client.shell("true");
            failed["isError"] == true && failed["content"][0]["text"].as_str().is_some_and(|text| text.contains("start the server again"))
        });
        assert_eq!(client.close().0, Some(0));
        assert_eq!(ground.sandboxes(), Vec::<String>::new());
        verified(ground);
    });
}

/// The program is fixed when the server starts: one that is named later is not run, whoever says so.
#[test]
fn a_person_is_told_by_the_program_that_was_named_before() {
    as_both(|ground| {
        rules(ground, ASKS);
        let (program, written) = (ground.base.join("tell"), ground.base.join("told"));
        ground.plant(&written, "", 0o666);
        ground.plant(&program, &format!("#!/bin/sh\nprintf '[%s]\\n' \"$@\" >> {}\n", written.display()), 0o755);
        set(ground, "approvals.notify.command", &format!("{} --urgent", program.display()));
        let mut client = Client::new(ground);
        client.shell("touch x");
        let told = || std::fs::read_to_string(&written).expect("a file");
        eventually("a person is told", || told().contains("asks: touch x"));
        assert!(told().starts_with("[--urgent]\n[Stockade: approval needed]\n[Agent::"), "{}", told());
        drop(client);
        let mut client = Client::new(ground);
        set(ground, "approvals.notify.command", "/bin/false");
        client.shell("touch y");
        let (_, said) = client.close();
        assert!(said.contains("nobody is told") && said.contains("changed after the server had started"), "{said}");
    });
}

/// A witness that is a program is asked by somebody who may run one.
#[test]
fn receipts_are_witnessed() {
    as_both(|ground| {
        rules(ground, DEVELOPER);
        assert_eq!(ground.run(&[], &["true"]).code, Some(0));
        let (program, asked) = (ground.base.join("witness"), ground.base.join("asked"));
        ground.plant(&asked, "", 0o666);
        ground.plant(&program, &format!("#!/bin/sh\ncat >> {}\necho 'not today' >&2\nexit 1\n", asked.display()), 0o755);
        set(ground, "receipts.witness.command", program.to_str().expect("a path"));
        set(ground, "receipts.witness.name", "example.org/witness");
        set(ground, "receipts.witness.publicKey", ground.state.join("stockade/receipts/key.pub.pem").to_str().expect("a path"));
        let refused = ground.state.join("stockade/receipts/witness-refused");
        let _ = std::fs::remove_file(&refused);
        ground.plant(&asked, "", 0o666);
        let mut client = Client::new(ground);
        assert_eq!(client.shell("echo ran")["content"][0]["text"], "ran\n");
        eventually("the witness was asked", || std::fs::read_to_string(&asked).is_ok_and(|text| text.contains("old 0")));
        eventually("its word is kept", || std::fs::read_to_string(&refused).is_ok_and(|text| text.contains("not today")));
        assert_eq!(client.close().0, Some(0));
        assert!(receipts(ground).iter().any(|one| one["kind"] == "outcome" && one["principal"]["agent"].is_string()));
    });
}
