//! The requests: filed, decided, used.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension as _, Transaction, TransactionBehavior, params};

use super::binding::{Bound, shown_sha256};
use super::database;
use super::error::ApprovalError;
use super::request::{Request, RequestId, State};
use super::warrant::{DESTRUCTIVE, Decider, Method, Statement, Warrant};
use crate::approver::Credential;
use crate::grants;

/// Requests that may wait at a time: of a person, and as many of all agents. More are refused, so that the oldest stay in sight.
pub const MOST_PENDING: i64 = 100;
/// Requests of one agent that may wait at a time: one alone does not fill what all have.
pub const MOST_OF_AGENT: i64 = 20;
/// Bytes of what a person is shown.
pub const MOST_SHOWN: usize = 64 << 10;
/// How long a request waits.
pub(super) const PENDING_FOR: i64 = 24 * 3600;
/// How long an approval waits to be used.
pub(super) const APPROVED_FOR: i64 = 3600;
/// How long a no stands against the same call.
pub(super) const DENIED_FOR: i64 = 3600;
/// How long what is over is kept to be looked at.
const KEPT_FOR: i64 = 7 * 24 * 3600;
/// How many of those are kept.
const MOST_KEPT: i64 = 500;
/// A clock that goes back by less is only corrected.
pub(super) const SLACK: i64 = 120;

/// The requests and grants of one person.
#[derive(Debug)]
pub struct Store {
    pub(crate) connection: Connection,
    pub(crate) path: PathBuf,
}

/// A call that rules ask about.
#[derive(Debug, Clone, Copy)]
pub struct Asking<'a> {
    /// What it is bound to.
    pub bound: &'a Bound,
    /// The call in one line: [`Bound::title`], without what must not be stored.
    pub title: &'a str,
    /// What a person is to see: [`Bound::shown`], without what must not be stored.
    pub shown: &'a str,
    /// From which session, where one can be recognised again.
    pub session: Option<&'a str>,
    /// Rules that would let it through without asking.
    pub rules: &'a [String],
    /// The call's receipt.
    pub receipt: &'a str,
}

/// How far an approval goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The next such call.
    Once,
    /// Such calls from the same session.
    Session,
    /// Such calls for so many seconds.
    For(i64),
    /// The rules say so from now on: nothing is left to wait for.
    Rule,
}

/// What came of a call that rules ask about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settled {
    /// It may run; an approval of one call is used up now.
    Approved(Warrant),
    /// Nothing lets it through, and nothing was filed.
    Open,
    /// It may not: a person decides first.
    Waits(Waiting),
    /// It may not: a person said no.
    Denied {
        /// The request.
        id: String,
        /// Who said so.
        by: String,
        /// When it may be asked for again.
        until: i64,
    },
}

/// What to do with a call that nobody approved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Otherwise<'a> {
    /// File a request, or count it where one waits.
    File,
    /// Nothing: a person is here to be asked.
    Leave,
    /// Use this request up where it is this call's: the client of whoever asked said yes, and rules let it. Otherwise, file.
    Consented {
        /// The request that the client was shown.
        id: &'a RequestId,
        /// Whose client.
        by: &'a str,
    },
}

/// A request that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// Its name.
    pub id: String,
    /// How often it was asked for.
    pub times: i64,
    /// When it ends by itself.
    pub expires: i64,
    /// Why an approval that was there does not count.
    pub void: Option<String>,
}

impl Store {
    /// Opens the store beneath a state directory; makes it where there is none.
    pub fn open(state: &Path) -> Result<Self, ApprovalError> {
        database::open(state).map(|(connection, path)| Self { connection, path })
    }

    /// Opens the store where there is one.
    pub fn open_existing(state: &Path) -> Result<Option<Self>, ApprovalError> {
        Ok(database::open_existing(state)?.map(|(connection, path)| Self { connection, path }))
    }

