//! What somebody outside is to be told: that a request waits, and what became of it.
//!
//! The store remembers for each request the state that was told last, so that nothing is told twice and a server that ends in between leaves the rest
//! to the next. Who is told, and how, is not known here.

use std::fs::File;

use rusqlite::{Row, Transaction, params};

use super::binding::shown_sha256;
use super::database;
use super::error::ApprovalError;
use super::request::{Request, State};
use super::store::{Store, pass_time};

/// What is given out at a time.
const MOST: i64 = 32;
/// What was decided before anybody was told that it waited is news for so many seconds.
const RECENT: i64 = 300;
/// The lock of whoever tells, beside the database.
const LOCK: &str = "telling.lock";

/// What happened to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Happened {
    /// It waits for a person.
    Requested,
    /// A person, or the client of whoever asked, decided.
    Decided,
    /// Nobody decided in time, or what was approved was not used in time.
    Expired,
}

impl Happened {
    /// The word for others.
    pub fn name(self) -> &'static str {
        match self {
            Self::Requested => "approval.requested",
            Self::Decided => "approval.decided",
            Self::Expired => "approval.expired",
        }
    }
}

/// Something to tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct News {
    /// What happened.
    pub happened: Happened,
    /// To which request, as it stands.
    pub request: Request,
}

/// Somebody outside who is told.
#[derive(Debug, Clone, Copy)]
pub struct Listener<'a> {
    /// What settings call them. Only its digest is kept: a URL may be a secret.
    pub name: &'a str,
    /// Since when they listen, in seconds since 1970.
    pub since: i64,
}

/// Whoever holds this tells, and nobody else does.
#[derive(Debug)]
pub struct Telling {
    _lock: File,
}

impl Store {
    /// Takes it upon this process to tell; `None` while another does.
    pub fn begin_telling(&mut self, listener: &Listener<'_>) -> Result<Option<Telling>, ApprovalError> {
        let Some(lock) = database::lock(&self.path, LOCK)? else { return Ok(None) };
        self.within("tell of", |transaction| welcome(transaction, listener))?;
        Ok(Some(Telling { _lock: lock }))
    }

    /// What is to be told, the oldest first. Nothing is written where there is nothing.
    pub fn news(&mut self, _telling: &Telling, now: i64) -> Result<Vec<News>, ApprovalError> {
        let due =
            "SELECT EXISTS (SELECT 1 FROM requests WHERE told <> state OR (state IN ('pending', 'approved', 'denied') AND expires <= ?1))";
        let failed = |source| ApprovalError::Database { step: "tell of", path: self.path.clone(), source };
        if !self.connection.query_row(due, [now], |row| row.get::<_, bool>(0)).map_err(failed)? {
            return Ok(Vec::new());
        }
        self.within("tell of", |transaction| {
            pass_time(transaction, now)?;
            let open = format!("SELECT {}, told FROM requests WHERE told <> state ORDER BY asked, rowid LIMIT ?1", Request::COLUMNS);
            let mut statement = transaction.prepare(&open)?;
            let rows = statement.query_map([MOST], read)?.collect::<rusqlite::Result<Vec<_>>>()?;
            let mut news = Vec::new();
            for (request, told) in rows {
                match happened(&request, &told, now) {
                    Some(happened) => news.push(News { happened, request }),
                    None => mark(transaction, &request.id, request.state)?,
                }
            }
            Ok(news)
        })
    }

    /// It was told, or is given up.
    pub fn told(&mut self, _telling: &Telling, news: &News) -> Result<(), ApprovalError> {
        self.within("tell of", |transaction| mark(transaction, &news.request.id, news.request.state))
    }
}

/// Where somebody else listens than did before, what was over by then is no news to them, and what waits is, also where it was told to the other.
fn welcome(transaction: &Transaction<'_>, listener: &Listener<'_>) -> rusqlite::Result<()> {
    let (name, since) = (shown_sha256(listener.name), listener.since);
    let before: String = transaction.query_row("SELECT listener FROM store", [], |row| row.get(0))?;
    if before == name {
        return Ok(());
    }
    let over = "UPDATE requests SET told = state WHERE state <> 'pending' AND coalesce(decided, expires) < ?1";
    transaction.execute(over, [since])?;
    if !before.is_empty() {
        transaction.execute("UPDATE requests SET told = '' WHERE state = 'pending'", [])?;
    }
    transaction.execute("UPDATE store SET listener = ?1", [name]).map(drop)
}

fn read(row: &Row<'_>) -> rusqlite::Result<(Request, String)> {
    Ok((Request::read(row)?, row.get("told")?))
}

fn mark(transaction: &Transaction<'_>, id: &str, state: State) -> rusqlite::Result<()> {
    transaction.execute("UPDATE requests SET told = ?2 WHERE id = ?1", params![id, state.name()]).map(drop)
}

/// What a request that was last told of as `told` has come to; `None` where nobody need know.
fn happened(request: &Request, told: &str, now: i64) -> Option<Happened> {
    let was = |state: State| told == state.name();
    // What was over before anybody listened is no news.
    let is_recent = !told.is_empty() || request.decided.is_some_and(|decided| decided + RECENT >= now);
    match request.state {
        State::Pending => Some(Happened::Requested),
        State::Approved | State::Granted | State::Denied => is_recent.then_some(Happened::Decided),
        State::Used => (is_recent && !was(State::Approved)).then_some(Happened::Decided),
        State::Expired => (was(State::Pending) || was(State::Approved)).then_some(Happened::Expired),
    }
}
