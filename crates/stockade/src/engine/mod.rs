//! One call, whoever asks: `run`, `cap run` and the MCP server translate what they are given into a [`Call`], and what comes of it into their
//! own words. Nothing else admits, runs and records.
//!
//! ```text
//!  assembled ─▶ admitted? ── no, or nobody approved it yet (`approval`) ─▶ denial written ──▶ Denied
//!                   │ yes
//!                   ▼
//!             wall is raised ∥ intent written ─▶ runs ─▶ everything silent ─▶ outcome written ─▶ Ran
//!                   │                │ cannot be        │ stream or wall fails
//!                   ▼                ▼                  ▼
//!               Failure           Failure           outcome written ─▶ Failure
//!             (nothing ran)     (nothing ran)
//! ```
//!
//! Each state has one owner: [`invoke`] and what it holds on its stack. Calls share nothing but the files on disk that were made to be shared,
//! and an overlay that outlives a call ([`overlay`]), where one call at a time has its turn. `capability` puts the call of a capability
//! together, `files` is the call that runs no program, `asker` says who asks, `result` is what `run --json` prints.

pub(crate) mod asker;
pub(crate) mod capability;
pub(crate) mod files;
pub(crate) mod overlay;
pub(crate) mod result;

use std::cell::Cell;
use std::ffi::{OsStr, OsString};

use serde_json::Value;
use stockade_core::result::Decision;
use stockade_sandbox::drive::Streams;
use stockade_sandbox::gate::Gate;
use stockade_sandbox::launch::remote::Ready;
use stockade_sandbox::once::{self, Done, Extras, Job, JobError, OnSuccess, Remains};
use stockade_sandbox::signals::Signals;
use stockade_store::packs::Packs;

use crate::Context;
use crate::admission::{SHELL, Wanted, unasked};
use crate::approval::{Consent, Filed, Manner, Refusal};
use crate::assemble::{self, Admitted, Assembled};
use crate::egress::Outlet;
use crate::egress::outlet::Closed;
use crate::failure::Failure;
use crate::receipts::{Asked, Book, Capture, Past, Running, secrets_of};

use overlay::Turn;

/// What is asked for, and where it would happen.
pub(crate) struct Call<'a> {
    /// The sandbox.
    pub(crate) assembled: Assembled,
    /// What would run in it.
    pub(crate) subject: Subject<'a>,
    /// A denial that was decided before the rules were asked.
    pub(crate) refused: Option<Decision>,
    /// What becomes of its output.
    pub(crate) capture: Capture,
    /// Who may be asked about it.
    pub(crate) asks: Asks<'a>,
}

/// Where a person is asked, if the rules want one to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asks<'a> {
    /// Here: at the terminal, or by a request.
    Here,
    /// By whoever this process does it for. Nothing is written then.
    Elsewhere,
    /// By a request: whoever calls is no person.
    ByRequest {
        /// What its client said yes to.
        consent: Option<&'a Consent>,
        /// Everything that it reads.
        input: &'a [u8],
    },
    /// Nobody can be asked, and nothing runs.
    Nobody,
}

/// What would run.
#[derive(Clone, Copy)]
pub(crate) enum Subject<'a> {
    /// A program and its arguments.
    Program(&'a [OsString]),
    /// A script for the shell.
    Script(&'a OsString),
    /// A capability, with the packs that it came from.
    Capability(&'a capability::Called, &'a Packs),
}

/// What came of a call.
pub(crate) struct Came {
    /// Whether it ran.
    pub(crate) end: End,
    /// The sandbox, as it was admitted.
    pub(crate) assembled: Assembled,
    /// The ledger, to be closed when the caller has its answer.
    pub(crate) book: Book,
    /// The receipt.
    pub(crate) receipt_id: String,
    /// The request that waits because of it.
    pub(crate) filed: Option<Filed>,
}

/// Whether a call ran.
pub(crate) enum End {
    /// Nothing ran.
    Denied(Decision),
    /// Nothing was decided: a person must be asked, and not from here.
    Elsewhere,
    /// It ran, and everything inside is silent.
    Ran(Box<Ran>),
}

/// A call that ran.
pub(crate) struct Ran {
    /// How it ended.
    pub(crate) done: Done,
    /// What it reached.
    pub(crate) traffic: Closed,
    /// What is left to clear away.
    pub(crate) remains: Remains,
}

/// Raises the wall, runs the program with these streams and ends with everything inside silent. A surface calls it once, around whatever it
/// has to do before and after.
pub(crate) type Perform<'p> = dyn Fn(Streams<'_>, Option<&Signals>) -> Result<(Done, Remains), Failure> + 'p;

