//! HTTP between a sandbox and a host: hyper frames it, this decides what goes, what is changed and what is refused.

pub(crate) mod forward;
pub(crate) mod guarded;
pub mod head;
pub(crate) mod headers;
pub(crate) mod pool;
pub(crate) mod serve;
pub(crate) mod upgrade;
