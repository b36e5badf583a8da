//! What was approved for longer than one call: for a session, or until a time. A grant is for the very same call as the request that it came from;
//! it is not used up, it ends, and a person can take it back at any moment.

use rusqlite::{Row, Transaction, params};

use crate::approvals::{ApprovalError, Decider, Request, RequestId, Scope, Statement, Store, Warrant, pass_time};
use crate::approver::Credential;

/// How long a grant may last.
const MOST_HOURS: i64 = 30 * 24;
/// How long a grant for a session lasts at most: what names a session is used again some day.
const SESSION_FOR: i64 = 12 * 3600;
/// Grants that are listed.
const MOST_LISTED: i64 = 1000;

/// What was approved for longer than one call. Times are seconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Its name: that of the request.
    pub id: String,
    /// What it is bound to.
    pub digest: String,
    /// When it was given.
    pub made: i64,
    /// When it ends.
    pub expires: i64,
    /// Whose calls.
    pub principal: String,
    /// From which session alone.
    pub session: Option<String>,
    /// What they do.
    pub effect: String,
    /// The call in one line.
    pub title: String,
    /// Everything that a person was shown.
    pub shown: String,
    /// The digest of that.
    pub shown_sha256: String,
    /// How often it was used.
    pub uses: i64,
    /// Who gave it.
    pub by: String,
    /// How they showed who they are.
    pub method: String,
    signature: Option<Vec<u8>>,
}

impl Grant {
    /// A grant in the place of a request.
    pub(crate) fn of(request: &Request, scope: Scope, decider: &Decider, now: i64) -> Result<Self, ApprovalError> {
        let (session, expires) = match scope {
            Scope::Session => (Some(request.session.clone().ok_or(ApprovalError::NoSession)?), now + SESSION_FOR),
            Scope::For(seconds) if seconds > MOST_HOURS * 3600 => return Err(ApprovalError::LongGrant(MOST_HOURS)),
            Scope::For(seconds) => (None, now + seconds),
            Scope::Once | Scope::Rule => (None, now),
        };
        let mut grant = Self {
            id: request.id.clone(),
            digest: request.digest.clone(),
            made: now,
            expires,
            principal: request.principal.clone(),
            session,
            effect: request.effect.clone(),
            title: request.title.clone(),
            shown: request.shown.clone(),
            shown_sha256: request.shown_sha256.clone(),
            uses: 0,
            by: decider.by.clone(),
            method: decider.method().name().to_owned(),
            signature: None,
        };
        grant.signature = decider.sign(&grant.statement());
        Ok(grant)
    }

    pub(crate) fn insert(&self, transaction: &Transaction<'_>) -> rusqlite::Result<()> {
        let Self { id, digest, made, expires, principal, session, effect, title, shown, shown_sha256, uses, by, method, signature } = self;
        transaction.execute(
            "INSERT INTO grants VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
            params![id, digest, made, expires, principal, session, effect, title, shown, shown_sha256, uses, by, method, signature],
        )?;
        Ok(())
    }

    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            id: row.get(0)?,
            digest: row.get(1)?,
            made: row.get(2)?,
            expires: row.get(3)?,
            principal: row.get(4)?,
            session: row.get(5)?,
            effect: row.get(6)?,
            title: row.get(7)?,
            shown: row.get(8)?,
            shown_sha256: row.get(9)?,
            uses: row.get(10)?,
            by: row.get(11)?,
            method: row.get(12)?,
            signature: row.get(13)?,
        })
    }

    fn statement(&self) -> Statement<'_> {
        Statement {
            kind: "grant",
            id: &self.id,
            digest: &self.digest,
            shown_sha256: &self.shown_sha256,
            principal: &self.principal,
            effect: &self.effect,
            session: self.session.as_deref(),
            by: &self.by,
            decided: self.made,
            expires: self.expires,
        }
    }
}

/// A grant for a call, where one counts; that it was used is noted.
pub(crate) fn usable(
    transaction: &Transaction<'_>,
    digest: &str,
    shown_sha256: &str,
    session: Option<&str>,
    credential: Option<&Credential>,
) -> rusqlite::Result<Option<Warrant>> {
    let mut statement = transaction.prepare("SELECT * FROM grants WHERE digest = ?1 AND (session IS NULL OR session = ?2) LIMIT ?3")?;
    let found: Vec<Grant> = statement.query_map(params![digest, session, MOST_LISTED], Grant::read)?.collect::<rusqlite::Result<_>>()?;
    let counts = |grant: &Grant| {
        grant.shown_sha256 == shown_sha256 && grant.statement().objection(&grant.method, grant.signature.as_deref(), credential).is_none()
    };
    let Some(grant) = found.into_iter().find(counts) else { return Ok(None) };
    transaction.execute("UPDATE grants SET uses = uses + 1 WHERE id = ?1", [&grant.id])?;
    Ok(Some(Warrant { id: grant.id, by: grant.by, method: grant.method, shown_sha256: grant.shown_sha256 }))
}

impl Store {
    /// All grants that stand, the latest first.
    pub fn grants(&mut self, now: i64) -> Result<Vec<Grant>, ApprovalError> {
        self.within("list", |transaction| {
            pass_time(transaction, now)?;
            let mut statement = transaction.prepare("SELECT * FROM grants ORDER BY made DESC, id LIMIT ?1")?;
            statement.query_map([MOST_LISTED], Grant::read)?.collect()
        })
    }

    /// Takes a grant back.
    pub fn revoke(&mut self, id: &RequestId, now: i64) -> Result<Grant, ApprovalError> {
        let gone = self.within("revoke", |transaction| {
            pass_time(transaction, now)?;
            let mut statement = transaction.prepare("DELETE FROM grants WHERE id = ?1 RETURNING *")?;
            statement.query_map([id.as_str()], Grant::read)?.collect::<rusqlite::Result<Vec<_>>>()
        })?;
        gone.into_iter().next().ok_or_else(|| ApprovalError::NoGrant(id.to_string()))
    }
}
