//! Sandboxes that an agent makes for itself. Those of people, and of other agents, are not there for it.
//!
//! Making one runs nothing, so no rule is asked beyond whether agents may do anything at all; every program and every file in it is judged.

use std::ffi::OsString;
use std::os::fd::AsFd as _;
use std::process::ExitCode;

use serde_json::{Value, json};
use stockade_core::id::{SandboxId, SandboxName};
use stockade_core::path::SafePath;
use stockade_core::result::Decision;
use stockade_core::spec::MountMode;
use stockade_ledger::Weight;
use stockade_sandbox::drive;
use stockade_sandbox::files::{FileError, Files};
use stockade_sandbox::keeper::Charge;
use stockade_sandbox::state::{Found, Kind, StateError};
use stockade_sandbox::wire::ErrorKind;

use super::answer::{Problem, Reply};
use super::asked::Asked;
use super::call::Job;
use super::forms::{Contents, Create, Exec, Mode};
use super::run::{arguments, input};
use crate::admission::Rules;
use crate::approval::input::sealed;
use crate::assemble::assemble_with;
use crate::cli::{EnvFlag, SandboxFlags};
use crate::commands::run::CAPTURE;
use crate::commands::sandbox::create::made;
use crate::commands::sandbox::exec::{Afar, Errand, Errander, run_in};
use crate::commands::sandbox::lifecycle::destroy_one;
use crate::commands::sandbox::list::describe;
use crate::commands::sandbox::{changes, connect, sandboxes, state_failure};
use crate::engine::asker::{AgentName, Asker};
use crate::engine::files::{self, Act, Handled};
use crate::failure::Failure;
use crate::mcp::Session;
use crate::mcp::act::{Caller, Rest, additions, of_session, refusal_of};
use crate::mcp::tools;
use crate::receipts::{Asked as Wanted, Book, Deed, Inside, Secrets, policy_of, weight_in};

/// Sandboxes of all agents at once; a client that changes its name with each gets no more.
const MOST_SANDBOXES: usize = 32;
/// Programs of an exec list.
const MOST_PROGRAMS: usize = 64;
/// Bytes of a file that is read.
const MOST_READ: u64 = CAPTURE;
/// Names of one directory.
const MOST_NAMES: usize = 10_000;

/// `GET /v1/sandboxes`: the asker's own, as `sandbox list --json` prints them.
pub(super) fn list(asked: &Asked, session: &Session) -> Result<Reply, Problem> {
    asked.query().finish()?;
    let all = sandboxes(&session.context)?.list().map_err(|error| state_failure(&error))?;
    let own: Vec<Value> = all.iter().filter(|found| belongs(found, &asked.asker)).map(describe).collect();
    Ok(Reply::saying(json!({ "sandboxes": own })))
}

/// `GET /v1/sandboxes/{id}`
pub(super) fn show(asked: &Asked, session: &Session) -> Result<Reply, Problem> {
    asked.query().finish()?;
    Ok(Reply::saying(describe(&find(asked.part(0), &asked.asker, session)?)))
}

/// `POST /v1/sandboxes`: what `sandbox create --json` prints.
pub(super) fn create(asked: &Asked, _: &Session) -> Result<Job, Problem> {
    asked.query().finish()?;
    let Create { name, workspace_mode, env, exec_allow, timeout_seconds } = asked.body()?;
    let name: Option<SandboxName> =
        name.map(|name| name.parse()).transpose().map_err(|error| Problem::malformed(format!("`name`: {error}")))?;
    let variables = tools::variables(env).map_err(Problem::malformed)?;
    let timeout = tools::time(timeout_seconds).map_err(Problem::malformed)?;
    if exec_allow.len() > MOST_PROGRAMS || exec_allow.iter().any(|program| program.is_empty() || program.contains('\0')) {
        return Err(Problem::malformed(format!("`exec_allow` may have {MOST_PROGRAMS} programs, each with a name")));
    }
    let mode = workspace_mode.map(|mode| match mode {
        Mode::Overlay => MountMode::Overlay,
        Mode::Ro => MountMode::Ro,
    });
    Ok(job(move |caller| {
        let flags = SandboxFlags {
            workspace_mode: mode,
            cwd: Some(".".into()),
            env: flags_of(&variables),
            exec_allow,
            timeout,
            ..of_session(caller.session)
        };
        make(&flags, name.as_ref(), refusal_of(variables.keys()), caller)
    }))
}

