//! Egress against servers of our own on loopback, with real TLS and real HTTP on both legs. The tests look at received bytes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::string_slice, clippy::panic, reason = "tests")]

mod agent;
mod attacks;
mod aws;
mod descriptors;
mod desk;
mod protocols;
mod secrets;
mod ssh;
mod transparent;
mod trust;
mod world;
