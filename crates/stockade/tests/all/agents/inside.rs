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
    let mut command = stage.command(&["--env", "ENABLE_TOOL_SEARCH=false"], &argv);
    let looked = std::thread::scope(|scope| {
        let run = scope.spawn(|| finish_within(&mut command, Duration::from_mins(2)));
        eventually_long(|| stage.results().len() == 2);
        let marker = format!("CLAUDE_CONFIG_DIR={}", stage.home.join(".claude").display());
        let mut looked = Vec::new();
        eventually("the agent and what it started run", || {
            looked = processes_with(&marker);
            looked.len() >= 2
        });
        for pid in &looked {
            assert!(!memory_holds(*pid, KEY.as_bytes()), "the key is in the memory of process {pid}");
        }
        let outcome = run.join().expect("joined");
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        looked
    });
    assert!(looked.len() >= 2);
    let results = stage.results();
    assert!(results[1].contains("host=stockade secret=False key=sk-ant-api03-") && !results[1].contains(KEY), "{results:?}");
    stage.key_was_outside();
}

/// A real agent takes its time to begin.
fn eventually_long(mut holds: impl FnMut() -> bool) {
    let end = std::time::Instant::now() + Duration::from_mins(1);
    while !holds() {
        assert!(std::time::Instant::now() < end, "the agent never used its tool");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Processes of this machine with a variable in their environment.
fn processes_with(variable: &str) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").expect("/proc").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()));
    let has = |pid: &u32| {
        std::fs::read(format!("/proc/{pid}/environ"))
            .is_ok_and(|text| text.split(|byte| *byte == 0).any(|word| word == variable.as_bytes()))
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
