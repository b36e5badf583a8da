//! A request as it is kept, and its id.

use rusqlite::Row;
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ValueRef};

/// Digits of an id.
const DIGITS: usize = 12;

/// The name of a request or a grant: random, so that it says nothing and is never used twice.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId(String);

impl RequestId {
    /// A fresh one; `None` where the system gives no random numbers.
    pub(crate) fn fresh() -> Option<Self> {
        let mut bytes = [0; DIGITS / 2];
        aws_lc_rs::rand::fill(&mut bytes).ok()?;
        Some(Self(super::binding::hex(&bytes)))
    }

    /// From text; `None` where that is no id.
    pub fn parse(text: &str) -> Option<Self> {
        let is_one = text.len() == DIGITS && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
        is_one.then(|| Self(text.to_owned()))
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for RequestId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where a request stands; drawn in the module's documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// A person is to decide.
    Pending,
    /// The next such call may run.
    Approved,
    /// A grant stands in its place.
    Granted,
    /// It may not run; asking again does not help for a while.
    Denied,
    /// Nobody decided in time, or nobody used it in time.
    Expired,
    /// A call ran with it.
    Used,
}

impl State {
    /// The word in files and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Approved => "approved",
            Self::Granted => "granted",
            Self::Denied => "denied",
            Self::Expired => "expired",
            Self::Used => "used",
        }
    }
}

impl FromSql for State {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let all = [Self::Pending, Self::Approved, Self::Granted, Self::Denied, Self::Expired, Self::Used];
        let word = value.as_str()?;
        all.into_iter().find(|state| state.name() == word).ok_or(FromSqlError::InvalidType)
    }
}

/// A call that a person decides about. Times are seconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Its name.
    pub id: String,
    /// What it is bound to.
    pub digest: String,
    /// Where it stands.
    pub state: State,
    /// When it was first asked for.
    pub asked: i64,
    /// When it was last asked for.
    pub asked_last: i64,
    /// How often it was asked for.
    pub times: i64,
    /// When the state ends by itself.
    pub expires: i64,
    /// Who asks.
    pub principal: String,
    /// From which session, where one can be recognised.
    pub session: Option<String>,
    /// What it does: `read`, `write` or `destructive`.
    pub effect: String,
    /// The call in one line; the whole of it is in `shown`.
    pub title: String,
    /// Everything that a person is to see, line by line, escaped.
    pub shown: String,
    /// The digest of that.
    pub shown_sha256: String,
    /// Rules that would let it through without asking.
    pub rules: Vec<String>,
    /// The receipt of the call that asked first.
    pub receipt: String,
    /// When it was decided.
    pub decided: Option<i64>,
    /// By whom.
    pub by: Option<String>,
    /// How they showed who they are.
    pub method: Option<String>,
    pub(super) signature: Option<Vec<u8>>,
}

impl Request {
    /// The columns that [`Self::read`] reads.
    pub(super) const COLUMNS: &str = "id, digest, state, asked, asked_last, times, expires, principal, session, effect, title, shown, \
                                      shown_sha256, rules, receipt, decided, decided_by, method, signature";

    pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let rules: String = row.get(13)?;
        Ok(Self {
            id: row.get(0)?,
            digest: row.get(1)?,
            state: row.get(2)?,
            asked: row.get(3)?,
            asked_last: row.get(4)?,
            times: row.get(5)?,
            expires: row.get(6)?,
            principal: row.get(7)?,
            session: row.get(8)?,
            effect: row.get(9)?,
            title: row.get(10)?,
            shown: row.get(11)?,
            shown_sha256: row.get(12)?,
            rules: serde_json::from_str(&rules).unwrap_or_default(),
            receipt: row.get(14)?,
            decided: row.get(15)?,
            by: row.get(16)?,
            method: row.get(17)?,
            signature: row.get(18)?,
        })
    }
}
