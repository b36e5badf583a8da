//! Settings files: three layers of JSON with comments, and changes made to them.
//!
//! Promises: any bytes are settings or an error that is safe to show; a project never loosens anything; the machine has the last word; a
//! value that was set is there when the file is read again and every other value is as it was, and taking it out leaves the default.

use std::fs;
use std::path::Path;

use serde_json::Value;
use stockade_core::host::{HostPattern, intersect};
use stockade_store::places::Places;
use stockade_store::settings::key::ProjectRule;
use stockade_store::settings::{Outcome, Row, Settings, Target, config_set, config_unset, table};

use crate::input::Input;
use crate::scratch::Scratch;
use crate::shown::assert_honest;

/// Between the parts of an input; no byte of any UTF-8 text.
const BETWEEN: u8 = 0xff;

/// The person's file, the project's, the machine's, then the number of a key and a value to set it to.
pub fn body(data: &[u8]) {
    let mut input = Input(data);
    let [user, project, machine] = [input.until(BETWEEN), input.until(BETWEEN), input.until(BETWEEN)];
    let scratch = Scratch::new();
    let base = scratch.path();
    let at = |name: &str| base.join(name);
    let places = Places { home: at("home"), state: at("state"), config: at("config"), runtime: at("run"), machine: at("machine") };
    let root = at("project");
    for (directory, name, text) in
        [(&places.config, "settings.json", user), (&root, ".stockade/settings.json", project), (&places.machine, "settings.json", machine)]
    {
        let path = directory.join(name);
        fs::create_dir_all(path.parent().expect("a file in a directory")).expect("room for a directory");
        if !text.is_empty() {
            fs::write(&path, text).expect("room for a file");
        }
    }
    let alone = load(&places, None);
    let whole = load(&places, Some(&root));
    if let (Some(alone), Some(whole)) = (&alone, &whole) {
        check_project(&alone.list(), &whole.list());
        check_machine(machine, &places, &whole.list());
    }
    let key = table::KEYS[usize::from(input.byte()) % table::KEYS.len()].name;
    if let Ok(text) = std::str::from_utf8(input.0) {
        // The machine's file would hide what was set in the person's.
        let _ = fs::remove_file(places.machine.join("settings.json"));
        set_and_take_out(&places, key, text);
    }
}

fn load(places: &Places, project: Option<&Path>) -> Option<Settings> {
    Settings::load(places, project).map_err(|error| assert_honest(&error.to_string(), &[])).ok()
}

/// Every value with the project is as tight as without it.
fn check_project(without: &[Row], with: &[Row]) {
    for (without, with) in without.iter().zip(with) {
        if with.source != "project" {
            assert_eq!(with, without);
            continue;
        }
        let rule = table::find(with.key).expect("a known key").project;
        let tighter = match (rule, &without.value, &with.value) {
            (ProjectRule::TurnOff, before, after) => before == after || *after == Value::Bool(false),
            (ProjectRule::Lower, Value::Null, _) => true,
            (ProjectRule::Lower, before, after) => after.as_f64() <= before.as_f64() && !after.is_null(),
            (ProjectRule::TowardReadOnly, before, after) => {
                let order = ["rw", "overlay", "ro"];
                let place = |value: &Value| order.iter().position(|word| value == word).expect("a mode");
                place(after) >= place(before)
            }
            (ProjectRule::Intersect, before, after) => {
                let (before, after) = (hosts(before), hosts(after));
                after.iter().all(|host| intersect(std::slice::from_ref(host), &before) == std::slice::from_ref(host))
            }
            // Every rule holds, so more of them are tighter.
            (ProjectRule::AddRules, Value::Array(before), Value::Array(after)) => after.starts_with(before),
            (ProjectRule::AddRules | ProjectRule::Never, ..) => false,
        };
        assert!(tighter, "a project turned {} into {} for {}", without.value, with.value, with.key);
    }
}

fn hosts(list: &Value) -> Vec<HostPattern> {
    let texts = list.as_array().expect("a list of hosts").iter();
    texts.map(|text| HostPattern::parse(text.as_str().expect("a host")).expect("a checked host")).collect()
}

