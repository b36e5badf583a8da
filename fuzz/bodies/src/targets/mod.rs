//! The targets, a file each.

pub mod broker;
pub mod carried;
pub mod door;
pub mod egress;
pub mod git;
pub mod guest;
pub mod host;
pub mod layer;
pub mod pack;
pub mod policy;
pub mod providers;
pub mod receipts;
pub mod rest;
pub mod seccomp;
pub mod settings;
pub mod shell;
pub mod state;
pub mod text;
pub mod wire;
