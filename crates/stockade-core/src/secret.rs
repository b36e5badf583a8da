//! Values that must not be seen: a wrapper that wipes and hides, and the checked name and value of a secret.
//!
//! Nothing here can be printed, compared in measurable time or written as data by accident: there is no `Display`, no
//! `Serialize`, no `Clone`. Who wants the bytes says `expose`, which can be searched for.

use std::fmt;
use std::str::FromStr;

use subtle::ConstantTimeEq;
use zeroize::{Zeroize, Zeroizing};

/// The shortest value that can be told apart from ordinary text in what a server answers.
pub const MIN_VALUE: usize = 16;
/// The longest value: what servers take in one header.
pub const MAX_VALUE: usize = 16 * 1024;
/// The longest text that a value is read from: room for a line break after it, and for those of a key in PEM.
pub const MAX_TEXT: usize = MAX_VALUE + MAX_VALUE / 16;
/// The longest name.
pub const MAX_NAME: usize = 128;

/// Something secret. Wiped when it goes away; shown as `***`.
pub struct Secret<T: Zeroize>(T);

impl<T: Zeroize> Secret<T> {
    /// Takes charge of a value.
    pub fn new(value: T) -> Self {
        Self(value)
    }

    /// The value itself.
    pub fn expose(&self) -> &T {
        &self.0
    }
}

impl<T: Zeroize> Drop for Secret<T> {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl<T: Zeroize> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl<T: Zeroize + AsRef<[u8]>> PartialEq for Secret<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_ref().ct_eq(other.0.as_ref()).into()
    }
}

impl<T: Zeroize + AsRef<[u8]>> Eq for Secret<T> {}

/// What a secret is called: the name of the environment variable that holds its placeholder inside.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SecretName(String);

/// Text that is no name. It is not repeated: it may be a value that came to the wrong place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a secret is named like an environment variable: letters, digits and `_`, at most {MAX_NAME}, not beginning with a digit")]
pub struct BadSecretName;

impl SecretName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for SecretName {
    type Error = BadSecretName;
    fn try_from(text: String) -> Result<Self, BadSecretName> {
        text.parse()
    }
}

impl From<SecretName> for String {
    fn from(name: SecretName) -> Self {
        name.0
    }
}

impl FromStr for SecretName {
    type Err = BadSecretName;
    fn from_str(text: &str) -> Result<Self, BadSecretName> {
        let first = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
        let rest = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if first && rest && text.len() <= MAX_NAME { Ok(Self(text.to_owned())) } else { Err(BadSecretName) }
    }
}

impl fmt::Display for SecretName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The real value of a secret: printable ASCII that can stand in a header, long enough to be scrubbed from answers.
#[derive(Debug, PartialEq, Eq)]
pub struct SecretValue(Secret<Vec<u8>>);

/// Why something cannot be a secret's value. Says nothing of the value but what is wrong with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadSecretValue {
    /// Nothing at all.
    #[error("the value is empty")]
    Empty,
    /// Too short to be scrubbed.
    #[error("the value is shorter than {MIN_VALUE} bytes, so it could not be told from ordinary text in what a server answers")]
    Short,
    /// Too long for a header.
    #[error("the value is longer than {MAX_VALUE} bytes, more than a header holds")]
    Long,
    /// A blank at an end, which no header keeps.
    #[error("the value begins or ends with a blank, which is lost on the way to a server")]
    Blank,
    /// Something that cannot stand in a header.
    #[error("the value has a line break, a control character or a character beyond ASCII in it, which no header can carry")]
    NotPrintable,
}

impl SecretValue {
    /// Checks a value and takes charge of it. What is refused is wiped too.
    pub fn new(bytes: Vec<u8>) -> Result<Self, BadSecretValue> {
        let secret = Secret::new(bytes);
        let bytes = secret.expose().as_slice();
        let problem = match (bytes.first(), bytes.last()) {
            (None, _) | (_, None) => Some(BadSecretValue::Empty),
            _ if bytes.len() > MAX_VALUE => Some(BadSecretValue::Long),
            _ if !bytes.iter().all(|byte| matches!(byte, b' '..=b'~')) => Some(BadSecretValue::NotPrintable),
            (Some(b' '), _) | (_, Some(b' ')) => Some(BadSecretValue::Blank),
            _ if bytes.len() < MIN_VALUE => Some(BadSecretValue::Short),
            _ => None,
        };
        problem.map_or(Ok(Self(secret)), Err)
    }

