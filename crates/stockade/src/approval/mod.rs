//! A call that rules ask a person about: whether somebody said yes, or has to be asked, or will be.
//!
//! ```text
//!  rules say ask ─▶ approved before? ── yes ──▶ used up, runs
//!                        │ no
//!                        ├─ a person is at the terminal ─▶ asked ─▶ yes: runs   no: denied
//!                        ├─ the agent's client said yes, and the rules let it ─▶ used up, runs
//!                        └─ nobody is ─▶ a request is filed, nothing runs
//! ```
//!
//! A call of an agent is bound to what its overlay holds as well, which the call has its turn at until it ran or was refused.
//!
//! Rules are evaluated before, each time; whether an approval counts is `stockade-gateway`'s to say. `bind` finds out what a call is bound to,
//! `input` holds its standard input still, `session` tells one session from another; `tool` is the same for a tool of an MCP server, whose sandbox
//! stands already.

mod bind;
pub(crate) mod input;
pub(crate) mod notify;
mod session;
mod tool;

use std::ffi::OsString;
use std::io::{BufRead, IsTerminal, Read};

use stockade_core::escape::reveal;
use stockade_core::result::Decision as Told;
use stockade_gateway::approvals::{ApprovalError, Asking, Bound, Method, Otherwise, RequestId, Settled, Store, Wanted};
use stockade_gateway::approver::{Credential, CredentialError, Way};
use stockade_ledger::receipt::Approval;
use stockade_ledger::redact::{Counts, Redact};
use stockade_policy::capability::Effect;
use stockade_store::person;

use crate::Context;
use crate::approver::{self, now};
use crate::assemble::Assembled;
use crate::commands::approvals::failure;
use crate::engine::overlay::Written;
use crate::failure::Failure;
use bind::Unbound;

pub(crate) use tool::Frame;

/// Longer than any answer to a question.
const MOST_ANSWER: u64 = 64;

/// A call that rules ask about.
#[derive(Debug)]
pub(crate) struct Question {
    /// What the rules said.
    pub(crate) told: Told,
    /// Why they ask, command by command.
    pub(crate) because: Vec<String>,
    /// Rules that would let it through without asking.
    pub(crate) rules: Vec<String>,
    /// The digest of all rules.
    pub(crate) policy: String,
    /// Who asks, as Cedar writes it.
    pub(crate) principal: String,
    /// What it does.
    pub(crate) effect: Effect,
    /// What is asked for.
    pub(crate) wanted: Wanted,
    /// Programs that would run.
    pub(crate) programs: Vec<OsString>,
    /// Words that may name files.
    pub(crate) words: Vec<OsString>,
    /// Whether the client of whoever asks may say yes itself.
    pub(crate) own: OwnWord,
}

/// Whether rules let the client of an agent approve what the agent asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OwnWord {
    /// They do.
    Counts,
    /// They say nothing of it.
    DoesNotCount,
}

/// How somebody comes to be asked.
#[derive(Debug)]
pub(crate) enum Manner<'a> {
    /// At this terminal, or by a request. What the call reads is this process's own input.
    Typed,
    /// By a request.
    Called {
        /// What others wrote before where it runs.
        written: Option<&'a Written>,
        /// What its client said.
        consent: Option<&'a Consent>,
        /// Everything that it reads.
        input: &'a [u8],
    },
}

/// The client of an agent was shown a request and said yes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Consent {
    /// The request.
    pub(crate) id: RequestId,
    /// Whose client.
    pub(crate) by: String,
}

/// A request that waits for somebody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Filed {
    /// Its name.
    pub(crate) id: RequestId,
    /// Everything that a person is to see.
    pub(crate) shown: String,
    /// Whether the client of whoever asks may say yes itself.
    pub(crate) own: OwnWord,
}

/// Why a call may not run.
#[derive(Debug)]
pub(crate) struct Refusal {
    /// In words.
    pub(crate) told: Told,
    /// The request that waits because of it.
    pub(crate) filed: Option<Filed>,
}

impl From<Told> for Refusal {
    fn from(told: Told) -> Self {
        Self { told, filed: None }
    }
}

