//! What helpers of git, Docker and kubectl ask, and the answers in their own words. Pure; what is read comes from the sandbox.

use ::http::StatusCode;
use serde_json::{Value, json};
use stockade_core::host::HostName;

use super::Answer;
use crate::secrets::binding::Bound;

/// What Docker's helpers say where they have nothing; Docker compares it.
const NOTHING_KNOWN: &str = "credentials not found in native keychain";
/// How Docker names its own registry.
const DOCKER_INDEX: &str = "https://index.docker.io/v1/";
/// The hosts that one login there is for.
const DOCKER_HOSTS: [&str; 4] = ["index.docker.io", "registry-1.docker.io", "auth.docker.io", "docker.io"];
const HTTPS: u16 = 443;
const HTTP: u16 = 80;

/// What a helper is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Tell what is known of one host.
    Get,
    /// Tell of which hosts something is known.
    List,
    /// Keep something.
    Store,
    /// Forget something.
    Erase,
}

/// The `action` of a query, where it is there once and is one.
pub fn action(query: &str) -> Option<Action> {
    let mut actions = query.split('&').filter_map(|part| part.strip_prefix("action="));
    let (Some(action), None) = (actions.next(), actions.next()) else { return None };
    match action {
        "get" => Some(Action::Get),
        "list" => Some(Action::List),
        "store" => Some(Action::Store),
        "erase" => Some(Action::Erase),
        _ => None,
    }
}

/// A host that is asked about, and how it is spoken to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The host.
    pub host: HostName,
    /// The port.
    pub port: u16,
    /// Whether nobody can listen.
    pub encrypted: bool,
}

impl Place {
    fn parse(scheme: &str, authority: &str) -> Option<Self> {
        let (default_port, encrypted) = match scheme {
            "https" => (HTTPS, true),
            "http" => (HTTP, false),
            _ => return None,
        };
        let (host, port) = HostName::parse_authority(authority, default_port).ok()?;
        Some(Self { host, port, encrypted })
    }

    fn is_for(&self, bound: &Bound) -> bool {
        if self.encrypted { bound.is_for(&self.host, self.port) } else { bound.grants_address(&self.host, self.port) }
    }
}

fn no_action() -> Answer {
    Answer::text(StatusCode::BAD_REQUEST, "stockade: say what to do, as in `?action=get`\n")
}

/// Answers in git's credential protocol.
pub(crate) fn git(action: Option<Action>, body: &[u8], user: &str, placeholder: &str, bound: &Bound) -> Answer {
    match action {
        Some(Action::Get) => match git_place(body) {
            Ok(Some(place)) if place.is_for(bound) => Answer::text(StatusCode::OK, format!("username={user}\npassword={placeholder}\n")),
            Ok(_) => Answer::text(StatusCode::NOT_FOUND, ""),
            Err(Malformed) => Answer::text(StatusCode::BAD_REQUEST, "stockade: this is not what git asks its helpers\n"),
        },
        Some(Action::Store | Action::Erase) => Answer::text(StatusCode::NO_CONTENT, ""),
        Some(Action::List) | None => no_action(),
    }
}

/// Text that is not in the form it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

/// The host that git asks about; `None` where it names none that could be bound.
pub fn git_place(body: &[u8]) -> Result<Option<Place>, Malformed> {
    let text = std::str::from_utf8(body).map_err(|_| Malformed)?;
    let (mut protocol, mut host) = (None, None);
    for line in text.lines().take_while(|line| !line.is_empty()) {
        let (name, value) = line.split_once('=').ok_or(Malformed)?;
        if value.chars().any(char::is_control) {
            return Err(Malformed);
        }
        let place = match name {
            "protocol" => &mut protocol,
            "host" => &mut host,
            _ => continue,
        };
        if place.replace(value).is_some() {
            return Err(Malformed);
        }
    }
    Ok(protocol.zip(host).and_then(|(protocol, host)| Place::parse(protocol, host)))
}

