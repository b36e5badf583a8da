//! One call: its intent, then its outcome; or its denial.

use std::cell::{Cell, RefCell};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::time::Instant;

use sha2::{Digest as _, Sha256};
use stockade_core::escape::escape_bytes;
use stockade_core::result::Decision;
use stockade_ledger::Weight;
use stockade_ledger::receipt::{Approval, Cut, Draft, Kind, Outcome, Principal, ReceiptId};
use stockade_ledger::redact::{Counts, Redact, Redactor};
use stockade_store::person;
use stockade_verify::text::to_hex;

use super::book::Book;
#[cfg(wall)]
use super::describe::policy_of;
use crate::Context;
#[cfg(wall)]
use crate::admission::Rules;
use crate::failure::Failure;

/// Bytes of arguments that a receipt lists; of more, the digest of all.
const MOST_ARGUMENTS: usize = 128 << 10;
/// Arguments that a receipt lists.
const MOST_ITEMS: usize = 4096;

/// What was asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Asked<'a> {
    /// A program and its arguments.
    Program(&'a [OsString]),
    /// A script, and what runs it.
    Script {
        /// As it was written.
        script: &'a OsString,
        /// As it is executed.
        argv: &'a [OsString],
    },
    /// A capability, what it was given, and what that comes to.
    Capability {
        /// Its name.
        name: &'a str,
        /// Its inputs, as JSON.
        inputs: &'a OsString,
        /// As it is executed.
        argv: &'a [OsString],
        /// Who vouches for its pack.
        vouched: &'a str,
    },
    /// A tool of an MCP server that stands already, and what it is given.
    Tool {
        /// Its name among capabilities.
        name: &'a str,
        /// Its arguments, as JSON.
        inputs: &'a OsString,
        /// Whom it is of, and who accepted it.
        vouched: &'a str,
    },
    /// Something that Stockade does itself: the verb, and what it is done to.
    Verb(&'static str, &'a [&'a str]),
}

/// A call that leaves receipts.
pub(crate) struct Deed<'a> {
    book: &'a Book,
    asked: Asked<'a>,
    weight: Weight,
    redactor: &'a dyn Redact,
    /// Everything known so far.
    draft: RefCell<Draft>,
    begun: Cell<Option<Instant>>,
}

impl<'a> Deed<'a> {
    /// A call of the person at the command line. Nothing is written yet.
    pub(crate) fn new(book: &'a Book, asked: Asked<'a>, weight: Weight, redactor: &'a dyn Redact) -> Self {
        let draft = Draft::new(ReceiptId::new(), Kind::Intent);
        Self { book, asked, weight, redactor, draft: RefCell::new(draft), begun: Cell::new(None) }
    }

    /// Something that changes what Stockade itself keeps, and knows no secret.
    pub(crate) fn verb(book: &'a Book, name: &'static str, words: &'a [&'a str], weight: Weight) -> Self {
        Self::new(book, Asked::Verb(name, words), weight, no_secrets())
    }

    /// The call's id.
    pub(crate) fn id(&self) -> String {
        self.draft.borrow().receipt_id.to_string()
    }

    /// Where receipts go.
    pub(crate) fn book(&self) -> &'a Book {
        self.book
    }

    /// Who knows the secrets that must not be stored.
    pub(crate) fn redactor(&self) -> &'a dyn Redact {
        self.redactor
    }

    /// Says which agent it is.
    #[cfg(wall)]
    pub(crate) fn of_agent(&self, agent: String, client: String) {
        self.note(|draft| {
            let person = draft.principal.take().unwrap_or_default();
            draft.principal = Some(Principal { agent: Some(agent), client: Some(client), ..person });
        });
    }

    /// Adds to what is known.
    pub(crate) fn note(&self, add: impl FnOnce(&mut Draft)) {
        add(&mut self.draft.borrow_mut());
    }

    /// Writes the intent. After an error nothing may happen.
    pub(crate) fn begin(&self) -> Result<(), Failure> {
        self.describe()?;
        self.book.append(&self.draft.borrow(), self.weight, self.redactor)?;
        self.begun.set(Some(Instant::now()));
        Ok(())
    }

    /// Writes that it was denied and nothing happened.
    #[cfg(wall)]
    pub(crate) fn deny(&self, told: &Decision, rules: &Rules) -> Result<(), Failure> {
        self.note(|draft| {
            draft.kind = Kind::Denied;
            draft.policy = Some(policy_of(told, rules));
        });
        let written = self.describe().and_then(|()| {
            // Nothing was executed.
            self.note(|draft| draft.argv_executed = None);
            self.book.append(&self.draft.borrow(), Weight::Read, self.redactor)
        });
        written.or_else(|failure| {
            let mut bare = self.bare(&failure);
            bare.policy.clone_from(&self.draft.borrow().policy);
            self.book.append(&bare, Weight::Read, no_secrets())
        })
    }

    /// Writes that a person decided about it just now; with a yes it stands in what follows too.
    #[cfg(wall)]
    pub(crate) fn decided(&self, verb: &'static str, approval: &Approval, told: &Decision, rules: &Rules) -> Result<(), Failure> {
        let draft = Draft {
            capability: Some(format!("stockade.{verb}")),
            principal: Some(Principal { human: Some(person::name()), ..Principal::default() }),
            policy: Some(policy_of(told, rules)),
            approval: Some(approval.clone()),
            ..Draft::new(self.draft.borrow().receipt_id.clone(), Kind::Approval)
        };
        self.book.append(&draft, Weight::Effect, self.redactor)
    }

    /// Writes the outcome of what was begun. It happened, so a failure to write is told and no more: the next command writes it as
    /// interrupted.
    pub(crate) fn end(&self, outcome: Outcome, context: &Context) {
        let Some(begun) = self.begun.take() else { return };
        self.note(|draft| {
            draft.kind = Kind::Outcome;
            let millis = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
            draft.result = Some(Outcome { duration_ms: outcome.duration_ms.or(Some(millis)), ..outcome });
        });
        let written = self.book.append(&self.draft.borrow(), self.weight, self.redactor);
        let written = written.or_else(|failure| {
            let bare = self.book.append(&self.bare(&failure), self.weight, no_secrets());
            bare.inspect(|()| context.printer.warning(format!("the receipt says how it ended and nothing more: {}", failure.message)))
        });
        if let Err(failure) = written {
            let why = failure.message;
            context.printer.warning(format!("what came of it cannot be written down, and will be listed as interrupted: {why}"));
        }
    }

    /// Whether its intent is written and its outcome is not.
    #[cfg(wall)]
    pub(crate) fn has_begun(&self) -> bool {
        let begun = self.begun.take();
        self.begun.set(begun);
        begun.is_some()
    }

    /// Writes that it failed before it could begin: its intent and outcome at once. Nobody holds the values of its secrets, so what was asked for
    /// is left out.
    #[cfg(wall)]
    pub(crate) fn never_began(&self, outcome: Outcome, context: &Context) {
        let draft = self.draft.borrow();
        let of = |kind: Kind, result: Option<Outcome>| Draft {
            principal: Some(Principal { human: Some(person::name()), ..draft.principal.clone().unwrap_or_default() }),
            policy: draft.policy.clone(),
            approval: draft.approval.clone(),
            trace: draft.trace.clone(),
            credentials: draft.credentials.clone(),
            violations: vec!["receipt-bare: what was asked for cannot be written: nobody holds the values of its secrets".to_owned()],
            result,
            ..Draft::new(draft.receipt_id.clone(), kind)
        };
        let written = self.book.append(&of(Kind::Intent, None), self.weight, no_secrets());
        let written = written.and_then(|()| self.book.append(&of(Kind::Outcome, Some(outcome)), self.weight, no_secrets()));
        if let Err(failure) = written {
            context.printer.warning(format!("that nothing ran cannot be written down: {}", failure.message));
        }
    }

    /// Says who asked, and for what.
    fn describe(&self) -> Result<(), Failure> {
        let mut draft = self.draft.borrow_mut();
        match self.asked {
            Asked::Program(argv) => list(&mut draft, argv, argv, self.redactor)?,
            Asked::Script { script, argv } => list(&mut draft, &["--shell".into(), script.clone()], argv, self.redactor)?,
            Asked::Capability { name, inputs, argv, vouched } => {
                list(&mut draft, &[name.into(), inputs.clone()], argv, self.redactor)?;
                draft.capability = Some(name.to_owned());
                if let Some(policy) = &mut draft.policy {
                    policy.reasons.push(vouched.to_owned());
                }
            }
            Asked::Tool { name, inputs, vouched } => {
                list(&mut draft, &[name.into(), inputs.clone()], &[], self.redactor)?;
                // The server runs already; its own receipt says what was executed.
                draft.argv_executed = None;
                draft.capability = Some(name.to_owned());
                if let Some(policy) = &mut draft.policy {
                    policy.reasons.push(vouched.to_owned());
                }
            }
            Asked::Verb(name, words) => {
                draft.capability = Some(format!("stockade.{name}"));
                let own = ["stockade"].into_iter().chain(name.split('.')).chain(words.iter().copied());
                draft.argv = Some(own.map(str::to_owned).collect());
            }
        }
        let principal = draft.principal.take().unwrap_or_default();
        draft.principal = Some(Principal { human: Some(person::name()), ..principal });
        Ok(())
    }

    /// The same record without anything that came from elsewhere, where the whole one cannot be written: secrets may be in it that nobody can
    /// take out just now.
    fn bare(&self, failure: &Failure) -> Draft {
        let draft = self.draft.borrow();
        let result = draft.result.as_ref().map(|result| Outcome { failure: None, ..result.clone() });
        let violations = vec![format!("receipt-bare: the rest cannot be written: {}", failure.message)];
        Draft { result, violations, ..Draft::new(draft.receipt_id.clone(), draft.kind) }
    }

    /// Does something between the intent and the outcome; what it returns is its exit code.
    pub(crate) fn around(
        &self,
        context: &Context,
        act: impl FnOnce() -> Result<std::process::ExitCode, Failure>,
    ) -> Result<std::process::ExitCode, Failure> {
        self.begin()?;
        let result = act();
        self.end(
            match &result {
                Ok(code) if *code == std::process::ExitCode::SUCCESS => Outcome { exit_code: Some(0), ..Outcome::default() },
                Ok(_) => Outcome { exit_code: Some(1), ..Outcome::default() },
                Err(failure) => failed(failure),
            },
            context,
        );
        result
    }
}

