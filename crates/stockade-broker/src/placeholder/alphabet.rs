//! Which characters a piece of a token is made of: the smallest known set that has them all.

pub(super) const DIGITS: &str = "0123456789";
pub(super) const HEX_LOWER: &str = "0123456789abcdef";
pub(super) const HEX_UPPER: &str = "0123456789ABCDEF";
pub(super) const BASE_32: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
pub(super) const LOWER: &str = "abcdefghijklmnopqrstuvwxyz";
pub(super) const UPPER: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
pub(super) const LOWER_AND_DIGITS: &str = "abcdefghijklmnopqrstuvwxyz0123456789";
pub(super) const UPPER_AND_DIGITS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
pub(super) const LETTERS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
pub(super) const ALPHANUMERIC: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/// Smaller before larger.
const ALL: [&str; 10] = [DIGITS, HEX_LOWER, HEX_UPPER, LOWER, UPPER, BASE_32, LOWER_AND_DIGITS, UPPER_AND_DIGITS, LETTERS, ALPHANUMERIC];

/// The set that a piece is drawn from.
pub(super) fn of(piece: &[u8]) -> &'static str {
    ALL.into_iter().find(|set| piece.iter().all(|byte| set.as_bytes().contains(byte))).unwrap_or(ALPHANUMERIC)
}

/// How many bits one character of a set holds, rounded down.
pub(super) fn bits(set: &str) -> usize {
    set.len().checked_ilog2().unwrap_or(0) as usize
}
