//! Egress against servers of our own on loopback, with real TLS and real HTTP on both legs. The tests look at received bytes.

mod attacks;
mod descriptors;
mod protocols;
mod secrets;
mod transparent;
mod world;
