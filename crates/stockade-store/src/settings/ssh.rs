//! The field `ssh` of a secret: what is known of the servers that its key opens, and what may be done there.
//!
//! ```json
//! "ssh": { "hostKeys": ["ssh-ed25519 AAAA…"], "repositories": ["org/site", "tools/*"], "push": false, "user": "git" }
//! ```
//!
//! Read in form only. Whether a host has one of these keys is seen when it is spoken to, outside.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value as Json};
use stockade_core::escape::escape;
use stockade_core::repository::RepositoryPattern;
use stockade_core::secret::SecretName;

use super::nearest::closest;
use super::value::{BadValue, describe, shorten};

/// The most keys of hosts.
const MAX_KEYS: usize = 32;
/// The most patterns of repositories.
const MAX_REPOSITORIES: usize = 256;
/// The longest name of a user at a server.
const MAX_USER: usize = 64;
/// The longest key of a host, decoded.
const MAX_KEY: usize = 1024;
/// Kinds of keys that hosts are known by.
const KINDS: [&str; 4] = ["ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521"];
const FIELDS: [&str; 4] = ["hostKeys", "repositories", "push", "user"];
/// Who git logs in as nearly everywhere.
const USER: &str = "git";

/// What a key may be used for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ssh {
    /// The keys that its hosts may have, as `KIND BASE64`.
    pub host_keys: Vec<String>,
    /// The repositories that may be asked for.
    pub repositories: Vec<RepositoryPattern>,
    /// What may be done with them.
    pub access: Access,
    /// Who logs in.
    pub user: String,
}

/// What may be done with repositories.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Access {
    /// They are read.
    #[default]
    Fetch,
    /// They are written to as well.
    Push,
}

impl Default for Ssh {
    fn default() -> Self {
        Self { host_keys: Vec::new(), repositories: Vec::new(), access: Access::default(), user: USER.to_owned() }
    }
}

impl Ssh {
    /// What is missing for git over SSH, and how to write it.
    pub fn missing(&self) -> Option<&'static str> {
        if self.host_keys.is_empty() {
            Some(
                "`ssh.hostKeys` is empty, and no host is trusted unseen: add what `ssh-keyscan -t ed25519 HOST` prints, without the host, after comparing it with what its owner publishes",
            )
        } else if self.repositories.is_empty() {
            Some("`ssh.repositories` is empty, so nothing may be asked for: add [\"org/repository\"] or [\"org/*\"]")
        } else {
            None
        }
    }

    /// Who logs in and what is allowed, in a few words: `ssh as git: org/site tools/* fetch`.
    pub fn scope(&self) -> String {
        let repositories: Vec<&str> = self.repositories.iter().map(RepositoryPattern::as_str).collect();
        let access = match self.access {
            Access::Fetch => "fetch",
            Access::Push => "fetch and push",
        };
        format!("ssh as {}: {} {access}", self.user, repositories.join(" "))
    }

    /// As it is written.
    pub(super) fn to_json(&self) -> Json {
        let mut fields = Map::new();
        if !self.host_keys.is_empty() {
            fields.insert("hostKeys".to_owned(), self.host_keys.clone().into());
        }
        if !self.repositories.is_empty() {
            fields.insert("repositories".to_owned(), self.repositories.iter().map(RepositoryPattern::as_str).collect::<Vec<_>>().into());
        }
        if self.access == Access::Push {
            fields.insert("push".to_owned(), true.into());
        }
        if self.user != USER {
            fields.insert("user".to_owned(), self.user.as_str().into());
        }
        Json::Object(fields)
    }
}

/// Reads the field.
pub(super) fn read(name: &SecretName, written: Option<&Json>) -> Result<Option<Ssh>, BadValue> {
    let fields = match written {
        None => return Ok(None),
        Some(Json::Object(fields)) => fields,
        Some(other) => {
            return Err(problem(format!("`{name}.ssh` is {}; write an object with `hostKeys` and `repositories` in it", describe(other))));
        }
    };
    if let Some(unknown) = fields.keys().find(|field| !FIELDS.contains(&field.as_str())) {
        let meant = closest(unknown, &FIELDS).map(|field| format!("; did you mean `{field}`?")).unwrap_or_default();
        return Err(problem(format!("`{name}.ssh` has an unknown field `{}`{meant}", shorten(unknown))));
    }
    let mut ssh = Ssh::default();
    for text in texts(name, "hostKeys", MAX_KEYS, fields)? {
        let key = host_key(text).map_err(|why| problem(format!("`{name}.ssh.hostKeys`: `{}` {why}", shorten(text))))?;
        if !ssh.host_keys.contains(&key) {
            ssh.host_keys.push(key);
        }
    }
    for text in texts(name, "repositories", MAX_REPOSITORIES, fields)? {
        let pattern = text.parse().map_err(|error| problem(format!("`{name}.ssh.repositories`: `{}`: {error}", shorten(text))))?;
        if !ssh.repositories.contains(&pattern) {
            ssh.repositories.push(pattern);
        }
    }
    ssh.access = match fields.get("push") {
        None | Some(Json::Bool(false)) => Access::Fetch,
        Some(Json::Bool(true)) => Access::Push,
        Some(other) => return Err(problem(format!("`{name}.ssh.push` is {}; write true or false", describe(other)))),
    };
    match fields.get("user") {
        None => {}
        Some(Json::String(text)) if is_user(text) => ssh.user.clone_from(text),
        Some(other) => {
            return Err(problem(format!(
                "`{name}.ssh.user` is {}; write who logs in, usually \"git\": letters, digits, `.`, `_` and `-`",
                describe(other)
            )));
        }
    }
    Ok(Some(ssh))
}

