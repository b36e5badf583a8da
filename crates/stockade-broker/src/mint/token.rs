//! The answer of an OAuth 2.0 token endpoint (RFC 6749, RFC 8693), which Google's are too.

use std::time::{Duration, SystemTime};

use serde::Deserialize;
use stockade_core::escape::escape;

use super::http::Answer;
use super::told::{self, Text};
use super::{Asking, MintError};
use crate::SecretValue;

/// What a token endpoint answers. Members that are not known are left alone, as RFC 6749 says.
#[derive(Deserialize)]
pub(super) struct TokenAnswer {
    access_token: Text,
    token_type: String,
    expires_in: Option<u64>,
    scope: Option<String>,
    /// A refresh token that takes the place of the one that was used.
    pub(super) refresh_token: Option<Text>,
    issued_token_type: Option<String>,
}

/// A token that was checked.
pub(super) struct Token {
    /// The token.
    pub(super) value: SecretValue,
    /// When it ends.
    pub(super) expires: Option<SystemTime>,
    /// What it is good for, if that was told.
    pub(super) scope: Option<String>,
}

/// What was asked for, and so may be given.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    /// The scope; any where it is nothing.
    pub(super) scope: Option<&'a str>,
    /// For how long a token may be good.
    pub(super) most: Duration,
    /// What kind of token was asked for in an exchange.
    pub(super) kind: Option<&'a str>,
}

/// The kind of token that is sent as `Bearer`.
pub(super) const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";

impl TokenAnswer {
    /// Reads an answer. Some servers tell a failure with a status of success: then it is their reason that is shown.
    pub(super) fn read(step: &str, answer: &Answer, asking: &Asking<'_>) -> Result<Self, MintError> {
        answer.json().map_err(|why| MintError::new(step, format!("{why} ({})", asking.clean(&answer.said()))))
    }

    /// Checks that this is what was asked for, and nothing wider.
    pub(super) fn check(self, step: &str, now: SystemTime, asked: Asked<'_>) -> Result<Token, MintError> {
        if let Some(kind) = asked.kind
            && self.issued_token_type.as_deref() != Some(kind)
        {
            return Err(MintError::new(step, "it gives another kind of token than was asked for, or does not say which"));
        }
        // RFC 8693: what is no access token has no type.
        let no_type = asked.kind.is_some_and(|kind| kind != ACCESS_TOKEN) && self.token_type.eq_ignore_ascii_case("N_A");
        if !no_type && !self.token_type.eq_ignore_ascii_case("Bearer") {
            return Err(MintError::new(step, "it gives a token that is not of the type Bearer"));
        }
        if let Some(wider) = self.wider(asked.scope) {
            return Err(MintError::new(step, format!("it gives the scope `{}`, which was not asked for", told::scope(wider)))
                .with_hint("if that is meant, write it into the scope of this secret's setting"));
        }
        let expires = self.expires_in.map(|left| told::after(step, now, left, asked.most)).transpose()?;
        let scope = self.scope.as_deref().map(escape);
        Ok(Token { value: self.access_token.into_value(step)?, expires, scope })
    }

    /// A scope that is in the answer and was not asked for.
    fn wider(&self, asked: Option<&str>) -> Option<&str> {
        let asked: Vec<&str> = asked?.split_whitespace().collect();
        self.scope.as_deref()?.split_whitespace().find(|told| !asked.contains(told))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const ASKED: Asked<'_> = Asked { scope: Some("a b"), most: Duration::from_hours(1), kind: None };

    fn check(answer: &Value, asked: Asked<'_>) -> Result<(Option<u64>, Option<String>), String> {
        let now = SystemTime::now();
        let answer: TokenAnswer = serde_json::from_value(answer.clone()).map_err(|_| "shape".to_owned())?;
        let token = answer.check("step", now, asked).map_err(|error| error.to_string())?;
        assert_eq!(token.value.to_text().as_str(), "token-0123456789");
        Ok((token.expires.map(|end| end.duration_since(now).unwrap().as_secs()), token.scope))
    }

    #[test]
    fn what_was_asked_for_or_less() {
        for (answer, expect) in [
            (json!({"access_token": "token-0123456789", "token_type": "bearer"}), (None, None)),
            (
                json!({"access_token": "token-0123456789", "token_type": "BEARER", "expires_in": 60, "scope": "b", "id_token": "x"}),
                (Some(60), Some("b".to_owned())),
            ),
        ] {
            assert_eq!(check(&answer, ASKED), Ok(expect));
        }
        let wide = json!({"access_token": "token-0123456789", "token_type": "Bearer", "scope": "admin"});
        assert_eq!(check(&wide, Asked { scope: None, ..ASKED }), Ok((None, Some("admin".to_owned()))));
    }

    #[test]
    fn anything_else_is_refused() {
        for (answer, says) in [
            (json!({"token_type": "Bearer"}), "shape"),
            (json!({"access_token": "token-0123456789"}), "shape"),
            (json!({"access_token": "token-0123456789", "token_type": "Bearer", "expires_in": -1}), "shape"),
            (json!({"access_token": "token-0123456789", "token_type": "Bearer", "expires_in": "60"}), "shape"),
            (json!({"access_token": "token-0123456789", "token_type": "Bearer", "expires_in": 86_400}), "longer"),
            (json!({"access_token": "token-0123456789", "token_type": "DPoP"}), "not of the type Bearer"),
            (json!({"access_token": "token-0123456789", "token_type": "N_A"}), "not of the type Bearer"),
            (json!({"access_token": "token-0123456789", "token_type": "Bearer", "scope": "a admin"}), "`admin`"),
            (json!({"access_token": "token-0123456789\r\n", "token_type": "Bearer"}), "line break"),
        ] {
            let error = check(&answer, ASKED).unwrap_err();
            assert!(error.contains(says) && !error.contains("0123"), "{error}");
        }
    }

    #[test]
    fn an_exchange_gives_the_kind_that_was_asked_for() {
        let jwt = "urn:ietf:params:oauth:token-type:jwt";
        let of = |kind: &str, named: &str| json!({"access_token": "token-0123456789", "token_type": named, "issued_token_type": kind});
        let asked = |kind| Asked { kind: Some(kind), ..ASKED };
        assert!(check(&of(ACCESS_TOKEN, "Bearer"), asked(ACCESS_TOKEN)).is_ok());
        assert!(check(&of(jwt, "N_A"), asked(jwt)).is_ok());
        assert!(check(&of(ACCESS_TOKEN, "N_A"), asked(ACCESS_TOKEN)).is_err());
        assert!(check(&of(jwt, "Bearer"), asked(ACCESS_TOKEN)).is_err());
        assert!(check(&json!({"access_token": "token-0123456789", "token_type": "Bearer"}), asked(jwt)).is_err());
    }
}