fn make(flags: &SandboxFlags, name: Option<&SandboxName>, refused: Option<Decision>, caller: &Caller<'_>) -> Result<Reply, Problem> {
    let context = &caller.session.context;
    let mut assembled = assemble_with(flags, &additions(caller.asker), context)?;
    assembled.trace = caller.trace.cloned();
    if let Some(told) = refused.or_else(|| assembled.rules.refusal_of_agents()) {
        let book = Book::new(&assembled.state, assembled.keeping.clone(), context);
        let deed = Deed::verb(&book, "sandbox.create", &[], Weight::Effect);
        note(&deed, caller);
        deed.deny(&told, &assembled.rules)?;
        return Ok(Reply::of(json!({ "receipt_id": deed.id(), "sandbox_id": null, "decision": told })));
    }
    let all = sandboxes(context)?.list().map_err(|error| state_failure(&error))?;
    if all.iter().filter(|found| found.record.agent.is_some()).count() >= MOST_SANDBOXES {
        let failure = Failure::new("sandbox", format!("agents have {MOST_SANDBOXES} sandboxes already"));
        return Err(Problem::full(failure.with_hint("delete one of them")));
    }
    if let Some(name) = name
        && let Err(error @ StateError::NameTaken(_)) = sandboxes(context)?.check_name(name)
    {
        return Err(Problem::conflict(state_failure(&error)));
    }
    made(assembled, name, context).map(Reply::made).map_err(Problem::from)
}

/// `DELETE /v1/sandboxes/{id}`
pub(super) fn destroy(asked: &Asked, _: &Session) -> Result<Job, Problem> {
    asked.query().finish()?;
    let id = asked.part(0).to_owned();
    Ok(job(move |caller| {
        let context = &caller.session.context;
        let found = find(&id, caller.asker, caller.session)?;
        let (receipt_id, told, done) = recorded(
            "sandbox.destroy",
            &[&id],
            Weight::Effect,
            &found,
            caller,
            |rules| {
                Ok(match rules.refusal_of_agents() {
                    Some(told) => Err(told),
                    None => Ok(own()),
                })
            },
            || destroy_one(&sandboxes(context)?, &found, context),
        )?;
        Ok(Reply::of(json!({ "receipt_id": receipt_id, "sandbox_id": id, "decision": told, "destroyed": done.is_some() })))
    }))
}

/// `GET /v1/sandboxes/{id}/diff`: what `sandbox diff --json` prints, with its receipt.
pub(super) fn diff(asked: &Asked, _: &Session) -> Result<Job, Problem> {
    asked.query().finish()?;
    let id = asked.part(0).to_owned();
    Ok(job(move |caller| {
        let found = find(&id, caller.asker, caller.session)?;
        let workspace = &found.record.workspace;
        // It shows lines of files, so it is judged as a look at all of them.
        let judge = |rules: &Rules| files::judge(rules, workspace, workspace, Act::List(MOST_NAMES));
        let act = || changes::difference(&found, &caller.session.context);
        let (receipt_id, told, shown) = recorded("sandbox.diff", &[&id], Weight::Read, &found, caller, judge, act)?;
        let mut value = shown.unwrap_or_else(|| json!({ "sandbox_id": id }));
        if let Some(fields) = value.as_object_mut() {
            fields.insert("receipt_id".to_owned(), receipt_id.into());
            fields.insert("decision".to_owned(), json!(told));
        }
        Ok(Reply::of(value))
    }))
}

