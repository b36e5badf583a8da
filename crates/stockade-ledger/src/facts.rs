//! What receipts are looked for by, taken out of them some hundreds at a time.
//!
//! Kept out of the way of writing: a receipt costs three pages, its place in nine indexes would cost a dozen more. Who looks for something reads the
//! receipts that are not yet indexed one by one.

use std::collections::BTreeMap;

use rusqlite::{CachedStatement, Connection, params};
use serde::Deserialize;
use serde::de::IgnoredAny;
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
    /// The digest of the sandbox's configuration; receipts are not looked for by it.
    pub(crate) configuration: Option<String>,
    /// Path and digest of what ran, where this is how it ended; likewise.
    pub(crate) ran: Option<(String, String)>,
}

impl Facts {
    /// Reads them off a receipt. What is not there is not there: a receipt that says nothing can still be listed.
    pub(crate) fn of(body: &[u8]) -> Self {
        // Receipts as this program writes them are read without a tree of values, which costs three times as much.
        serde_json::from_slice::<Told>(body).ok().and_then(Told::facts).unwrap_or_else(|| Self::of_any(body))
    }

    /// Reads them off anything.
    fn of_any(body: &[u8]) -> Self {
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
        let ran = || Some((text("/program/path")?, text("/program/sha256")?));
        let first_argument = || value.pointer("/argv/0").and_then(Value::as_str).map(str::to_owned);
        Self {
            receipt_id: text("/receipt_id").unwrap_or_default(),
            time: microseconds(text("/time").as_deref()),
            kind: text("/kind").unwrap_or_default(),
            agent: text("/principal/agent"),
            session: text("/principal/session"),
            verdict: text("/policy/verdict"),
            capability: text("/capability"),
            program: text("/program/path").or_else(first_argument).map(|path| base_name(&path)),
            sandbox: text("/sandbox/id").or_else(|| text("/sandbox/backend")),
            hosts: each("network", "host"),
            secrets,
            configuration: text("/sandbox/spec_digest"),
            ran: if text("/kind").as_deref() == Some("outcome") { ran() } else { None },
        }
    }

    /// Whether this is what is stored of a receipt. Rows beyond it do no harm: whoever finds a receipt looks at the receipt.
    pub(crate) fn are_stored(&self, connection: &Connection, seq: u64) -> Result<bool, rusqlite::Error> {
        let Self { receipt_id, time, kind, agent, session, verdict, capability, program, sandbox, hosts, secrets, .. } = self;
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

/// A receipt as far as it is looked for.
#[derive(Deserialize)]
struct Told {
    receipt_id: Option<String>,
    time: Option<String>,
    kind: Option<String>,
    principal: Option<ToldPrincipal>,
    policy: Option<ToldPolicy>,
    capability: Option<String>,
    program: Option<ToldProgram>,
    argv: Option<IgnoredAny>,
    sandbox: Option<ToldSandbox>,
    #[serde(default)]
    network: Vec<ToldReached>,
    #[serde(default)]
    credentials: Vec<ToldCredential>,
}

#[derive(Deserialize)]
struct ToldPrincipal {
    agent: Option<String>,
    session: Option<String>,
}

#[derive(Deserialize)]
struct ToldPolicy {
    verdict: Option<String>,
}

#[derive(Deserialize)]
struct ToldProgram {
    path: Option<String>,
    sha256: Option<String>,
}

#[derive(Deserialize)]
struct ToldSandbox {
    id: Option<String>,
    backend: Option<String>,
    spec_digest: Option<String>,
}

#[derive(Deserialize)]
struct ToldReached {
    host: Option<String>,
    secret: Option<String>,
}

#[derive(Deserialize)]
struct ToldCredential {
    id: Option<String>,
}

impl Told {
    /// The same as [`Facts::of_any`] finds; `None` where only that can tell.
    fn facts(self) -> Option<Facts> {
        let (agent, session) = self.principal.map_or((None, None), |principal| (principal.agent, principal.session));
        let (path, sha256) = self.program.map_or((None, None), |program| (program.path, program.sha256));
        if path.is_none() && self.argv.is_some() {
            return None;
        }
        let (id, backend, configuration) =
            self.sandbox.map_or((None, None, None), |sandbox| (sandbox.id, sandbox.backend, sandbox.spec_digest));
        let (hosts, secrets): (Vec<_>, Vec<_>) = self.network.into_iter().map(|reached| (reached.host, reached.secret)).unzip();
        let sorted = |names: &mut dyn Iterator<Item = String>| {
            let mut names: Vec<String> = names.collect();
            names.sort_unstable();
            names.dedup();
            names
        };
        let secrets = secrets.into_iter().chain(self.credentials.into_iter().map(|credential| credential.id));
        let kind = self.kind.unwrap_or_default();
        Some(Facts {
            receipt_id: self.receipt_id.unwrap_or_default(),
            time: microseconds(self.time.as_deref()),
            agent,
            session,
            verdict: self.policy.and_then(|policy| policy.verdict),
            capability: self.capability,
            program: path.as_deref().map(base_name),
            sandbox: id.or(backend),
            hosts: sorted(&mut hosts.into_iter().flatten()),
            secrets: sorted(&mut secrets.flatten()),
            configuration,
            ran: if kind == "outcome" { path.zip(sha256) } else { None },
            kind,
        })
    }
}

/// A receipt's time; 0 where it says none.
fn microseconds(time: Option<&str>) -> i64 {
    time.and_then(|time| time.parse::<jiff::Timestamp>().ok()).map_or(0, jiff::Timestamp::as_microsecond)
}

/// Indexes receipts from one number up to another, but not too many at a time. Returns how far it got.
pub(crate) fn index(connection: &Connection, from: u64, to: u64) -> Result<u64, rusqlite::Error> {
    const MOST: u64 = 4096;
    let to = to.min(from.saturating_add(MOST));
    // What stands there already is nobody's. An insert that may replace a row would have to keep a copy of a dozen pages, each time.
    connection.prepare_cached("DELETE FROM facts WHERE seq >= ?1")?.execute([whole(from)])?;
    let mut insert = Insert::new(connection)?;
    let mut statement = connection.prepare_cached("SELECT seq, body FROM receipts WHERE seq >= ?1 AND seq < ?2 ORDER BY seq")?;
    let mut rows = statement.query(params![whole(from), whole(to)])?;
    while let Some(row) = rows.next()? {
        let seq: i64 = row.get(0)?;
        insert.add(seq, &Facts::of(row.get_ref(1)?.as_blob().unwrap_or_default()))?;
    }
    insert.finish()?;
    Ok(to)
}

/// Writes facts.
struct Insert<'a> {
    facts: CachedStatement<'a>,
    hosts: CachedStatement<'a>,
    secrets: CachedStatement<'a>,
    connection: &'a Connection,
    /// The first and the last moment of each block.
    times: BTreeMap<i64, (i64, i64)>,
}

impl<'a> Insert<'a> {
    fn new(connection: &'a Connection) -> Result<Self, rusqlite::Error> {
        Ok(Self {
            facts: connection.prepare_cached("INSERT INTO facts VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)")?,
            hosts: connection.prepare_cached("INSERT OR IGNORE INTO fact_hosts VALUES (?1, ?2)")?,
            secrets: connection.prepare_cached("INSERT OR IGNORE INTO fact_secrets VALUES (?1, ?2)")?,
            connection,
            times: BTreeMap::new(),
        })
    }

