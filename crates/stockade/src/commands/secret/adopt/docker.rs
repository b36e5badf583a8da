//! `docker`: the login of one registry, from `config.json` or the credential helper that it names.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use stockade_core::credential::Delivery;
use stockade_store::settings::{Place, SecretSetting, SecretSource};
use zeroize::{Zeroize as _, Zeroizing};

use super::STEP;
use super::around::{Around, Document, base, brief, choose, host, hosts, name, value};
use super::login::{Login, Request, Wish};
use crate::failure::Failure;

/// What Docker's own registry is called, and the key it has in the file.
const HUB: &str = "docker.io";
/// The user whose password is a token for tokens.
const IDENTITY: &str = "<token>";

/// A registry that the file names.
struct Registry {
    /// As the file has it.
    key: String,
    /// The helper that has its login, where it is not in the file.
    helper: Option<String>,
}

/// Who, and with what.
struct Pair {
    user: String,
    secret: Zeroizing<String>,
}

/// Finds the login.
pub(super) fn find(around: &Around<'_>, wish: &Wish<'_>) -> Result<Login, Failure> {
    let path = around.place("DOCKER_CONFIG", ".docker").join("config.json");
    let shown = around.shown(&path);
    let none = |found: String| Failure::new(STEP, found).with_hint("log in first: docker login");
    let document = around.json(&path)?.ok_or_else(|| none(format!("there is no `{shown}`: `docker` is not logged in")))?;
    let registries = registries(&document);
    if registries.is_empty() {
        return Err(none(format!("`{shown}` has no login in it")));
    }
    let is = |one: &Registry, wanted: &str| one.key == wanted || server(&one.key) == server(wanted);
    let registry = choose(&registries, wish.host, |one| server(&one.key), is)?;
    let server = server(&registry.key);
    let (pair, from) = if let Some(helper) = &registry.helper {
        (ask(around, helper, &registry.key)?, format!("docker-credential-{helper}"))
    } else {
        let unusable = || Failure::new(STEP, format!("the login of `{}` in `{shown}` is not what `docker` writes", brief(&registry.key)));
        (written(&document, &registry.key).ok_or_else(unusable)?, shown.clone())
    };
    let (bound, request) = if server == HUB {
        let page = "https://auth.docker.io/token?service=registry.docker.io";
        (hosts(&["index.docker.io", "auth.docker.io", "registry-1.docker.io"])?, page.to_owned())
    } else {
        let host = host(&server)?;
        let page = format!("{}/v2/", base(&host));
        (vec![host], page)
    };
    let is_identity = pair.user == IDENTITY;
    let name = wish.name.clone().map_or_else(|| name("DOCKER_TOKEN"), Ok)?;
    let what = format!("the password of `{}` at `{server}`", brief(&pair.user));
    let kept = value(pair.secret.as_bytes(), &what)
        .map_err(|failure| failure.with_hint("make an access token at the registry, and log in with that"))?;
    Ok(Login {
        from,
        values: vec![(name.clone(), kept)],
        setting: SecretSetting {
            hosts: bound,
            delivery: vec![Delivery::Variable, Delivery::Docker],
            // A token for tokens is sent in the body of a form.
            places: if is_identity { vec![Place::Body] } else { Vec::new() },
            user: Some(pair.user.clone()),
            ..SecretSetting::new(name, SecretSource::Store)
        },
        authorities: None,
        request: if is_identity {
            Request::Nothing("only `docker` itself can use an identity token")
        } else {
            Request::Registry { url: request, user: pair.user }
        },
        spare: vec![
            format!("the login of `{server}` that `docker` keeps: docker logout {}", if server == HUB { "" } else { &server })
                .trim_end()
                .to_owned(),
        ],
    })
}

/// Registries with a login: those of `auths`, and those that have a helper of their own.
fn registries(document: &Document) -> Vec<Registry> {
    let words = |pointer: &str| document.value().pointer(pointer).and_then(serde_json::Value::as_object);
    let store = document.text("/credsStore").map(str::to_owned);
    let own = |key: &str| words("/credHelpers").and_then(|helpers| helpers.get(key)).and_then(serde_json::Value::as_str).map(str::to_owned);
    let mut found: Vec<Registry> = Vec::new();
    for (key, entry) in words("/auths").into_iter().flatten() {
        let text = |field: &str| entry.get(field).and_then(serde_json::Value::as_str).is_some_and(|text| !text.is_empty());
        let helper = if text("auth") || text("identitytoken") { None } else { own(key).or_else(|| store.clone()) };
        if helper.is_some() || text("auth") || text("identitytoken") {
            found.push(Registry { key: key.clone(), helper });
        }
    }
    for (key, helper) in words("/credHelpers").into_iter().flatten() {
        if let Some(helper) = helper.as_str().filter(|_| !found.iter().any(|one| server(&one.key) == server(key))) {
            found.push(Registry { key: key.clone(), helper: Some(helper.to_owned()) });
        }
    }
    found
}

