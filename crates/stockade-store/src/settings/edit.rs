//! Changing one value of a settings file and leaving the rest, comments too, as people wrote it.
//!
//! The new text is parsed and checked as a whole before it takes the old one's place: what would not load is not written.

use std::path::{Path, PathBuf};

use jsonc_parser::cst::{CstContainerNode, CstInputValue, CstObject, CstObjectProp, CstRootNode};

use super::document::{Document, bad_value, check_text, options, parse_object};
use super::error::{Place, SettingsError};
use super::file::{self, LockedFile};
use super::key::{Key, ProjectRule};
use super::layers;
use super::nearest::nearest;
use super::source::Layer;
use super::table;
use super::value::{Value, shorten};
use crate::places::Places;

/// What a new file begins as.
const EMPTY: &str = "{}\n";

/// Whose file to change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target<'a> {
    /// The person's own.
    User,
    /// The project with this root.
    Project(&'a Path),
    /// The machine's.
    Machine,
}

/// What became of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It was written.
    Changed(PathBuf),
    /// It said so already.
    Unchanged(PathBuf),
}

/// Sets `key` to what `text` says: a word, a number, `null`, or hosts with commas or as a JSON array.
pub fn config_set(places: &Places, target: Target<'_>, key: &str, text: &str) -> Result<Outcome, SettingsError> {
    let key = table::find(key).ok_or_else(|| unknown(key))?;
    if matches!(target, Target::Project(_)) && key.project == ProjectRule::Never {
        return Err(SettingsError::NotForProjects { at: Place::CommandLine, key: key.name.to_owned() });
    }
    let value = Value::from_text(key, text).map_err(|bad| bad_value(key, Place::CommandLine, bad))?;
    let locked = LockedFile::lock(places, target)?;
    change(places, target, &locked, |text| {
        let edited = set_in(text, key.name, &value).ok_or_else(|| cannot_edit(&locked, key.name))?;
        let document = Document::parse(locked.layer, &locked.path, edited.as_bytes()).map_err(|error| {
            // A mistake that was there before is shown where the file has it.
            Document::parse(locked.layer, &locked.path, text.as_bytes()).err().unwrap_or(error)
        })?;
        let says_so = document.entries.iter().any(|entry| entry.key.name == key.name && entry.value == value);
        if !says_so {
            return Err(cannot_edit(&locked, key.name));
        }
        if locked.layer == Layer::Project {
            check_tightens(places, document, key)?;
        }
        Ok(edited)
    })
}

/// Takes `key` out of the file. A key that no longer exists may be taken out too.
pub fn config_unset(places: &Places, target: Target<'_>, key: &str) -> Result<Outcome, SettingsError> {
    let known = table::find(key).is_some();
    if table::is_group(key) {
        return Err(unknown(key));
    }
    // Nothing is made where there is nothing to take out.
    let (_, path) = file::locate(places, target);
    if file::read(places, target)?.is_none() {
        return if known { Ok(Outcome::Unchanged(path)) } else { Err(unknown(key)) };
    }
    let locked = LockedFile::lock(places, target)?;
    change(places, target, &locked, |text| {
        let edited = unset_in(text, key).ok_or_else(|| cannot_edit(&locked, key))?;
        if !known && edited == text {
            return Err(unknown(key));
        }
        // The rest may hold other mistakes; taking one out must still be possible.
        parse_object(&locked.path, &edited)?;
        Ok(edited)
    })
}

/// The error for a key that does not exist, given on the command line.
pub(crate) fn unknown(key: &str) -> SettingsError {
    let beneath = table::KEYS.iter().find(|known| known.name.strip_prefix(key).is_some_and(|rest| rest.starts_with('.')));
    let nearest = beneath.map_or_else(|| nearest(key), |known| known.name.to_owned());
    SettingsError::UnknownKey { at: Place::CommandLine, key: shorten(key), nearest }
}

