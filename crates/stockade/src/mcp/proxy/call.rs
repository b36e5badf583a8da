//! One call of a tool: accepted, permitted, perhaps approved, written down, passed on, written down again.
//!
//! ```text
//!  the very tool that was accepted? ─▶ only arguments that it names? ─▶ rules ─▶ (a person) ─▶ intent ─▶ server ─▶ outcome
//!        └──────────────── no ──────────────┴────────── no ─────────────┴─ no ─▶ denial written, nothing is passed on
//! ```

use std::ffi::OsString;
use std::future::Future;

use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::{Map, Value, json};
use stockade_core::result::Decision;
use stockade_gateway::approvals;
use stockade_ledger::Weight;
use stockade_ledger::receipt::{Approval, Bytes, Outcome};
use stockade_policy::capability::{CapabilityFacts, Effect, Invocation};
use stockade_policy::pack::ToolName;
use stockade_policy::{Judgement, Request, Verdict, narrowest_rule};
use stockade_store::mcp::{Definition, Standing, Tools};

use super::listing::failure;
use super::upstream::{Passed, Upstream};
use super::{Ground, Session};
use crate::admission::{self, Rules};
use crate::approval::{OwnWord, Question};
use crate::engine::asker::Asker;
use crate::failure::Failure;
use crate::receipts::{Asked, Book, Deed, digest_of, failed, policy_of};

/// What a receipt says of a call that was ended from outside.
const WITHDRAWN: &str = "cancelled: the client withdrew the call, or the proxy ended";

/// A call.
pub(super) struct Order {
    /// The tool.
    pub(super) tool: ToolName,
    /// What the server says of it now.
    pub(super) definition: Definition,
    /// What it is given.
    pub(super) arguments: Map<String, Value>,
}

/// What the rules and the person made of a call.
enum Judged {
    Permitted(Decision, Option<Approval>),
    Refused(Decision),
}

/// Makes a call, on a thread that may wait. `withdrawn` comes when nobody wants its answer any more.
pub(super) fn perform(
    order: Order,
    asker: &Asker,
    session: &Session,
    upstream: &Upstream,
    withdrawn: impl Future<Output = ()>,
) -> Result<CallToolResult, Failure> {
    let (context, ground) = (&session.context, &session.ground);
    let places = context.places()?;
    let standing = Tools::load(places, &session.server).map_err(|error| failure(&error))?.standing(&order.tool, &order.definition);
    let effect = if let Standing::Accepted(effect) = standing { effect } else { Effect::Destructive };
    let facts = order.definition.facts(&session.server, &order.tool, effect);
    let rules = Rules::load_for(asker.clone(), places, &ground.workspace)?;
    let book = Book::new(&ground.state, ground.keeping.clone(), context);
    let inputs = OsString::from(Value::Object(order.arguments.clone()).to_string());
    let vouched = format!("of the MCP server `{}`, sha256 {}", session.server, order.definition.sha256());
    let asked = Asked::Tool { name: facts.name.as_str(), inputs: &inputs, vouched: &vouched };
    let weight = if effect == Effect::Read { Weight::Read } else { Weight::Effect };
    let deed = Deed::new(&book, asked, weight, ground.redactor());
    if let Some(agent) = asker.agent() {
        deed.of_agent(agent.whole(), agent.client().to_owned());
    }
    deed.note(|draft| {
        draft.sandbox.clone_from(&ground.facts);
        if let Some(principal) = &mut draft.principal {
            principal.parent = Some(ground.parent.clone());
        }
    });
    let judged = match refusal(&order, standing, session) {
        Some(told) => Judged::Refused(told),
        None => judge(&order, &facts, &vouched, &rules, &deed.id(), session)?,
    };
    let (told, approval) = match judged {
        Judged::Permitted(told, approval) => (told, approval),
        Judged::Refused(told) => {
            deed.deny(&told, &rules)?;
            let result = denied(&told, &deed.id());
            drop(deed);
            book.close().tidy();
            return Ok(result);
        }
    };
    deed.note(|draft| {
        draft.policy = Some(policy_of(&told, &rules));
        draft.approval = approval;
    });
    deed.begin()?;
    let passed = pass(order, session, upstream, withdrawn);
    let (outcome, result) = reported(passed, &told, &deed, ground);
    deed.end(outcome, context);
    drop(deed);
    book.close().tidy();
    Ok(result)
}

/// What no rule is asked about: a tool that is not the one that was accepted, and arguments that nobody saw it take.
fn refusal(order: &Order, standing: Standing, session: &Session) -> Option<Decision> {
    let (tool, server) = (&order.tool, &session.server);
    let (rule, reason) = match standing {
        Standing::New => ("tool-not-accepted", format!("nobody accepted the tool `{tool}` of the MCP server `{server}`")),
        Standing::Changed => (
            "tool-changed",
            format!("the tool `{tool}` of the MCP server `{server}` is not the one that was accepted: its definition changed"),
        ),
        Standing::Accepted(_) => {
            let unknown = order.arguments.keys().find(|name| !order.definition.takes(name))?;
            let shown = stockade_core::escape::escape(&unknown.chars().take(80).collect::<String>());
            return Some(decision("argument-not-accepted", format!("the tool `{tool}` says nothing of an argument `{shown}`"), None));
        }
    };
    Some(decision(rule, reason, Some(format!("stockade mcp tools show {server} {tool}"))))
}