    /// Looks whether a call was approved and uses that up; otherwise files a request, or does nothing. `now` is in seconds since 1970.
    pub fn settle(
        &mut self,
        asking: &Asking<'_>,
        credential: Option<&Credential>,
        otherwise: Otherwise<'_>,
        now: i64,
    ) -> Result<Settled, ApprovalError> {
        if asking.shown.len() > MOST_SHOWN {
            return Err(ApprovalError::TooLong(asking.shown.len()));
        }
        let key: Vec<u8> = self.within("read", |transaction| transaction.query_row("SELECT key FROM store", [], |row| row.get(0)))?;
        let digest = asking.bound.digest(&key);
        let sha256 = shown_sha256(asking.shown);
        let fresh = RequestId::fresh().ok_or(ApprovalError::NoRandom)?;
        let rules = serde_json::to_string(asking.rules).unwrap_or_default();
        let mut too_many = None;
        let settled = self.within("use", |transaction| {
            pass_time(transaction, now)?;
            if let Some(warrant) = grants::usable(transaction, &digest, &sha256, asking.session, credential)? {
                return Ok(Some(Settled::Approved(warrant)));
            }
            let open = format!("SELECT {} FROM requests WHERE digest = ?1 AND state IN ('pending', 'approved', 'denied')", Request::COLUMNS);
            let found = transaction.query_row(&open, [&digest], Request::read).optional()?;
            let mut void = None;
            match found {
                Some(request) if request.state == State::Denied && otherwise != Otherwise::Leave => {
                    transaction.execute("UPDATE requests SET times = times + 1, asked_last = ?2 WHERE id = ?1", params![request.id, now])?;
                    return Ok(Some(Settled::Denied { id: request.id, by: request.by.unwrap_or_default(), until: request.expires }));
                }
                Some(request) if request.state == State::Approved => match objection(&request, &sha256, credential) {
                    None => {
                        transaction.execute("UPDATE requests SET state = 'used' WHERE id = ?1", [&request.id])?;
                        return Ok(Some(Settled::Approved(warrant(request))));
                    }
                    Some(why) => {
                        transaction.execute("UPDATE requests SET state = 'expired' WHERE id = ?1", [&request.id])?;
                        void = Some(why.to_owned());
                    }
                },
                Some(_) | None if otherwise == Otherwise::Leave => {}
                Some(request) if request.shown_sha256 == sha256 && is_consented(&request, otherwise) => {
                    let Otherwise::Consented { by, .. } = otherwise else { return Ok(None) };
                    if request.effect == DESTRUCTIVE && credential.is_none() {
                        let void = Some("a destructive call needs an approver credential".to_owned());
                        return Ok(Some(Settled::Waits(Waiting { id: request.id, times: request.times, expires: request.expires, void })));
                    }
                    let (by, method) = (by.to_owned(), Method::Elicitation.name().to_owned());
                    let used = "UPDATE requests SET state = 'used', decided = ?2, decided_by = ?3, method = ?4 WHERE id = ?1";
                    transaction.execute(used, params![request.id, now, by, method])?;
                    return Ok(Some(Settled::Approved(warrant(Request { by: Some(by), method: Some(method), ..request }))));
                }
                Some(request) => {
                    let again = "UPDATE requests SET times = times + 1, asked_last = ?2 WHERE id = ?1";
                    transaction.execute(again, params![request.id, now])?;
                    let waiting = Waiting { id: request.id, times: request.times + 1, expires: request.expires, void };
                    return Ok(Some(Settled::Waits(waiting)));
                }
                None => {}
            }
            if otherwise == Otherwise::Leave {
                return Ok(Some(Settled::Open));
            }
            too_many = crowd(transaction, &asking.bound.principal)?;
            if too_many.is_some() {
                return Ok(None);
            }
            forget(transaction, now)?;
            let bound = asking.bound;
            transaction.execute(
                "INSERT INTO requests (id, digest, state, asked, asked_last, times, expires, principal, session, effect, title, shown, shown_sha256, rules, receipt) \
                 VALUES (?1, ?2, 'pending', ?3, ?3, 1, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
                params![
                    fresh.as_str(),
                    digest,
                    now,
                    now + PENDING_FOR,
                    bound.principal,
                    asking.session,
                    bound.effect,
                    asking.title,
                    asking.shown,
                    sha256,
                    rules,
                    asking.receipt
                ],
            )?;
            Ok(Some(Settled::Waits(Waiting { id: fresh.to_string(), times: 1, expires: now + PENDING_FOR, void })))
        })?;
        match settled {
            Some(settled) => Ok(settled),
            None => Err(too_many.unwrap_or_else(|| self.damaged("nothing came of a request"))),
        }
    }

