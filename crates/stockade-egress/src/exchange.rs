//! Exchanges: requests in which a server hands out new tokens for an old one, as OAuth's refresh does.
//!
//! The answer must not go inside as it is. Its tokens are handed to whoever keeps secrets, and in their places the sandbox gets the
//! placeholders it has already. An answer that cannot be read is not passed on: what stands in it may be a token.

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use serde_json::Value;
use stockade_core::host::{HostName, HostPattern};

use crate::body::answer::AnswerBody;
use crate::refusal::Refusal;
use crate::sandbox::Sandbox;
use crate::secrets::{Renewed, SecretValue, Secrets};

/// An answer of this kind is short.
const MAX_ANSWER: usize = 64 << 10;

/// Where tokens are handed out.
#[derive(Debug, Clone)]
pub struct Exchange {
    /// By whom.
    pub hosts: Vec<HostPattern>,
    /// At which path, exactly.
    pub path: String,
    /// The answer's members that are tokens, each with the name of the secret it is.
    pub tokens: Vec<(String, String)>,
}

impl Exchange {
    /// Whether a request to this place is one.
    pub(crate) fn is_at(&self, host: &HostName, port: u16, path: &str) -> bool {
        self.path == path && self.hosts.iter().any(|pattern| pattern.matches(host, port))
    }

    /// Takes the tokens out of an answer; gives what goes inside.
    pub(crate) async fn settle(&self, mut body: AnswerBody, sandbox: &Sandbox, secrets: &dyn Secrets) -> Result<Bytes, Refusal> {
        let mut whole = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let Ok(piece) = frame.map_err(|_| unreadable())?.into_data() else { continue };
            if whole.len() + piece.len() > MAX_ANSWER {
                return Err(unreadable());
            }
            whole.extend_from_slice(&piece);
        }
        let (inside, renewed) = self.rewrite(&whole, sandbox)?;
        if !renewed.tokens.is_empty() {
            secrets.renew(&sandbox.id, renewed).map_err(|_| Refusal::Unsupported("new tokens of a login cannot be kept outside"))?;
        }
        Ok(inside)
    }

    fn rewrite(&self, whole: &[u8], sandbox: &Sandbox) -> Result<(Bytes, Renewed), Refusal> {
        let mut value: Value = serde_json::from_slice(whole).map_err(|_| unreadable())?;
        let members = value.as_object_mut().ok_or_else(unreadable)?;
        let lasts = members.get("expires_in").and_then(Value::as_u64);
        let mut tokens = Vec::new();
        for (member, name) in &self.tokens {
            let Some(place) = members.get_mut(member).filter(|value| !value.is_null()) else { continue };
            let bound = sandbox.bound.iter().find(|bound| *bound.name == **name).ok_or_else(unreadable)?;
            let placeholder = String::from_utf8_lossy(&bound.placeholder).into_owned();
            let text = place.as_str().ok_or_else(unreadable)?;
            // A server may hand out the same one again, which was taken out already.
            if text != placeholder {
                tokens.push((name.clone(), SecretValue::new(text.as_bytes().to_vec()).map_err(|_| unreadable())?));
            }
            *place = Value::String(placeholder);
        }
        let text = serde_json::to_vec(&value).map_err(|_| unreadable())?;
        Ok((text.into(), Renewed { tokens, lasts }))
    }
}

fn unreadable() -> Refusal {
    Refusal::Unsupported("an answer that hands out tokens cannot be read, so it is not passed on")
}

#[cfg(test)]
mod tests {
    use stockade_core::id::SandboxId;

    use super::*;
    use crate::rules::Rules;
    use crate::secrets::binding::{Binding, Budget, Form, Places};

    fn sandbox() -> Sandbox {
        let binding = |name: &str, placeholder: &str| Binding {
            name: name.into(),
            placeholder: placeholder.into(),
            hosts: vec![HostPattern::parse("auth.example").unwrap()],
            places: Places::default(),
            budget: Budget::default(),
            form: Form::default(),
        };
        let bindings = vec![binding("ACCESS", "placeholder-of-access"), binding("REFRESH", "placeholder-of-refresh")];
        Sandbox::new(SandboxId::from_parts(0, 1), Rules::default(), bindings, None).unwrap()
    }

    fn exchange() -> Exchange {
        let tokens = [("access_token", "ACCESS"), ("refresh_token", "REFRESH")].map(|(member, name)| (member.to_owned(), name.to_owned()));
        Exchange { hosts: vec![HostPattern::parse("auth.example").unwrap()], path: "/token".into(), tokens: tokens.into() }
    }

    #[test]
    fn new_tokens_stay_outside() {
        let answer =
            r#"{"access_token":"brand-new-access-token","refresh_token":"brand-new-refresh-token","expires_in":3600,"scope":"a b"}"#;
        let (inside, renewed) = exchange().rewrite(answer.as_bytes(), &sandbox()).unwrap();
        let inside = String::from_utf8(inside.to_vec()).unwrap();
        assert!(
            inside.contains("placeholder-of-access") && inside.contains("placeholder-of-refresh") && inside.contains("\"scope\":\"a b\""),
            "{inside}"
        );
        assert!(!inside.contains("brand-new"), "{inside}");
        assert_eq!(renewed.lasts, Some(3600));
        let kept: Vec<(&str, &[u8])> = renewed.tokens.iter().map(|(name, value)| (name.as_str(), value.expose())).collect();
        assert_eq!(kept, [("ACCESS", &b"brand-new-access-token"[..]), ("REFRESH", b"brand-new-refresh-token")]);
    }

    #[test]
    fn a_token_that_stays_is_not_renewed() {
        let answer = r#"{"access_token":"brand-new-access-token","refresh_token":"placeholder-of-refresh"}"#;
        let (_, renewed) = exchange().rewrite(answer.as_bytes(), &sandbox()).unwrap();
        assert_eq!(renewed.tokens.len(), 1);
        let (_, renewed) = exchange().rewrite(br#"{"error":"invalid_grant"}"#, &sandbox()).unwrap();
        assert!(renewed.tokens.is_empty());
    }

    #[test]
    fn what_cannot_be_read_is_not_passed_on() {
        for bad in [
            &b"access_token=brand-new-access-token"[..],
            b"[]",
            br#"{"access_token":"short"}"#,
            br#"{"access_token":{"a":"brand-new-access-token"}}"#,
        ] {
            assert!(exchange().rewrite(bad, &sandbox()).is_err(), "{bad:?}");
        }
        let host = HostName::parse("auth.example").unwrap();
        assert!(
            exchange().is_at(&host, 443, "/token") && !exchange().is_at(&host, 443, "/token/x") && !exchange().is_at(&host, 8443, "/token")
        );
    }
}
