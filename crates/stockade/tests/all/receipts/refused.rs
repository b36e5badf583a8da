//! No receipt, no run.

use super::{all, holds};
use crate::wall::ground::finish;
use crate::wall::{Ground, Who, as_both};

/// Runs a script of root's in a mount name space of its own.
fn in_mounts(ground: &Ground, script: &str) -> crate::Outcome {
    let mut command = ground.outside("unshare");
    command.args(["--mount", "--propagation", "private", "--", "bash", "-euc", script]);
    finish(&mut command)
}

#[test]
fn where_the_intent_cannot_be_written_nothing_runs() {
    let ground = Ground::new(Who::Root);
    assert_eq!(ground.run(&["--workspace-mode", "rw"], &["true"]).code, Some(0));
    let (ledger, binary) = (ground.state.join("stockade/receipts"), ground.binary.display());
    let run = format!("set +e; '{binary}' run --json --workspace-mode rw -- touch ran; echo \"code $?\"");
    let check = |what: &str, script: &str, said: &[&str]| {
        let outcome = in_mounts(&ground, &format!("{script}\n{run}"));
        assert!(outcome.stdout.ends_with("code 125\n"), "{what}: {outcome:?}");
        let value: serde_json::Value = serde_json::from_str(outcome.stdout.lines().next().unwrap_or_default()).expect("JSON");
        assert_eq!(value["error"]["step"], "receipt", "{what}: {value}");
        assert!(said.iter().any(|word| value["error"].to_string().contains(word)), "{what}: {value}");
        assert!(!ground.work.join("ran").exists(), "{what}: it ran");
    };
    let place = ledger.display();
    check("read-only", &format!("mount --bind '{place}' '{place}'; mount -o remount,bind,ro '{place}'"), &["writable"]);
    let full = format!(
        "cp -a '{place}' '{place}.copy'; mount -t tmpfs -o size=1200k none '{place}'; cp -a '{place}.copy/.' '{place}/'; rm -r '{place}.copy'
         head -c 10M /dev/zero > '{place}/filler' 2>/dev/null || true"
    );
    check("full", &full, &["full", "room", "disk"]);
    check("damaged", &format!("mount -t tmpfs none '{place}'; head -c 20000 /dev/urandom > '{place}/ledger.db'"), &["begin a new ledger"]);
    assert_eq!(holds(&ground), 2, "and nothing of it is in the ledger");
}

#[test]
fn a_ledger_of_somebody_else_or_without_its_key_refuses() {
    as_both(|ground| {
        assert_eq!(ground.run(&[], &["true"]).code, Some(0));
        let key = ground.state.join("stockade/receipts/key.pem");
        let kept = std::fs::read(&key).expect("a key");
        std::fs::remove_file(&key).expect("removed");
        ground.refused(125, &[], &["true"], &["key", "is missing"]);
        ground.plant(&key, std::str::from_utf8(&kept).expect("text"), 0o644);
        ground.refused(125, &[], &["true"], &["others may have read it", "chmod 600"]);
        ground.plant(&key, std::str::from_utf8(&kept).expect("text"), 0o600);
        assert_eq!(ground.run(&[], &["true"]).code, Some(0));
        assert_eq!(all(ground).len(), 4);
    });
}

#[test]
fn what_settings_ask_for_is_held() {
    as_both(|ground| {
        for durability in ["always", "process", "effect"] {
            assert_eq!(finish(&mut ground.stockade(["config", "set", "receipts.durability", durability])).code, Some(0));
            assert_eq!(ground.run(&[], &["true"]).code, Some(0));
        }
        assert_eq!(holds(ground), 9);
    });
}
