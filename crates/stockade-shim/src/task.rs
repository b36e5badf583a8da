//! One request under way, of whatever kind.
//!
//! Owns which kinds last longer than their first frame and hands each message to the kind it belongs to. A message that
//! a kind has no use for (a resize without terminal, credit for a stream it does not have) is ignored: it may have
//! crossed the reply that made it pointless.

use stockade_wire::message::Stream;

use crate::context::{Context, Progress, Ready, Slot};
use crate::files::{Reading, Writing};
use crate::flow::Overrun;
use crate::forward::{Connection, Listener};
use crate::listing::Listing;
use crate::run::Run;
use crate::tree::Removing;
use crate::watch::Watch;

/// A request that lasts.
pub(crate) enum Task {
    Run(Run),
    Reading(Reading),
    Writing(Writing),
    Listing(Listing),
    Removing(Removing),
    Watch(Watch),
    Connection(Connection),
    Listener(Listener),
}

impl Task {
    /// Remembers an event on one of its descriptors.
    pub(crate) fn event(&mut self, slot: Slot, ready: Ready) {
        match self {
            Self::Run(run) => run.event(slot, ready),
            Self::Connection(connection) => connection.event(ready),
            Self::Watch(_) | Self::Listener(_) | Self::Reading(_) | Self::Writing(_) | Self::Listing(_) | Self::Removing(_) => {}
        }
    }

    /// Bytes from the host.
    pub(crate) fn input(&mut self, bytes: &[u8], context: &mut Context, id: u32) -> Result<Progress, Overrun> {
        match self {
            Self::Run(run) => run.input(bytes, context, id).map(|()| Progress::Again),
            Self::Connection(connection) => connection.input(bytes, context, id),
            Self::Writing(writing) => writing.input(bytes, context, id),
            Self::Reading(_) | Self::Listing(_) | Self::Removing(_) | Self::Watch(_) | Self::Listener(_) => Ok(Progress::Idle),
        }
    }

    /// The end of what the host sends.
    pub(crate) fn end_input(&mut self, context: &mut Context, id: u32) -> Progress {
        match self {
            Self::Run(run) => run.end_input(),
            Self::Connection(connection) => connection.end_input(),
            Self::Writing(writing) => return writing.end_input(context, id),
            Self::Reading(_) | Self::Listing(_) | Self::Removing(_) | Self::Watch(_) | Self::Listener(_) => {}
        }
        Progress::Again
    }

    /// The host takes more.
    pub(crate) fn grant(&mut self, stream: &Stream, bytes: u32) {
        match (self, stream) {
            (Self::Run(run), stream) => run.grant(stream, bytes),
            (Self::Reading(reading), Stream::Output {}) => reading.grant(bytes),
            (Self::Connection(connection), Stream::Output {}) => connection.grant(bytes),
            (Self::Reading(_) | Self::Connection(_), Stream::Input {} | Stream::Errors {})
            | (Self::Writing(_) | Self::Listing(_) | Self::Removing(_) | Self::Watch(_) | Self::Listener(_), _) => {}
        }
    }

    /// Ends it at the host's wish. A program is killed and says `Exited` when it is gone; everything else is done now.
    pub(crate) fn cancel(&mut self, context: &mut Context, id: u32) -> Progress {
        match self {
            Self::Run(run) => {
                run.cancel();
                Progress::Again
            }
            Self::Reading(_)
            | Self::Writing(_)
            | Self::Listing(_)
            | Self::Removing(_)
            | Self::Watch(_)
            | Self::Connection(_)
            | Self::Listener(_) => context.done(id),
        }
    }

    /// Does a bounded amount of work.
    pub(crate) fn step(&mut self, context: &mut Context, id: u32) -> Progress {
        match self {
            Self::Run(run) => run.step(context, id),
            Self::Reading(reading) => reading.step(context, id),
            Self::Listing(listing) => listing.step(context, id),
            Self::Removing(removing) => removing.step(context, id),
            Self::Watch(watch) => watch.step(context, id),
            Self::Connection(connection) => connection.step(context, id),
            Self::Writing(writing) => writing.step(context, id),
            // Accepting makes new requests and is the server's.
            Self::Listener(_) => Progress::Idle,
        }
    }
}
