//! Receipts of what people decide, and of what only an approver may change.

use sha2::{Digest as _, Sha256};
use stockade_gateway::approvals::Decider;
#[cfg(wall)]
use stockade_ledger::Weight;
use stockade_ledger::receipt::{Approval, Kind, Principal};
#[cfg(wall)]
use stockade_ledger::receipt::{Draft, ReceiptId};
use stockade_verify::text::to_hex;

use super::deed::marked;
#[cfg(wall)]
use super::{Book, deed};
use crate::Context;
#[cfg(wall)]
use crate::engine::asker::AgentName;
use crate::failure::Failure;

/// Changes something that only an approver may change: the receipt says who it was, and how they showed it.
pub(crate) fn approved<T>(
    name: &'static str,
    words: &[&str],
    decider: &Decider,
    context: &Context,
    act: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    let shown_sha256 = to_hex(&Sha256::digest(words.join("\n")));
    let approval = Approval { by: decider.by.clone(), method: decider.method().name().to_owned(), shown_sha256 };
    let mark = |draft: &mut stockade_ledger::receipt::Draft| {
        draft.kind = Kind::Lifecycle;
        draft.approval = Some(approval);
    };
    marked(name, words, mark, context, act)
}

/// Decides about a request: written down first, with the call that asked as its parent.
pub(crate) fn decided<T>(
    name: &'static str,
    words: &[&str],
    approval: Approval,
    asked: &str,
    context: &Context,
    act: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    let parent = (!asked.is_empty()).then(|| asked.to_owned());
    let mark = |draft: &mut stockade_ledger::receipt::Draft| {
        draft.kind = Kind::Approval;
        draft.approval = Some(approval);
        draft.principal = Some(Principal { parent, ..Principal::default() });
    };
    marked(name, words, mark, context, act)
}

/// What an agent's client brought as an answer, and what does not count: written down, so that whoever tries is seen.
#[cfg(wall)]
pub(crate) fn refused_answer(agent: &AgentName, failure: &Failure, context: &Context) -> Result<(), Failure> {
    let principal = Principal { agent: Some(agent.whole()), client: Some(agent.client().to_owned()), ..Principal::default() };
    let draft = Draft {
        capability: Some("stockade.approvals.answer".to_owned()),
        principal: Some(principal),
        result: Some(deed::failed(failure)),
        ..Draft::new(ReceiptId::new(), Kind::Denied)
    };
    let book = Book::of(context)?;
    book.append(&draft, Weight::Read, deed::no_secrets())?;
    book.close().tidy();
    Ok(())
}
