//! `sandbox create` and `sandbox fork`: start a supervisor and wait until its sandbox stands.

use std::io::Read;
use std::process::{Command, ExitCode, Stdio};

use serde_json::{Value, json};
use stockade_core::id::SandboxName;
use stockade_sandbox::keeper::{self, Charge};
use stockade_sandbox::state::{Kind, Owned, Record};
use stockade_sandbox::sweep;

use super::super::run::explain;
use super::{find, sandboxes, state_failure};
use crate::Context;
use crate::assemble;
use crate::cli::{CreateArgs, ForkArgs};
use crate::failure::Failure;

/// A supervisor's answer is one short line.
const MAX_ANSWER: u64 = 1 << 20;

pub(super) fn create(args: &CreateArgs, context: &Context) -> Result<ExitCode, Failure> {
    if args.sandbox.apply {
        return Err(Failure::new("arguments", "`--apply` is for `run`; a created sandbox is applied with `sandbox apply`"));
    }
    let assembled = assemble::assemble(&args.sandbox, context)?;
    assemble::warn_if_local(assembled.backend.as_ref(), context);
    let sandboxes = sandboxes(context)?;
    let names = args.name.as_ref().map(|_| sandboxes.lock_names()).transpose().map_err(|e| state_failure(&e))?;
    if let Some(name) = &args.name {
        sandboxes.check_name(name).map_err(|e| state_failure(&e))?;
    }
    let owned = sandboxes.create().map_err(|e| state_failure(&e))?;
    let spec = &assembled.spec;
    let backend = assembled.backend.kind().name();
    let mut record = Record::new(owned.id.clone(), Kind::Created, backend, spec.workspace.path.as_path(), spec.workspace.mode);
    record.name.clone_from(&args.name);
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
    start(&owned, args.name.as_ref(), context)
}

pub(super) fn fork(args: &ForkArgs, context: &Context) -> Result<ExitCode, Failure> {
    let found = find(&args.sandbox, context)?;
    if found.record.kind == Kind::Run {
        return Err(Failure::new("fork", "only sandboxes made by `sandbox create` can be forked"));
    }
    let all = sandboxes(context)?;
    let names = args.name.as_ref().map(|_| all.lock_names()).transpose().map_err(|e| state_failure(&e))?;
    if let Some(name) = &args.name {
        all.check_name(name).map_err(|e| state_failure(&e))?;
    }
    let (owned, _) =
        super::changes::while_frozen(&found, context, || keeper::fork(&all, &found.directory, &found.record).map_err(|e| explain(&e)))?;
    if args.name.is_some() {
        let mut record = owned.record().map_err(|e| state_failure(&e))?;
        record.name.clone_from(&args.name);
        owned.write_record(&record).map_err(|e| state_failure(&e))?;
    }
    drop(names);
    start(&owned, args.name.as_ref(), context)
}

/// Starts `stockade hold` with the sandbox's lock and waits for its word.
#[expect(clippy::disallowed_methods, reason = "starts this very program as the sandbox's supervisor")]
fn start(owned: &Owned, name: Option<&SandboxName>, context: &Context) -> Result<ExitCode, Failure> {
    let failed = |what: &str, e: std::io::Error| Failure::new("starting the supervisor", format!("{what}: {e}"));
    let program = std::env::current_exe().map_err(|e| failed("finding this program", e))?;
    let lock = owned.lock().try_clone().map_err(|e| failed("passing the lock on", e))?;
    let mut supervisor = Command::new(program)
        .args(["hold", owned.id.as_str()])
        .current_dir("/")
        .stdin(Stdio::from(lock))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| failed("starting", e))?;
    let mut answer = String::new();
    if let Some(output) = supervisor.stdout.take() {
        output.take(MAX_ANSWER).read_to_string(&mut answer).map_err(|e| failed("listening", e))?;
    }
    let answer: Value = serde_json::from_str(answer.trim()).unwrap_or(Value::Null);
    if answer.get("ready") == Some(&Value::Bool(true)) {
        let id = &owned.id;
        if context.printer.is_json() {
            context.printer.json(&json!({ "sandbox_id": id, "name": name, "enforcement": levels(&answer) }))?;
        } else {
            context.printer.line(id.as_str())?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let _ = supervisor.wait();
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