/// Admits a call, decides, writes the intent, runs it and writes the outcome; or writes that it was denied. Its overlay, if it has one, is its
/// own; `play` says where its streams lead.
pub(crate) fn invoke(
    call: Call<'_>,
    context: &Context,
    play: impl FnOnce(&Assembled, &Perform<'_>) -> Result<(Done, Remains), Failure>,
) -> Result<Came, Failure> {
    invoke_in(call, context, |_| Ok(None), play)
}

/// What a call finds when its turn comes.
pub(crate) enum Ground<'t> {
    /// An overlay that outlives it.
    Overlay(Turn<'t>),
    /// A jail that stands already.
    Jail(Box<Ready>),
}

/// The same where something was made before: `wait` waits for its turn once the call is admitted.
pub(crate) fn invoke_in<'t>(
    call: Call<'_>,
    context: &Context,
    wait: impl FnOnce(&Assembled) -> Result<Option<Ground<'t>>, Failure>,
    play: impl FnOnce(&Assembled, &Perform<'_>) -> Result<(Done, Remains), Failure>,
) -> Result<Came, Failure> {
    let Call { mut assembled, subject, refused, capture, asks } = call;
    let admitted = match refused {
        Some(told) => Admitted::No(told),
        None => match subject.admit(&mut assembled, context)? {
            Admitted::Asked(question) if asks == Asks::Nobody => Admitted::No(unasked(question.told)),
            admitted => admitted,
        },
    };
    let argv = subject.argv();
    let words = subject.words();
    let book = Book::new(&assembled.state, assembled.keeping.clone(), context);
    let outlet = Outlet::of(&assembled.reach, &assembled.given, context)?;
    let secrets = secrets_of(outlet.as_ref());
    let receipt = Running::new(&book, subject.asked(&argv, &words), &argv, &assembled, secrets, capture)?;
    let mut receipt = receipt.with_credentials(outlet.as_ref());
    if let Some(agent) = assembled.rules.asker().agent() {
        receipt = receipt.of_agent(agent.whole(), agent.client().to_owned());
    }
    receipt.traced(assembled.trace.as_ref());
    let receipt_id = receipt.id();
    if asks == Asks::Elsewhere && matches!(admitted, Admitted::Asked(_)) {
        drop(receipt);
        drop(outlet);
        return Ok(Came { end: End::Elsewhere, assembled, book, receipt_id, filed: None });
    }
    // What is approved is bound to what the overlay holds, so nobody else may write there until it ran.
    let is_bound = matches!((&admitted, asks), (Admitted::Asked(_), Asks::ByRequest { .. }));
    let (ground, wait) = if is_bound { (wait(&assembled)?, None) } else { (None, Some(wait)) };
    let written = match &ground {
        Some(Ground::Overlay(turn)) => Some(turn.written()?),
        Some(Ground::Jail(_)) | None => None,
    };
    let manner = match asks {
        Asks::ByRequest { consent, input } => Manner::Called { written: written.as_ref(), consent, input },
        Asks::Here | Asks::Elsewhere | Asks::Nobody => Manner::Typed,
    };
    if let Some(Refusal { told, filed }) = admitted.settle(&assembled, &receipt, &manner, secrets, context)? {
        receipt.deny(&told)?;
        drop(receipt);
        drop(outlet);
        return Ok(Came { end: End::Denied(told), assembled, book, receipt_id, filed });
    }
    assemble::warn_if_local(assembled.backend.as_ref(), context);
    let ground = match wait {
        Some(wait) => wait(&assembled)?,
        None => ground,
    };
    let (turn, ready) = match ground {
        None => (None, None),
        Some(Ground::Overlay(turn)) => (Some(turn), None),
        Some(Ground::Jail(ready)) => (None, Some(*ready)),
    };
    let ready = Cell::new(ready);
    if let Asks::ByRequest { input, .. } = asks {
        receipt.fed(input)?;
    }
    let receipt = if turn.as_ref().is_some_and(Turn::is_used) { receipt.after(Past::Used) } else { receipt };
    let job = Job {
        backend: assembled.backend.as_ref(),
        spec: &assembled.spec,
        state: &assembled.state,
        runtime: &assembled.runtime,
        home: &assembled.home,
        toolchain_roots: &assembled.toolchain_roots,
        argv: &argv,
        on_success: if assembled.applies { OnSuccess::Apply } else { OnSuccess::Keep },
        gate: outlet.as_ref().map(|outlet| outlet as &dyn Gate),
        intent: Some(&receipt),
    };
    let perform = |streams: Streams<'_>, signals: Option<&Signals>| {
        let extras = turn.as_ref().map_or_else(|| Ok(Extras { ready: ready.take(), ..Extras::default() }), Turn::extras)?;
        once::run_with(&job, extras, streams, signals).map_err(|error| explain(&error))
    };
    let ran = play(&assembled, &perform);
    let traffic = outlet.as_ref().map(Outlet::close).unwrap_or_default();
    let ran = ran.and_then(|(mut done, remains)| {
        let Some(turn) = turn else { return Ok((done, remains)) };
        // The next in turn has the same directory and the same groups.
        remains.clear().map_err(|error| explain(&JobError::State(error)))?;
        turn.take_changes(&mut done, &assembled)?;
        Ok((done, Remains::nothing()))
    });
    let (mut done, remains) = ran.inspect_err(|failure| receipt.fail(failure, context))?;
    done.violations.extend(traffic.broken.clone());
    receipt.finish(&done, &traffic, context);
    drop(receipt);
    drop(outlet);
    Ok(Came { end: End::Ran(Box::new(Ran { done, traffic, remains })), assembled, book, receipt_id, filed: None })
}

