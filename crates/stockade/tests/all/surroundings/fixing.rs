//! `doctor --fix`, in a mount namespace whose `/etc` and switches are the test's own.

use std::path::Path;

use serde_json::Value;

use super::{Surroundings, text};
use crate::wall::ground::finish;
use crate::wall::{Ground, Who};

const SHIPPED: &str = include_str!("../../../../../packaging/apparmor/stockade");

/// Directories and switches of the test's own, kept in `$1` so that they can be looked at afterwards. The program that loads profiles
/// writes down how it was called.
const UBUNTU: &str = r#"
mkdir -p "$1/kernel" "$1/apparmor" "$1/sysctl"
cp /proc/sys/kernel/osrelease "$1/kernel/"; echo 1 >"$1/kernel/apparmor_restrict_unprivileged_userns"
[ -e "$1/clone" ] && cp "$1/clone" "$1/kernel/unprivileged_userns_clone"
mount --bind "$1/kernel" /proc/sys/kernel
mkdir -p /etc/apparmor.d /etc/sysctl.d; mount --bind "$1/apparmor" /etc/apparmor.d; mount --bind "$1/sysctl" /etc/sysctl.d
printf '#!/bin/sh\necho "$@" >>"%s/calls"\n' "$1" >"$1/parser"; chmod 755 "$1/parser"
mount --bind "$1/parser" /usr/sbin/apparmor_parser
"#;

fn states(value: &Value) -> Vec<(String, String)> {
    let fixes = value["fixes"].as_array().unwrap_or_else(|| panic!("no fixes: {value}"));
    let kind = |fix: &Value| fix["deed"].as_object().and_then(|deed| deed.keys().next().cloned()).unwrap_or_default();
    fixes.iter().filter(|fix| fix["needs"] == "root").map(|fix| (kind(fix), text(&fix["state"]).to_owned())).collect()
}

fn state_of(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(deed, state)| ((*deed).to_owned(), (*state).to_owned())).collect()
}

#[test]
fn a_profile_for_this_program_and_nothing_wider() {
    let ubuntu = Surroundings { setup: UBUNTU, pretend: &[] };
    // Without root: the plan, and the one command.
    let ordinary = Ground::new(Who::Ordinary);
    let outcome = ubuntu.stockade(&ordinary, &["doctor", "--fix", "--yes"]);
    assert!(outcome.stderr.contains("write /etc/apparmor.d/stockade (as root)") && outcome.stderr.contains("userns,"), "{outcome:?}");
    assert!(outcome.stderr.contains(&format!("needs root: sudo {} doctor --fix", ordinary.binary.display())), "{outcome:?}");
    assert_eq!(std::fs::read_dir(ordinary.base.join("apparmor")).expect("there").count(), 0);

    let ground = Ground::new(Who::Root);
    // Nobody said yes.
    let outcome = ubuntu.stockade(&ground, &["doctor", "--fix"]);
    assert!(outcome.code == Some(125) && outcome.stderr.contains("nothing was changed") && outcome.stderr.contains("--yes"), "{outcome:?}");
    assert_eq!(std::fs::read_dir(ground.base.join("apparmor")).expect("there").count(), 0);
    // Somebody does; the second time there is nothing left to do.
    let (_, value) = ubuntu.json(&ground, &["doctor", "--fix", "--yes"]);
    assert_eq!(states(&value), state_of(&[("write", "done"), ("run", "done")]), "{value}");
    let (_, value) = ubuntu.json(&ground, &["doctor", "--fix", "--yes"]);
    assert_eq!(states(&value), [], "{value}");
    let read = |name: &str| std::fs::read_to_string(ground.base.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_eq!(read("calls"), "-r /etc/apparmor.d/stockade\n");
    assert_eq!(read("apparmor/stockade"), SHIPPED.replace("/usr/bin/stockade", ground.binary.to_str().expect("text")));
    assert_eq!(read("kernel/apparmor_restrict_unprivileged_userns"), "1\n", "the restriction stays for everybody else");
}

#[test]
fn a_distributions_own_switch_is_turned_and_stays() {
    let ground = Ground::new(Who::Root);
    std::fs::write(ground.base.join("clone"), "0\n").expect("written");
    let setup = format!("{UBUNTU}\nrm \"$1/clone\"; echo 0 >\"$1/kernel/apparmor_restrict_unprivileged_userns\"");
    let debian = Surroundings { setup: &setup, pretend: &[] };
    let (_, value) = debian.json(&ground, &["doctor", "--fix", "--yes"]);
    assert_eq!(states(&value), state_of(&[("write", "done"), ("set", "done")]), "{value}");
    let read = |name: &str| std::fs::read_to_string(ground.base.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert!(read("sysctl/60-stockade.conf").ends_with("\nkernel.unprivileged_userns_clone = 1\n"));
    assert_eq!(read("kernel/unprivileged_userns_clone"), "1");
}

#[test]
fn what_is_right_is_left_alone() {
    for who in [Who::Root, Who::Ordinary] {
        let ground = Ground::new(who);
        let first = finish(&mut ground.stockade(["doctor", "--fix", "--yes"]));
        assert_eq!(first.code, Some(0), "{first:?}");
        let second = finish(&mut ground.stockade(["doctor", "--fix"]));
        assert!(second.code == Some(0) && second.stderr.contains("nothing to fix"), "{second:?}");
        for heading in ["CHECK", "STATE", "DETAIL", "WHAT IT MEANS", "FIX"] {
            assert!(second.stdout.contains(heading), "{second:?}");
        }
    }
}

/// AppArmor's own parser reads the profile. Debian 12 has version 3, which knows neither that ABI nor the rule: there the rest of the
/// profile is read, and the whole must fail at exactly those.
#[test]
fn apparmor_reads_the_profile() {
    let ground = Ground::new(Who::Root);
    let version = finish(ground.outside("/usr/sbin/apparmor_parser").arg("--version"));
    let major: u32 = version
        .stdout
        .split_whitespace()
        .find_map(|word| word.split('.').next()?.parse().ok())
        .unwrap_or_else(|| panic!("no version in {version:?}"));
    let parse = |contents: &str| {
        let path = ground.base.join("profile");
        std::fs::write(&path, contents).expect("written");
        let mut command = ground.outside("/usr/sbin/apparmor_parser");
        finish(command.args(["--skip-kernel-load", "--skip-cache"]).arg(&path))
    };
    let whole = parse(SHIPPED);
    if major >= 4 {
        assert_eq!(whole.code, Some(0), "{whole:?}");
    } else {
        assert!(whole.code != Some(0) && whole.stderr.contains("abi/4.0"), "{whole:?}");
        let without_abi = SHIPPED.replace("abi <abi/4.0>,\n", "");
        let line = without_abi.lines().position(|line| line == "  userns,").map(|at| at + 1).expect("the rule");
        let refused = parse(&without_abi);
        assert!(refused.code != Some(0) && refused.stderr.contains(&format!("line {line}:")), "{refused:?}");
        let rest = parse(&without_abi.replace("  userns,\n", ""));
        assert_eq!(rest.code, Some(0), "{rest:?}");
    }
    let broken = parse(&SHIPPED.replace("flags=(unconfined)", "flags=(nonsense)"));
    assert_ne!(broken.code, Some(0), "{broken:?}");
    assert!(Path::new("/usr/sbin/apparmor_parser").exists());
}
