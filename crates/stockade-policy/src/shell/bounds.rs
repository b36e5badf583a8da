//! Limits on what is read at all, checked before a parser that recurses sees it.
//!
//! The limits are on size, depth and count, not on time, so that the same text has the same answer on every machine.

use super::Refusal;

/// Bytes of a script at most.
pub const MAX_SCRIPT: usize = 256 << 10;
/// Calls of a script at most.
pub const MAX_CALLS: usize = 1000;
/// Words and operators of one script at most.
pub(super) const MAX_TOKENS: usize = 20_000;
/// Open brackets and quotes within each other at most, whatever they mean.
const MAX_NESTING: usize = 24;
/// Compound commands within each other at most.
pub(super) const MAX_COMPOUND: usize = 24;
/// Commands within commands (wrappers, `sh -c`, substitutions) at most.
pub(super) const MAX_LEVELS: usize = 24;
/// Bytes that are parsed for one script at most, those of scripts within it counted again.
pub(super) const MAX_PARSED: usize = 4 * MAX_SCRIPT;

/// Digits of a number that becomes an integer in the grammar.
const MAX_DIGITS: usize = 9;

/// Refuses what no honest script is, before anything recursive looks at it.
pub(super) fn check(script: &str) -> Result<(), Refusal> {
    if script.len() > MAX_SCRIPT {
        return Err(Refusal::Limit("too many bytes"));
    }
    // Bash keeps or drops these where a parser does the other; a terminal shows neither.
    if let Some(odd) = script.chars().find(|c| c.is_control() && !matches!(c, '\n' | '\t' | '\x1b')) {
        return Err(Refusal::Unparsable(format!("it holds the control character {}", odd.escape_unicode())));
    }
    check_numbers(script)?;
    let mut depth = 0usize;
    for byte in script.bytes() {
        match byte {
            b'(' | b'{' => depth += 1,
            b')' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_NESTING {
            return Err(Refusal::Limit("too deeply nested"));
        }
    }
    Ok(())
}

/// The grammar reads numbers of descriptors and of directories (`9>x`, `~9`) into integers, and stops the program where they do not fit.
fn check_numbers(script: &str) -> Result<(), Refusal> {
    let mut digits = 0usize;
    let mut before = None;
    let mut last = None;
    for c in script.chars().chain(['\n']) {
        if c.is_ascii_digit() {
            if digits == 0 {
                before = last;
            }
            digits += 1;
        } else {
            let is_descriptor = matches!(c, '<' | '>');
            let is_directory = matches!(before, Some('~' | '+' | '-'));
            if digits > MAX_DIGITS && (is_descriptor || is_directory) {
                return Err(Refusal::Unparsable("it holds a number that is too long".to_owned()));
            }
            digits = 0;
            before = None;
        }
        last = Some(c);
    }
    Ok(())
}
