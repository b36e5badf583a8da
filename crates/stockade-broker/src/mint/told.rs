//! What providers tell, read strictly: values, ends and scopes. Shared by the adapters; none of it repeats a value.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Deserialize;
use stockade_core::escape::escape;
use zeroize::Zeroize as _;

use super::http::Request;
use super::{Asking, MAX_SAID, MintError, Wire};
use crate::SecretValue;

/// The longest description of what a credential is good for.
const MAX_SCOPE: usize = 1000;
/// How far a provider's clock may be from ours.
pub(super) const SKEW: Duration = Duration::from_mins(5);

/// A text of an answer or a key file that is, or may be, a value: wiped when it is dropped.
#[derive(Deserialize)]
#[serde(transparent)]
pub(super) struct Text(String);

impl Drop for Text {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl Text {
    /// What it says.
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// As a value, if it can be one.
    pub(super) fn into_value(mut self, step: &str) -> Result<SecretValue, MintError> {
        let bytes = std::mem::take(&mut self.0).into_bytes();
        SecretValue::new(bytes).map_err(|error| MintError::new(step, error.to_string()))
    }
}

impl Asking<'_> {
    /// Something else that was used to ask and must not be repeated.
    pub(super) fn hide(&self, value: &SecretValue) {
        self.used.borrow_mut().push(Arc::new(crate::sources::of_caller(value, self.now)));
    }

    /// The same for a text.
    pub(super) fn hide_text(&self, step: &str, text: &str) -> Result<(), MintError> {
        self.hide(&SecretValue::new(text.as_bytes().to_vec()).map_err(|error| MintError::new(step, error.to_string()))?);
        Ok(())
    }

    /// A value that a provider gave, checked; it must not be repeated either.
    pub(super) fn take(&self, step: &str, text: String) -> Result<SecretValue, MintError> {
        let value = SecretValue::new(text.into_bytes()).map_err(|error| MintError::new(step, error.to_string()))?;
        self.hide(&value);
        Ok(value)
    }
}

/// A time as JWTs count it.
pub(super) fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// The end that a provider tells as a date. One that is further away than `most` is a lie or a mistake, and no short-lived credential.
pub(super) fn until(step: &str, now: SystemTime, date: &str, most: Duration) -> Result<SystemTime, MintError> {
    let end = date.parse::<jiff::Timestamp>().map_err(|_| MintError::new(step, "the end that it tells is no date"))?;
    let end = SystemTime::from(end);
    match end.duration_since(now) {
        Ok(left) if left > most + SKEW => Err(too_long(step, most)),
        Ok(_) | Err(_) => Ok(end),
    }
}

/// The same as a number of seconds.
pub(super) fn after(step: &str, now: SystemTime, left: u64, most: Duration) -> Result<SystemTime, MintError> {
    let left = Duration::from_secs(left);
    if left > most + SKEW {
        return Err(too_long(step, most));
    }
    Ok(now + left)
}

fn too_long(step: &str, most: Duration) -> MintError {
    MintError::new(step, format!("what it gives is good for longer than the {} seconds that are allowed here", most.as_secs()))
}

/// A description of what a credential is good for, for receipts.
pub(super) fn scope(text: &str) -> String {
    let shown: String = escape(text).chars().take(MAX_SCOPE + 1).collect();
    if shown.chars().count() <= MAX_SCOPE { shown } else { shown.chars().take(MAX_SCOPE - 1).chain(['…']).collect() }
}

/// Words that may be shown: bounded, escaped, without these values.
pub(super) fn clean(said: &str, hidden: &[SecretValue]) -> String {
    let said = hidden.iter().fold(said.to_owned(), |said, value| said.replace(&*value.to_text(), "[redacted]"));
    escape(&said.chars().take(MAX_SAID).collect::<String>())
}

/// Gives a credential back. `gone` is the status of an answer that says there is no such credential any more, which is as good.
pub(super) fn give_back(
    wire: &Wire<'_>,
    step: &str,
    request: &Request<'_>,
    ca_file: Option<&Path>,
    hidden: &[SecretValue],
    gone: Option<u16>,
) -> Result<(), MintError> {
    let answer = wire(request, ca_file).map_err(|error| MintError::new(step, clean(&error.to_string(), hidden)))?;
    if (200..300).contains(&answer.status) || gone == Some(answer.status) {
        return Ok(());
    }
    Err(MintError::answered(step, answer.status, &clean(&answer.said(), hidden)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_dates_and_not_too_far_away() {
        let now = SystemTime::from("2026-01-01T00:00:00Z".parse::<jiff::Timestamp>().unwrap());
        let hour = Duration::from_hours(1);
        assert_eq!(until("s", now, "2026-01-01T01:00:00Z", hour), Ok(now + hour));
        assert_eq!(until("s", now, "2026-01-01T02:00:00.5+01:00", hour), Ok(now + hour + Duration::from_millis(500)));
        assert_eq!(until("s", now, "2020-01-01T00:00:00Z", hour).map(|end| end < now), Ok(true));
        assert!(until("s", now, "2026-01-01T01:06:00Z", hour).is_err_and(|error| error.why.contains("longer than the 3600")));
        assert!(until("s", now, "tomorrow", hour).is_err_and(|error| error.why.contains("no date")));
        assert_eq!(after("s", now, 3600, hour), Ok(now + hour));
        assert!(after("s", now, u64::MAX, hour).is_err());
    }

    #[test]
    fn scopes_are_escaped_and_bounded() {
        assert_eq!(scope("a\u{202e}b\n"), "a\\u{202e}b\\n");
        assert_eq!(scope(&"é".repeat(MAX_SCOPE)), "é".repeat(MAX_SCOPE));
        let long = scope(&"é".repeat(MAX_SCOPE + 1));
        assert!(long.ends_with('…') && long.chars().count() == MAX_SCOPE);
    }

    #[test]
    fn values_are_not_shown() {
        let text = |json: &str| serde_json::from_str::<Text>(json).unwrap();
        let value = text("\"0123456789abcdef\"").into_value("s").unwrap();
        assert_eq!(clean("no 0123456789abcdef\u{7}", &[value]), "no [redacted]\\u{7}");
        for bad in ["\"0123456789abcdef\\n\"", "\"0123456789\\u0000abcdef\"", "\"\""] {
            let error = text(bad).into_value("reading it").unwrap_err().to_string();
            assert!(error.starts_with("reading it: the value ") && !error.contains("0123"), "{error}");
        }
    }
}
