//! What came of an attempt, and its one line of JSON.

use std::fmt::Write as _;
use std::io;

/// What came of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Finding {
    /// The attacker has what it wanted.
    Open(String),
    /// It was refused, or led nowhere.
    Held(String),
    /// The attempt itself could not be made; proves nothing.
    Broken(String),
}

use Finding::{Held, Open};

impl Finding {
    /// `{"attempt":…,"verdict":…,"detail":…}`.
    pub(crate) fn to_json(&self, attempt: &str) -> String {
        let (verdict, detail) = match self {
            Open(detail) => ("open", detail),
            Held(detail) => ("held", detail),
            Self::Broken(detail) => ("broken", detail),
        };
        format!("{{\"attempt\":{},\"verdict\":\"{verdict}\",\"detail\":{}}}", quoted(attempt), quoted(detail))
    }
}

/// Open if it worked at all.
pub(crate) fn if_it_works<T>(result: io::Result<T>) -> Finding {
    match result {
        Ok(_) => Open("it worked".into()),
        Err(error) => Held(error.to_string()),
    }
}

/// Open if the kernel's own code was reached: any answer but a refusal on sight. For calls whose arguments are harmless and wrong.
pub(crate) fn if_reached<T>(result: io::Result<T>) -> Finding {
    match result {
        Ok(_) => Open("it worked".into()),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES | libc::ENOSYS)) => Held(error.to_string()),
        Err(error) => Open(format!("the kernel looked at it: {error}")),
    }
}

/// Open if these bytes hold the secret.
pub(crate) fn if_secret(result: io::Result<Vec<u8>>, secret: &str) -> Finding {
    match result {
        Ok(bytes) if !secret.is_empty() && bytes.windows(secret.len()).any(|w| w == secret.as_bytes()) => {
            Open("the secret was read".into())
        }
        Ok(bytes) => Held(format!("{} bytes without the secret", bytes.len())),
        Err(error) => Held(error.to_string()),
    }
}

fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if (c as u32) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_json_whatever_the_detail() {
        let line = Open("a \"quoted\\ line\n".into()).to_json("x");
        assert_eq!(line, "{\"attempt\":\"x\",\"verdict\":\"open\",\"detail\":\"a \\\"quoted\\\\ line\\u000a\"}");
    }
}
