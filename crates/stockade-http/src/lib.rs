//! The door for HTTP: who may come in, how much at once, and MCP behind it.
//!
//! ```text
//!  connection ─▶ (TLS) ─▶ head ─▶ Host, Origin ─▶ token ─▶ path, method ─▶ body ─▶ /mcp · /v1 · /metrics
//!                                     │ 400, 403     │ 401      │ 404, 405   │ 408, 413
//!                                     └──────────────┴──────────┴────────────┴──▶ a refusal in JSON
//! ```
//!
//! [`Door`] listens, on loopback alone unless it has a certificate. `guard` judges the head of each request, `token` knows the one token that
//! opens, `body` reads what follows, `mcp` passes it on to the SDK's own transport, whose refusals it rewords, `rest` to whoever answers `/v1`. `metrics`
//! counts, and a `journal` is told. `post` is the other direction: one request over a stream that others opened.
//!
//! Threat assumption: whoever connects is hostile until they showed the token: another user of the machine, or a page in a browser that has
//! this address by any name (DNS rebinding). Whoever has the token may ask for anything, and is bounded: bytes of a head and of a body, the time
//! for each, connections, sessions. What they ask for is judged elsewhere; nothing here decides about a call. No particular kernel is needed.

mod body;
mod door;
mod error;
mod guard;
mod journal;
mod mcp;
mod metrics;
mod names;
mod post;
mod refusal;
mod rest;
mod session;
pub mod target;
mod tls;
mod token;

pub use door::{Door, Patience};
pub use error::HttpError;
pub use guard::{Guard, Head};
pub use journal::{Answered, Journal};
pub use metrics::{Metrics, Outward, Running, Verdict};
pub use names::Names;
pub use post::{Post, PostError};
pub use refusal::{Answer, Reason, Refusal};
pub use rest::{Answering, Rest, Source, Template, json, streamed};
pub use session::SessionEnd;
pub use tls::Identity;
pub use token::{Token, TokenFile};
