//! The real Claude Code from close by: in a terminal, with a server of tools that it starts itself, and its memory seen from outside.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

use serde_json::json;

use super::{KEY, Stage};
use crate::wall::Who;
use crate::wall::ground::{eventually, finish_within};
use crate::wall::terminal::stockade_on_terminal_with;

/// A server of tools over standard streams: one tool, that says who it is.
const TOOLS: &str = r#"
import json, os, sys
for line in sys.stdin:
    request = json.loads(line)
    method, number = request.get("method"), request.get("id")
    if number is None: continue
    if method == "initialize": result = {"protocolVersion": request["params"]["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "t", "version": "1"}}
    elif method == "tools/list": result = {"tools": [{"name": "where", "description": "says where it runs", "inputSchema": {"type": "object", "properties": {}}}]}
    elif method == "tools/call":
        key = os.environ.get("ANTHROPIC_API_KEY", "none")
        result = {"content": [{"type": "text", "text": f"host={os.uname().nodename} secret={os.path.exists(os.environ['HOME'] + '/.ssh')} key={key}"}]}
    else: result = {}
    print(json.dumps({"jsonrpc": "2.0", "id": number, "result": result}), flush=True)
"#;

#[test]
fn claude_code_in_a_terminal_asks_nothing_before_it_begins() {
    let stage = Stage::new(Who::Ordinary, |_| json!([{"say": "scriptsaysthis"}]));
    stage.run(&[], &["true"]);
    let owned = stage.variables();
    let variables: Vec<(&str, &str)> = owned.iter().map(|(name, value)| (*name, value.as_str())).collect();
    // Words are drawn one by one, so it is looked for single ones; keys are pressed when what came before is there.
    let act = "until(b'shortcuts', 90)\nos.write(fd, b'greetings')\nuntil(b'greetings', 30)\nos.write(fd, b'\\r')\nuntil(b'scriptsaysthis', 60)\n\
               for _ in range(6):\n    os.write(fd, b'\\x03')\n    time.sleep(0.5)\n";
    let shown = stockade_on_terminal_with(&stage.ground, &variables, &["agent", "run", "--", "claude"], act);
    assert!(shown.contains("Claude Code ended with code 0") && shown.contains("code 0 restored True"), "{shown}");
    stage.key_was_outside();
}

#[test]
fn servers_of_tools_run_inside_and_the_key_is_in_nobodys_memory() {
    let stage = Stage::new(Who::Root, |_| {
        json!([
            {"call": "WaitForMcpServers", "with": {}},
            {"call": "mcp__t__where", "with": {}},
            {"call": "Bash", "with": {"command": "touch began; sleep 6"}},
            {"say": "done"},
        ])
    });
    stage.plant(&stage.home.join(".ssh/id"), KEY, 0o600);
    stage.file("tools.py", TOOLS);
    stage.file("tools.json", &json!({"mcpServers": {"t": {"command": "python3", "args": [stage.work.join("tools.py")]}}}).to_string());
    let argv = [
        "claude",
        "-p",
        "where are you?",
        "--dangerously-skip-permissions",
        "--mcp-config",
        "tools.json",
        "--strict-mcp-config",
        "--output-format",
        "json",
    ];
    // With a budget somebody watches beside it, so that whoever runs it has several threads.
    let flags = ["--name", "looked-at", "--budget-tokens", "1000000", "--env", "ENABLE_TOOL_SEARCH=false"];
    look_into(&stage, &flags, &argv, "MODEL_KEY", 2, ("CLAUDE_CONFIG_DIR=", 2));
    let results = stage.results();
    assert!(results[1].contains("host=stockade secret=False key=sk-ant-api03-") && !results[1].contains(KEY), "{results:?}");
    stage.key_was_outside();
}

#[test]
fn the_key_is_not_in_codexs_memory_either() {
    let stage = Stage::new(Who::Ordinary, |_| {
        let call = |command: &str| json!({"call": "exec_command", "with": {"cmd": command, "yield_time_ms": 30_000}});
        json!([call("echo key=$MODEL_KEY"), call("sleep 4"), {"say": "done"}])
    });
    stage.repository();
    stage.settings_of_codex();
    look_into(&stage, &[], &["codex", "exec", "--json", "wait"], "ANTHROPIC_API_KEY", 1, ("CODEX_HOME=", 1));
    stage.key_was_outside();
}

/// Runs an agent, and looks for the key in the memory of its processes and of whoever runs it, once it has had so many results. `marker` is how a
/// variable begins that only programs inside have, and how many of those there must be.
fn look_into(stage: &Stage, flags: &[&str], argv: &[&str], other: &str, results: usize, (marker, count): (&str, usize)) {
    let mut command = stage.command(flags, argv);
    // The key is where one variable says, and nobody was told about the other.
    command.env_remove(other);
    std::thread::scope(|scope| {
        let run = scope.spawn(|| finish_within(&mut command, Duration::from_mins(2)));
        eventually_long(|| stage.results().len() >= results);
        let variable = format!("{marker}{}", stage.home.display());
        let mut inside = Vec::new();
        eventually("the agent and what it started run", || {
            inside = processes_with(&variable);
            inside.len() >= count
        });
        // Whoever runs it is known by its state.
        let state = format!("XDG_STATE_HOME={}", stage.state.display());
        let owners: Vec<u32> = processes_with(&state).into_iter().filter(|pid| is_owner(*pid)).collect();
        assert!(!owners.is_empty(), "nobody runs it");
        for pid in inside.iter().chain(&owners) {
            assert!(!memory_holds(*pid, KEY.as_bytes()), "the key is in the memory of process {pid}: {}", line_of(*pid));
        }
        let outcome = run.join().expect("joined");
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
    });
}

fn line_of(pid: u32) -> String {
    String::from_utf8_lossy(&std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default()).replace('\0', " ")
}

/// Whether a process is the one that was started to run an agent.
fn is_owner(pid: u32) -> bool {
    line_of(pid).contains("stockade agent run ")
}

/// A real agent takes its time to begin.
fn eventually_long(mut holds: impl FnMut() -> bool) {
    let end = std::time::Instant::now() + Duration::from_mins(1);
    while !holds() {
        assert!(std::time::Instant::now() < end, "the agent never used its tool");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Processes of this machine with a variable in their environment that begins so.
fn processes_with(variable: &str) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").expect("/proc").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()));
    let has = |pid: &u32| {
        std::fs::read(format!("/proc/{pid}/environ"))
            .is_ok_and(|text| text.split(|byte| *byte == 0).any(|word| word.starts_with(variable.as_bytes())))
    };
    pids.filter(has).collect()
}

/// Whether some text is anywhere in what a process can read and write.
fn memory_holds(pid: u32, text: &[u8]) -> bool {
    let (Ok(maps), Ok(memory)) = (File::open(format!("/proc/{pid}/maps")), File::open(format!("/proc/{pid}/mem"))) else { return false };
    let first = text[0];
    let finder = |bytes: &[u8]| bytes.iter().enumerate().any(|(at, byte)| *byte == first && bytes[at..].starts_with(text));
    let mut buffer = vec![0; 1 << 20];
    for line in BufReader::new(maps).lines().map_while(Result::ok) {
        let mut words = line.split(' ');
        let (Some(range), Some(rights)) = (words.next(), words.next()) else { continue };
        let Some((start, end)) = range.split_once('-') else { continue };
        let (Ok(start), Ok(end)) = (u64::from_str_radix(start, 16), u64::from_str_radix(end, 16)) else { continue };
        // Address space that is only reserved holds nothing.
        if !rights.starts_with("rw") || end - start > 1 << 30 {
            continue;
        }
        let mut place = start;
        while place < end {
            let wanted = usize::try_from((end - place).min(buffer.len() as u64)).expect("small");
            let Ok(count) = memory.read_at(&mut buffer[..wanted], place) else { break };
            if count == 0 || finder(&buffer[..count]) {
                return count > 0;
            }
            // Pieces overlap, so that nothing is missed between them.
            place += if count == wanted && count > text.len() { (count - text.len()) as u64 } else { count as u64 };
            if end - place <= text.len() as u64 {
                break;
            }
        }
    }
    false
}
