//! The answer to Claude Code: a reason where something may not happen, another command where a script may run.
//!
//! Claude Code's own rules still count: about a file or an address that may be used, nothing is said, so that they are asked as well. Its
//! file tools work outside the wall, on the person's own files; so they are held to what a program behind the wall would see.

use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use serde_json::{Value, json};
use stockade_core::result::Decision;
use stockade_core::spec::MountMode;
use stockade_ledger::Weight;
use stockade_policy::{Request, Verdict};
use stockade_sandbox::backends::jail::view::{self, View};
use stockade_sandbox::environment::TOOLCHAIN_ROOTS;
use stockade_sandbox::workspace::locate;
use stockade_sandbox::workspace::protected::is_protected;
use stockade_store::places::Places;

use super::question::{Address, Deed as Wish, Question, real};
use super::ticket::Ticket;
use crate::Context;
use crate::admission::{self, Rules, Wanted};
use crate::assemble::{Additions, Admitted, assemble_with};
use crate::cli::SandboxFlags;
use crate::engine::asker::{AgentName, Asker};
use crate::engine::{self, Asks, Call, Subject};
use crate::failure::Failure;
use crate::receipts::{Book, Capture, Deed};

/// What Claude Code is called in rules.
const CLIENT: &str = "claude-code";
/// Said of files that are neither in the workspace nor shown behind the wall.
const NOT_THERE: &str = "behind the wall there is no such file";

/// Reads the question and prints the answer.
pub(super) fn answer(context: &Context) -> Result<(), Failure> {
    let question = Question::read()?;
    let agent = agent(question.name());
    let context = &context.in_directory(question.cwd.clone());
    let answer = match question.deed()? {
        Wish::Script(script) => about_script(&question, script, agent, context)?,
        Wish::Read(path) => about_file(Use::Read, &path, &question, &agent, context)?,
        Wish::Search(path) => about_file(Use::Search, &path, &question, &agent, context)?,
        Wish::Write(path) => about_file(Use::Write, &path, &question, &agent, context)?,
        Wish::Fetch(address) => about_address(&address, &agent, context)?,
    };
    match answer {
        // Nothing is said: Claude Code asks its own rules, and its person.
        None => Ok(()),
        Some(answer) => context.printer.json(&answer),
    }
}

/// An agent of Claude Code.
pub(super) fn agent(name: &str) -> AgentName {
    AgentName::new(CLIENT, name)
}

/// A sandbox for what an agent asks for. Its changes are the person's at once, because its file tools work on the same files.
pub(super) fn surroundings(agent: AgentName) -> Additions {
    Additions { who: "Claude Code".to_owned(), asker: Asker::Agent(agent), mode: Some(MountMode::Rw), ..Additions::default() }
}

fn about_script(question: &Question, script: String, agent: AgentName, context: &Context) -> Result<Option<Value>, Failure> {
    let mut assembled = assemble_with(&SandboxFlags::default(), &surroundings(agent), context)?;
    let words = OsString::from(&script);
    let refused = match assembled.admit(Wanted::Shell(&words), context)? {
        Admitted::Yes => None,
        // The client that asks is no person.
        Admitted::Asked(question) => Some(admission::unasked(question.told)),
        Admitted::No(told) => Some(told),
    };
    if let Some(told) = refused {
        let answer = denied(&told);
        let call = Call { assembled, subject: Subject::Script(&words), refused: Some(told), capture: Capture::None, asks: Asks::Here };
        let came = engine::invoke(call, context, |_, _| Err(Failure::new("hook", "what was refused does not run")))?;
        came.book.close().tidy();
        return Ok(Some(answer));
    }
    let reason = format!("permitted by the rule {}; it runs behind the wall", assembled.told.rule);
    let ticket = Ticket { script, cwd: real(&question.cwd), name: question.name().to_owned(), session: question.session_id.clone() };
    let name = ticket.issue(context.places()?)?;
    let program = std::env::current_exe().map_err(|error| Failure::new("hook", format!("where this program lies: {error}")))?;
    let program = program.to_str().ok_or_else(|| Failure::new("hook", "the path of this program is not text"))?;
    let command = format!("'{}' hook run {name}", program.replace('\'', r"'\''"));
    Ok(Some(json!({ "hookSpecificOutput": {
        "hookEventName": "PreToolUse",
        "permissionDecision": "allow",
        "permissionDecisionReason": reason,
        "updatedInput": question.with_command(command),
    } })))
}

