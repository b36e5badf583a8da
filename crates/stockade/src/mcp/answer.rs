//! What came of a call, as a result: the object of `run --json`, and the same in words.
//!
//! A denial and a failure are results too, marked as errors, so that a model sees why. A program that returns another code than 0 is no error
//! of the tool: `grep` that finds nothing has said so.

use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::{Map, Value, json};
use stockade_core::escape::escape;
use stockade_core::result::{Decision, RunResult};
use stockade_gateway::approvals::{Request, State};
use stockade_http::Verdict;

use super::act::Answered;
use crate::engine::files::{Found, Handled};
use crate::failure::Failure;

/// Bytes of output in words; the object has all that was captured.
const MOST_WORDS: usize = 96 << 10;
/// Of these, so many are the end.
const LAST_WORDS: usize = 24 << 10;

/// Of an order that was carried out, or failed.
pub(super) fn of(came: Result<Answered, Failure>) -> CallToolResult {
    match came {
        Ok(Answered::Denied(result)) => of_denial(&result),
        Ok(Answered::Run(result)) => of_run(&result),
        Ok(Answered::File(path, handled)) => of_file(&path.to_string(), &handled),
        Ok(Answered::Value(value)) => of_value(value),
        Err(failure) => of_failure(&failure),
    }
}

/// Of a program.
fn of_run(result: &RunResult) -> CallToolResult {
    let value = serde_json::to_value(result).unwrap_or(Value::Null);
    let mut words = String::new();
    for (stream, text, base64) in [("", &result.stdout, &result.stdout_base64), ("[stderr]\n", &result.stderr, &result.stderr_base64)] {
        if let Some(text) = text.as_ref().filter(|text| !text.is_empty()) {
            line(&mut words, &format!("{stream}{}", shortened(text)));
        }
        if let Some(base64) = base64 {
            line(&mut words, &format!("{stream}({} characters of base64: stdout_base64, stderr_base64)", base64.len()));
        }
    }
    let ended = ended(result);
    if let Some(ended) = &ended {
        line(&mut words, &format!("[{}]", ended.0));
    }
    if words.is_empty() {
        words.push_str("(no output)");
    }
    match ended {
        Some((_, Fault::Ours)) => error(words, value),
        Some((_, Fault::TheProgram)) | None => success(words, value),
    }
}

/// Of a program that did not run.
pub(super) fn of_denial(result: &RunResult) -> CallToolResult {
    error(denial(&result.decision), serde_json::to_value(result).unwrap_or(Value::Null))
}

/// Of a file.
fn of_file(path: &str, handled: &Handled) -> CallToolResult {
    let value = handled.value(path);
    let words = match &handled.found {
        None => return error(denial(&handled.told), value),
        Some(Found::Contents { bytes, .. }) => {
            std::str::from_utf8(bytes).map_or_else(|_| format!("({} bytes that are no text: content_base64)", bytes.len()), shortened)
        }
        Some(Found::Names { entries, .. }) => {
            let mark = |kind: &str| if kind == "directory" { "/\n" } else { "\n" };
            shortened(&entries.iter().flat_map(|entry| [entry.name.as_str(), mark(entry.kind)]).collect::<String>())
        }
        Some(Found::Written(bytes)) => format!("{bytes} bytes written to {path}"),
    };
    success(words, value)
}

/// Of what only says something.
fn of_value(value: Value) -> CallToolResult {
    let words = serde_json::to_string_pretty(&value).unwrap_or_default();
    success(words, value)
}

/// Of a failure of Stockade itself, or of a call that makes no sense.
pub(super) fn of_failure(failure: &Failure) -> CallToolResult {
    let hint = failure.hint.as_ref().map_or_else(String::new, |hint| format!("\nhint: {hint}"));
    error(format!("{}: {}{hint}", failure.step, failure.message), failure.to_json())
}

/// The verdict that a result tells of.
pub(super) fn verdict(result: &CallToolResult) -> Verdict {
    let told = result.structured_content.as_ref();
    let word = told.and_then(|value| value.get("decision")?.get("verdict")?.as_str());
    match word {
        Some("allow") => Verdict::Allow,
        Some("ask") => Verdict::Ask,
        Some("deny") => Verdict::Deny,
        // What only says something asks no rule.
        None if result.is_error != Some(true) => Verdict::Allow,
        Some(_) | None => Verdict::Failed,
    }
}

/// Of a request that was waited for, where no call ran because of it.
pub(super) fn of_request(request: &Request) -> CallToolResult {
    let Request { id, state, .. } = request;
    let by = request.by.as_deref().map_or_else(|| "somebody".to_owned(), escape);
    let value = json!({ "approval": { "id": id, "state": state.name(), "by": request.by, "method": request.method } });
    match state {
        State::Pending => error(
            format!(
                "Approval pending, nothing ran: nobody has answered the request {id} yet. {}",
                next_steps(id, &format!("stockade approvals approve {id}"))
            ),
            value,
        ),
        State::Approved | State::Granted => success(format!("{by} approved the request {id}. Repeat the very same call: it runs."), value),
        State::Denied => error(format!("Denied, nothing ran: {by} said no to the request {id}. Asking again does not help."), value),
        State::Expired => error(format!("Denied, nothing ran: nobody answered the request {id} in time."), value),
        State::Used => error(format!("Nothing ran: the approval of the request {id} was used by another call."), value),
    }
}