    /// As [`Self::new`], for what a program, a file or a pipe gave: one line break at the end is not part of it.
    pub fn from_line(mut bytes: Vec<u8>) -> Result<Self, BadSecretValue> {
        for end in [b'\n', b'\r'] {
            if bytes.last() == Some(&end) {
                bytes.pop();
            }
        }
        Self::new(bytes)
    }

    /// As [`Self::from_line`], for what people keep in files: the line breaks within a key in PEM mean nothing and are left out. A certificate of SSH
    /// may follow such a key on a line of its own, and is kept behind a blank. Whatever else has line breaks in it is refused as everywhere.
    pub fn from_text(mut bytes: Vec<u8>) -> Result<Self, BadSecretValue> {
        let end = end_of_key(&bytes);
        if let Some(gap) = end.and_then(|end| bytes.get_mut(end)) {
            *gap = b' ';
        }
        if end.is_some() || is_pem(&bytes) {
            bytes.retain(|byte| !matches!(byte, b'\n' | b'\r'));
        }
        Self::from_line(bytes)
    }

    /// The bytes themselves.
    pub fn expose(&self) -> &[u8] {
        self.0.expose()
    }

    /// Another copy, which is wiped like this one.
    #[must_use]
    pub fn duplicate(&self) -> Self {
        Self(Secret::new(self.expose().to_vec()))
    }

    /// The value as text: it is ASCII.
    pub fn to_text(&self) -> Zeroizing<String> {
        Zeroizing::new(self.expose().iter().map(|byte| char::from(*byte)).collect())
    }
}

/// Where a key in PEM ends that a certificate of SSH follows, after one line break or blank, and nothing else.
fn end_of_key(bytes: &[u8]) -> Option<usize> {
    const END: &[u8] = b" PRIVATE KEY-----";
    let text = bytes.trim_ascii_end();
    let end = text.windows(END.len()).enumerate().filter(|(_, part)| *part == END).nth(1)?.0 + END.len();
    let (key, certificate) = text.split_at_checked(end)?;
    let (gap, certificate) = certificate.split_at_checked(certificate.len() - certificate.trim_ascii_start().len())?;
    let is_line = matches!(gap, b"\n" | b"\r\n" | b" ") && certificate.iter().all(|byte| matches!(byte, b' '..=b'~'));
    let kind = certificate.split(|byte| *byte == b' ').next()?;
    (is_pem(key) && is_line && kind.ends_with(b"-cert-v01@openssh.com")).then_some(end)
}

