//! Approvals by another user: what they are sent, and what they send back. Their word is a signature over what they were shown, so that whoever
//! carries it, or keeps it, can add nothing to it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rusqlite::params;
use serde::{Deserialize, Serialize};

use super::binding::shown_sha256;
use super::error::ApprovalError;
use super::request::{Request, RequestId, State};
use super::store::{APPROVED_FOR, SLACK, Store, statement_of};
use super::warrant::{Method, Statement};
use crate::approver::{Approver, Credential};

/// A request as another user sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Distant {
    /// Its name.
    pub id: String,
    /// Where it stands.
    pub state: String,
    /// What it is bound to.
    pub digest: String,
    /// When it was first asked for.
    pub asked: i64,
    /// How often.
    pub times: i64,
    /// When it ends by itself.
    pub expires: i64,
    /// Who asks.
    pub principal: String,
    /// What it does.
    pub effect: String,
    /// The call in one line.
    pub title: String,
    /// Everything that a person is to see; empty in a list.
    pub shown: String,
    /// The digest of that.
    pub shown_sha256: String,
}

/// A yes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Signed {
    /// To which request.
    pub id: String,
    /// Who says so.
    pub by: String,
    /// When.
    pub decided: i64,
    /// Until when it can be used.
    pub expires: i64,
    /// Over all that was approved, in base64.
    pub signature: String,
}

impl From<&Request> for Distant {
    fn from(request: &Request) -> Self {
        Self {
            id: request.id.clone(),
            state: request.state.name().to_owned(),
            digest: request.digest.clone(),
            asked: request.asked,
            times: request.times,
            expires: request.expires,
            principal: request.principal.clone(),
            effect: request.effect.clone(),
            title: request.title.clone(),
            shown: request.shown.clone(),
            shown_sha256: request.shown_sha256.clone(),
        }
    }
}

impl Distant {
    /// The same for a list.
    #[must_use]
    pub fn brief(self) -> Self {
        Self { shown: String::new(), ..self }
    }

    /// Says yes to what was shown, once.
    pub fn sign(&self, by: &str, approver: &Approver, now: i64) -> Result<Signed, ApprovalError> {
        // Whoever sent this may have meant to show another text.
        if self.shown_sha256 != shown_sha256(&self.shown) {
            return Err(ApprovalError::Tampered(self.id.clone()));
        }
        let expires = now + APPROVED_FOR;
        let statement = Statement {
            kind: "once",
            id: &self.id,
            digest: &self.digest,
            shown_sha256: &self.shown_sha256,
            principal: &self.principal,
            effect: &self.effect,
            session: None,
            by,
            decided: now,
            expires,
        };
        let signature = STANDARD.encode(approver.sign(&statement.bytes()));
        Ok(Signed { id: self.id.clone(), by: by.to_owned(), decided: now, expires, signature })
    }
}

impl Store {
    /// Approves what waits, by the word of another user, whose credential it is.
    pub fn approve_signed(&mut self, signed: &Signed, credential: &Credential, now: i64) -> Result<Request, ApprovalError> {
        let id = RequestId::parse(&signed.id).ok_or_else(|| ApprovalError::NoRequest(signed.id.clone()))?;
        let request = self.request(&id, now)?;
        if request.state != State::Pending {
            return Err(ApprovalError::Decided { id: request.id, state: request.state });
        }
        if request.shown_sha256 != shown_sha256(&request.shown) {
            return Err(ApprovalError::Tampered(request.id));
        }
        if (signed.decided - now).abs() > SLACK || signed.expires != signed.decided + APPROVED_FOR {
            return Err(ApprovalError::Foreign("it was not given just now"));
        }
        let signature = STANDARD.decode(&signed.signature).map_err(|_| ApprovalError::Foreign("its signature does not hold"))?;
        let method = Method::OtherUid.name();
        let statement = statement_of(&request, &signed.by, signed.decided, signed.expires);
        if let Some(why) = statement.objection(method, Some(&signature), Some(credential)) {
            return Err(ApprovalError::Foreign(why));
        }
        let changed = self.within("approve", |transaction| {
            transaction.execute(
                "UPDATE requests SET state = 'approved', decided = ?2, expires = ?3, decided_by = ?4, method = ?5, signature = ?6 \
                 WHERE id = ?1 AND state = 'pending' AND shown_sha256 = ?7",
                params![request.id, signed.decided, signed.expires, signed.by, method, signature, request.shown_sha256],
            )
        })?;
        let after = self.request(&id, now)?;
        if changed == 1 { Ok(after) } else { Err(ApprovalError::Decided { id: after.id, state: after.state }) }
    }
}
