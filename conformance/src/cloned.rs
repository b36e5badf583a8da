//! A jail that is cloned from a template, as a wall of its own: every case that is tried on a jail from nothing is tried on it too.
//!
//! The library keeps one template for many jails; here each jail has one, in its own directory, because each case has its own specification.

use std::ffi::OsString;
use std::os::fd::OwnedFd;

use stockade_core::demand::Enforcement;
use stockade_core::spec::BackendKind;
use stockade_sandbox::backends::jail::JailTemplate;
use stockade_sandbox::backends::{Backend, BackendError, Running, Start};
use stockade_sandbox::connection::{Connection, Haste, Passing};
use stockade_sandbox::drive::Watch;
use stockade_sandbox::limits::Frozen;

/// The wall.
pub(crate) struct ClonedJail {
    /// Whether descriptors are passed to programs.
    pub(crate) passing: Passing,
}

/// A clone and the template that it ends with. The clone goes first.
struct Cloned {
    jail: Box<dyn Running>,
    _template: JailTemplate,
}

impl Backend for ClonedJail {
    fn kind(&self) -> BackendKind {
        BackendKind::Jail
    }

    fn start(&self, start: &Start<'_>) -> Result<Box<dyn Running>, BackendError> {
        let template = JailTemplate::prepare(start, self.passing)?;
        Ok(Box::new(Cloned { jail: template.start(start, Haste::Somebody)?, _template: template }))
    }
}

impl Running for Cloned {
    fn parts(&mut self) -> (&mut Connection, &mut dyn Watch) {
        self.jail.parts()
    }

    fn enforcement(&self) -> &Enforcement {
        self.jail.enforcement()
    }

    fn steps(&self) -> &[(String, u32)] {
        self.jail.steps()
    }

    fn notes(&self) -> &[String] {
        self.jail.notes()
    }

    fn environment(&self) -> &[(String, OsString)] {
        self.jail.environment()
    }

    fn freeze(&mut self, frozen: Frozen) -> Result<(), BackendError> {
        self.jail.freeze(frozen)
    }

    fn take_exports(&mut self) -> Vec<(String, OwnedFd)> {
        self.jail.take_exports()
    }

    fn process(&self) -> &OwnedFd {
        self.jail.process()
    }

    fn silence(&mut self) {
        self.jail.silence();
    }

    fn destroy(self: Box<Self>) {
        drop(self);
    }
}
