//! The message that comes with a passed connection. The guest writes it, so both sides have it from the protocol's own crate.

pub use stockade_wire::opening::{LENGTH, Opening};