/// A result that says which request it was approved by.
pub(super) fn approved_by(mut result: CallToolResult, request: &Request) -> CallToolResult {
    let is_refused = |fields: &Map<String, Value>| {
        let told = |name: &str| fields.get("decision").and_then(|decision| decision.get(name)).and_then(Value::as_str);
        told("verdict").is_none_or(|verdict| verdict == "deny") || told("approval_id").is_some()
    };
    if let Some(Value::Object(fields)) = &mut result.structured_content
        && !is_refused(fields)
    {
        // One of many that a grant lets through, or the only one.
        let state = if request.state == State::Granted { State::Granted } else { State::Used };
        let approval = json!({ "id": request.id, "state": state.name(), "by": request.by, "method": request.method });
        fields.insert("approval".to_owned(), approval);
    }
    result
}

fn next_steps(id: &str, command: &str) -> String {
    format!(
        "A person may say: {command}\nWait with the tool approval_wait {{\"approval_id\": \"{id}\"}}: once it is approved, the call \
         runs and its result is yours. Or repeat the very same call later."
    )
}

/// The rule, the reason and the narrowest change.
fn denial(told: &Decision) -> String {
    let reason = told.reason.as_deref().unwrap_or(if told.verdict == "ask" { "nobody approved it" } else { "no rule permits it" });
    let source = told.source.as_ref().map_or_else(String::new, |source| format!(", {source}"));
    if let (Some(id), Some(command)) = (&told.approval_id, &told.suggest) {
        return format!("Approval pending, nothing ran: {reason} ({}{source}). {}", told.rule, next_steps(id, command));
    }
    let change = match &told.suggest {
        Some(command) if told.rule == "no-policy" => format!("\nA person can write a starter policy: {command}"),
        Some(rule) => format!("\nThe narrowest rule that would allow it, for a person to add (`stockade policy allow`):\n{rule}"),
        None => String::new(),
    };
    format!("Denied by policy, nothing ran: {reason} ({}{source}){change}", told.rule)
}

/// Whose doing it was that a program ended as it did.
enum Fault {
    TheProgram,
    Ours,
}

/// How it ended, where that is worth a word.
fn ended(result: &RunResult) -> Option<(String, Fault)> {
    let cut = result.truncated.stdout || result.truncated.stderr;
    match (result.timed_out, &result.limit, result.signal, result.exit_code) {
        (true, ..) => Some(("timed out; everything in the sandbox was killed".to_owned(), Fault::Ours)),
        (_, Some(limit), ..) => Some((format!("the {limit} limit was reached; everything in the sandbox was killed"), Fault::Ours)),
        (_, _, Some(signal), _) => Some((format!("killed by signal {signal}"), Fault::Ours)),
        (_, _, _, Some(code)) if code != 0 => Some((format!("exit code {code}"), Fault::TheProgram)),
        _ if cut => Some(("output was cut at the limit".to_owned(), Fault::TheProgram)),
        _ => None,
    }
}

fn line(words: &mut String, more: &str) {
    if !words.is_empty() && !words.ends_with('\n') {
        words.push('\n');
    }
    words.push_str(more);
}

/// The beginning and the end of what is too long.
fn shortened(text: &str) -> String {
    if text.len() <= MOST_WORDS {
        return text.to_owned();
    }
    let mut first = MOST_WORDS - LAST_WORDS;
    while !text.is_char_boundary(first) {
        first -= 1;
    }
    let mut last = text.len() - LAST_WORDS;
    while !text.is_char_boundary(last) {
        last += 1;
    }
    let (head, tail) = (text.get(..first).unwrap_or_default(), text.get(last..).unwrap_or_default());
    format!("{head}\n[… {} bytes left out; structuredContent has them …]\n{tail}", last - first)
}

fn success(words: String, value: Value) -> CallToolResult {
    let mut result = CallToolResult::success(vec![ContentBlock::text(words)]);
    result.structured_content = Some(value);
    result
}

fn error(words: String, value: Value) -> CallToolResult {
    let mut result = CallToolResult::error(vec![ContentBlock::text(words)]);
    result.structured_content = Some(value);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_long_keeps_its_beginning_and_its_end() {
        assert_eq!(shortened("short"), "short");
        let text = format!("A{}Z", "é".repeat(100_000));
        let short = shortened(&text);
        assert!(short.starts_with('A') && short.ends_with('Z') && short.len() < MOST_WORDS + 200, "{}", short.len());
    }

    #[test]
    fn a_denial_names_the_rule_the_reason_and_the_change() {
        let told = |rule: &str, reason: Option<&str>, suggest: &str| Decision {
            verdict: "deny".into(),
            rule: rule.into(),
            reason: reason.map(str::to_owned),
            source: Some("user/x.cedar:3".into()),
            suggest: Some(suggest.into()),
            approval_id: None,
        };
        let text = denial(&told("no-push", Some("push yourself"), "permit (…);"));
        assert!(text.contains("push yourself (no-push, user/x.cedar:3)") && text.ends_with("permit (…);"), "{text}");
        let text = denial(&told("no-policy", None, "stockade init"));
        assert!(text.ends_with("A person can write a starter policy: stockade init"), "{text}");
    }
}
