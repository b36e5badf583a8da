//! Known secret values are taken out of text and bytes, in whatever common encoding they appear.
//!
//! Plain, base64 (both alphabets, at each of the three places a value can begin in a group), percent-encoded, hexadecimal and with every character
//! as `\uXXXX`. What stands in its place says that something was taken out: `[redacted:NAME]`. A value cut into pieces, compressed or encrypted is
//! not found; values are found within one string, not across two.

use std::collections::BTreeMap;

use aho_corasick::{AhoCorasick, AhoCorasickKind, BuildError, MatchKind};
use base64::Engine as _;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

/// The shortest value that can be told from ordinary text. Secrets of the store are longer.
pub const MIN_SECRET: usize = 8;
/// Forms that are longer than this together are looked for with a machine that is slower to run, and is made in time that grows with their length
/// alone: the faster one takes its square where a value repeats itself.
const MOST_FOR_SPEED: usize = 8 << 10;
/// Longer values are not looked for with every character as `\uXXXX`: no form is longer than three times the longest value, and whoever sends what is
/// looked through in pieces counts on that.
const MOST_FOR_UNITS: usize = 8 << 10;
const UNPADDED: GeneralPurposeConfig = GeneralPurposeConfig::new().with_encode_padding(false);

/// A secret that was taken out of something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Redaction {
    /// Its name.
    pub secret: String,
    /// How often.
    pub count: u64,
}

/// Why values cannot be looked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RedactError {
    /// It would be found everywhere.
    #[error("the secret `{0}` is too short to be told from ordinary text")]
    Short(String),
    /// More than can be looked for at once.
    #[error("these secrets are more than can be looked for: {0}")]
    TooMuch(String),
}

/// Finds the values of some secrets.
pub struct Redactor {
    finder: Option<AhoCorasick>,
    /// The longest form that is looked for.
    longest: usize,
    /// For each pattern of the finder, the secret it belongs to.
    owners: Vec<usize>,
    names: Vec<String>,
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redactor").field("names", &self.names).finish_non_exhaustive()
    }
}

impl Redactor {
    /// Nothing is secret here.
    pub fn none() -> Self {
        Self { finder: None, longest: 0, owners: Vec::new(), names: Vec::new() }
    }

    /// For these names and values. A value that cannot be told from ordinary text is refused: it could not be kept out.
    pub fn new<'a>(secrets: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Result<Self, RedactError> {
        let (mut patterns, mut owners, mut names) = (Vec::new(), Vec::new(), Vec::new());
        for (name, value) in secrets {
            if value.len() < MIN_SECRET {
                return Err(RedactError::Short(name.to_owned()));
            }
            for form in forms(value) {
                owners.push(names.len());
                patterns.push(form);
            }
            names.push(name.to_owned());
        }
        if names.is_empty() {
            return Ok(Self::none());
        }
        let forms: Vec<&[u8]> = patterns.iter().map(|form| form.as_slice()).collect();
        let finder = finder(&forms).map_err(|error| RedactError::TooMuch(error.to_string()))?;
        let longest = patterns.iter().map(|form| form.len()).max().unwrap_or(0);
        Ok(Self { finder: Some(finder), longest, owners, names })
    }

    /// Whether there is nothing to look for.
    pub fn is_none(&self) -> bool {
        self.finder.is_none()
    }

    /// The text without its secrets; `None` where there were none.
    pub fn text(&self, text: &str, counts: &mut Counts) -> Option<String> {
        // Every form is ASCII or a whole secret, so what is left is still UTF-8 unless a secret was not.
        let bytes = self.bytes(text.as_bytes(), counts)?;
        Some(String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
    }

    /// The bytes without their secrets; `None` where there were none.
    pub fn bytes(&self, bytes: &[u8], counts: &mut Counts) -> Option<Vec<u8>> {
        self.replaced(bytes, bytes.len(), counts).0
    }

    /// The beginning of something longer, without its secrets, and how many bytes of it were dealt with: what lies behind may be the beginning
    /// of a value, and is to be given again with what follows.
    pub fn beginning(&self, bytes: &[u8], counts: &mut Counts) -> (Option<Vec<u8>>, usize) {
        // Whatever begins before this lies whole within these bytes.
        let certain = bytes.len().saturating_sub(self.longest.saturating_sub(1));
        let (replaced, end) = self.replaced(bytes, certain, counts);
        (replaced, end.max(certain))
    }

    /// Replaces what begins before `before`; gives the text up to there, or to the end of the last finding, and where that is.
    fn replaced(&self, bytes: &[u8], before: usize, counts: &mut Counts) -> (Option<Vec<u8>>, usize) {
        let Some(finder) = &self.finder else { return (None, bytes.len()) };
        let mut found = finder.find_iter(bytes).take_while(|one| one.start() < before).peekable();
        if found.peek().is_none() {
            return (None, before);
        }
        let (mut out, mut end) = (Vec::with_capacity(bytes.len()), 0);
        for one in found {
            let name = self.owners.get(one.pattern().as_usize()).and_then(|owner| self.names.get(*owner)).map_or("", String::as_str);
            out.extend_from_slice(bytes.get(end..one.start()).unwrap_or_default());
            out.extend_from_slice(format!("[redacted:{name}]").as_bytes());
            end = one.end();
            *counts.0.entry(name.to_owned()).or_default() += 1;
        }
        out.extend_from_slice(bytes.get(end..before).unwrap_or_default());
        (Some(out), end.max(before))
    }
}

