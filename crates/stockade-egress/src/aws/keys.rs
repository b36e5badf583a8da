//! Keys of AWS as providers hand them out: JSON with `AccessKeyId`, `SecretAccessKey` and, where they are temporary, `Token`.

use serde_json::Value;
use zeroize::Zeroizing;

use crate::secrets::SecretValue;

/// The longest key id; AWS says 128.
const MAX_KEY_ID: usize = 128;

/// Keys, wiped from memory when they are dropped.
pub struct Keys {
    /// Which key: no secret.
    pub id: String,
    /// What signs. Never leaves this machine.
    pub secret: Zeroizing<String>,
    /// What goes along with a temporary key.
    pub token: Option<Zeroizing<String>>,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

impl Keys {
    /// Reads the JSON of a value.
    pub fn parse(value: &SecretValue) -> Option<Self> {
        let Value::Object(mut members) = serde_json::from_slice(value.expose()).ok()? else { return None };
        let mut take = |name: &str| match members.remove(name) {
            Some(Value::String(text)) => Some(Zeroizing::new(text)),
            _ => None,
        };
        let (id, secret) = (take("AccessKeyId")?, take("SecretAccessKey")?);
        let token = take("Token").filter(|token| !token.is_empty());
        let plain = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        let id_fits = id.len() <= MAX_KEY_ID && !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let fits = id_fits && plain(&secret) && token.as_deref().is_none_or(|token| plain(token));
        fits.then(|| Self { id: id.to_string(), secret, token })
    }

    /// What answers are searched for: not the id, which AWS itself shows.
    pub(crate) fn hidden(&self) -> impl Iterator<Item = &[u8]> {
        std::iter::once(self.secret.as_bytes()).chain(self.token.as_ref().map(|token| token.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Option<Keys> {
        Keys::parse(&SecretValue::new(text.as_bytes().to_vec()).unwrap())
    }

    #[test]
    fn keys_are_read_from_what_a_container_gets() {
        let keys =
            parse(r#"{"AccessKeyId":"ASIAEXAMPLE","SecretAccessKey":"se/cr+et","Token":"to/ken==","Expiration":"2026-01-01T00:00:00Z"}"#)
                .unwrap();
        assert_eq!(
            (keys.id.as_str(), keys.secret.as_str(), keys.token.as_ref().unwrap().as_str()),
            ("ASIAEXAMPLE", "se/cr+et", "to/ken==")
        );
        assert_eq!(keys.hidden().count(), 2);
        assert_eq!(format!("{keys:?}"), "***");
        assert!(parse(r#"{"AccessKeyId":"AKIAEXAMPLE","SecretAccessKey":"secret"}"#).unwrap().token.is_none());
        for bad in [
            "AKIAEXAMPLE:secret-secret",
            r#"["AccessKeyId","SecretAccessKey"]"#,
            r#"{"AccessKeyId":"AKIAEXAMPLE"}      "#,
            r#"{"AccessKeyId":"AKIA/EXAMPLE","SecretAccessKey":"secret"}"#,
            r#"{"AccessKeyId":"AKIAEXAMPLE","SecretAccessKey":"sec ret"}"#,
            r#"{"AccessKeyId":"AKIAEXAMPLE","SecretAccessKey":7777777}"#,
        ] {
            assert!(parse(bad).is_none(), "{bad}");
        }
    }
}
