//! What the reader of a tool's login gives: values to keep, the entry for them, a request that shows whether they work, and what is left over.

use std::path::PathBuf;

use stockade_broker::{SecretName, SecretValue};
use stockade_store::settings::SecretSetting;

/// A login that was found.
pub(super) struct Login {
    /// Where, as people write it.
    pub(super) from: String,
    /// What is kept, under which names.
    pub(super) values: Vec<(SecretName, SecretValue)>,
    /// The entry of `secrets` in the settings.
    pub(super) setting: SecretSetting,
    /// Authorities that are written beside the settings: where, and the PEM. No secret.
    pub(super) authorities: Option<(PathBuf, String)>,
    /// What shows whether it works.
    pub(super) request: Request,
    /// What the person may delete when it does.
    pub(super) spare: Vec<String>,
}

/// A cheap request that only a good login is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Request {
    /// `Authorization: Bearer`.
    Bearer {
        /// Where.
        url: String,
        /// What the answer 403 means.
        forbidden: Forbidden,
    },
    /// `Authorization: Basic`, as registries of images take it: at `url`, or where its answer leads on the same hosts.
    Registry {
        /// Where.
        url: String,
        /// Who.
        user: String,
    },
    /// An access token of Google's.
    Google {
        /// Where.
        url: String,
    },
    /// `GetCallerIdentity`, signed.
    Sts {
        /// Where.
        url: String,
        /// Which region's.
        region: String,
    },
    /// There is none; why.
    Nothing(&'static str),
}

/// What the answer 403 means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Forbidden {
    /// The login is refused.
    Refused,
    /// It is known and good, though not for this one page: a wrong one is answered 401.
    Known,
}

/// What a person said on the command line.
pub(super) struct Wish<'a> {
    /// The secret's name.
    pub(super) name: Option<SecretName>,
    /// Which host's login.
    pub(super) host: Option<&'a str>,
    /// Which profile of AWS.
    pub(super) profile: Option<&'a str>,
    /// Which context of Kubernetes.
    pub(super) context: Option<&'a str>,
}
