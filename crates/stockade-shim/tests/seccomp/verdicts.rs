//! What the programs of both architectures decide, found by running them, and held against a second opinion: the same
//! policy compiled by the `seccompiler` crate.

use std::collections::{BTreeMap, BTreeSet};

use seccompiler::{BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch};

use crate::evaluate::{Call, evaluate};
use crate::policy::{Architecture, Comparison, Test, Variant, Verdict};
use crate::program::{ALLOW, ANSWER_ERRNO, Instruction, KILL_PROCESS, audit_value, compile};
use crate::{ARCHITECTURES, VARIANTS, policy};

const EPERM: u32 = ANSWER_ERRNO + 1;
const ENOENT: u32 = ANSWER_ERRNO + 2;
const EINVAL: u32 = ANSWER_ERRNO + 22;
const ENOSYS: u32 = ANSWER_ERRNO + 38;
const EAFNOSUPPORT: u32 = ANSWER_ERRNO + 97;

/// A number in the high half of an argument, which the kernel does not look at and a filter must not.
const HIGH: u64 = 0xdead_beef_0000_0000;

#[test]
fn each_number_gets_the_verdict_of_the_data() {
    let policy = policy();
    for (architecture, variant) in programs() {
        let program = compile(&policy, architecture, variant).unwrap();
        let calls = policy.calls(architecture, variant);
        let (mut allowed, mut conditional, mut refused) = (0, 0, 0);
        for number in (0..2048).chain([9999, 0x3fff_ffff, 0x4000_0000, u32::MAX - 1, u32::MAX]) {
            let answer = evaluate(&program, Call { number, architecture: audit_value(architecture), arguments: [0; 6] });
            match calls.get(&number) {
                Some((name, Verdict::Allow)) => {
                    allowed += 1;
                    assert_eq!(answer, ALLOW, "{name}");
                }
                Some((_, Verdict::AllowIf(_))) => conditional += 1,
                Some((name, Verdict::Refuse)) => {
                    refused += 1;
                    assert_eq!(answer, ENOSYS, "{name}");
                }
                None => assert_eq!(answer, ENOSYS, "{number}"),
            }
        }
        let expected = match (architecture, variant) {
            (Architecture::X86_64, Variant::General) => (265, 18, 100),
            (Architecture::X86_64, Variant::ExecList) => (264, 18, 101),
            (Architecture::Aarch64, Variant::General) => (233, 14, 78),
            (Architecture::Aarch64, Variant::ExecList) => (232, 14, 79),
        };
        assert_eq!((allowed, conditional, refused), expected, "{architecture:?} {variant:?}");
    }
}

/// The list by which a reader would judge the filter, written down a second time on purpose.
#[test]
fn dangerous_calls_are_refused_whatever_their_arguments() {
    for name in [
        "io_uring_setup",
        "io_uring_enter",
        "io_uring_register",
        "userfaultfd",
        "bpf",
        "keyctl",
        "add_key",
        "request_key",
        "ptrace",
        "process_vm_readv",
        "process_vm_writev",
        "process_madvise",
        "perf_event_open",
        "mount",
        "umount2",
        "pivot_root",
        "chroot",
        "open_tree",
        "open_tree_attr",
        "move_mount",
        "fsopen",
        "fsconfig",
        "fsmount",
        "fspick",
        "mount_setattr",
        "setns",
        "unshare",
        "clone3",
        "init_module",
        "finit_module",
        "delete_module",
        "kexec_load",
        "kexec_file_load",
        "reboot",
        "swapon",
        "swapoff",
        "acct",
        "quotactl",
        "quotactl_fd",
        "settimeofday",
        "clock_settime",
        "adjtimex",
        "clock_adjtime",
        "sethostname",
        "setdomainname",
        "vhangup",
        "syslog",
        "name_to_handle_at",
        "open_by_handle_at",
        "fanotify_init",
        "kcmp",
        "pidfd_getfd",
        "mbind",
        "move_pages",
        "memfd_secret",
        "vmsplice",
    ] {
        for (architecture, variant) in programs() {
            for argument in [0, 1, u64::MAX] {
                check_on(architecture, variant, name, &[argument; 6], ENOSYS);
            }
        }
    }
    for name in ["iopl", "ioperm", "modify_ldt", "uselib", "uretprobe"] {
        check_on(Architecture::X86_64, Variant::General, name, &[0; 6], ENOSYS);
    }
}

#[test]
fn memory_files_are_refused_with_an_exec_list_only() {
    for architecture in ARCHITECTURES {
        check_on(architecture, Variant::General, "memfd_create", &[0; 6], ALLOW);
        check_on(architecture, Variant::ExecList, "memfd_create", &[0; 6], ENOSYS);
    }
}

