//! The system call filter: the text it is made from, and the program that is made.
//!
//! Promises: any text is a policy or an error; a program made from a policy is one that the kernel takes (forward jumps only, within the
//! program, loads inside `seccomp_data`), and decides every call as the table says. That includes calls of another architecture, of the x32
//! convention, with numbers that nobody has, and with bits in the high halves of arguments.

#[path = "../../../../crates/stockade-shim/seccomp/policy.rs"]
mod policy;
#[path = "../../../../crates/stockade-shim/seccomp/program.rs"]
mod program;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use policy::{Architecture, Comparison, Condition, Policy, Test, Variant, Verdict};
use program::{ALLOW, AND, ANSWER_ERRNO, Instruction, JUMP_IF_AT_LEAST, JUMP_IF_EQUAL, JUMP_IF_GREATER, KILL_PROCESS, LOAD, RETURN};

use crate::input::Input;

const NUMBERS: &str = include_str!("../../../../crates/stockade-shim/seccomp/numbers.txt");
const ALLOWED: &str = include_str!("../../../../crates/stockade-shim/seccomp/allow.txt");
const REFUSED: &str = include_str!("../../../../crates/stockade-shim/seccomp/refused.txt");

const KINDS: [(Architecture, Variant); 4] = [
    (Architecture::X86_64, Variant::General),
    (Architecture::X86_64, Variant::ExecList),
    (Architecture::Aarch64, Variant::General),
    (Architecture::Aarch64, Variant::ExecList),
];
/// Set in the numbers of x32 calls.
const X32: u32 = 1 << 30;
/// The most instructions that the kernel takes.
const LONGEST: usize = 4096;
/// How many values around the ones that a program compares with are tried.
const MOST_EDGES: usize = 48;
/// Words of `struct seccomp_data`.
const WORDS: u32 = 16;

/// What the kernel shows a filter.
#[derive(Debug, Clone, Copy)]
struct Call {
    number: u32,
    architecture: u32,
    arguments: [u64; 6],
}

/// The first byte says whether the rest is calls for the shipped filter or the text of another one.
pub fn body(data: &[u8]) {
    let mut input = Input(data);
    match input.byte() % 2 {
        0 => calls(input),
        _ => texts(input),
    }
}

/// A program, and the table that it was made from.
struct Filter<'a> {
    architecture: Architecture,
    table: BTreeMap<u32, (&'a str, &'a Verdict)>,
    program: Vec<Instruction>,
}

impl<'a> Filter<'a> {
    /// `None` where the policy has outgrown what a jump can cross.
    fn compile(policy: &'a Policy, (architecture, variant): (Architecture, Variant)) -> Option<Self> {
        let program = program::compile(policy, architecture, variant).ok()?;
        check_form(&program);
        Some(Self { architecture, table: policy.calls(architecture, variant), program })
    }
}

static POLICY: LazyLock<Policy> = LazyLock::new(|| Policy::read(NUMBERS, ALLOWED, REFUSED).expect("the data files are sound"));
static SHIPPED: LazyLock<Vec<Filter<'static>>> =
    LazyLock::new(|| KINDS.into_iter().map(|kind| Filter::compile(&POLICY, kind).expect("the shipped filter is not too long")).collect());

/// Calls that the input describes, against all four shipped programs.
fn calls(mut input: Input<'_>) {
    while !input.is_empty() {
        let call = call(&mut input);
        SHIPPED.iter().for_each(|filter| agree(filter, call));
    }
}

fn call(input: &mut Input<'_>) -> Call {
    let how = input.byte();
    let number = u32::from(input.short()) & if how & 1 == 0 { 0x1ff } else { 0xffff };
    let number = match how >> 1 & 3 {
        0 | 1 => number,
        2 => number | X32,
        _ => input.word(),
    };
    let architecture = match how >> 3 & 3 {
        0 => program::audit_value(Architecture::X86_64),
        1 => program::audit_value(Architecture::Aarch64),
        2 => 0x4000_0003, // i386 on the same kernel
        _ => input.word(),
    };
    let argument = |_| match how >> 5 & 3 {
        0 => u64::from(input.byte()),
        1 => u64::from(input.word()),
        2 => u64::from(input.byte()) | u64::from(input.word()) << 32,
        _ => input.long(),
    };
    Call { number, architecture, arguments: std::array::from_fn(argument) }
}

