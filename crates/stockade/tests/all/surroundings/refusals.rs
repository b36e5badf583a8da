//! Machines that refuse what a jail is made of.

use super::{NAMESPACES, Surroundings};
use crate::wall::{Ground, Who, as_both};

const ALL_OF_THEM: [&str; 5] = ["files", "network", "processes", "privileges", "secrets"];

/// What AppArmor answers in a user namespace that it gives no rights, as on Ubuntu 24.04: the namespace is made, mounts in it answer
/// EACCES and whatever asks for a capability EPERM. The switch is where Ubuntu has it.
const UBUNTU: Surroundings<'_> = Surroundings {
    setup:
        "mkdir -p \"$1/kernel\"; cp /proc/sys/kernel/osrelease \"$1/kernel/\"; echo 1 >\"$1/kernel/apparmor_restrict_unprivileged_userns\"
            mount --bind \"$1/kernel\" /proc/sys/kernel",
    pretend: &["EPERM:unshare,sethostname,pivot_root", "EACCES:mount,open_tree,move_mount,fsopen,mount_setattr"],
};

const SWITCHED_OFF: Surroundings<'_> = Surroundings { setup: "", pretend: &["ids", "user.max_user_namespaces=0"] };

#[test]
fn user_namespaces_switched_off() {
    as_both(|ground| {
        SWITCHED_OFF.refuses(ground, &ALL_OF_THEM, "user.max_user_namespaces = 0", "doctor --fix");
        // The control: the same surroundings with the switch on.
        let on = Surroundings { pretend: &["ids", "user.max_user_namespaces=100"], ..SWITCHED_OFF };
        if ground.who == Who::Ordinary {
            on.reports(ground, &[], &[("files", "enforced"), ("network", "enforced")]);
        }
    });
}

/// Debian's own switch refuses with EPERM before a namespace is made; our kernel has no such switch, so its answer comes from a filter.
#[test]
fn user_namespaces_switched_off_for_ordinary_users() {
    let ground = Ground::new(Who::Ordinary);
    let debian = Surroundings {
        setup: "mkdir -p \"$1/kernel\"; cp /proc/sys/kernel/osrelease \"$1/kernel/\"; echo 0 >\"$1/kernel/unprivileged_userns_clone\"
                mount --bind \"$1/kernel\" /proc/sys/kernel",
        pretend: &["EPERM:clone3"],
    };
    debian.refuses(&ground, &ALL_OF_THEM, "kernel.unprivileged_userns_clone = 0", "doctor --fix");
}

#[test]
fn apparmor_as_on_ubuntu() {
    let ground = Ground::new(Who::Ordinary);
    UBUNTU.refuses(&ground, &ALL_OF_THEM, "kernel.apparmor_restrict_unprivileged_userns = 1", "doctor --fix");
}

/// A filter around us that is no container's: a service manager's, for one.
#[test]
fn a_filter_that_refuses_mounts() {
    as_both(|ground| {
        let filtered = Surroundings { setup: "", pretend: &["EPERM:mount,open_tree,move_mount,fsopen,unshare"] };
        filtered.refuses(ground, &ALL_OF_THEM, "system call filter", "");
    });
}

/// Container engines answer `clone3` with ENOSYS to make programs use `clone`, whose flags their filters can read.
#[test]
fn clone3_may_be_missing() {
    as_both(|ground| {
        let older = Surroundings { setup: "", pretend: &["ENOSYS:clone3"] };
        older.reports(ground, &[], &[("files", "enforced"), ("processes", "enforced"), ("privileges", "enforced")]);
    });
}

#[test]
fn without_landlock() {
    as_both(|ground| {
        for answer in [
            &["ENOSYS:landlock_create_ruleset,landlock_add_rule,landlock_restrict_self"][..],
            &["EOPNOTSUPP:landlock_create_ruleset"],
            &["EPERM:landlock_create_ruleset"],
        ] {
            let without = Surroundings { setup: "", pretend: answer };
            let (code, value) = without.json(ground, &["run", "--", "true"]);
            assert_eq!(code, Some(125), "{value}");
            let error = value["error"].to_string();
            assert!(error.contains("files and secrets") && error.contains("lsm="), "{error}");
            // The rest stands as ever.
            let levels = [
                ("files", "partial"),
                ("secrets", "partial"),
                ("network", "enforced"),
                ("processes", "enforced"),
                ("syscalls", "enforced"),
            ];
            without.reports(ground, &["--allow-degraded=files,secrets"], &levels);
        }
    });
}

