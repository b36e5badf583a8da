//! How a client proves itself: by HTTP Basic where it has a secret, else it only names itself in what it sends. Pure.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use stockade_store::settings::providers::Oauth;
use zeroize::Zeroizing;

use super::super::http::{Request, encode};
use crate::SecretValue;

/// A client of an authorization server.
pub(super) struct Client {
    id: String,
    secret: Option<SecretValue>,
    ca_file: Option<PathBuf>,
}

impl Client {
    /// The client of a setting.
    pub(super) fn new(oauth: &Oauth, secret: Option<&SecretValue>) -> Self {
        Self { id: oauth.client_id.clone(), secret: secret.map(SecretValue::duplicate), ca_file: oauth.ca_file.clone() }
    }

    /// Authorities that the server's certificate may be of, instead of the machine's.
    pub(super) fn ca_file(&self) -> Option<&Path> {
        self.ca_file.as_deref()
    }

    /// A form with the client's proof.
    pub(super) fn request<'a>(&self, url: &'a str, fields: &[(&str, &str)]) -> Request<'a> {
        if let Some(basic) = self.basic() {
            return Request::form(url, fields).header("authorization", format!("Basic {}", *basic));
        }
        let mut fields = fields.to_vec();
        fields.push(("client_id", &self.id));
        Request::form(url, &fields)
    }

    /// What must not be repeated: the secret, and both forms in which it is sent.
    pub(super) fn hidden(&self) -> Vec<SecretValue> {
        let Some(secret) = &self.secret else { return Vec::new() };
        let sent = [self.basic(), Some(Zeroizing::new(encode(&secret.to_text())))];
        let sent = sent.into_iter().flatten().filter_map(|text| SecretValue::new(text.as_bytes().to_vec()).ok());
        sent.chain([secret.duplicate()]).collect()
    }

    /// RFC 6749, 2.3.1: both are encoded as in a form before they are joined.
    fn basic(&self) -> Option<Zeroizing<String>> {
        let secret = Zeroizing::new(encode(&self.secret.as_ref()?.to_text()));
        let joined = Zeroizing::new(format!("{}:{}", encode(&self.id), *secret));
        Some(Zeroizing::new(STANDARD.encode(joined.as_bytes())))
    }
}
