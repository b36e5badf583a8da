//! A call of an MCP server's tool that rules ask a person about. Nobody is at a terminal, so it is filed, and runs when it comes again after a yes.
//!
//! The server runs already. So a call is bound to what it was started with, once, and to its own name, arguments and rules each time.

use stockade_core::result::Decision as Told;
use stockade_gateway::approvals::{ApprovalError, Asking, Bound, Input, Otherwise, RequestId, Settled, Store, Wanted};
use stockade_gateway::approver::Credential;
use stockade_ledger::receipt::Approval;
use stockade_ledger::redact::Redact;

use super::bind::{Unbound, bind};
use super::{Question, clean, session};
use crate::Context;
use crate::approver::{self, now};
use crate::assemble::Assembled;
use crate::commands::approvals::failure;
use crate::failure::Failure;

/// What every call of one server is bound to.
#[derive(Debug, Clone)]
pub(crate) struct Frame(Result<Bound, String>);

impl Frame {
    /// Of a server that is about to be started: `question` is about that.
    pub(crate) fn of(question: &Question, assembled: &Assembled) -> Result<Self, Failure> {
        match bind(question, assembled, Input::Nothing, None) {
            Ok(bound) => Ok(Self(Ok(bound))),
            Err(Unbound::Refused(why)) => Ok(Self(Err(why))),
            Err(Unbound::Failed(failure)) => Err(failure),
        }
    }

    /// Whether somebody approved this very call; if nobody did, it is filed. Gives the approval, or the refusal.
    pub(crate) fn settle(
        &self,
        question: &Question,
        receipt: &str,
        redactor: &dyn Redact,
        context: &Context,
    ) -> Result<Result<Approval, Told>, Failure> {
        let frame = match &self.0 {
            Ok(frame) => frame,
            Err(why) => return Ok(Err(question.refusal(format!("nobody can approve it: {why}")))),
        };
        let argv = match &frame.wanted {
            Wanted::Program(argv) | Wanted::Script { argv, .. } | Wanted::Capability { argv, .. } => argv.clone(),
            Wanted::File { .. } => Vec::new(),
        };
        let wanted = match question.wanted.clone() {
            Wanted::Capability { name, pack, inputs, .. } => Wanted::Capability { name, pack, inputs, argv },
            other => other,
        };
        let bound = Bound {
            principal: question.principal.clone(),
            wanted,
            effect: question.effect.name().to_owned(),
            policy: question.policy.clone(),
            because: question.because.clone(),
            ..frame.clone()
        };
        let (title, shown) = (clean(&bound.title(), redactor)?, clean(&bound.shown(), redactor)?);
        let places = context.places()?;
        let credential = Credential::load(places).map_err(|error| approver::failure(&error))?;
        let mut store = Store::open(&places.state).map_err(|error| failure(&error))?;
        let session = session::name();
        let asking = Asking { bound: &bound, title: &title, shown: &shown, session: session.as_deref(), rules: &question.rules, receipt };
        match store.settle(&asking, credential.as_ref(), Otherwise::File, now()) {
            Ok(Settled::Approved(warrant)) => {
                Ok(Ok(Approval { by: warrant.by, method: warrant.method, shown_sha256: warrant.shown_sha256 }))
            }
            Ok(Settled::Open) => Ok(Err(question.told.clone())),
            Ok(Settled::Denied { id, by, .. }) => {
                let told = question.refusal(format!("{by} said no to the request {id}"));
                Ok(Err(Told { approval_id: Some(id), ..told }))
            }
            Ok(Settled::Waits(waiting)) => {
                let why = question.told.reason.as_deref().unwrap_or("the rules want a person to approve it");
                let told =
                    question.refusal(format!("{why}; the request {} waits for a person: call again when it is approved", waiting.id));
                let suggest = RequestId::parse(&waiting.id).map(|id| question.next_step(&id, credential.as_ref()));
                Ok(Err(Told { approval_id: Some(waiting.id), suggest, ..told }))
            }
            Err(error @ (ApprovalError::TooMany | ApprovalError::TooManyOfAgent | ApprovalError::TooLong(_))) => {
                Ok(Err(question.refusal(error.to_string())))
            }
            Err(error) => Err(failure(&error)),
        }
    }
}
