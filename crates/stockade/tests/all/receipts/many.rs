//! Many at once.

use std::process::Stdio;

use super::{all, holds};
use crate::wall::as_both;
use crate::wall::ground::ended;

#[test]
fn twenty_processes_at_once_lose_nothing() {
    as_both(|ground| {
        let children: Vec<_> = (0..20)
            .map(|number| {
                let argv = ["true".to_owned(), format!("number-{number}")];
                let mut command = ground.running(&[], &argv.each_ref().map(String::as_str));
                command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started")
            })
            .collect();
        for child in children {
            let outcome = ended(child);
            assert_eq!(outcome.code, Some(0), "{outcome:?}");
        }
        let found = all(ground);
        for number in 0..20 {
            let of = found.iter().filter(|receipt| receipt["argv"][1] == format!("number-{number}"));
            let mut kinds: Vec<&str> = of.filter_map(|receipt| receipt["kind"].as_str()).collect();
            kinds.sort_unstable();
            assert_eq!(kinds, ["intent", "outcome"], "{number}");
        }
        assert_eq!(holds(ground), 40);
    });
}
