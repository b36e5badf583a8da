//! What every verb that needs a wall answers on a system without one.

use crate::failure::Failure;

/// Nothing runs unprotected: without a wall nothing runs.
pub(crate) fn refuse() -> Failure {
    Failure::new("backend", "this version has no wall for this system, and nothing runs without one")
        .with_hint("use a Linux machine or virtual machine")
}