/// Asks the rules, and whether somebody approved it where they want that.
fn judge(
    order: &Order,
    facts: &CapabilityFacts,
    vouched: &str,
    rules: &Rules,
    receipt: &str,
    session: &Session,
) -> Result<Judged, Failure> {
    if let Some(told) = rules.refusal_of_agents() {
        return Ok(Judged::Refused(told));
    }
    let ground = &session.ground;
    let invocation = Invocation {
        capability: facts,
        values: &order.arguments,
        workspace: &ground.workspace.to_string_lossy(),
        backend: ground.backend,
        network: &ground.network,
        time: &format!("{:.0}", jiff::Timestamp::now()),
    };
    let request = Request::Invoke(&invocation);
    let decision = rules.decide(&request)?;
    let told = admission::told(&decision);
    match decision.verdict {
        Verdict::Allow => return Ok(Judged::Permitted(told, None)),
        Verdict::Deny => return Ok(Judged::Refused(told)),
        Verdict::Ask => {}
    }
    let principal = rules.asker().principal();
    let question = Question {
        told: told.clone(),
        because: admission::because(&Judgement {
            decision: decision.clone(),
            commands: vec![(facts.name.to_string(), decision)],
            exec_list: None,
        }),
        rules: vec![narrowest_rule(&principal, &request)],
        policy: digest_of(&rules.layers().files).unwrap_or_default(),
        principal: format!("{}::{:?}", principal.kind.name(), principal.id),
        effect: facts.effect,
        wanted: approvals::Wanted::Capability {
            name: facts.name.to_string(),
            pack: vouched.to_owned(),
            inputs: Value::Object(order.arguments.clone()).to_string(),
            argv: Vec::new(),
        },
        programs: Vec::new(),
        words: Vec::new(),
        // A client of the proxy is asked by nobody.
        own: OwnWord::DoesNotCount,
    };
    let settled = ground.frame.settle(&question, receipt, ground.redactor(), &session.context)?;
    Ok(settled.map_or_else(Judged::Refused, |approval| Judged::Permitted(told, Some(approval))))
}

/// Passes it on and waits, until nobody wants the answer any more.
fn pass(order: Order, session: &Session, upstream: &Upstream, withdrawn: impl Future<Output = ()>) -> Option<Passed> {
    let mut ended = session.ended.subscribe();
    tokio::runtime::Handle::current().block_on(async {
        tokio::select! {
            passed = upstream.call(&order.tool, order.arguments) => Some(passed),
            () = withdrawn => None,
            // Nobody can close it any more where the sender is gone.
            _ = ended.wait_for(|ended| *ended) => None,
        }
    })
}

/// What came of it, for the receipt and for the client.
fn reported(passed: Option<Passed>, told: &Decision, deed: &Deed<'_>, ground: &Ground) -> (Outcome, CallToolResult) {
    let broken = |why: &str| {
        let failure = Failure::new("server", why);
        let mut result = CallToolResult::error(vec![ContentBlock::text(why.to_owned())]);
        result.structured_content = Some(json!({ "receipt_id": deed.id(), "decision": told, "error": failure.to_json().get("error") }));
        (failed(&failure), result)
    };
    let result = match passed {
        None => return broken(WITHDRAWN),
        Some(Passed::Failed(why)) => return broken(&why),
        Some(Passed::Answered(result)) => *result,
    };
    let is_error = result.is_error == Some(true);
    // Made anew, with nothing in it that is about the conversation with the server.
    let mut clean = if is_error { CallToolResult::error(result.content) } else { CallToolResult::success(result.content) };
    clean.structured_content = result.structured_content;
    let bytes = serde_json::to_vec(&clean).unwrap_or_default();
    let mut outcome = Outcome {
        exit_code: Some(i32::from(is_error)),
        bytes: Some(Bytes { stdout: bytes.len() as u64, stderr: 0 }),
        ..Outcome::default()
    };
    match deed.book().payloads().keep(&bytes, ground.redactor()) {
        Ok(stored) => {
            deed.note(|draft| draft.redactions = stored.redactions);
            outcome.stdout_sha256 = Some(stored.sha256);
            outcome.capture = Some("kept".to_owned());
        }
        Err(error) => deed.note(|draft| draft.violations.push(format!("the result cannot be kept: {error}"))),
    }
    (outcome, clean)
}

/// A denial, for the client: the rule, the reason and what a person could do.
fn denied(told: &Decision, receipt_id: &str) -> CallToolResult {
    let reason = told.reason.as_deref().unwrap_or("no rule permits it");
    let source = told.source.as_ref().map_or_else(String::new, |source| format!(", {source}"));
    let change = match &told.suggest {
        Some(command) if command.starts_with("stockade ") => format!("\nA person can type: {command}"),
        Some(rule) => format!("\nThe narrowest rule that would allow it, for a person to add (`stockade policy allow`):\n{rule}"),
        None => String::new(),
    };
    let mut result = CallToolResult::error(vec![ContentBlock::text(format!(
        "Denied by policy, nothing was called: {reason} ({}{source}){change}",
        told.rule
    ))]);
    result.structured_content = Some(json!({ "receipt_id": receipt_id, "decision": told }));
    result
}

fn decision(rule: &str, reason: String, suggest: Option<String>) -> Decision {
    Decision {
        verdict: Verdict::Deny.name().to_owned(),
        rule: rule.to_owned(),
        reason: Some(reason),
        source: None,
        suggest,
        approval_id: None,
    }
}
