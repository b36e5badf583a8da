//! Terminal tricks: typing into another's terminal. Standard input is no terminal here, so a call that is let through answers ENOTTY.

use crate::call::{address, raw};
use crate::finding::{Finding, if_reached};

use super::Attempt;

pub(super) const TABLE: &[(&str, Attempt)] = &[
    ("tiocsti", |_| control(0x5412)),
    ("tiocsti_high_bits", |_| control(0x5412 | 1 << 32)),
    ("tioclinux", |_| control(0x541c)),
    ("tioccons", |_| control(0x541d)),
];

/// The kernel cuts the command to 32 bits: CVE-2019-10063 was a filter that did not.
fn control(command: i64) -> Finding {
    let byte = 0u8;
    if_reached(raw(libc::SYS_ioctl, &[0, command, address(&byte)]))
}
