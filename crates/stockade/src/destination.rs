//! Where something is sent: `https`, or `http` to loopback by its address.
//!
//! What a server would refuse when it starts is refused when it is set, by the same words.

use http::Uri;
use http::uri::PathAndQuery;
use stockade_core::escape::escape;
use stockade_core::host::{HostName, HostPattern};
use stockade_core::secret::SecretName;
use stockade_store::settings::key::Key;
use stockade_store::settings::value::Value;

use crate::failure::Failure;

/// The step that fails where settings name something that cannot be told.
pub(crate) const STEP: &str = "settings";

/// Where collectors take spans, unless the URL says otherwise.
const TRACES: &str = "/v1/traces";
/// No URL of anybody's is longer.
const MOST: usize = 2048;

/// Whether what a person typed for a setting is something that a server could use, where the setting says whom it tells.
pub(crate) fn check(key: &Key, typed: &str) -> Result<(), Failure> {
    // What is not even text is refused by the settings themselves; `null` says that nobody is told.
    let Ok(Value::Text(text)) = Value::from_text(key, typed) else { return Ok(()) };
    match key.name {
        "approvals.webhook.url" | "telemetry.otlp.url" => at(key.name, &text).map(drop),
        "approvals.webhook.secret" | "telemetry.otlp.secret" => secret(key.name, &text).map(drop),
        _ => Ok(()),
    }
}

/// The place that a setting names.
pub(crate) fn at(key: &str, url: &str) -> Result<Destination, Failure> {
    Destination::parse(url).map_err(|why| Failure::new(STEP, format!("`{key}`: {why}")))
}

/// The secret that a setting names.
pub(crate) fn secret(key: &str, name: &str) -> Result<SecretName, Failure> {
    name.parse().map_err(|error| Failure::new(STEP, format!("`{key}`: {error}")).with_hint("it is a name, not the value itself"))
}

/// A place that settings name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Destination {
    /// The whole of it.
    pub(crate) url: Uri,
    host: HostName,
    port: u16,
}

impl Destination {
    /// Reads a URL.
    fn parse(text: &str) -> Result<Self, String> {
        let shown = escape(&text.chars().take(200).collect::<String>());
        let refused = |why: &str| Err(format!("`{shown}`: {why}"));
        let Some(url) = (text.len() <= MOST).then(|| text.parse::<Uri>().ok()).flatten() else { return refused("that is no URL") };
        let authority = url.authority().map(http::uri::Authority::as_str).unwrap_or_default();
        if authority.contains('@') {
            return refused("a name and password do not belong there");
        }
        let default = match url.scheme_str() {
            Some("https") => 443,
            Some("http") => 80,
            _ => return refused("it must begin with `https://`"),
        };
        let (host, port) = match HostName::parse_authority(authority, default) {
            Ok(found) => found,
            Err(error) => return refused(&error.to_string()),
        };
        let is_loopback = matches!(host, HostName::Address(address) if address.is_loopback());
        if url.scheme_str() == Some("http") && !is_loopback {
            return refused("only `https` is spoken, but to an address of loopback");
        }
        Ok(Self { url, host, port })
    }

    /// The one host and port that egress lets through for it.
    pub(crate) fn pattern(&self) -> HostPattern {
        HostPattern::exactly(&self.host, self.port).at_port(self.port)
    }

    /// The place for spans: where the URL names a collector alone, the usual one.
    pub(crate) fn at_traces(self) -> Self {
        if !matches!(self.url.path(), "" | "/") || self.url.query().is_some() {
            return self;
        }
        let mut parts = self.url.clone().into_parts();
        parts.path_and_query = Some(PathAndQuery::from_static(TRACES));
        Self { url: Uri::from_parts(parts).unwrap_or_else(|_| self.url.clone()), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_https_or_loopback() {
        let pattern = |text: &str| Destination::parse(text).map(|to| to.pattern().to_string());
        assert_eq!(pattern("https://hooks.example.com/in?x=1").unwrap(), "hooks.example.com:443");
        assert_eq!(pattern("https://hooks.example.com:8443").unwrap(), "hooks.example.com:8443");
        assert_eq!(pattern("http://127.0.0.1:4318").unwrap(), "127.0.0.1:4318");
        assert_eq!(pattern("http://[::1]:4318/").unwrap(), "[::1]:4318");
        let long = format!("https://a/{}", "x".repeat(MOST));
        for bad in [
            "http://localhost:1/",
            "http://10.0.0.1/",
            "http://a.com/",
            "ftp://a/",
            "a.com",
            "/x",
            "",
            "https://",
            "https://u:p@a.com/",
            &long,
        ] {
            assert!(pattern(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn spans_go_to_the_usual_place_unless_another_is_named() {
        let url = |text: &str| Destination::parse(text).unwrap().at_traces().url.to_string();
        assert_eq!(url("http://127.0.0.1:4318"), "http://127.0.0.1:4318/v1/traces");
        assert_eq!(url("https://otel.example.com/"), "https://otel.example.com/v1/traces");
        assert_eq!(url("https://otel.example.com/in/traces"), "https://otel.example.com/in/traces");
        assert_eq!(url("https://otel.example.com/?key=1"), "https://otel.example.com/?key=1");
    }
}