    fn add(&mut self, seq: i64, facts: &Facts) -> Result<(), rusqlite::Error> {
        let Facts { receipt_id, time, kind, agent, session, verdict, capability, program, sandbox, hosts, secrets, .. } = facts;
        self.facts.execute(params![seq, receipt_id, time, kind, agent, session, verdict, capability, program, sandbox])?;
        for host in hosts {
            self.hosts.execute(params![host, seq])?;
        }
        for secret in secrets {
            self.secrets.execute(params![secret, seq])?;
        }
        let (least, most) = self.times.entry(seq >> BLOCK_LEVEL).or_insert((*time, *time));
        (*least, *most) = ((*least).min(*time), (*most).max(*time));
        Ok(())
    }

    fn finish(self) -> Result<(), rusqlite::Error> {
        let sql = "INSERT INTO fact_times VALUES (?1, ?2, ?3) ON CONFLICT DO UPDATE SET least = min(least, ?2), most = max(most, ?3)";
        let mut statement = self.connection.prepare_cached(sql)?;
        for (block, (least, most)) in self.times {
            statement.execute(params![block, least, most])?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn both_ways_of_reading_find_the_same() {
        let whole = json!({
            "receipt_id": "x", "time": "2026-01-01T00:00:00.000001Z", "kind": "outcome", "principal": {"agent": "a/\u{e9}\n", "session": "s", "human": "h"},
            "policy": {"verdict": "deny", "rule": "r"}, "capability": "c", "program": {"path": "/usr/bin/git", "sha256": "00"}, "argv": ["git"],
            "sandbox": {"id": "1", "backend": "jail", "spec_digest": "11"}, "network": [{"host": "b", "secret": "k"}, {"host": "a"}, {"host": "b"}],
            "credentials": [{"id": "k"}, {"id": "j"}], "prev": "00", "seq": 7,
        });
        let found = Facts::of(whole.to_string().as_bytes());
        assert_eq!((found.hosts.len(), found.secrets.len(), found.time), (2, 2, 1_767_225_600_000_001));
        assert_eq!((found.program.as_deref(), found.agent.as_deref()), (Some("git"), Some("a/\u{e9}\n")));
        // Whatever of it is missing, or is something else than it should be.
        for name in whole.as_object().unwrap().keys() {
            for other in
                [None, Some(json!(null)), Some(json!(7)), Some(json!([])), Some(json!({})), Some(json!("text")), Some(json!([{"id": 7}]))]
            {
                let mut changed = whole.clone();
                match &other {
                    Some(value) => changed[name] = value.clone(),
                    None => drop(changed.as_object_mut().unwrap().remove(name)),
                }
                let body = changed.to_string();
                assert_eq!(Facts::of(body.as_bytes()), Facts::of_any(body.as_bytes()), "{body}");
            }
        }
        for body in ["", "[]", "null", "{", "7"] {
            assert_eq!(Facts::of(body.as_bytes()), Facts::of_any(body.as_bytes()), "{body}");
        }
    }
}