#[test]
fn clone_makes_threads_and_children_but_no_namespaces() {
    // glibc's pthread_create, fork and posix_spawn.
    for flags in [0x003d_0f00, 0x0120_0011, 0x4111] {
        check("clone", &[flags], ALLOW);
        check("clone", &[flags | HIGH], ALLOW);
    }
    for namespace in [0x80, 0x0002_0000, 0x0200_0000, 0x0400_0000, 0x0800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000] {
        for flags in [namespace, namespace | 0x11, namespace | 0x003d_0f00, namespace | HIGH] {
            check("clone", &[flags], EPERM);
        }
    }
}

#[test]
fn sockets_are_of_few_families_and_never_raw() {
    const CLOEXEC_NONBLOCK: u64 = 0x8_0800;
    for (family, kind, protocol) in [
        (1, 1, 0),
        (1, 2, 0),
        (1, 5, 0), // Unix
        (2, 1, 0),
        (2, 1, 6),
        (2, 2, 0),
        (2, 2, 17), // IPv4
        (10, 1, 0),
        (10, 1, 6),
        (10, 2, 0),
        (10, 2, 17), // IPv6
        (16, 3, 0),
        (16, 2, 0), // NETLINK_ROUTE
    ] {
        check("socket", &[family, kind, protocol], ALLOW);
        check("socket", &[family, kind | CLOEXEC_NONBLOCK, protocol], ALLOW);
        check("socket", &[family | HIGH, kind | HIGH, protocol | HIGH], ALLOW);
    }
    for (family, kind, protocol) in [
        (2, 3, 1),
        (2, 3, 0),
        (2, 3, 6),
        (2, 3, 255),
        (10, 3, 58), // raw
        (2, 10, 0),
        (2, 10, 0x300), // SOCK_PACKET, which the kernel turns into a packet socket
        (2, 2, 1),
        (10, 2, 58), // ping
        (2, 1, 132),
        (2, 5, 132),
        (10, 1, 262),
        (2, 2, 136),
        (2, 6, 33), // SCTP, MPTCP, UDP-Lite, DCCP
        (16, 3, 9),
        (16, 3, 12),
        (16, 3, 6),
        (16, 3, 15),
        (16, 3, 16), // audit, netfilter, xfrm, uevents, generic netlink
        (0, 1, 0),
        (3, 1, 0),
        (17, 3, 0x300),
        (21, 5, 0),
        (29, 3, 1),
        (30, 1, 0),
        (31, 1, 3),
        (38, 5, 0),
        (40, 1, 0),
        (43, 1, 0),
        (44, 3, 0),
        (45, 1, 0),
        (u64::from(u32::MAX), 1, 0),
    ] {
        check("socket", &[family, kind, protocol], EAFNOSUPPORT);
        check("socket", &[family | HIGH, kind | CLOEXEC_NONBLOCK, protocol], EAFNOSUPPORT);
    }
    check("socketpair", &[1, 1, 0], ALLOW);
    check("socketpair", &[2, 1, 0], EAFNOSUPPORT);
    check("socketpair", &[30, 1, 0], EAFNOSUPPORT);
    check("setsockopt", &[3, 1, 2], ALLOW);
    check("setsockopt", &[3, 6, 1], ALLOW);
    check("setsockopt", &[3, 1, 31], ALLOW);
    check("setsockopt", &[3, 6, 31], ENOENT);
    check("setsockopt", &[3, 6 | HIGH, 31 | HIGH], ENOENT);
}

#[test]
fn terminals_cannot_be_typed_into() {
    for (request, answer) in [(0x5401, ALLOW), (0x5413, ALLOW), (0x5421, ALLOW), (0x5411, ALLOW), (0x5424, ALLOW), (0x4004_9409, ALLOW)] {
        check("ioctl", &[0, request], answer);
        check("ioctl", &[0, request | HIGH], answer);
    }
    for request in [0x5412, 0x541c, 0x541d, 0x5423] {
        check("ioctl", &[0, request], EPERM);
        check("ioctl", &[0, request | HIGH], EPERM);
        check("ioctl", &[0x5401, request, 0x5401], EPERM);
    }
}

#[test]
fn prctl_takes_known_options_but_the_harmful() {
    for option in [1, 4, 15, 16, 22, 23, 36, 38, 53, 59, 65, 66, 74, 76, 0x5356_4d41, 0x4155_5856, 0x5961_6d61] {
        check("prctl", &[option], ALLOW);
        check("prctl", &[option | HIGH], ALLOW);
    }
    for option in [35, 62, 67, 73, 77, 78, 1000, 0x5961_6d62, u64::from(u32::MAX)] {
        check("prctl", &[option], EINVAL);
        check("prctl", &[option | HIGH], EINVAL);
    }
}

