//! A sandbox made by `stockade sandbox create`, with its supervisor.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::Command;

use crate::ground::Ground;
use crate::peers::words;
use crate::spawn;

/// A created sandbox. Dropping destroys it.
pub(super) struct Created<'a> {
    ground: &'a Ground,
    /// Its id.
    pub(super) id: String,
}

impl<'a> Created<'a> {
    /// Makes one.
    pub(super) fn make(ground: &'a Ground) -> Result<Self, String> {
        let printed = spawn::output(&mut command(ground, words("sandbox create --backend jail")))?;
        Ok(Self { ground, id: printed.trim().to_owned() })
    }

    /// Makes one around a workspace, for a caller with this `PATH`.
    pub(super) fn make_for(ground: &'a Ground, workspace: &Path, path: &OsStr) -> Result<Self, String> {
        let mut argv = words("sandbox create --backend jail --workspace");
        argv.push(workspace.into());
        let printed = spawn::output(command(ground, argv).current_dir(workspace).env("PATH", path))?;
        Ok(Self { ground, id: printed.trim().to_owned() })
    }

    /// A command that runs a program in it.
    pub(super) fn exec(&self, program: &[OsString]) -> Command {
        let mut argv = words("sandbox exec");
        argv.extend([OsString::from(&self.id), "--".into()]);
        argv.extend_from_slice(program);
        command(self.ground, argv)
    }
}

impl Drop for Created<'_> {
    fn drop(&mut self) {
        let mut argv = words("sandbox destroy");
        argv.push(OsString::from(&self.id));
        if let Err(message) = spawn::output(&mut command(self.ground, argv)) {
            crate::say(&format!("warning: sandbox {} was not destroyed: {message}", self.id));
        }
    }
}

fn command(ground: &Ground, arguments: Vec<OsString>) -> Command {
    let argv: Vec<OsString> = [ground.stockade.clone().into_os_string()].into_iter().chain(arguments).collect();
    ground.own.command(&argv)
}
