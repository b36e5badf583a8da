//! Providers that the value of a secret is asked from or minted by. What is written in the settings, checked in form; nothing is asked here.
//!
//! A field that holds a secret's **name** (`key`, `token`, `clientSecret` …) says which other secret is used to ask; no value is ever written.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use stockade_core::secret::SecretName;

/// The longest text of one field.
const MAX_TEXT: usize = 4096;
/// The longest text of a whole entry.
const MAX_ENTRY: usize = 32 << 10;

/// Who gives a value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "source", rename_all = "kebab-case")]
pub enum Provider {
    /// The operating system's keychain.
    Keychain(Keychain),
    /// 1Password, by its own command.
    Onepassword(Onepassword),
    /// Vault or `OpenBao`.
    Vault(Vault),
    /// Infisical.
    Infisical(Infisical),
    /// AWS STS.
    Aws(Aws),
    /// Google Cloud.
    Gcp(Gcp),
    /// A Kubernetes API server's `TokenRequest`.
    Kubernetes(Kubernetes),
    /// A GitHub App.
    Github(Github),
    /// An OAuth 2.0 authorization server.
    Oauth(Oauth),
}

/// An item of the keychain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Keychain {
    /// The item's attribute `service`.
    pub service: String,
    /// The item's attribute `account`.
    pub account: String,
}

/// A field of an item of 1Password.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Onepassword {
    /// `op://vault/item/field`.
    pub reference: String,
    /// Which account, where there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
}

/// A path of Vault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Vault {
    /// Where it is: `https://vault.example:8200`.
    pub address: String,
    /// What is read, without `v1/`: `secret/data/app`, `database/creds/reader`.
    pub path: String,
    /// Which field of what is read.
    pub field: String,
    /// Who asks.
    pub auth: VaultAuth,
    /// The namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Authorities that its certificate may be of, instead of the machine's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
}

/// How one logs in to Vault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, tag = "method", rename_all = "lowercase", rename_all_fields = "camelCase")]
pub enum VaultAuth {
    /// With a token.
    Token {
        /// The secret that is it.
        token: SecretName,
    },
    /// As an application.
    Approle {
        /// Its role.
        role_id: String,
        /// The secret that proves it.
        secret_id: SecretName,
        /// Where the method is mounted; `approle`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mount: Option<String>,
    },
}

/// A secret of Infisical.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Infisical {
    /// Where it is; `https://app.infisical.com`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The machine identity.
    pub client_id: String,
    /// The secret that proves it.
    pub client_secret: SecretName,
    /// The project's id.
    pub project: String,
    /// The environment: `prod`.
    pub environment: String,
    /// The folder; `/`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// Which secret.
    pub key: String,
    /// Authorities that its certificate may be of, instead of the machine's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
}

/// A role of AWS that is assumed for a while.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Aws {
    /// The role's ARN.
    pub role: String,
    /// The secret that is the access key's id.
    pub access_key_id: SecretName,
    /// The secret that is the access key.
    pub secret_access_key: SecretName,
    /// The secret that is the session token, where the key is a temporary one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_token: Option<SecretName>,
    /// The region; `us-east-1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Where STS is; `https://sts.REGION.amazonaws.com`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// A policy that narrows the role, as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<serde_json::Value>,
    /// Managed policies that narrow the role.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policy_arns: Vec<String>,
    /// Whom the trail names as the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_identity: Option<String>,
    /// Tags of the session.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// What a third party's role asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_id: Option<String>,
    /// For how long; 900.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u32>,
    /// Authorities that its certificate may be of, instead of the machine's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
}

/// An access token of Google Cloud.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Gcp {
    /// The secret that is the key file: a service account's, or that of `gcloud auth application-default login`.
    pub key: SecretName,
    /// Scopes; `https://www.googleapis.com/auth/cloud-platform`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    /// The service account that is acted as.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub impersonate: Option<String>,
    /// A credential access boundary, as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boundary: Option<serde_json::Value>,
    /// For how long an impersonated token is good; 3600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u32>,
    /// The project that programs inside are told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// Where tokens are impersonated; `https://iamcredentials.googleapis.com`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iam_endpoint: Option<String>,
    /// Where tokens are exchanged; `https://sts.googleapis.com`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sts_endpoint: Option<String>,
    /// Authorities that their certificates may be of, instead of the machine's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
}

