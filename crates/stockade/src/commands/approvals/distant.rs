//! `stockade approvals … --of USER`: deciding for another user of the machine, whose daemon shows what waits. For whoever the administrator named.

use std::io::{BufRead as _, IsTerminal as _, Read as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::{Value, json};
use stockade_core::escape::escape;
use stockade_gateway::approvals::{Distant, State};
use stockade_gateway::approver::{Approver, Credential};
use stockade_sandbox::letter;
use stockade_store::person;

use super::decide::{agent, all_denied};
use super::{STEP, failure, time};
use crate::Context;
use crate::approver::{self, now};
use crate::cli::{ApproveArgs, DenyArgs, OneRequest};
use crate::daemon::ear::{self, Question, Told};
use crate::failure::Failure;
use crate::printer::Table;

/// How long the other side may take: it writes a receipt.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longer than any answer.
const MOST_ANSWER: u64 = 64;

/// The daemon of whoever asked.
pub(super) struct There {
    stream: UnixStream,
}

impl There {
    /// Reaches the daemon of a user, by name or number, and makes sure that it is theirs.
    pub(super) fn of(user: &str, context: &Context) -> Result<Self, Failure> {
        let unknown = || Failure::new(STEP, format!("there is no user `{}`", escape(user)));
        let uid = user.parse().ok().or_else(|| person::uid_of(user)).ok_or_else(unknown)?;
        let credential = Credential::load(context.places()?).map_err(|error| approver::failure(&error))?;
        let own = rustix::process::geteuid().as_raw();
        let nobody = || {
            Failure::new(STEP, "the administrator did not name you as the one who approves for others")
                .with_hint("stockade approvals credential key prints what goes to /etc/stockade/approver.json")
        };
        let credential = credential.filter(|one| one.approver_uid() == Some(own)).ok_or_else(nobody)?;
        let directory = credential.sockets().ok_or_else(nobody)?;
        ear::check(directory)?;
        let path = ear::socket(directory, uid);
        let failed = |error: std::io::Error| {
            Failure::new(STEP, format!("reaching the daemon of `{}` at `{}`: {error}", escape(user), escape(&path.to_string_lossy())))
                .with_hint("they start it with `stockade serve`")
        };
        let stream = UnixStream::connect(&path).map_err(failed)?;
        // Whoever else made a socket of that name would show what they like.
        if !rustix::net::sockopt::socket_peercred(&stream).is_ok_and(|peer| peer.uid.as_raw() == uid) {
            return Err(Failure::new(STEP, format!("what answers at `{}` is not theirs", escape(&path.to_string_lossy()))));
        }
        stream.set_read_timeout(Some(PATIENCE)).and_then(|()| stream.set_write_timeout(Some(PATIENCE))).map_err(failed)?;
        Ok(Self { stream })
    }

    fn ask(&self, question: &Question) -> Result<Vec<Distant>, Failure> {
        let failed = |error: std::io::Error| Failure::new(STEP, format!("their daemon does not answer: {error}"));
        letter::send(&self.stream, question, &[]).map_err(failed)?;
        match letter::receive(&self.stream).map_err(failed)? {
            Some((Told::Requests { requests }, _)) => Ok(requests),
            Some((Told::Refused { message, hint }, _)) => {
                let failure = Failure::new(STEP, escape(&message));
                Err(hint.map_or_else(|| failure.clone(), |hint| failure.clone().with_hint(escape(&hint))))
            }
            None => Err(Failure::new(STEP, "their daemon does not talk to you")),
        }
    }

    fn one(&self, question: &Question) -> Result<Distant, Failure> {
        self.ask(question)?.into_iter().next().ok_or_else(|| Failure::new(STEP, "nothing waits there"))
    }

    /// What waits.
    pub(super) fn list(&self, context: &Context) -> Result<(), Failure> {
        let found = self.ask(&Question::List {})?;
        if context.printer.is_json() {
            return context.printer.json(&json!({ "approvals": found.iter().map(value).collect::<Vec<_>>() }));
        }
        if found.is_empty() {
            context.printer.note("nothing waits for you");
            return Ok(());
        }
        let mut table = Table::new(["ID", "ASKED", "TIMES", "EFFECT", "WHO", "CALL"]);
        for one in &found {
            let cells = [&one.id, &time(one.asked), &one.times.to_string(), &one.effect, &one.principal, &one.title];
            let [id, asked, times, effect, who, call] = cells.map(|text| escape(text));
            table.row([&id, &asked, &times, &effect, &who, &call]);
        }
        context.printer.table(&table)
    }

    /// One, whole.
    pub(super) fn show(&self, args: &OneRequest, context: &Context) -> Result<(), Failure> {
        let request = self.one(&Question::Show { id: args.id.clone() })?;
        if context.printer.is_json() {
            return context.printer.json(&value(&request));
        }
        context.printer.line(format!(
            "{} {}, asked {} ({} times)",
            escape(&request.id),
            escape(&request.state),
            time(request.asked),
            request.times
        ))?;
        request.shown.lines().try_for_each(|line| context.printer.line(format!("  {}", escape(line))))
    }

    /// Yes, once, to what is shown.
    pub(super) fn approve(&self, args: &ApproveArgs, context: &Context) -> Result<(), Failure> {
        let approver = Approver::load(context.places()?).map_err(|error| approver::failure(&error))?;
        let approver = approver.ok_or_else(|| Failure::new(STEP, "you have no key").with_hint("stockade approvals credential key"))?;
        let request = self.one(&Question::Show { id: args.id.clone() })?;
        if request.id != args.id || request.state != State::Pending.name() {
            return Err(Failure::new(STEP, format!("the request `{}` is {} already", escape(&args.id), escape(&request.state))));
        }
        agree(args, &request, context)?;
        let signed = request.sign(&person::name(), &approver, now()).map_err(|error| failure(&error))?;
        let after = self.one(&Question::Approve { signed })?;
        told(&after, "approved: the next such call runs", context)
    }

    /// No.
    pub(super) fn deny(&self, args: &DenyArgs, context: &Context) -> Result<(), Failure> {
        let Some(id) = &args.id else { return self.deny_all(args, context) };
        let after = self.one(&Question::Deny { id: id.clone() })?;
        told(&after, "denied: such calls do not run", context)
    }

    /// No to all that wait.
    fn deny_all(&self, args: &DenyArgs, context: &Context) -> Result<(), Failure> {
        let whose = agent(args);
        let mut denied = Vec::new();
        for request in self.ask(&Question::List {})? {
            if whose.as_ref().is_none_or(|whose| *whose == request.principal) {
                denied.push(self.one(&Question::Deny { id: request.id })?);
            }
        }
        let lines: Vec<String> =
            denied.iter().map(|one| [&one.id, &one.principal, &one.title].map(|text| escape(text)).join("  ")).collect();
        all_denied(&lines, || denied.iter().map(value).collect(), context)
    }
}

/// Shows the whole of it, escaped once more because another user's process sent it, and asks.
fn agree(args: &ApproveArgs, request: &Distant, context: &Context) -> Result<(), Failure> {
    let stdin = std::io::stdin();
    let is_asked = !args.yes && stdin.is_terminal() && std::io::stderr().is_terminal();
    let say = |line: String| if is_asked { context.printer.banner(line) } else { context.printer.note(line) };
    request.shown.lines().for_each(|line| say(format!("  {}", escape(line))));
    if !is_asked {
        return Ok(());
    }
    context.printer.banner("approve it? [y/N]");
    let mut answer = String::new();
    let read = stdin.lock().take(MOST_ANSWER).read_line(&mut answer);
    read.map_err(|error| Failure::new(STEP, format!("reading the answer: {error}")))?;
    if matches!(answer.trim(), "y" | "Y" | "yes") { Ok(()) } else { Err(Failure::new(STEP, "not approved: you did not say yes")) }
}

fn told(after: &Distant, words: &str, context: &Context) -> Result<(), Failure> {
    if context.printer.is_json() {
        return context.printer.json(&value(after));
    }
    context.printer.note(words);
    Ok(())
}

fn value(request: &Distant) -> Value {
    let Distant { id, state, asked, times, expires, principal, effect, title, shown, shown_sha256, .. } = request;
    let mut value = json!({
        "id": id, "state": state, "principal": principal, "effect": effect, "call": title, "asked": time(*asked), "times": times,
        "expires": time(*expires), "shown_sha256": shown_sha256,
    });
    if let Some(fields) = value.as_object_mut().filter(|_| !shown.is_empty()) {
        fields.insert("shown".to_owned(), json!(shown));
    }
    value
}