/// Answers as one of Docker's credential helpers.
pub(crate) fn docker(action: Option<Action>, body: &[u8], user: &str, placeholder: &str, bound: &Bound) -> Answer {
    match action {
        Some(Action::Get) => match docker_server(body) {
            Some((server, places)) if places.iter().any(|place| place.is_for(bound)) => {
                Answer::json(&json!({ "ServerURL": server, "Username": user, "Secret": placeholder }))
            }
            _ => Answer::text(StatusCode::NOT_FOUND, NOTHING_KNOWN),
        },
        Some(Action::List) => {
            let servers = bound
                .hosts()
                .iter()
                .map(|pattern| (pattern.without_port(), pattern.to_string()))
                .filter(|(host, _)| !host.starts_with("*."));
            let named = servers.map(|(host, text)| {
                let server = if DOCKER_HOSTS.contains(&host.as_str()) { DOCKER_INDEX.to_owned() } else { format!("https://{text}") };
                (server, Value::from(user))
            });
            Answer::json(&Value::Object(named.collect()))
        }
        Some(Action::Store | Action::Erase) => {
            Answer::text(StatusCode::FORBIDDEN, "stockade: logins of registries are kept outside the sandbox\n")
        }
        None => no_action(),
    }
}

/// The server that Docker names, as it names it, and the places that one login there is for.
pub fn docker_server(body: &[u8]) -> Option<(&str, Vec<Place>)> {
    let server = std::str::from_utf8(body).ok()?.trim();
    // It is repeated in the answer, and is one line or nothing.
    if server.chars().any(char::is_control) {
        return None;
    }
    let (scheme, rest) = server.split_once("://").unwrap_or(("https", server));
    let place = Place::parse(scheme, rest.split('/').next().unwrap_or_default())?;
    let is_docker = matches!(&place.host, HostName::Name(name) if DOCKER_HOSTS.contains(&name.as_str()));
    if is_docker && place.encrypted && place.port == HTTPS {
        return Some((server, DOCKER_HOSTS.iter().filter_map(|host| Place::parse("https", host)).collect()));
    }
    Some((server, vec![place]))
}

/// Answers as a credential plugin of Kubernetes.
pub(crate) fn kubernetes(body: &[u8], placeholder: &str) -> Answer {
    match kubernetes_version(body) {
        Ok(version) => Answer::json(&json!({ "apiVersion": version, "kind": "ExecCredential", "status": { "token": placeholder } })),
        Err(Malformed) => Answer::text(StatusCode::BAD_REQUEST, "stockade: this is no `ExecCredential` in JSON\n"),
    }
}

/// The version in which a plugin is asked; the newest where none is said that is known, and where nothing is said that of the configuration inside.
pub fn kubernetes_version(body: &[u8]) -> Result<&'static str, Malformed> {
    const NEWEST: &str = "client.authentication.k8s.io/v1";
    const FORMER: &str = "client.authentication.k8s.io/v1beta1";
    if body.trim_ascii().is_empty() {
        return Ok(FORMER);
    }
    let asked: Value = serde_json::from_slice(body).map_err(|_| Malformed)?;
    let version = asked.as_object().ok_or(Malformed)?.get("apiVersion").and_then(Value::as_str);
    Ok(if version == Some(FORMER) { FORMER } else { NEWEST })
}

#[cfg(test)]
mod tests {
    use stockade_core::host::HostPattern;

    use super::*;
    use crate::secrets::binding::{Binding, Budget, Form, Places};

    const PLACEHOLDER: &str = "ghp_0123456789abcdef";

    fn bound(hosts: &[&str]) -> Bound {
        let hosts = hosts.iter().map(|host| HostPattern::parse(host).unwrap()).collect();
        let (name, placeholder) = ("TOKEN".to_owned(), PLACEHOLDER.to_owned());
        Bound::new(Binding { name, placeholder, hosts, places: Places::default(), budget: Budget::default(), form: Form::Plain }).unwrap()
    }

    fn said(answer: &Answer) -> (u16, &str) {
        (answer.status.as_u16(), std::str::from_utf8(&answer.body).unwrap())
    }

