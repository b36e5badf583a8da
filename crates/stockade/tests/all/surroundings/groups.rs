//! Views of control groups: version 2 alone, version 1 alone, both, none. A limit that was asked for is held or refused, nothing between.

use super::{Surroundings, text};
use crate::wall::{Ground, Who, as_both};

const VIEWS: [(&str, &str); 4] = [
    ("mixed", ""),
    (
        "version 2 alone",
        "two=$(findmnt --noheadings --output TARGET --types cgroup2 | head -n 1); mkdir \"$1/two\"; mount --bind \"$two\" \"$1/two\"
         umount --recursive --lazy /sys/fs/cgroup; mount --bind \"$1/two\" /sys/fs/cgroup; umount \"$1/two\"; rmdir \"$1/two\"",
    ),
    ("version 1 alone", "findmnt --noheadings --output TARGET --types cgroup2 | while read -r place; do umount --lazy \"$place\"; done"),
    ("none", "umount --recursive --lazy /sys/fs/cgroup"),
];

#[test]
fn a_limit_is_held_or_refused_in_every_view() {
    as_both(|ground| {
        for (name, setup) in VIEWS {
            let view = Surroundings { setup, pretend: &[] };
            view.reports(ground, &[], &[("files", "enforced"), ("processes", "enforced"), ("pids", "enforced")]);
            for (flag, value, demand) in [("--memory", "256M", "memory"), ("--cpus", "1", "cpu"), ("--pids", "50", "pids")] {
                let (code, found) = view.json(ground, &["run", flag, value, "--", "true"]);
                match code {
                    Some(0) => assert_eq!(text(&found["enforcement"][demand]), "enforced", "{name}: {found}"),
                    Some(125) => {
                        let (message, hint) = (text(&found["error"]["message"]), text(&found["error"]["hint"]));
                        assert!(message.contains(&format!("{demand} cannot be enforced")) && !hint.is_empty(), "{name}: {found}");
                        let degraded = view.json(ground, &["run", flag, value, "--allow-degraded", demand, "--", "true"]);
                        assert_eq!(degraded.0, Some(0), "{name}: {}", degraded.1);
                        assert_ne!(text(&degraded.1["enforcement"][demand]), "enforced", "{name}: {}", degraded.1);
                    }
                    other => panic!("{name}: {other:?} {found}"),
                }
            }
        }
    });
}

/// So that the test above is known to see both: with none nothing can be held but processes, as root with all of them everything is.
#[test]
fn without_any_group_memory_is_refused() {
    as_both(|ground| {
        let none = Surroundings { setup: VIEWS[3].1, pretend: &[] };
        let (code, value) = none.json(ground, &["run", "--memory", "256M", "--", "true"]);
        let error = value["error"].to_string();
        assert!(code == Some(125) && error.contains("memory cannot be enforced") && error.contains("cgroup"), "{value}");
        none.reports(ground, &[], &[("memory", "partial"), ("pids", "enforced")]);
        let outcome = none.stockade(ground, &["doctor"]);
        assert!(outcome.code == Some(0) && outcome.stdout.contains("cgroup"), "{outcome:?}");
    });
    let root = Ground::new(Who::Root);
    Surroundings { setup: "", pretend: &[] }.reports(
        &root,
        &["--memory", "256M", "--cpus", "1", "--pids", "50"],
        &[("memory", "enforced")],
    );
}
