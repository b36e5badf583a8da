//! Runs a filter as the kernel would, strictly: a program that reads outside `struct seccomp_data`, jumps behind its
//! end or uses an instruction that the filter has no need of is a failure.

use crate::program::{AND, Instruction, JUMP_IF_AT_LEAST, JUMP_IF_EQUAL, JUMP_IF_GREATER, LOAD, RETURN};

/// `ja`, which only the programs of `seccompiler` use.
const JUMP_ALWAYS: u16 = 0x05;

/// What the kernel shows a filter of one call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) number: u32,
    pub(crate) architecture: u32,
    pub(crate) arguments: [u64; 6],
}

/// The action that the program returns for the call.
pub(crate) fn evaluate(program: &[Instruction], call: Call) -> u32 {
    let data = seccomp_data(call);
    let mut accumulator = 0_u32;
    let mut position = 0_usize;
    loop {
        let instruction = program.get(position).unwrap_or_else(|| panic!("the program ran off its end at {position} for {call:?}"));
        position += 1;
        let holds = match instruction.code {
            RETURN => return instruction.operand,
            LOAD => {
                assert_eq!(instruction.operand % 4, 0, "the kernel refuses unaligned loads");
                accumulator = data[instruction.operand as usize / 4];
                continue;
            }
            AND => {
                accumulator &= instruction.operand;
                continue;
            }
            JUMP_ALWAYS => {
                position += instruction.operand as usize;
                continue;
            }
            JUMP_IF_EQUAL => accumulator == instruction.operand,
            JUMP_IF_GREATER => accumulator > instruction.operand,
            JUMP_IF_AT_LEAST => accumulator >= instruction.operand,
            other => panic!("unexpected operation {other:#x} at {}", position - 1),
        };
        position += usize::from(if holds { instruction.jump_true } else { instruction.jump_false });
    }
}

/// `struct seccomp_data` in words, as a little-endian kernel lays it out.
fn seccomp_data(call: Call) -> [u32; 16] {
    let instruction_pointer = 0x7fff_dead_beef_u64;
    let mut words = vec![call.number, call.architecture];
    for wide in [instruction_pointer].into_iter().chain(call.arguments) {
        words.extend([wide as u32, (wide >> 32) as u32]);
    }
    words.try_into().expect("sixteen words")
}
