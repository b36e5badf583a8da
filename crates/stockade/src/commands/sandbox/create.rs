//! `sandbox create` and `sandbox fork`: start a supervisor and wait until its sandbox stands.

use std::ffi::OsStr;
use std::io::Read;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Child, Command, ExitCode, Stdio};

use serde_json::{Value, json};
use stockade_core::demand::Enforcement;
use stockade_core::id::{SandboxId, SandboxName};
use stockade_ledger::Weight;
use stockade_sandbox::keeper::{self, Charge};
use stockade_sandbox::state::{Found, Kind, Owned, Record};
use stockade_sandbox::sweep;

use super::super::run::explain;
use super::{find, sandboxes, state_failure};
use crate::Context;
use crate::assemble::{self, Assembled};
use crate::cli::{CreateArgs, ForkArgs};
use crate::daemon::Started;
use crate::daemon::launcher::Scope;
use crate::egress::outlet::Facts;
use crate::engine::asker::AgentName;
use crate::failure::Failure;
use crate::receipts::{Book, Deed, credentials_of, recorded, sandbox_of};

/// A supervisor's answer is one short line.
const MAX_ANSWER: u64 = 1 << 20;

pub(super) fn create(args: &CreateArgs, context: &Context) -> Result<ExitCode, Failure> {
    if args.sandbox.apply {
        return Err(Failure::new("arguments", "`--apply` is for `run`; a created sandbox is applied with `sandbox apply`"));
    }
    let assembled = assemble::assemble(&args.sandbox, context)?;
    show(&made(assembled, args.name.as_ref(), context)?, context)
}

