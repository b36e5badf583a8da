//! What of agents waits for a person. Whoever has the token may look; only the approver's passphrase decides, because the token is the agent's. What
//! people asked for themselves is not shown here: it names their variables, and is for a terminal.

use serde_json::json;
use stockade_gateway::approvals::{ApprovalError, Decider, Method, Request, RequestId, Scope, State, Store};
use stockade_gateway::approver::{Credential, CredentialError, Way};
use stockade_store::person;
use zeroize::Zeroizing;

use super::answer::{Problem, Reply};
use super::asked::Asked;
use super::forms::{Approve, Deny};
use crate::approver::{self, now};
use crate::commands::approvals::{brief, failure, say_no, say_yes, store, waiting, whole};
use crate::failure::Failure;
use crate::mcp::Session;

/// `GET /v1/approvals`: what waits, or everything, as `approvals list --json` prints it.
pub(super) fn list(asked: &Asked, session: &Session) -> Result<Reply, Problem> {
    let mut query = asked.query();
    let all = match query.take("all") {
        None | Some("false") => false,
        Some("true") => true,
        Some(_) => return Err(Problem::malformed("`all` must be true or false")),
    };
    query.finish()?;
    let mut found = match store(&session.context)? {
        Some(mut store) => store.requests(now()).map_err(|error| failure(&error))?,
        None => Vec::new(),
    };
    found.retain(|request| is_of_agent(request) && (all || request.state == State::Pending));
    Ok(Reply::saying(json!({ "approvals": found.iter().map(brief).collect::<Vec<_>>() })))
}

/// `GET /v1/approvals/{id}`: as `approvals show --json` prints it.
pub(super) fn show(asked: &Asked, session: &Session) -> Result<Reply, Problem> {
    asked.query().finish()?;
    let (mut store, id) = find(asked, session)?;
    Ok(Reply::saying(whole(&request(&mut store, &id)?)))
}

/// `POST /v1/approvals/{id}/approve`: once, or for some time. Whoever says yes names what they saw by its digest.
pub(super) fn approve(asked: &Asked, session: &Session) -> Result<Reply, Problem> {
    asked.query().finish()?;
    let Approve { passphrase, shown_sha256, until_seconds } = asked.body()?;
    let passphrase = Zeroizing::new(passphrase);
    if until_seconds == Some(0) {
        return Err(Problem::malformed("`until_seconds` must be 1 at least"));
    }
    let (mut store, id) = find(asked, session)?;
    let request = request(&mut store, &id)?;
    if request.shown_sha256 != shown_sha256 {
        let failure = Failure::new("approvals", "`shown_sha256` is not the digest of what the request shows");
        return Err(Problem::conflict(failure.with_hint("look at the request again")));
    }
    let scope = until_seconds.map_or(Scope::Once, |seconds| Scope::For(i64::from(seconds)));
    let decider = decider(&passphrase, &mut store, session)?;
    waiting(&mut store, &id).map_err(Problem::conflict)?;
    let after = say_yes(&mut store, &request, scope, &decider, &session.context).map_err(Problem::conflict)?;
    Ok(Reply::saying(whole(&after)))
}

/// `POST /v1/approvals/{id}/deny`
pub(super) fn deny(asked: &Asked, session: &Session) -> Result<Reply, Problem> {
    asked.query().finish()?;
    let Deny { passphrase } = asked.body()?;
    let passphrase = Zeroizing::new(passphrase);
    let (mut store, id) = find(asked, session)?;
    let request = request(&mut store, &id)?;
    decider(&passphrase, &mut store, session)?;
    let after = say_no(&mut store, &request, Method::Passphrase, &session.context).map_err(Problem::conflict)?;
    Ok(Reply::saying(whole(&after)))
}

/// The store, and the request that the path names.
fn find(asked: &Asked, session: &Session) -> Result<(Store, RequestId), Problem> {
    let nothing = || Problem::nothing("request", asked.part(0));
    let id = RequestId::parse(asked.part(0)).ok_or_else(nothing)?;
    Ok((store(&session.context)?.ok_or_else(nothing)?, id))
}

fn request(store: &mut Store, id: &RequestId) -> Result<Request, Problem> {
    let nothing = || Problem::nothing("request", id.as_str());
    let request = store.request(id, now()).map_err(|error| match error {
        ApprovalError::NoRequest(_) => nothing(),
        error => failure(&error).into(),
    })?;
    if is_of_agent(&request) { Ok(request) } else { Err(nothing()) }
}

/// Whether an agent asked for it.
fn is_of_agent(request: &Request) -> bool {
    request.principal.starts_with("Agent::")
}

/// Whoever knows the passphrase. Without a credential nobody decides here: nothing would tell them from the agent.
fn decider(passphrase: &str, store: &mut Store, session: &Session) -> Result<Decider, Problem> {
    let credential = Credential::load(session.context.places()?).map_err(|error| approver::failure(&error))?;
    let credential = credential.ok_or_else(|| {
        let failure = Failure::new(approver::STEP, "no approver credential is set up, and the token is the agent's");
        Problem::forbidden(failure.with_hint("stockade approvals credential set"))
    })?;
    let opened = credential.open(passphrase.as_bytes(), store, Way::Http, now());
    let approver = opened.map_err(|error| match &error {
        CredentialError::Wrong | CredentialError::Seal(_) | CredentialError::OtherUid(_) => Problem::forbidden(approver::failure(&error)),
        CredentialError::Store(ApprovalError::Slow(_)) => Problem::full(approver::failure(&error)),
        _ => approver::failure(&error).into(),
    })?;
    Ok(Decider { by: person::name(), approver: Some(approver) })
}