    /// Approves what waits, as it was seen. The text that was shown must be what was filed, and what is kept under the id by now must be the same:
    /// a person may take a while, and somebody may write into the file meanwhile.
    pub fn approve(&mut self, seen: &Request, scope: Scope, decider: &Decider, now: i64) -> Result<Request, ApprovalError> {
        let id = &RequestId::parse(&seen.id).ok_or_else(|| ApprovalError::NoRequest(seen.id.clone()))?;
        let request = self.request(id, now)?;
        if request.state != State::Pending {
            return Err(ApprovalError::Decided { id: request.id, state: request.state });
        }
        let is_same = (&request.digest, &request.shown, &request.principal, &request.effect, &request.session)
            == (&seen.digest, &seen.shown, &seen.principal, &seen.effect, &seen.session);
        if !is_same || request.shown_sha256 != shown_sha256(&request.shown) {
            return Err(ApprovalError::Tampered(request.id));
        }
        if request.effect == DESTRUCTIVE && decider.method() == Method::SameUid {
            return Err(ApprovalError::NeedsCredential);
        }
        let changed = match scope {
            Scope::Once => {
                let expires = now + APPROVED_FOR;
                let signature = decider.sign(&statement_of(&request, &decider.by, now, expires));
                self.within("approve", |transaction| {
                    transaction.execute(
                        "UPDATE requests SET state = 'approved', decided = ?2, expires = ?3, decided_by = ?4, method = ?5, signature = ?6 \
                         WHERE id = ?1 AND state = 'pending' AND shown_sha256 = ?7",
                        params![request.id, now, expires, decider.by, decider.method().name(), signature, request.shown_sha256],
                    )
                })?
            }
            Scope::Rule => self.within("close", |transaction| {
                let done =
                    "UPDATE requests SET state = 'granted', decided = ?2, decided_by = ?3, method = ?4 WHERE id = ?1 AND state = 'pending'";
                transaction.execute(done, params![request.id, now, decider.by, decider.method().name()])
            })?,
            Scope::Session | Scope::For(_) => {
                let grant = grants::Grant::of(&request, scope, decider, now)?;
                self.within("grant", |transaction| {
                    let changed = transaction.execute(
                        "UPDATE requests SET state = 'granted', decided = ?2, decided_by = ?3, method = ?4 WHERE id = ?1 AND state = 'pending'",
                        params![request.id, now, decider.by, decider.method().name()],
                    )?;
                    if changed == 1 {
                        grant.insert(transaction)?;
                    }
                    Ok(changed)
                })?
            }
        };
        let after = self.request(id, now)?;
        if changed == 1 { Ok(after) } else { Err(ApprovalError::Decided { id: after.id, state: after.state }) }
    }

