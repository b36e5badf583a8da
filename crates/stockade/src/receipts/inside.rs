//! The deed that happens in a sandbox that stands: a program, a file, a change that is brought back.

use std::ffi::OsString;
use std::process::ExitCode;

use stockade_core::spec::{MountMode, SandboxSpec};
use stockade_ledger::Weight;
use stockade_ledger::receipt::SandboxFacts;
use stockade_ledger::redact::{Counts, Redact};
use stockade_sandbox::backends::local;
use stockade_sandbox::drive;
use stockade_sandbox::keeper::{self, Charge};
use stockade_sandbox::state::Found;

use super::book::Book;
use super::deed::{Asked, Deed};
use super::describe::{self, sandbox_of};
use super::program::{Candidate, Past, Programs};
use super::running::{self, Capture};
use crate::Context;
use crate::egress::outlet::Facts;
use crate::egress::record::Record;
use crate::egress::{Outlet, summary};
use crate::failure::Failure;

/// What happens in a sandbox that stands.
pub(crate) struct Inside<'a> {
    /// The call.
    pub(crate) deed: Deed<'a>,
    found: &'a Found,
    charge: Option<&'a Charge>,
}

/// What must not be stored of what happens in a sandbox that stands. Its own broker is another process's; the same values are asked for anew.
pub(crate) struct Secrets<'a> {
    charge: Option<&'a Charge>,
    outlet: Option<Outlet<'a>>,
    /// Why nobody knows them.
    unknown: Option<String>,
}

impl<'a> Secrets<'a> {
    /// Those of a sandbox.
    pub(crate) fn of(charge: Option<&'a Charge>, context: &'a Context) -> Self {
        let outlet = charge.filter(|charge| !charge.reach.secrets.is_empty());
        let looked = outlet.map_or(Ok(None), |charge| Outlet::of(&charge.reach, &charge.given, context));
        let (outlet, unusable) = match looked {
            Ok(outlet) => (outlet, None),
            Err(failure) => (None, Some(failure.message)),
        };
        let unknown = outlet.as_ref().and_then(|outlet| outlet.pieces(&[], &mut Counts::default()).err());
        let unknown = unusable.or(unknown.map(|error| error.to_string()));
        Self { charge, outlet: outlet.filter(|_| unknown.is_none()), unknown }
    }

    fn redactor(&self) -> &dyn Redact {
        secrets_of(self.outlet.as_ref())
    }
}

/// A program in it.
pub(crate) struct Program<'a> {
    inside: Inside<'a>,
    programs: Programs,
    candidate: Option<Candidate>,
    capture: Capture,
    /// How much was known of its traffic and of its violations before.
    traffic: u64,
    violations: usize,
}

impl<'a> Inside<'a> {
    /// Something that is done to a sandbox; its configuration is noted where it has one.
    pub(crate) fn new(
        book: &'a Book,
        asked: Asked<'a>,
        weight: Weight,
        found: &'a Found,
        secrets: &'a Secrets<'a>,
    ) -> Result<Self, Failure> {
        let deed = Deed::new(book, asked, weight, secrets.redactor());
        let charge = secrets.charge;
        if let Some(why) = &secrets.unknown {
            deed.note(|draft| draft.violations.push(format!("the values of this sandbox's secrets could not be looked for: {why}")));
        }
        let facts = match &charge {
            Some(charge) => sandbox_of(&charge.backend, &charge.spec, &charge.reach, &book.payloads(), deed.redactor())?,
            None => SandboxFacts { backend: found.record.backend.clone(), ..SandboxFacts::default() },
        };
        deed.note(|draft| draft.sandbox = Some(SandboxFacts { id: Some(found.record.id.to_string()), ..facts }));
        Ok(Self { deed, found, charge })
    }