/// Says what was made.
fn show(value: &Value, context: &Context) -> Result<ExitCode, Failure> {
    if context.printer.is_json() {
        context.printer.json(value)?;
    } else {
        context.printer.line(value.get("sandbox_id").and_then(Value::as_str).unwrap_or_default())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes one, between an intent and an outcome; what `--json` prints. It belongs to whoever asks.
pub(crate) fn made(assembled: Assembled, name: Option<&SandboxName>, context: &Context) -> Result<Value, Failure> {
    assemble::warn_if_local(assembled.backend.as_ref(), context);
    let book = Book::new(&assembled.state, assembled.keeping.clone(), context);
    let words: Vec<&str> = name.into_iter().map(SandboxName::as_str).collect();
    let deed = Deed::verb(&book, "sandbox.create", &words, Weight::Effect);
    if let Some(agent) = assembled.rules.asker().agent() {
        deed.of_agent(agent.whole(), agent.client().to_owned());
    }
    let backend = assembled.backend.kind().name();
    let facts = sandbox_of(backend, &assembled.spec, &assembled.reach, &book.payloads(), deed.redactor())?;
    deed.note(|draft| {
        draft.sandbox = Some(facts);
        draft.credentials = credentials_of(&assembled.reach, &Facts::default());
        draft.trace.clone_from(&assembled.trace);
    });
    let mut made = Value::Null;
    let around = deed.around(context, || {
        made = make(name, assembled, &deed, context)?;
        Ok(ExitCode::SUCCESS)
    });
    drop(deed);
    book.close().tidy();
    around.map(|_| made)
}

fn make(name: Option<&SandboxName>, assembled: Assembled, deed: &Deed<'_>, context: &Context) -> Result<Value, Failure> {
    let sandboxes = sandboxes(context)?;
    let names = name.map(|_| sandboxes.lock_names()).transpose().map_err(|e| state_failure(&e))?;
    if let Some(name) = name {
        sandboxes.check_name(name).map_err(|e| state_failure(&e))?;
    }
    let owned = sandboxes.create().map_err(|e| state_failure(&e))?;
    let spec = &assembled.spec;
    let backend = assembled.backend.kind().name();
    let mut record = Record::new(owned.id.clone(), Kind::Created, backend, spec.workspace.path.as_path(), spec.workspace.mode);
    record.name = name.cloned();
    record.agent = assembled.rules.asker().agent().map(AgentName::whole);
    record.environment.clone_from(&spec.env);
    record.cwd = Some(spec.cwd.clone());
    record.time = spec.limits.time.map(|limit| limit.value);
    record.output = spec.limits.output;
    owned.write_record(&record).map_err(|e| state_failure(&e))?;
    drop(names);
    let charge = Charge {
        spec: assembled.spec,
        home: assembled.home,
        toolchain_roots: assembled.toolchain_roots,
        backend: backend.to_owned(),
        reach: assembled.reach,
        given: assembled.given,
    };
    charge.write(&owned.directory).map_err(|e| explain(&e))?;
    start(&owned, name, deed, context)
}

pub(super) fn fork(args: &ForkArgs, context: &Context) -> Result<ExitCode, Failure> {
    let found = find(&args.sandbox, context)?;
    if found.record.kind == Kind::Run {
        return Err(Failure::new("fork", "only sandboxes made by `sandbox create` can be forked"));
    }
    recorded("sandbox.fork", &[found.record.id.as_str()], Weight::Effect, &found, context, |deed| make_fork(args, &found, deed, context))
}

fn make_fork(args: &ForkArgs, found: &Found, deed: &Deed<'_>, context: &Context) -> Result<ExitCode, Failure> {
    let all = sandboxes(context)?;
    let names = args.name.as_ref().map(|_| all.lock_names()).transpose().map_err(|e| state_failure(&e))?;
    if let Some(name) = &args.name {
        all.check_name(name).map_err(|e| state_failure(&e))?;
    }
    let (owned, _) =
        super::changes::while_frozen(found, context, || keeper::fork(&all, &found.directory, &found.record).map_err(|e| explain(&e)))?;
    if args.name.is_some() {
        let mut record = owned.record().map_err(|e| state_failure(&e))?;
        record.name.clone_from(&args.name);
        owned.write_record(&record).map_err(|e| state_failure(&e))?;
    }
    drop(names);
    show(&start(&owned, args.name.as_ref(), deed, context)?, context)
}

/// `stockade hold` as a child of this process: standard input is the sandbox's lock, and it says at `output` when it stands. In a scope it refuses what
/// lies outside.
#[expect(clippy::disallowed_methods, reason = "starts this very program as the sandbox's supervisor")]
pub(crate) fn supervise(id: &SandboxId, lock: OwnedFd, output: OwnedFd, scope: Option<&Scope>) -> Result<Child, Failure> {
    let failed = |what: &str, e: std::io::Error| Failure::new("starting the supervisor", format!("{what}: {e}"));
    let program = std::env::current_exe().map_err(|e| failed("finding this program", e))?;
    let mut command = Command::new(program);
    command.args(["hold", id.as_str()]).current_dir("/");
    if let Some(Scope { roots, walls, .. }) = scope {
        command.args(walls.iter().flat_map(|wall| ["--wall", wall.name()]));
        command.args(roots.iter().flat_map(|root| [OsStr::new("--within"), root.as_os_str()]));
    }
    command.stdin(Stdio::from(lock)).stdout(Stdio::from(output)).stderr(Stdio::null());
    command.spawn().map_err(|e| failed("starting", e))
}

/// Starts a supervisor with the sandbox's lock and waits for its word.
fn start(owned: &Owned, name: Option<&SandboxName>, deed: &Deed<'_>, context: &Context) -> Result<Value, Failure> {
    let failed = |what: &str, e: std::io::Error| Failure::new("starting the supervisor", format!("{what}: {e}"));
    let (heard, said) = std::io::pipe().map_err(|e| failed("making a pipe", e))?;
    let supervisor = if let Some(steward) = context.steward() {
        steward.hold(&owned.id, owned.lock().as_fd(), said.as_fd())?
    } else {
        let lock = owned.lock().try_clone().map_err(|e| failed("passing the lock on", e))?;
        Started::Here(supervise(&owned.id, lock, said.try_clone().map_err(|e| failed("passing the pipe on", e))?.into(), None)?)
    };
    drop(said);
    let mut answer = String::new();
    heard.take(MAX_ANSWER).read_to_string(&mut answer).map_err(|e| failed("listening", e))?;
    let answer: Value = serde_json::from_str(answer.trim()).unwrap_or(Value::Null);
    if answer.get("ready") == Some(&Value::Bool(true)) {
        let id = &owned.id;
        let held: Option<Enforcement> = answer.get("enforcement").and_then(|held| serde_json::from_value(held.clone()).ok());
        deed.note(|draft| {
            if let Some(sandbox) = &mut draft.sandbox {
                sandbox.id = Some(id.to_string());
                sandbox.enforcement = held.map(|held| held.levels()).unwrap_or_default();
            }
        });
        return Ok(json!({ "sandbox_id": id, "name": name, "enforcement": levels(&answer), "receipt_id": deed.id() }));
    }
    supervisor.wait();
    let error = |key: &str| answer.pointer(&format!("/error/{key}")).and_then(Value::as_str).map(str::to_owned);
    // A supervisor that failed removed the directory already; one that died did not.
    if owned.directory.exists() {
        let places = context.places()?;
        sweep::remove(&places.state, &places.runtime, &owned.id).map_err(|e| state_failure(&e))?;
    }
    let failure = Failure::new(
        error("step").unwrap_or_else(|| "starting the supervisor".into()),
        error("message").unwrap_or_else(|| "it ended without a word".into()),
    );
    Err(match error("hint") {
        Some(hint) => failure.with_hint(hint),
        None => failure,
    })
}

fn levels(answer: &Value) -> Value {
    let map = answer.get("enforcement").and_then(Value::as_object);
    Value::Object(map.into_iter().flatten().map(|(demand, a)| (demand.clone(), a.get("level").cloned().unwrap_or(Value::Null))).collect())
}