fn texts<'a>(name: &SecretName, field: &str, most: usize, fields: &'a Map<String, Json>) -> Result<Vec<&'a str>, BadValue> {
    let items = match fields.get(field) {
        None => return Ok(Vec::new()),
        Some(Json::Array(items)) if items.len() <= most => items,
        Some(Json::Array(_)) => return Err(problem(format!("`{name}.ssh.{field}` has more than {most} items"))),
        Some(other) => return Err(problem(format!("`{name}.ssh.{field}` is {}; write a list", describe(other)))),
    };
    let text = |item: &'a Json| item.as_str().ok_or_else(|| problem(format!("`{name}.ssh.{field}` has {} in it", describe(item))));
    items.iter().map(text).collect()
}

/// A key as hosts have it, without the comment that may follow it.
fn host_key(text: &str) -> Result<String, String> {
    let mut words = text.split_ascii_whitespace();
    let (Some(kind), Some(body)) = (words.next(), words.next()) else {
        return Err("is no key; write it as `ssh-ed25519 AAAA…`".to_owned());
    };
    if kind == "ssh-rsa" {
        return Err("is a key of RSA, which is not taken; hosts have others: `ssh-keyscan -t ed25519,ecdsa HOST`".to_owned());
    }
    if !KINDS.contains(&kind) {
        return Err(if KINDS.contains(&body) {
            "begins with a host's name; write the key alone, as `ssh-ed25519 AAAA…`".to_owned()
        } else {
            format!("is of none of the kinds {}", KINDS.join(", "))
        });
    }
    let bytes = STANDARD.decode(body).ok().filter(|bytes| bytes.len() <= MAX_KEY && escape(text) == text);
    let inner = bytes.as_deref().and_then(|bytes| {
        let (length, rest) = bytes.split_first_chunk::<4>()?;
        rest.get(..usize::try_from(u32::from_be_bytes(*length)).ok()?)
    });
    if inner != Some(kind.as_bytes()) {
        return Err(format!("is no key of the kind {kind}: copy the whole line"));
    }
    Ok(format!("{kind} {body}"))
}

fn is_user(text: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=MAX_USER).contains(&text.len()) && !text.starts_with('-') && text.bytes().all(good)
}

fn problem(problem: String) -> BadValue {
    BadValue::Content { problem }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl";

    fn check(written: &Json) -> Result<Option<Ssh>, String> {
        read(&"T".parse().unwrap(), Some(written)).map_err(|error| match error {
            BadValue::Content { problem } => problem,
            other @ BadValue::Type { .. } => panic!("{other:?}"),
        })
    }

    #[test]
    fn it_is_read_and_written() {
        for written in [
            json!({ "hostKeys": [KEY], "repositories": ["org/site", "tools/*"], "push": true, "user": "ann" }),
            json!({ "hostKeys": [KEY], "repositories": ["org/**"] }),
            json!({}),
        ] {
            assert_eq!(check(&written).unwrap().unwrap().to_json(), written);
        }
        let read = check(&json!({ "hostKeys": [format!("{KEY} a comment"), KEY], "repositories": ["/org/site.git"], "push": false }))
            .unwrap()
            .unwrap();
        assert_eq!((read.host_keys, read.user.as_str(), read.access), (vec![KEY.to_owned()], "git", Access::Fetch));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_the_field() {
        for (written, says) in [
            (json!("git"), "`T.ssh` is the string"),
            (json!({ "hostkeys": [] }), "did you mean `hostKeys`"),
            (json!({ "hostKeys": KEY }), "`T.ssh.hostKeys` is the string"),
            (json!({ "hostKeys": [1] }), "`T.ssh.hostKeys` has the number 1"),
            (json!({ "hostKeys": ["AAAA"] }), "is no key"),
            (json!({ "hostKeys": [format!("github.com {KEY}")] }), "begins with a host's name"),
            (json!({ "hostKeys": ["ssh-rsa AAAAB3NzaC1yc2E="] }), "ssh-keyscan -t ed25519,ecdsa"),
            (json!({ "hostKeys": ["ssh-dss AAAA"] }), "none of the kinds"),
            (json!({ "hostKeys": ["ssh-ed25519 AAAA"] }), "copy the whole line"),
            (json!({ "hostKeys": [KEY.replace("ssh-ed25519", "ecdsa-sha2-nistp256")] }), "no key of the kind ecdsa"),
            (json!({ "hostKeys": vec![KEY; MAX_KEYS + 1] }), "more than 32"),
            (json!({ "repositories": "org/site" }), "`T.ssh.repositories` is the string"),
            (json!({ "repositories": ["org/../x"] }), "`org/../x`"),
            (json!({ "repositories": ["org/s*"] }), "whole part"),
            (json!({ "push": "yes" }), "`T.ssh.push`"),
            (json!({ "user": "-oX" }), "`T.ssh.user`"),
            (json!({ "user": "" }), "`T.ssh.user`"),
        ] {
            let error = check(&written).unwrap_err();
            assert!(error.contains(says), "{written}: {error}");
        }
    }

    #[test]
    fn what_is_missing_is_told_with_the_fix() {
        let of = |written: Json| check(&written).unwrap().unwrap();
        assert!(of(json!({ "repositories": ["a/b"] })).missing().unwrap().contains("ssh-keyscan"));
        assert!(of(json!({ "hostKeys": [KEY] })).missing().unwrap().contains("org/repository"));
        let whole = of(json!({ "hostKeys": [KEY], "repositories": ["a/b", "c/*"] }));
        assert_eq!((whole.missing(), whole.scope().as_str()), (None, "ssh as git: a/b c/* fetch"));
        assert_eq!(Ssh { access: Access::Push, ..whole }.scope(), "ssh as git: a/b c/* fetch and push");
    }
}
