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
fn a_dry_run_names_every_file_that_would_be_written() {
    as_both(|ground| {
        for (agent, settings) in [("claude", ".claude/settings.json"), ("codex", ".codex/config.toml")] {
            let policy = ground.home.join(".config/stockade/policy/stockade.cedar");
            let _ = std::fs::remove_file(&policy);
            let files = [ground.home.join(settings), policy.clone(), ground.state.join(format!("stockade/installed-{agent}.json"))];
            let told = finish(&mut ground.stockade(["install", agent, "--dry-run"]));
            assert_eq!(told.code, Some(0), "{told:?}");
            for file in &files {
                assert!(told.stderr.contains(&format!(" {}:", file.display())) && !file.exists(), "{}: {told:?}", file.display());
            }
            let told = install(ground, &[agent]);
            assert!(files.iter().all(|file| file.exists()), "{told}");
            assert_eq!(told["policy"], Value::from(policy.to_string_lossy()));
            let told = finish(&mut ground.stockade(["install", agent, "--uninstall", "--dry-run"]));
            assert!(told.stderr.contains("would remove") && !told.stderr.contains("policy"), "{told:?}");
        }
    });
}

#[test]
fn codex_gets_the_variables_that_say_where_things_are() {
    as_both(|ground| {
        let file = ground.home.join(".codex/config.toml");
        let original = "# mine\nmodel = \"o3\"   # best\n";
        ground.plant(&file, original, 0o600);
        let read = || std::fs::read_to_string(&file).expect("the settings");
        let config = ground.home.join("config");
        let outcome = finish(ground.stockade(["install", "codex"]).env("XDG_CONFIG_HOME", &config).env("XDG_RUNTIME_DIR", "relative"));
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        let changed = read();
        assert!(changed.starts_with(original) && !changed.contains("XDG_RUNTIME_DIR"), "{changed}");
        for (name, value) in [("XDG_STATE_HOME", &ground.state), ("XDG_CONFIG_HOME", &config)] {
            assert!(changed.contains(&format!("{name} = \"{}\"", value.display())), "{changed}");
        }
        install(ground, &["codex", "--uninstall"]);
        assert_eq!(read(), original);
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
