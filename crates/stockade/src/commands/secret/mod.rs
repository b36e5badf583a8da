//! `stockade secret`: keeps values in the secret store, lists names, forgets them. No value is printed, and none is an argument.
//!
//! How values are kept is decided in `stockade-broker`; here they are asked for. `adopt` takes over the logins of other tools.

mod adopt;
mod device;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::SystemTime;

use serde_json::json;
use stockade_broker::placeholder::looks_like_a_token;
use stockade_broker::store::{Kept, Removed, Store, StoreError};
use stockade_broker::{BadSecretValue, SecretName, SecretValue, hygiene};
use stockade_core::secret::MAX_TEXT;
use stockade_store::settings::{SecretSetting, Settings};
use zeroize::Zeroizing;

use crate::Context;
use crate::approver;
use crate::cli::{RemoveSecretArgs, SecretArgs, SecretVerb, SetSecretArgs};
use crate::failure::Failure;
use crate::printer::Table;
use crate::receipts::approved;
use crate::terminal;

const STEP: &str = "secret";
/// Longer input is refused unread: room for the longest value and its line breaks.
const MAX_INPUT: usize = MAX_TEXT + 3;

/// Does what `stockade secret` was asked for.
pub(crate) fn run(args: &SecretArgs, context: &Context) -> Result<ExitCode, Failure> {
    hygiene::keep_to_ourselves().map_err(|errno| Failure::new(STEP, format!("this process cannot be made undumpable: {errno}")))?;
    match &args.verb {
        SecretVerb::Set(args) => set(args, context)?,
        SecretVerb::Adopt(args) => return adopt::run(args, context),
        SecretVerb::List(_) => list(context)?,
        SecretVerb::Remove(args) => remove(args, context)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn set(args: &SetSecretArgs, context: &Context) -> Result<(), Failure> {
    let name = parse_name(&args.name)?;
    if looks_like_a_token(name.as_str()) {
        return Err(Failure::new(STEP, "what was given as the name looks like a token itself").with_hint(format!(
            "revoke it if others can see this terminal or your shell's history; then give a name, and the value {INPUT_HINT}"
        )));
    }
    let decider = approver::demand("keep a secret", context)?;
    let store = Store::beneath(&context.places()?.state);
    let (name, value) = if let Some((oauth, refresh_token)) = device::wanted(&name, context)? {
        (refresh_token, device::log_in(&oauth, &store, context)?)
    } else {
        let input = if std::io::stdin().is_terminal() {
            terminal::ask_hidden(&format!("Value of {name} (not shown): "), MAX_INPUT, &context.printer)?
        } else {
            read_input()?
        };
        (name, take_value(input)?)
    };
    let now = SystemTime::now();
    let kept =
        approved("secret.set", &[name.as_str()], &decider, context, || store.set(&name, &value, now).map_err(|error| failure(&error)))?;
    if context.printer.is_json() {
        context.printer.json(&json!({ "name": name.as_str(), "created": date(now), "replaced": kept == Kept::Replaced }))?;
    } else {
        context.printer.note(match kept {
            Kept::New => format!("kept `{name}`"),
            Kept::Replaced => format!("kept `{name}` in place of the one before"),
        });
    }
    warn_if_elsewhere(&name, context);
    Ok(())
}

const INPUT_HINT: &str = "on standard input (`gh auth token | stockade secret set GITHUB_TOKEN`) or at the prompt";

/// What comes through a pipe or from a file, bounded. Read without a buffer that would keep it.
fn read_input() -> Result<Zeroizing<Vec<u8>>, Failure> {
    let mut input = Zeroizing::new(vec![0; MAX_INPUT]);
    let mut have = 0;
    while let Some(rest) = input.get_mut(have..).filter(|rest| !rest.is_empty()) {
        match rustix::io::read(rustix::stdio::stdin(), rest) {
            Ok(0) => break,
            Ok(count) => have += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(Failure::new(STEP, format!("cannot read standard input: {errno}"))),
        }
    }
    input.truncate(have);
    Ok(input)
}

fn take_value(mut input: Zeroizing<Vec<u8>>) -> Result<SecretValue, Failure> {
    SecretValue::from_text(std::mem::take(&mut *input)).map_err(|error| {
        let failure = Failure::from_error(STEP, &error);
        if error == BadSecretValue::Empty { failure.with_hint(format!("give the value {INPUT_HINT}")) } else { failure }
    })
}

/// A value that was kept and yet is not used should not surprise anybody.
fn warn_if_elsewhere(name: &SecretName, context: &Context) {
    match settings(context) {
        Ok(settings) => {
            let elsewhere = settings.iter().find(|setting| setting.name == *name).map(|setting| setting.source.word());
            if let Some(word) = elsewhere.filter(|word| *word != "store") {
                context.printer.warning(format!("your settings take `{name}` from its {word}, not from the store"));
            }
        }
        Err(failure) => context.printer.warning(format!("settings do not load: {}", failure.message)),
    }
}

/// One line of the list.
struct Row {
    source: &'static str,
    created: Option<String>,
    hosts: Vec<String>,
    problem: Option<String>,
}

fn list(context: &Context) -> Result<(), Failure> {
    let store = Store::beneath(&context.places()?.state);
    let mut rows: BTreeMap<SecretName, Row> = BTreeMap::new();
    for kept in store.list().map_err(|error| failure(&error))? {
        let (created, problem) = match kept.created {
            Ok(time) => (Some(date(time)), None),
            Err(error) => (None, Some(Failure::from_error(STEP, &error).message)),
        };
        rows.insert(kept.name, Row { source: "store", created, hosts: Vec::new(), problem });
    }
    for setting in settings(context)? {
        let row = rows.entry(setting.name).or_insert(Row { source: "store", created: None, hosts: Vec::new(), problem: None });
        row.source = setting.source.word();
        row.hosts = setting.hosts.iter().map(ToString::to_string).collect();
        if row.source == "store" && row.created.is_none() && row.problem.is_none() {
            row.problem = Some("not set yet".to_owned());
        }
    }
    if context.printer.is_json() {
        let secrets: Vec<_> = rows
            .iter()
            .map(|(name, row)| {
                json!({
                    "name": name.as_str(), "source": row.source, "created": row.created, "hosts": row.hosts, "problem": row.problem,
                })
            })
            .collect();
        return context.printer.json(&json!({ "secrets": secrets }));
    }
    if rows.is_empty() {
        context.printer.note("there are no secrets; keep one with `stockade secret set NAME`");
        return Ok(());
    }
    let mut table = Table::new(["NAME", "SOURCE", "CREATED", "HOSTS", "PROBLEM"]);
    for (name, row) in &rows {
        let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        let hosts = if row.hosts.is_empty() { "any".to_owned() } else { row.hosts.join(" ") };
        table.row([name.as_str(), row.source, &or_dash(&row.created), &hosts, &or_dash(&row.problem)]);
    }
    context.printer.table(&table)
}

fn remove(args: &RemoveSecretArgs, context: &Context) -> Result<(), Failure> {
    let names = args.names.iter().map(|name| parse_name(name)).collect::<Result<Vec<_>, _>>()?;
    let store = Store::beneath(&context.places()?.state);
    let decider = approver::demand("forget a secret", context)?;
    let mut removed = Vec::new();
    let mut missing = Vec::new();
    for name in &names {
        let gone = approved("secret.remove", &[name.as_str()], &decider, context, || store.remove(name).map_err(|error| failure(&error)))?;
        match gone {
            Removed::Gone => removed.push(name.as_str()),
            Removed::NotThere => missing.push(format!("`{name}`")),
        }
    }
    if !missing.is_empty() {
        return Err(Failure::new(STEP, format!("not in the secret store: {}", missing.join(", "))).with_hint("see `stockade secret list`"));
    }
    if context.printer.is_json() {
        return context.printer.json(&json!({ "removed": removed }));
    }
    context.printer.note(format!("forgot {}", removed.join(", ")));
    Ok(())
}

/// A name, which is not repeated when it is none: it may be a value.
fn parse_name(text: &OsStr) -> Result<SecretName, Failure> {
    let name = text.to_str().map(str::parse::<SecretName>);
    match name {
        Some(Ok(name)) => Ok(name),
        Some(Err(error)) => {
            Err(Failure::from_error(STEP, &error).with_hint(format!("the name is the only argument; give the value {INPUT_HINT}")))
        }
        None => Err(Failure::from_error(STEP, &stockade_broker::BadSecretName)),
    }
}

/// What the person's and the machine's settings say; a project has no say in secrets.
fn settings(context: &Context) -> Result<Vec<SecretSetting>, Failure> {
    Settings::load(context.places()?, None).map(|settings| settings.secrets().value).map_err(|error| {
        let failure = Failure::from_error("settings", &error);
        match error.hint() {
            Some(hint) => failure.with_hint(hint),
            None => failure,
        }
    })
}

fn date(time: SystemTime) -> String {
    jiff::Timestamp::try_from(time).map(|stamp| format!("{stamp:.0}")).unwrap_or_default()
}

fn failure(error: &StoreError) -> Failure {
    let failure = Failure::from_error("secret store", error);
    match error.hint() {
        Some(hint) => failure.with_hint(hint),
        None => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_name_is_not_repeated() {
        for wrong in ["NAME=hunter2hunter2", "with blank hunter2", ""] {
            let failure = parse_name(OsStr::new(wrong)).unwrap_err();
            assert!(!format!("{failure:?}").contains("hunter2"), "{failure:?}");
        }
        assert!(parse_name(OsStr::new("GITHUB_TOKEN")).is_ok());
    }

    #[test]
    fn dates_are_whole_seconds() {
        assert_eq!(date(std::time::UNIX_EPOCH + std::time::Duration::from_millis(1_763_240_000_400)), "2025-11-15T20:53:20Z");
    }
}