/// Older versions handle fewer rights; mounts and namespaces hold the same, so the demand does too.
#[test]
fn older_landlock() {
    as_both(|ground| {
        for version in 1..=6 {
            let word = format!("landlock={version}");
            let older = Surroundings { setup: "", pretend: &[&word] };
            older.reports(ground, &[], &[("files", "enforced"), ("secrets", "enforced"), ("processes", "enforced")]);
            let script = "mkdir a b; echo x >a/x; mv a/x b/x; cat b/x; ! echo x >/usr/x && ! echo x >/etc/x && echo held";
            let outcome = older.stockade(ground, &["run", "--", "bash", "-c", script]);
            assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), "x\nheld\n"), "{version}: {outcome:?}");
            let (_, doctor) = older.json(ground, &["doctor"]);
            let how = doctor["enforcement"]["files"]["how"].to_string();
            assert!(how.contains(&format!("Landlock version {version}\"")), "the kernel's answer was not believed: {how}");
        }
    });
}

#[test]
fn proc_with_covered_parts() {
    as_both(|ground| {
        let covered = Surroundings { setup: "mount --bind /dev/null /proc/kallsyms", pretend: &[] };
        let (code, value) = covered.json(ground, &["run", "--", "true"]);
        assert_eq!(code, Some(125), "{value}");
        let error = value["error"].to_string();
        assert!(error.contains("processes cannot be enforced") && error.contains("/proc"), "{error}");
        covered.reports(
            ground,
            &["--allow-degraded=processes"],
            &[("processes", "partial"), ("files", "enforced"), ("secrets", "enforced")],
        );
        // The outer one is shown, and still nothing outside can be looked into or changed.
        let script = "test -d /proc/1 && cat /proc/self/comm && ! cat /proc/1/environ && ! echo x >/proc/sys/kernel/hostname";
        let outcome = covered.stockade(ground, &["run", "--allow-degraded=processes", "--", "bash", "-c", script]);
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), "cat\n"), "{outcome:?}");
    });
}

/// `hidepid` in a pid namespace of the test's own: the option belongs to all mounts of one proc.
#[test]
fn proc_that_hides_others() {
    as_both(|ground| {
        let hidden = Surroundings {
            setup: "exec unshare --mount --pid --fork bash -euc 'mount -t proc -o hidepid=2 proc /proc; shift; exec \"$@\"' x \"$@\"",
            pretend: &[],
        };
        hidden.reports(ground, &[], &[("files", "enforced"), ("processes", "enforced")]);
        let outcome = hidden.stockade(ground, &["doctor"]);
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
    });
}

/// Root of a user namespace that has no other ids, as in a rootless container.
#[test]
fn root_that_is_root_of_nothing_else() {
    let ground = Ground::new(Who::Ordinary);
    let run = |flags: &[&str]| {
        let mut command = ground.outside("unshare");
        command.args(["--user", "--map-root-user"]).arg(&ground.binary).args(["run", "--json"]).args(flags).args(["--", "id", "-u"]);
        let outcome = crate::wall::ground::finish(&mut command);
        (outcome.code, serde_json::from_str::<serde_json::Value>(&outcome.stdout).unwrap_or_else(|e| panic!("{e}: {outcome:?}")))
    };
    let (code, value) = run(&[]);
    let error = value["error"].to_string();
    assert!(code == Some(125) && error.contains("privileges cannot be enforced") && error.contains("user"), "{value}");
    let (code, value) = run(&["--allow-degraded=privileges"]);
    assert_eq!(
        (code, value["stdout"].as_str(), value["enforcement"]["privileges"].as_str()),
        (Some(0), Some("1000\n"), Some("partial")),
        "{value}"
    );
}

/// Every demand must be allowed: one that is missing keeps the refusal.
#[test]
fn each_demand_is_allowed_by_name() {
    let ground = Ground::new(Who::Ordinary);
    for missing in ALL_OF_THEM {
        let rest: Vec<&str> = ALL_OF_THEM.into_iter().filter(|demand| *demand != missing).collect();
        let outcome = SWITCHED_OFF.stockade(&ground, &["run", "--workspace-mode", "ro", "--allow-degraded", &rest.join(","), "--", "true"]);
        assert!(outcome.code == Some(125) && outcome.stderr.contains(missing), "{missing}: {outcome:?}");
    }
    let outcome = SWITCHED_OFF.stockade(&ground, &["run", "--workspace-mode", "ro", NAMESPACES, "--", "true"]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
}