/// The receipt of a call that somebody is asked about.
pub(crate) trait Witness {
    /// Its id.
    fn id(&self) -> String;
    /// A person decided about it just now.
    fn decided(&self, verb: &'static str, approval: &Approval, told: &Told) -> Result<(), Failure>;
    /// It runs because somebody approved it.
    fn approved(&self, approval: Approval);
}

/// What came of the question.
#[derive(Debug)]
pub(crate) enum Answer {
    /// It was approved before.
    Approved(Approval),
    /// A person said yes just now.
    Yes(Approval),
    /// A person said no just now.
    No(Approval, Told),
    /// It may not run: somebody said no before, or nobody can say yes.
    Refused(Told),
    /// It may not run: nobody said anything yet.
    Waits(Told, Filed),
}

/// Settles what is asked, if anything is, and writes down what a person says; gives the refusal where it may not run.
pub(crate) fn answer(
    question: &Question,
    assembled: &Assembled,
    receipt: &dyn Witness,
    manner: &Manner<'_>,
    redactor: &dyn Redact,
    context: &Context,
) -> Result<Option<Refusal>, Failure> {
    match question.settle(assembled, &receipt.id(), manner, redactor, context)? {
        Answer::Approved(approval) => receipt.approved(approval),
        Answer::Yes(approval) => {
            receipt.decided("approvals.approve", &approval, &question.told)?;
            receipt.approved(approval);
        }
        Answer::No(approval, told) => {
            receipt.decided("approvals.deny", &approval, &told)?;
            return Ok(Some(told.into()));
        }
        Answer::Refused(told) => return Ok(Some(told.into())),
        Answer::Waits(told, filed) => return Ok(Some(Refusal { told, filed: Some(filed) })),
    }
    Ok(None)
}

impl Question {
    /// Asks whoever is at the terminal and files nothing: for what happens in a sandbox that stands, which no request can be bound to.
    pub(crate) fn ask_here(&self, context: &Context) -> Result<Answer, Failure> {
        if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
            return Ok(Answer::Refused(self.told.clone()));
        }
        let places = context.places()?;
        let credential = Credential::load(places).map_err(|error| approver::failure(&error))?;
        let mut store = Store::open(&places.state).map_err(|error| failure(&error))?;
        let words = self.words.iter().map(|word| reveal(word.as_encoded_bytes()));
        let programs = self.programs.iter().take(1).map(|word| reveal(word.as_encoded_bytes()));
        let because = self.because.iter().map(|why| reveal(why.as_bytes()));
        let shown: Vec<String> = programs.chain(words).chain(because).collect();
        self.ask(&shown.join("\n"), credential.as_ref(), &mut store, context)
    }

    /// Settles it. What must not be stored is taken out of what is.
    fn settle(
        &self,
        assembled: &Assembled,
        receipt: &str,
        manner: &Manner<'_>,
        redactor: &dyn Redact,
        context: &Context,
    ) -> Result<Answer, Failure> {
        let bound = match self.bound(assembled, manner) {
            Ok(bound) => bound,
            Err(Unbound::Failed(failure)) => return Err(failure),
            Err(Unbound::Refused(why)) => return Ok(Answer::Refused(self.refusal(format!("nobody can approve it: {why}")))),
        };
        let (title, shown) = (clean(&bound.title(), redactor)?, clean(&bound.shown(), redactor)?);
        let places = context.places()?;
        let credential = Credential::load(places).map_err(|error| approver::failure(&error))?;
        let mut store = Store::open(&places.state).map_err(|error| failure(&error))?;
        let session = session::name();
        let asking = Asking { bound: &bound, title: &title, shown: &shown, session: session.as_deref(), rules: &self.rules, receipt };
        let is_at_terminal = || std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        let otherwise = match manner {
            // Where another user approves, whoever sits here has no say.
            Manner::Typed if is_at_terminal() && !is_elsewhere(credential.as_ref()) => Otherwise::Leave,
            // The rules are asked again each time: what let the client answer may be gone.
            Manner::Called { consent: Some(Consent { id, by }), .. } if self.own == OwnWord::Counts => Otherwise::Consented { id, by },
            Manner::Typed | Manner::Called { .. } => Otherwise::File,
        };
        match store.settle(&asking, credential.as_ref(), otherwise, now()) {
            Ok(Settled::Approved(warrant)) => {
                let is_new = warrant.method == Method::Elicitation.name();
                let approval = Approval { by: warrant.by, method: warrant.method, shown_sha256: warrant.shown_sha256 };
                Ok(if is_new { Answer::Yes(approval) } else { Answer::Approved(approval) })
            }
            Ok(Settled::Open) => self.ask(&shown, credential.as_ref(), &mut store, context),
            Ok(Settled::Denied { id, by, .. }) => {
                let told = self.refusal(format!("{by} said no to the request {id}"));
                Ok(Answer::Refused(Told { approval_id: Some(id), ..told }))
            }
            Ok(Settled::Waits(waiting)) => {
                if let Some(why) = &waiting.void {
                    context.printer.warning(format!("an approval of this does not count: {why}"));
                }
                let Some(id) = RequestId::parse(&waiting.id) else {
                    return Err(Failure::new("approvals", "the request that was filed has no name"));
                };
                let step = self.next_step(&id, credential.as_ref());
                if let Some(program) = assembled.notify.as_deref().filter(|_| waiting.times == 1) {
                    notify::tell(program, &step, &self.principal, &title, context);
                }
                let told = Told { approval_id: Some(waiting.id), suggest: Some(step), ..self.told.clone() };
                if !self.needs_credential(credential.as_ref()) {
                    return Ok(Answer::Waits(told, Filed { id, shown, own: self.own }));
                }
                // Nobody is asked where their yes would not count.
                let reason = told.reason.map_or_else(String::new, |reason| format!("{reason}; "));
                let told = Told { reason: Some(format!("{reason}{}", ApprovalError::NeedsCredential)), ..told };
                Ok(Answer::Waits(told, Filed { id, shown, own: OwnWord::DoesNotCount }))
            }
            Err(error @ (ApprovalError::TooMany | ApprovalError::TooManyOfAgent | ApprovalError::TooLong(_))) => {
                Ok(Answer::Refused(self.refusal(error.to_string())))
            }
            Err(error) => Err(failure(&error)),
        }
    }

