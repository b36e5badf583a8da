//! Agents' settings, changed and changed back.

use std::path::Path;

use toml_edit::DocumentMut;

use super::*;

const PROGRAM: &str = "/opt/it's here/stockade";

fn places(root: &Path) -> Places {
    let at = |name: &str| root.join(name);
    Places { home: at("home"), state: at("state"), config: at("config"), runtime: at("run"), machine: at("etc") }
}

fn put(agent: Agent, text: &str) -> String {
    agent.put_in(text, PROGRAM, &[]).unwrap()
}

#[test]
fn what_people_wrote_stays() {
    let claude = "{\n  // mine\n  \"model\": \"opus\",\n  \"hooks\": {\n    \"PreToolUse\": [\n      { \"matcher\": \"Bash\", \"hooks\": [{ \"type\": \"command\", \"command\": \"true\" }] } // first\n    ]\n  }\n}\n";
    let changed = put(Agent::Claude, claude);
    for part in ["// mine", "\"model\": \"opus\"", "\"command\": \"true\" }] }", "// first", r"'/opt/it'\\''s here/stockade' hook claude"] {
        assert!(changed.contains(part), "{part}: {changed}");
    }
    assert!(changed.contains("\"onFailure\": \"block\""), "{changed}");
    let codex = "# mine\nmodel = \"o3\" # best\n\n[features]\nweb = true # yes\n\n[mcp_servers.other]\ncommand = \"x\"\n";
    let changed = put(Agent::Codex, codex);
    let said = ["[mcp_servers.stockade]", "args = [\"mcp\"]", "tool_timeout_sec = 600", "default_tools_approval_mode = \"approve\""];
    for line in codex.lines().chain(said).chain(["shell_tool = false"]) {
        assert!(changed.lines().any(|other| other == line), "{line}: {changed}");
    }
    let asking = "[mcp_servers.stockade]\ntool_timeout_sec = 5 # short\ndefault_tools_approval_mode = \"prompt\"\n";
    let changed = put(Agent::Codex, asking);
    assert!(asking.lines().all(|line| changed.lines().any(|other| other == line)), "{changed}");
}

#[test]
fn twice_is_once() {
    for agent in [Agent::Claude, Agent::Codex] {
        let once = put(agent, "");
        assert_eq!(put(agent, &once), once);
        let moved = agent.put_in(&once, "/other/stockade", &[]).unwrap();
        assert!(moved.contains("/other/stockade") && !moved.contains("/opt"), "{moved}");
    }
}

#[test]
fn what_was_put_in_is_taken_out() {
    for (agent, text) in [
        (Agent::Claude, "{\n  \"model\": \"opus\" // mine\n}\n"),
        (Agent::Claude, "{\"hooks\": {\"PreToolUse\": [{\"matcher\": \"Read\", \"hooks\": []}], \"Stop\": []}}"),
        (Agent::Codex, "model = \"x\" # mine\n\n[features]\nweb = true\n"),
    ] {
        let without = agent.take_out(&put(agent, text)).unwrap();
        assert!(!without.contains("stockade") && !without.contains("shell_tool"), "{without}");
        // Only blanks may be others.
        let plain = |text: &str| text.split_whitespace().collect::<String>();
        assert_eq!(plain(&without), plain(text));
        assert_eq!(agent.take_out(&without).unwrap(), without);
    }
}

#[test]
fn what_cannot_be_understood_is_left_alone() {
    for text in ["[]", "{", "{\"hooks\": []}", "{\"hooks\": {\"PreToolUse\": {}}}", "x"] {
        assert!(Agent::Claude.put_in(text, PROGRAM, &[]).is_err(), "{text}");
    }
    for text in ["= 1", "features = 1", "mcp_servers = \"x\"", "[mcp_servers]\nstockade = 1"] {
        assert!(Agent::Codex.put_in(text, PROGRAM, &[]).is_err(), "{text}");
    }
}

#[test]
fn the_very_same_bytes_come_back() {
    for agent in [Agent::Claude, Agent::Codex] {
        let root = tempfile::tempdir().unwrap();
        let places = places(root.path());
        let path = root.path().join("home/settings");
        for original in [None, Some(""), Some(if agent == Agent::Claude { "{ \"a\" :1,}\r\n\r\n" } else { "a   = 1\r\n" })] {
            let _ = std::fs::remove_file(&path);
            if let Some(text) = original {
                std::fs::write(&path, text).unwrap();
            }
            for program in ["/a/stockade", "/b/stockade"] {
                let change = plan_install(agent, &path, Path::new(program), &[]).unwrap();
                install(agent, &places, &change).unwrap();
                assert!(std::fs::read_to_string(&path).unwrap().contains(program));
            }
            let change = plan_uninstall(agent, &places, &path).unwrap();
            assert!(change.is_exact);
            uninstall(agent, &places, &change).unwrap();
            assert_eq!(std::fs::read_to_string(&path).ok().as_deref(), original, "{agent:?}");
        }
    }
}

