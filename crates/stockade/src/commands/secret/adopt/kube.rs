//! `kubectl`: the token of one context's user, and whom its server's certificate is of. Asked from `kubectl` itself, which reads what it reads.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use stockade_core::credential::Delivery;
use stockade_core::host::HostPattern;
use stockade_store::settings::{SecretSetting, SecretSource};

use super::STEP;
use super::around::{Around, Document, brief, host, name, value};
use super::login::{Forbidden, Login, Request, Wish};
use crate::failure::Failure;

/// The most of authorities that is taken.
const MAX_AUTHORITIES: usize = 256 << 10;
const USER: &str = "/users/0/user";
const CLUSTER: &str = "/clusters/0/cluster";
/// What a user may be instead of a token, why it is not taken, and what to do instead.
const OTHERS: [(&str, &str, &str); 6] = [
    (
        "exec",
        "another program logs in for it",
        "use `source: \"kubernetes\"` with a service account, or `source: \"command\"` with that program",
    ),
    ("auth-provider", "a plugin that `kubectl` no longer has logs in for it", "use `source: \"kubernetes\"` with a service account"),
    ("client-certificate-data", "it logs in with a certificate, which cannot be put in on the way", TOKEN),
    ("client-key-data", "it logs in with a certificate, which cannot be put in on the way", TOKEN),
    ("tokenFile", "its token is in a file that others renew", "use `source: \"file\"` with the path of that file"),
    ("password", "it logs in with a password", TOKEN),
];
const TOKEN: &str = "make a token for a service account: kubectl create token NAME --duration 24h | stockade secret set KUBE_TOKEN";

/// Finds the login.
pub(super) fn find(around: &Around<'_>, wish: &Wish<'_>) -> Result<Login, Failure> {
    let mut words = vec!["kubectl", "config", "view", "--raw", "--minify", "--flatten", "-o", "json"];
    words.extend(wish.context.into_iter().flat_map(|context| ["--context", context]));
    let printed = around.ask(&words, b"")?;
    let document = Document::parse(&printed).ok_or_else(|| Failure::new(STEP, "`kubectl config view` does not print JSON"))?;
    let context = document.text("/current-context").or(document.text("/contexts/0/name")).unwrap_or("?");
    let refused = |why: &str| Failure::new(STEP, format!("the context `{}` is not used: {why}", brief(context)));
    let token = token(&document).map_err(|(why, hint)| refused(why).with_hint(hint))?;
    let (server, url) = server(&document).map_err(refused)?;
    let name = wish.name.clone().map_or_else(|| name("KUBE_TOKEN"), Ok)?;
    let authorities = match document.text(&format!("{CLUSTER}/certificate-authority-data")) {
        Some(data) => {
            let pem = authorities(data).ok_or_else(|| refused("its `certificate-authority-data` is not PEM"))?;
            Some((around.beneath_settings(&format!("authorities/{name}.pem")), pem))
        }
        None => None,
    };
    let kept = value(token, "the token")?;
    let user = brief(document.text("/users/0/name").unwrap_or("?"));
    Ok(Login {
        from: format!("kubectl config view, context {}", brief(context)),
        values: vec![(name.clone(), kept)],
        setting: SecretSetting {
            hosts: vec![server],
            delivery: vec![Delivery::Variable, Delivery::Kubernetes],
            authorities: authorities.as_ref().map(|(path, _)| path.clone()),
            ..SecretSetting::new(name, SecretSource::Store)
        },
        authorities,
        request: Request::Bearer { url, forbidden: Forbidden::Known },
        spare: vec![format!("the token of the user `{user}`: kubectl config unset users.{user}.token")],
    })
}

/// The user's token; else why there is none, and what to do.
fn token(document: &Document) -> Result<&str, (&'static str, &'static str)> {
    let user = document.value().pointer(USER);
    let other = OTHERS.iter().find(|(field, _, _)| user.and_then(|user| user.get(field)).is_some_and(|found| !found.is_null()));
    match (other, document.text(&format!("{USER}/token"))) {
        (Some((_, why, hint)), _) => Err((why, hint)),
        (None, Some(token)) => Ok(token),
        (None, None) => Err(("its user has no token", TOKEN)),
    }
}

