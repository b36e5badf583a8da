//! The shape of a token: its public prefix, its separators in their places, and pieces drawn from the characters that each was made of.

use super::random::Random;
use super::{PlaceholderError, alphabet, jwt, prefixes};

/// Fewer random bits than this in a shape could be met by chance in ordinary text.
const MIN_BITS: usize = 40;
/// Where the dashes of a UUID are.
const UUID_DASHES: [usize; 4] = [8, 13, 18, 23];
/// Characters that may end base64 text before one `=`, and before two: their unused bits are zero, as strict readers demand.
const BEFORE_ONE: &str = "AEIMQUYcgkosw048";
const BEFORE_TWO: &str = "AQgw";

/// Text like `real`; `None` where too little of it could be random, and for what is no token: text with blanks, as a key in PEM.
pub(super) fn like(real: &[u8], random: &mut Random) -> Result<Option<String>, PlaceholderError> {
    if real.contains(&b' ') {
        return Ok(None);
    }
    if let Some(token) = jwt::like(real, random)? {
        return Ok(Some(token));
    }
    if is_uuid(real) {
        return uuid(real, random).map(Some);
    }
    let prefix = prefixes::public_prefix(real);
    let mut text: String = prefix.iter().map(|byte| char::from(*byte)).collect();
    let mut bits = 0;
    let rest = real.get(prefix.len()..).unwrap_or_default();
    for piece in rest.chunk_by(|one, two| one.is_ascii_alphanumeric() == two.is_ascii_alphanumeric()) {
        if piece.first().is_some_and(u8::is_ascii_alphanumeric) {
            let set = alphabet::of(piece);
            bits += piece.len() * alphabet::bits(set);
            for _ in piece {
                text.push(random.of(set)?);
            }
        } else {
            text.extend(piece.iter().map(|byte| char::from(*byte)));
        }
    }
    close_base64(&mut text, random)?;
    Ok((bits >= MIN_BITS).then_some(text))
}

/// Letters and digits alone.
pub(super) fn plain(length: usize, random: &mut Random) -> Result<String, PlaceholderError> {
    (0..length).map(|_| random.of(alphabet::ALPHANUMERIC)).collect()
}

/// Padded base64 stays base64.
fn close_base64(text: &mut String, random: &mut Random) -> Result<(), PlaceholderError> {
    let padding = text.len() - text.trim_end_matches('=').len();
    let set = match padding {
        1 => BEFORE_ONE,
        2 => BEFORE_TWO,
        _ => return Ok(()),
    };
    text.truncate(text.len() - padding);
    if text.pop().is_some() {
        text.push(random.of(set)?);
    }
    text.push_str("==".get(..padding).unwrap_or_default());
    Ok(())
}

fn is_uuid(real: &[u8]) -> bool {
    real.len() == 36
        && real.iter().enumerate().all(|(at, byte)| if UUID_DASHES.contains(&at) { *byte == b'-' } else { byte.is_ascii_hexdigit() })
}

/// The version digit stays, and the variant is one that exists: both are checked by readers and say nothing.
fn uuid(real: &[u8], random: &mut Random) -> Result<String, PlaceholderError> {
    let set = if real.iter().any(u8::is_ascii_uppercase) { alphabet::HEX_UPPER } else { alphabet::HEX_LOWER };
    let variants = if set == alphabet::HEX_UPPER { "89AB" } else { "89ab" };
    let mut text = String::with_capacity(real.len());
    for (at, byte) in real.iter().enumerate() {
        text.push(match at {
            8 | 13 | 14 | 18 | 23 => char::from(*byte),
            19 => random.of(variants)?,
            _ => random.of(set)?,
        });
    }
    Ok(text)
}
