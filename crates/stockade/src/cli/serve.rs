//! `stockade serve`: the daemon, and the server for agents that connect.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use stockade_core::id::SandboxName;

/// Keep sandboxes ready, so that `run` starts faster; and serve agents over HTTP: MCP and REST.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ServeArgs {
    /// A directory that workspaces of runs may be in; repeatable [default: home, and the current directory]
    #[arg(long = "root", value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub(crate) roots: Vec<PathBuf>,
    /// Also serve agents over HTTP (MCP and REST) at this address; without TLS only on loopback
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: Option<SocketAddr>,
    /// With --listen: the directory that the work is about [default: the git top level around the current directory]
    #[arg(long, value_name = "DIR", requires = "listen", value_hint = clap::ValueHint::DirPath)]
    pub(crate) workspace: Option<PathBuf>,
    /// With --listen: what rules call its agents: Agent::"CLIENT/NAME" [default: main]
    #[arg(long, requires = "listen")]
    pub(crate) name: Option<SandboxName>,
    /// Make another token and show it; the one before opens nothing any more. Without --listen, do only that
    #[arg(long)]
    pub(crate) new_token: bool,
    /// With --listen: certificates for TLS (PEM), that of this server first
    #[arg(long, value_name = "FILE", requires = "tls_key", requires = "listen", value_hint = clap::ValueHint::FilePath)]
    pub(crate) tls_cert: Option<PathBuf>,
    /// With --listen: the key of the first certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert", value_hint = clap::ValueHint::FilePath)]
    pub(crate) tls_key: Option<PathBuf>,
    /// Ask at this terminal about calls that a person must approve
    #[arg(long)]
    pub(crate) foreground: bool,
    /// With --listen: write a line on stderr for each request and each call
    #[arg(long, value_enum, value_name = "FORM", requires = "listen")]
    pub(crate) log: Option<LogForm>,
    /// End when standard input does
    #[arg(long, hide = true, conflicts_with = "listen")]
    pub(crate) attended: bool,
}

/// How lines of a log are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogForm {
    /// A JSON object each
    Json,
    /// Words
    Text,
}

const EXAMPLES: &str = "\
Examples:
  stockade serve &                          `stockade run` uses it by itself
  stockade serve --root /srv/projects       and nowhere else
  stockade config set daemon.autostart true
                                            the next run starts it
  stockade serve --listen 127.0.0.1:7070    MCP at http://127.0.0.1:7070/mcp, REST at /v1
  stockade serve --foreground               also asks here about what must be approved
  stockade serve --listen 127.0.0.1:7070 --log json
                                            and a line for each request and call
  stockade serve --new-token                another token; the old one is void

What does not fit (a terminal, hosts, a workspace that is written through, a
question to a person) runs without the daemon, as before.

Over HTTP every request needs the token, as `Authorization: Bearer stk_…`. It
is shown once, when it is made. GET /healthz needs none. GET /metrics is for
Prometheus. What agents changed is kept apart when the server ends: see
`stockade sandbox list`, `diff` and `apply`.";
