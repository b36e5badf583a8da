//! `stockade config`: shows the settings in force and changes the files they come from.
//!
//! What a setting may hold, and what a project may say, is decided in `stockade-store`; here it is asked for and printed.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::{Value, json};
use stockade_core::escape::escape_bytes;
use stockade_sandbox::workspace::locate::locate;
use stockade_store::settings::key::Kind;
use stockade_store::settings::{Outcome, Row, Settings, SettingsError, Target, config_set, config_unset, table};

use crate::Context;
use crate::cli::{ConfigArgs, ConfigVerb, GetArgs, LayerChoice, SetArgs, UnsetArgs};
use crate::destination;
use crate::failure::Failure;
use crate::printer::Table;
use crate::receipts::lifecycle;

/// Does what `stockade config` was asked for.
pub(crate) fn run(args: &ConfigArgs, context: &Context) -> Result<ExitCode, Failure> {
    match &args.verb {
        ConfigVerb::Get(args) => get(args, context)?,
        ConfigVerb::Set(args) => set(args, context)?,
        ConfigVerb::Unset(args) => unset(args, context)?,
        ConfigVerb::List(_) => list(context)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn get(args: &GetArgs, context: &Context) -> Result<(), Failure> {
    let row = load(context)?.get(&args.key).map_err(|error| failure(&error))?;
    if context.printer.is_json() { context.printer.json(&row) } else { context.printer.line(plain(&row.value)) }
}

fn list(context: &Context) -> Result<(), Failure> {
    let rows = load(context)?.list();
    if context.printer.is_json() {
        return context.printer.json(&json!({ "settings": rows }));
    }
    let mut table = Table::new(["KEY", "VALUE", "SOURCE"]);
    for row in &rows {
        table.row([row.key, &value_and_meaning(row), &source(row)]);
    }
    context.printer.table(&table)
}

fn set(args: &SetArgs, context: &Context) -> Result<(), Failure> {
    let places = context.places()?;
    let key = table::find(&args.key);
    let takes_many = key.is_none_or(|key| key.kind == Kind::Hosts);
    if args.values.len() > 1 && !takes_many {
        let hint = format!("quote the value if it has spaces in it: `stockade config set {} 'ONE TWO'`", args.key);
        return Err(Failure::new("settings", format!("`{}` takes one value, not {}", args.key, args.values.len())).with_hint(hint));
    }
    let project = project_to_change(args.layer, context)?;
    let value = args.values.join(",");
    let words = ["--layer", layer_word(args.layer), &args.key, &value];
    let outcome = lifecycle("config.set", &words, context, || {
        key.map_or(Ok(()), |key| destination::check(key, &value))?;
        config_set(places, target(args.layer, project.as_deref()), &args.key, &value).map_err(|error| failure(&error))
    })?;
    report(&args.key, Action::Set, outcome, context)?;
    warn_if_overridden(args, project.as_deref(), context);
    Ok(())
}

fn unset(args: &UnsetArgs, context: &Context) -> Result<(), Failure> {
    let project = project_to_change(args.layer, context)?;
    let places = context.places()?;
    let words = ["--layer", layer_word(args.layer), &args.key];
    let outcome = lifecycle("config.unset", &words, context, || {
        config_unset(places, target(args.layer, project.as_deref()), &args.key).map_err(|error| failure(&error))
    })?;
    report(&args.key, Action::Unset, outcome, context)
}

#[derive(Clone, Copy)]
enum Action {
    Set,
    Unset,
}

fn report(key: &str, action: Action, outcome: Outcome, context: &Context) -> Result<(), Failure> {
    let (changed, path) = match outcome {
        Outcome::Changed(path) => (true, path),
        Outcome::Unchanged(path) => (false, path),
    };
    if context.printer.is_json() {
        return context.printer.json(&json!({ "key": key, "changed": changed, "file": shown(&path) }));
    }
    let path = shown(&path);
    context.printer.note(match (action, changed) {
        (Action::Set, true) => format!("set `{key}` in {path}"),
        (Action::Set, false) => format!("`{key}` already says so in {path}"),
        (Action::Unset, true) => format!("removed `{key}` from {path}"),
        (Action::Unset, false) => format!("`{key}` is not in {path}"),
    });
    Ok(())
}

/// A value that was written and yet does not count should not surprise anybody.
fn warn_if_overridden(args: &SetArgs, project: Option<&Path>, context: &Context) {
    let Ok(places) = context.places() else { return };
    let project = project.map(Path::to_owned).or_else(|| surrounding_project(context));
    match Settings::load(places, project.as_deref()).and_then(|settings| settings.get(&args.key)) {
        Ok(row) if row.source != layer_word(args.layer) => {
            context.printer.warning(format!("the value in force is {} ({})", row.value, source(&row)));
        }
        Ok(_) => {}
        Err(error) => context.printer.warning(format!("settings do not load: {error}")),
    }
}

fn load(context: &Context) -> Result<Settings, Failure> {
    Settings::load(context.places()?, surrounding_project(context).as_deref()).map_err(|error| failure(&error))
}

/// The project around the current directory; a directory that cannot be a workspace has none.
fn surrounding_project(context: &Context) -> Option<PathBuf> {
    let (directory, places) = (context.environment.current_dir().ok()?, context.places().ok()?);
    locate(directory, None, &places.home).ok().map(|located| located.path.as_path().to_owned())
}

fn project_to_change(layer: LayerChoice, context: &Context) -> Result<Option<PathBuf>, Failure> {
    match layer {
        LayerChoice::User | LayerChoice::Machine => Ok(None),
        LayerChoice::Project => {
            let located = locate(context.environment.current_dir()?, None, &context.places()?.home).map_err(|error| {
                let failure = Failure::from_error("workspace", &error);
                match error.hint() {
                    Some(hint) => failure.with_hint(hint),
                    None => failure,
                }
            })?;
            Ok(Some(located.path.as_path().to_owned()))
        }
    }
}

fn target(layer: LayerChoice, project: Option<&Path>) -> Target<'_> {
    match (layer, project) {
        (LayerChoice::Project, Some(root)) => Target::Project(root),
        (LayerChoice::Machine, _) => Target::Machine,
        (LayerChoice::User | LayerChoice::Project, _) => Target::User,
    }
}

fn layer_word(layer: LayerChoice) -> &'static str {
    match layer {
        LayerChoice::User => "user",
        LayerChoice::Project => "project",
        LayerChoice::Machine => "machine",
    }
}

