//! `stockade install`: what it changes, and the way back.

use serde_json::Value;

use crate::wall::Ground;
use crate::wall::ground::{as_both, finish};

const SETTINGS: &str = "{\n  // mine\n  \"model\": \"opus\",\n}\n";

fn install(ground: &Ground, words: &[&str]) -> Value {
    let outcome = finish(&mut ground.stockade([&["--json", "install"], words].concat()));
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    serde_json::from_str(&outcome.stdout).expect("JSON")
}

#[test]
fn claudes_settings_are_changed_and_changed_back() {
    as_both(|ground| {
        let file = ground.home.join(".claude/settings.json");
        ground.plant(&file, SETTINGS, 0o600);
        let read = || std::fs::read_to_string(&file).expect("the settings");
        assert_eq!(install(ground, &["claude", "--dry-run"])["changed"], true);
        assert_eq!(read(), SETTINGS);
        assert!(!ground.home.join(".config/stockade/policy").exists(), "and no policy was written");
        let told = install(ground, &["claude"]);
        assert!(told["changed"] == true && told["policy"].is_string(), "{told}");
        let changed = read();
        let command = format!("'{}' hook claude", ground.binary.display());
        assert!(changed.contains("// mine") && changed.contains(&command) && changed.contains("\"onFailure\": \"block\""), "{changed}");
        assert_eq!(install(ground, &["claude"])["changed"], false);
        assert_eq!(read(), changed);
        let told = install(ground, &["claude", "--uninstall"]);
        assert!(told["exact"] == true && told["changed"] == true, "{told}");
        assert_eq!(read(), SETTINGS);
        assert_eq!(install(ground, &["claude", "--uninstall"])["changed"], false);
    });
}

#[test]
fn what_was_not_there_is_gone_again() {
    as_both(|ground| {
        for (agent, file) in [("claude", ".claude/settings.json"), ("codex", ".codex/config.toml")] {
            let file = ground.home.join(file);
            install(ground, &[agent]);
            assert!(file.exists());
            install(ground, &[agent, "--uninstall"]);
            assert!(!file.exists(), "{agent}");
        }
    });
}

#[test]
fn settings_that_are_not_understood_stay_as_they_are() {
    as_both(|ground| {
        let file = ground.home.join(".claude/settings.json");
        ground.plant(&file, "{ \"hooks\": [] }", 0o600);
        let outcome = finish(&mut ground.stockade(["install", "claude"]));
        assert!(outcome.code == Some(125) && outcome.stderr.contains("hooks"), "{outcome:?}");
        assert_eq!(std::fs::read_to_string(&file).expect("the settings"), "{ \"hooks\": [] }");
    });
}
