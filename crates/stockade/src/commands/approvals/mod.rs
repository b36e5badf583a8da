//! `stockade approvals` and `stockade grants`: what waits for a person, what they decide, and what stands for longer than one call.

mod credential;
mod decide;
#[cfg(wall)]
mod distant;
mod grants;
mod list;
mod prompt;

#[cfg(wall)]
pub(crate) use decide::{say_no, say_yes, waiting};
#[cfg(wall)]
pub(crate) use list::{brief, whole};

use std::process::ExitCode;

use stockade_gateway::approvals::{ApprovalError, RequestId, Store};

use crate::Context;
use crate::cli::{
    ApprovalsArgs, ApprovalsListArgs, ApprovalsVerb, ApproveArgs, CredentialVerb, DenyArgs, GrantsArgs, GrantsVerb, OneRequest,
};
use crate::failure::Failure;
#[cfg(wall)]
use distant::There;

const STEP: &str = "approvals";

pub(crate) fn run(args: &ApprovalsArgs, context: &Context) -> Result<ExitCode, Failure> {
    match &args.verb {
        #[cfg(wall)]
        ApprovalsVerb::List(ApprovalsListArgs { of: Some(user), .. }) => There::of(user, context)?.list(context)?,
        #[cfg(wall)]
        ApprovalsVerb::Show(args @ OneRequest { of: Some(user), .. }) => There::of(user, context)?.show(args, context)?,
        #[cfg(wall)]
        ApprovalsVerb::Approve(args @ ApproveArgs { of: Some(user), .. }) => There::of(user, context)?.approve(args, context)?,
        #[cfg(wall)]
        ApprovalsVerb::Deny(args @ DenyArgs { of: Some(user), .. }) => There::of(user, context)?.deny(args, context)?,
        ApprovalsVerb::List(args) => list::list(args, context)?,
        ApprovalsVerb::Show(args) => list::show(args, context)?,
        ApprovalsVerb::Approve(args) => decide::approve(args, context)?,
        ApprovalsVerb::Deny(args) => decide::deny(args, context)?,
        ApprovalsVerb::Prompt => prompt::watch(context)?,
        ApprovalsVerb::Credential(args) => match &args.verb {
            CredentialVerb::Set(_) => credential::set(context)?,
            CredentialVerb::Remove(_) => credential::remove(context)?,
            CredentialVerb::Status(_) => credential::status(context)?,
            CredentialVerb::Key(args) => credential::key(args, context)?,
        },
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn grants(args: &GrantsArgs, context: &Context) -> Result<ExitCode, Failure> {
    match &args.verb {
        GrantsVerb::List(_) => grants::list(context)?,
        GrantsVerb::Revoke(args) => grants::revoke(args, context)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The store, where there is one: looking at nothing makes nothing.
pub(crate) fn store(context: &Context) -> Result<Option<Store>, Failure> {
    Store::open_existing(&context.places()?.state).map_err(|error| failure(&error))
}

/// The store and an id in it.
pub(crate) fn store_with(id: &str, context: &Context) -> Result<(Store, RequestId), Failure> {
    let unknown = || failure(&ApprovalError::NoRequest(stockade_core::escape::escape(id)));
    let id = RequestId::parse(id).ok_or_else(unknown)?;
    Ok((store(context)?.ok_or_else(unknown)?, id))
}

/// An error of the store, with its fix.
pub(crate) fn failure(error: &ApprovalError) -> Failure {
    let failure = Failure::from_error(STEP, error);
    match error.hint() {
        Some(hint) => failure.with_hint(hint),
        None => failure,
    }
}

/// A time as people and JSON have it.
fn time(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).map(|time| time.to_string()).unwrap_or_default()
}
