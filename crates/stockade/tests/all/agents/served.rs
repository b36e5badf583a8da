//! An agent that runs as it always did, with its shell taken away: what it does, it does through `stockade mcp`.

use serde_json::json;

use super::Stage;
use crate::wall::Who;
use crate::wall::ground::finish;

#[test]
fn claude_code_works_through_the_mcp_server() {
    let stage = Stage::new(Who::Ordinary, |_| {
        json!([
            {"call": "WaitForMcpServers", "with": {}},
            {"call": "mcp__stockade__shell", "with": {"script": "sed -i 's/a - b/a + b/' calc.py && python3 -B -m unittest -q 2>&1"}},
            {"call": "mcp__stockade__read_file", "with": {"path": "calc.py"}},
            {"call": "mcp__stockade__shell", "with": {"script": "git push origin main"}},
            {"say": "The test passes."},
        ])
    });
    stage.repository();
    stage.plant(&stage.home.join(".config/stockade/policy/rules.cedar"), include_str!("../../../presets/developer.cedar"), 0o600);
    let server = stage.stockade(["mcp"]).get_program().to_str().expect("a path").to_owned();
    let servers = json!({"mcpServers": {"stockade": {"command": server, "args": ["mcp"]}}}).to_string();
    let mut command = stage.outside("claude");
    command.args(["-p", "fix the failing test", "--output-format", "json", "--mcp-config", &servers, "--strict-mcp-config"]);
    command.args([
        "--allowedTools",
        "mcp__stockade__shell,mcp__stockade__read_file,WaitForMcpServers",
        "--disallowedTools",
        "Bash,Write,Edit",
    ]);
    command.envs(stage.variables()).env("ENABLE_TOOL_SEARCH", "false").env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1");
    let outcome = finish(&mut command);
    assert_eq!(outcome.code, Some(0), "{outcome:?} {:?}", stage.seen());
    let results = stage.results();
    assert!(results[1].contains("OK") && results[2].contains("return a + b"), "{results:?}");
    assert!(results[3].contains("agents-do-not-push"), "{results:?}");
    assert!(stage.read("calc.py").contains("a - b"), "nothing came before it was applied");
    let listed = finish(&mut stage.stockade(["sandbox", "list", "--json"]));
    let listed: serde_json::Value = serde_json::from_str(&listed.stdout).expect("JSON");
    let id = listed["sandboxes"][0]["sandbox_id"].as_str().unwrap_or_else(|| panic!("{listed}")).to_owned();
    let applied = finish(&mut stage.stockade(["sandbox", "apply", &id]));
    assert_eq!((applied.code, stage.read("calc.py").as_str()), (Some(0), "def add(a, b):\n    return a + b\n"), "{applied:?}");
}
