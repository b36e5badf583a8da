//! Events of the Open Cybersecurity Schema Framework, version 1.8: Process Activity for what ran, Authorize Session for what was refused, HTTP Activity
//! for what was reached, Entity Management for the rest. The receipt itself is under `unmapped`, so nothing is lost.

use serde_json::{Map, Value, json};
use stockade_verify::text::to_hex;

use super::malformed;
use crate::error::LedgerError;
use crate::facts::Facts;
use crate::query::Entry;

const VERSION: &str = "1.8.0";

/// The class of an event and what it did.
struct Class {
    category: u64,
    uid: u64,
    activity: u64,
}

pub(super) fn event(entry: &Entry, origin: &str) -> Result<Value, LedgerError> {
    let receipt: Value = serde_json::from_slice(&entry.body).map_err(|_| malformed(entry))?;
    let facts = Facts::of(&entry.body);
    let text = |path: &str| receipt.pointer(path).and_then(Value::as_str);
    let class = class_of(text("/kind").unwrap_or_default());
    let is_denied = text("/policy/verdict") == Some("deny") || text("/kind") == Some("denied");
    let exit = receipt.pointer("/result/exit_code").and_then(Value::as_i64);
    let (status, status_id) = match (is_denied, exit) {
        (false, Some(0)) => ("Success", 1),
        (false, None) => ("Unknown", 0),
        (true, _) | (false, Some(_)) => ("Failure", 2),
    };
    let mut event = json!({
        "category_uid": class.category,
        "class_uid": class.uid,
        "activity_id": class.activity,
        "type_uid": class.uid * 100 + class.activity,
        "time": facts.time / 1000,
        "severity_id": if is_denied { 3 } else { 1 },
        "status": status,
        "status_id": status_id,
        "message": message(&receipt),
        "metadata": {
            "version": VERSION,
            // Which lets events of every class say on which machine, and who.
            "profiles": ["host"],
            "product": {"name": "Stockade", "vendor_name": "Stockade", "version": env!("CARGO_PKG_VERSION")},
            "uid": format!("{}#{}", facts.receipt_id, entry.seq),
            "correlation_uid": facts.receipt_id,
            "sequence": entry.seq,
            "log_name": origin,
            "original_time": text("/time"),
        },
        "device": {"type_id": 0, "uid": origin, "type": "Unknown"},
        "actor": actor(&receipt),
    });
    if let Some(object) = event.as_object_mut() {
        object.extend(details(&class, &receipt));
        let said = json!({"receipt": receipt, "receipt_sha256": to_hex(&stockade_verify::record::digest(&entry.body))});
        without_nothing(object);
        object.insert("unmapped".to_owned(), said);
    }
    Ok(event)
}

/// What is not known is absent: the schema has no null.
fn without_nothing(object: &mut Map<String, Value>) {
    object.retain(|_, value| !value.is_null());
    for value in object.values_mut() {
        if let Value::Object(inner) = value {
            without_nothing(inner);
        }
    }
    object.retain(|_, value| value.as_object().is_none_or(|inner| !inner.is_empty()));
}

fn class_of(kind: &str) -> Class {
    match kind {
        "intent" => Class { category: 1, uid: 1007, activity: 1 },
        "outcome" => Class { category: 1, uid: 1007, activity: 2 },
        "network" => Class { category: 4, uid: 4002, activity: 0 },
        "denied" | "approval" | "credential" => Class { category: 3, uid: 3003, activity: 99 },
        _ => Class { category: 3, uid: 3004, activity: 99 },
    }
}

fn message(receipt: &Value) -> String {
    let text = |path: &str| receipt.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let argv: Vec<&str> = receipt.get("argv").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    let what = if argv.is_empty() { text("/capability").to_owned() } else { argv.join(" ") };
    format!("{} {what}", text("/kind")).trim_end().to_owned()
}

fn actor(receipt: &Value) -> Value {
    let text = |path: &str| receipt.pointer(path).and_then(Value::as_str);
    let name = text("/principal/human").or_else(|| text("/principal/agent")).unwrap_or("unknown");
    json!({
        "user": {"name": name, "type_id": 0},
        "session": {"uid": text("/principal/session")},
        "app_name": text("/principal/client"),
    })
}

/// What each class needs beside what all have.
fn details(class: &Class, receipt: &Value) -> Map<String, Value> {
    let text = |path: &str| receipt.pointer(path).and_then(Value::as_str);
    let mut details = Map::new();
    match class.uid {
        1007 => {
            let argv: Vec<&str> = receipt.get("argv").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
            let path = text("/program/path").unwrap_or_default();
            let mut file = json!({"name": crate::facts::base_name(path), "path": path, "type_id": 1});
            if let (Some(file), Some(digest)) = (file.as_object_mut(), text("/program/sha256")) {
                file.insert("hashes".to_owned(), json!([{"algorithm": "SHA-256", "algorithm_id": 3, "value": digest}]));
            }
            let name = argv.first().copied().unwrap_or(path);
            let process = json!({
                "uid": text("/receipt_id"),
                "cmd_line": argv.join(" "),
                "file": file,
                "name": name,
                "working_directory": text("/cwd"),
                "sandbox": text("/sandbox/backend"),
            });
            details.insert("process".to_owned(), process);
            if let Some(code) = receipt.pointer("/result/exit_code") {
                details.insert("exit_code".to_owned(), code.clone());
            }
        }
        4002 => {
            let (host, port) = (text("/network/0/host").unwrap_or_default(), receipt.pointer("/network/0/port"));
            let method = text("/network/0/method");
            details.insert("dst_endpoint".to_owned(), json!({"hostname": host, "port": port}));
            let url = json!({"hostname": host, "path": text("/network/0/path"), "port": port});
            details.insert("http_request".to_owned(), json!({"http_method": method, "url": url}));
        }
        3003 => {
            let name = text("/principal/agent").or_else(|| text("/principal/human")).unwrap_or("unknown");
            details.insert("user".to_owned(), json!({"name": name, "type_id": 0}));
            details.insert("privileges".to_owned(), json!([text("/capability").unwrap_or("exec")]));
        }
        _ => {
            let name = text("/capability").unwrap_or("ledger");
            details.insert("entity".to_owned(), json!({"name": name, "type": text("/kind")}));
        }
    }
    details
}