/// What is done to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    Read,
    /// Read whatever lies beneath it.
    Search,
    Write,
}

fn about_file(usage: Use, path: &Path, question: &Question, agent: &AgentName, context: &Context) -> Result<Option<Value>, Failure> {
    let places = context.places()?;
    let workspace = workspace(context)?;
    let rules = Rules::load_for(Asker::Agent(agent.clone()), places, &workspace)?;
    let text = workspace.to_string_lossy().into_owned();
    // Where a path leads is what counts for the wall: a home directory may be known by two names. For the rules both count.
    let led = real(path);
    let around = Around::look(&workspace, question, context)?;
    // What the kernel tells each process is another thing for Claude Code than for this one, so where it leads here says nothing.
    let outside = if path.starts_with("/proc") { Some(NOT_THERE) } else { around.outside(usage, &led) }.map(wall);
    for path in [path, led.as_path()] {
        let shown = path.to_string_lossy();
        let request = match usage {
            Use::Read | Use::Search => Request::Read { path: &shown, workspace: &text },
            Use::Write => Request::Write { path: &shown, workspace: &text },
        };
        let refused = match &outside {
            Some(told) => Some(told.clone()),
            None => refusal(&rules, &request)?,
        };
        if let Some(told) = refused {
            let verb = if usage == Use::Write { "hook.write" } else { "hook.read" };
            record(verb, &shown, &told, agent, &rules, context)?;
            return Ok(Some(denied(&told)));
        }
    }
    Ok(None)
}

fn about_address(address: &Address, agent: &AgentName, context: &Context) -> Result<Option<Value>, Failure> {
    let rules = Rules::load_for(Asker::Agent(agent.clone()), context.places()?, &workspace(context)?)?;
    let Address { host, port, is_tls, path } = address;
    let request = Request::Connect { host, port: *port, tls: *is_tls, method: "GET", path, secret: None };
    let Some(told) = refusal(&rules, &request)? else { return Ok(None) };
    record("hook.fetch", &format!("{host}:{port}{path}"), &told, agent, &rules, context)?;
    Ok(Some(denied(&told)))
}

/// What the rules say against it. What they would have a person approve is refused: the client that asks is no person.
fn refusal(rules: &Rules, request: &Request<'_>) -> Result<Option<Decision>, Failure> {
    if let Some(told) = rules.refusal_of_agents() {
        return Ok(Some(told));
    }
    let decision = rules.decide(request)?;
    Ok((decision.verdict != Verdict::Allow).then(|| admission::told(&decision)))
}

/// What lies around a question, by names that no link stands for.
struct Around {
    workspace: PathBuf,
    /// Where Claude Code keeps its own files.
    own: PathBuf,
    /// Where it keeps those that last as long as a session does, and the session.
    scratch: (PathBuf, String),
    places: Places,
    /// What a program behind the wall would see of this machine.
    view: View,
}

impl Around {
    fn look(workspace: &Path, question: &Question, context: &Context) -> Result<Self, Failure> {
        let places = context.places()?;
        let workspace = real(workspace);
        let variable = |name: &str| context.environment.variable(name);
        let user = rustix::process::geteuid().as_raw();
        let path_dirs: Vec<PathBuf> = variable("PATH").map(|path| std::env::split_paths(&path).collect()).unwrap_or_default();
        let roots: Vec<OsString> = TOOLCHAIN_ROOTS.iter().filter_map(|name| variable(name)).collect();
        let view = View::gather(&view::Asker {
            home: &places.home,
            path_dirs: &path_dirs,
            roots: &roots,
            workspace: &workspace,
            ids: (user, rustix::process::getegid().as_raw()),
            named: true,
        });
        let temporary = variable("CLAUDE_CODE_TMPDIR").map(PathBuf::from).filter(|path| path.is_absolute());
        let scratch = real(&temporary.unwrap_or_else(|| "/tmp".into()).join(format!("claude-{user}")));
        let own = real(&own_directory(places, context));
        Ok(Self { workspace, own, scratch: (scratch, question.session_id.clone()), places: without_links(places), view })
    }