    /// A program that is about to run in it, in this directory and with these variables.
    pub(crate) fn program(
        self,
        argv: &[OsString],
        cwd: &std::path::Path,
        env: &[(String, OsString)],
        capture: Capture,
        context: &Context,
    ) -> Result<Program<'a>, Failure> {
        let programs = Programs::new(&context.places()?.state);
        let spec = self.charge.as_ref().and_then(|charge| {
            let cwd = stockade_core::path::SafePath::new(cwd).ok()?;
            Some(SandboxSpec { cwd, env: env.to_vec(), ..charge.spec.clone() })
        });
        let candidate = spec.zip(argv.first()).and_then(|(spec, name)| Programs::find(name, &spec, Past::Used));
        self.deed.note(|draft| {
            draft.program = candidate.as_ref().map(|candidate| programs.expected(candidate));
            draft.cwd = Some(describe::shown(cwd));
            draft.env_names = Some(env.iter().map(|(name, _)| name.clone()).collect());
            draft.credentials = self.charge.map(|charge| describe::credentials_of(&charge.reach, &Facts::default())).unwrap_or_default();
        });
        let traffic = Record::open(&self.found.directory).and_then(|record| record.since(0)).map_or(0, |(_, place)| place);
        let violations = keeper::violations(&self.found.directory).len();
        Ok(Program { inside: self, programs, candidate, capture, traffic, violations })
    }
}

impl Program<'_> {
    /// The call's id.
    pub(crate) fn id(&self) -> String {
        self.inside.deed.id()
    }

    /// Writes the intent. After an error nothing may run.
    pub(crate) fn begin(&self) -> Result<(), Failure> {
        self.inside.deed.begin()
    }

    /// It failed on our side.
    pub(crate) fn fail(&self, failure: &Failure, context: &Context) {
        self.inside.deed.end(super::deed::failed(failure), context);
    }

    /// It ended; gives the violations that were noticed meanwhile.
    pub(crate) fn finish(&self, outcome: &drive::Outcome, context: &Context) -> Vec<String> {
        let Self { inside: Inside { deed, found, .. }, programs, candidate, .. } = self;
        let violations: Vec<String> = keeper::violations(&found.directory).into_iter().skip(self.violations).collect();
        // What others in the same sandbox reached meanwhile is listed too: it cannot be told apart.
        let rows =
            Record::open(&found.directory).and_then(|record| record.since(self.traffic)).map_or_else(|_| Vec::new(), |(rows, _)| rows);
        deed.note(|draft| {
            draft.program = outcome.program.as_ref().map(|executed| programs.executed(candidate.as_ref(), executed));
            draft.network = summary::listed(&rows);
            draft.violations.extend(violations.iter().cloned());
        });
        let result = running::reported(outcome, self.capture, &deed.book().payloads(), deed.redactor());
        match result {
            Ok((result, redactions)) => {
                deed.note(|draft| draft.redactions = redactions);
                deed.end(result, context);
            }
            Err(failure) => {
                context.printer.warning(format!("the program's output cannot be kept: {}", failure.message));
                deed.end(running::ended(outcome), context);
            }
        }
        violations
    }
}

/// Who knows the secrets that may go through a way out.
pub(crate) fn secrets_of<'a>(outlet: Option<&'a Outlet<'_>>) -> &'a dyn Redact {
    match outlet {
        Some(outlet) => outlet,
        None => super::deed::no_secrets(),
    }
}

/// Does something to a sandbox, between an intent and an outcome.
pub(crate) fn recorded(
    verb: &'static str,
    words: &[&str],
    weight: Weight,
    found: &Found,
    context: &Context,
    act: impl FnOnce(&Deed<'_>) -> Result<ExitCode, Failure>,
) -> Result<ExitCode, Failure> {
    let book = Book::of(context)?;
    let charge = Charge::read(&found.directory).ok();
    let secrets = Secrets::of(charge.as_ref(), context);
    let inside = Inside::new(&book, Asked::Verb(verb, words), weight, found, &secrets)?;
    let result = inside.deed.around(context, || act(&inside.deed));
    drop(inside);
    book.close().tidy();
    result
}

/// Whether what happens in a sandbox can change anything outside it.
pub(crate) fn weight_in(found: &Found) -> Weight {
    let reaches = || {
        Charge::read(&found.directory)
            .is_ok_and(|charge| !charge.reach.is_nothing() || charge.spec.mounts.iter().any(|mount| mount.mode == MountMode::Rw))
    };
    let writes = found.record.mode == MountMode::Rw || found.record.backend == local::KIND.name();
    if writes || reaches() { Weight::Effect } else { Weight::Read }
}
