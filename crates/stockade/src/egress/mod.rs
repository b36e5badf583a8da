//! A sandbox's way out, from the side of whoever owns the sandbox (`run`, or the supervisor of a created one).
//!
//! ```text
//!  owner ── order, descriptors ──▶ stockade egress ◀── passed connections ── sandbox
//!    │ ◀── ready, the end ──────────────┘  │ ▲
//!    └── register ──▶ stockade broker ◀────┘ └── events ──▶ a file in the sandbox's directory
//! ```
//!
//! Both are processes of their own that end with the owner's connection. The owner itself opens no connection, holds no value but what
//! its own environment had, and has no thread for any of this: events wait in a file.

pub(crate) mod authorities;
pub(crate) mod confine;
pub(crate) mod deliver;
pub(crate) mod java;
pub(crate) mod judge;
pub(crate) mod login;
pub(crate) mod order;
pub(crate) mod outlet;
pub(crate) mod processes;
pub(crate) mod record;
pub(crate) mod standing;
pub(crate) mod summary;
pub(crate) mod variables;

pub(crate) use outlet::Outlet;
