//! Takes credentials out of an agent's settings before they go inside.
//!
//! Two nets: members whose names say that they hold one, and values that look like one wherever they stand. What cannot be read is not
//! copied. Nothing here is certain, as no list of names is; the keys that count are outside because they are never put in.

use serde_json::{Map, Value};
use stockade_broker::placeholder::looks_like_a_token;

/// Parts of names of members that hold credentials, and programs that print them.
const TELLTALE: [&str; 14] = [
    "apikey",
    "api_key",
    "api-key",
    "token",
    "secret",
    "password",
    "passwd",
    "credential",
    "authorization",
    "cookie",
    "private_key",
    "privatekey",
    "awsauthrefresh",
    "bearer",
];

/// The same value without credentials.
pub(crate) fn without_credentials(value: Value) -> Value {
    match value {
        Value::Object(members) => Value::Object(
            members
                .into_iter()
                .filter(|(name, value)| !holds_credential(name, value))
                .map(|(name, value)| (name, without_credentials(value)))
                .collect::<Map<_, _>>(),
        ),
        Value::Array(items) => Value::Array(items.into_iter().filter(|item| !is_token(item)).map(without_credentials).collect()),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => value,
    }
}

/// Whether a text has something in it that looks like a token.
pub(crate) fn has_token(text: &str) -> bool {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || "-_.".contains(c))).any(looks_like_a_token)
}

fn holds_credential(name: &str, value: &Value) -> bool {
    let name = name.to_ascii_lowercase();
    // A number of tokens is none; a variable's *name* (`env_key`) says where one is, not what it is.
    let holds_text = matches!(value, Value::String(_) | Value::Array(_)) || (name.contains("credential") && value.is_object());
    is_token(value) || (holds_text && name != "env_key" && TELLTALE.iter().any(|part| name.contains(part)))
}

fn is_token(value: &Value) -> bool {
    matches!(value, Value::String(text) if has_token(text) || has_user(text))
}

/// Whether a text is an address with a user or password in it.
fn has_user(text: &str) -> bool {
    let rest = text.split_once("://").map(|(_, rest)| rest);
    rest.is_some_and(|rest| rest.split(['/', '?', '#']).next().is_some_and(|authority| authority.contains('@')))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn credentials_are_left_out_and_the_rest_stays() {
        let given = json!({
            "model": "opus", "apiKeyHelper": "/usr/bin/get-key", "maxTokens": 5, "env": {"FOO": "1", "MY_TOKEN": "abc", "GITHUB": "ghp_aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0eF3hJ6"},
            "mcpServers": {"a": {"url": "https://user:word@host/x", "headers": {"Authorization": "Bearer x"}, "args": ["--key", "sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789"]}},
            "credentials": {"x": 1}, "env_key": "OPENAI_API_KEY",
        });
        let kept = json!({
            "model": "opus", "maxTokens": 5, "env": {"FOO": "1"},
            "mcpServers": {"a": {"headers": {}, "args": ["--key"]}}, "env_key": "OPENAI_API_KEY",
        });
        assert_eq!(without_credentials(given), kept);
    }

    #[test]
    fn tokens_are_found_in_text() {
        assert!(has_token("use `ghp_aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0eF3hJ6` here"));
        assert!(!has_token("Run the tests with `cargo test --workspace`, please."));
    }
}
