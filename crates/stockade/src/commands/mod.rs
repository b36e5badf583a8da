//! The commands, one file per verb. Each takes its arguments and the context, and gives the exit code.

#[cfg(wall)]
mod agent;
pub(crate) mod approvals;
mod broker;
#[cfg(wall)]
pub(crate) mod cap;
mod completions;
mod config;
mod docs_reference;
#[cfg(wall)]
mod doctor;
#[cfg(wall)]
mod egress;
#[cfg(wall)]
mod hold;
#[cfg(wall)]
mod hook;
#[cfg(wall)]
mod init;
#[cfg(wall)]
mod install;
mod man;
#[cfg(wall)]
mod mcp;
#[cfg(not(wall))]
mod no_wall;
#[cfg(wall)]
pub(crate) mod pack;
#[cfg(wall)]
mod policy;
pub(crate) mod receipts;
#[cfg(wall)]
pub(crate) mod run;
#[cfg(wall)]
pub(crate) mod sandbox;
mod secret;
#[cfg(wall)]
mod serve;
#[cfg(wall)]
mod trust;
mod version;

use std::process::ExitCode;

use crate::Context;
use crate::cli::{Cli, Verb};
use crate::failure::Failure;

/// Does what the command line asks for.
pub(crate) fn dispatch(cli: Cli, context: &Context) -> Result<ExitCode, Failure> {
    match cli.verb {
        #[cfg(wall)]
        Verb::Run(args) => run::run(&args, context),
        #[cfg(wall)]
        Verb::Agent(args) => agent::run(&args, context),
        #[cfg(wall)]
        Verb::Sandbox(args) => sandbox::run(&args, context),
        #[cfg(wall)]
        Verb::Doctor(args) => doctor::run(&args, context),
        #[cfg(wall)]
        Verb::Policy(args) => policy::run(&args, context),
        #[cfg(wall)]
        Verb::Init(args) => init::run(&args, context),
        #[cfg(wall)]
        Verb::Install(args) => install::run(&args, context),
        #[cfg(wall)]
        Verb::Hook(args) => hook::run(&args, context),
        #[cfg(wall)]
        Verb::Trust(args) => trust::run(&args, context),
        #[cfg(wall)]
        Verb::Cap(args) => cap::run(&args, context),
        #[cfg(wall)]
        Verb::Pack(args) => pack::run(&args, context),
        #[cfg(wall)]
        Verb::Mcp(args) => mcp::run(&args, cli.output, context),
        #[cfg(wall)]
        Verb::Serve(args) => serve::run(&args, cli.output, context),
        #[cfg(wall)]
        Verb::Launcher => crate::daemon::launch(),
        #[cfg(wall)]
        Verb::Steward => crate::daemon::steward::serve(Context::new(cli.output, context.environment.clone())),
        #[cfg(wall)]
        Verb::Confinement => crate::daemon::confine::show(context),
        #[cfg(wall)]
        Verb::Hold(args) => hold::run(&args, context),
        #[cfg(wall)]
        Verb::Egress => egress::run(),
        #[cfg(not(wall))]
        Verb::Run(_)
        | Verb::Agent(_)
        | Verb::Sandbox(_)
        | Verb::Policy(_)
        | Verb::Init(_)
        | Verb::Install(_)
        | Verb::Hook(_)
        | Verb::Trust(_)
        | Verb::Cap(_)
        | Verb::Pack(_)
        | Verb::Doctor(_)
        | Verb::Mcp(_)
        | Verb::Serve(_)
        | Verb::Launcher
        | Verb::Steward
        | Verb::Confinement
        | Verb::Hold(_)
        | Verb::Egress => Err(no_wall::refuse()),
        Verb::Approvals(args) => approvals::run(&args, context),
        Verb::Grants(args) => approvals::grants(&args, context),
        Verb::Receipts(args) => receipts::run(&args, context),
        Verb::Secret(args) => secret::run(&args, context),
        Verb::Broker => broker::run(context),
        Verb::Config(args) => config::run(&args, context),
        Verb::Completions(args) => completions::run(&args, context),
        Verb::Man(args) => man::run(&args, context),
        Verb::Version => version::run(context),
        Verb::DocsReference(args) => docs_reference::run(&args, context),
    }
}

/// A fix that a person can type as it stands: `sudo` looks for programs in its own places, so elsewhere this one is named by its path.
#[cfg(wall)]
pub(crate) fn runnable(fix: &str) -> String {
    let Some(rest) = fix.strip_prefix("sudo stockade ") else { return fix.to_owned() };
    let program = std::env::current_exe().ok().and_then(|path| path.to_str().map(str::to_owned)).unwrap_or_default();
    let found_by_sudo = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
    let standard =
        std::path::Path::new(&program).parent().is_none_or(|place| found_by_sudo.iter().any(|known| place == std::path::Path::new(known)));
    let plain = program.chars().all(|c| c.is_ascii_alphanumeric() || "/._-+".contains(c));
    if standard || !plain { fix.to_owned() } else { format!("sudo {program} {rest}") }
}
