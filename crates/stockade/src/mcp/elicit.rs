//! Asking through the client of whoever asks. It answers for a person whom nobody here sees, so it may only where rules say that its word counts.
//!
//! With a handshake the server sends `elicitation/create` and waits. Without one it answers `input_required`, and the client calls again with the
//! answer and a `requestState` that only this store can open, for this agent, once.

use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::{
    BooleanSchema, CallToolRequestParams, ClientResult, ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction,
    ElicitationSchema, InputRequest, InputRequests, InputRequiredResult, ServerRequest,
};
use rmcp::service::{PeerRequestOptions, RequestContext};
use serde_json::Value;
use stockade_gateway::approvals::{ApprovalError, Method, Request, RequestId, Store};
use stockade_ledger::receipt::Approval;

use crate::Context;
use crate::approval::Filed;
use crate::approver::now;
use crate::commands::approvals::failure;
use crate::engine::asker::Asker;
use crate::failure::Failure;
use crate::receipts::{decided, refused_answer};

/// How long somebody may look at a question before it is taken back. The request goes on waiting.
pub(super) const ASKED_FOR: Duration = Duration::from_mins(5);
/// What the question is called where it is carried.
const QUESTION: &str = "approval";
/// What has to be true for a yes: accepting a form without looking at it is none.
const APPROVE: &str = "approve";

/// How a client can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// By a request to it.
    Request,
    /// By an answer that has it call again.
    Answer,
}

/// What a client says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word {
    /// A person said yes.
    Yes,
    /// They said no, or did not answer the question.
    No,
}

/// What a client brings back with a call.
#[derive(Debug)]
pub(super) struct Brought {
    state: String,
    word: Option<Word>,
}

impl Brought {
    /// Nothing where the call is a new one. What a client says without the state that it was given is not looked at.
    pub(super) fn with(request: &mut CallToolRequestParams) -> Option<Self> {
        let state = request.request_state.take()?;
        let answer = request.input_responses.take().and_then(|mut answers| answers.remove(QUESTION));
        let word = answer.and_then(|answer| serde_json::from_value(answer).ok()).map(|answer| word(&answer));
        Some(Self { state, word })
    }

    /// The request that it is about, and what was said; the state does not open again.
    pub(super) fn open(&self, asker: &Asker, context: &Context) -> Result<(RequestId, Word), Failure> {
        let Some(word) = self.word else { return Err(Failure::new("arguments", "`inputResponses` has no answer to `approval`")) };
        let opened = store(context)?.unseal(&self.state, &asker.principal().named(), now());
        if let (Err(error @ ApprovalError::Carried(_)), Some(agent)) = (&opened, asker.agent()) {
            refused_answer(agent, &failure(error), context)?;
        }
        Ok((opened.map_err(|error| failure(&error))?, word))
    }
}

/// How this client can be asked, if it can.
pub(super) fn way(context: &RequestContext<RoleServer>) -> Option<Way> {
    let can = context.client_capabilities()?.elicitation?;
    if can.form.is_none() && can.url.is_some() {
        return None;
    }
    // Only without a handshake each message says its version itself.
    let is_alone = context.meta.protocol_version().is_some_and(|version| !version.has_initialize());
    Some(if is_alone { Way::Answer } else { Way::Request })
}

/// Asks the client; nothing where it does not answer.
pub(super) async fn ask(filed: &Filed, context: &RequestContext<RoleServer>) -> Option<Word> {
    let request = ServerRequest::ElicitRequest(ElicitRequest::new(question(filed).ok()?));
    let sent = context.peer.send_cancellable_request(request, PeerRequestOptions::with_timeout(ASKED_FOR)).await;
    match sent.ok()?.await_response().await.ok()? {
        ClientResult::ElicitResult(answer) => Some(word(&answer)),
        _ => None,
    }
}

/// The answer that has the client call again.
pub(super) fn to_carry(filed: &Filed, context: &Context) -> Result<InputRequiredResult, Failure> {
    let state = store(context)?.seal(&filed.id, now()).map_err(|error| failure(&error))?;
    let asked = InputRequest::Elicitation(ElicitRequest::new(question(filed)?));
    Ok(InputRequiredResult::new(Some(InputRequests::from([(QUESTION.to_owned(), asked)])), Some(state)))
}

/// A no through a client: written down, and it stands like any other.
pub(super) fn deny(id: &RequestId, by: &str, context: &Context) -> Result<Request, Failure> {
    let mut store = store(context)?;
    let request = store.request(id, now()).map_err(|error| failure(&error))?;
    let method = Method::Elicitation;
    let approval = Approval { by: by.to_owned(), method: method.name().to_owned(), shown_sha256: request.shown_sha256 };
    decided("approvals.deny", &[id.as_str()], approval, &request.receipt, context, || {
        store.deny(id, by, method, now()).map_err(|error| failure(&error))
    })
}

/// The whole of it, as every other way of asking shows it.
fn question(filed: &Filed) -> Result<ElicitRequestParams, Failure> {
    let message = format!("Stockade: policy wants a person to approve this (request {}):\n\n{}\n\nApprove it?", filed.id, filed.shown);
    let approve = |field: BooleanSchema| field.title("Approve").description("It runs once, exactly as shown").with_default(false);
    let form = ElicitationSchema::builder().required_bool_with(APPROVE, approve).build();
    let requested_schema = form.map_err(|why| Failure::new("server", why))?;
    Ok(ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema })
}

fn word(answer: &ElicitResult) -> Word {
    let is_meant = answer.content.as_ref().and_then(|content| content.get(APPROVE)) == Some(&Value::Bool(true));
    if answer.action == ElicitationAction::Accept && is_meant { Word::Yes } else { Word::No }
}

fn store(context: &Context) -> Result<Store, Failure> {
    let found = Store::open_existing(&context.places()?.state).map_err(|error| failure(&error))?;
    found.ok_or_else(|| failure(&ApprovalError::Carried("nothing was ever asked here")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_a_yes_that_is_meant_is_one() {
        let check = |answer: Value| word(&serde_json::from_value(answer).unwrap());
        assert_eq!(check(json!({"action": "accept", "content": {"approve": true}})), Word::Yes);
        for no in [
            json!({"action": "accept"}),
            json!({"action": "accept", "content": {}}),
            json!({"action": "accept", "content": {"approve": false}}),
            json!({"action": "accept", "content": {"approve": "true"}}),
            json!({"action": "accept", "content": [true]}),
            json!({"action": "decline", "content": {"approve": true}}),
            json!({"action": "cancel"}),
        ] {
            assert_eq!(check(no.clone()), Word::No, "{no}");
        }
    }
}