pub(super) fn change(
    places: &Places,
    target: Target<'_>,
    locked: &LockedFile,
    edit: impl FnOnce(&str) -> Result<String, SettingsError>,
) -> Result<Outcome, SettingsError> {
    let bytes = file::read(places, target)?.unwrap_or_default();
    let text = check_text(&locked.path, &bytes)?;
    let old = if text.trim().is_empty() { EMPTY } else { text };
    parse_object(&locked.path, old)?;
    let new = edit(old)?;
    if new == text {
        return Ok(Outcome::Unchanged(locked.path.clone()));
    }
    // Whatever stood before the text (a byte order mark) stays.
    let mark = bytes.get(..bytes.len() - text.len()).unwrap_or_default();
    locked.replace(&[mark, new.as_bytes()].concat())?;
    Ok(Outcome::Changed(locked.path.clone()))
}

/// Whether the whole project file only tightens what holds without it.
fn check_tightens(places: &Places, document: Document, key: &Key) -> Result<(), SettingsError> {
    let mut cells = layers::defaults();
    if let Some(bytes) = file::read(places, Target::User)? {
        layers::lay(&mut cells, Document::parse(Layer::User, &places.user_settings(), &bytes)?)?;
    }
    layers::lay(&mut cells, document).map_err(|error| match error {
        // The value was never in the file, so its place there would mislead.
        SettingsError::Loosens { at: _, key: loosened, wanted, effective, source_of_effective } if loosened == key.name => {
            SettingsError::Loosens { at: Place::CommandLine, key: loosened, wanted, effective, source_of_effective }
        }
        other => other,
    })
}

pub(super) fn cannot_edit(locked: &LockedFile, key: &str) -> SettingsError {
    SettingsError::Edit { path: locked.path.clone(), key: shorten(key) }
}

fn set_in(text: &str, key: &str, value: &Value) -> Option<String> {
    put_in(text, key, input(value))
}

/// Puts a value where a dotted name leads, in the place of what is there.
pub(super) fn put_in(text: &str, key: &str, value: CstInputValue) -> Option<String> {
    let root = CstRootNode::parse(text, &options()).ok()?;
    let object = root.object_value()?;
    match find(&object, key) {
        Some(property) => property.set_value(value),
        None => insert(&object, key, value),
    }
    Some(root.to_string())
}

fn unset_in(text: &str, key: &str) -> Option<String> {
    let root = CstRootNode::parse(text, &options()).ok()?;
    let object = root.object_value()?;
    // Each turn takes one property out, so this ends.
    while let Some(property) = find(&object, key) {
        remove(property);
    }
    Some(root.to_string())
}

/// The property of a dotted name, written nested, dotted, or half and half.
fn find(object: &CstObject, key: &str) -> Option<CstObjectProp> {
    object.properties().into_iter().find_map(|property| {
        let name = property.decoded_name()?;
        match key.strip_prefix(name.as_str())? {
            "" => Some(property),
            rest => find(&property.object_value()?, rest.strip_prefix('.')?),
        }
    })
}

/// Adds a property in the deepest object that is there for it.
fn insert(object: &CstObject, key: &str, value: CstInputValue) {
    let inner = object.properties().into_iter().find_map(|property| {
        let rest = key.strip_prefix(property.decoded_name()?.as_str())?.strip_prefix('.')?;
        Some((property.object_value()?, rest))
    });
    if let Some((inner, rest)) = inner {
        return insert(&inner, rest, value);
    }
    let (first, rest) = key.split_once('.').map_or((key, None), |(first, rest)| (first, Some(rest)));
    object.append(first, nested(rest, value));
}

fn nested(key: Option<&str>, value: CstInputValue) -> CstInputValue {
    let Some(key) = key else { return value };
    let (first, rest) = key.split_once('.').map_or((key, None), |(first, rest)| (first, Some(rest)));
    CstInputValue::Object(vec![(first.to_owned(), nested(rest, value))])
}

/// Removes a property, and the groups that it leaves empty of everything, comments too.
fn remove(property: CstObjectProp) {
    let group = property.parent().and_then(|parent| parent.as_object());
    property.remove();
    let Some(group) = group else { return };
    let in_use = group.children().iter().any(|child| child.is_comment() || child.as_object_prop().is_some());
    if in_use {
        return;
    }
    if let Some(CstContainerNode::ObjectProp(owner)) = group.parent() {
        remove(owner);
    }
}