/// What finds the longest of some forms of values, wherever one begins.
pub fn finder(forms: &[&[u8]]) -> Result<AhoCorasick, BuildError> {
    let length: usize = forms.iter().map(|form| form.len()).sum();
    let kind = if length > MOST_FOR_SPEED { AhoCorasickKind::ContiguousNFA } else { AhoCorasickKind::DFA };
    AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).kind(Some(kind)).build(forms)
}

/// How often each secret was taken out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts(BTreeMap<String, u64>);

impl Counts {
    /// As receipts have it.
    pub fn to_redactions(&self) -> Vec<Redaction> {
        self.0.iter().map(|(secret, count)| Redaction { secret: secret.clone(), count: *count }).collect()
    }

    /// Adds what another count found.
    pub fn add(&mut self, redactions: &[Redaction]) {
        for Redaction { secret, count } in redactions {
            *self.0.entry(secret.clone()).or_default() += count;
        }
    }

    /// Whether nothing was taken out.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Every form in which a value is looked for.
fn forms(value: &[u8]) -> Vec<Zeroizing<Vec<u8>>> {
    let mut forms = vec![value.to_vec()];
    for engine in [GeneralPurpose::new(&STANDARD, UNPADDED), GeneralPurpose::new(&URL_SAFE, UNPADDED)] {
        forms.extend((0..3).map(|offset| inner_base64(&engine, value, offset)));
    }
    for case in [Case::Upper, Case::Lower] {
        forms.push(value.iter().flat_map(|byte| hex(*byte, case)).collect());
        let text = std::str::from_utf8(value).ok().filter(|text| text.len() <= MOST_FOR_UNITS);
        forms.extend(text.map(|text| code_units(text, case)));
        forms.push(percent(value, case, Reserved::Encoded));
        forms.push(percent(value, case, Reserved::Every));
        forms.push(percent(value, case, Reserved::Kept));
    }
    let mut forms: Vec<Zeroizing<Vec<u8>>> = forms.into_iter().map(Zeroizing::new).collect();
    forms.sort_unstable_by(|one, other| one.as_slice().cmp(other.as_slice()));
    forms.dedup_by(|one, other| one.as_slice() == other.as_slice());
    forms
}

/// The characters of base64 that depend on the value alone when it begins `offset` bytes into a group of three.
fn inner_base64(engine: &GeneralPurpose, value: &[u8], offset: usize) -> Vec<u8> {
    let padded = Zeroizing::new([vec![0; offset], value.to_vec()].concat());
    let text = Zeroizing::new(engine.encode(padded.as_slice()));
    let start = (offset * 8).div_ceil(6);
    let end = padded.len() * 8 / 6;
    text.as_bytes().get(start..end).unwrap_or_default().to_vec()
}

/// Which characters a percent-encoding leaves as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reserved {
    /// Only what RFC 3986 calls unreserved.
    Encoded,
    /// Reserved ones too, as in a path.
    Kept,
    /// None.
    Every,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Case {
    Upper,
    Lower,
}

fn percent(value: &[u8], case: Case, reserved: Reserved) -> Vec<u8> {
    let is_kept = |byte: u8| match reserved {
        Reserved::Encoded => byte.is_ascii_alphanumeric() || b"-._~".contains(&byte),
        Reserved::Kept => byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/?".contains(&byte),
        Reserved::Every => false,
    };
    let mut out = Vec::with_capacity(value.len() * 3);
    for byte in value {
        if is_kept(*byte) {
            out.push(*byte);
        } else {
            out.push(b'%');
            out.extend(hex(*byte, case));
        }
    }
    out
}

/// As in a JSON string whose writer escapes every character.
fn code_units(text: &str, case: Case) -> Vec<u8> {
    let escaped = |unit: u16| {
        let [high, low] = unit.to_be_bytes().map(|byte| hex(byte, case));
        [*b"\\u", high, low].concat()
    };
    text.encode_utf16().flat_map(escaped).collect()
}

fn hex(byte: u8, case: Case) -> [u8; 2] {
    let digit = |value: u8| match (value, case) {
        (0..10, _) => b'0' + value,
        (_, Case::Upper) => b'A' + value - 10,
        (_, Case::Lower) => b'a' + value - 10,
    };
    [digit(byte >> 4), digit(byte & 15)]
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose;
    use proptest::prelude::*;

    use super::*;

    const VALUE: &str = "s3cr3t/value+with=signs&more";

    fn redactor() -> Redactor {
        Redactor::new([("TOKEN", VALUE.as_bytes())]).unwrap()
    }

    fn of(text: &str) -> String {
        redactor().text(text, &mut Counts::default()).unwrap_or_else(|| text.to_owned())
    }

    #[test]
    fn every_encoding_is_found() {
        let hexadecimal: String = VALUE.bytes().flat_map(|byte| hex(byte, Case::Lower)).map(char::from).collect();
        let every: String =
            VALUE.bytes().flat_map(|byte| [b'%', hex(byte, Case::Upper)[0], hex(byte, Case::Upper)[1]]).map(char::from).collect();
        for text in [VALUE.to_owned(), hexadecimal.clone(), hexadecimal.to_uppercase(), every.clone(), every.to_lowercase()] {
            assert_eq!(of(&format!("before {text} after")), "before [redacted:TOKEN] after", "{text}");
        }
        assert_eq!(of("?t=s3cr3t%2Fvalue%2Bwith%3Dsigns%26more&x"), "?t=[redacted:TOKEN]&x");
        let redactor = Redactor::new([("TOKEN", "l\u{f6}sung-\u{1f600}".as_bytes())]).unwrap();
        for text in [r"\u006c\u00f6\u0073\u0075\u006e\u0067\u002d\ud83d\ude00", r"\u006C\u00F6\u0073\u0075\u006E\u0067\u002D\uD83D\uDE00"] {
            assert_eq!(redactor.text(text, &mut Counts::default()).as_deref(), Some("[redacted:TOKEN]"));
        }
        assert_eq!(of("nothing here"), "nothing here");
    }

    #[test]
    fn base64_is_found_wherever_it_begins() {
        for before in ["", "x", "xy", "xyz", "user:"] {
            for after in ["", "a", "ab", "\n"] {
                let plain = format!("{before}{VALUE}{after}");
                for engine in [&general_purpose::STANDARD, &general_purpose::URL_SAFE_NO_PAD] {
                    let text = engine.encode(&plain);
                    let redacted = of(&text);
                    assert!(redacted.contains("[redacted:TOKEN]"), "{before:?} {after:?}: {redacted}");
                    assert!(redacted.len() < text.len(), "{redacted}");
                }
            }
        }
    }

    #[test]
    fn what_comes_in_pieces_is_found_across_them() {
        let text = format!("before {VALUE} between {VALUE} after");
        for size in 200..260 {
            let long = "x".repeat(size) + &text;
            let (mut out, mut rest, mut counts) = (Vec::new(), long.as_bytes(), Counts::default());
            let mut window = 240;
            while window < rest.len() {
                let (piece, taken) = redactor().beginning(&rest[..window], &mut counts);
                out.extend(piece.unwrap_or_else(|| rest[..taken].to_vec()));
                rest = &rest[taken..];
                window = 240;
            }
            out.extend(redactor().bytes(rest, &mut counts).unwrap_or_else(|| rest.to_vec()));
            let expected = "x".repeat(size) + "before [redacted:TOKEN] between [redacted:TOKEN] after";
            assert_eq!(String::from_utf8(out).unwrap(), expected, "{size}");
            assert_eq!(counts.to_redactions(), [Redaction { secret: "TOKEN".into(), count: 2 }]);
        }
    }

    /// As long as a value may be, and nothing but one letter: hours, if it took the square of it.
    #[test]
    fn long_values_that_repeat_themselves_are_found_too() {
        for value in ["b".repeat(16 << 10), "ab".repeat(8 << 10)] {
            let redactor = Redactor::new([("LONG", value.as_bytes())]).unwrap();
            assert!(redactor.longest <= 3 * value.len());
            for text in [value.clone(), general_purpose::STANDARD.encode(&value)] {
                let mut counts = Counts::default();
                let found = redactor.text(&format!("before {text} after"), &mut counts).unwrap();
                assert!(found.starts_with("before ") && found.contains("[redacted:LONG]") && found.len() < 100, "{}", found.len());
            }
        }
    }

    #[test]
    fn short_values_are_refused_and_nothing_is_shown() {
        assert!(matches!(Redactor::new([("PIN", b"1234".as_slice())]), Err(RedactError::Short(name)) if name == "PIN"));
        assert!(!format!("{:?}", redactor()).contains("s3cr3t"));
    }

    proptest! {
        #[test]
        fn no_encoding_of_a_value_survives(value in "[!-~]{8,40}", before in "[a-z]{0,5}", after in "[a-z]{0,5}") {
            let redactor = Redactor::new([("S", value.as_bytes())]).unwrap();
            let plain = format!("{before}{value}{after}");
            let hexadecimal: String = plain.bytes().flat_map(|byte| hex(byte, Case::Lower)).map(char::from).collect();
            for text in [plain.clone(), hexadecimal, general_purpose::STANDARD.encode(&plain), general_purpose::URL_SAFE.encode(&plain)] {
                let mut counts = Counts::default();
                let redacted = redactor.text(&text, &mut counts).unwrap();
                prop_assert!(!counts.to_redactions().is_empty());
                prop_assert!(redactor.text(&redacted.replace("[redacted:S]", " "), &mut counts).is_none());
            }
        }
    }
}
