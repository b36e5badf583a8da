//! The only way out of a sandbox: checked hosts, and secrets that are put in outside.
//!
//! A sandbox has no route. Its connections are handed to an [`Egress`], each tied to one sandbox by whoever hands it over, never by what
//! it says ([`Connection`], or descriptors over a socket: [`Guest::accept`]). There are four ways to ask: HTTP proxy, SOCKS5, DNS, and
//! connections of programs that know no proxy. All end in the same checks:
//!
//! 1. the host is named once: proxy request, TLS server name, `Host` and `:authority` agree, byte for byte after strict parsing;
//! 2. the sandbox's [`Rules`] allow host, port, method and path;
//! 3. the name is resolved, the addresses are checked, and a checked one is dialled;
//! 4. placeholders of secrets are replaced on the way to the hosts they are bound to, and block the request on the way to any other;
//!    AWS, where a placeholder is the id of a key, is signed anew ([`aws`]);
//! 5. real values are taken out of what comes back, and new ones that a server hands out ([`exchange`]);
//! 6. what the hosts of a model say was used of it is counted ([`meter`]), up to a limit;
//! 7. each decision is an [`Event`].
//!
//! Threat assumption: everything from a sandbox is hostile, and so may be the hosts it talks to. Every read is bounded in bytes, time or
//! count by a named constant or a limit of the rules; nothing is parsed leniently. `unsafe` is forbidden.
//!
//! Programs ask for placeholders in the ways their tools know at the [`desk`], on the proxy's own port; git over SSH has its sessions from there
//! ([`ssh`]).
//!
//! Programs log in over SSH with keys that stay here by way of the [`agent`].
//!
//! What it does not do: keep secrets or make placeholders (the broker), keep events (the ledger), listen on any address.

mod accept;
mod body;
mod dial;
mod egress;
mod origin;
mod peek;
mod record;
mod relay;
mod sandbox;

pub mod address;
pub mod agent;
pub mod aws;
pub mod desk;
pub mod dns;
pub mod error;
pub mod event;
pub mod exchange;
pub mod http;
pub mod meter;
pub mod process;
pub mod proxy;
pub mod refusal;
pub mod resolve;
pub mod rules;
pub mod secrets;
pub mod ssh;
pub mod synthetic;
pub mod tls;

pub use accept::message::{LENGTH as OPENING_LENGTH, Opening};
pub use accept::socket::GuestSocket;
pub use desk::Desk;
pub use egress::{Egress, Guest, Settings};
pub use error::EgressError;
pub use event::{Event, EventReceiver, Subject, Verdict};
pub use meter::Usage;
pub use origin::{Connection, Kind, Origin};
pub use refusal::Refusal;
pub use resolve::{Resolve, SystemResolver};
pub use rules::Rules;
pub use secrets::binding::Binding;
pub use secrets::{SecretValue, Secrets};
pub use tls::upstream::Roots;
