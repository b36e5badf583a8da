//! Starting a daemon: because settings say so, by whoever found none, when nobody waits any more; and beside a server for agents.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use stockade_store::places::{LOOKED_AT, Places};

use super::client;
use crate::Context;
use crate::assemble::Assembled;
use crate::cli::ServeArgs;
use crate::failure::Failure;

/// This program, though its file may have been replaced since.
const ITSELF: &str = "/proc/self/exe";

/// What a daemon needs to know to be started.
pub(crate) struct Starting {
    places: Option<Places>,
    variables: Vec<(&'static str, OsString)>,
    roots: Vec<PathBuf>,
}

impl Starting {
    /// For the places of this call. Of the environment it has what says where our files are, and nothing else.
    pub(crate) fn of(assembled: &Assembled, context: &Context) -> Self {
        let variables = LOOKED_AT.iter().filter_map(|name| Some((*name, context.environment.variable(name)?))).collect();
        let roots = vec![assembled.home.clone(), assembled.spec.workspace.path.as_path().to_owned()];
        Self { places: context.places().ok().cloned(), variables, roots }
    }

    /// Starts it, unless one is there. Two that are started at once find out by their lock; nobody is told of a failure, and every run does
    /// without as before.
    #[expect(clippy::disallowed_methods, reason = "starts this very program in another role")]
    pub(crate) fn start(self) {
        if self.places.is_none_or(|places| client::is_there(&places)) {
            return;
        }
        let mut command = Command::new(ITSELF);
        command.arg("serve").args(self.roots.iter().flat_map(|root| ["--root".into(), root.clone().into_os_string()]));
        command.env_clear().envs(self.variables).current_dir("/");
        let _ = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    }
}

/// A daemon beside another process of ours, which it does not outlive.
pub(crate) struct Beside(Option<Child>);

impl Beside {
    /// Starts one, unless one is there already.
    #[expect(clippy::disallowed_methods, reason = "starts this very program in another role")]
    pub(crate) fn start(args: &ServeArgs, context: &Context) -> Result<Self, Failure> {
        if client::is_there(context.places()?) {
            return Ok(Self(None));
        }
        let mut command = Command::new(ITSELF);
        command.args(["serve", "--attended", "--quiet"]);
        command.args(args.roots.iter().flat_map(|root| ["--root".into(), root.clone().into_os_string()]));
        let variables = LOOKED_AT.iter().filter_map(|name| Some((*name, context.environment.variable(name)?)));
        // What it complains about is said where the server's words are.
        let child = command.env_clear().envs(variables).stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
        child.map(|child| Self(Some(child))).map_err(|error| Failure::new("daemon", format!("starting: {error}")))
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let Some(child) = &mut self.0 else { return };
        // The end of its input is its end.
        drop(child.stdin.take());
        let _ = child.wait();
    }
}
