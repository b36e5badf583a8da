//! The ledger as commands have it: opened when it is first written to, and never twice.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use stockade_core::escape::escape;
use stockade_ledger::payload::Payloads;
use stockade_ledger::receipt::Draft;
#[cfg(wall)]
use stockade_ledger::receipt::Kind;
use stockade_ledger::redact::Redact;
use stockade_ledger::{Durability, Ledger, LedgerError, Options, Order, Weight};
use stockade_store::settings::Settings;

use super::keeping::Keeping;
use crate::Context;
#[cfg(wall)]
use crate::daemon::Standing;
use crate::failure::Failure;

/// The ledger's directory beneath the state.
const DIRECTORY: &str = "receipts";
/// The step that fails where no receipt can be written.
const STEP: &str = "receipt";
/// What a witness said instead of signing, beside the ledger.
const REFUSED: &str = "witness-refused";
/// The most that is shown of it.
const MOST_SHOWN: usize = 300;

/// Where receipts are written.
#[derive(Debug)]
pub(crate) struct Book {
    directory: PathBuf,
    keeping: Keeping,
    ledger: OnceCell<Result<Arc<Ledger>, Failure>>,
    #[cfg(wall)]
    standing: Option<Arc<Standing>>,
}

impl Book {
    /// The ledger of this state directory. Nothing is opened yet. Whether the witness refused last time is told: nobody was there to hear it.
    pub(crate) fn new(state: &Path, keeping: Keeping, context: &Context) -> Self {
        let directory = directory(state);
        if keeping.is_witnessed()
            && let Ok(why) = std::fs::read_to_string(directory.join(REFUSED))
        {
            let why: String = escape(&why).chars().take(MOST_SHOWN).collect();
            context.printer.warning(format!("the last receipts were not witnessed: {why}; `stockade receipts verify` says more"));
        }
        let ledger = OnceCell::new();
        #[cfg(wall)]
        if let Some(standing) = &context.standing {
            // Set once, right here.
            let _ = ledger.set(standing.ledger(&directory, keeping.durability));
        }
        Self {
            directory,
            keeping,
            ledger,
            #[cfg(wall)]
            standing: context.standing.clone(),
        }
    }

    /// The ledger of whoever typed a command; a project has no say in it.
    pub(crate) fn of(context: &Context) -> Result<Self, Failure> {
        let places = context.places()?;
        // Settings that cannot be read must not keep anybody from mending them; the safest holds then.
        let keeping = Settings::load(places, None).map_or_else(|_| Keeping::safest(), |settings| Keeping::of(&settings));
        Ok(Self::new(&places.state, keeping, context))
    }

    /// Writes a receipt, as durably as the settings ask for.
    pub(crate) fn append(&self, draft: &Draft, weight: Weight, redactor: &dyn Redact) -> Result<(), Failure> {
        let appended = self.ledger()?.append(draft, weight, redactor).map_err(|error| {
            #[cfg(wall)]
            if let Some(standing) = self.standing.as_ref().filter(|_| error.passes_with_opening()) {
                standing.forget_ledger(&self.directory);
            }
            failure(&error)
        })?;
        #[cfg(wall)]
        if let Some(ended) = self
            .standing
            .as_ref()
            .and_then(|standing| standing.ended.as_ref())
            .filter(|_| matches!(draft.kind, Kind::Outcome | Kind::Denied))
        {
            ended.push(appended.seq);
        }
        #[cfg(not(wall))]
        let _ = appended;
        Ok(())
    }

    /// Gives up the room that is kept back where the disk is full: who is about to make some must be able to write that down.
    #[cfg(wall)]
    pub(crate) fn give_way(&self) {
        stockade_ledger::reserve::release_if_full(&self.directory);
    }

    /// Where output and configurations are kept by digest.
    pub(crate) fn payloads(&self) -> Payloads {
        Payloads::new(&self.directory, Payloads::MOST)
    }

    /// The open ledger.
    pub(crate) fn ledger(&self) -> Result<&Ledger, Failure> {
        let opened = self.ledger.get_or_init(|| open(&self.directory, self.keeping.durability).map(Arc::new));
        opened.as_ref().map(AsRef::as_ref).map_err(Clone::clone)
    }

    /// Closes the ledger, and gives what is left to do when nobody waits any more.
    pub(crate) fn close(self) -> Untidy {
        drop(self.ledger);
        Untidy {
            directory: self.directory,
            keeping: self.keeping,
            #[cfg(wall)]
            standing: self.standing,
        }
    }
}

/// A closed ledger that is to be put in order and witnessed. What fails is done after the next command.
#[must_use = "the next command would have to do it"]
pub(crate) struct Untidy {
    directory: PathBuf,
    keeping: Keeping,
    #[cfg(wall)]
    standing: Option<Arc<Standing>>,
}

impl Untidy {
    /// That of a state directory, to be seen to by this very process.
    #[cfg(wall)]
    pub(crate) fn of(state: &Path, keeping: Keeping) -> Self {
        Self { directory: directory(state), keeping, standing: None }
    }

    /// Puts it in order, where that is due; and has the witness sign how far it has got, so that nobody waits for that before.
    pub(crate) fn tidy(self) {
        let _ = Ledger::tidy(&self.directory);
        if !self.keeping.is_witnessed() {
            return;
        }
        let refused = self.directory.join(REFUSED);
        // Where this cannot be written down either, `verify` still asks the witness.
        let _ = match self.witnessed() {
            Ok(()) => std::fs::remove_file(refused),
            Err(failure) => std::fs::write(refused, failure.message),
        };
    }

    /// Has the witness sign.
    pub(crate) fn witnessed(&self) -> Result<(), Failure> {
        #[cfg(wall)]
        if let (Some(steward), Some(program)) =
            (self.standing.as_ref().and_then(|standing| standing.steward.as_ref()), self.keeping.program())
        {
            return steward.witness(program);
        }
        let witness = self.keeping.witness(&self.directory)?;
        let ledger = Ledger::open(&self.directory, Options { witness, order: Order::Later, ..Options::default() });
        ledger.and_then(Ledger::close).map_err(|error| failure(&error))
    }
}

/// Opens a ledger to write to.
pub(crate) fn open(directory: &Path, durability: Durability) -> Result<Ledger, Failure> {
    let options = Options { durability, order: Order::Later, ..Options::default() };
    Ledger::open(directory, options).map_err(|error| failure(&error))
}

/// The ledger's directory.
pub(crate) fn directory(state: &Path) -> PathBuf {
    state.join(DIRECTORY)
}

/// An error of the ledger as a failure that names the step.
pub(crate) fn failure(error: &LedgerError) -> Failure {
    let failure = Failure::from_error(STEP, error);
    match error.hint() {
        Some(hint) => failure.with_hint(hint),
        None => failure,
    }
}
