//! The metadata server of Google's cloud, as far as its libraries need it to find an account and a token. Pure.
//!
//! Written after <https://cloud.google.com/compute/docs/metadata/predefined-metadata-keys>.

use ::http::StatusCode;
use serde_json::{Value, json};

use super::Answer;

/// How long a token is said to be good: what stands for it is good for as long as the sandbox lives, and libraries ask again.
const LASTS: u64 = 3599;

/// One account.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Account<'a> {
    pub(crate) project: Option<&'a str>,
    pub(crate) email: &'a str,
    pub(crate) scopes: &'a [String],
    pub(crate) placeholder: &'a str,
}

/// How an answer is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Text,
    Json,
    /// With all that is below.
    Tree,
}

/// The answer for a path; `None` where there is nothing. The first account is the default one.
pub(crate) fn answer(accounts: &[Account<'_>], path: &str, query: &str) -> Option<Answer> {
    let wanted = wanted(query);
    let default = accounts.first()?;
    let path = path.strip_prefix('/')?;
    let mut parts: Vec<&str> = path.split('/').collect();
    if parts.last() == Some(&"") {
        parts.pop();
    }
    let list = |names: &[&str]| Some(text(lines(names.iter().copied())));
    match parts.as_slice() {
        [] => list(&["computeMetadata/"]),
        ["computeMetadata"] => list(&["v1/"]),
        ["computeMetadata", "v1"] => list(&["instance/", "project/", "universe/"]),
        ["computeMetadata", "v1", "instance"] => list(&["service-accounts/"]),
        ["computeMetadata", "v1", "project"] => list(&["project-id"]),
        ["computeMetadata", "v1", "project", "project-id"] => Some(leaf(wanted, default.project?)),
        ["computeMetadata", "v1", "universe"] => list(&["universe-domain"]),
        ["computeMetadata", "v1", "universe", "universe-domain" | "universe_domain"] => Some(leaf(wanted, "googleapis.com")),
        ["computeMetadata", "v1", "instance", "service-accounts"] => Some(match wanted {
            Wanted::Text | Wanted::Json => text(
                std::iter::once("default/\n".to_owned())
                    .chain(accounts.iter().map(|account| format!("{}/\n", account.email)))
                    .collect::<String>(),
            ),
            Wanted::Tree => {
                let named = accounts.iter().map(|account| (account.email.to_owned(), account.tree(accounts)));
                Answer::json(&Value::Object(std::iter::once(("default".to_owned(), default.tree(accounts))).chain(named).collect()))
            }
        }),
        ["computeMetadata", "v1", "instance", "service-accounts", name, rest @ ..] => {
            let account = if *name == "default" { default } else { accounts.iter().find(|account| account.email == *name)? };
            account.answer(accounts, rest, wanted)
        }
        _ => None,
    }
}

fn wanted(query: &str) -> Wanted {
    let mut wanted = Wanted::Text;
    for (name, value) in query.split('&').filter_map(|part| part.split_once('=')) {
        match (name, value) {
            ("recursive", value) if value.eq_ignore_ascii_case("true") => return Wanted::Tree,
            ("alt", "json") => wanted = Wanted::Json,
            _ => {}
        }
    }
    wanted
}

fn text(body: String) -> Answer {
    Answer { status: StatusCode::OK, kind: "application/text", body: body.into_bytes() }
}

fn leaf(wanted: Wanted, value: &str) -> Answer {
    match wanted {
        Wanted::Text => text(value.to_owned()),
        Wanted::Json | Wanted::Tree => Answer::json(&Value::from(value)),
    }
}

/// Each word in a line of its own.
fn lines<'a>(words: impl Iterator<Item = &'a str>) -> String {
    words.flat_map(|word| [word, "\n"]).collect()
}