    /// Why a file is out of reach whatever the rules say: behind the wall there would be no such file, or writing it would run code
    /// outside. What nothing here names is out of reach.
    fn outside(&self, usage: Use, path: &Path) -> Option<&'static str> {
        let Places { home, state, config, runtime, machine } = &self.places;
        let is_beneath = |place: &Path| usage == Use::Search && place.starts_with(path);
        if [state, config, runtime, machine].into_iter().any(|place| path.starts_with(place) || is_beneath(place)) {
            return Some("these are Stockade's own files");
        }
        if let Ok(relative) = path.strip_prefix(&self.workspace) {
            let is_guarded = usage == Use::Write && is_protected(relative).is_some();
            return is_guarded.then_some("this file would run code outside the wall: change it yourself");
        }
        let login = self.own.join(".credentials.json");
        let is_shown = if usage == Use::Search { self.view.reveals_all(path) } else { self.view.reveals(path) };
        match (usage, path.strip_prefix(&self.own)) {
            (Use::Read | Use::Search, Ok(_)) if path != login && !is_beneath(&login) => None,
            (Use::Write, Ok(inner)) if inner.starts_with("plans") => None,
            (Use::Write, _) => Some("only files of the workspace may be changed"),
            (Use::Read | Use::Search, Err(_)) if is_shown || self.is_of_session(path) => None,
            (Use::Read | Use::Search, _) if path.starts_with(home) => Some("of the home directory only the workspace may be read"),
            (Use::Read | Use::Search, _) => Some(NOT_THERE),
        }
    }

    /// Whether Claude Code itself wrote it in this session: what its tools gave out is in `claude-UID/DIRECTORY/SESSION`, and it reads
    /// that back. Files of other sessions are other people's work, or other work.
    fn is_of_session(&self, path: &Path) -> bool {
        let (directory, session) = &self.scratch;
        let Ok(inner) = path.strip_prefix(directory) else { return false };
        inner.components().nth(1) == Some(Component::Normal(session.as_ref())) && inner.components().count() > 2
    }
}

fn workspace(context: &Context) -> Result<PathBuf, Failure> {
    let home = &context.places()?.home;
    let located =
        locate::locate(context.environment.current_dir()?, None, home).map_err(|error| Failure::from_error("workspace", &error))?;
    Ok(located.path.as_path().to_owned())
}

/// The same places by the names that no link stands for.
fn without_links(places: &Places) -> Places {
    let Places { home, state, config, runtime, machine } = places;
    Places { home: real(home), state: real(state), config: real(config), runtime: real(runtime), machine: real(machine) }
}

/// Where Claude Code keeps its own files.
fn own_directory(places: &Places, context: &Context) -> PathBuf {
    let named = context.environment.variable("CLAUDE_CONFIG_DIR").map(PathBuf::from);
    named.filter(|path| path.is_absolute()).unwrap_or_else(|| places.home.join(".claude"))
}

fn wall(reason: &str) -> Decision {
    Decision {
        verdict: "deny".into(),
        rule: "behind-the-wall".into(),
        reason: Some(reason.to_owned()),
        source: None,
        suggest: None,
        approval_id: None,
    }
}

/// What was refused leaves a receipt.
fn record(verb: &'static str, what: &str, told: &Decision, agent: &AgentName, rules: &Rules, context: &Context) -> Result<(), Failure> {
    let book = Book::of(context)?;
    let words = [what];
    let deed = Deed::verb(&book, verb, &words, Weight::Read);
    deed.of_agent(agent.whole(), agent.client().to_owned());
    deed.deny(told, rules)?;
    drop(deed);
    book.close().tidy();
    Ok(())
}