/// `POST /v1/sandboxes/{id}/exec`: what `sandbox exec --json` prints.
pub(super) fn exec(asked: &Asked, _: &Session) -> Result<Job, Problem> {
    asked.query().finish()?;
    let Exec { argv, cwd, env, timeout_seconds, stdin, stdin_base64 } = asked.body()?;
    let id = asked.part(0).to_owned();
    let argv: Vec<OsString> = arguments(argv)?;
    let variables = tools::variables(env).map_err(Problem::malformed)?;
    let time = tools::time(timeout_seconds).map_err(Problem::malformed)?;
    let bytes = input(stdin, stdin_base64)?;
    Ok(job(move |caller| {
        let found = find(&id, caller.asker, caller.session)?;
        let cwd = tools::directory(cwd, &found.record.workspace_path()).map_err(Problem::malformed)?;
        let refused = refusal_of(variables.keys());
        let env = flags_of(&variables);
        let errand = Errand { argv: &argv, env: &env, cwd: cwd.as_ref(), time, refused: refused.as_ref() };
        let who = Errander { asker: caller.asker.clone(), trace: caller.trace };
        let context = &caller.session.context;
        let ended = run_in(&found, errand, &who, context, |exec, time| driven(&found, exec, time, &bytes, caller))?;
        Ok(Reply::of(ended.value))
    }))
}

fn driven(
    found: &Found,
    exec: stockade_sandbox::wire::Exec,
    time: Option<std::time::Duration>,
    bytes: &[u8],
    caller: &Caller<'_>,
) -> Result<drive::Outcome, Failure> {
    let mut remote = connect(found, &caller.session.context)?;
    let stdin = if bytes.is_empty() { None } else { Some(sealed(bytes)) };
    let stdin = stdin.transpose().map_err(|error| Failure::new("server", format!("keeping the input: {error}")))?;
    let limit = found.record.output.map_or(CAPTURE, |limit| limit.value);
    let stdin = stdin.as_ref().map(|file| file.as_fd());
    let driven = caller.in_streams(stdin, limit, |streams| {
        drive::drive(&mut remote.connection, exec, streams, time, Some(&caller.entered.signals), &mut Afar)
    });
    driven.map_err(|error| Failure::from_error("sandbox", &error))
}

/// `GET /v1/sandboxes/{id}/files`
pub(super) fn read(asked: &Asked, session: &Session) -> Result<Job, Problem> {
    let path = path(asked, session)?;
    let id = asked.part(0).to_owned();
    Ok(job(move |caller| handle(&id, &path, Act::Read(MOST_READ), "sandbox.read", caller)))
}

/// `GET /v1/sandboxes/{id}/files/list`
pub(super) fn names(asked: &Asked, session: &Session) -> Result<Job, Problem> {
    let path = path(asked, session)?;
    let id = asked.part(0).to_owned();
    Ok(job(move |caller| handle(&id, &path, Act::List(MOST_NAMES), "sandbox.list_dir", caller)))
}

/// `PUT /v1/sandboxes/{id}/files`
pub(super) fn write(asked: &Asked, session: &Session) -> Result<Job, Problem> {
    let path = path(asked, session)?;
    let Contents { content, content_base64 } = asked.body()?;
    let bytes = tools::contents(content, content_base64).map_err(Problem::malformed)?;
    let id = asked.part(0).to_owned();
    Ok(job(move |caller| handle(&id, &path, Act::Write(&bytes), "sandbox.write", caller)))
}

fn handle(id: &str, path: &SafePath, act: Act<'_>, verb: &'static str, caller: &Caller<'_>) -> Result<Reply, Problem> {
    let context = &caller.session.context;
    let found = find(id, caller.asker, caller.session)?;
    let shown = path.to_string();
    let weight = if matches!(act, Act::Write(_)) { weight_in(&found) } else { Weight::Read };
    let judge = |rules: &Rules| files::judge(rules, &found.record.workspace, &shown, act);
    let mut missing = false;
    let done = recorded(verb, &[id, &shown], weight, &found, caller, judge, || {
        let mut remote = connect(&found, context)?;
        let performed = files::perform(&mut Files(&mut remote.connection), path, act);
        missing = matches!(performed, Err(FileError::Refused { kind: ErrorKind::NotFound {}, .. }));
        performed.map_err(|error| Failure::from_error("file", &error))
    });
    match done {
        Err(_) if missing => Err(Problem::nothing("file", &shown)),
        Err(problem) => Err(problem),
        Ok((receipt_id, told, found)) => Ok(Reply::of(Handled { receipt_id, told, found, filed: None }.value(&shown))),
    }
}

