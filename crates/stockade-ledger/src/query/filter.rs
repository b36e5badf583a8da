//! What receipts are chosen by, and the cheapest way to find them.
//!
//! The rarest of the given values leads: each is counted up to a bound, and the one with the fewest receipts is looked up, the others are compared.

use jiff::Timestamp;
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension as _, params, params_from_iter};

use crate::facts::{Facts, base_name};
use crate::head::whole;
use crate::writer::BLOCK_LEVEL;

/// Counting goes no further: beyond it one value is as good a leader as another.
const ENOUGH: i64 = 4096;

/// What to look for; nothing given means everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Written at this time or later.
    pub since: Option<Timestamp>,
    /// Written before this time.
    pub until: Option<Timestamp>,
    /// The call.
    pub receipt_id: Option<String>,
    /// What the record is about.
    pub kind: Option<String>,
    /// Who asked.
    pub agent: Option<String>,
    /// In which conversation.
    pub session: Option<String>,
    /// What policy said.
    pub verdict: Option<String>,
    /// Which capability.
    pub capability: Option<String>,
    /// Which program, by its name without directories.
    pub program: Option<String>,
    /// Which sandbox, by id (by backend, where a record has no id).
    pub sandbox: Option<String>,
    /// Which host was tried.
    pub host: Option<String>,
    /// Which secret was used.
    pub secret: Option<String>,
}

/// A statement that gives numbers of receipts, newest first, and what belongs into it.
pub(super) struct Plan {
    pub(super) sql: String,
    pub(super) values: Vec<Value>,
}

/// One condition that an index serves.
struct Lead {
    served: Served,
    /// The condition where another one leads.
    compared: &'static str,
    values: Vec<String>,
}

/// What serves it.
#[derive(Clone, Copy)]
enum Served {
    /// An index of the facts themselves, by this condition.
    Facts(&'static str),
    /// A table of its own, which is gone through in the order of numbers.
    Table { name: &'static str, column: &'static str },
}

impl Served {
    /// The beginning of a statement that this condition leads, up to the bounds on numbers, and what those are called.
    fn beginning(self, chosen: &str) -> (String, String) {
        match self {
            Self::Facts(condition) => (format!("SELECT {chosen} FROM facts WHERE {condition}"), "seq".to_owned()),
            Self::Table { name, column } => {
                let sql = format!("SELECT {chosen} FROM {name} CROSS JOIN facts ON facts.seq = {name}.seq WHERE {name}.{column} = ?");
                (sql, format!("{name}.seq"))
            }
        }
    }
}

impl Filter {
    /// Whether a receipt is meant.
    pub(crate) fn matches(&self, facts: &Facts) -> bool {
        let is = |wanted: &Option<String>, found: Option<&String>| wanted.as_ref().is_none_or(|wanted| found == Some(wanted));
        let program = self.program.as_deref().map(base_name);
        self.since.is_none_or(|since| facts.time >= since.as_microsecond())
            && self.until.is_none_or(|until| facts.time < until.as_microsecond())
            && is(&self.receipt_id, Some(&facts.receipt_id))
            && is(&self.kind, Some(&facts.kind))
            && is(&self.agent, facts.agent.as_ref())
            && is(&self.session, facts.session.as_ref())
            && is(&self.verdict, facts.verdict.as_ref())
            && is(&self.capability, facts.capability.as_ref())
            && is(&program, facts.program.as_ref())
            && is(&self.sandbox, facts.sandbox.as_ref())
            && self.host.as_ref().is_none_or(|host| facts.hosts.contains(host))
            && self.secret.as_ref().is_none_or(|secret| facts.secrets.contains(secret))
    }

    /// How to find what matches below a number; `None` where the times rule everything out.
    pub(super) fn plan(&self, connection: &Connection, before: u64) -> Result<Option<Plan>, rusqlite::Error> {
        let Some((from, to)) = self.stretch(connection, before)? else { return Ok(None) };
        let mut leads = self.leads();
        let mut best: Option<(i64, usize)> = None;
        for (index, lead) in leads.iter().enumerate() {
            let many = count(connection, lead, from, to)?;
            if best.is_none_or(|(fewest, _)| many < fewest) {
                best = Some((many, index));
            }
        }
        let leader = best.map(|(_, index)| leads.remove(index));
        let (mut sql, seq) = leader.as_ref().map_or(Served::Facts("true"), |lead| lead.served).beginning("facts.seq");
        let mut values: Vec<Value> = leader.into_iter().flat_map(|lead| lead.values).map(Value::Text).collect();
        sql.extend([" AND ", &seq, " >= ? AND ", &seq, " < ?"]);
        values.extend([Value::Integer(from), Value::Integer(to)]);
        for (bound, time) in [(" AND +time >= ?", self.since), (" AND +time < ?", self.until)] {
            if let Some(time) = time {
                sql.push_str(bound);
                values.push(Value::Integer(time.as_microsecond()));
            }
        }
        for lead in leads {
            sql.push_str(" AND ");
            sql.push_str(lead.compared);
            values.extend(lead.values.into_iter().map(Value::Text));
        }
        sql.extend([" ORDER BY ", &seq, " DESC"]);
        Ok(Some(Plan { sql, values }))
    }

