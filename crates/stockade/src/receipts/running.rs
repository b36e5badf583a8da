//! The deed that is a program in a fresh sandbox: its intent is written while the wall is raised, its outcome when everything inside is silent.

use std::cell::OnceCell;
use std::ffi::OsString;

use stockade_core::demand::Demand;
use stockade_core::id::SandboxId;
use stockade_core::result::Change;
use stockade_core::spec::{MountMode, SandboxSpec};
use stockade_ledger::Weight;
use stockade_ledger::payload::Payloads;
use stockade_ledger::receipt::{Approval, Bytes, ChangedFile, Outcome, Trace, Truncated};
use stockade_ledger::redact::Redact;
use stockade_sandbox::backends::local;
use stockade_sandbox::drive::{self, Captured, Ending};
use stockade_sandbox::intent::{Intent, IntentError};
use stockade_sandbox::once::{self, Done};
use stockade_sandbox::workspace::digest::ContentDigest;

use super::book::Book;
use super::deed::{self, Asked, Deed};
use super::describe::{self, policy_of, sandbox_of};
use super::program::{Candidate, Past, Programs};
use crate::Context;
use crate::approval::Witness;
use crate::assemble::Assembled;
use crate::egress::Outlet;
use crate::egress::outlet::{Closed, Facts};
use crate::egress::summary;
use crate::failure::Failure;

/// A program that is about to run, or did.
pub(crate) struct Running<'a> {
    deed: Deed<'a>,
    assembled: &'a Assembled,
    program: &'a OsString,
    programs: Programs,
    found: OnceCell<Option<Candidate>>,
    capture: Capture,
    past: Past,
    /// What is known of its credentials.
    facts: Facts,
}

/// What becomes of the program's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Capture {
    /// It goes by unseen.
    None,
    /// It is held, and kept by digest.
    Kept,
}

impl Capture {
    /// As a command that runs a program does: what is printed as JSON is captured.
    pub(crate) fn of(context: &Context) -> Self {
        if context.printer.is_json() { Self::Kept } else { Self::None }
    }
}

impl<'a> Running<'a> {
    /// Nothing is written yet.
    pub(crate) fn new(
        book: &'a Book,
        asked: Asked<'a>,
        argv: &'a [OsString],
        assembled: &'a Assembled,
        redactor: &'a dyn Redact,
        capture: Capture,
    ) -> Result<Self, Failure> {
        let program = argv.first().ok_or_else(|| Failure::new("arguments", "the program's name is empty"))?;
        let deed = Deed::new(book, asked, weight(assembled), redactor);
        let programs = Programs::new(&assembled.state);
        Ok(Self { deed, assembled, program, programs, found: OnceCell::new(), capture, past: Past::Fresh, facts: Facts::default() })
    }

    /// With what is known of its credentials once its way out is open.
    pub(crate) fn with_credentials(self, outlet: Option<&Outlet<'_>>) -> Self {
        Self { facts: outlet.map(Outlet::facts).unwrap_or_default(), ..self }
    }

    /// The call's id.
    pub(crate) fn id(&self) -> String {
        self.deed.id()
    }

    /// Says which agent it is.
    pub(crate) fn of_agent(self, agent: String, client: String) -> Self {
        self.deed.of_agent(agent, client);
        self
    }

    /// Says what the caller was doing.
    pub(crate) fn traced(&self, trace: Option<&Trace>) {
        self.deed.note(|draft| draft.trace = trace.cloned());
    }

    /// Says what it is given to read, where that is known before it runs. Kept like its output: by the digest of what is left when secrets are taken out.
    pub(crate) fn fed(&self, input: &[u8]) -> Result<(), Failure> {
        if input.is_empty() {
            return Ok(());
        }
        let stored = self.deed.book().payloads().keep(input, self.deed.redactor()).map_err(|error| super::book::failure(&error))?;
        self.deed.note(|draft| draft.stdin_sha256 = Some(stored.sha256));
        Ok(())
    }

    /// Says that others wrote where it runs before.
    pub(crate) fn after(self, past: Past) -> Self {
        Self { past, ..self }
    }

    /// It was denied, and nothing ran.
    pub(crate) fn deny(&self, told: &stockade_core::result::Decision) -> Result<(), Failure> {
        self.deed.note(|draft| draft.cwd = Some(describe::shown(self.assembled.spec.cwd.as_path())));
        self.deed.deny(told, &self.assembled.rules)
    }

    /// It failed on our side; written where its intent was, and where it was to have secrets: somebody may have been asked for them.
    pub(crate) fn fail(&self, failure: &Failure, context: &Context) {
        let Assembled { reach, told, rules, .. } = self.assembled;
        if !self.deed.has_begun() && !reach.secrets.is_empty() {
            self.deed.note(|draft| {
                draft.policy = Some(policy_of(told, rules));
                draft.credentials = describe::credentials_of(reach, &self.facts);
            });
            return self.deed.never_began(deed::failed(failure), context);
        }
        self.deed.end(deed::failed(failure), context);
    }

