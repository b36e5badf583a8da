//! Scripts, programs and capabilities on the asker's overlay.

use std::ffi::OsString;

use base64::Engine as _;
use stockade_core::result::{Decision, RunResult};
use stockade_policy::Verdict;

use super::answer::{Problem, Reply};
use super::asked::Asked;
use super::call::Job;
use super::forms::{Run, RunCapability};
use super::look::packs;
use crate::admission;
use crate::commands::cap;
use crate::engine::capability::{Apply, Called, Inputs, Wish};
use crate::failure::Failure;
use crate::mcp::Session;
use crate::mcp::act::{Answered, Caller, Rest, act};
use crate::mcp::tools::{self, Changes, Order, Shell, Work};

/// Arguments of one program.
const MOST_ARGUMENTS: usize = 1024;
/// Bytes of all of them, as of a script.
const MOST_BYTES: usize = 120 << 10;
/// Bytes that a program is given to read.
const MOST_INPUT: usize = 8 << 20;

/// `POST /v1/run`: the object of `run --json`.
pub(super) fn run(asked: &Asked, session: &Session) -> Result<Job, Problem> {
    asked.query().finish()?;
    let Run { script, argv, cwd, env, timeout_seconds, stdin, stdin_base64 } = asked.body()?;
    let work = match (script, argv) {
        (Some(text), None) => tools::script(text).map_err(Problem::malformed)?,
        (None, Some(argv)) => Work::Program(arguments(argv)?),
        (Some(_), Some(_)) | (None, None) => return Err(Problem::malformed("give either `script` or `argv`")),
    };
    let order = Order::Shell(Shell {
        work,
        cwd: tools::directory(cwd, &session.workspace).map_err(Problem::malformed)?,
        time: tools::time(timeout_seconds).map_err(Problem::malformed)?,
        variables: tools::variables(env).map_err(Problem::malformed)?,
        stdin: input(stdin, stdin_base64)?,
        changes: Changes::Kept,
    });
    Ok(ordered(order))
}

/// `POST /v1/capabilities/{name}/run`: the object of `cap run --json`, or of `cap run --dry-run --json`.
pub(super) fn capability(asked: &Asked, _: &Session) -> Result<Job, Problem> {
    asked.query().finish()?;
    let RunCapability { input, dry_run } = asked.body()?;
    let name = asked.part(0).to_owned();
    let order = Order::Capability(name.clone(), input.clone());
    Ok(Box::new(move |caller| {
        let known = packs(caller.session).and_then(|packs| match packs.capability(&name) {
            Ok(_) => Ok(packs),
            Err(_) => Err(Problem::nothing("capability", &name)),
        });
        match known {
            Err(problem) => (Err(problem), Rest::default()),
            Ok(packs) if dry_run => {
                let wish = Wish {
                    name: &name,
                    inputs: Inputs::Values(input),
                    workspace: Some(caller.session.workspace.clone()),
                    apply: Apply::Later,
                    asker: caller.asker.clone(),
                };
                (previewed(wish, &packs, caller), Rest::default())
            }
            Ok(_) => ordered(order)(caller),
        }
    }))
}

/// What would come of a call, which nobody makes.
fn previewed(wish: Wish<'_>, packs: &stockade_store::packs::Packs, caller: &Caller<'_>) -> Result<Reply, Problem> {
    let context = &caller.session.context;
    let (called, assembled) = Called::assemble(wish, packs, context)?;
    let told = match assembled.rules.refusal_of_agents() {
        Some(told) => told,
        None => decided(&called.decide(&caller.asker.principal(), &assembled, packs, context)?),
    };
    Ok(Reply::saying(cap::previewed(&called, &assembled, &told)))
}

fn decided(decision: &stockade_policy::Decision) -> Decision {
    let told = admission::told(decision);
    if decision.verdict == Verdict::Ask { admission::unasked(told) } else { told }
}

/// Has an order carried out.
fn ordered(order: Order) -> Job {
    Box::new(move |caller| {
        let (came, rest) = act(order, caller);
        (replied(came), rest)
    })
}

fn replied(came: Result<Answered, Failure>) -> Result<Reply, Problem> {
    let written = |result: &RunResult| serde_json::to_value(result).map_err(|_| Problem::broken("the result cannot be written"));
    Ok(match came? {
        // What rules asked about, and somebody approved, says `ask`, and ran.
        Answered::Run(result) => Reply::saying(written(&result)?),
        Answered::Denied(result) => Reply::of(written(&result)?),
        Answered::File(path, handled) if handled.found.is_some() => Reply::saying(handled.value(&path.to_string())),
        Answered::File(path, handled) => Reply::of(handled.value(&path.to_string())),
        Answered::Value(value) => Reply::of(value),
    })
}

/// The arguments of a program that can be started.
pub(super) fn arguments(argv: Vec<String>) -> Result<Vec<OsString>, Problem> {
    if argv.first().is_none_or(String::is_empty) {
        return Err(Problem::malformed("`argv` must begin with the name of a program"));
    }
    if argv.len() > MOST_ARGUMENTS || argv.iter().map(String::len).sum::<usize>() > MOST_BYTES {
        return Err(Problem::malformed(format!("`argv` may have {MOST_ARGUMENTS} items and {MOST_BYTES} bytes")));
    }
    if argv.iter().any(|word| word.contains('\0')) {
        return Err(Problem::malformed("`argv` may not hold a NUL byte"));
    }
    Ok(argv.into_iter().map(OsString::from).collect())
}

/// What a program is given to read.
pub(super) fn input(text: Option<String>, base64: Option<String>) -> Result<Vec<u8>, Problem> {
    let bytes = match (text, base64) {
        (None, None) => Vec::new(),
        (Some(text), None) => text.into_bytes(),
        (None, Some(text)) => base64::engine::general_purpose::STANDARD
            .decode(text)
            .map_err(|error| Problem::malformed(format!("`stdin_base64` is not base64: {error}")))?,
        (Some(_), Some(_)) => return Err(Problem::malformed("give either `stdin` or `stdin_base64`")),
    };
    if bytes.len() > MOST_INPUT {
        return Err(Problem::malformed(format!("the input has {} bytes, and {MOST_INPUT} are the most", bytes.len())));
    }
    Ok(bytes)
}
