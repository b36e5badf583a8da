//! The forms in which a value may come back, each with what stands in its place, of the same length.
//!
//! Equal lengths keep every framing as it was. The plain form becomes the placeholder, so that what a program sent is what it reads
//! back; the others become the same form of the placeholder as far as that fits.

use aho_corasick::AhoCorasick;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use stockade_core::redact::finder;
use zeroize::Zeroizing;

/// Fills what a placeholder is too short for.
const FILLER: u8 = b'*';
/// How often one piece is gone through; more than twice only where a placeholder was made to look like the value.
const MAX_PASSES: usize = 4;
const LOWER: &[u8; 16] = b"0123456789abcdef";
const UPPER: &[u8; 16] = b"0123456789ABCDEF";

/// Everything that is looked for in the answers of one host.
#[derive(Debug)]
pub(crate) struct Needles {
    finder: AhoCorasick,
    forms: Vec<Form>,
    longest: usize,
    /// Bytes that some needle begins with.
    first: [bool; 256],
}

struct Form {
    text: Zeroizing<Vec<u8>>,
    replacement: Vec<u8>,
}

impl std::fmt::Debug for Form {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

impl Needles {
    /// The forms of these values, each with its placeholder. `None` where there is nothing to look for, or too much.
    pub(crate) fn new<'a>(secrets: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) -> Option<Self> {
        let mut found: Vec<Form> = Vec::new();
        for (value, placeholder) in secrets {
            for (text, replacement) in forms(value, placeholder) {
                if !found.iter().any(|needle| *needle.text == text) {
                    found.push(Form { replacement: fit(replacement, text.len()), text: Zeroizing::new(text) });
                }
            }
        }
        let longest = found.iter().map(|form| form.text.len()).max()?;
        let finder = finder(&found.iter().map(|form| form.text.as_slice()).collect::<Vec<_>>()).ok()?;
        let mut first = [false; 256];
        for byte in found.iter().filter_map(|form| form.text.first()) {
            if let Some(entry) = first.get_mut(usize::from(*byte)) {
                *entry = true;
            }
        }
        Some(Self { finder, forms: found, longest, first })
    }

    /// The longest form.
    pub(crate) fn longest(&self) -> usize {
        self.longest
    }

    /// Whether any form is in here.
    pub(crate) fn is_in(&self, bytes: &[u8]) -> bool {
        self.finder.is_match(bytes)
    }

    /// Replaces every whole form in place; tells how many there were.
    pub(crate) fn replace(&self, bytes: &mut [u8]) -> usize {
        let mut count = 0;
        // What was put in may complete a form together with what stands beside it, hence another look after a finding.
        for _ in 0..MAX_PASSES {
            match self.replace_once(bytes) {
                0 => break,
                found => count += found,
            }
        }
        count
    }

    fn replace_once(&self, bytes: &mut [u8]) -> usize {
        let (mut from, mut count) = (0, 0);
        while let Some(found) = bytes.get(from..).and_then(|rest| self.finder.find(rest)) {
            let range = from + found.start()..from + found.end();
            let needle = self.forms.get(found.pattern().as_usize());
            if let (Some(target), Some(needle)) = (bytes.get_mut(range.clone()), needle) {
                target.copy_from_slice(&needle.replacement);
            }
            from = range.end;
            count += 1;
        }
        count
    }

    /// How many bytes at the end might be the beginning of a form.
    pub(crate) fn open_end(&self, bytes: &[u8]) -> usize {
        let start = bytes.len().saturating_sub(self.longest.saturating_sub(1));
        let tail = bytes.get(start..).unwrap_or_default();
        for (index, byte) in tail.iter().enumerate() {
            if !self.first.get(usize::from(*byte)).copied().unwrap_or(true) {
                continue;
            }
            let rest = tail.get(index..).unwrap_or_default();
            if self.forms.iter().any(|needle| needle.text.len() > rest.len() && needle.text.starts_with(rest)) {
                return rest.len();
            }
        }
        0
    }
}

/// The forms of one value with those of its placeholder.
fn forms(value: &[u8], placeholder: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    // The placeholder as long as the value, so that its forms have the same lengths as far as may be.
    let stand_in = fit(placeholder.to_vec(), value.len());
    let mut forms = vec![
        (value.to_vec(), stand_in.clone()),
        (percent(value, false, false), percent(&stand_in, false, false)),
        (percent(value, true, false), percent(&stand_in, true, false)),
        (percent(value, false, true), percent(&stand_in, false, true)),
        (json(value, b"\"\\"), json(&stand_in, b"\"\\")),
        (json(value, b"\"\\/"), json(&stand_in, b"\"\\/")),
        (code_units(value, LOWER), code_units(&stand_in, LOWER)),
        (code_units(value, UPPER), code_units(&stand_in, UPPER)),
        (hex(value, LOWER), hex(&stand_in, LOWER)),
        (hex(value, UPPER), hex(&stand_in, UPPER)),
    ];
    for offset in 0..3 {
        forms.push((inner_base64(&STANDARD_NO_PAD, value, offset), inner_base64(&STANDARD_NO_PAD, &stand_in, offset)));
        forms.push((inner_base64(&URL_SAFE_NO_PAD, value, offset), inner_base64(&URL_SAFE_NO_PAD, &stand_in, offset)));
    }
    forms
}