/// Changes something that Stockade itself keeps: the change is written down first, and a change that failed once more, with the reason.
pub(crate) fn lifecycle<T>(
    name: &'static str,
    words: &[&str],
    context: &Context,
    act: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    marked(name, words, |draft| draft.kind = Kind::Lifecycle, context, act)
}

/// The same with more in the receipt.
pub(super) fn marked<T>(
    name: &'static str,
    words: &[&str],
    mark: impl FnOnce(&mut Draft),
    context: &Context,
    act: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    let book = Book::of(context)?;
    let deed = Deed::verb(&book, name, words, Weight::Effect);
    deed.note(mark);
    deed.describe()?;
    book.append(&deed.draft.borrow(), deed.weight, deed.redactor)?;
    let result = act();
    if let Err(failure) = &result {
        deed.note(|draft| draft.result = Some(failed(failure)));
        // Nothing was changed, so nothing is lost but the reason.
        let _ = book.append(&deed.draft.borrow(), Weight::Read, deed.redactor);
    }
    drop(deed);
    book.close().tidy();
    result
}

/// The outcome of something that failed on our side.
pub(crate) fn failed(failure: &Failure) -> Outcome {
    Outcome { failure: Some(format!("{}: {}", failure.step, failure.message)), ..Outcome::default() }
}