#[test]
fn the_other_conditions() {
    for (persona, answer) in [(0, ALLOW), (0x4_0000, ALLOW), (0xffff_ffff, ALLOW), (8, EPERM), (0x40_0000, EPERM), (0x44_0000, EPERM)] {
        check("personality", &[persona], answer);
        check("personality", &[persona | HIGH], answer);
    }
    for (advice, answer) in [(0, ALLOW), (4, ALLOW), (8, ALLOW), (13, ALLOW), (12, EINVAL), (0xc | HIGH, EINVAL)] {
        check("madvise", &[0, 4096, advice], answer);
    }
    for (mode, answer) in
        [(0o644, ALLOW), (0o100_644, ALLOW), (0o010_644, ALLOW), (0o140_644, ALLOW), (0o020_644, EPERM), (0o060_644, EPERM)]
    {
        check("mknodat", &[3, 0, mode], answer);
        check("mknodat", &[3, 0, mode | HIGH], answer);
        check_on(Architecture::X86_64, Variant::General, "mknod", &[0, mode], answer);
    }
}

/// Two masks on one argument: the second test must load afresh what the first has masked.
#[test]
fn an_argument_may_be_tested_under_two_masks() {
    let allow = "read if arg0 & 0xf == 1 and arg0 & 0xf0 == 0x20 else EPERM # test\n";
    let policy = crate::policy::Policy::read("read 0 0\n", allow, "").unwrap();
    let program = compile(&policy, Architecture::X86_64, Variant::General).unwrap();
    for (argument, expected) in [(0x21, ALLOW), (0x321, ALLOW), (0x11, EPERM), (0x22, EPERM), (0, EPERM)] {
        let call = Call { number: 0, architecture: audit_value(Architecture::X86_64), arguments: [argument; 6] };
        assert_eq!(evaluate(&program, call), expected, "{argument:#x}");
    }
}

#[test]
fn a_foreign_calling_convention_kills() {
    const FOREIGN: [u32; 6] = [0x4000_0003, 0x4000_0028, 0xc000_00f3, 0, 0x3e, u32::MAX]; // i386, arm, riscv64, none
    let policy = policy();
    for (architecture, variant) in programs() {
        let program = compile(&policy, architecture, variant).unwrap();
        let other = ARCHITECTURES.into_iter().filter(|other| *other != architecture).map(audit_value);
        for foreign in FOREIGN.into_iter().chain(other) {
            for number in 0..512 {
                let answer = evaluate(&program, Call { number, architecture: foreign, arguments: [0; 6] });
                assert_eq!(answer, KILL_PROCESS, "{number} as {foreign:#x}");
            }
        }
    }
}

#[test]
fn x32_calls_are_refused() {
    let program = compile(&policy(), Architecture::X86_64, Variant::General).unwrap();
    for number in 0..1024 {
        let call = Call { number: number | 0x4000_0000, architecture: audit_value(Architecture::X86_64), arguments: [0; 6] };
        assert_eq!(evaluate(&program, call), ENOSYS, "{number}");
    }
}

/// Start-up pays for each instruction, so growth is to be noticed.
#[test]
fn the_programs_are_short() {
    for (architecture, variant) in programs() {
        let length = compile(&policy(), architecture, variant).unwrap().len();
        assert!(length <= 340, "{length} instructions for {architecture:?} {variant:?}");
    }
}

/// Both compilers agree on every number and, where arguments are looked at, on every combination of the values that
/// the policy names and their neighbours. `seccompiler` knows one answer for all refusals, so only allow or not is compared.
#[test]
fn seccompiler_agrees() {
    let policy = policy();
    for (architecture, variant) in programs() {
        let ours = compile(&policy, architecture, variant).unwrap();
        let calls = policy.calls(architecture, variant);
        let theirs = second_opinion(&calls, architecture);
        let mut compared = 0_u32;
        for number in 0..600 {
            let values = match calls.get(&number) {
                Some((_, Verdict::AllowIf(condition))) => interesting(condition.alternatives.iter().flatten()),
                _ => vec![BTreeSet::from([0]); 6],
            };
            for arguments in combinations(&values) {
                let call = Call { number, architecture: audit_value(architecture), arguments };
                assert_eq!(evaluate(&ours, call) == ALLOW, evaluate(&theirs, call) == ALLOW, "{call:?}");
                compared += 1;
            }
        }
        assert!(compared > 5_000, "{compared}");
    }
}

