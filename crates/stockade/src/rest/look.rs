//! What only says something: the server, capabilities and receipts. No rule is asked but which capabilities an agent is offered.

use serde_json::{Value, json};
use stockade_ledger::query::{Filter, Page};
use stockade_ledger::receipt::ReceiptId;
use stockade_store::packs::Packs;

use super::answer::{Problem, Reply};
use super::asked::Asked;
use crate::commands::{cap, pack, receipts};
use crate::engine::asker::AgentName;
use crate::mcp::Session;
use crate::mcp::granted::Granted;
use crate::receipts::book;

/// Receipts of one page where nobody said otherwise, and at most.
const PAGE: u64 = 50;
/// The most that may be asked for at once.
pub(super) const MOST_ON_A_PAGE: u64 = 1000;
/// What receipts can be.
pub(super) const KINDS: [&str; 8] = ["intent", "outcome", "denied", "approval", "credential", "network", "lifecycle", "checkpoint"];
/// What policy can say.
pub(super) const VERDICTS: [&str; 3] = ["allow", "ask", "deny"];

/// `GET /v1/health`
pub(super) fn health(asked: &Asked, session: &Session) -> Result<Reply, Problem> {
    asked.query().finish()?;
    Ok(Reply::saying(json!({
        "status": "ok",
        "version": env!("CARGO_PKG_VERSION"),
        "principal": asked.asker.agent().map(AgentName::whole),
        "workspace": session.workspace.to_string_lossy(),
        "calls": session.calls.count(),
    })))
}

/// `GET /v1/openapi.json`
pub(super) fn document(asked: &Asked, _: &Session) -> Result<Reply, Problem> {
    asked.query().finish()?;
    Ok(Reply::saying(super::openapi::document()))
}

/// `GET /v1/capabilities`: those that rules let the asker call with some inputs, as `cap list --json` prints them.
pub(super) fn capabilities(asked: &Asked, session: &Session) -> Result<Reply, Problem> {
    asked.query().finish()?;
    let granted = Granted::to(&asked.asker, session)?;
    let packs = packs(session)?;
    let is_granted = |name: &str| granted.capabilities.values().any(|capability| capability.name.as_str() == name);
    let all = packs.packs.iter().flat_map(|pack| pack.capabilities.iter().map(move |capability| (pack, capability)));
    let listed = all.filter(|(_, capability)| is_granted(capability.facts.name.as_str()));
    let listed: Vec<Value> = listed.map(|(pack, capability)| cap::listed(pack, capability)).collect();
    Ok(Reply::saying(json!({ "capabilities": listed })))
}

/// `GET /v1/capabilities/{name}`: as `cap show --json` prints it.
pub(super) fn capability(asked: &Asked, session: &Session) -> Result<Reply, Problem> {
    asked.query().finish()?;
    let name = asked.part(0);
    let packs = packs(session)?;
    let granted = Granted::to(&asked.asker, session)?;
    let known = granted.capabilities.values().find(|capability| capability.name.as_str() == name);
    let known = known.ok_or_else(|| Problem::nothing("capability", name))?;
    let (pack, capability) = packs.capability(known.name.as_str()).map_err(|error| pack::failure(&error))?;
    Ok(Reply::saying(cap::described(pack, &capability)))
}

/// All packs that verified.
pub(super) fn packs(session: &Session) -> Result<Packs, Problem> {
    Ok(Packs::load(session.context.places()?).map_err(|error| pack::failure(&error))?)
}

/// `GET /v1/receipts`: the asker's own, newest first, as `receipts list --json` prints them.
pub(super) fn receipts(asked: &Asked, session: &Session) -> Result<Reply, Problem> {
    let mut query = asked.query();
    let moment = |text: Option<&str>| text.map(|text| receipts::filter::time(text, jiff::Timestamp::now())).transpose();
    let word = |name: &str, text: Option<&str>, known: &[&str]| match text {
        Some(text) if !known.contains(&text) => Err(Problem::malformed(format!("`{name}` must be one of {}", known.join(", ")))),
        text => Ok(text.map(str::to_owned)),
    };
    let filter = Filter {
        since: moment(query.take("since"))?,
        until: moment(query.take("until"))?,
        kind: word("kind", query.take("kind"), &KINDS)?,
        verdict: word("verdict", query.take("verdict"), &VERDICTS)?,
        capability: query.take("capability").map(str::to_owned),
        program: query.take("program").map(str::to_owned),
        sandbox: query.take("sandbox").map(str::to_owned),
        host: query.take("host").map(str::to_owned),
        agent: asked.asker.agent().map(AgentName::whole),
        ..Filter::default()
    };
    let before = query.number("before")?;
    let limit = query.number("limit")?.unwrap_or(PAGE);
    query.finish()?;
    if !(1..=MOST_ON_A_PAGE).contains(&limit) {
        return Err(Problem::malformed(format!("`limit` must lie between 1 and {MOST_ON_A_PAGE}")));
    }
    let page = Page { before, most: usize::try_from(limit).unwrap_or(usize::MAX) };
    let entries = match receipts::reader(&session.context)? {
        Some(reader) => reader.list(&filter, page).map_err(|error| book::failure(&error))?,
        None => Vec::new(),
    };
    Ok(Reply::saying(json!({ "receipts": entries.iter().map(receipts::value).collect::<Vec<_>>() })))
}

/// `GET /v1/receipts/{id}`: all records of one call of the asker's, as `receipts show --json` prints them.
pub(super) fn receipt(asked: &Asked, session: &Session) -> Result<Reply, Problem> {
    asked.query().finish()?;
    let nothing = || Problem::nothing("receipt", asked.part(0));
    let id: ReceiptId = asked.part(0).parse().map_err(|_| nothing())?;
    let reader = receipts::reader(&session.context)?.ok_or_else(nothing)?;
    let own = Filter { receipt_id: Some(id.to_string()), agent: asked.asker.agent().map(AgentName::whole), ..Filter::default() };
    let found = reader.list(&own, Page { before: None, most: 1 }).map_err(|error| book::failure(&error))?;
    if found.is_empty() {
        return Err(nothing());
    }
    let entries = reader.show(&id).map_err(|error| book::failure(&error))?;
    Ok(Reply::saying(json!({ "receipts": entries.iter().map(receipts::value).collect::<Vec<_>>() })))
}