    fn bound(&self, assembled: &Assembled, manner: &Manner<'_>) -> Result<Bound, Unbound> {
        match manner {
            Manner::Typed => bind::bind(self, assembled, input::hold().map_err(Unbound::Refused)?, None),
            Manner::Called { written, input, .. } => bind::bind(self, assembled, input::known(input), *written),
        }
    }

    /// Asks whoever is at the terminal, showing the whole of it. With a credential set up, a yes is its passphrase.
    fn ask(&self, shown: &str, credential: Option<&Credential>, store: &mut Store, context: &Context) -> Result<Answer, Failure> {
        if let Some(uid) = credential.and_then(Credential::approver_uid) {
            return Ok(Answer::Refused(self.refusal(CredentialError::OtherUid(uid).to_string())));
        }
        if self.needs_credential(credential) {
            let why = "a destructive call needs an approver credential, and none is set up (stockade approvals credential set)";
            return Ok(Answer::Refused(self.refusal(why.to_owned())));
        }
        // Whatever `--quiet` leaves out, a question is not asked blindly.
        context.printer.banner("policy wants a person to approve this:");
        shown.lines().for_each(|line| context.printer.banner(format!("  {line}")));
        context.printer.banner("run it? [y/N]");
        let mut answer = String::new();
        let read = std::io::stdin().lock().take(MOST_ANSWER).read_line(&mut answer);
        read.map_err(|error| Failure::new("policy", format!("reading the answer: {error}")))?;
        let sha256 = stockade_verify::text::to_hex(&<sha2::Sha256 as sha2::Digest>::digest(shown));
        let approval = |method: Method| Approval { by: person::name(), method: method.name().to_owned(), shown_sha256: sha256.clone() };
        if !matches!(answer.trim(), "y" | "Y" | "yes") {
            return Ok(Answer::No(approval(Method::SameUid), self.told.clone()));
        }
        let Some(credential) = credential else { return Ok(Answer::Yes(approval(Method::SameUid))) };
        let passphrase = crate::passphrase::ask("The approver's passphrase (not shown): ", approver::STEP, context)?;
        match credential.open(&passphrase, store, Way::Terminal, now()) {
            Ok(_) => Ok(Answer::Yes(approval(Method::Passphrase))),
            Err(error @ (CredentialError::Wrong | CredentialError::Store(ApprovalError::Slow(_)))) => {
                Ok(Answer::Refused(self.refusal(error.to_string())))
            }
            Err(error) => Err(approver::failure(&error)),
        }
    }

    /// Whether nobody can say yes before a credential is set up.
    fn needs_credential(&self, credential: Option<&Credential>) -> bool {
        credential.is_none() && self.effect == Effect::Destructive
    }

    /// What a person types so that it may run.
    fn next_step(&self, id: &RequestId, credential: Option<&Credential>) -> String {
        let approve = approve_command(id);
        if self.needs_credential(credential) { format!("stockade approvals credential set && {approve}") } else { approve }
    }

    fn refusal(&self, why: String) -> Told {
        Told { reason: Some(why), ..self.told.clone() }
    }
}

/// Whether another user alone approves.
fn is_elsewhere(credential: Option<&Credential>) -> bool {
    credential.is_some_and(|credential| credential.approver_uid().is_some())
}

/// What a person types to say yes.
pub(crate) fn approve_command(id: &RequestId) -> String {
    format!("stockade approvals approve {id}")
}

/// Text without the secrets that somebody knows.
fn clean(text: &str, redactor: &dyn Redact) -> Result<String, Failure> {
    if redactor.is_none() {
        return Ok(text.to_owned());
    }
    let pieces = redactor.pieces(&[text.as_bytes()], &mut Counts::default());
    let pieces = pieces.map_err(|error| Failure::from_error("approvals", &error))?;
    Ok(pieces.into_iter().next().flatten().map_or_else(|| text.to_owned(), |clean| String::from_utf8_lossy(&clean).into_owned()))
}