    /// Says no to what waits, or to what was approved and not yet used.
    pub fn deny(&mut self, id: &RequestId, by: &str, method: Method, now: i64) -> Result<Request, ApprovalError> {
        let request = self.request(id, now)?;
        let changed = self.within("deny", |transaction| {
            transaction.execute(
                "UPDATE requests SET state = 'denied', decided = ?2, expires = ?3, decided_by = ?4, method = ?5, signature = NULL \
                 WHERE id = ?1 AND state IN ('pending', 'approved')",
                params![request.id, now, now + DENIED_FOR, by, method.name()],
            )
        })?;
        let after = self.request(id, now)?;
        if changed == 1 { Ok(after) } else { Err(ApprovalError::Decided { id: after.id, state: after.state }) }
    }

    /// One request.
    pub fn request(&mut self, id: &RequestId, now: i64) -> Result<Request, ApprovalError> {
        let found = self.within("read", |transaction| {
            pass_time(transaction, now)?;
            let one = format!("SELECT {} FROM requests WHERE id = ?1", Request::COLUMNS);
            transaction.query_row(&one, [id.as_str()], Request::read).optional()
        })?;
        found.ok_or_else(|| ApprovalError::NoRequest(id.to_string()))
    }

    /// One request as it stands, with nothing written: for whoever waits and looks often.
    pub fn look(&self, id: &RequestId, now: i64) -> Result<Request, ApprovalError> {
        let one = format!("SELECT {} FROM requests WHERE id = ?1", Request::COLUMNS);
        let found = self.connection.query_row(&one, [id.as_str()], Request::read).optional();
        let failed = |source| ApprovalError::Database { step: "read", path: self.path.clone(), source };
        let found = found.map_err(failed)?.ok_or_else(|| ApprovalError::NoRequest(id.to_string()))?;
        let ends = matches!(found.state, State::Pending | State::Approved | State::Denied);
        Ok(if ends && found.expires <= now { Request { state: State::Expired, ..found } } else { found })
    }

    /// What waits, the oldest first, with nothing written.
    pub fn pending(&self, now: i64) -> Result<Vec<Request>, ApprovalError> {
        let failed = |source| ApprovalError::Database { step: "list", path: self.path.clone(), source };
        let all =
            format!("SELECT {} FROM requests WHERE state = 'pending' AND expires > ?1 ORDER BY asked, rowid LIMIT ?2", Request::COLUMNS);
        let mut statement = self.connection.prepare(&all).map_err(failed)?;
        let found = statement.query_map(params![now, 2 * MOST_PENDING], Request::read).map_err(failed)?;
        found.collect::<rusqlite::Result<_>>().map_err(failed)
    }

    /// All requests: those that wait first, the oldest of them at the top, then what is over, the latest first.
    pub fn requests(&mut self, now: i64) -> Result<Vec<Request>, ApprovalError> {
        self.within("list", |transaction| {
            pass_time(transaction, now)?;
            let all = format!(
                "SELECT {} FROM requests ORDER BY state <> 'pending', CASE state WHEN 'pending' THEN asked ELSE -asked_last END, rowid LIMIT ?1",
                Request::COLUMNS
            );
            let mut statement = transaction.prepare(&all)?;
            statement.query_map([2 * MOST_PENDING + MOST_KEPT], Request::read)?.collect()
        })
    }

