//! Watching a directory inside a sandbox.

use std::ops::ControlFlow;
use std::time::Duration;

use stockade_core::path::SafePath;
use stockade_wire::message::{Change, Reply, Request};

use crate::connection::{Connection, ConnectionError};
use crate::files::FileError;

/// What happened, and to which path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The path, as the guest names it.
    pub path: Vec<u8>,
    /// What happened.
    pub change: Change,
}

/// Reports changes beneath a path until `on_event` breaks or nothing happens for `patience`.
pub fn watch(
    connection: &mut Connection,
    path: &SafePath,
    patience: Duration,
    on_event: &mut dyn FnMut(Event) -> ControlFlow<()>,
) -> Result<(), FileError> {
    let id = connection.fresh_id();
    connection.send(id, &Request::Watch { path: path.as_bytes().into(), recursive: true }, &[])?;
    loop {
        match connection.receive(patience.as_secs().max(1)) {
            Ok((got, Reply::Changed { path, change })) if got == id => {
                if on_event(Event { path: path.0, change }).is_break() {
                    break;
                }
            }
            Ok((got, Reply::Failed { kind, message })) if got == id => return Err(FileError::Refused { kind, message }),
            Ok((got, Reply::Done {})) if got == id => return Ok(()),
            Ok(_) => {}
            Err(ConnectionError::Silent(_)) => break,
            Err(error) => return Err(error.into()),
        }
    }
    // The guest answers with `Done` when it has stopped; later requests pass over what was still under way.
    Ok(connection.send(id, &Request::Cancel {}, &[])?)
}