/// A refusal with its reason, and the narrowest change that would allow it.
fn denied(told: &Decision) -> Value {
    let reason = told.reason.as_deref().unwrap_or(if told.verdict == "ask" { "a person has to approve it" } else { "no rule permits it" });
    let source = told.source.as_ref().map_or(String::new(), |source| format!(", {source}"));
    let mut text = format!("denied by policy: {reason} ({}{source})", told.rule);
    if told.rule == "no-policy" {
        text.push_str("\nA person writes one with `stockade init`.");
    } else if let Some(rule) = &told.suggest {
        text.push_str("\nThe narrowest rule that would allow it, which a person can add with `stockade policy allow`:\n");
        text.push_str(rule);
    }
    json!({ "hookSpecificOutput": {
        "hookEventName": "PreToolUse",
        "permissionDecision": "deny",
        "permissionDecisionReason": text,
    } })
}

#[cfg(test)]
mod tests {
    use stockade_sandbox::backends::jail::view::SystemEntry;

    use super::*;

    #[test]
    fn file_tools_see_what_the_wall_would_show() {
        let at = |name: &str| PathBuf::from(name);
        let around = Around {
            workspace: at("/h/w"),
            own: at("/h/.claude"),
            scratch: (at("/tmp/claude-7"), "s-1".into()),
            places: Places { home: at("/h"), state: at("/h/s"), config: at("/h/c"), runtime: at("/run/u"), machine: at("/etc/stockade") },
            view: View {
                system: vec![SystemEntry::Directory(at("/usr")), SystemEntry::Directory(at("/etc"))],
                masks: vec![at("/etc/shadow"), at("/etc/ssl/private"), at("/h/.cargo/credentials")],
                toolchains: vec![at("/h/.cargo")],
                caches: vec![at("/h/.cache/pip")],
                ..View::default()
            },
        };
        let check = |usage, open: &[&str], closed: &[&str]| {
            for path in open {
                assert_eq!(around.outside(usage, Path::new(path)), None, "{usage:?} {path}");
            }
            for path in closed {
                assert!(around.outside(usage, Path::new(path)).is_some(), "{usage:?} {path}");
            }
        };
        check(
            Use::Read,
            &[
                "/h/w/a",
                "/h/w/.git/config",
                "/usr/include/x.h",
                "/etc/hosts",
                "/h/.claude/projects/x.jsonl",
                "/h/.cargo/registry/x",
                "/h/.cache/pip/x",
                "/tmp/claude-7/-h-w/s-1/tasks/b.output",
            ],
            &[
                "/h/.ssh/id",
                "/h/other",
                "/h/s/tickets/x",
                "/run/u/x",
                "/h/.claude/.credentials.json",
                "/h/.cargo/credentials",
                "/etc/shadow",
                "/etc/ssl/private/x",
                "/etc/stockade/x",
                "/root/.ssh/id_rsa",
                "/home/other/x",
                "/h2/x",
                "/proc/1/environ",
                "/run/user/1/bus",
                "/var/lib/x",
                "/",
                "/tmp/x",
                "/tmp/claude-7/-h-w/s-2/tasks/b.output",
                "/tmp/claude-7/s-1/x",
                "/tmp/claude-8/-h-w/s-1/tasks/b.output",
            ],
        );
        check(
            Use::Search,
            &["/h/w", "/h/w/a", "/usr/include", "/h/.claude/projects", "/h/.cache/pip"],
            &["/", "/h", "/etc", "/etc/ssl", "/h/.claude", "/h/.claude/.credentials.json", "/h/.cargo", "/h/s", "/tmp", "/root"],
        );
        check(
            Use::Write,
            &["/h/w/a", "/h/.claude/plans/p.md"],
            &[
                "/h/w/.git/hooks/x",
                "/h/w/.claude/settings.json",
                "/h/.claude/settings.json",
                "/h/x",
                "/h/.cargo/bin/x",
                "/tmp/x",
                "/tmp/claude-7/-h-w/s-1/tasks/b.output",
                "/etc/hosts",
                "/h/c/policy/x.cedar",
            ],
        );
    }

    #[test]
    fn a_refusal_says_what_would_be_allowed() {
        let told = Decision {
            verdict: "deny".into(),
            rule: "default-deny".into(),
            reason: None,
            source: None,
            suggest: Some("permit (x);".into()),
            approval_id: None,
        };
        let text = denied(&told)["hookSpecificOutput"]["permissionDecisionReason"].as_str().unwrap().to_owned();
        assert!(text.contains("no rule permits it") && text.ends_with("permit (x);"), "{text}");
    }
}
