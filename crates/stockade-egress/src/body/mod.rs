//! Bodies on their way: counted, limited, watched and changed piece by piece, never held whole.

pub(crate) mod answer;
pub(crate) mod decode;
pub(crate) mod request;

/// What a body fails with.
pub(crate) type BodyError = Box<dyn std::error::Error + Send + Sync>;
