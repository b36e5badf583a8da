//! `policy import`: rules of Claude Code and Codex as rules of the person's own.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::{Value, json};
use stockade_policy::import::{self, Fate, Imported, Note, Wish};
use stockade_store::policy::{PolicyError, PolicyLayers, write_imported};

use super::{STEP, read};
use crate::Context;
use crate::admission;
use crate::approver;
use crate::cli::{ImportArgs, Origin};
use crate::failure::Failure;
use crate::receipts::approved;

/// What every first policy needs: rules about agents alone would leave a person nothing.
const YOU: &str =
    "// Rules about agents alone would leave you nothing.\n@id(\"you\")\npermit (principal is Stockade::Human, action, resource);";

pub(super) fn import(args: &ImportArgs, context: &Context) -> Result<ExitCode, Failure> {
    let imported = match args.origin {
        Origin::Claude => from_claude(&args.files, context)?,
        Origin::Codex => from_codex(&args.files)?,
    };
    if imported.rules.is_empty() {
        tell(&imported.notes, context);
        return Err(Failure::new(STEP, "none of the rules can be carried over"));
    }
    let text = text(args, &imported, context)?;
    let place = if args.dry_run {
        None
    } else {
        let places = context.places()?;
        let decider = approver::demand("add rules", context)?;
        let written = approved("policy.import", &[args.origin.name()], &decider, context, || {
            write_imported(places, args.origin.name(), &text).map_err(|error| match error {
                PolicyError::Exists(_) => admission::failure(&error).with_hint("move it away first, or look with --dry-run"),
                error => admission::failure(&error),
            })
        })?;
        Some(written.path)
    };
    if context.printer.is_json() {
        let notes = imported
            .notes
            .iter()
            .map(|note| json!({ "fate": fate(note), "wish": note.wish.map(Wish::name), "rule": note.rule, "why": note.why }));
        let file = place.as_ref().map(|path| path.to_string_lossy());
        context.printer.json(&json!({ "file": file, "rules": imported.rules.len(), "text": text, "notes": notes.collect::<Vec<_>>() }))?;
        return Ok(ExitCode::SUCCESS);
    }
    text.lines().try_for_each(|line| context.printer.line(line))?;
    tell(&imported.notes, context);
    match place {
        Some(path) => context.printer.note(format!("{} rules written to {}", imported.rules.len(), path.display())),
        None => context.printer.note(format!("{} rules; nothing was written", imported.rules.len())),
    }
    Ok(ExitCode::SUCCESS)
}

fn text(args: &ImportArgs, imported: &Imported, context: &Context) -> Result<String, Failure> {
    let mut parts = vec![format!("// Rules that `stockade policy import {}` made. They are about agents.", args.origin.name())];
    let layers = PolicyLayers::load(context.places()?, None).map_err(|error| admission::failure(&error))?;
    if layers.is_empty() {
        parts.push(YOU.to_owned());
    }
    parts.extend(imported.rules.iter().cloned());
    Ok(parts.join("\n\n") + "\n")
}

/// Says what is missing; what was denied before and is not now comes first.
fn tell(notes: &[Note], context: &Context) {
    let is_lost = |note: &&Note| note.fate == Fate::Left && note.wish == Some(Wish::Deny);
    for note in notes.iter().filter(is_lost) {
        context.printer.warning(format!("no longer denied: {} ({})", note.rule, note.why));
    }
    for note in notes.iter().filter(|note| !is_lost(note)) {
        let wish = note.wish.map_or(String::new(), |wish| format!("{} ", wish.name()));
        context.printer.note(format!("{}: {wish}{} ({})", fate(note), note.rule, note.why));
    }
}

fn fate(note: &Note) -> &'static str {
    match note.fate {
        Fate::Left => "left out",
        Fate::Narrowed => "narrower",
    }
}

fn from_codex(files: &[PathBuf]) -> Result<Imported, Failure> {
    let texts = files.iter().map(|path| read(path)).collect::<Result<Vec<_>, _>>()?;
    Ok(import::codex(&texts.join("\n")))
}

fn from_claude(files: &[PathBuf], context: &Context) -> Result<Imported, Failure> {
    let mut rules = Vec::new();
    let mut notes = Vec::new();
    for path in files {
        claude_file(path, &mut rules, &mut notes)?;
    }
    let home = context.places()?.home.to_str().map(str::to_owned);
    let mut imported = import::claude(&rules, home.as_deref());
    imported.notes.extend(notes);
    Ok(imported)
}

/// The lists of one settings file; whatever else says what may be done is noted.
fn claude_file(path: &Path, rules: &mut Vec<(Wish, String)>, notes: &mut Vec<Note>) -> Result<(), Failure> {
    let failed = |why: String| Failure::new(STEP, format!("`{}`: {why}", path.display())).with_hint("give a settings.json of Claude Code");
    let settings: Value = serde_json::from_str(&read(path)?).map_err(|error| failed(error.to_string()))?;
    let Some(permissions) = settings.get("permissions").and_then(Value::as_object) else {
        return Err(failed("it has no `permissions`".to_owned()));
    };
    for (key, value) in permissions {
        let wish = match key.as_str() {
            "allow" => Wish::Allow,
            "ask" => Wish::Ask,
            "deny" => Wish::Deny,
            _ => {
                let why = "only the lists `allow`, `ask` and `deny` are carried over".to_owned();
                notes.push(Note { fate: Fate::Left, wish: None, rule: format!("{key}: {value}"), why });
                continue;
            }
        };
        let list = value.as_array().ok_or_else(|| failed(format!("`permissions.{key}` is no list")))?;
        for rule in list {
            let rule = rule.as_str().ok_or_else(|| failed(format!("`permissions.{key}` holds something that is no text")))?;
            rules.push((wish, rule.to_owned()));
        }
    }
    Ok(())
}
