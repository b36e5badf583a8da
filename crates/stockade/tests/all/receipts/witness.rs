//! A ledger that is put back as a whole is a sound one; only a witness knows better.

use super::{all, holds, receipts, receipts_json};
use crate::wall::ground::{eventually, finish};
use crate::wall::{Ground, as_both};

/// Runs something, and waits until the witness has seen so many receipts: it is asked when the caller has its answer.
fn run_until_seen(ground: &Ground, receipts: u64) {
    assert_eq!(ground.run(&[], &["true"]).code, Some(0));
    eventually("the witness has seen it", || receipts_json(ground, &["verify"])["witnessed"] == receipts);
}

#[test]
fn only_the_witness_notices_that_a_whole_ledger_was_put_back() {
    as_both(|ground| {
        let witness = ground.base.join("elsewhere/witness");
        ground.directory(&ground.base.join("elsewhere"));
        let set = finish(&mut ground.stockade(["config", "set", "receipts.witness.directory", witness.to_str().expect("a path")]));
        assert_eq!(set.code, Some(0), "{set:?}");
        run_until_seen(ground, 3);
        let ledger = ground.state.join("stockade/receipts");
        let (place, old) = (ledger.display(), ground.base.join("elsewhere/old"));
        ground.host(&format!("cp -a '{place}' '{}'", old.display()));
        run_until_seen(ground, 5);
        ground.host(&format!("rm -r '{place}' && cp -a '{}' '{place}'", old.display()));
        let outcome = receipts(ground, &["verify"]);
        assert!(outcome.code == Some(1) && outcome.stderr.contains("rolled back"), "{outcome:?}");
        let value = receipts_json(ground, &["verify"]);
        assert!(value["broken"].as_str().is_some_and(|what| what.contains("seen 5") && what.contains("has 3")), "{value}");
        // Whoever goes on with it is told at the next command.
        assert_eq!(ground.run(&[], &["true"]).code, Some(0));
        let refused = ledger.join("witness-refused");
        eventually("the witness refused", || refused.exists());
        let outcome = ground.run(&[], &["true"]);
        assert!(outcome.code == Some(0) && outcome.stderr.contains("were not witnessed"), "{outcome:?}");
        assert_eq!(finish(&mut ground.stockade(["config", "unset", "receipts.witness.directory"])).code, Some(0));
        holds(ground);
        assert!(all(ground).len() > 5, "without a witness nothing is wrong with it");
    });
}

#[test]
fn a_witness_that_cannot_be_one_is_told_by_the_check() {
    let ground = Ground::new(crate::wall::Who::Root);
    let set = |key: &str, value: &str| finish(&mut ground.stockade(["config", "set", key, value])).code;
    let unset = |key: &str| finish(&mut ground.stockade(["config", "unset", key])).code;
    assert_eq!(ground.run(&[], &["true"]).code, Some(0));
    let inside = ground.state.join("stockade/witness");
    for (value, word) in [(inside.to_str().expect("a path"), "rolled back with it"), ("somewhere", "not an absolute path")] {
        assert_eq!(set("receipts.witness.directory", value), Some(0));
        let outcome = receipts(&ground, &["verify"]);
        assert!(outcome.code == Some(125) && outcome.stderr.contains(word), "{outcome:?}");
    }
    assert_eq!(unset("receipts.witness.directory"), Some(0));
    assert_eq!(set("receipts.witness.command", "/bin/false"), Some(0));
    let outcome = receipts(&ground, &["verify"]);
    assert!(outcome.code == Some(125) && outcome.stderr.contains("receipts.witness.name"), "{outcome:?}");
    let key = ground.state.join("stockade/receipts/key.pub.pem");
    assert_eq!(set("receipts.witness.name", "example.org/witness"), Some(0));
    assert_eq!(set("receipts.witness.publicKey", key.to_str().expect("a path")), Some(0));
    let outcome = receipts(&ground, &["verify"]);
    assert!(outcome.code == Some(125) && outcome.stderr.contains("the witness did not sign"), "{outcome:?}");
    assert_eq!(unset("receipts.witness.command"), Some(0));
    holds(&ground);
}
