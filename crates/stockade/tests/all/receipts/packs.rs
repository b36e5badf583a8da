//! What capabilities, packs and trust in publishers leave.

use serde_json::json;

use super::{all, holds};
use crate::wall::as_both;
use crate::wall::ground::{finish, finish_with};

const MANIFEST: &str = "name = \"demo\"\nversion = \"1.0.0\"\ndescription = \"A demonstration.\"\npublisher = \"acme\"\n";
const ECHO: &str = "name = \"demo.echo\"\ndescription = \"Say something.\"\neffect = \"read\"\nprogram = \"echo\"\nargs = [\"{word}\"]\n\
                    input = { required = [\"word\"], properties = { word = { type = \"string\" } } }\n\
                    [[examples]]\ninput = { word = \"a\" }\nargv = [\"echo\", \"a\"]\n\
                    [[examples]]\ninput = { word = \"-n\" }\nverdict = \"deny\"\n";

#[test]
fn a_capability_leaves_its_name_its_inputs_and_who_vouches_for_it() {
    as_both(|ground| {
        let stockade = |words: &[&str]| finish(&mut ground.stockade(words));
        ground.file("demo/pack.toml", MANIFEST);
        ground.file("demo/capabilities/demo.echo.toml", ECHO);
        assert_eq!(stockade(&["pack", "install", "demo", "--unsigned", "--yes"]).code, Some(0));
        let rules = |effect: &str| format!("{effect} (principal, action in Stockade::Action::\"invoke\", resource);\n");
        ground.plant(&ground.home.join(".config/stockade/policy/rules.cedar"), &rules("permit"), 0o600);
        let ran = stockade(&["cap", "run", "--json", "demo.echo", "--input", "word=two words"]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let result: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
        ground.plant(&ground.home.join(".config/stockade/policy/rules.cedar"), &rules("forbid"), 0o600);
        assert_eq!(stockade(&["cap", "run", "demo.echo", "--input", "word=no"]).code, Some(126));
        let found = all(ground);
        let kinds: Vec<&str> = found.iter().filter_map(|receipt| receipt["kind"].as_str()).collect();
        assert_eq!(kinds, ["lifecycle", "intent", "outcome", "denied"]);
        assert_eq!(found[0]["argv"], json!(["stockade", "pack", "install", "demo", "1.0.0", "unsigned"]));
        assert_eq!(found[1]["receipt_id"], result["receipt_id"]);
        for receipt in &found[1..] {
            assert_eq!(receipt["capability"], "demo.echo");
            let reasons = receipt["policy"]["reasons"].to_string();
            assert!(reasons.contains("of the pack `demo`, unsigned"), "{receipt}");
        }
        assert_eq!(found[2]["argv"], json!(["demo.echo", "{\"word\":\"two words\"}"]));
        assert_eq!(found[2]["argv_executed"][1], "two words");
        assert_eq!(found[2]["result"]["exit_code"], 0);
        assert_eq!(found[3]["policy"]["verdict"], "deny");
        assert_eq!(holds(ground), 4);
    });
}

#[test]
fn keys_signatures_and_trust_are_written_down() {
    as_both(|ground| {
        let stockade = |words: &[&str]| finish(&mut ground.stockade(words)).code;
        assert_eq!(stockade(&["pack", "init", "demo", "--publisher", "acme"]), Some(0));
        let with = |words: &[&str]| finish_with(&mut ground.stockade(words), b"correct horse battery\n").code;
        assert_eq!(with(&["pack", "keygen", "acme"]), Some(0));
        assert_eq!(with(&["pack", "sign", "demo", "--key", "acme.key"]), Some(0));
        assert_eq!(stockade(&["trust", "add", "acme", "acme.key.pub"]), Some(0));
        assert_eq!(stockade(&["pack", "install", "demo", "--yes"]), Some(0));
        assert_eq!(stockade(&["pack", "remove", "demo"]), Some(0));
        assert_eq!(stockade(&["trust", "remove", "acme", "--revoke"]), Some(0));
        let found = all(ground);
        let what: Vec<&str> = found.iter().filter_map(|receipt| receipt["capability"].as_str()).collect();
        let expected = ["pack.init", "pack.keygen", "pack.sign", "trust.add", "pack.install", "pack.remove", "trust.remove"];
        assert_eq!(what, expected.map(|verb| format!("stockade.{verb}")));
        assert!(!found.iter().any(|receipt| receipt.to_string().contains("correct horse")));
        assert_eq!(holds(ground), 7);
    });
}