/// A token of a Kubernetes service account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Kubernetes {
    /// The API server: `https://10.0.0.1:6443`.
    pub server: String,
    /// Authorities that its certificate may be of, instead of the machine's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// The namespace of the account, and the one that programs inside begin in.
    pub namespace: String,
    /// The account.
    pub service_account: String,
    /// The secret that is the token with which one asks.
    pub token: SecretName,
    /// For whom the token is; the API server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub audiences: Vec<String>,
    /// For how long; 600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u32>,
}

/// An installation's token of a GitHub App.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Github {
    /// The App's id or client id.
    pub app: String,
    /// The installation.
    pub installation: u64,
    /// The secret that is the App's private key (PEM).
    pub key: SecretName,
    /// The only repositories, by name without owner; all of the installation's where empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub repositories: Vec<String>,
    /// The only permissions: `{"contents": "read"}`; all of the installation's where empty.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub permissions: BTreeMap<String, String>,
    /// Where the API is; `https://api.github.com`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Authorities that its certificate may be of, instead of the machine's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
}

/// A token of an OAuth 2.0 authorization server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Oauth {
    /// The token endpoint.
    pub token_endpoint: String,
    /// The client.
    pub client_id: String,
    /// The secret that proves it, where it is not public.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<SecretName>,
    /// How a token is had.
    pub grant: OauthGrant,
    /// The scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// The audience.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audience: Option<String>,
    /// The resource (RFC 8707).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// Where a token is given back (RFC 7009) when its call ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revocation_endpoint: Option<String>,
    /// Authorities that its certificate may be of, instead of the machine's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
}

/// How a token is had.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, tag = "type", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum OauthGrant {
    /// The client asks for itself.
    ClientCredentials {},
    /// With a refresh token; a new one takes its place in the secret store.
    RefreshToken {
        /// The secret that is it.
        refresh_token: SecretName,
    },
    /// A person agrees on another device when the secret is set; then as with a refresh token.
    Device {
        /// Where the device flow begins.
        device_endpoint: String,
        /// The secret that the refresh token is kept as.
        refresh_token: SecretName,
    },
    /// A token is exchanged for another (RFC 8693).
    Exchange {
        /// The secret that is exchanged.
        subject_token: SecretName,
        /// What kind of token it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        subject_token_type: Option<String>,
        /// What kind is asked for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        requested_token_type: Option<String>,
    },
}

impl Provider {
    /// The words in settings.
    pub const WORDS: [&str; 9] = ["keychain", "onepassword", "vault", "infisical", "aws", "gcp", "kubernetes", "github", "oauth"];

    /// The word in settings and receipts.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Keychain(_) => "keychain",
            Self::Onepassword(_) => "onepassword",
            Self::Vault(_) => "vault",
            Self::Infisical(_) => "infisical",
            Self::Aws(_) => "aws",
            Self::Gcp(_) => "gcp",
            Self::Kubernetes(_) => "kubernetes",
            Self::Github(_) => "github",
            Self::Oauth(_) => "oauth",
        }
    }

    /// The secrets that it is asked with. Not refresh tokens: each is renewed, and the new one is kept in the store.
    pub fn asked_with(&self) -> Vec<&SecretName> {
        match self {
            Self::Keychain(_) | Self::Onepassword(_) => Vec::new(),
            Self::Vault(vault) => match &vault.auth {
                VaultAuth::Token { token } => vec![token],
                VaultAuth::Approle { secret_id, .. } => vec![secret_id],
            },
            Self::Infisical(infisical) => vec![&infisical.client_secret],
            Self::Aws(aws) => [&aws.access_key_id, &aws.secret_access_key].into_iter().chain(&aws.session_token).collect(),
            Self::Gcp(gcp) => vec![&gcp.key],
            Self::Kubernetes(kubernetes) => vec![&kubernetes.token],
            Self::Github(github) => vec![&github.key],
            Self::Oauth(oauth) => {
                let subject = match &oauth.grant {
                    OauthGrant::Exchange { subject_token, .. } => Some(subject_token),
                    OauthGrant::ClientCredentials {} | OauthGrant::RefreshToken { .. } | OauthGrant::Device { .. } => None,
                };
                oauth.client_secret.iter().chain(subject).collect()
            }
        }
    }

    /// Every secret without which it cannot be asked, refresh tokens among them.
    pub fn needs(&self) -> Vec<&SecretName> {
        let renewed = match self {
            Self::Oauth(Oauth { grant: OauthGrant::RefreshToken { refresh_token } | OauthGrant::Device { refresh_token, .. }, .. }) => {
                Some(refresh_token)
            }
            _ => None,
        };
        self.asked_with().into_iter().chain(renewed).collect()
    }

    /// Reads an entry that has nothing but a provider's own fields.
    pub(super) fn read(entry: serde_json::Value) -> Result<Self, String> {
        let text = entry.to_string();
        if text.len() > MAX_ENTRY {
            return Err(format!("it is longer than {MAX_ENTRY} bytes"));
        }
        check_texts(&entry)?;
        serde_json::from_value(entry).map_err(|error| error.to_string())
    }
}