/// The path of a query, from the workspace on.
fn path(asked: &Asked, session: &Session) -> Result<SafePath, Problem> {
    let mut query = asked.query();
    let path = query.take("path").ok_or_else(|| Problem::malformed("give a `path`"))?;
    query.finish()?;
    SafePath::new(session.workspace.join(path)).map_err(|error| Problem::malformed(format!("`path`: {error}")))
}

/// One of the asker's own, by its whole id.
fn find(id: &str, asker: &Asker, session: &Session) -> Result<Found, Problem> {
    let nothing = || Problem::nothing("sandbox", id);
    let parsed: SandboxId = id.parse().map_err(|_| nothing())?;
    match sandboxes(&session.context)?.find(parsed.as_str()) {
        Ok(found) if belongs(&found, asker) => Ok(found),
        Ok(_) | Err(StateError::Unknown(_)) => Err(nothing()),
        Err(error) => Err(state_failure(&error).into()),
    }
}

fn belongs(found: &Found, asker: &Asker) -> bool {
    found.record.kind == Kind::Created && found.record.agent.is_some() && found.record.agent == asker.agent().map(AgentName::whole)
}

/// What is said to what runs nothing: agents may do that with their own sandboxes, where they may do anything.
fn own() -> Decision {
    Decision { rule: "own-sandbox".to_owned(), ..Decision::no_policy() }
}

/// Does something to a sandbox between an intent and an outcome, if the rules allow it; else writes that it was denied.
fn recorded<T>(
    verb: &'static str,
    words: &[&str],
    weight: Weight,
    found: &Found,
    caller: &Caller<'_>,
    judge: impl FnOnce(&Rules) -> Result<Result<Decision, Decision>, Failure>,
    act: impl FnOnce() -> Result<T, Failure>,
) -> Result<(String, Decision, Option<T>), Problem> {
    let context = &caller.session.context;
    let rules = Rules::load_for(caller.asker.clone(), context.places()?, &found.record.workspace_path())?;
    let book = Book::of(context)?;
    let charge = Charge::read(&found.directory).ok();
    let secrets = Secrets::of(charge.as_ref(), context);
    let inside = Inside::new(&book, Wanted::Verb(verb, words), weight, found, &secrets)?;
    note(&inside.deed, caller);
    let receipt_id = inside.deed.id();
    let told = match judge(&rules)? {
        Ok(told) => told,
        Err(told) => {
            inside.deed.deny(&told, &rules)?;
            return Ok((receipt_id, told, None));
        }
    };
    inside.deed.note(|draft| draft.policy = Some(policy_of(&told, &rules)));
    let mut done = None;
    inside.deed.around(context, || {
        done = Some(act()?);
        Ok(ExitCode::SUCCESS)
    })?;
    Ok((receipt_id, told, done))
}

/// Says in a receipt who asked.
fn note(deed: &Deed<'_>, caller: &Caller<'_>) {
    if let Some(agent) = caller.asker.agent() {
        deed.of_agent(agent.whole(), agent.client().to_owned());
    }
    deed.note(|draft| draft.trace = caller.trace.cloned());
}

fn flags_of(variables: &std::collections::BTreeMap<String, String>) -> Vec<EnvFlag> {
    variables.iter().map(|(name, value)| EnvFlag { name: name.clone(), value: Some(value.into()) }).collect()
}

fn job(act: impl FnOnce(&Caller<'_>) -> Result<Reply, Problem> + Send + 'static) -> Job {
    Box::new(move |caller| (act(caller), Rest::default()))
}
