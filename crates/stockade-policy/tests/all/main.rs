//! Tests of the crate from outside, in one binary.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, clippy::string_slice, clippy::print_stdout, reason = "tests")]

mod capabilities;
mod exam;
mod layers;
mod properties;