/// Text without quotes, everything else as JSON: what a script wants to read.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn value_and_meaning(row: &Row) -> String {
    if row.meaning.is_empty() { row.value.to_string() } else { format!("{} ({})", row.value, row.meaning) }
}

fn source(row: &Row) -> String {
    match (&row.file, row.line) {
        (Some(file), Some(line)) => format!("{} {file}:{line}", row.source),
        _ => row.source.to_owned(),
    }
}

fn shown(path: &Path) -> String {
    escape_bytes(path.as_os_str().as_encoded_bytes())
}

fn failure(error: &SettingsError) -> Failure {
    let failure = Failure::from_error("settings", error);
    match error.hint() {
        Some(hint) => failure.with_hint(hint),
        None => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_with_what_they_mean_and_where_they_are_from() {
        let default = Settings::defaults().get("sandbox.limits.memory").unwrap();
        assert_eq!((value_and_meaning(&default), source(&default)), ("null (75 % of RAM)".to_owned(), "default".to_owned()));
        let said = Row { value: json!(512), source: "user", file: Some("/s.json".to_owned()), line: Some(3), meaning: "", ..default };
        assert_eq!((value_and_meaning(&said), source(&said)), ("512".to_owned(), "user /s.json:3".to_owned()));
    }

    #[test]
    fn text_is_printed_without_quotes() {
        assert_eq!(
            [json!("jail"), json!(1.5), json!(["a.com"]), json!(null)].map(|value| plain(&value)),
            ["jail", "1.5", "[\"a.com\"]", "null"]
        );
    }

    #[test]
    fn hints_come_along() {
        let error = Settings::defaults().get("sandbox.bakend").unwrap_err();
        let failure = failure(&error);
        assert_eq!((failure.kind.code(), failure.step.as_str()), (125, "settings"));
        assert!(failure.message.contains("sandbox.backend") && failure.hint.is_some());
    }
}
