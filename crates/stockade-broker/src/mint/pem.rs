//! Private keys as they are kept: PEM on one line, since a secret's value has no line breaks. Pure.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

const BEGIN: &str = "-----BEGIN ";
const END: &str = "-----END ";
const DASHES: &str = "-----";

/// What a PEM block holds, and what it says it is (`PRIVATE KEY`, `RSA PRIVATE KEY` …). Line breaks, written out as `\n` or not there at all, are
/// all the same.
pub(crate) fn decode(text: &str) -> Option<(String, Zeroizing<Vec<u8>>)> {
    let text = text.trim().strip_prefix(BEGIN)?;
    let (label, rest) = text.split_once(DASHES)?;
    let (body, end) = rest.split_once(END)?;
    if end.strip_suffix(DASHES)? != label {
        return None;
    }
    let body = Zeroizing::new(body.replace("\\n", "").replace("\\r", ""));
    let body: Zeroizing<Vec<u8>> = Zeroizing::new(body.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect());
    STANDARD.decode(&*body).ok().map(|bytes| (label.to_owned(), Zeroizing::new(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_breaks_do_not_matter_and_everything_else_does() {
        for good in [
            "-----BEGIN PRIVATE KEY-----\nAQID\nBAUG\n-----END PRIVATE KEY-----\n",
            "-----BEGIN PRIVATE KEY-----AQIDBAUG-----END PRIVATE KEY-----",
            "-----BEGIN PRIVATE KEY-----\\nAQID\\nBAUG\\n-----END PRIVATE KEY-----\\n".trim_end_matches("\\n"),
        ] {
            let (label, bytes) = decode(good).unwrap();
            assert_eq!((label.as_str(), bytes.as_slice()), ("PRIVATE KEY", &[1, 2, 3, 4, 5, 6][..]), "{good}");
        }
        for bad in [
            "",
            "AQID",
            "-----BEGIN PRIVATE KEY-----AQID",
            "-----BEGIN A-----AQID-----END B-----",
            "-----BEGIN A-----A*ID-----END A-----",
            "-----BEGIN A-----AQID-----END A-----x",
        ] {
            assert!(decode(bad).is_none(), "{bad}");
        }
    }
}
