//! The address of a model, as a variable or a setting gives it: which host is meant, and how it is called inside.

use stockade_core::host::{HostName, HostPattern};

use crate::failure::Failure;

/// A model's address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    /// The host and port alone.
    pub(crate) host: HostPattern,
    /// As it is written inside: this machine is named by its address there, for a sandbox has a `localhost` of its own.
    pub(crate) inside: String,
}

impl Address {
    /// Reads what `name` holds.
    pub(crate) fn parse(name: &str, text: &str) -> Result<Self, Failure> {
        let failed = |why: String| {
            Failure::new("agent", format!("`{name}` is no address of a model: {why}"))
                .with_hint("as in https://models.example.org or http://127.0.0.1:8080")
        };
        let (scheme, rest) = text.split_once("://").ok_or_else(|| failed("it does not begin with https://".into()))?;
        let port = match scheme {
            "https" => 443,
            "http" => 80,
            _ => return Err(failed("it does not begin with https://".into())),
        };
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let tail = rest.strip_prefix(authority).unwrap_or_default();
        if authority.contains('@') {
            return Err(failed("it has a user or a password in it".into()));
        }
        let (own, after) = match authority.strip_prefix("localhost") {
            Some(after) if after.is_empty() || after.starts_with(':') => ("127.0.0.1", after),
            Some(_) | None => (authority, ""),
        };
        let authority = format!("{own}{after}");
        let (host, port) = HostName::parse_authority(&authority, port).map_err(|error| failed(error.to_string()))?;
        let host = HostPattern::exactly(&host, port);
        if scheme == "http" && host.granted_address().is_none() {
            return Err(failed("a key does not travel over plain HTTP, but to an address".into()));
        }
        Ok(Self { host, inside: format!("{scheme}://{authority}{tail}") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_name_one_host() {
        let check = |text: &str| Address::parse("BASE_URL", text).map(|address| (address.host.to_string(), address.inside));
        let ok = |host: &str, inside: &str| Ok((host.to_owned(), inside.to_owned()));
        assert_eq!(check("https://models.example.org/v1"), ok("models.example.org", "https://models.example.org/v1"));
        assert_eq!(check("http://127.0.0.1:8080"), ok("127.0.0.1:8080", "http://127.0.0.1:8080"));
        assert_eq!(check("http://localhost:8080/v1"), ok("127.0.0.1:8080", "http://127.0.0.1:8080/v1"));
        for bad in
            ["models.example.org", "ftp://a.example", "https://u:p@a.example", "http://a.example", "https://", "https://localhost.evil@x"]
        {
            assert!(check(bad).is_err(), "{bad}");
        }
        assert_eq!(check("https://localhosts.example").map(|pair| pair.0), Ok("localhosts.example".to_owned()));
    }
}
