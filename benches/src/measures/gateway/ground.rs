//! Where agents are served: rules, a pack of three capabilities, and a daemon.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use super::client::Client;
use crate::ground::{Corner, Ground, PATH};
use crate::peers::words;
use crate::spawn;

/// Tools of the pack.
pub(super) const CALL: &str = "bench_true";
pub(super) const LARGE: &str = "bench_node";
pub(super) const DENIED: &str = "bench_never";
/// How long a daemon may take to be there.
const PATIENCE: Duration = Duration::from_secs(10);

/// Agents may call what the pack has but one, which they are offered and refused by its input; and list files, as the hook is asked.
const RULES: &str = r#"@id("call") permit (principal is Stockade::Agent, action in Stockade::Action::"invoke", resource)
  when { resource in Stockade::Pack::"bench" };
@id("never") forbid (principal, action == Stockade::Action::"bench.never", resource) when { context.args.word == "no" };
@id("look") permit (principal is Stockade::Agent, action == Stockade::Action::"exec", resource == Stockade::Program::"ls");
@id("people") permit (principal is Stockade::Human, action, resource);
"#;

/// A corner where rules and a pack are.
pub(super) struct Served<'a> {
    ground: &'a Ground,
    /// The corner.
    pub(super) corner: Corner,
    /// Where node is, if it is.
    pub(super) node: Option<String>,
}

/// A daemon. Dropping ends it.
pub(super) struct Daemon(Child);

impl<'a> Served<'a> {
    /// Makes the corner.
    pub(super) fn make(ground: &'a Ground) -> Result<Self, String> {
        let corner = ground.corner("gateway").map_err(|failure| failure.to_string())?;
        let write = |path: &Path, text: &str| {
            let made = path.parent().map_or(Ok(()), std::fs::create_dir_all);
            made.and_then(|()| std::fs::write(path, text)).map_err(|error| format!("{}: {error}", path.display()))
        };
        let config = corner.config().join("stockade");
        write(&config.join("policy/rules.cedar"), RULES)?;
        write(&config.join("settings.json"), "{\"receipts\": {\"durability\": \"process\"}}")?;
        let node = PATH.split(':').map(|directory| format!("{directory}/node")).find(|path| Path::new(path).exists());
        let pack = corner.base.join("pack");
        write(
            &pack.join("pack.toml"),
            "name = \"bench\"\nversion = \"1.0.0\"\ndescription = \"What the harness calls.\"\npublisher = \"bench\"\n",
        )?;
        write(&pack.join("README.md"), "What the harness calls.\n")?;
        let head = |name: &str, program: &str| {
            format!("name = \"bench.{name}\"\ndescription = \"Runs it.\"\neffect = \"read\"\nprogram = \"{program}\"\n")
        };
        let example = |argv: &str| format!("\n[[examples]]\nargv = [{argv}]\n");
        write(&pack.join("capabilities/bench.true.toml"), &(head("true", "true") + "args = []\n" + &example("\"true\"")))?;
        let node_args = "args = [\"--version\"]\n";
        write(&pack.join("capabilities/bench.node.toml"), &(head("node", "node") + node_args + &example("\"node\", \"--version\"")))?;
        let never =
            "args = [\"--{word}\"]\n\n[input.properties]\nword = { type = \"string\", default = \"no\", description = \"A word\" }\n";
        let asked = "\n[[examples]]\ninput = { word = \"yes\" }\nargv = [\"true\", \"--yes\"]\n";
        write(&pack.join("capabilities/bench.never.toml"), &(head("never", "true") + never + asked))?;
        let served = Self { ground, corner, node };
        let mut install = served.stockade("pack install --unsigned --yes");
        install.push(pack.into());
        spawn::output(&mut served.corner.command(&install))?;
        Ok(served)
    }

    /// A client of a server of its own.
    pub(super) fn client(&self) -> Result<Client, String> {
        Client::start(&mut self.corner.command(&self.stockade("mcp")))
    }

    /// The program that is measured, with these words.
    pub(super) fn stockade(&self, text: &str) -> Vec<OsString> {
        std::iter::once(self.ground.stockade.clone().into_os_string()).chain(words(text)).collect()
    }

    /// A daemon that serves.
    pub(super) fn daemon(&self) -> Result<Daemon, String> {
        let mut argv = self.stockade("serve --root");
        argv.push(self.corner.base.clone().into());
        let child = self.corner.command(&argv).spawn().map_err(|error| error.to_string())?;
        let daemon = Daemon(child);
        let begin = Instant::now();
        let socket = self.corner.runtime().join("stockade/daemon.sock");
        while !socket.exists() {
            if begin.elapsed() > PATIENCE {
                return Err("the daemon did not begin to serve".to_owned());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(daemon)
    }

    /// Asks the hook about a command, as Claude Code does.
    pub(super) fn hook(&self) -> Result<Duration, String> {
        let question = json!({
            "session_id": "s-1", "transcript_path": "/t", "cwd": self.corner.work(), "permission_mode": "default",
            "hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": { "command": "ls -l" }, "tool_use_id": "t-1",
        });
        let mut command = self.corner.command(&self.stockade("hook claude"));
        let begin = Instant::now();
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(|error| error.to_string())?;
        if let Some(mut input) = child.stdin.take() {
            input.write_all(question.to_string().as_bytes()).map_err(|error| error.to_string())?;
        }
        let output = child.wait_with_output().map_err(|error| error.to_string())?;
        let time = begin.elapsed();
        let said = String::from_utf8_lossy(&output.stdout);
        if output.status.success() && said.contains("updatedInput") { Ok(time) } else { Err(format!("{}: {said}", output.status)) }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let told = i32::try_from(self.0.id()).ok().and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = told {
            // One that is gone already cannot be told.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = self.0.wait();
    }
}
