//! Who decided, how they showed who they are, and whether that counts.
//!
//! With a credential set up, an approval is a signature over what was approved, and nothing else in the database counts. Without one the user id is
//! all there is, which does not tell a person from their agent: that is enough for what can be undone and never for what cannot.

use crate::approver::{Approver, Credential};

/// The effect of calls that cannot be undone.
pub(super) const DESTRUCTIVE: &str = "destructive";

/// How a person showed who they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Not at all: they have the same user id as whoever asked.
    SameUid,
    /// They know the passphrase of the approver credential.
    Passphrase,
    /// They are another user of the machine, who has the key.
    OtherUid,
    /// Not at all: the client of whoever asked says that they said so.
    Elicitation,
}

impl Method {
    /// The word in receipts.
    pub fn name(self) -> &'static str {
        match self {
            Self::SameUid => "same-uid",
            Self::Passphrase => "passphrase",
            Self::OtherUid => "other-uid",
            Self::Elicitation => "elicitation",
        }
    }
}

/// Somebody who decides.
#[derive(Debug)]
pub struct Decider {
    /// Who.
    pub by: String,
    /// The opened credential, where one is set up.
    pub approver: Option<Approver>,
}

impl Decider {
    /// How they showed who they are.
    pub fn method(&self) -> Method {
        self.approver.as_ref().map_or(Method::SameUid, Approver::method)
    }

    pub(crate) fn sign(&self, statement: &Statement<'_>) -> Option<Vec<u8>> {
        self.approver.as_ref().map(|approver| approver.sign(&statement.bytes()))
    }
}

/// An approval that counts, as receipts have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warrant {
    /// The request or the grant.
    pub id: String,
    /// Who approved.
    pub by: String,
    /// How they showed who they are.
    pub method: String,
    /// The digest of what they were shown.
    pub shown_sha256: String,
}

/// What exactly is approved.
pub(crate) struct Statement<'a> {
    pub(crate) kind: &'static str,
    pub(crate) id: &'a str,
    pub(crate) digest: &'a str,
    pub(crate) shown_sha256: &'a str,
    pub(crate) principal: &'a str,
    pub(crate) effect: &'a str,
    pub(crate) session: Option<&'a str>,
    pub(crate) by: &'a str,
    pub(crate) decided: i64,
    pub(crate) expires: i64,
}

impl Statement<'_> {
    /// Lengths go in as well, so that no two statements look alike.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let Self { kind, id, digest, shown_sha256, principal, effect, session, by, decided, expires } = self;
        let (decided, expires) = (decided.to_string(), expires.to_string());
        let has_session = if session.is_some() { "session" } else { "any" };
        let parts = [
            "stockade approval 1",
            kind,
            id,
            digest,
            shown_sha256,
            principal,
            effect,
            has_session,
            session.unwrap_or(""),
            by,
            &decided,
            &expires,
        ];
        parts.iter().flat_map(|part| [&(part.len() as u64).to_le_bytes(), part.as_bytes()].concat()).collect()
    }

    /// Why an approval of this does not count; `None` where it does.
    pub(crate) fn objection(&self, method: &str, signature: Option<&[u8]>, credential: Option<&Credential>) -> Option<&'static str> {
        match credential {
            Some(credential) if method == credential.method().name() => {
                let holds = signature.is_some_and(|signature| credential.verifies(&self.bytes(), signature));
                (!holds).then_some("its signature does not hold")
            }
            Some(_) => Some("it was given without the approver credential"),
            None if method != Method::SameUid.name() => Some("the credential that it was given with is gone"),
            None => (self.effect == DESTRUCTIVE).then_some("a destructive call needs an approver credential"),
        }
    }
}
