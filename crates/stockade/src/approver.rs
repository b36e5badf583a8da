//! Who decides: asks for the approver credential where one is set up.
//!
//! What the credential is belongs to `stockade-gateway`; here the passphrase is asked for, at the terminal or on a descriptor that the caller names.

use std::os::fd::AsFd as _;

use stockade_broker::hygiene;
use stockade_gateway::approvals::{Decider, Store};
use stockade_gateway::approver::{Credential, CredentialError, Way};
use stockade_store::person;
use zeroize::Zeroizing;

use crate::Context;
use crate::failure::Failure;
use crate::passphrase;

pub(crate) const STEP: &str = "approver";
/// Names the descriptor that the passphrase is read from.
const DESCRIPTOR: &str = "STOCKADE_APPROVER_FD";

/// Why somebody has not shown who they are.
#[derive(Debug)]
pub(crate) enum Unshown {
    /// The credential says so.
    Credential(CredentialError),
    /// It could not be tried.
    Failed(Failure),
}

impl From<Failure> for Unshown {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<CredentialError> for Unshown {
    fn from(error: CredentialError) -> Self {
        Self::Credential(error)
    }
}

impl From<Unshown> for Failure {
    fn from(unshown: Unshown) -> Self {
        match unshown {
            Unshown::Credential(error) => failure(&error),
            Unshown::Failed(failure) => failure,
        }
    }
}

/// Whoever typed a command, having shown who they are where a credential is set up. `what` is what they are about to do.
pub(crate) fn demand(what: &str, context: &Context) -> Result<Decider, Failure> {
    show(what, context).map_err(Failure::from)
}

/// The same for whoever asks again after a wrong passphrase.
pub(crate) fn show(what: &str, context: &Context) -> Result<Decider, Unshown> {
    let places = context.places()?;
    let by = person::name();
    let Some(credential) = Credential::load(places)? else {
        return Ok(Decider { by, approver: None });
    };
    if let Some(uid) = credential.approver_uid() {
        return Err(CredentialError::OtherUid(uid).into());
    }
    hygiene::keep_to_ourselves().map_err(|errno| Failure::new(STEP, format!("this process cannot be made undumpable: {errno}")))?;
    let passphrase = passphrase(&format!("The approver's passphrase, to {what} (not shown): "), context)?;
    let mut store = Store::open(&places.state).map_err(CredentialError::Store)?;
    let approver = credential.open(&passphrase, &mut store, Way::Terminal, now())?;
    Ok(Decider { by, approver: Some(approver) })
}

/// Seconds since 1970.
pub(crate) fn now() -> i64 {
    jiff::Timestamp::now().as_second()
}

/// From the descriptor that the caller names, else from the terminal.
fn passphrase(question: &str, context: &Context) -> Result<Zeroizing<Vec<u8>>, Failure> {
    let Some(named) = context.environment.variable(DESCRIPTOR).filter(|value| !value.is_empty()) else {
        let hint = format!("or give it on a descriptor: {DESCRIPTOR}=3 stockade … 3<file");
        return passphrase::ask_at_terminal(question, STEP, context).map_err(|failure| failure.with_hint(hint));
    };
    // Not repeated: somebody may have put the passphrase itself there.
    let wrong = || Failure::new(STEP, format!("{DESCRIPTOR} is not the number of an open descriptor")).with_hint("such as 3, with 3<file");
    let number: u32 = named.to_str().and_then(|text| text.parse().ok()).ok_or_else(wrong)?;
    let source = std::fs::File::open(format!("/dev/fd/{number}")).map_err(|_| wrong())?;
    passphrase::first_line(source.as_fd(), STEP)
}

/// An error of the credential, with its fix.
pub(crate) fn failure(error: &CredentialError) -> Failure {
    let failure = Failure::from_error(STEP, error);
    match error {
        CredentialError::Form { .. } => {
            failure.with_hint("an approver credential is never taken for none; put the right file back, or move it away")
        }
        CredentialError::Store(error) => match error.hint() {
            Some(hint) => failure.with_hint(hint),
            None => failure,
        },
        CredentialError::OtherUid(uid) => {
            let (who, you) = (person::name_of(*uid), person::name());
            failure
                .with_hint(format!("{who} says so: stockade approvals approve ID --of {you}; what is not a request, an administrator does"))
        }
        CredentialError::File { .. } | CredentialError::Wrong | CredentialError::Seal(_) | CredentialError::Machine(_) => failure,
    }
}
