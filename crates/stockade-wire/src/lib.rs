//! The protocol between Stockade and the guest program `stockade-shim`.
//!
//! One duplex byte stream carries [`frame`]s; a frame's payload is one [`message::Request`]
//! (towards the guest) or one [`message::Reply`] (from it). The first request is always `Hello` with
//! a per-sandbox token; on the jail wall the second is the [`plan::JailPlan`].
//!
//! Threat assumption: the *host* treats every byte from the guest as hostile (after an escape from
//! the shim's own process the stream belongs to the attacker), so decoding is strict and bounded.
//! The guest trusts the host but checks the token, because on some walls the stream is a socket file.
//! This crate does no I/O and depends on nothing of ours.

pub mod codec;
pub mod frame;
pub mod message;
pub mod opening;
pub mod plan;

/// Protocol version; both sides must agree exactly, because they ship in one binary.
pub const VERSION: u32 = 3;
