//! What is said of each request to whoever writes that down: nothing that a client chose but what it asked for, by a fixed name.

use std::time::Duration;

use http::{Method, StatusCode};

/// Whoever writes down what was answered.
pub trait Journal: Send + Sync + 'static {
    /// A request was answered; of a stream, its head was.
    fn answered(&self, answered: &Answered);
}

/// One answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answered {
    /// The method, where it is a known one.
    pub method: &'static str,
    /// The path, with names in the places of what clients choose; `-` where there is nothing.
    pub route: &'static str,
    /// The status.
    pub status: StatusCode,
    /// From its head to the answer's.
    pub time: Duration,
}

/// The name of a method that is one.
pub(crate) fn known(method: &Method) -> &'static str {
    let all = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "CONNECT", "TRACE"];
    all.into_iter().find(|name| *name == method.as_str()).unwrap_or("OTHER")
}
