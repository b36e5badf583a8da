//! What receipts are looked for by, taken out of them some hundreds at a time.
//!
//! Kept out of the way of writing: a receipt costs three pages, its place in nine indexes would cost a dozen more. Who looks for something reads the
//! receipts that are not yet indexed one by one.

use rusqlite::{Connection, params};
use serde_json::Value;

use crate::head::whole;
use crate::writer::BLOCK_LEVEL;

/// What one receipt can be found by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) receipt_id: String,
    /// Microseconds since 1970.
    pub(crate) time: i64,
    pub(crate) kind: String,
    pub(crate) agent: Option<String>,
    pub(crate) session: Option<String>,
    pub(crate) verdict: Option<String>,
    pub(crate) capability: Option<String>,
    pub(crate) program: Option<String>,
    pub(crate) sandbox: Option<String>,
    pub(crate) hosts: Vec<String>,
    pub(crate) secrets: Vec<String>,
}

impl Facts {
    /// Reads them off a receipt. What is not there is not there: a receipt that says nothing can still be listed.
    pub(crate) fn of(body: &[u8]) -> Self {
        let value: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
        let text = |path: &str| value.pointer(path).and_then(Value::as_str).map(str::to_owned);
        let each = |list: &str, member: &str| -> Vec<String> {
            let items = value.get(list).and_then(Value::as_array);
            let mut found: Vec<String> =
                items.into_iter().flatten().filter_map(|item| item.get(member)?.as_str()).map(str::to_owned).collect();
            found.sort_unstable();
            found.dedup();
            found
        };
        let mut secrets = each("network", "secret");
        secrets.extend(each("credentials", "id"));
        secrets.sort_unstable();
        secrets.dedup();
        let first_argument = || value.pointer("/argv/0").and_then(Value::as_str).map(str::to_owned);
        Self {
            receipt_id: text("/receipt_id").unwrap_or_default(),
            time: text("/time").and_then(|time| time.parse::<jiff::Timestamp>().ok()).map_or(0, jiff::Timestamp::as_microsecond),
            kind: text("/kind").unwrap_or_default(),
            agent: text("/principal/agent"),
            session: text("/principal/session"),
            verdict: text("/policy/verdict"),
            capability: text("/capability"),
            program: text("/program/path").or_else(first_argument).map(|path| base_name(&path)),
            sandbox: text("/sandbox/id").or_else(|| text("/sandbox/backend")),
            hosts: each("network", "host"),
            secrets,
        }
    }

    /// Writes them.
    fn insert(&self, connection: &Connection, seq: u64) -> Result<(), rusqlite::Error> {
        let Self { receipt_id, time, kind, agent, session, verdict, capability, program, sandbox, hosts, secrets } = self;
        connection.prepare_cached("INSERT OR REPLACE INTO facts VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)")?.execute(params![
            whole(seq),
            receipt_id,
            time,
            kind,
            agent,
            session,
            verdict,
            capability,
            program,
            sandbox
        ])?;
        let sql = "INSERT INTO fact_times VALUES (?1, ?2, ?2) ON CONFLICT DO UPDATE SET least = min(least, ?2), most = max(most, ?2)";
        connection.prepare_cached(sql)?.execute(params![whole(seq >> BLOCK_LEVEL), time])?;
        for host in hosts {
            connection.prepare_cached("INSERT OR IGNORE INTO fact_hosts VALUES (?1, ?2)")?.execute(params![host, whole(seq)])?;
        }
        for secret in secrets {
            connection.prepare_cached("INSERT OR IGNORE INTO fact_secrets VALUES (?1, ?2)")?.execute(params![secret, whole(seq)])?;
        }
        Ok(())
    }

    /// Whether this is what is stored of a receipt. Rows beyond it do no harm: whoever finds a receipt looks at the receipt.
    pub(crate) fn are_stored(&self, connection: &Connection, seq: u64) -> Result<bool, rusqlite::Error> {
        let Self { receipt_id, time, kind, agent, session, verdict, capability, program, sandbox, hosts, secrets } = self;
        let sql = "SELECT EXISTS (SELECT 1 FROM facts WHERE seq = ?1 AND receipt_id = ?2 AND time = ?3 AND kind = ?4 AND agent IS ?5 \
                   AND session IS ?6 AND verdict IS ?7 AND capability IS ?8 AND program IS ?9 AND sandbox IS ?10)";
        let values = params![whole(seq), receipt_id, time, kind, agent, session, verdict, capability, program, sandbox];
        let mut is_stored: bool = connection.prepare_cached(sql)?.query_row(values, |row| row.get(0))?;
        let lists = [
            ("SELECT EXISTS (SELECT 1 FROM fact_hosts WHERE host = ?1 AND seq = ?2)", hosts),
            ("SELECT EXISTS (SELECT 1 FROM fact_secrets WHERE secret = ?1 AND seq = ?2)", secrets),
        ];
        for (sql, names) in lists {
            for name in names {
                is_stored &= connection.prepare_cached(sql)?.query_row::<bool, _, _>(params![name, whole(seq)], |row| row.get(0))?;
            }
        }
        let sql = "SELECT EXISTS (SELECT 1 FROM fact_times WHERE block = ?1 AND least <= ?2 AND most >= ?2)";
        is_stored &= connection.prepare_cached(sql)?.query_row::<bool, _, _>(params![whole(seq >> BLOCK_LEVEL), time], |row| row.get(0))?;
        Ok(is_stored)
    }
}

/// The last part of a path: people look for `git`, wherever it is.
pub(crate) fn base_name(path: &str) -> String {
    path.rsplit('/').next().unwrap_or(path).to_owned()
}

/// Indexes receipts from one number up to another, but not too many at a time. Returns how far it got.
pub(crate) fn index(connection: &Connection, from: u64, to: u64) -> Result<u64, rusqlite::Error> {
    const MOST: u64 = 4096;
    let to = to.min(from.saturating_add(MOST));
    let mut statement = connection.prepare_cached("SELECT seq, body FROM receipts WHERE seq >= ?1 AND seq < ?2 ORDER BY seq")?;
    let mut rows = statement.query(params![whole(from), whole(to)])?;
    while let Some(row) = rows.next()? {
        let seq: i64 = row.get(0)?;
        let body = row.get_ref(1)?.as_blob().unwrap_or_default();
        Facts::of(body).insert(connection, u64::try_from(seq).unwrap_or(0))?;
    }
    Ok(to)
}