fn second_opinion(calls: &BTreeMap<u32, (&str, &Verdict)>, architecture: Architecture) -> Vec<Instruction> {
    let mut rules = BTreeMap::new();
    for (number, (_, verdict)) in calls {
        match verdict {
            Verdict::Refuse => {}
            Verdict::Allow => drop(rules.insert(i64::from(*number), Vec::new())),
            Verdict::AllowIf(condition) => {
                let alternatives = condition.alternatives.iter().flat_map(|tests| rules_of(tests)).collect();
                rules.insert(i64::from(*number), alternatives);
            }
        }
    }
    let target = match architecture {
        Architecture::X86_64 => TargetArch::x86_64,
        Architecture::Aarch64 => TargetArch::aarch64,
    };
    let filter = SeccompFilter::new(rules, SeccompAction::Errno(38), SeccompAction::Allow, target).unwrap();
    let program: BpfProgram = filter.try_into().unwrap();
    program.iter().map(|i| Instruction { code: i.code, jump_true: i.jt, jump_false: i.jf, operand: i.k }).collect()
}

/// A rule of `seccompiler` for every choice of one value where a test takes several.
fn rules_of(tests: &[Test]) -> Vec<SeccompRule> {
    let mut chosen: Vec<Vec<SeccompCondition>> = vec![Vec::new()];
    for test in tests {
        let mask = u64::from(test.mask);
        let choices = match &test.comparison {
            Comparison::OneOf(values) => values.iter().map(|value| (SeccompCmpOp::MaskedEq(mask), *value)).collect(),
            Comparison::Not(value) => vec![(SeccompCmpOp::Ne, *value)],
            Comparison::AtMost(value) => vec![(SeccompCmpOp::Le, *value)],
            Comparison::AtLeast(value) => vec![(SeccompCmpOp::Ge, *value)],
        };
        let mut longer = Vec::new();
        for conditions in &chosen {
            for (operator, value) in &choices {
                let mut conditions = conditions.clone();
                conditions
                    .push(SeccompCondition::new(test.argument, SeccompCmpArgLen::Dword, operator.clone(), u64::from(*value)).unwrap());
                longer.push(conditions);
            }
        }
        chosen = longer;
    }
    chosen.into_iter().map(|conditions| SeccompRule::new(conditions).unwrap()).collect()
}

/// For each argument the values that the tests name, their neighbours and the ends; where one argument alone is looked
/// at, also the named values with each single bit flipped.
fn interesting<'a>(tests: impl Iterator<Item = &'a Test>) -> Vec<BTreeSet<u32>> {
    let tests: Vec<&Test> = tests.collect();
    let arguments: BTreeSet<u8> = tests.iter().map(|test| test.argument).collect();
    let flipped = if arguments.len() == 1 { 0..32 } else { 3..5 };
    let mut values = vec![BTreeSet::from([0]); 6];
    for test in tests {
        let named = match &test.comparison {
            Comparison::OneOf(several) => several.clone(),
            Comparison::Not(value) | Comparison::AtMost(value) | Comparison::AtLeast(value) => vec![*value],
        };
        for value in named {
            let near = [value, value.wrapping_sub(1), value.wrapping_add(1), u32::MAX];
            values[usize::from(test.argument)].extend(near.into_iter().chain(flipped.clone().map(|bit| value ^ (1 << bit))));
        }
    }
    values
}

fn combinations(values: &[BTreeSet<u32>]) -> Vec<[u64; 6]> {
    let mut found = vec![[0; 6], [HIGH; 6]];
    for (index, choices) in values.iter().enumerate() {
        found = found.into_iter().flat_map(|arguments| choices.iter().map(move |choice| with(arguments, index, *choice))).collect();
    }
    found
}

fn with(mut arguments: [u64; 6], index: usize, low: u32) -> [u64; 6] {
    arguments[index] |= u64::from(low);
    arguments
}

fn programs() -> impl Iterator<Item = (Architecture, Variant)> {
    ARCHITECTURES.into_iter().flat_map(|architecture| VARIANTS.into_iter().map(move |variant| (architecture, variant)))
}

#[track_caller]
fn check(name: &str, arguments: &[u64], expected: u32) {
    for (architecture, variant) in programs() {
        check_on(architecture, variant, name, arguments, expected);
    }
}

#[track_caller]
fn check_on(architecture: Architecture, variant: Variant, name: &str, arguments: &[u64], expected: u32) {
    let policy = policy();
    let calls = policy.calls(architecture, variant);
    let number = *calls.iter().find(|(_, (found, _))| *found == name).unwrap_or_else(|| panic!("no call {name}")).0;
    let program = compile(&policy, architecture, variant).unwrap();
    // What a call does not name is filled with rubbish, as registers are.
    let mut all = [0x5555_5555_5555_5555; 6];
    all[..arguments.len()].copy_from_slice(arguments);
    let answer = evaluate(&program, Call { number, architecture: audit_value(architecture), arguments: all });
    assert_eq!(answer, expected, "{name}({arguments:x?}) on {architecture:?} {variant:?}: {answer:#x}, expected {expected:#x}");
}