/// No text that is empty, endless or not what it looks like.
fn check_texts(value: &serde_json::Value) -> Result<(), String> {
    match value {
        serde_json::Value::String(text) if text.is_empty() || text.len() > MAX_TEXT || stockade_core::escape::escape(text) != *text => {
            Err(format!("a text in it is empty, longer than {MAX_TEXT} bytes, or has control or invisible characters in it"))
        }
        serde_json::Value::Array(items) => items.iter().try_for_each(check_texts),
        serde_json::Value::Object(entries) => entries.values().try_for_each(check_texts),
        serde_json::Value::String(_) | serde_json::Value::Null | serde_json::Value::Bool(_) | serde_json::Value::Number(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_provider_is_read_and_written() {
        let all = [
            json!({"source": "keychain", "service": "s", "account": "a"}),
            json!({"source": "onepassword", "reference": "op://v/i/f"}),
            json!({"source": "vault", "address": "https://v:8200", "path": "secret/data/a", "field": "token", "auth": {"method": "token", "token": "VT"}}),
            json!({"source": "vault", "address": "https://v:8200", "path": "p", "field": "f",
                   "auth": {"method": "approle", "roleId": "r", "secretId": "S", "mount": "m"}, "namespace": "n", "caFile": "/ca"}),
            json!({"source": "infisical", "clientId": "c", "clientSecret": "S", "project": "p", "environment": "prod", "key": "K"}),
            json!({"source": "aws", "role": "arn:aws:iam::1:role/r", "accessKeyId": "A", "secretAccessKey": "B", "policy": {"Version": "2012-10-17"},
                   "tags": {"a": "b"}, "seconds": 900}),
            json!({"source": "gcp", "key": "K", "scopes": ["s"], "impersonate": "a@b"}),
            json!({"source": "kubernetes", "server": "https://k:6443", "namespace": "n", "serviceAccount": "a", "token": "T", "audiences": ["x"]}),
            json!({"source": "github", "app": "1", "installation": 2, "key": "K", "repositories": ["r"], "permissions": {"contents": "read"}}),
            json!({"source": "oauth", "tokenEndpoint": "https://i/t", "clientId": "c", "grant": {"type": "client-credentials"}}),
            json!({"source": "oauth", "tokenEndpoint": "https://i/t", "clientId": "c", "grant": {"type": "refresh-token", "refreshToken": "R"}}),
            json!({"source": "oauth", "tokenEndpoint": "https://i/t", "clientId": "c",
                   "grant": {"type": "device", "deviceEndpoint": "https://i/d", "refreshToken": "R"}}),
            json!({"source": "oauth", "tokenEndpoint": "https://i/t", "clientId": "c", "grant": {"type": "exchange", "subjectToken": "T"}}),
        ];
        for written in all {
            let read = Provider::read(written.clone()).unwrap();
            assert_eq!(serde_json::to_value(&read).unwrap(), written);
            assert!(Provider::WORDS.contains(&read.word()) && written.get("source").unwrap() == read.word());
        }
    }

    #[test]
    fn what_is_unknown_missing_or_invisible_is_refused() {
        for (bad, says) in [
            (json!({"source": "keychain", "service": "s"}), "account"),
            (json!({"source": "keychain", "service": "s", "account": "a", "colour": "x"}), "colour"),
            (json!({"source": "keychain", "service": "s", "account": "a\u{202e}b"}), "invisible"),
            (json!({"source": "keychain", "service": "s", "account": ""}), "empty"),
            (json!({"source": "vault", "address": "a", "path": "p", "field": "f", "auth": {"method": "root"}}), "root"),
            (json!({"source": "oauth", "tokenEndpoint": "t", "clientId": "c", "grant": {"type": "password"}}), "password"),
            (json!({"source": "github", "app": "1", "installation": 2, "key": "no name"}), "secret"),
        ] {
            let error = Provider::read(bad).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }
}
