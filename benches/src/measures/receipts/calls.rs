//! Calls as an agent's day has them, for ledgers of any size: the same ones in every run of the harness.

use std::path::Path;

use stockade_core::result::Reached;
use stockade_ledger::receipt::{Draft, Kind, Outcome, Policy, Principal, Program, ReceiptId, SandboxFacts};
use stockade_ledger::redact::Redactor;
use stockade_ledger::{Durability, Ledger, LedgerError, Options, Weight};

/// Threads that write a large ledger: those that wait together are written together.
const WRITERS: usize = 16;

/// What is known before a call.
pub(super) fn intent(number: usize) -> Draft {
    let mut draft = Draft::new(ReceiptId::new(), Kind::Intent);
    draft.principal = Some(Principal { agent: Some(format!("claude/{}", number % 40)), human: Some("ada".into()), ..Principal::default() });
    draft.argv = Some(vec!["git".into(), "log".into(), "--oneline".into(), format!("-{number}")]);
    draft.argv_executed.clone_from(&draft.argv);
    draft.program = Some(Program { path: format!("/usr/bin/tool{}", number % 100), sha256: Some("ab".repeat(32)) });
    draft.cwd = Some("/home/ada/work/project".into());
    draft.env_names = Some(["HOME", "LANG", "PATH", "TERM", "USER"].map(str::to_owned).to_vec());
    let verdict = if number.is_multiple_of(500) { "deny" } else { "allow" };
    draft.policy = Some(Policy { digest: Some("cd".repeat(32)), rule: "tools".into(), verdict: verdict.into(), reasons: Vec::new() });
    let id = Some(format!("{:016x}", number % 1000));
    draft.sandbox =
        Some(SandboxFacts { id, backend: "jail".into(), spec_digest: Some("ef".repeat(32)), enforcement: [].into(), limits: [].into() });
    draft
}

/// What is known after it.
pub(super) fn outcome(intent: &Draft, number: usize) -> Draft {
    let result = Some(Outcome { exit_code: Some(0), duration_ms: Some(4), capture: Some("none".into()), ..Outcome::default() });
    let mut draft = Draft { kind: Kind::Outcome, result, ..intent.clone() };
    if number.is_multiple_of(50) {
        let host = format!("host{}.example", number % 64);
        draft.network =
            vec![Reached { host, port: 443, method: None, path: None, verdict: "allow".into(), rule: "x".into(), secret: None }];
    }
    draft
}

/// Fills a ledger with calls until it has this many receipts, two for each.
pub(super) fn fill(directory: &Path, receipts: usize) -> Result<(), LedgerError> {
    let ledger = Ledger::open(directory, Options { durability: Durability::Process, ..Options::default() })?;
    let none = Redactor::none();
    let write = |part: usize| -> Result<(), LedgerError> {
        for number in (part..receipts / 2).step_by(WRITERS) {
            let begun = intent(number);
            ledger.append(&begun, Weight::Read, &none)?;
            ledger.append(&outcome(&begun, number), Weight::Read, &none)?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let write = &write;
        let writers: Vec<_> = (0..WRITERS).map(|part| scope.spawn(move || write(part))).collect();
        writers.into_iter().try_for_each(|writer| writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })?;
    ledger.close()
}
