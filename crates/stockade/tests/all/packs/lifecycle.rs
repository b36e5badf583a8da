//! A pack from its first file to its removal.

use serde_json::json;

use super::{ECHO, installed, json, keygen, on_disk, pack, sign, tell};
use crate::wall::{Ground, Who, as_both};

#[test]
fn a_pack_is_written_signed_installed_run_and_removed() {
    as_both(|ground| {
        assert_eq!(json(ground, &["pack", "init", "tools", "--publisher", "acme"])["pack"], "tools");
        assert_eq!(json(ground, &["pack", "lint", "tools"])["examples"], 2);
        keygen(ground, "acme");
        assert!(!ground.read("acme.key").contains("PRIVATE"), "the key is encrypted");
        let signed = sign(ground, "tools", "acme.key", &["--archive", "tools.tar.zst"]);
        assert_eq!(signed.code, Some(0), "{signed:?}");
        for form in ["tools", "tools.tar.zst"] {
            let refused = tell(ground, &["pack", "install", form, "--yes"]);
            assert!(refused.code == Some(125) && refused.stderr.contains("not trusted"), "{refused:?}");
        }
        assert_eq!(tell(ground, &["trust", "add", "acme", "acme.key.pub"]).code, Some(0));
        assert_eq!(json(ground, &["pack", "verify", "tools.tar.zst"])["publisher"], "acme");
        let unasked = tell(ground, &["pack", "install", "tools.tar.zst"]);
        assert!(unasked.code == Some(125) && unasked.stderr.contains("tools.count (read, low): runs wc"), "{unasked:?}");
        assert_eq!(on_disk(ground), Vec::<String>::new());
        assert_eq!(json(ground, &["pack", "install", "tools.tar.zst", "--yes"])["standing"], "signed");
        ground.file("a b", "1\n2\n");
        let work = ground.work.display();
        let ran = tell(ground, &["cap", "run", "tools.count", "--input", "paths=a b"]);
        assert_eq!((ran.code, ran.stdout), (Some(0), format!("2 {work}/a b\n")), "{}", ran.stderr);
        let listed = json(ground, &["pack", "list"]);
        let ours = listed["packs"].as_array().expect("packs").iter().find(|pack| pack["name"] == "tools").expect("it is listed");
        assert_eq!((&ours["standing"], &ours["publisher"]), (&json!("signed"), &json!("acme")));
        assert_eq!(tell(ground, &["trust", "remove", "acme", "--revoke"]).code, Some(0));
        let gone = tell(ground, &["cap", "run", "tools.count", "--input", "paths=a b"]);
        assert!(gone.code == Some(125) && gone.stderr.contains("revoked"), "{gone:?}");
        assert_eq!(json(ground, &["trust", "list"])["keys"][0]["state"], "revoked");
        assert_eq!(tell(ground, &["trust", "add", "acme", "acme.key.pub"]).code, Some(125), "a revoked key never counts again");
        assert_eq!(tell(ground, &["pack", "remove", "tools"]).code, Some(0));
        assert_eq!(on_disk(ground), Vec::<String>::new());
    });
}

#[test]
fn without_a_signature_a_pack_is_refused_unless_a_person_says_so() {
    let ground = Ground::new(Who::Ordinary);
    pack(&ground, "demo", "1.0.0", ECHO);
    let refused = tell(&ground, &["pack", "install", "demo", "--yes"]);
    assert!(refused.code == Some(125) && refused.stderr.contains("not signed") && refused.stderr.contains("--unsigned"), "{refused:?}");
    installed(&ground, ECHO);
    assert_eq!(json(&ground, &["cap", "show", "demo.echo"])["standing"], "unsigned");
    assert_eq!(tell(&ground, &["cap", "run", "demo.echo", "-i", "word=a  b"]).stdout, "a  b\n");
}

/// What was found right about rules is forgotten when there is less to be named.
#[test]
fn a_rule_about_a_pack_that_is_gone_is_an_error_at_once() {
    let ground = Ground::new(Who::Ordinary);
    installed(&ground, ECHO);
    let rules = ground.home.join(".config/stockade/policy/own.cedar");
    ground.plant(
        &rules,
        "permit (principal, action, resource);\nforbid (principal, action == Stockade::Action::\"demo.echo\", resource);\n",
        0o600,
    );
    for _ in 0..2 {
        let ran = ground.run(&[], &["true"]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
    }
    assert_eq!(tell(&ground, &["pack", "remove", "demo"]).code, Some(0));
    let refused = ground.run(&[], &["true"]);
    assert!(refused.code == Some(125) && refused.stderr.contains("demo.echo"), "{refused:?}");
}

#[test]
fn versions_go_up_unless_a_person_says_so() {
    let ground = Ground::new(Who::Ordinary);
    pack(&ground, "new", "1.10.0", ECHO);
    pack(&ground, "old", "1.9.0", ECHO);
    let install = |directory: &str, more: &[&str]| tell(&ground, &[&["pack", "install", directory, "--unsigned", "--yes"], more].concat());
    assert_eq!(install("new", &[]).code, Some(0));
    let refused = install("old", &[]);
    assert!(refused.code == Some(125) && refused.stderr.contains("1.10.0") && refused.stderr.contains("--allow-downgrade"), "{refused:?}");
    assert_eq!(install("old", &["--allow-downgrade"]).code, Some(0));
    let listed = json(&ground, &["pack", "list"]);
    assert!(listed["packs"].as_array().is_some_and(|packs| packs.iter().any(|pack| pack["version"] == "1.9.0")), "{listed}");
}

#[test]
fn faults_are_shown_with_their_place() {
    let ground = Ground::new(Who::Ordinary);
    pack(&ground, "demo", "1.0.0", &ECHO.replace("effect = \"read\"", "efect = \"read\""));
    let linted = tell(&ground, &["pack", "lint", "demo"]);
    assert_eq!((linted.code, linted.stdout.as_str()), (Some(125), ""), "{linted:?}");
    assert!(linted.stderr.contains("demo.echo.toml:4") && linted.stderr.contains('^') && linted.stderr.contains("efect"), "{linted:?}");
    pack(&ground, "demo", "1.0.0", &ECHO.replace("argv = [\"echo\", \"a b\"]", "argv = [\"echo\", \"a\", \"b\"]"));
    let linted = tell(&ground, &["pack", "lint", "demo"]);
    assert!(linted.code == Some(125) && linted.stderr.contains("the example gives"), "{linted:?}");
}

#[test]
fn a_key_opens_with_its_passphrase_alone_and_signs_for_its_owner_alone() {
    use crate::wall::ground::finish_with;

    let ground = Ground::new(Who::Ordinary);
    pack(&ground, "demo", "1.0.0", ECHO);
    keygen(&ground, "acme");
    keygen(&ground, "other");
    let wrong = finish_with(&mut ground.stockade(["pack", "sign", "demo", "--key", "acme.key"]), b"wrong horse battery\n");
    assert!(wrong.code == Some(125) && wrong.stderr.contains("passphrase"), "{wrong:?}");
    let foreign = sign(&ground, "demo", "other.key", &[]);
    assert!(foreign.code == Some(125) && foreign.stderr.contains("publisher"), "{foreign:?}");
    assert!(!ground.work.join("demo/signature.json").exists());
    assert_eq!(tell(&ground, &["pack", "keygen", "acme"]).code, Some(125), "a key is never overwritten");
}
