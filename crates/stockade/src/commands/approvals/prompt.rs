//! `stockade approvals prompt`: what comes in is shown at the terminal and answered there, one after the other, until standard input ends. It is the
//! prompt of `stockade serve --foreground`.
//!
//! A request is shown once; where a passphrase was wrong, again, as soon as one may be tried. Asked for again it is counted, and told of in one line each time the count has doubled: nobody is worn down.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{QueueSelector, tcflush};
use stockade_gateway::approvals::{ApprovalError, Method, Request, RequestId, Scope, State};

use stockade_gateway::approver::CredentialError;

use super::decide::{say_no, say_yes};
use super::{STEP, failure, store};
use crate::Context;
use crate::approver::{self, Unshown, now};
use crate::failure::Failure;

/// How often it is looked for requests.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 500_000_000 };
/// Longer than any answer.
const MOST_ANSWER: usize = 64;

/// Asks until standard input ends.
pub(super) fn watch(context: &Context) -> Result<(), Failure> {
    let nobody = |error| Failure::new(STEP, format!("there is no terminal to ask at: {error}"));
    let terminal = File::options().read(true).write(true).open("/dev/tty").map_err(nobody)?;
    // How often each had been asked for when somebody was last told.
    let mut told: BTreeMap<String, i64> = BTreeMap::new();
    loop {
        let waiting = waiting(context)?;
        told.retain(|id, _| waiting.iter().any(|request| request.id == *id));
        for Request { id, title, times, .. } in &waiting {
            if let Some(known) = told.get_mut(id).filter(|known| *times >= **known * 2) {
                *known = *times;
                context.printer.banner(format!("{id} was asked for {times} times by now: {title}"));
            }
        }
        let mut unseen = waiting.iter().filter(|request| !told.contains_key(&request.id));
        if let Some(request) = unseen.next() {
            let more = unseen.count();
            match ask(request, more, &terminal, context)? {
                Next::Another => drop(told.insert(request.id.clone(), request.times)),
                Next::Again(wait) if pause(wait)? == Woken::End => return Ok(()),
                Next::Again(_) => {}
            }
        } else if ends(&[])? == Woken::End {
            return Ok(());
        }
    }
}

fn waiting(context: &Context) -> Result<Vec<Request>, Failure> {
    store(context)?.map_or(Ok(Vec::new()), |store| store.pending(now())).map_err(|error| failure(&error))
}

/// What is asked about next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// Another request.
    Another,
    /// The same, after so many seconds.
    Again(i64),
}

/// Shows one whole, and does what is answered. What goes wrong is told, and leaves it waiting.
fn ask(request: &Request, more: usize, terminal: &File, context: &Context) -> Result<Next, Failure> {
    let say = |line: String| context.printer.banner(line);
    let others = if more == 0 { String::new() } else { format!(", {more} more wait") };
    let times = if request.times == 1 { String::new() } else { format!(", asked for {} times", request.times) };
    say(format!("policy wants a person to approve this (request {}{times}{others}):", request.id));
    request.shown.lines().for_each(|line| say(format!("  {line}")));
    // Keys that were pressed before the question was there are no answer to it.
    tcflush(terminal, QueueSelector::IFlush).map_err(|errno| Failure::new(STEP, format!("the terminal: {errno}")))?;
    say("approve it? [y/N] (n denies it for an hour; anything else leaves it waiting)".to_owned());
    let Some(answer) = answer(request, terminal, context)? else { return Ok(Next::Another) };
    let done = match answer.trim() {
        "y" | "Y" | "yes" => approve(request, context).map(|_| "approved: the next such call runs".to_owned()),
        "n" | "N" | "no" => deny(request, context).map(|_| "denied: such calls do not run".to_owned()).map_err(Unshown::Failed),
        _ => Ok(format!("left waiting: stockade approvals approve {}", request.id)),
    };
    let next = match &done {
        Err(Unshown::Credential(CredentialError::Wrong)) => Next::Again(0),
        Err(Unshown::Credential(CredentialError::Store(ApprovalError::Slow(seconds)))) => Next::Again(*seconds),
        Ok(_) | Err(_) => Next::Another,
    };
    match done {
        Ok(words) => say(words),
        Err(unshown) => context.printer.failure(&unshown.into()),
    }
    Ok(next)
}

/// Waits so many seconds, or until all is over.
fn pause(seconds: i64) -> Result<Woken, Failure> {
    let end = now() + seconds;
    while now() < end {
        if ends(&[])? == Woken::End {
            return Ok(Woken::End);
        }
    }
    Ok(Woken::Nobody)
}

fn approve(request: &Request, context: &Context) -> Result<Request, Unshown> {
    let decider = approver::show("approve this", context)?;
    let mut store = store(context)?.ok_or_else(|| Failure::new(STEP, "the requests are gone"))?;
    Ok(say_yes(&mut store, request, Scope::Once, &decider, context)?)
}

fn deny(request: &Request, context: &Context) -> Result<Request, Failure> {
    let mut store = store(context)?.ok_or_else(|| Failure::new(STEP, "the requests are gone"))?;
    say_no(&mut store, request, Method::SameUid, context)
}

/// The line that somebody types; nothing where the request is decided elsewhere first, or all is over.
fn answer(request: &Request, terminal: &File, context: &Context) -> Result<Option<String>, Failure> {
    let unreadable = |errno: rustix::io::Errno| Failure::new(STEP, format!("reading the answer: {errno}"));
    loop {
        match ends(&[terminal.as_fd()])? {
            Woken::End => return Ok(None),
            Woken::Other => {
                let mut line = vec![0; MOST_ANSWER];
                let count = rustix::io::read(terminal, line.as_mut_slice()).map_err(unreadable)?;
                line.truncate(count);
                return Ok(Some(String::from_utf8_lossy(&line).into_owned()));
            }
            Woken::Nobody => {}
        }
        let state = RequestId::parse(&request.id).zip(store(context)?).and_then(|(id, store)| Some(store.look(&id, now()).ok()?.state));
        if let Some(state) = state.filter(|state| *state != State::Pending) {
            context.printer.banner(format!("{} is {} meanwhile", request.id, state.name()));
            return Ok(None);
        }
    }
}

/// What woke this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Woken {
    /// Nothing, for a while.
    Nobody,
    /// The end of standard input.
    End,
    /// Something else.
    Other,
}

/// Waits for a while for the end of standard input, or something else.
fn ends(others: &[BorrowedFd<'_>]) -> Result<Woken, Failure> {
    let stdin = std::io::stdin();
    let all = std::iter::once(stdin.as_fd()).chain(others.iter().copied());
    let mut all: Vec<PollFd<'_>> = all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
    rustix::io::retry_on_intr(|| poll(&mut all, Some(&LOOK))).map_err(|errno| Failure::new(STEP, errno.to_string()))?;
    let mut woken = all.iter().map(|one| !one.revents().is_empty());
    // Nobody ever writes to standard input, so whatever there is to read is the end.
    Ok(match (woken.next(), woken.any(|one| one)) {
        (Some(true), _) => Woken::End,
        (_, true) => Woken::Other,
        (_, false) => Woken::Nobody,
    })
}