    /// Between which numbers the times lie: whole blocks, since the clock may have gone backwards within them.
    fn stretch(&self, connection: &Connection, before: u64) -> Result<Option<(i64, i64)>, rusqlite::Error> {
        let (mut from, mut to) = (0, whole(before));
        let block = |sql: &str, time: Timestamp| -> Result<Option<i64>, rusqlite::Error> {
            connection.prepare_cached(sql)?.query_row(params![time.as_microsecond()], |row| row.get(0)).optional()
        };
        if let Some(since) = self.since {
            match block("SELECT block FROM fact_times WHERE most >= ?1 ORDER BY block LIMIT 1", since)? {
                Some(first) => from = first << BLOCK_LEVEL,
                None => return Ok(None),
            }
        }
        if let Some(until) = self.until {
            match block("SELECT block FROM fact_times WHERE least < ?1 ORDER BY block DESC LIMIT 1", until)? {
                Some(last) => to = to.min((last + 1) << BLOCK_LEVEL),
                None => return Ok(None),
            }
        }
        Ok((from < to).then_some((from, to)))
    }

    fn leads(&self) -> Vec<Lead> {
        let Self { receipt_id, kind, agent, session, verdict, capability, program, sandbox, host, secret, since: _, until: _ } = self;
        let program = program.as_deref().map(base_name);
        let mut leads = Vec::new();
        let mut one = |value: &Option<String>, served, compared| {
            leads.extend(value.iter().map(|value| Lead { served, compared, values: vec![value.clone()] }));
        };
        one(receipt_id, Served::Facts("receipt_id = ?"), "+receipt_id = ?");
        one(session, Served::Facts("session = ?"), "+session = ?");
        one(capability, Served::Facts("capability = ?"), "+capability = ?");
        one(sandbox, Served::Facts("sandbox = ?"), "+sandbox = ?");
        one(kind, Served::Facts("kind = ?"), "+kind = ?");
        let hosts = "EXISTS (SELECT 1 FROM fact_hosts AS h WHERE h.host = ? AND h.seq = facts.seq)";
        one(host, Served::Table { name: "fact_hosts", column: "host" }, hosts);
        let secrets = "EXISTS (SELECT 1 FROM fact_secrets AS s WHERE s.secret = ? AND s.seq = facts.seq)";
        one(secret, Served::Table { name: "fact_secrets", column: "secret" }, secrets);
        one(agent, Served::Facts("agent = ?"), "+agent = ?");
        one(&program, Served::Facts("program = ?"), "+program = ?");
        one(verdict, Served::Facts("verdict = ?"), "+verdict = ?");
        let mut pair = |first: &Option<String>, second: &Option<String>, served, compared| {
            if let (Some(first), Some(second)) = (first, second) {
                leads.push(Lead { served: Served::Facts(served), compared, values: vec![first.clone(), second.clone()] });
            }
        };
        pair(agent, verdict, "agent = ? AND verdict = ?", "(+agent = ? AND +verdict = ?)");
        pair(agent, &program, "agent = ? AND program = ?", "(+agent = ? AND +program = ?)");
        pair(&program, verdict, "program = ? AND verdict = ?", "(+program = ? AND +verdict = ?)");
        leads
    }
}

/// How many receipts one condition has, as far as it matters.
fn count(connection: &Connection, lead: &Lead, from: i64, to: i64) -> Result<i64, rusqlite::Error> {
    let (beginning, seq) = match lead.served {
        // The facts themselves need not be looked at to count.
        Served::Table { name, column } => (format!("SELECT 1 FROM {name} WHERE {column} = ?"), "seq".to_owned()),
        Served::Facts(_) => lead.served.beginning("1"),
    };
    let sql = format!("SELECT count(*) FROM ({beginning} AND {seq} >= ? AND {seq} < ? LIMIT {ENOUGH})");
    let values = lead.values.iter().cloned().map(Value::Text).chain([Value::Integer(from), Value::Integer(to)]);
    connection.prepare_cached(&sql)?.query_row(params_from_iter(values), |row| row.get(0))
}