/// Whether it is one block of PEM and nothing else. One with headers (`Proc-Type: …`) is none: their line breaks have a meaning.
fn is_pem(bytes: &[u8]) -> bool {
    let block = || {
        let text = std::str::from_utf8(bytes).ok()?.trim_end_matches(['\n', '\r']).strip_prefix("-----BEGIN ")?;
        let (label, rest) = text.split_once("-----")?;
        let body = rest.strip_suffix("-----")?.strip_suffix(label)?.strip_suffix("-----END ")?;
        let is_label = label.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b' ');
        Some(is_label && body.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=\r\n".contains(&byte)))
    };
    block().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_never_shown_and_is_compared_whole() {
        let value = SecretValue::new(b"hunter2hunter2hunter2".to_vec()).unwrap();
        assert_eq!(format!("{value:?} {:?}", Secret::new(vec![7u8])), "SecretValue(***) ***");
        assert_eq!(value, value.duplicate());
        assert_ne!(value, SecretValue::new(b"hunter2hunter2hunter3".to_vec()).unwrap());
        assert_eq!(value.to_text().as_str(), "hunter2hunter2hunter2");
    }

    #[test]
    fn a_secret_wipes_what_it_held() {
        use std::sync::atomic::{AtomicBool, Ordering};
        static WIPED: AtomicBool = AtomicBool::new(false);
        struct Noted;
        impl Zeroize for Noted {
            fn zeroize(&mut self) {
                WIPED.store(true, Ordering::Relaxed);
            }
        }
        drop(Secret::new(Noted));
        assert!(WIPED.load(Ordering::Relaxed));
    }

    #[test]
    fn names_are_those_of_variables() {
        for good in ["A", "_", "GITHUB_TOKEN", "a1"] {
            assert_eq!(good.parse::<SecretName>().map(|name| name.to_string()).as_deref(), Ok(good));
        }
        let long = "A".repeat(MAX_NAME + 1);
        for bad in ["", "1A", "A-B", "A.B", "A=b", "A B", "Ä", "A\0", "../A", &long] {
            assert_eq!(bad.parse::<SecretName>(), Err(BadSecretName), "{bad:?}");
        }
        assert!(!BadSecretName.to_string().contains("A=b"));
    }

    #[test]
    fn values_are_checked() {
        let check = |bytes: &[u8]| SecretValue::new(bytes.to_vec()).err();
        assert_eq!(check(&[b'~'; 16]), None);
        assert_eq!(check(b"with blanks inside it"), None);
        assert_eq!(check(&vec![b'x'; MAX_VALUE]), None);
        assert_eq!(check(b""), Some(BadSecretValue::Empty));
        assert_eq!(check(&[b'x'; 15]), Some(BadSecretValue::Short));
        assert_eq!(check(&vec![b'x'; MAX_VALUE + 1]), Some(BadSecretValue::Long));
        assert_eq!(check(b" 0123456789abcdef"), Some(BadSecretValue::Blank));
        assert_eq!(check(b"0123456789abcdef "), Some(BadSecretValue::Blank));
        for bad in [&b"0123456789abcdef\r\nX: y"[..], b"0123456789abcdef\0", "0123456789abcdefä".as_bytes(), b"0123456789abcdef\x7f"] {
            assert_eq!(check(bad), Some(BadSecretValue::NotPrintable), "{bad:?}");
        }
        for line in [&b"0123456789abcdef"[..], b"0123456789abcdef\n", b"0123456789abcdef\r\n"] {
            assert_eq!(SecretValue::from_line(line.to_vec()).unwrap().expose(), b"0123456789abcdef");
        }
        assert_eq!(SecretValue::from_line(b"0123456789abcdef\n\n".to_vec()).err(), Some(BadSecretValue::NotPrintable));
    }
    #[test]
    fn only_pem_loses_its_line_breaks() {
        let one_line = "-----BEGIN RSA PRIVATE KEY-----AQIDBAUG/+==-----END RSA PRIVATE KEY-----";
        for good in [
            one_line,
            "-----BEGIN RSA PRIVATE KEY-----\nAQID\nBAUG/+==\n-----END RSA PRIVATE KEY-----\n",
            "-----BEGIN RSA PRIVATE KEY-----\r\nAQID\r\nBAUG/+==\r\n-----END RSA PRIVATE KEY-----\r\n\r\n",
        ] {
            assert_eq!(SecretValue::from_text(good.into()).unwrap().to_text().as_str(), one_line, "{good}");
        }
        for bad in [
            "0123456789abcdef\n0123456789abcdef",
            "-----BEGIN A\nX-Header: y and more",
            "-----BEGIN A-----\nAQID\n-----END B-----",
            "-----BEGIN A-----\nAQID\n-----END A-----\nX-Header: y",
            "-----BEGIN A-----\nProc-Type: 4,ENCRYPTED\n\nAQID\n-----END A-----",
            "-----BEGIN A-----\nAQID\n-----END A-----\n-----BEGIN A-----\nAQID\n-----END A-----",
            " -----BEGIN A-----\nAQID\n-----END A-----",
        ] {
            assert_eq!(SecretValue::from_text(bad.into()).err(), Some(BadSecretValue::NotPrintable), "{bad}");
        }
        assert_eq!(SecretValue::from_text(b"0123456789abcdef\n".to_vec()).unwrap().expose(), b"0123456789abcdef");
    }

    #[test]
    fn a_certificate_of_ssh_may_follow_its_key() {
        let one_line =
            "-----BEGIN OPENSSH PRIVATE KEY-----AQIDBAUG-----END OPENSSH PRIVATE KEY----- ssh-ed25519-cert-v01@openssh.com AAAA me";
        let key = "-----BEGIN OPENSSH PRIVATE KEY-----\nAQID\nBAUG\n-----END OPENSSH PRIVATE KEY-----";
        let certificate = "ssh-ed25519-cert-v01@openssh.com AAAA me";
        for good in
            [one_line.to_owned(), format!("{key}\n{certificate}\n"), format!("{key}\r\n{certificate}"), format!("{key} {certificate}")]
        {
            assert_eq!(SecretValue::from_text(good.clone().into()).unwrap().to_text().as_str(), one_line, "{good:?}");
        }
        for bad in [
            format!("{key}\n{certificate}\n{certificate}"),
            format!("{key}\n\n{certificate}"),
            format!("{key}\nssh-ed25519 AAAA"),
            format!("{certificate}\n{key}"),
            format!("{key}\n{key}\n{certificate}"),
        ] {
            assert_eq!(SecretValue::from_text(bad.clone().into()).err(), Some(BadSecretValue::NotPrintable), "{bad:?}");
        }
    }
}
