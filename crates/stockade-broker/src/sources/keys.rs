//! A value that is AWS's keys as JSON: its parts are secret by themselves, and what stands for it looks like the id of a key. Pure.

use serde::Deserialize;

use crate::SecretValue;

/// The members that count; others may be there.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Keys {
    access_key_id: String,
    secret_access_key: String,
    token: Option<String>,
}

/// What a placeholder is to look like, and the parts that must not be written down; `None` where the value is no such JSON.
pub(super) fn read(value: &SecretValue) -> Option<(SecretValue, Vec<SecretValue>)> {
    if value.expose().first() != Some(&b'{') {
        return None;
    }
    let keys: Keys = serde_json::from_slice(value.expose()).ok()?;
    let face = SecretValue::new(keys.access_key_id.into_bytes()).ok()?;
    let parts = std::iter::once(keys.secret_access_key).chain(keys.token);
    Some((face, parts.map(|part| SecretValue::new(part.into_bytes()).ok()).collect::<Option<_>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Option<(String, usize)> {
        let value = SecretValue::new(text.as_bytes().to_vec()).unwrap();
        read(&value).map(|(face, parts)| (face.to_text().to_string(), parts.len()))
    }

    #[test]
    fn keys_have_a_face_and_parts_and_nothing_else_has() {
        let id = "AKIAIOSFODNN7EXAMPLE";
        let keys = format!(r#"{{"AccessKeyId":"{id}","SecretAccessKey":"0123456789abcdef0123456789abcdef01234567"}}"#);
        assert_eq!(of(&keys), Some((id.to_owned(), 1)));
        let with_token = keys.replace('}', r#","Token":"a-token-of-some-length","Expiration":"2030-01-01T00:00:00Z"}"#);
        assert_eq!(of(&with_token), Some((id.to_owned(), 2)));
        for other in [
            "ghp_0123456789abcdef",
            r#"{"AccessKeyId":"short","SecretAccessKey":"x"}"#,
            r#"{"type":"service_account"}"#,
            "{0123456789abcdef",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