#[test]
fn what_was_changed_in_between_stays() {
    let root = tempfile::tempdir().unwrap();
    let places = places(root.path());
    let path = root.path().join("settings.json");
    std::fs::write(&path, "{}").unwrap();
    install(Agent::Claude, &places, &plan_install(Agent::Claude, &path, Path::new("/a/stockade"), &[]).unwrap()).unwrap();
    let text = std::fs::read_to_string(&path).unwrap().replacen('{', "{\"mine\": 1,", 1);
    std::fs::write(&path, text).unwrap();
    let change = plan_uninstall(Agent::Claude, &places, &path).unwrap();
    assert!(!change.is_exact);
    uninstall(Agent::Claude, &places, &change).unwrap();
    let left = std::fs::read_to_string(&path).unwrap();
    assert!(left.contains("\"mine\": 1") && !left.contains("stockade"), "{left}");
}

#[test]
fn links_are_written_through_and_permissions_stay() {
    use std::os::unix::fs::PermissionsExt as _;
    let root = tempfile::tempdir().unwrap();
    let places = places(root.path());
    let (real, path) = (root.path().join("dotfiles.json"), root.path().join("settings.json"));
    std::fs::write(&real, "{}").unwrap();
    std::fs::set_permissions(&real, std::fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink(&real, &path).unwrap();
    install(Agent::Claude, &places, &plan_install(Agent::Claude, &path, Path::new("/a/stockade"), &[]).unwrap()).unwrap();
    assert!(path.is_symlink() && std::fs::read_to_string(&real).unwrap().contains("/a/stockade"));
    assert_eq!(std::fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o640);
}

fn variables(set: &[(&str, &str)]) -> Vec<Variable> {
    Variable::all(|name| set.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())).unwrap()
}

#[test]
fn codex_is_told_where_stockade_keeps_its_files() {
    let set = variables(&[("XDG_STATE_HOME", "/s \"q\""), ("XDG_CONFIG_HOME", "relative"), ("XDG_CACHE_HOME", "/x")]);
    let mine = "# mine\n[mcp_servers.stockade] # here\ncommand = \"old\"\n\n[mcp_servers.stockade.env]\nMORE = \"1\" # more\nXDG_RUNTIME_DIR = \"/r\"\n\n[last]\na = 1\n";
    for text in ["", mine, "[mcp_servers.stockade]\nenv = { MORE = \"1\" }\n"] {
        let changed = Agent::Codex.put_in(text, PROGRAM, &set).unwrap();
        let read: DocumentMut = changed.parse().unwrap();
        let env = &read["mcp_servers"]["stockade"]["env"];
        assert_eq!(env["XDG_STATE_HOME"].as_str(), Some("/s \"q\""), "{changed}");
        assert!(env.get("XDG_RUNTIME_DIR").is_none() && env.get("XDG_CONFIG_HOME").is_none(), "{changed}");
        assert_eq!(env.get("MORE").is_some(), !text.is_empty(), "{changed}");
        assert!(text != mine || (changed.contains("# here") && changed.contains("MORE = \"1\" # more")), "{changed}");
        assert_eq!(Agent::Codex.put_in(&changed, PROGRAM, &set).unwrap(), changed);
        let without = Agent::Codex.put_in(&changed, PROGRAM, &[]).unwrap();
        assert!(!without.contains("XDG_") && without.contains("env") != text.is_empty(), "{without}");
        assert!(!Agent::Codex.take_out(&changed).unwrap().contains("XDG_"));
    }
    assert!(Agent::Codex.put_in("[mcp_servers.stockade]\nenv = 1\n", PROGRAM, &set).is_err());
    assert!(!Agent::Claude.put_in("{}", PROGRAM, &set).unwrap().contains("XDG_"), "its hooks get its own variables");
}

#[test]
fn with_variables_the_very_same_bytes_come_back() {
    let root = tempfile::tempdir().unwrap();
    let places = places(root.path());
    let path = root.path().join("config.toml");
    let original = "a   = 1 # mine\r\n[mcp_servers.x]\r\nenv = {}\r\n";
    std::fs::write(&path, original).unwrap();
    for set in [&[("XDG_STATE_HOME", "/s")][..], &[("XDG_CONFIG_HOME", "/c"), ("XDG_RUNTIME_DIR", "/r")], &[]] {
        let change = plan_install(Agent::Codex, &path, Path::new("/a/stockade"), &variables(set)).unwrap();
        install(Agent::Codex, &places, &change).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.matches("XDG_").count(), set.len(), "{text}");
    }
    let change = plan_uninstall(Agent::Codex, &places, &path).unwrap();
    uninstall(Agent::Codex, &places, &change).unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), original);
}