    /// It ended.
    pub(crate) fn finish(&self, done: &Done, traffic: &Closed, context: &Context) {
        let outcome = &done.outcome;
        self.deed.note(|draft| {
            if let Some(sandbox) = &mut draft.sandbox {
                describe::held(sandbox, &done.enforcement);
            }
            if let Some(executed) = &outcome.program {
                draft.program = Some(self.programs.executed(self.found.get().and_then(Option::as_ref), executed));
            } else {
                draft.program = None;
            }
            if self.assembled.spec.workspace.mode != MountMode::Rw {
                draft.changes = Some(changed(&done.changes, &done.digests));
            }
            draft.network = summary::listed(&traffic.rows);
            draft.violations.clone_from(&done.violations);
            if traffic.rows.len() > draft.network.len() {
                draft.violations.push(format!("of {} requests the first {} are listed", traffic.rows.len(), draft.network.len()));
            }
        });
        let result = match reported(outcome, self.capture, &self.deed.book().payloads(), self.deed.redactor()) {
            Ok((result, redactions)) => {
                self.deed.note(|draft| draft.redactions = redactions);
                result
            }
            Err(failure) => {
                context.printer.warning(format!("the program's output cannot be kept: {}", failure.message));
                ended(outcome)
            }
        };
        self.deed.end(result, context);
    }

    fn write_intent(&self, sandbox: &SandboxId, spec: &SandboxSpec) -> Result<(), Failure> {
        let Assembled { backend, reach, told, rules, .. } = self.assembled;
        let found = self.found.get_or_init(|| Programs::find(self.program, spec, self.past));
        let facts = sandbox_of(backend.kind().name(), spec, reach, &self.deed.book().payloads(), self.deed.redactor())?;
        self.deed.note(|draft| {
            draft.sandbox = Some(stockade_ledger::receipt::SandboxFacts { id: Some(sandbox.to_string()), ..facts });
            draft.program = found.as_ref().map(|found| self.programs.expected(found));
            draft.cwd = Some(describe::shown(spec.cwd.as_path()));
            draft.env_names = Some(spec.env.iter().map(|(name, _)| name.clone()).collect());
            draft.policy = Some(policy_of(told, rules));
            draft.credentials = describe::credentials_of(reach, &self.facts);
        });
        self.deed.begin()
    }
}

impl Witness for Running<'_> {
    fn id(&self) -> String {
        self.deed.id()
    }

    fn decided(&self, verb: &'static str, approval: &Approval, told: &stockade_core::result::Decision) -> Result<(), Failure> {
        self.deed.decided(verb, approval, told, &self.assembled.rules)
    }

    fn approved(&self, approval: Approval) {
        self.deed.note(|draft| draft.approval = Some(approval));
    }
}

impl Intent for Running<'_> {
    fn write(&self, sandbox: &SandboxId, spec: &SandboxSpec) -> Result<(), IntentError> {
        let told = |failure: Failure| IntentError { step: failure.step, message: failure.message, hint: failure.hint };
        self.write_intent(sandbox, spec).map_err(told)
    }
}

/// Whether a run can change anything outside its sandbox.
fn weight(assembled: &Assembled) -> Weight {
    let spec = &assembled.spec;
    let writes = spec.workspace.mode == MountMode::Rw || spec.mounts.iter().any(|mount| mount.mode == MountMode::Rw);
    let walled = assembled.backend.kind() != local::KIND;
    if walled && !writes && assembled.reach.is_nothing() && !assembled.applies { Weight::Read } else { Weight::Effect }
}

/// How a program ended, with its output kept by digest where it was captured; and what was taken out of that.
pub(super) fn reported(
    outcome: &drive::Outcome,
    capture: Capture,
    payloads: &Payloads,
    redactor: &dyn Redact,
) -> Result<(Outcome, Vec<stockade_ledger::receipt::Redaction>), Failure> {
    let mut result = ended(outcome);
    if capture == Capture::None {
        result.capture = Some("none".to_owned());
        return Ok((result, Vec::new()));
    }
    let mut counts = stockade_ledger::redact::Counts::default();
    let mut keep = |captured: &Captured| -> Result<String, Failure> {
        let stored = payloads.keep(&captured.bytes, redactor).map_err(|error| super::book::failure(&error))?;
        counts.add(&stored.redactions);
        Ok(stored.sha256)
    };
    result.stdout_sha256 = Some(keep(&outcome.stdout)?);
    result.stderr_sha256 = Some(keep(&outcome.stderr)?);
    result.capture = Some("kept".to_owned());
    Ok((result, counts.to_redactions()))
}

pub(super) fn ended(outcome: &drive::Outcome) -> Outcome {
    let drive::Outcome { ending, stdout, stderr, duration, .. } = outcome;
    let mut result = Outcome { duration_ms: Some(once::millis(*duration)), ..Outcome::default() };
    match ending {
        Ending::Code(code) => result.exit_code = Some(*code),
        Ending::Signal(signal) => result.signal = Some(*signal),
        Ending::TimedOut => result.limit = Some(Demand::Time.to_string()),
        Ending::Limit(demand) => {
            result.signal = Some(libc::SIGKILL);
            result.limit = Some(demand.to_string());
        }
        Ending::NotStarted { message, .. } => result.failure = Some(format!("exec: {message}")),
    }
    if stdout.total > 0 || stderr.total > 0 {
        result.bytes = Some(Bytes { stdout: stdout.total, stderr: stderr.total });
    }
    if stdout.truncated || stderr.truncated {
        result.truncated = Some(Truncated { stdout: stdout.truncated, stderr: stderr.truncated });
    }
    result
}

/// Changes with the digests of what is there now.
pub(crate) fn changed(changes: &[Change], digests: &[Option<ContentDigest>]) -> Vec<ChangedFile> {
    let digest = |at: usize| digests.get(at).copied().flatten().map(|digest| digest.to_string());
    changes.iter().enumerate().map(|(at, change)| ChangedFile { change: change.clone(), sha256: digest(at) }).collect()
}
