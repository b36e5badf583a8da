//! Looking for receipts: whatever is asked for, the index gives what reading every receipt gives.

use stockade_ledger::export::Format;
use stockade_ledger::query::{Filter, Page};
use stockade_ledger::receipt::Receipt;
use stockade_ledger::redact::Redactor;
use stockade_ledger::{Ledger, Weight};

use crate::support::{exported_as, intent, open, write_calls};

const ALL: Page = Page { before: None, most: 10_000 };

fn by_hand(ledger: &Ledger, wanted: impl Fn(&Receipt) -> bool) -> Vec<u64> {
    let entries = ledger.reader().unwrap().from(0, 10_000).unwrap();
    entries.iter().rev().filter(|entry| wanted(&entry.receipt().unwrap())).map(|entry| entry.seq).collect()
}

fn found(ledger: &Ledger, filter: &Filter) -> Vec<u64> {
    ledger.reader().unwrap().list(filter, ALL).unwrap().iter().map(|entry| entry.seq).collect()
}

/// A value that is looked for.
#[expect(clippy::unnecessary_wraps, reason = "fields of a filter are options")]
fn text(value: &str) -> Option<String> {
    Some(value.to_owned())
}

#[test]
fn every_filter_gives_what_reading_gives() {
    let root = tempfile::tempdir().unwrap();
    let ledger = open(root.path());
    // More than are indexed at once, and some that are not indexed yet.
    write_calls(&ledger, 700);
    let agent = |receipt: &Receipt, name: &str| receipt.content.principal.as_ref().and_then(|one| one.agent.as_deref()) == Some(name);
    let verdict = |receipt: &Receipt, name: &str| receipt.content.policy.as_ref().is_some_and(|one| one.verdict == name);
    let host = |receipt: &Receipt, name: &str| receipt.content.network.iter().any(|one| one.host == name);
    let cases: Vec<(Filter, Vec<u64>)> = vec![
        (Filter::default(), by_hand(&ledger, |_| true)),
        (Filter { agent: text("claude/agent-1"), ..Filter::default() }, by_hand(&ledger, |one| agent(one, "claude/agent-1"))),
        (Filter { verdict: text("ask"), ..Filter::default() }, by_hand(&ledger, |one| verdict(one, "ask"))),
        (
            Filter { agent: text("claude/agent-1"), verdict: text("ask"), ..Filter::default() },
            by_hand(&ledger, |one| agent(one, "claude/agent-1") && verdict(one, "ask")),
        ),
        (Filter { capability: text("git.log"), ..Filter::default() }, by_hand(&ledger, |one| one.content.capability.is_some())),
        (
            Filter { program: text("/usr/bin/cargo"), verdict: text("ask"), ..Filter::default() },
            by_hand(&ledger, |one| one.content.program.as_ref().unwrap().path.ends_with("/cargo") && verdict(one, "ask")),
        ),
        (Filter { host: text("host4.example"), ..Filter::default() }, by_hand(&ledger, |one| host(one, "host4.example"))),
        (
            Filter { host: text("host4.example"), secret: text("TOKEN"), program: text("git"), ..Filter::default() },
            by_hand(&ledger, |one| {
                host(one, "host4.example") && one.content.network[0].secret.is_some() && one.content.argv.as_ref().unwrap()[0] == "git"
            }),
        ),
        (
            Filter { sandbox: text("0000000000000005"), kind: text("outcome"), session: text("s-3"), ..Filter::default() },
            by_hand(&ledger, |one| {
                one.content.sandbox.as_ref().unwrap().id.as_deref() == Some("0000000000000005")
                    && one.content.result.is_some()
                    && one.content.principal.as_ref().unwrap().session.as_deref() == Some("s-3")
            }),
        ),
        (Filter { agent: text("nobody"), ..Filter::default() }, Vec::new()),
    ];
    for (filter, expected) in cases {
        assert_eq!(found(&ledger, &filter), expected, "{filter:?}");
    }
}

#[test]
fn pages_join_without_gap_or_repetition() {
    let root = tempfile::tempdir().unwrap();
    let ledger = open(root.path());
    write_calls(&ledger, 400);
    let reader = ledger.reader().unwrap();
    let filter = Filter { program: text("git"), ..Filter::default() };
    let (mut all, mut before) = (Vec::new(), None);
    loop {
        let page = reader.list(&filter, Page { before, most: 7 }).unwrap();
        let Some(last) = page.last() else { break };
        before = Some(last.seq);
        all.extend(page.iter().map(|entry| entry.seq));
    }
    assert_eq!(all, found(&ledger, &filter));
}

#[test]
fn a_tail_misses_nothing() {
    let root = tempfile::tempdir().unwrap();
    let ledger = open(root.path());
    let reader = ledger.reader().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| write_calls(&open(root.path()), 25));
        }
        let mut next = 0;
        while next < 200 {
            for entry in reader.wait_from(next, 16, std::time::Duration::from_mins(1)).unwrap() {
                assert_eq!(entry.seq, next);
                next += 1;
            }
        }
    });
}

#[test]
fn other_forms_are_what_their_readers_expect() {
    let root = tempfile::tempdir().unwrap();
    let ledger = open(root.path());
    write_calls(&ledger, 4);
    let mut denied = intent(1);
    denied.kind = stockade_ledger::receipt::Kind::Denied;
    ledger.append(&denied, Weight::Read, &Redactor::none()).unwrap();
    let lines = |format| -> Vec<serde_json::Value> {
        let text = String::from_utf8(exported_as(&ledger, &Filter::default(), format)).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    for event in lines(Format::Ocsf) {
        let number = |name: &str| event[name].as_u64().unwrap();
        assert_eq!(number("type_uid"), number("class_uid") * 100 + number("activity_id"), "{event}");
        assert!(number("time") > 1_600_000_000_000 && event["metadata"]["product"]["name"] == "Stockade");
        assert!(event["unmapped"]["receipt"]["signature"].is_string());
    }
    let records = lines(Format::Otlp);
    let record = &records[8]["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0];
    assert_eq!((&record["severityText"], &record["eventName"]), (&"WARN".into(), &"stockade.denied".into()));
    for envelope in lines(Format::Intoto) {
        let decode = |value: &serde_json::Value| stockade_verify::text::from_base64(value.as_str().unwrap()).unwrap();
        let payload = decode(&envelope["payload"]);
        let mut signed = format!("DSSEv1 28 application/vnd.in-toto+json {} ", payload.len()).into_bytes();
        signed.extend(&payload);
        assert!(ledger.public_key().verifies(&signed, &decode(&envelope["signatures"][0]["sig"])));
        let statement: serde_json::Value = serde_json::from_slice(&payload).unwrap();
        assert_eq!(statement["_type"], "https://in-toto.io/Statement/v1");
        assert!(statement["subject"][0]["digest"]["sha256"].is_string());
    }
    let table = String::from_utf8(exported_as(&ledger, &Filter::default(), Format::Csv)).unwrap();
    assert_eq!(table.matches("\r\n").count(), 10);
}
