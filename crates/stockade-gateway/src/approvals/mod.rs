//! Requests that wait for a person: filed, decided, used up.
//!
//! ```text
//!   a call that rules ask about
//!        │ filed (the same call again: counted, not filed twice)
//!        ▼
//!     pending ──approve──▶ approved ──the same call──▶ used      (it runs, once)
//!        │ │ │ │              │  │
//!        │ │ │ └──the client of who asked says yes, where rules let it, and the same call──▶ used
//!        │ │ └──approve for longer──▶ granted                    (a grant stands in its place: `grants`)
//!        │ │                  │  └──deny──▶ denied
//!        │ └──deny──▶ denied ◀┘               │
//!        └──time──▶ expired ◀──time───────────┘
//! ```
//!
//! Promises: a request is bound to everything that makes the call what it is ([`Bound`]), so anything that changed makes another request; an
//! approval is used by one call, however many try at once, and is used up *before* that call begins, so that a crash loses it and never runs it
//! twice; nothing is approved by waiting; a clock that goes back expires everything. Requests are bounded in number and in bytes, and what cannot
//! be shown whole cannot be asked for.
//!
//! A client that answers by itself, because rules let it, answers for one call that begins in the same moment: such a yes is never stored as one, so
//! that nobody can write it into the file. What it carries between two messages is sealed (`carried`).
//!
//! What others are to be told of all this is remembered with it (`news`), so that it is told once.
//!
//! Not done here: evaluating rules (whoever runs a call does that each time), asking a person, and writing receipts.

mod binding;
mod carried;
mod database;
mod distant;
mod error;
mod news;
mod request;
mod store;
#[cfg(test)]
mod tests;
mod warrant;

pub use binding::{Bound, BoundFile, Contents, Input, Variable, Visibility, Wanted};
pub(crate) use database::directory;
pub use distant::{Distant, Signed};
pub use error::ApprovalError;
pub use news::{Happened, Listener, News, Telling};
pub use request::{Request, RequestId, State};
pub(crate) use store::pass_time;
pub use store::{Asking, MOST_OF_AGENT, MOST_PENDING, MOST_SHOWN, Otherwise, Scope, Settled, Store, Waiting};
pub(crate) use warrant::Statement;
pub use warrant::{Decider, Method, Warrant};