/// What base64 makes of `value` wherever it stands after `offset` (modulo 3) other bytes: only the characters that depend on the
/// value alone, whatever surrounds it.
fn inner_base64(engine: &base64::engine::GeneralPurpose, value: &[u8], offset: usize) -> Vec<u8> {
    let mut padded = vec![0; offset];
    padded.extend_from_slice(value);
    let bits = padded.len() * 8;
    let text = engine.encode(Zeroizing::new(padded).as_slice()).into_bytes();
    let first = (offset * 8).div_ceil(6);
    let last = bits / 6;
    text.get(first..last).unwrap_or_default().to_vec()
}

/// As in a query: everything but unreserved characters, or (lenient) but what browsers leave in a path.
fn percent(value: &[u8], lower: bool, lenient: bool) -> Vec<u8> {
    let digits = if lower { LOWER } else { UPPER };
    let kept: &[u8] = if lenient { b"-._~!$&'()*+,;=:@/" } else { b"-._~" };
    let mut out = Vec::with_capacity(value.len());
    for byte in value {
        if byte.is_ascii_alphanumeric() || kept.contains(byte) {
            out.push(*byte);
        } else {
            out.push(b'%');
            out.extend(hex(&[*byte], digits));
        }
    }
    out
}

/// As in a JSON string; some writers escape the slash too.
fn json(value: &[u8], escaped: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len());
    for byte in value {
        if escaped.contains(byte) {
            out.push(b'\\');
        }
        out.push(*byte);
    }
    out
}

/// As in a JSON string whose writer escapes every character. A value that is not text cannot be in one.
fn code_units(value: &[u8], digits: &[u8; 16]) -> Vec<u8> {
    let Ok(text) = std::str::from_utf8(value) else { return value.to_vec() };
    text.encode_utf16().flat_map(|unit| [b"\\u".to_vec(), hex(&unit.to_be_bytes(), digits)].concat()).collect()
}

fn hex(value: &[u8], digits: &[u8; 16]) -> Vec<u8> {
    let digit = |nibble: u8| digits.get(usize::from(nibble)).copied().unwrap_or_default();
    value.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

fn fit(mut text: Vec<u8>, length: usize) -> Vec<u8> {
    text.resize(length, FILLER);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUE: &[u8] = b"ghp_REALrealREAL/real+0123456789==";
    const PLACEHOLDER: &[u8] = b"ghp_fakefakefake0fake00123456789xx";

    #[test]
    fn every_form_is_found_and_replaced_in_kind() {
        let needles = Needles::new([(VALUE, PLACEHOLDER)]).unwrap();
        let engine = &base64::engine::general_purpose::STANDARD;
        for before in ["", "u:", "user:", "abcd:"] {
            for after in ["", "x", "yz"] {
                let plain = [before.as_bytes(), VALUE, after.as_bytes()].concat();
                for form in [
                    plain.clone(),
                    engine.encode(&plain).into_bytes(),
                    URL_SAFE_NO_PAD.encode(&plain).into_bytes(),
                    percent(&plain, true, false),
                    hex(&plain, LOWER),
                    json(&plain, b"/"),
                    code_units(&plain, LOWER),
                    code_units(&plain, UPPER),
                ] {
                    let mut scrubbed = form.clone();
                    assert_eq!(needles.replace_once(&mut scrubbed), 1, "{}", String::from_utf8_lossy(&form));
                    assert_eq!(scrubbed.len(), form.len());
                    assert!(!needles.is_in(&scrubbed));
                }
            }
        }
    }

    #[test]
    fn plain_text_becomes_the_placeholder_again() {
        let needles = Needles::new([(VALUE, PLACEHOLDER)]).unwrap();
        let mut text = [b"token=", VALUE, b";"].concat();
        needles.replace(&mut text);
        assert_eq!(text, [b"token=", PLACEHOLDER, b";"].concat());
    }

    #[test]
    fn the_open_end_is_the_longest_beginning() {
        let needles = Needles::new([(VALUE, PLACEHOLDER)]).unwrap();
        assert_eq!(needles.open_end(b"data: hello\n\n"), 0);
        assert_eq!(needles.open_end(b"data: ghp_REAL"), 8);
        assert_eq!(needles.open_end(b"gghp_"), 4);
        assert_eq!(needles.open_end(VALUE), 0);
    }
}
