//! `stockade approvals approve` and `deny`: a person's word, written down before it counts.

use std::io::{BufRead, IsTerminal, Read};

use serde_json::{Value, json};
use stockade_gateway::approvals::{ApprovalError, Decider, Method, Request, RequestId, Scope, State, Store};
use stockade_ledger::receipt::Approval;
use stockade_policy::Principal;
use stockade_store::person;
use stockade_store::policy::add_rules;

use super::list::{brief, whole};
use super::{STEP, failure, store, store_with};
use crate::Context;
use crate::approver::{self, now};
use crate::cli::{ApproveArgs, DenyArgs};
use crate::failure::Failure;
use crate::receipts::{approved, decided};

/// Longer than any answer.
const MOST_ANSWER: u64 = 64;

pub(super) fn approve(args: &ApproveArgs, context: &Context) -> Result<(), Failure> {
    let (mut store, id) = store_with(&args.id, context)?;
    let request = waiting(&mut store, &id)?;
    let scope = scope(args, &request)?;
    agree(args, &request, scope, context)?;
    let decider = approver::demand("approve this", context)?;
    if scope == Scope::Rule {
        add(&request, &decider, context)?;
    }
    let after = say_yes(&mut store, &request, scope, &decider, context)?;
    if context.printer.is_json() {
        return context.printer.json(&whole(&after));
    }
    context.printer.note(match scope {
        Scope::Once => "approved: the next such call runs".to_owned(),
        Scope::Session => "granted: such calls of that session run; `stockade grants revoke` takes it back".to_owned(),
        Scope::For(_) => "granted: such calls run until then; `stockade grants revoke` takes it back".to_owned(),
        Scope::Rule => "such calls are allowed by your policy now".to_owned(),
    });
    if decider.method() == Method::SameUid {
        context
            .printer
            .note("no approver credential is set up, so an agent that runs as you could have done this: stockade approvals credential set");
    }
    Ok(())
}

pub(super) fn deny(args: &DenyArgs, context: &Context) -> Result<(), Failure> {
    let Some(id) = &args.id else { return deny_all(args, context) };
    let (mut store, id) = store_with(id, context)?;
    let request = store.request(&id, now()).map_err(|error| failure(&error))?;
    let after = say_no(&mut store, &request, Method::SameUid, context)?;
    if context.printer.is_json() {
        return context.printer.json(&whole(&after));
    }
    context.printer.note("denied: such calls do not run");
    Ok(())
}

/// Each is a no of its own, with a receipt of its own.
fn deny_all(args: &DenyArgs, context: &Context) -> Result<(), Failure> {
    let whose = agent(args);
    let mut denied = Vec::new();
    if let Some(mut store) = store(context)? {
        for request in store.pending(now()).map_err(|error| failure(&error))? {
            // Each takes a moment to be written down; what somebody decided meanwhile stays as they said.
            let is_open = RequestId::parse(&request.id).is_some_and(|id| waiting(&mut store, &id).is_ok());
            if is_open && whose.as_ref().is_none_or(|whose| *whose == request.principal) {
                denied.push(say_no(&mut store, &request, Method::SameUid, context)?);
            }
        }
    }
    let lines: Vec<String> = denied.iter().map(|one| [one.id.as_str(), &one.principal, &one.title].join("  ")).collect();
    all_denied(&lines, || denied.iter().map(brief).collect(), context)
}

/// The agent whose requests are meant, as requests call it; `None`: anybody's.
pub(super) fn agent(args: &DenyArgs) -> Option<String> {
    args.agent.as_ref().map(|name| Principal::agent(name).named())
}

/// Says what was denied, a line for each.
pub(super) fn all_denied(lines: &[String], values: impl FnOnce() -> Vec<Value>, context: &Context) -> Result<(), Failure> {
    if context.printer.is_json() {
        return context.printer.json(&json!({ "denied": values() }));
    }
    lines.iter().try_for_each(|line| context.printer.line(line))?;
    context.printer.note(match lines.len() {
        0 => "nothing waits, so nothing was denied".to_owned(),
        1 => "denied: such calls do not run".to_owned(),
        many => format!("{many} denied: such calls do not run"),
    });
    Ok(())
}