static NOTHING: std::sync::LazyLock<Redactor> = std::sync::LazyLock::new(Redactor::none);

/// Nobody knows a secret here.
pub(crate) fn no_secrets<'a>() -> &'a (dyn Redact + 'a) {
    &*NOTHING
}

/// Puts arguments into a draft: what is not text is escaped, and of too many the digest stands for the rest.
fn list(draft: &mut Draft, given: &[OsString], executed: &[OsString], redactor: &dyn Redact) -> Result<(), Failure> {
    let room = |argv: &[OsString]| argv.len() <= MOST_ITEMS && argv.iter().map(|word| word.len()).sum::<usize>() <= MOST_ARGUMENTS;
    let text = |argv: &[OsString]| argv.iter().map(|word| escaped(word)).collect::<Vec<String>>();
    if room(given) && room(executed) {
        draft.argv = Some(text(given));
        draft.argv_executed = Some(text(executed));
        return Ok(());
    }
    let bytes: Vec<&[u8]> = given.iter().map(|word| word.as_bytes()).collect();
    // Redacted first: a digest of a secret would be one.
    let clean = if redactor.is_none() {
        vec![None; bytes.len()]
    } else {
        redactor.pieces(&bytes, &mut Counts::default()).map_err(|error| super::book::failure(&error))?
    };
    let words: Vec<&[u8]> = clean.iter().zip(&bytes).map(|(clean, word)| clean.as_deref().unwrap_or(word)).collect();
    let mut hash = Sha256::new();
    for word in &words {
        hash.update(word);
        hash.update(b"\0");
    }
    let total: usize = words.iter().map(|word| word.len()).sum();
    let mut room = MOST_ARGUMENTS;
    let first = words.iter().take(MOST_ITEMS).map_while(|word| {
        room = room.checked_sub(word.len())?;
        Some(escaped(OsStr::from_bytes(word)))
    });
    draft.argv = Some(first.collect());
    draft.argv_cut = Some(Cut { items: words.len() as u64, bytes: total as u64, sha256: to_hex(&hash.finalize()) });
    Ok(())
}

/// One argument as receipts have it.
fn escaped(word: &OsStr) -> String {
    word.to_str().map_or_else(|| escape_bytes(word.as_bytes()), str::to_owned)
}