/// The registry's host as people write it.
fn server(key: &str) -> String {
    let bare = key.strip_prefix("https://").or_else(|| key.strip_prefix("http://")).unwrap_or(key);
    let host = bare.split('/').next().unwrap_or(bare);
    if ["index.docker.io", "registry-1.docker.io", "registry.hub.docker.com"].contains(&host) { HUB.to_owned() } else { host.to_owned() }
}

/// The login that is in the file itself.
fn written(document: &Document, key: &str) -> Option<Pair> {
    let entry = document.value().get("auths")?.get(key)?;
    let text = |field: &str| entry.get(field).and_then(serde_json::Value::as_str).filter(|text| !text.is_empty());
    if let Some(token) = text("identitytoken") {
        return Some(Pair { user: IDENTITY.to_owned(), secret: Zeroizing::new(token.to_owned()) });
    }
    let decoded = STANDARD.decode(text("auth")?).ok()?;
    let both = Zeroizing::new(String::from_utf8(decoded).map_err(|error| error.into_bytes().zeroize()).ok()?);
    let (user, secret) = both.split_once(':')?;
    // Old versions filled up with zeros.
    let secret = Zeroizing::new(secret.trim_end_matches('\0').to_owned());
    (!user.is_empty()).then(|| Pair { user: user.to_owned(), secret })
}

/// The login that a credential helper has.
fn ask(around: &Around<'_>, helper: &str, key: &str) -> Result<Pair, Failure> {
    let is_name = !helper.is_empty() && helper.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    if !is_name {
        return Err(Failure::new(STEP, format!("`{}` is not the name of a credential helper", brief(helper))));
    }
    let program = format!("docker-credential-{helper}");
    let printed = around.ask(&[&program, "get"], key.as_bytes())?;
    let document = Document::parse(&printed).ok_or_else(|| Failure::new(STEP, format!("`{program}` does not answer with JSON")))?;
    match (document.text("/Username"), document.text("/Secret")) {
        (Some(user), Some(secret)) => Ok(Pair { user: user.to_owned(), secret: Zeroizing::new(secret.to_owned()) }),
        (None, _) | (_, None) => Err(Failure::new(STEP, format!("`{program}` has no login for `{}`", brief(key)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn registries_are_found_with_whoever_has_their_login() {
        let text = json!({
            "auths": {
                "https://index.docker.io/v1/": {},
                "ghcr.io": {"auth": STANDARD.encode("ann:pass:word")},
                "id.example": {"auth": STANDARD.encode("x:"), "identitytoken": "tok"},
                "own.example": {},
                "bad.example": {"auth": "***"}
            },
            "credsStore": "desktop",
            "credHelpers": {"own.example": "own", "gcr.io": "gcloud"}
        });
        let document = Document::parse(&text.to_string()).unwrap();
        let mut found: Vec<_> = registries(&document).into_iter().map(|one| (server(&one.key), one.helper)).collect();
        found.sort();
        let some = |text: &str| Some(text.to_owned());
        let expected = [
            ("bad.example", None),
            ("docker.io", some("desktop")),
            ("gcr.io", some("gcloud")),
            ("ghcr.io", None),
            ("id.example", None),
            ("own.example", some("own")),
        ];
        assert_eq!(found, expected.map(|(server, helper)| (server.to_owned(), helper)));
        let read = |key: &str| written(&document, key).map(|pair| (pair.user.clone(), pair.secret.to_string()));
        assert_eq!(read("ghcr.io"), Some(("ann".into(), "pass:word".into())));
        assert_eq!(read("id.example"), Some((IDENTITY.into(), "tok".into())));
        assert_eq!(read("bad.example"), None);
        for not in ["{}", "[]", "{\"auths\": 5}", "{\"auths\": {\"a\": 5}}"] {
            assert!(registries(&Document::parse(not).unwrap()).is_empty(), "{not}");
        }
    }
}