/// A yes to what was shown, written down before it counts.
pub(crate) fn say_yes(
    store: &mut Store,
    request: &Request,
    scope: Scope,
    decider: &Decider,
    context: &Context,
) -> Result<Request, Failure> {
    let word = match scope {
        Scope::Once => "--once",
        Scope::Session => "--for-session",
        Scope::For(_) => "--until",
        Scope::Rule => "--as-rule",
    };
    let approval = approval(request, &decider.by, decider.method());
    decided("approvals.approve", &[&request.id, word], approval, &request.receipt, context, || {
        store.approve(request, scope, decider, now()).map_err(|error| failure(&error))
    })
}

/// A no, written down before it counts. It needs no credential: it lets nothing through.
pub(crate) fn say_no(store: &mut Store, request: &Request, method: Method, context: &Context) -> Result<Request, Failure> {
    let unknown = || failure(&ApprovalError::NoRequest(request.id.clone()));
    let id = RequestId::parse(&request.id).ok_or_else(unknown)?;
    let by = person::name();
    let approval = approval(request, &by, method);
    decided("approvals.deny", &[id.as_str()], approval, &request.receipt, context, || {
        store.deny(&id, &by, method, now()).map_err(|error| failure(&error))
    })
}

/// A request that nobody decided about yet.
pub(crate) fn waiting(store: &mut Store, id: &RequestId) -> Result<Request, Failure> {
    let request = store.request(id, now()).map_err(|error| failure(&error))?;
    if request.state == State::Pending {
        return Ok(request);
    }
    Err(failure(&ApprovalError::Decided { id: request.id, state: request.state }))
}

fn scope(args: &ApproveArgs, request: &Request) -> Result<Scope, Failure> {
    if args.for_session {
        return Ok(Scope::Session);
    }
    if let Some(time) = args.until {
        return Ok(Scope::For(i64::try_from(time.as_secs()).unwrap_or(i64::MAX)));
    }
    if !args.as_rule {
        return Ok(Scope::Once);
    }
    if request.rules.is_empty() {
        return Err(Failure::new(STEP, "no rule can say this without saying more").with_hint("approve it without --as-rule"));
    }
    Ok(Scope::Rule)
}

/// Shows the whole of it and asks. A rule is never written unseen: without a terminal it needs `--yes`.
fn agree(args: &ApproveArgs, request: &Request, scope: Scope, context: &Context) -> Result<(), Failure> {
    let stdin = std::io::stdin();
    let is_asked = !args.yes && stdin.is_terminal() && std::io::stderr().is_terminal();
    // Whatever `--quiet` leaves out, a question is not asked blindly.
    let say = |line: &str| if is_asked { context.printer.banner(line) } else { context.printer.note(line) };
    request.shown.lines().for_each(|line| say(&format!("  {line}")));
    if scope == Scope::Rule {
        say("this would be added to your policy:");
        request.rules.iter().flat_map(|rule| rule.lines()).for_each(|line| say(&format!("  | {line}")));
    }
    if !is_asked {
        let unseen = scope == Scope::Rule && !args.yes;
        let refused = || Failure::new(STEP, "nobody can be asked whether this rule is meant").with_hint("look at it, then give --yes");
        return if unseen { Err(refused()) } else { Ok(()) };
    }
    context.printer.banner("approve it? [y/N]");
    let mut answer = String::new();
    let read = stdin.lock().take(MOST_ANSWER).read_line(&mut answer);
    read.map_err(|error| Failure::new(STEP, format!("reading the answer: {error}")))?;
    if matches!(answer.trim(), "y" | "Y" | "yes") { Ok(()) } else { Err(Failure::new(STEP, "not approved: you did not say yes")) }
}

fn add(request: &Request, decider: &Decider, context: &Context) -> Result<(), Failure> {
    let texts: Vec<&str> = request.rules.iter().map(String::as_str).collect();
    let places = context.places()?;
    let place = approved("policy.allow", &texts, decider, context, || {
        add_rules(places, &texts).map_err(|error| Failure::from_error("policy", &error))
    })?;
    context.printer.note(format!("added at {}:{}", place.path.display(), place.line));
    Ok(())
}

fn approval(request: &Request, by: &str, method: Method) -> Approval {
    Approval { by: by.to_owned(), method: method.name().to_owned(), shown_sha256: request.shown_sha256.clone() }
}
