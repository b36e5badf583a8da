//! Pure types shared by every layer: ids, the sandbox specification, limits, safe paths, secrets and how they are taken out of text, enforcement reports, results.
//!
//! Nothing here does I/O, reads a clock or holds a lock; `unsafe` is forbidden. A value of these types proves
//! that its contents were checked: parse once at the edge, then pass the type.

pub mod credential;
pub mod demand;
pub mod escape;
pub mod host;
pub mod id;
pub mod limits;
pub mod path;
pub mod reach;
pub mod redact;
pub mod repository;
pub mod result;
pub mod route;
pub mod secret;
pub mod spec;