    /// Does something while nobody else changes anything; all of it or nothing.
    pub(crate) fn within<T>(
        &mut self,
        step: &'static str,
        act: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, ApprovalError> {
        let path = &self.path;
        let failed = |source| ApprovalError::Database { step, path: path.clone(), source };
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
        let done = act(&transaction).map_err(failed)?;
        transaction.commit().map_err(failed)?;
        Ok(done)
    }

    fn damaged(&self, what: &str) -> ApprovalError {
        ApprovalError::Damaged { path: self.path.clone(), what: what.to_owned() }
    }
}

/// Ends what has ended by now. A clock that went back ends everything that could be used: nobody knows how long it was meant to last.
pub(crate) fn pass_time(transaction: &Transaction<'_>, now: i64) -> rusqlite::Result<()> {
    let latest: i64 = transaction.query_row("SELECT latest FROM store", [], |row| row.get(0))?;
    if now + SLACK < latest {
        transaction.execute("UPDATE requests SET state = 'expired' WHERE state IN ('pending', 'approved')", [])?;
        transaction.execute("DELETE FROM grants", [])?;
        transaction.execute("UPDATE store SET latest = ?1", [now])?;
    } else if now > latest {
        transaction.execute("UPDATE store SET latest = ?1", [now])?;
    }
    transaction
        .execute("UPDATE requests SET state = 'expired' WHERE state IN ('pending', 'approved', 'denied') AND expires <= ?1", [now])?;
    transaction.execute("DELETE FROM grants WHERE expires <= ?1", [now])?;
    Ok(())
}

/// Why no more may wait for whoever asks. Agents share their room, and each has its part of it; what a person waits for is counted by itself, so that no
/// agent takes their place.
fn crowd(transaction: &Transaction<'_>, principal: &str) -> rusqlite::Result<Option<ApprovalError>> {
    let count = "SELECT count(*) FILTER (WHERE principal = ?1), count(*) FILTER (WHERE substr(principal, 1, 7) = 'Agent::') \
                 FROM requests WHERE state = 'pending'";
    let (own, agents): (i64, i64) = transaction.query_row(count, [principal], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let is_agent = principal.starts_with("Agent::");
    if is_agent && own >= MOST_OF_AGENT {
        return Ok(Some(ApprovalError::TooManyOfAgent));
    }
    let in_its_room = if is_agent { agents } else { own };
    Ok((in_its_room >= MOST_PENDING).then_some(ApprovalError::TooMany))
}

/// Forgets what is over and nobody will look at.
fn forget(transaction: &Transaction<'_>, now: i64) -> rusqlite::Result<()> {
    let over = "state IN ('granted', 'expired', 'used')";
    transaction.execute(&format!("DELETE FROM requests WHERE {over} AND asked_last < ?1"), [now - KEPT_FOR])?;
    transaction.execute(
        &format!(
            "DELETE FROM requests WHERE {over} AND id NOT IN (SELECT id FROM requests WHERE {over} ORDER BY asked_last DESC LIMIT ?1)"
        ),
        [MOST_KEPT],
    )?;
    // A no is kept while it stands; beyond this many the oldest are given up, which asks again and lets nothing through.
    transaction.execute(
        "DELETE FROM requests WHERE state = 'denied' AND id NOT IN (SELECT id FROM requests WHERE state = 'denied' ORDER BY decided DESC LIMIT ?1)",
        [MOST_KEPT],
    )?;
    Ok(())
}

fn is_consented(request: &Request, otherwise: Otherwise<'_>) -> bool {
    matches!(otherwise, Otherwise::Consented { id, .. } if request.state == State::Pending && request.id == id.as_str())
}

pub(super) fn statement_of<'a>(request: &'a Request, by: &'a str, decided: i64, expires: i64) -> Statement<'a> {
    Statement {
        kind: "once",
        id: &request.id,
        digest: &request.digest,
        shown_sha256: &request.shown_sha256,
        principal: &request.principal,
        effect: &request.effect,
        session: None,
        by,
        decided,
        expires,
    }
}

/// Why an approval does not count for a call that shows this.
fn objection(request: &Request, sha256: &str, credential: Option<&Credential>) -> Option<&'static str> {
    let (Some(by), Some(method), Some(decided)) = (&request.by, &request.method, request.decided) else {
        return Some("nobody is said to have given it");
    };
    if request.shown_sha256 != sha256 {
        return Some("what was shown is not this call");
    }
    statement_of(request, by, decided, request.expires).objection(method, request.signature.as_deref(), credential)
}

fn warrant(request: Request) -> Warrant {
    Warrant {
        id: request.id,
        by: request.by.unwrap_or_default(),
        method: request.method.unwrap_or_default(),
        shown_sha256: request.shown_sha256,
    }
}
