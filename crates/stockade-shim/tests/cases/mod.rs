//! The cases, by subject.

mod files;
mod flow;
mod forward;
mod handshake;
mod init;
mod programs;
mod terminal;
mod transfer;
mod tree;
mod watch;
