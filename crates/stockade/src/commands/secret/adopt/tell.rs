//! What is said of a login: what would be kept, or what was, whether it works, and what may be deleted now. Never a value.

use serde_json::{Value, json};
use stockade_core::credential::Delivery;
use stockade_core::escape::escape_bytes;

use super::check::Check;
use super::login::Login;
use crate::Context;
use crate::cli::AdoptTool;
use crate::failure::Failure;
use crate::printer::Table;

/// What would be done.
pub(super) fn plan(tool: AdoptTool, login: &Login, context: &Context) -> Result<(), Failure> {
    let places = context.places()?;
    if context.printer.is_json() {
        return context.printer.json(&common(tool, login, true));
    }
    let mut table = Table::new(["SECRET", "FROM", "HOSTS", "WOULD BE"]);
    for (name, _) in &login.values {
        table.row([name.as_str(), &login.from, &hosts(login), "kept in the secret store"]);
    }
    let file = escape_bytes(places.user_settings().as_os_str().as_encoded_bytes());
    table.row([login.setting.name.as_str(), "-", &hosts(login), &format!("written to {file} as `secrets.{}`", login.setting.name)]);
    if let Some((path, _)) = &login.authorities {
        table.row(["-", &login.from, &hosts(login), &format!("written to {}", escape_bytes(path.as_os_str().as_encoded_bytes()))]);
    }
    context.printer.table(&table)?;
    context.printer.note("nothing was written (--dry-run)");
    Ok(())
}

/// What was done.
pub(super) fn adopted(tool: AdoptTool, login: &Login, check: &Check, context: &Context) -> Result<(), Failure> {
    if context.printer.is_json() {
        let mut told = common(tool, login, false);
        if let Value::Object(fields) = &mut told {
            fields.insert("check".to_owned(), check.to_json());
            let spare = if matches!(check, Check::Fails(_)) { &[] } else { login.spare.as_slice() };
            fields.insert("may_be_deleted".to_owned(), json!(spare));
        }
        return context.printer.json(&told);
    }
    let mut table = Table::new(["SECRET", "FROM", "HOSTS", "CHECK"]);
    table.row([login.setting.name.as_str(), &login.from, &hosts(login), &check.words()]);
    context.printer.table(&table)?;
    let name = &login.setting.name;
    let when = match check {
        Check::Works(_) => "may now be deleted",
        Check::Unknown(_) => {
            context.printer.note(format!("see that it works before you delete anything: stockade run --secret {name}@HOST -- …"));
            "may be deleted once it works"
        }
        Check::Fails(_) => {
            context.printer.warning(format!(
                "`{name}` is kept, and does not work; delete nothing. Log in with `{}` again, then: stockade secret adopt {} --replace",
                tool.program(),
                tool.word()
            ));
            return Ok(());
        }
    };
    for spare in &login.spare {
        context.printer.line(format!("{when}: {spare}"))?;
    }
    Ok(())
}

fn common(tool: AdoptTool, login: &Login, dry_run: bool) -> Value {
    let kept: Vec<&str> = login.values.iter().map(|(name, _)| name.as_str()).collect();
    let delivery: Vec<&str> = login.setting.deliveries().into_iter().map(Delivery::word).collect();
    let hosts: Vec<String> = login.setting.hosts.iter().map(ToString::to_string).collect();
    json!({
        "tool": tool.word(), "secret": login.setting.name.as_str(), "kept": kept, "from": login.from, "hosts": hosts,
        "source": login.setting.source.word(), "delivery": delivery, "dry_run": dry_run,
    })
}

fn hosts(login: &Login) -> String {
    login.setting.hosts.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}
