//! What somebody who changes receipts gets.

use super::{all, holds, receipts, receipts_json, tamper};
use crate::wall::ground::finish;
use crate::wall::{Ground, as_both};

fn runs(ground: &Ground, count: usize) {
    for number in 0..count {
        assert_eq!(ground.run(&[], &["true", &format!("number-{number}")]).code, Some(0));
    }
}

#[test]
fn a_changed_database_is_noticed_and_the_record_is_named() {
    as_both(|ground| {
        runs(ground, 3);
        assert_eq!(holds(ground), 6);
        let id = all(ground)[2]["receipt_id"].as_str().expect("an id").to_owned();
        tamper(ground, "UPDATE receipts SET body = CAST(replace(CAST(body AS TEXT), 'number-1', 'number-9') AS BLOB) WHERE seq = 2");
        let value = receipts_json(ground, &["verify"]);
        let broken = value["broken"].as_str().unwrap_or_else(|| panic!("{value}"));
        assert!(value["holds"] == false && broken.contains("receipt 2") && broken.contains("signature"), "{broken}");
        let outcome = receipts(ground, &["verify"]);
        assert!(outcome.code == Some(1) && outcome.stderr.contains("BROKEN"), "{outcome:?}");
        tamper(ground, "UPDATE receipts SET body = CAST(replace(CAST(body AS TEXT), 'number-9', 'number-1') AS BLOB) WHERE seq = 2");
        assert_eq!(holds(ground), 6, "put back it holds again: {id}");
        tamper(ground, "DELETE FROM receipts WHERE seq = 3");
        let value = receipts_json(ground, &["verify"]);
        assert!(value["broken"].as_str().is_some_and(|what| what.contains("receipt 3 was expected")), "{value}");
    });
}

#[test]
fn an_export_holds_with_the_key_alone_and_not_when_it_is_changed() {
    as_both(|ground| {
        runs(ground, 3);
        let file = ground.base.join("export.jsonl");
        ground.plant(&file, "", 0o600);
        let path = file.to_str().expect("a path");
        assert_eq!(receipts(ground, &["export", "--output", path]).code, Some(0));
        let key = ground.state.join("stockade/receipts/key.pub.pem");
        let key = key.to_str().expect("a path");
        assert_eq!(receipts_json(ground, &["verify", path])["receipts"], 6);
        assert_eq!(receipts_json(ground, &["verify", path, "--key", key])["all"], true);
        // The small checker needs nothing but the key.
        let text = std::fs::read_to_string(&file).expect("an export");
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        let changed = [
            ("line 4", text.replacen("number-1", "number-7", 1)),
            ("line 3", [&lines[..2], &lines[3..]].concat().concat()),
            ("closing", lines[..lines.len() - 1].concat()),
            ("line 2", [lines[0], lines[2], lines[1]].concat() + &lines[3..].concat()),
        ];
        for (place, changed) in changed {
            ground.plant(&file, &changed, 0o600);
            let outcome = receipts(ground, &["verify", path]);
            assert!(outcome.code == Some(1) && outcome.stderr.contains(place), "{place}: {outcome:?}");
        }
        let other = Ground::new(ground.who);
        runs(&other, 1);
        ground.plant(&file, &text, 0o644);
        let outcome = finish(&mut other.stockade(["receipts", "verify", path]));
        assert!(outcome.code == Some(1) && outcome.stderr.contains("none of the given keys"), "{outcome:?}");
    });
}

#[test]
fn a_proof_of_one_call_holds_by_itself() {
    as_both(|ground| {
        runs(ground, 3);
        let id = all(ground)[2]["receipt_id"].as_str().expect("an id").to_owned();
        let proof = ground.base.join("proof.jsonl");
        ground.plant(&proof, "", 0o600);
        let path = proof.to_str().expect("a path");
        assert_eq!(receipts(ground, &["prove", &id, "--output", path]).code, Some(0));
        let value = receipts_json(ground, &["verify", path]);
        assert_eq!((&value["receipts"], &value["of"], &value["all"]), (&2.into(), &6.into(), &false.into()));
    });
}

#[test]
fn programs_and_configurations_are_compared() {
    as_both(|ground| {
        ground.script("job", "#!/bin/sh\nexit 0\n");
        assert_eq!(ground.run(&[], &["./job"]).code, Some(0));
        let value = receipts_json(ground, &["verify", "--binaries"]);
        assert_eq!((&value["holds"], &value["programs"]), (&true.into(), &1.into()), "{value}");
        assert_eq!(value["configurations"]["compared"], 1);
        ground.script("job", "#!/bin/sh\nexit 1\n");
        assert_eq!(receipts_json(ground, &["verify"])["holds"], true, "only where it is asked for");
        let value = receipts_json(ground, &["verify", "--binaries"]);
        assert!(value["broken"].as_str().is_some_and(|what| what.contains("receipt 1") && what.contains("/job")), "{value}");
        let digest = all(ground)[0]["sandbox"]["spec_digest"].as_str().expect("a digest").to_owned();
        let kept = ground.state.join(format!("stockade/receipts/payloads/{}/{}", &digest[..2], &digest[2..]));
        let text = std::fs::read_to_string(&kept).expect("kept");
        ground.plant(&kept, &text.replace("overlay", "rw"), 0o600);
        let value = receipts_json(ground, &["verify"]);
        assert!(value["broken"].as_str().is_some_and(|what| what.contains("configuration")), "{value}");
        std::fs::remove_file(&kept).expect("removed");
        let value = receipts_json(ground, &["verify"]);
        assert_eq!((&value["holds"], &value["configurations"]["gone"]), (&true.into(), &1.into()), "what is deleted harms nothing");
    });
}
