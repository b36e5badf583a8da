//! `stockade secret adopt`: takes over a login that a tool has, so that programs inside can use it without having it.
//!
//! ```text
//!  find (reads only) ─▶ nothing in the way? ─▶ approver ─▶ values into the store, entry into the settings ─▶ check ─▶ tell
//!                             └ --dry-run: tell
//! ```
//!
//! One file for each tool. Nothing of the tool's own is changed or deleted: what may be deleted is told, and only as long as the check does not say
//! that it would be missed.

mod around;
mod aws;
mod check;
mod docker;
mod gcloud;
mod gh;
mod ini;
mod kube;
mod login;
mod npm;
mod tell;

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::SystemTime;

use stockade_broker::SecretName;
use stockade_broker::placeholder::looks_like_a_token;
use stockade_broker::store::{Kept, Store};
use stockade_store::private_dir::ensure_private_dir;
use stockade_store::settings::{Existing, Settings, SettingsError, secret_set};

use self::around::Around;
use self::check::{Check, check};
use self::login::{Login, Wish};
use super::parse_name;
use crate::Context;
use crate::approver;
use crate::cli::{AdoptArgs, AdoptTool};
use crate::failure::Failure;
use crate::receipts::approved;

const STEP: &str = "adopt";
/// The exit code where the login was kept and does not work.
const DOES_NOT_WORK: u8 = 1;

/// Adopts a login.
pub(super) fn run(args: &AdoptArgs, context: &Context) -> Result<ExitCode, Failure> {
    let wish = wish(args)?;
    let around = Around::new(context)?;
    let login = match args.tool {
        AdoptTool::Gcloud => gcloud::find(&around, &wish),
        AdoptTool::Kube => kube::find(&around, &wish),
        AdoptTool::Aws => aws::find(&around, &wish),
        AdoptTool::Gh => gh::find(&around, &wish),
        AdoptTool::Docker => docker::find(&around, &wish),
        AdoptTool::Npm => npm::find(&around, &wish),
    }?;
    let existing = if args.replace { Existing::Replace } else { Existing::Keep };
    let store = Store::beneath(&context.places()?.state);
    nothing_in_the_way(&login, existing, &store, context)?;
    if args.dry_run {
        tell::plan(args.tool, &login, context)?;
        return Ok(ExitCode::SUCCESS);
    }
    let decider = approver::demand("adopt a login", context)?;
    let words: Vec<&str> = std::iter::once(args.tool.word()).chain(login.values.iter().map(|(name, _)| name.as_str())).collect();
    approved("secret.adopt", &words, &decider, context, || keep(&login, existing, &store, context))?;
    let checked = if args.no_check { Check::Unknown("--no-check".to_owned()) } else { check(&login.setting, &login.request, context) };
    tell::adopted(args.tool, &login, &checked, context)?;
    Ok(match checked {
        Check::Works(_) | Check::Unknown(_) => ExitCode::SUCCESS,
        Check::Fails(_) => ExitCode::from(DOES_NOT_WORK),
    })
}

/// What the flags say; each belongs to some tools only.
fn wish(args: &AdoptArgs) -> Result<Wish<'_>, Failure> {
    let (host, profile, context) = match args.tool {
        AdoptTool::Gh | AdoptTool::Docker | AdoptTool::Npm => (true, false, false),
        AdoptTool::Aws => (false, true, false),
        AdoptTool::Kube => (false, false, true),
        AdoptTool::Gcloud => (false, false, false),
    };
    let flags = [("--host", &args.host, host), ("--profile", &args.profile, profile), ("--context", &args.context, context)];
    if let Some((flag, _, _)) = flags.iter().find(|(_, given, takes)| given.is_some() && !takes) {
        return Err(Failure::new("arguments", format!("`{flag}` means nothing to `secret adopt {}`", args.tool.word())));
    }
    let odd = |text: &String| text.is_empty() || text.starts_with('-') || text.chars().any(char::is_control);
    if let Some((flag, _, _)) = flags.iter().find(|(_, given, _)| given.as_ref().is_some_and(odd)) {
        return Err(Failure::new("arguments", format!("what `{flag}` says cannot be a name")));
    }
    let name = args.name.as_deref().map(|name: &OsStr| parse_name(name)).transpose()?;
    if name.as_ref().is_some_and(|name: &SecretName| looks_like_a_token(name.as_str())) {
        return Err(Failure::new(STEP, "what was given as the name looks like a token itself"));
    }
    Ok(Wish { name, host: args.host.as_deref(), profile: args.profile.as_deref(), context: args.context.as_deref() })
}

/// Everything that would fail later, or would take something away, is told before anything is written.
fn nothing_in_the_way(login: &Login, existing: Existing, store: &Store, context: &Context) -> Result<(), Failure> {
    let settings = Settings::load(context.places()?, None).map_err(|error| of_settings(&error))?;
    let secrets = settings.secrets();
    if secrets.source.word() == "machine" {
        return Err(Failure::new(STEP, "the machine's settings say where secrets are, so an entry in yours would not count")
            .with_hint("ask whoever administers this machine"));
    }
    if existing == Existing::Replace {
        return Ok(());
    }
    let name = &login.setting.name;
    let instead = "--replace puts the new one in its place; --name NAME keeps both";
    if secrets.value.iter().any(|setting| setting.name == *name) {
        return Err(Failure::new(STEP, format!("your settings have an entry `secrets.{name}` already")).with_hint(instead));
    }
    let kept = store.list().map_err(|error| super::failure(&error))?;
    match login.values.iter().find(|(name, _)| kept.iter().any(|one| one.name == *name)) {
        Some((name, _)) => Err(Failure::new(STEP, format!("there is a secret `{name}` in the store already")).with_hint(instead)),
        None => Ok(()),
    }
}

/// Keeps the values and writes the entry. What is new in the store does not stay there without it.
fn keep(login: &Login, existing: Existing, store: &Store, context: &Context) -> Result<(), Failure> {
    let places = context.places()?;
    let mut new = Vec::new();
    let mut all = || {
        for (name, value) in &login.values {
            if store.set(name, value, SystemTime::now()).map_err(|error| super::failure(&error))? == Kept::New {
                new.push(name);
            }
        }
        if let Some((path, pem)) = &login.authorities {
            write_authorities(path, pem)?;
        }
        secret_set(places, &login.setting, existing).map_err(|error| of_settings(&error))
    };
    let kept = all();
    if kept.is_err() {
        for name in new {
            // The failure that is told says more than one that follows from it.
            let _ = store.remove(name);
        }
    }
    kept.map(drop)
}

fn write_authorities(path: &Path, pem: &str) -> Result<(), Failure> {
    if let Some(directory) = path.parent() {
        ensure_private_dir(directory).map_err(|error| Failure::from_error(STEP, &error))?;
    }
    let nofollow = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).custom_flags(nofollow).open(path);
    file.and_then(|mut file| file.write_all(pem.as_bytes()))
        .map_err(|error| Failure::new(STEP, format!("writing the server's authorities: {error}")))
}

fn of_settings(error: &SettingsError) -> Failure {
    let failure = Failure::from_error("settings", error);
    match error.hint() {
        Some(hint) => failure.with_hint(hint),
        None => failure,
    }
}
