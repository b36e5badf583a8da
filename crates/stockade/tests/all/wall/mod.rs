//! The wall from outside: every test runs the program as root and as an ordinary user, and looks at what the program behind the wall
//! could see, do and leave behind.
//!
//! The machine must have what the tests use (python3, node, npm, git, cargo, gcc, make, java, util-linux); what is missing fails.

#![allow(clippy::indexing_slicing, clippy::panic, reason = "tests")]

mod badinput;
mod bypass;
mod exec_list;
pub(crate) mod ground;
mod isolation;
mod lifecycle;
mod limits;
mod mounts;
mod protected;
mod surroundings;
pub(crate) mod terminal;
mod tools;
mod view;
mod workspace;

pub(crate) use ground::{Ground, Who, as_both};