/// Three texts, and calls at every number that the program compares with.
fn texts(mut input: Input<'_>) {
    let [numbers, allow, refused] = [input.until(0), input.until(0), input.until(0)].map(String::from_utf8_lossy);
    let policy = match Policy::read(&numbers, &allow, &refused) {
        Ok(policy) => policy,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    for filter in KINDS.into_iter().filter_map(|kind| Filter::compile(&policy, kind)) {
        let architecture = program::audit_value(filter.architecture);
        let compared = filter.program.iter().filter(|one| matches!(one.code, JUMP_IF_EQUAL | JUMP_IF_GREATER | JUMP_IF_AT_LEAST | AND));
        let edges: Vec<u32> =
            compared.flat_map(|one| [one.operand.wrapping_sub(1), one.operand, one.operand.wrapping_add(1)]).take(MOST_EDGES).collect();
        let numbers: Vec<u32> = filter.table.keys().copied().take(8).chain([u32::MAX]).collect();
        for number in numbers.iter().flat_map(|number| [*number, number | X32, number.wrapping_add(1)]).chain(edges.iter().copied()) {
            for argument in edges.iter().copied().chain([0]) {
                // The same value in every low half, and in every other one with something above it.
                let low = u64::from(argument);
                let mixed = std::array::from_fn(|at| low.rotate_left(32 * (at as u32 & 1)) | 0xdead << 48);
                for arguments in [[low; 6], mixed] {
                    agree(&filter, Call { number, architecture, arguments });
                }
            }
        }
        agree(&filter, Call { number: 0, architecture: 0x4000_0003, arguments: [0; 6] });
    }
}

#[track_caller]
fn agree(filter: &Filter<'_>, call: Call) {
    assert_eq!(evaluate(&filter.program, call), meaning(filter, call), "{:?} {call:x?}", filter.architecture);
}

/// What the table says, without any program.
fn meaning(filter: &Filter<'_>, call: Call) -> u32 {
    const NO_SUCH_CALL: u32 = ANSWER_ERRNO + 38;
    if call.architecture != program::audit_value(filter.architecture) {
        return KILL_PROCESS;
    }
    match filter.table.get(&call.number) {
        Some((_, Verdict::Allow)) => ALLOW,
        Some((_, Verdict::AllowIf(condition))) if holds(condition, call) => ALLOW,
        Some((_, Verdict::AllowIf(condition))) => ANSWER_ERRNO | condition.otherwise as u32,
        Some((_, Verdict::Refuse)) | None => NO_SUCH_CALL,
    }
}

fn holds(condition: &Condition, call: Call) -> bool {
    let test = |test: &Test| {
        let value = call.arguments[usize::from(test.argument)] as u32 & test.mask;
        match &test.comparison {
            Comparison::OneOf(values) => values.contains(&value),
            Comparison::Not(other) => value != *other,
            Comparison::AtMost(most) => value <= *most,
            Comparison::AtLeast(least) => value >= *least,
        }
    };
    condition.alternatives.iter().any(|tests| tests.iter().all(test))
}

/// What the kernel's own check asks of a program, as far as these instructions go.
fn check_form(program: &[Instruction]) {
    assert!((1..=LONGEST).contains(&program.len()), "{} instructions", program.len());
    assert_eq!(program.last().map(|last| last.code), Some(RETURN), "a program ends with a return");
    for (at, instruction) in program.iter().enumerate() {
        match instruction.code {
            JUMP_IF_EQUAL | JUMP_IF_GREATER | JUMP_IF_AT_LEAST => {
                let farthest = at + 1 + usize::from(instruction.jump_true.max(instruction.jump_false));
                assert!(farthest < program.len(), "instruction {at} jumps behind the end");
            }
            LOAD => assert!(instruction.operand % 4 == 0 && instruction.operand / 4 < WORDS, "instruction {at} loads from elsewhere"),
            AND | RETURN => {}
            other => panic!("instruction {at} is {other:#x}"),
        }
    }
}

/// Runs a program whose form was checked.
fn evaluate(program: &[Instruction], call: Call) -> u32 {
    let data = |offset: u32| match offset {
        program::NUMBER_OFFSET => call.number,
        program::ARCHITECTURE_OFFSET => call.architecture,
        offset => {
            let wide = offset
                .checked_sub(program::ARGUMENTS_OFFSET)
                .map_or(0, |offset| call.arguments[(offset / program::ARGUMENT_SIZE) as usize]);
            (wide >> (offset % program::ARGUMENT_SIZE * 8)) as u32
        }
    };
    let (mut accumulator, mut at) = (0, 0);
    loop {
        let instruction = program[at];
        let holds = match instruction.code {
            RETURN => return instruction.operand,
            LOAD => {
                accumulator = data(instruction.operand);
                at += 1;
                continue;
            }
            AND => {
                accumulator &= instruction.operand;
                at += 1;
                continue;
            }
            JUMP_IF_EQUAL => accumulator == instruction.operand,
            JUMP_IF_GREATER => accumulator > instruction.operand,
            _ => accumulator >= instruction.operand,
        };
        at += 1 + usize::from(if holds { instruction.jump_true } else { instruction.jump_false });
    }
}

/// Calls that matter, and small policies that use everything the format has.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for how in [0, 0x04, 0x08, 0x10, 0x20, 0x40, 0x60, 0x64, 0x7e] {
        // open, ioctl, socket, clone, prctl, personality, mknod, clone3 and their like.
        let mut bytes = vec![0];
        for number in [2_u16, 16, 41, 56, 157, 135, 133, 435, 29, 198, 220, 167] {
            bytes.push(how);
            bytes.extend_from_slice(&number.to_le_bytes());
            bytes.extend_from_slice(&[1, 0, 0, 0, 2, 0, 0, 0, 0x7e, 2, 0x20, 0x10, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
        }
        seeds.push(bytes);
    }
    for (numbers, allow, refused) in [
        (
            "read 0 63\nopen 2 -\nbpf 321 280\n",
            "read # files\nopen if arg1 & 0x40 == 0 or arg2 <= 7 else EPERM # files\n",
            "bpf # kernel\n",
        ),
        ("a 0 0\nb 1 1\nc 5 5\n", "a if arg0 in 1,2,3 and arg0 != 9 and arg5 >= 0x10 else EINVAL # x\nb unless exec-list # y\n", "c # z\n"),
        ("a 4294967295 7\n", "a if arg0 == 1 else EAFNOSUPPORT # x\n", ""),
        ("# nothing\n", "", ""),
    ] {
        seeds.push([&[1], numbers.as_bytes(), &[0], allow.as_bytes(), &[0], refused.as_bytes(), &[0]].concat());
    }
    seeds
}
