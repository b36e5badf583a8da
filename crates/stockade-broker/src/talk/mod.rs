//! What is said between the broker, the owner of a sandbox, and egress: frames, and messages in them.
//!
//! ```text
//! frame    length (4, big endian) | body, at most MAX_FRAME
//! body     kind (1) | fields; text and lists have their length before them
//! ```
//!
//! Both ends are ours, but what is read is checked as if they were not: a malformed body is an error that ends the connection, never a
//! guess. Buffers that may hold a value are wiped.

mod codec;
pub mod frame;
pub mod message;

/// Both ends must say the same.
pub const VERSION: u16 = 4;
/// The longest body.
pub const MAX_FRAME: usize = 1 << 20;
