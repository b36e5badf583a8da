//! `sandbox network`: what a sandbox tried to reach, and what was answered.

use std::process::ExitCode;
use std::time::Duration;

use serde_json::json;
use stockade_sandbox::state::Found;

use super::{find, sandboxes};
use crate::Context;
use crate::cli::NetworkArgs;
use crate::egress::record::{Record, Row};
use crate::failure::Failure;

/// How often the record is looked at while it is followed.
const LOOK: Duration = Duration::from_millis(200);

pub(super) fn network(args: &NetworkArgs, context: &Context) -> Result<ExitCode, Failure> {
    let found = find(&args.sandbox, context)?;
    let record = match Record::open(&found.directory) {
        Ok(record) => record,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return nothing(&found, context),
        Err(error) => return Err(failed(&error)),
    };
    if args.follow {
        return follow(&found, &record, context);
    }
    let rows = record.read().map_err(|error| failed(&error))?;
    if context.printer.is_json() {
        context.printer.json(&json!({ "sandbox_id": found.record.id, "network": rows }))?;
    } else {
        rows.iter().try_for_each(|row| context.printer.line(shown(row)))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Shows what is there and what comes, until the sandbox ends.
fn follow(found: &Found, record: &Record, context: &Context) -> Result<ExitCode, Failure> {
    let sandboxes = sandboxes(context)?;
    let mut place = 0;
    loop {
        // Asked first, so that what was written before its end is still shown.
        let alive = sandboxes.is_alive(found.record.id.as_str());
        let (rows, next) = record.since(place).map_err(|error| failed(&error))?;
        place = next;
        for row in &rows {
            if context.printer.is_json() {
                context.printer.json(row)?;
            } else {
                context.printer.line(shown(row))?;
            }
        }
        if !alive {
            return Ok(ExitCode::SUCCESS);
        }
        std::thread::sleep(LOOK);
    }
}

/// It has no way out, so there is nothing to list.
fn nothing(found: &Found, context: &Context) -> Result<ExitCode, Failure> {
    if context.printer.is_json() {
        context.printer.json(&json!({ "sandbox_id": found.record.id, "network": [] }))?;
    } else {
        context.printer.note("this sandbox has no network");
    }
    Ok(ExitCode::SUCCESS)
}

fn shown(row: &Row) -> String {
    let place = if row.port == 0 { row.host.clone() } else { format!("{}:{}", row.host, row.port) };
    let mut words = vec![row.time.clone(), row.verdict.clone(), row.method.clone().unwrap_or_else(|| row.subject.clone()), place];
    words.extend(row.path.clone());
    words.extend(row.status.map(|status| status.to_string()));
    words.push(format!("({})", row.rule));
    words.extend(row.secret.as_ref().map(|name| format!("secret {name}")));
    words.extend(row.reason.as_ref().map(|reason| format!("- {reason}")));
    words.extend(row.change.as_ref().map(|change| format!("[{change}]")));
    words.join(" ")
}

fn failed(error: &std::io::Error) -> Failure {
    Failure::new("network", format!("reading the record: {error}"))
}