/// Where the server is, and the page that says its version.
fn server(document: &Document) -> Result<(HostPattern, String), &'static str> {
    let address = document.text(&format!("{CLUSTER}/server")).ok_or("it names no server")?;
    let has = |field: &str| {
        document.value().pointer(&format!("{CLUSTER}/{field}")).is_some_and(|found| !found.is_null() && found != false && found != "")
    };
    if has("insecure-skip-tls-verify") {
        return Err("its server's certificate is not checked, so anybody could be it");
    }
    if has("tls-server-name") || has("proxy-url") {
        return Err("its server is reached by another name or through a proxy");
    }
    let rest = address.strip_prefix("https://").ok_or("its server is not reached over HTTPS")?;
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let host = host(authority).map_err(|_| "its server's address is no host")?;
    let usable = path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~/:".contains(&byte));
    let slash = if path.is_empty() || path.ends_with('/') { "" } else { "/" };
    if usable {
        Ok((host, format!("https://{authority}/{path}{slash}version")))
    } else {
        Err("its server's address has odd characters in it")
    }
}

/// The certificates, and nothing else that might stand beside them.
fn authorities(data: &str) -> Option<String> {
    let text = String::from_utf8(STANDARD.decode(data).ok()?).ok()?;
    (text.len() <= MAX_AUTHORITIES && text.contains("-----BEGIN CERTIFICATE-----") && !text.contains("PRIVATE KEY")).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn document(user: &Value, cluster: &Value) -> Document {
        let text = json!({"current-context": "c", "users": [{"name": "u", "user": user}], "clusters": [{"name": "k", "cluster": cluster}]});
        Document::parse(&text.to_string()).unwrap()
    }

    #[test]
    fn only_tokens_are_taken_and_everything_else_is_told_what_to_do() {
        let says = |user: Value| token(&document(&user, &json!({}))).map(str::to_owned).map_err(|(why, _)| why);
        assert_eq!(says(json!({"token": "t"})), Ok("t".into()));
        for (user, why) in [
            (json!({"exec": {"command": "aws"}}), "another program"),
            (json!({"auth-provider": {"name": "gcp"}}), "plugin"),
            (json!({"client-certificate-data": "x", "client-key-data": "y"}), "certificate"),
            (json!({"token": "t", "tokenFile": "/x"}), "file"),
            (json!({"username": "a", "password": "b"}), "password"),
            (json!({}), "no token"),
        ] {
            assert!(says(user.clone()).unwrap_err().contains(why), "{user}");
        }
    }

    #[test]
    fn the_server_is_reached_over_checked_https() {
        let says = |cluster: Value| server(&document(&json!({}), &cluster)).map(|(host, url)| (host.to_string(), url));
        assert_eq!(
            says(json!({"server": "https://k.example:6443"})),
            Ok(("k.example:6443".into(), "https://k.example:6443/version".into()))
        );
        assert_eq!(
            says(json!({"server": "https://r.example/k8s/c-1"})),
            Ok(("r.example".into(), "https://r.example/k8s/c-1/version".into()))
        );
        for bad in [
            json!({}),
            json!({"server": "http://k.example"}),
            json!({"server": "https://k.example/a b"}),
            json!({"server": "https://*.example"}),
            json!({"server": "https://k.example", "insecure-skip-tls-verify": true}),
            json!({"server": "https://k.example", "tls-server-name": "x"}),
        ] {
            assert!(says(bad.clone()).is_err(), "{bad}");
        }
        let pem = "-----BEGIN CERTIFICATE-----\nAQID\n-----END CERTIFICATE-----\n";
        assert_eq!(authorities(&STANDARD.encode(pem)).as_deref(), Some(pem));
        assert_eq!(authorities(&STANDARD.encode(format!("{pem}-----BEGIN PRIVATE KEY-----"))), None);
        assert_eq!(authorities("***"), None);
    }
}