/// What the machine's file says holds, whatever else is said.
fn check_machine(machine: &[u8], places: &Places, whole: &[Row]) {
    if machine.is_empty() {
        return;
    }
    let nobody = Places { config: places.home.join("nothing"), ..places.clone() };
    let Some(machine) = load(&nobody, None) else { return };
    for (row, machine) in whole.iter().zip(machine.list()) {
        if machine.source == "machine" {
            assert_eq!((&row.value, row.source), (&machine.value, "machine"));
        }
    }
}

fn set_and_take_out(places: &Places, key: &str, text: &str) {
    let before = load(places, None);
    match config_set(places, Target::User, key, text) {
        Ok(outcome) => {
            let after = load(places, None).expect("what was written loads");
            let row = after.get(key).expect("a known key");
            assert_eq!(row.source, "user", "{key} was set");
            if let Some(before) = before {
                for (before, after) in before.list().iter().zip(after.list()) {
                    assert!(
                        after.key == key || (&before.value, before.source) == (&after.value, after.source),
                        "{before:?} became {after:?}"
                    );
                }
            }
            // Said again it is said already.
            assert!(matches!(config_set(places, Target::User, key, text), Ok(Outcome::Unchanged(_))), "{outcome:?}");
            assert_eq!(load(places, None).as_ref(), Some(&after));
            config_unset(places, Target::User, key).expect("what was set can be taken out");
            let gone = load(places, None).expect("what was written loads");
            assert_eq!(gone.get(key).expect("a known key").source, "default");
        }
        Err(error) => {
            assert_honest(&error.to_string(), &[]);
            assert_eq!(load(places, None), before, "an error changed something");
        }
    }
}

/// A file of every kind of value, with comments, and mistakes.
pub fn seeds() -> Vec<Vec<u8>> {
    let full = "// mine\n{\n  \"sandbox\": { /* here */ \"enabled\": true, \"backend\": \"jail\", \"workspaceMode\": \"overlay\", \"allowedHosts\": [\"*.a.com\", \"b.com:8443\"],\n    \"timeoutSeconds\": 30, \"limits\": {\"pids\": 7, \"memory\": 512, \"cpus\": 1.5} },\n  \"daemon.autostart\": true // yes\n}\n";
    let project = "{\"sandbox\": {\"workspaceMode\": \"ro\", \"allowedHosts\": [\"x.a.com\"], \"limits\": {\"pids\": 3, \"memory\": 100}, \"timeoutSeconds\": 5}}";
    let machine = "{\"sandbox.limits.pids\": 2, \"sandbox.allowedHosts\": []}";
    let mut seeds = Vec::new();
    for (user, project, machine, key, text) in [
        (full, project, machine, 0, "true"),
        (full, "", "", 3, "a.com, b.com"),
        ("", project, "", 7, "12"),
        ("{\"sandbox\":{\"limits\":{\n// few\n\n\"pids\":5}}}", "{\"sandbox.enabled\": false}", "{}", 9, "null"),
        ("\u{feff}{}", "{\"sandbox\":{}, \"sandbox\":{}}", "[]", 5, "[\"a.com\"]"),
        ("{\"sandbox\":{\"bakend\":1}}", "{\"\u{1b}[2J\":1}", "{\"a\":[[[[[[]]]]]]}", 1, "jail"),
        ("{\"a\\u0000\": 1e999}", "{\"sandbox\":{\"image\":\"\\ud800\"}}", "{,}", 2, "\"x\""),
    ] {
        let between = [BETWEEN];
        seeds.push(
            [user.as_bytes(), &between, project.as_bytes(), &between, machine.as_bytes(), &between, &[key], text.as_bytes()].concat(),
        );
    }
    for key in 0..table::KEYS.len() as u8 {
        let text = table::KEYS[usize::from(key)].default.to_string();
        seeds.push([full.as_bytes(), &[BETWEEN, BETWEEN, BETWEEN, key], text.trim_matches('"').as_bytes()].concat());
    }
    seeds
}