    #[test]
    fn git_is_answered_for_its_hosts_only() {
        let bound = bound(&["github.com", "git.example:8443", "10.0.0.1:80"]);
        let known = format!("username=me\npassword={PLACEHOLDER}\n");
        for (body, status) in [
            ("protocol=https\nhost=github.com\npath=a/b.git\n", 200),
            ("protocol=https\nhost=github.com\n\nhost=evil.example\n", 200),
            ("capability[]=authtype\nprotocol=https\nhost=git.example:8443\nwwwauth[]=Basic\n", 200),
            ("protocol=http\nhost=10.0.0.1\n", 200),
            ("protocol=http\nhost=github.com\n", 404),
            ("protocol=https\nhost=github.com:8443\n", 404),
            ("protocol=https\nhost=github.com.evil.example\n", 404),
            ("protocol=https\nhost=evil.example@github.com\n", 404),
            ("protocol=ssh\nhost=github.com\n", 404),
            ("protocol=https\n", 404),
            ("", 404),
            ("protocol=https\nhost=evil.example\nhost=github.com\n", 400),
            ("protocol=https\nhost=github.com\0\n", 400),
            ("host\n", 400),
        ] {
            let answer = git(Some(Action::Get), body.as_bytes(), "me", PLACEHOLDER, &bound);
            let (said_status, text) = said(&answer);
            assert_eq!(said_status, status, "{body:?}");
            match status {
                200 => assert_eq!(text, known),
                404 => assert_eq!(text, ""),
                _ => assert!(!text.contains(PLACEHOLDER)),
            }
        }
        assert_eq!(said(&git(Some(Action::Store), b"", "me", PLACEHOLDER, &bound)), (204, ""));
        assert_eq!(said(&git(action("action=get&action=get"), b"", "me", PLACEHOLDER, &bound)).0, 400);
    }

    #[test]
    fn docker_is_answered_for_its_registries_only() {
        let (hub, own) = (bound(&["auth.docker.io"]), bound(&["registry.example:5000", "*.other.example"]));
        let ask = |bound: &Bound, body: &str| docker(Some(Action::Get), body.as_bytes(), "me", PLACEHOLDER, bound);
        let answer = ask(&hub, "https://index.docker.io/v1/\n");
        let value: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(value, json!({ "ServerURL": DOCKER_INDEX, "Username": "me", "Secret": PLACEHOLDER }));
        for (bound, server, status) in [
            (&hub, "docker.io", 200),
            (&hub, "registry-1.docker.io", 200),
            (&hub, "http://index.docker.io/v1/", 404),
            (&hub, "https://index.docker.io:8443/v1/", 404),
            (&own, "https://index.docker.io/v1/", 404),
            (&own, "registry.example:5000", 200),
            (&own, "https://registry.example:5000/v2/", 200),
            (&own, "http://registry.example:5000", 404),
            (&own, "registry.example", 404),
            (&own, "a.other.example", 200),
            (&own, "https://registry.example:5000@evil.example/", 404),
            (&own, "ftp://registry.example:5000", 404),
            (&own, "", 404),
        ] {
            let answer = ask(bound, server);
            assert_eq!(answer.status.as_u16(), status, "{server}");
            assert!(status == 200 || said(&answer).1 == NOTHING_KNOWN);
        }
        let list =
            |bound: &Bound| serde_json::from_slice::<Value>(&docker(Some(Action::List), b"", "me", PLACEHOLDER, bound).body).unwrap();
        assert_eq!(list(&hub), json!({ DOCKER_INDEX: "me" }));
        assert_eq!(list(&own), json!({ "https://registry.example:5000": "me" }));
        assert_eq!(docker(Some(Action::Store), b"{}", "me", PLACEHOLDER, &own).status, StatusCode::FORBIDDEN);
    }

    #[test]
    fn kubernetes_is_answered_in_its_own_version() {
        for (body, version) in [
            ("", Ok("client.authentication.k8s.io/v1beta1")),
            (r#"{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential"}"#, Ok("client.authentication.k8s.io/v1")),
            (r#"{"apiVersion":"client.authentication.k8s.io/v1beta1"}"#, Ok("client.authentication.k8s.io/v1beta1")),
            (r#"{"apiVersion":7}"#, Ok("client.authentication.k8s.io/v1")),
            ("[]", Err(Malformed)),
            ("x", Err(Malformed)),
        ] {
            assert_eq!(kubernetes_version(body.as_bytes()), version, "{body}");
        }
        let value: Value = serde_json::from_slice(&kubernetes(b"", PLACEHOLDER).body).unwrap();
        let expected =
            json!({ "apiVersion": "client.authentication.k8s.io/v1beta1", "kind": "ExecCredential", "status": { "token": PLACEHOLDER } });
        assert_eq!(value, expected);
    }
}
