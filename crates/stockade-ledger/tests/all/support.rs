//! Receipts to write, and ledgers to write them to.

use std::path::Path;

use stockade_core::result::Reached;
use stockade_ledger::export::{Format, export};
use stockade_ledger::query::Filter;
use stockade_ledger::receipt::{Draft, Kind, Outcome, Policy, Principal, Program, ReceiptId, SandboxFacts};
use stockade_ledger::redact::Redactor;
use stockade_ledger::{Ledger, Options, Weight};

pub(crate) fn open(directory: &Path) -> Ledger {
    Ledger::open(directory, Options::default()).unwrap()
}

/// An intent that differs from others by its number.
pub(crate) fn intent(number: usize) -> Draft {
    let mut draft = Draft::new(ReceiptId::new(), Kind::Intent);
    let agent = (!number.is_multiple_of(3)).then(|| format!("claude/agent-{}", number % 7));
    draft.principal =
        Some(Principal { agent, human: Some("ada".into()), session: Some(format!("s-{}", number % 11)), ..Principal::default() });
    draft.argv = Some(vec![["git", "cargo", "sh"][number % 3].to_owned(), format!("argument {number} ä\n\u{1}")]);
    draft.program = Some(Program { path: format!("/usr/bin/{}", ["git", "cargo", "sh"][number % 3]), sha256: Some("ab".repeat(32)) });
    draft.capability = number.is_multiple_of(5).then(|| "git.log".to_owned());
    let verdict = if number % 10 == 9 { "ask" } else { "allow" };
    draft.policy = Some(Policy { digest: None, rule: "no-policy".into(), verdict: verdict.into(), reasons: Vec::new() });
    let sandbox = SandboxFacts {
        id: Some(format!("{:016x}", number % 13)),
        backend: "jail".into(),
        spec_digest: None,
        enforcement: [].into(),
        limits: [].into(),
    };
    draft.sandbox = Some(sandbox);
    draft
}

/// The outcome of an intent.
pub(crate) fn outcome(intent: &Draft, number: usize) -> Draft {
    let mut draft = Draft { kind: Kind::Outcome, ..intent.clone() };
    draft.result = Some(Outcome { exit_code: Some(0), duration_ms: Some(12), capture: Some("none".into()), ..Outcome::default() });
    if number.is_multiple_of(4) {
        let host = format!("host{}.example", number % 6);
        let secret = number.is_multiple_of(8).then(|| "TOKEN".to_owned());
        draft.network = vec![Reached { host, port: 443, method: None, path: None, verdict: "allow".into(), rule: "x".into(), secret }];
    }
    draft
}

/// Writes calls: two receipts each.
pub(crate) fn write_calls(ledger: &Ledger, calls: usize) {
    for number in 0..calls {
        let begun = intent(number);
        ledger.append(&begun, Weight::Read, &Redactor::none()).unwrap();
        ledger.append(&outcome(&begun, number), Weight::Read, &Redactor::none()).unwrap();
    }
}

/// Everything, as an export.
pub(crate) fn exported(ledger: &Ledger) -> Vec<u8> {
    exported_as(ledger, &Filter::default(), Format::Jsonl)
}

pub(crate) fn exported_as(ledger: &Ledger, filter: &Filter, format: Format) -> Vec<u8> {
    let mut bytes = Vec::new();
    export(ledger, filter, format, &mut bytes).unwrap();
    bytes
}

/// Checks the ledger where it lies, trusting its own key.
pub(crate) fn verified(directory: &Path) -> u64 {
    let reader = stockade_ledger::Reader::open(directory).unwrap();
    let key = reader.local_key().unwrap();
    stockade_ledger::verify::verify(&reader, &[key], None).unwrap().size
}