/// What a receipt says of a call besides its arguments.
struct Words {
    inputs: OsString,
    vouched: String,
}

impl Subject<'_> {
    /// Asks the rules.
    fn admit(self, assembled: &mut Assembled, context: &Context) -> Result<Admitted, Failure> {
        match self {
            Self::Program(argv) => assembled.admit(Wanted::Program(argv), context),
            Self::Script(script) => assembled.admit(Wanted::Shell(script), context),
            Self::Capability(called, packs) => called.admit(assembled, packs, context),
        }
    }

    /// The program and its arguments; a script runs under `bash`.
    fn argv(self) -> Vec<OsString> {
        match self {
            Self::Program(argv) => argv.to_vec(),
            Self::Script(script) => vec![OsStr::new(SHELL).to_owned(), "-c".into(), script.clone()],
            Self::Capability(called, _) => called.argv(),
        }
    }

    fn words(self) -> Words {
        match self {
            Self::Program(_) | Self::Script(_) => Words { inputs: OsString::new(), vouched: String::new() },
            Self::Capability(called, _) => Words {
                inputs: OsString::from(Value::Object(called.prepared.values.clone()).to_string()),
                vouched: format!("of the pack `{}`, {}", called.facts.pack, called.standing.name()),
            },
        }
    }

    fn asked<'b>(&'b self, argv: &'b [OsString], words: &'b Words) -> Asked<'b> {
        match self {
            Self::Program(_) => Asked::Program(argv),
            Self::Script(script) => Asked::Script { script, argv },
            Self::Capability(called, _) => {
                Asked::Capability { name: called.facts.name.as_str(), inputs: &words.inputs, argv, vouched: &words.vouched }
            }
        }
    }
}

/// A job's error as a failure with its step and fix.
pub(crate) fn explain(error: &JobError) -> Failure {
    let (step, hint) = match error {
        JobError::State(_) => ("state".to_owned(), None),
        JobError::Backend(error) => (error.step(), error.hint()),
        JobError::Gate(error) => (error.step.clone(), error.hint.clone()),
        JobError::Intent(error) => (error.step.clone(), error.hint.clone()),
        JobError::Connection(_) => ("sandbox".to_owned(), None),
        JobError::Furnish { .. } => ("files of the agent".to_owned(), None),
        JobError::Layer(error) => ("changes".to_owned(), error.hint().map(str::to_owned)),
        JobError::Keep(_) => ("changes".to_owned(), None),
        JobError::Fleeting => ("changes".to_owned(), Some(FLEETING.to_owned())),
    };
    let failure = Failure::from_error(step, error);
    match hint {
        Some(hint) => failure.with_hint(crate::commands::runnable(&hint)),
        None => failure,
    }
}

/// How changes come to last.
const FLEETING: &str =
    "put XDG_STATE_HOME outside the workspace on a disk, and ask for no disk limit (`stockade config unset sandbox.limits.disk`)";