fn input(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(value) => CstInputValue::Bool(*value),
        Value::Number(_) => CstInputValue::Number(value.to_string()),
        Value::Text(text) => CstInputValue::String(text.clone().into_owned()),
        Value::List(hosts) => CstInputValue::Array(hosts.iter().map(|host| CstInputValue::String(host.to_string())).collect()),
        Value::Secrets(_) | Value::Prices(_) | Value::Rules(_) => written(&value.to_json()),
    }
}

/// A value as it is put into a text.
pub(crate) fn written(json: &serde_json::Value) -> CstInputValue {
    use serde_json::Value as Json;
    match json {
        Json::Null => CstInputValue::Null,
        Json::Bool(value) => CstInputValue::Bool(*value),
        Json::Number(number) => CstInputValue::Number(number.to_string()),
        Json::String(text) => CstInputValue::String(text.clone()),
        Json::Array(items) => CstInputValue::Array(items.iter().map(written).collect()),
        Json::Object(fields) => CstInputValue::Object(fields.iter().map(|(name, value)| (name.clone(), written(value))).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Settings;
    use super::*;
    use serde_json::json;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn places(root: &Path) -> Places {
        let at = |name: &str| root.join(name);
        Places { home: at("home"), state: at("state"), config: at("config"), runtime: at("run"), machine: at("machine") }
    }

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    fn names(directory: &Path) -> Vec<String> {
        let mut names: Vec<_> = directory.read_dir().unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_new_file_is_private_and_loads() {
        let root = tempfile::tempdir().unwrap();
        let places = places(root.path());
        let path = places.user_settings();
        assert_eq!(config_set(&places, Target::User, "sandbox.limits.pids", "7").unwrap(), Outcome::Changed(path.clone()));
        assert_eq!((mode(&places.config), mode(&path)), (0o700, 0o600));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\n  \"sandbox\": {\n    \"limits\": {\n      \"pids\": 7\n    }\n  }\n}\n");
        assert_eq!(config_set(&places, Target::User, "sandbox.limits.pids", "7").unwrap(), Outcome::Unchanged(path));
        assert_eq!(Settings::load(&places, None).unwrap().get("sandbox.limits.pids").unwrap().value, json!(7));
        assert_eq!(names(&places.config), ["settings.json", "settings.lock"], "no temporary file stays");
    }

    #[test]
    fn every_default_can_be_written_and_taken_out() {
        let root = tempfile::tempdir().unwrap();
        let places = places(root.path());
        for key in table::KEYS {
            let json = key.default.to_json();
            let text = json.as_str().map_or_else(|| json.to_string(), str::to_owned);
            config_set(&places, Target::User, key.name, &text).unwrap();
            let row = Settings::load(&places, None).unwrap().get(key.name).unwrap();
            assert_eq!((row.value, row.source), (json, "user"), "{}", key.name);
        }
        for key in table::KEYS {
            assert!(matches!(config_unset(&places, Target::User, key.name), Ok(Outcome::Changed(_))), "{}", key.name);
        }
        assert_eq!(Settings::load(&places, None).unwrap(), Settings::defaults());
    }

    #[test]
    fn comments_and_layout_stay() {
        let text = "// top\n{\n\t\"sandbox\": {\n\t\t// which wall\n\t\t\"backend\": \"jail\", /* why */\n\t\t\"limits\": { \"pids\": 5 } // few\n\t},\n\t\"daemon.autostart\": true\n}\n// end\n";
        for (key, value, from, to) in [
            ("sandbox.backend", "docker", "\"jail\"", "\"docker\""),
            ("sandbox.limits.pids", "6", "\"pids\": 5", "\"pids\": 6"),
            ("daemon.autostart", "false", "true", "false"),
            ("receipts.durability", "always", "true\n}", "true,\n\t\"receipts\": {\n\t\t\"durability\": \"always\"\n\t}\n}"),
            ("sandbox.image", "i", "5 } // few\n", "5 }, // few\n\t\t\"image\": \"i\"\n"),
        ] {
            let value = Value::from_text(table::find(key).unwrap(), value).unwrap();
            assert_eq!(set_in(text, key, &value).unwrap(), text.replace(from, to), "{key}");
        }
        let unset = unset_in(text, "sandbox.backend").unwrap();
        for part in ["// top", "\"limits\": { \"pids\": 5 } // few", "// end"] {
            assert!(unset.contains(part), "{part} in {unset}");
        }
        assert!(!unset.contains("jail"), "{unset}");
    }

    #[test]
    fn taking_out_leaves_no_empty_groups_but_keeps_comments() {
        for (text, left) in [
            ("{\"sandbox\":{\"limits\":{\"pids\":5}}}", "{}"),
            ("{\"sandbox.limits\":{\"pids\":5}}", "{}"),
            ("{\"sandbox.limits.pids\":5}", "{}"),
            ("{\"sandbox\":{\"limits\":{\"pids\":5}}, \"sandbox.limits.pids\":5}", "{}"),
            ("{\"sandbox\":{\"enabled\":true,\"limits\":{\"pids\":5}}}", "{\"sandbox\":{\"enabled\":true}}"),
            ("{\"sandbox\":{\"limits\":{\n// few\n\n\"pids\":5}}}", "{\"sandbox\":{\"limits\":{// few}}}"),
        ] {
            let found = unset_in(text, "sandbox.limits.pids").unwrap();
            assert_eq!(found.replace([' ', '\n'], ""), left.replace(' ', ""), "{text}");
        }
    }

    #[test]
    fn what_would_not_load_is_not_written() {
        let root = tempfile::tempdir().unwrap();
        let places = places(root.path());
        let path = places.user_settings();
        for (key, text) in [
            ("sandbox.bakend", "jail"),
            ("sandbox", "1"),
            ("sandbox.backend", "jali"),
            ("sandbox.limits.memory", "0"),
            ("sandbox.limits.memory", "2G"),
            ("sandbox.allowedHosts", "https://a.com"),
        ] {
            assert!(config_set(&places, Target::User, key, text).is_err(), "{key} {text}");
            assert!(!places.config.exists(), "{key}: nothing is made before the value is checked");
        }
        std::fs::create_dir(&places.config).unwrap();
        for broken in ["{", "[]", "{\"sandbox\": 5}", "{\"unknown\": 5}", "{\"daemon\":{},\"daemon\":{}}", "{\"a\": \"\u{0}\"}"] {
            std::fs::write(&path, broken).unwrap();
            assert!(config_set(&places, Target::User, "sandbox.enabled", "true").is_err(), "{broken}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), broken);
        }
        std::fs::write(&path, "").unwrap();
        config_set(&places, Target::User, "sandbox.enabled", "false").unwrap();
        assert!(!Settings::load(&places, None).unwrap().enabled().value);
    }

    #[test]
    fn mistakes_can_be_taken_out() {
        let root = tempfile::tempdir().unwrap();
        let places = places(root.path());
        let path = places.user_settings();
        let unset = |key: &str| config_unset(&places, Target::User, key).map_err(|error| error.to_string());
        assert_eq!(unset("sandbox.enabled"), Ok(Outcome::Unchanged(path.clone())));
        assert!(unset("nonsense").unwrap_err().contains("unknown setting `nonsense`"));
        assert!(!places.config.exists(), "nothing is made to take nothing out");
        std::fs::create_dir(&places.config).unwrap();
        std::fs::write(&path, "{\"nonsense\": {\"a\": 1}, \"sandbox\": {\"enabled\": 7, \"old\": 1}}").unwrap();
        for key in ["nonsense", "sandbox.enabled", "sandbox.old"] {
            assert_eq!(unset(key), Ok(Outcome::Changed(path.clone())), "{key}");
        }
        assert_eq!(Settings::load(&places, None).unwrap(), Settings::defaults());
        assert_eq!(unset("sandbox.enabled"), Ok(Outcome::Unchanged(path)));
        assert!(unset("nonsense").is_err() && unset("sandbox").is_err());
    }

    #[test]
    fn a_project_is_only_tightened() {
        let root = tempfile::tempdir().unwrap();
        let places = places(root.path());
        let project = root.path().join("project");
        std::fs::create_dir(&project).unwrap();
        let set = |key: &str, text: &str| config_set(&places, Target::Project(&project), key, text);
        config_set(&places, Target::User, "sandbox.limits.pids", "100").unwrap();
        let message = set("sandbox.limits.pids", "101").unwrap_err().to_string();
        assert!(message.starts_with("a project may only tighten `sandbox.limits.pids`: 101 is looser than 100 (user "), "{message}");
        assert!(set("sandbox.workspaceMode", "rw").is_err());
        assert!(matches!(set("sandbox.backend", "jail"), Err(SettingsError::NotForProjects { at: Place::CommandLine, .. })));
        set("sandbox.limits.pids", "99").unwrap();
        set("sandbox.workspaceMode", "ro").unwrap();
        let settings = Settings::load(&places, Some(&project)).unwrap();
        assert_eq!(settings.get("sandbox.limits.pids").unwrap().value, json!(99));
        assert_eq!(names(&project.join(".stockade")), ["settings.json"], "no lock lies in a repository");
        let elsewhere = tempfile::tempdir().unwrap();
        let linked = root.path().join("linked");
        std::fs::create_dir(&linked).unwrap();
        symlink(elsewhere.path(), linked.join(".stockade")).unwrap();
        assert!(config_set(&places, Target::Project(&linked), "sandbox.enabled", "false").is_err());
        assert_eq!(names(elsewhere.path()), Vec::<String>::new());
    }

    #[test]
    fn the_machines_file_is_readable_by_all() {
        let root = tempfile::tempdir().unwrap();
        let places = places(root.path());
        config_set(&places, Target::Machine, "sandbox.backend", "jail").unwrap();
        assert_eq!((mode(&places.machine), mode(&places.machine_settings())), (0o755, 0o644));
        assert_eq!(Settings::load(&places, None).unwrap().get("sandbox.backend").unwrap().source, "machine");
    }

    #[test]
    fn links_permissions_and_marks_stay() {
        let root = tempfile::tempdir().unwrap();
        let places = places(root.path());
        let real = root.path().join("dotfiles.json");
        std::fs::create_dir(&places.config).unwrap();
        std::fs::write(&real, "\u{feff}{}\r\n").unwrap();
        std::fs::set_permissions(&real, std::fs::Permissions::from_mode(0o640)).unwrap();
        symlink(&real, places.user_settings()).unwrap();
        config_set(&places, Target::User, "sandbox.enabled", "false").unwrap();
        assert!(std::fs::symlink_metadata(places.user_settings()).unwrap().is_symlink());
        assert_eq!(mode(&real), 0o640);
        assert!(std::fs::read_to_string(&real).unwrap().starts_with("\u{feff}{\r\n"));
        assert!(!Settings::load(&places, None).unwrap().enabled().value);
    }

    #[test]
    fn concurrent_edits_lose_nothing() {
        let root = tempfile::tempdir().unwrap();
        let places = places(root.path());
        let project = root.path().join("project");
        std::fs::create_dir(&project).unwrap();
        let keys: Vec<_> = table::KEYS.iter().filter(|key| key.project == ProjectRule::Lower && key.default != Value::Null).collect();
        assert!(keys.len() > 5);
        std::thread::scope(|scope| {
            for key in &keys {
                let (places, project) = (&places, &project);
                scope.spawn(move || {
                    for round in 2..8 {
                        config_set(places, Target::User, key.name, &round.to_string()).unwrap();
                        config_set(places, Target::Project(project), key.name, "1").unwrap();
                    }
                });
            }
        });
        for (settings, value) in [(Settings::load(&places, None), 7), (Settings::load(&places, Some(&project)), 1)] {
            let settings = settings.unwrap();
            for key in &keys {
                assert_eq!(settings.get(key.name).unwrap().value, json!(value), "{}", key.name);
            }
        }
    }
}