impl Account<'_> {
    fn answer(&self, accounts: &[Account<'_>], rest: &[&str], wanted: Wanted) -> Option<Answer> {
        let list = |words: &[String]| text(lines(words.iter().map(String::as_str)));
        match (rest, wanted) {
            ([], Wanted::Tree) => Some(Answer::json(&self.tree(accounts))),
            ([], Wanted::Text | Wanted::Json) => Some(text("aliases\nemail\nscopes\ntoken\n".to_owned())),
            (["aliases"], Wanted::Text) => Some(list(&self.aliases(accounts))),
            (["aliases"], Wanted::Json | Wanted::Tree) => Some(Answer::json(&json!(self.aliases(accounts)))),
            (["email"], wanted) => Some(leaf(wanted, self.email)),
            (["scopes"], Wanted::Text) => Some(list(self.scopes)),
            (["scopes"], Wanted::Json | Wanted::Tree) => Some(Answer::json(&json!(self.scopes))),
            (["token"], _) => Some(Answer::json(&json!({ "access_token": self.placeholder, "expires_in": LASTS, "token_type": "Bearer" }))),
            // An identity is signed by Google for one audience; nothing can stand for it.
            _ => None,
        }
    }

    fn aliases(&self, accounts: &[Account<'_>]) -> Vec<String> {
        let is_default = accounts.first().is_some_and(|first| first.email == self.email);
        if is_default { vec!["default".to_owned()] } else { Vec::new() }
    }

    fn tree(&self, accounts: &[Account<'_>]) -> Value {
        json!({ "aliases": self.aliases(accounts), "email": self.email, "scopes": self.scopes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_find_account_project_and_token() {
        let scopes = ["https://www.googleapis.com/auth/cloud-platform".to_owned()];
        let account = |project, email, placeholder| Account { project, email, scopes: &scopes, placeholder };
        let accounts =
            [account(Some("acme-1"), "a@acme.example", "ya29.first-first"), account(None, "b@acme.example", "ya29.second-second")];
        let base = "/computeMetadata/v1/instance/service-accounts";
        let tree = r#"{"aliases":["default"],"email":"a@acme.example","scopes":["https://www.googleapis.com/auth/cloud-platform"]}"#;
        let other = r#"{"aliases":[],"email":"b@acme.example","scopes":["https://www.googleapis.com/auth/cloud-platform"]}"#;
        let all = format!(r#"{{"a@acme.example":{tree},"b@acme.example":{other},"default":{tree}}}"#);
        let token = |text: &str| format!(r#"{{"access_token":"{text}","expires_in":3599,"token_type":"Bearer"}}"#);
        for (path, query, expected) in [
            ("/".to_owned(), "", "computeMetadata/\n"),
            ("/computeMetadata/v1/".to_owned(), "", "instance/\nproject/\nuniverse/\n"),
            (format!("{base}/"), "", "default/\na@acme.example/\nb@acme.example/\n"),
            (format!("{base}/"), "recursive=true", &all),
            (format!("{base}/default/"), "recursive=true", tree),
            (format!("{base}/default"), "recursive=True&alt=text", tree),
            (format!("{base}/b@acme.example/"), "recursive=true", other),
            (format!("{base}/default/email"), "", "a@acme.example"),
            (format!("{base}/default/email"), "alt=json", "\"a@acme.example\""),
            (format!("{base}/default/scopes"), "", "https://www.googleapis.com/auth/cloud-platform\n"),
            (format!("{base}/default/token"), "scopes=x", &token("ya29.first-first")),
            (format!("{base}/b@acme.example/token"), "", &token("ya29.second-second")),
            ("/computeMetadata/v1/project/project-id".to_owned(), "", "acme-1"),
            ("/computeMetadata/v1/universe/universe-domain".to_owned(), "", "googleapis.com"),
        ] {
            let found = answer(&accounts, &path, query).unwrap_or_else(|| panic!("{path}"));
            let found = String::from_utf8(found.body).unwrap();
            // Members have no order.
            let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok().filter(serde_json::Value::is_object);
            assert!(found == expected || (read(&found).is_some() && read(&found) == read(expected)), "{path} {query}: {found}");
        }
        for path in [
            format!("{base}/default/identity"),
            format!("{base}/c@acme.example/token"),
            format!("{base}/default/token/x"),
            format!("{base}//token"),
            "/computeMetadata/v1/project/numeric-project-id".to_owned(),
            "/computeMetadata/v1/instance/zone".to_owned(),
            "/computeMetadata/v1beta1/instance/service-accounts/default/token".to_owned(),
            "/latest/meta-data/iam/security-credentials/".to_owned(),
            "//".to_owned(),
            "*".to_owned(),
        ] {
            assert!(answer(&accounts, &path, "").is_none(), "{path}");
        }
        assert!(answer(&accounts[1..], "/computeMetadata/v1/project/project-id", "").is_none());
        assert!(answer(&[], "/", "").is_none());
    }
}
