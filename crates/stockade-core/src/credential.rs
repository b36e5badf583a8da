//! How a credential appears inside a sandbox, and what that means for the value.
//!
//! Only words and what they stand for; what is written where belongs to whoever opens a sandbox's way out.

use serde::{Deserialize, Serialize};

/// How a credential appears inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Delivery {
    /// A variable of the secret's name holds a placeholder.
    Variable,
    /// Git's credential helper answers with a placeholder.
    Git,
    /// `docker-credential-stockade` answers with a placeholder.
    Docker,
    /// A kubeconfig without secrets, whose exec plugin answers with a placeholder.
    Kubernetes,
    /// AWS's container credentials endpoint on the sandbox's loopback hands in short-lived keys.
    AwsEndpoint,
    /// Made-up AWS keys; requests are signed anew on the way out.
    AwsKeys,
    /// Google's metadata server on the sandbox's loopback answers with a placeholder.
    GcpMetadata,
    /// A file that `gcloud` reads its access token from holds a placeholder.
    GcpToken,
    /// Npm's own variable for a registry's token holds a placeholder.
    Npm,
    /// Pip's variable for its index holds a placeholder.
    Pip,
    /// Cargo's variable for the registry's token holds a placeholder.
    Cargo,
    /// Git over SSH: the session is held outside, with the key.
    Ssh,
    /// An agent of SSH on a socket inside signs logins; the key stays outside.
    SshAgent,
}

/// Whether anything that is worth something enters the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// A short-lived token is handed in.
    Reference,
    /// Nothing enters; the value is put in on the way out.
    ProxyOnly,
}

impl Delivery {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::Variable,
        Self::Git,
        Self::Docker,
        Self::Kubernetes,
        Self::AwsEndpoint,
        Self::AwsKeys,
        Self::GcpMetadata,
        Self::GcpToken,
        Self::Npm,
        Self::Pip,
        Self::Cargo,
        Self::Ssh,
        Self::SshAgent,
    ];

    /// The word in settings, packs and receipts.
    pub fn word(self) -> &'static str {
        match self {
            Self::Variable => "variable",
            Self::Git => "git",
            Self::Docker => "docker",
            Self::Kubernetes => "kubernetes",
            Self::AwsEndpoint => "aws-endpoint",
            Self::AwsKeys => "aws-keys",
            Self::GcpMetadata => "gcp-metadata",
            Self::GcpToken => "gcp-token",
            Self::Npm => "npm",
            Self::Pip => "pip",
            Self::Cargo => "cargo",
            Self::Ssh => "ssh",
            Self::SshAgent => "ssh-agent",
        }
    }

    /// The delivery of this word.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|delivery| delivery.word() == word)
    }

    /// Whether anything enters.
    pub fn class(self) -> Class {
        match self {
            Self::AwsEndpoint => Class::Reference,
            Self::Variable
            | Self::Git
            | Self::Docker
            | Self::Kubernetes
            | Self::AwsKeys
            | Self::GcpMetadata
            | Self::GcpToken
            | Self::Npm
            | Self::Pip
            | Self::Cargo
            | Self::Ssh
            | Self::SshAgent => Class::ProxyOnly,
        }
    }
}

impl Class {
    /// The word in receipts.
    pub fn word(self) -> &'static str {
        match self {
            Self::Reference => "reference",
            Self::ProxyOnly => "proxy-only",
        }
    }

    /// The class of several deliveries of one credential: where one hands it in, it is in.
    pub fn of(deliveries: &[Delivery]) -> Self {
        if deliveries.iter().any(|delivery| delivery.class() == Self::Reference) { Self::Reference } else { Self::ProxyOnly }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_back() {
        for delivery in Delivery::ALL {
            assert_eq!(Delivery::of_word(delivery.word()), Some(delivery));
            assert_eq!(serde_json::to_value(delivery).unwrap(), delivery.word());
        }
        assert_eq!(Delivery::of_word("Git"), None);
    }

    #[test]
    fn one_that_hands_in_decides() {
        assert_eq!(Class::of(&[]), Class::ProxyOnly);
        assert_eq!(Class::of(&[Delivery::Variable, Delivery::AwsEndpoint]), Class::Reference);
    }
}
