//! Tokens of three parts (JSON Web Tokens): header and claims are JSON in base64url, the third part is a signature.
//!
//! Programs look into them without being able to check the signature, so the placeholder's first two parts decode to JSON objects as
//! well. They hold random text and no claim of the real one: not its header, which names keys, and not its end, which would have a
//! program refuse the placeholder when it passed.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::PlaceholderError;
use super::alphabet::{ALPHANUMERIC, LOWER};
use super::random::Random;

/// What programs look for in a header.
const ALGORITHM: &str = ",\"alg\":\"HS256\"";
/// Fewer random characters than this would not tell two tokens apart.
const MIN_FILLER: usize = 4;
/// A header has little room, and the claims tell tokens apart.
const MIN_HEADER_FILLER: usize = 1;
/// The length of a random name.
const NAME: usize = 3;

/// A token like `real`; `None` where that is no such token, or too short to imitate.
pub(super) fn like(real: &[u8], random: &mut Random) -> Result<Option<String>, PlaceholderError> {
    let mut parts = real.split(|byte| *byte == b'.');
    let (Some(header), Some(claims), Some(signature), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return Ok(None);
    };
    let lengths = [header, claims, signature].map(decoded_length);
    let [Some(header_length), Some(claims_length), Some(signature_length)] = lengths else { return Ok(None) };
    if !header.starts_with(b"eyJ") {
        return Ok(None);
    }
    let header = match object(header_length, ALGORITHM, MIN_HEADER_FILLER, random)? {
        Some(header) => Some(header),
        None => object(header_length, "", MIN_HEADER_FILLER, random)?,
    };
    let (Some(header), Some(claims)) = (header, object(claims_length, "", MIN_FILLER, random)?) else { return Ok(None) };
    let signature = (0..signature_length).map(|_| random.byte()).collect::<Result<Vec<u8>, _>>()?;
    let [header, claims] = [header, claims].map(|text| URL_SAFE_NO_PAD.encode(text));
    Ok(Some(format!("{header}.{claims}.{}", URL_SAFE_NO_PAD.encode(signature))))
}

/// How many bytes a part holds; the part itself is not kept.
fn decoded_length(part: &[u8]) -> Option<usize> {
    let clean = part.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    (clean && part.len() % 4 != 1).then_some(part.len() * 3 / 4)
}

/// A JSON object of exactly this length: a random name, random text, and what must stand in it. Blanks at its end move what must stand
/// in it to another place between the digits of base64 at another draw: the real one may have the same words.
fn object(length: usize, tail: &str, least: usize, random: &mut Random) -> Result<Option<String>, PlaceholderError> {
    let name = (0..NAME).map(|_| random.of(LOWER)).collect::<Result<String, _>>()?;
    let blanks = if tail.is_empty() { "" } else { "  ".get(..random.below(3)?).unwrap_or_default() };
    let frame = format!("{{\"{name}\":\"\"{tail}{blanks}}}").len();
    let Some(filler) = length.checked_sub(frame).filter(|filler| *filler >= least) else { return Ok(None) };
    let filler = (0..filler).map(|_| random.of(ALPHANUMERIC)).collect::<Result<String, _>>()?;
    Ok(Some(format!("{{\"{name}\":\"{filler}\"{tail}{blanks}}}")))
}
