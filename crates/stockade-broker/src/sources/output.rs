//! What a program printed: the value alone, or `{"value": "…", "expires": "…"}`. Pure.
//!
//! Nothing of the text is repeated in an error: it may be the value.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Deserialize;
use zeroize::Zeroizing;

use super::SourceError;
use crate::{SecretName, SecretValue};

/// The last second that dates with four digits can name.
const LAST_SECOND: u64 = 253_402_300_799;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    value: String,
    #[serde(default)]
    expires: Option<Expires>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Expires {
    Seconds(u64),
    Date(String),
}

/// The value, and its end if there is one.
pub(super) fn read(
    name: &SecretName,
    printed: Zeroizing<Vec<u8>>,
    now: SystemTime,
) -> Result<(SecretValue, Option<SystemTime>), SourceError> {
    let mut printed = printed;
    let is_json = printed.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
    let (value, expires) = if is_json {
        let why =
            "it prints JSON, but not an object with `value` and `expires` (a date such as 2026-01-01T00:00:00Z, or seconds since 1970)";
        let malformed = || SourceError::Command { name: name.clone(), why: why.to_owned() };
        let document: Document = serde_json::from_slice(&printed).map_err(|_| malformed())?;
        let value = SecretValue::from_text(document.value.into_bytes());
        let expires = document.expires.map(|end| instant(&end).ok_or_else(malformed)).transpose()?;
        (value, expires)
    } else {
        (SecretValue::from_text(std::mem::take(&mut *printed)), None)
    };
    let value = value.map_err(|source| SourceError::Value { name: name.clone(), source })?;
    match expires {
        Some(end) if end <= now => Err(SourceError::Expired(name.clone())),
        expires => Ok((value, expires)),
    }
}

fn instant(expires: &Expires) -> Option<SystemTime> {
    match expires {
        Expires::Seconds(seconds) if *seconds <= LAST_SECOND => Some(UNIX_EPOCH + Duration::from_secs(*seconds)),
        Expires::Seconds(_) => None,
        Expires::Date(text) => text.parse::<jiff::Timestamp>().ok().map(SystemTime::from),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUE: &str = "a-value-of-some-length";

    fn check(printed: &str) -> Result<(String, Option<u64>), String> {
        let now = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let read = read(&"T".parse().unwrap(), Zeroizing::new(printed.as_bytes().to_vec()), now);
        let seconds = |end: SystemTime| end.duration_since(UNIX_EPOCH).unwrap().as_secs();
        read.map(|(value, end)| (value.to_text().to_string(), end.map(seconds))).map_err(|error| {
            let text = format!("{error} {error:?}");
            assert!(!text.contains("some-length"), "{text}");
            error.to_string()
        })
    }

    #[test]
    fn plain_text_and_json_are_read() {
        let good = |end| Ok((VALUE.to_owned(), end));
        assert_eq!(check(VALUE), good(None));
        assert_eq!(check(&format!("{VALUE}\n")), good(None));
        assert_eq!(check(&format!(" {{\"value\": \"{VALUE}\"}}\n")), good(None));
        assert_eq!(check(&format!("{{\"value\": \"{VALUE}\", \"expires\": null}}")), good(None));
        assert_eq!(check(&format!("{{\"value\": \"{VALUE}\", \"expires\": 2000000000}}")), good(Some(2_000_000_000)));
        assert_eq!(check(&format!("{{\"value\": \"{VALUE}\", \"expires\": \"2033-05-18T05:33:20+02:00\"}}")), good(Some(2_000_000_000)));
    }

    #[test]
    fn everything_else_is_refused_without_repeating_it() {
        for bad in [
            "",
            "short",
            "\n",
            "a-value-of-some-length\nand another line",
            "{a-value-of-some-length",
            "{\"value\": 1}",
            "{\"value\": \"a-value-of-some-length\", \"token\": 1}",
            "{\"value\": \"a-value-of-some-length\", \"value\": \"a-value-of-some-length\"}",
            "{\"value\": \"a-value-of-some-length\", \"expires\": \"a-value-of-some-length\"}",
            "{\"value\": \"a-value-of-some-length\", \"expires\": -1}",
            "{\"value\": \"a-value-of-some-length\", \"expires\": 1e9}",
            "{\"value\": \"a-value-of-some-length\", \"expires\": 99999999999999}",
            "{\"value\": \"a-value-of-some-length\"} x",
        ] {
            assert!(check(bad).is_err(), "{bad}");
        }
        let past = check(&format!("{{\"value\": \"{VALUE}\", \"expires\": 1000000000}}")).unwrap_err();
        assert!(past.contains("past its end"), "{past}");
    }
}
