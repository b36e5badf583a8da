//! Waiting for a person, on a thread of its own: looks at a request until it is decided, the time is over, or nobody wants to know any more.

use std::time::{Duration, Instant};

use stockade_gateway::approvals::{ApprovalError, Request, RequestId, State, Store};

use crate::Context;
use crate::approver::now;
use crate::commands::approvals::failure;
use crate::failure::Failure;

/// How long a call waits for a person where nobody says how long: less than the minute after which common clients give up and would never see
/// which request it was.
pub(super) const PATIENCE: Duration = Duration::from_secs(50);
/// How often it is looked.
const LOOK: Duration = Duration::from_millis(250);

/// The request as it stands at last. One of somebody else is as unknown as one that never was.
pub(super) fn wait(
    id: &RequestId,
    principal: &str,
    time: Duration,
    is_wanted: &dyn Fn() -> bool,
    context: &Context,
) -> Result<Request, Failure> {
    let unknown = || failure(&ApprovalError::NoRequest(id.to_string()));
    let store = Store::open_existing(&context.places()?.state).map_err(|error| failure(&error))?.ok_or_else(unknown)?;
    let end = Instant::now() + time;
    loop {
        let request = store.look(id, now()).map_err(|error| failure(&error))?;
        if request.principal != principal {
            return Err(unknown());
        }
        let left = end.saturating_duration_since(Instant::now());
        if request.state != State::Pending || left.is_zero() || !is_wanted() {
            return Ok(request);
        }
        std::thread::sleep(LOOK.min(left));
    }
}
