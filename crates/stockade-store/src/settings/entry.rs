//! One entry of the setting `secrets`, written into the person's file beside those that are there, whose order, layout and comments stay.

use super::document::Document;
use super::edit::{Outcome, Target, cannot_edit, change, put_in, written};
use super::error::SettingsError;
use super::file::LockedFile;
use super::secrets::{SecretSetting, entry_to_json};
use super::value::Value;
use crate::places::Places;

/// The setting that entries are in.
const SECRETS: &str = "secrets";

/// What becomes of an entry of the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// It stays, and nothing is written.
    Keep,
    /// The new one takes its place.
    Replace,
}

/// Writes one entry into the person's file. One that says the very same is left as it is.
pub fn secret_set(places: &Places, setting: &SecretSetting, existing: Existing) -> Result<Outcome, SettingsError> {
    let key = format!("{SECRETS}.{}", setting.name);
    let locked = LockedFile::lock(places, Target::User)?;
    change(places, Target::User, &locked, |text| {
        let there = entries(&locked, text)?.into_iter().find(|entry| entry.name == setting.name);
        match there {
            Some(entry) if entry == *setting => return Ok(text.to_owned()),
            Some(_) if existing == Existing::Keep => {
                return Err(SettingsError::EntryThere { path: locked.path.clone(), key });
            }
            Some(_) | None => {}
        }
        let edited = put_in(text, &key, written(&entry_to_json(setting))).ok_or_else(|| cannot_edit(&locked, &key))?;
        let says_so = entries(&locked, &edited)?.contains(setting);
        if says_so { Ok(edited) } else { Err(cannot_edit(&locked, &key)) }
    })
}

/// The secrets that a text describes.
fn entries(locked: &LockedFile, text: &str) -> Result<Vec<SecretSetting>, SettingsError> {
    let document = Document::parse(locked.layer, &locked.path, text.as_bytes())?;
    let secrets = document.entries.into_iter().find_map(|entry| match entry.value {
        Value::Secrets(secrets) if entry.key.name == SECRETS => Some(secrets),
        _ => None,
    });
    Ok(secrets.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use stockade_core::host::HostPattern;

    use super::super::{SecretSource, Settings};
    use super::*;

    fn places(root: &Path) -> Places {
        let at = |name: &str| root.join(name);
        Places { home: at("home"), state: at("state"), config: at("config"), runtime: at("run"), machine: at("machine") }
    }

    fn setting(host: &str) -> SecretSetting {
        let hosts = vec![HostPattern::parse(host).unwrap()];
        SecretSetting { hosts, ..SecretSetting::new("TOKEN".parse().unwrap(), SecretSource::Store) }
    }

    #[test]
    fn an_entry_is_put_beside_the_others_and_everything_else_stays() {
        let root = tempfile::tempdir().unwrap();
        let places = places(root.path());
        let path = places.user_settings();
        std::fs::create_dir(&places.config).unwrap();
        for (before, after) in [
            ("", "{\n  \"secrets\": {\n    \"TOKEN\": {\n      \"hosts\": [\"a.example\"],\n      \"source\": \"store\"\n    }\n  }\n}\n"),
            (
                "{\n  // mine\n  \"secrets\": {\n    // first\n    \"Z\": { \"source\": \"env\" } // last\n  },\n  \"daemon.autostart\": true\n}\n",
                "{\n  // mine\n  \"secrets\": {\n    // first\n    \"Z\": { \"source\": \"env\" }, // last\n    \"TOKEN\": {\n      \"hosts\": [\"a.example\"],\n      \"source\": \"store\"\n    }\n  },\n  \"daemon.autostart\": true\n}\n",
            ),
        ] {
            std::fs::write(&path, before).unwrap();
            assert_eq!(secret_set(&places, &setting("a.example"), Existing::Keep).unwrap(), Outcome::Changed(path.clone()));
            let found = std::fs::read_to_string(&path).unwrap();
            let plain = |text: &str| text.split_whitespace().collect::<String>();
            // The order of an entry's own fields is the writer's.
            let swapped = after.replace(
                "\"hosts\": [\"a.example\"],\n      \"source\": \"store\"",
                "\"source\": \"store\",\n      \"hosts\": [\"a.example\"]",
            );
            assert!([plain(after), plain(&swapped)].contains(&plain(&found)), "{found}");
            assert!(Settings::load(&places, None).unwrap().secrets().value.contains(&setting("a.example")));
        }
        let before = std::fs::read_to_string(&path).unwrap();
        assert_eq!(secret_set(&places, &setting("a.example"), Existing::Keep).unwrap(), Outcome::Unchanged(path.clone()));
        assert!(matches!(secret_set(&places, &setting("b.example"), Existing::Keep), Err(SettingsError::EntryThere { .. })));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), before);
        secret_set(&places, &setting("b.example"), Existing::Replace).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), before.replace("a.example", "b.example"));
    }

    #[test]
    fn a_file_that_does_not_load_stays_as_it_is() {
        let root = tempfile::tempdir().unwrap();
        let places = places(root.path());
        std::fs::create_dir(&places.config).unwrap();
        for broken in ["{", "[]", "{\"secrets\": 5}", "{\"unknown\": 5}", "{\"secrets\": {\"A\": {\"source\": \"cellar\"}}}"] {
            std::fs::write(places.user_settings(), broken).unwrap();
            assert!(secret_set(&places, &setting("a.example"), Existing::Replace).is_err(), "{broken}");
            assert_eq!(std::fs::read_to_string(places.user_settings()).unwrap(), broken);
        }
    }
}
