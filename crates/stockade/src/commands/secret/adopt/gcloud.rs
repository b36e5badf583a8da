//! `gcloud`: the application default credentials, as the key that access tokens are asked for with.

use stockade_store::settings::providers::Gcp;
use stockade_store::settings::{Provider, SecretSetting, SecretSource};

use super::STEP;
use super::around::{Around, Document, brief, hosts, name, value};
use super::login::{Login, Request, Wish};
use crate::failure::Failure;

/// Lists the projects that one may see, one at most: a token that is none is answered 401.
const PAGE: &str = "https://cloudresourcemanager.googleapis.com/v1/projects?pageSize=1";

/// Finds the login.
pub(super) fn find(around: &Around<'_>, wish: &Wish<'_>) -> Result<Login, Failure> {
    let path = around.place("CLOUDSDK_CONFIG", ".config/gcloud").join("application_default_credentials.json");
    let shown = around.shown(&path);
    let document = around.json(&path)?.ok_or_else(|| {
        Failure::new(STEP, format!("there is no `{shown}`")).with_hint("log in first: gcloud auth application-default login")
    })?;
    check(&document).map_err(|(why, hint)| Failure::new(STEP, format!("`{shown}` is not used: {why}")).with_hint(hint))?;
    let project = document.text("/quota_project_id").or_else(|| document.text("/project_id")).map(str::to_owned);
    let name_of_entry = wish.name.clone().map_or_else(|| name("GCP"), Ok)?;
    let key = name(&format!("{name_of_entry}_KEY"))?;
    let provider = Provider::Gcp(Gcp {
        key: key.clone(),
        scopes: Vec::new(),
        impersonate: None,
        boundary: None,
        seconds: None,
        project,
        iam_endpoint: None,
        sts_endpoint: None,
        ca_file: None,
    });
    Ok(Login {
        from: shown.clone(),
        values: vec![(key, value(document.compact(), &format!("what is in `{shown}`"))?)],
        setting: SecretSetting {
            hosts: hosts(&["*.googleapis.com"])?,
            ..SecretSetting::new(name_of_entry, SecretSource::Provider(Box::new(provider)))
        },
        authorities: None,
        request: Request::Google { url: PAGE.to_owned() },
        spare: vec![format!("{shown}; not with `gcloud auth application-default revoke`, which revokes it")],
    })
}

/// Whether tokens can be asked for with it; else why not, and what to do.
fn check(document: &Document) -> Result<(), (String, String)> {
    let needed: &[&str] = match document.text("/type") {
        Some("authorized_user") => &["/client_id", "/client_secret", "/refresh_token"],
        Some("service_account") => &["/client_email", "/private_key"],
        Some("external_account" | "external_account_authorized_user") => {
            let why = "it holds no key but says where another program has a token";
            return Err((why.to_owned(), "use `source: \"command\"` with `gcloud auth print-access-token`".to_owned()));
        }
        Some("impersonated_service_account") => {
            let hint = "log in without --impersonate-service-account, and write `impersonate` into the entry";
            return Err(("it acts as another account".to_owned(), hint.to_owned()));
        }
        Some(other) => return Err((format!("its type `{}` is not known", brief(other)), LOGIN.to_owned())),
        None => return Err(("it does not say its type".to_owned(), LOGIN.to_owned())),
    };
    match needed.iter().find(|field| document.text(field).is_none()) {
        Some(missing) => Err((format!("it has no `{}`", missing.trim_start_matches('/')), LOGIN.to_owned())),
        None => Ok(()),
    }
}

const LOGIN: &str = "log in again: gcloud auth application-default login";

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_tokens_can_be_asked_with_is_taken() {
        let says =
            |value: serde_json::Value| check(&Document::parse(&value.to_string()).unwrap()).err().map(|(why, _)| why).unwrap_or_default();
        assert_eq!(says(json!({"type": "authorized_user", "client_id": "a", "client_secret": "b", "refresh_token": "c"})), "");
        assert_eq!(says(json!({"type": "service_account", "client_email": "a", "private_key": "-----BEGIN"})), "");
        assert!(says(json!({"type": "service_account", "client_email": "a"})).contains("private_key"));
        assert!(says(json!({"type": "external_account"})).contains("another program"));
        assert!(says(json!({"type": "gdch"})).contains("gdch"));
        assert!(says(json!({})).contains("type"));
        assert!(says(json!([])).contains("type"));
    }
}
