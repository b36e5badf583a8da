//! Foreign rules, and what the result says to real commands.

use super::*;
use crate::shell::{ByName, classify};
use crate::{Checks, Floor, Layer, Policies, PolicyFile, Principal, Request, Trust, Verdict};

fn compile(imported: &Imported) -> Policies {
    let text = imported.rules.join("\n\n");
    let file = PolicyFile { layer: Layer::User, trust: Trust::Trusted, name: "imported".into(), text: text.clone() };
    Policies::compile(&[file], Checks::All).unwrap_or_else(|faults| panic!("{faults}\n{text}"))
}

fn verdict(imported: &Imported, script: &str) -> Verdict {
    let script = classify(script, &ByName { directory: "/w" });
    compile(imported).judge(&Principal::agent("claude/main"), &script, Floor::Deny).decision.verdict
}

fn from_claude(allow: &[&str], ask: &[&str], deny: &[&str]) -> Imported {
    let list = |wish: Wish, rules: &[&str]| rules.iter().map(|rule| (wish, (*rule).to_owned())).collect::<Vec<_>>();
    claude(&[list(Wish::Allow, allow), list(Wish::Ask, ask), list(Wish::Deny, deny)].concat(), Some("/home/me"))
}

fn left(imported: &Imported) -> Vec<&str> {
    imported.notes.iter().filter(|note| note.fate == Fate::Left).map(|note| note.rule.as_str()).collect()
}

/// One rule that allows, what it lets through, and what it does not.
#[track_caller]
fn check(rule: &str, through: &[&str], stopped: &[&str]) {
    let imported = from_claude(&[rule], &[], &[]);
    assert_eq!(left(&imported), Vec::<&str>::new(), "{rule}: {:?}", imported.notes);
    for script in through {
        assert_eq!(verdict(&imported, script), Verdict::Allow, "{rule}: {script}\n{}", imported.rules.join("\n"));
    }
    for script in stopped {
        assert_eq!(verdict(&imported, script), Verdict::Deny, "{rule}: {script}\n{}", imported.rules.join("\n"));
    }
}

#[test]
fn claude_prefixes_are_subcommands_flags_and_words() {
    check("Bash(git diff:*)", &["git diff", "git diff --stat HEAD~1 f"], &["git push", "git", "ls", "git $x", "git diff; ls"]);
    check("Bash(git diff *)", &["git diff", "git diff x"], &["git push"]);
    check("Bash(git log*)", &["git log", "git log -5"], &["git push"]);
    check("Bash(ls:*)", &["ls", "ls -la /x", "ls *.md"], &["cat x"]);
    check(
        "Bash(npm run test:*)",
        &["npm run test"],
        &["npm run test --watch", "npm run deploy", "npm run $x", "npm run test deploy", "npm test"],
    );
    check("Bash(npm test)", &["npm test"], &["npm test x", "npm test -w", "npm", "npm test $x"]);
    check("Bash(rm -f build.log)", &["rm -f build.log"], &["rm -rf build.log", "rm build.log", "rm -f build.log x", "rm -f *"]);
    check("Bash(git commit -m:*)", &["git commit -m 'x y'"], &["git commit", "git commit --amend"]);
    check("Bash(docker compose up:*)", &["docker compose up"], &["docker compose --file=x up", "docker compose down"]);
    check("Bash(python -m pytest:*)", &["python -m pytest"], &["python '-cimport os' -m pytest", "python -m pytest $x", "python -m pip"]);
    check("Bash(rm -f:*)", &["rm -f a b"], &["rm -rf a", "rm a", "rm -f $x"]);
    check("Bash", &["anything at all", "rm -rf x | sh"], &["$x"]);
    check("Bash(*)", &["ls"], &[]);
    check("Bash(/opt/tool run:*)", &["/opt/tool run"], &["tool run", "/opt/tool walk"]);
    check("Bash(echo 'a b')", &["echo 'a b'", "echo a\\ b"], &["echo a b"]);
    check("Bash(true)", &["true"], &["ls"]);
}

#[test]
fn claude_denials_hold_wherever_they_could_match() {
    let imported = from_claude(&["Bash"], &[], &["Bash(git push:*)", "Bash(rm -rf:*)", "Bash(curl * evil.example)"]);
    assert_eq!(left(&imported), Vec::<&str>::new());
    for script in
        ["git push", "git push -f o", "git $x", "rm -rf x", "rm -fr x", "rm -r -f x", "rm -r $x", "ls; rm -rf x", "curl -v evil.example"]
    {
        assert_eq!(verdict(&imported, script), Verdict::Deny, "{script}");
    }
    for script in ["git log", "git log $x", "rm -r x", "curl good.example", "ls"] {
        assert_eq!(verdict(&imported, script), Verdict::Allow, "{script}");
    }
}

#[test]
fn claude_questions_come_before_permits() {
    let imported = from_claude(&["Bash(git:*)", "Bash(ls:*)"], &["Bash(git push:*)", "Bash(git * main)", "Bash(make)"], &[]);
    assert_eq!(left(&imported), ["Bash(git * main)"], "{:?}", imported.notes);
    let expected = [
        ("git status", Verdict::Allow),
        ("ls", Verdict::Allow),
        ("git push", Verdict::Ask),
        ("make", Verdict::Ask),
        ("make all", Verdict::Deny),
        // It cannot be asked about, so it is not allowed either.
        ("git merge main", Verdict::Deny),
        ("git $x", Verdict::Deny),
    ];
    for (script, verdict_of) in expected {
        assert_eq!(verdict(&imported, script), verdict_of, "{script}\n{}", imported.rules.join("\n"));
    }
    let begins = from_claude(&["Bash(git push:*)"], &["Bash(git p*)"], &[]);
    assert_ne!(verdict(&begins, "git push"), Verdict::Allow);
    let always = from_claude(&["Bash(ls:*)"], &["Bash"], &[]);
    assert_eq!((verdict(&always, "ls"), left(&always)), (Verdict::Ask, vec!["Bash(ls:*)"]));
}

#[test]
fn claude_files_and_hosts() {
    let imported = from_claude(
        &["Read", "Edit(//srv/work/**)", "WebFetch(domain:docs.rs)", "WebFetch(domain:*.example.org)"],
        &[],
        &["Read(~/.ssh/**)", "Read(//etc/shadow)", "WebFetch(domain:bad.example.org)"],
    );
    assert_eq!(left(&imported), Vec::<&str>::new());
    let (policies, agent) = (compile(&imported), Principal::agent("claude/main"));
    let decide = |request: &Request<'_>| policies.decide(&agent, request, Floor::Deny).verdict;
    let read = |path| decide(&Request::Read { path, workspace: "/w" });
    let write = |path| decide(&Request::Write { path, workspace: "/w" });
    let connect = |host, port| decide(&Request::Connect { host, port, tls: port == 443, method: "", path: "", secret: None });
    assert_eq!(
        [read("/w/x"), read("/home/me/.ssh"), read("/home/me/.ssh/a/b"), read("/etc/shadow")],
        [Verdict::Allow, Verdict::Deny, Verdict::Deny, Verdict::Deny]
    );
    assert_eq!(
        [write("/srv/work/a"), write("/srv/work"), write("/srv/other"), write("/srv/workshop")],
        [Verdict::Allow, Verdict::Allow, Verdict::Deny, Verdict::Deny]
    );
    assert_eq!([connect("docs.rs", 443), connect("docs.rs", 80), connect("other.rs", 443)], [Verdict::Allow, Verdict::Deny, Verdict::Deny]);
    assert_eq!(
        [connect("a.b.example.org", 443), connect("example.org", 443), connect("bad.example.org", 443)],
        [Verdict::Allow, Verdict::Deny, Verdict::Deny]
    );
}

#[test]
fn what_cannot_be_said_is_left_with_a_reason() {
    let rules = [
        "Bash(* install)",
        "Bash(npm * --save)",
        "Bash(./gradlew:*)",
        "Bash(cd x && make)",
        "Bash(FOO=1 make:*)",
        "Bash($HOME/x:*)",
        "Bash(timeout 5 ls:*)",
        "Bash(ls",
        "Bash(if)",
        "Read(./src/**)",
        "Read(//a/*.key)",
        "Edit(/docs/**)",
        "WebFetch",
        "WebFetch(domain:*)",
        "WebFetch(url:x)",
        "mcp__github__create",
        "Task",
        "",
    ];
    let imported = from_claude(&rules, &[], &[]);
    let (mut found, mut expected) = (left(&imported), rules.to_vec());
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!((imported.rules.len(), found), (0, expected));
    assert!(imported.notes.iter().all(|note| !note.why.is_empty()));
}

#[test]
fn foreign_text_never_becomes_cedar() {
    let hostile = [
        "Bash(echo \"); permit(principal, action, resource); //\")",
        "Bash(echo x\npermit (principal, action, resource);)",
        "Bash(echo '\\\"};')",
        "Bash(a\u{2028}b:*)",
        "Read(//a\"); permit (principal, action, resource); //)",
        "WebFetch(domain:x\"y)",
    ];
    for wish in [Wish::Allow, Wish::Ask, Wish::Deny] {
        let rules: Vec<(Wish, String)> = hostile.iter().map(|rule| (wish, (*rule).to_owned())).collect();
        let imported = claude(&rules, None);
        assert_eq!(compile(&imported).rules().len(), imported.rules.len(), "{}", imported.rules.join("\n"));
    }
}

const CODEX: &str = r#"
# Comments, (brackets and "quotes" in them.
prefix_rule(
    pattern = ["git", ["push", "fetch"]],   # alternatives
    decision = "prompt",
    justification = "look at the branch",
    match = [["git", "push", "origin"], "git fetch"],
)
prefix_rule(pattern = ["ls"])
prefix_rule(pattern=['rm', '-rf'], decision="forbidden", justification='''use
trash''')
prefix_rule(["make", "test"], decision = "allow")
prefix_rule(pattern = ["git"])
prefix_rule(pattern = ["curl"], decision = "maybe")
prefix_rule(pattern = [NAME], decision = "allow")
prefix_rule(pattern = ["./run"], decision = DECISION)
host_executable(name = "git", paths = ["/usr/bin/git"])
network_rule(host = "api.example.org", protocol = "https", decision = "allow")
network_rule(host = "api.example.org", protocol = "socks5_tcp", decision = "allow")
x = 1
def f():
    prefix_rule(pattern = ["evil"])

load("other.rules", "y")
prefix_rule(pattern = ["cargo"], decision = "allow"
"#;

#[test]
fn codex_rules_are_read() {
    let imported = codex(CODEX);
    let expected = [
        ("ls -l", Verdict::Allow),
        ("git status", Verdict::Allow),
        ("git push origin", Verdict::Ask),
        ("git fetch", Verdict::Ask),
        ("rm -fr x", Verdict::Deny),
        ("make test", Verdict::Allow),
        ("make all", Verdict::Deny),
        ("curl x", Verdict::Deny),
        ("evil", Verdict::Deny),
        ("cargo build", Verdict::Deny),
    ];
    for (script, verdict_of) in expected {
        assert_eq!(verdict(&imported, script), verdict_of, "{script}\n{}", imported.rules.join("\n"));
    }
    let lines: Vec<&str> = left(&imported).iter().filter_map(|rule| rule.split(':').next()).collect();
    assert_eq!(
        lines,
        ["line 14", "line 15", "line 16", "line 17", "line 19", "line 20", "line 21", "line 24", "line 25"],
        "{:?}",
        imported.notes
    );
    let script = classify("git push", &ByName { directory: "/w" });
    let decision = compile(&imported).judge(&Principal::agent("codex/main"), &script, Floor::Deny).decision;
    assert_eq!(decision.reason.as_deref(), Some("look at the branch"));
}

#[test]
fn any_text_of_codex_is_answered() {
    let deep = format!("prefix_rule(pattern = {}", "[".repeat(100_000));
    let wide = format!("prefix_rule(pattern = [{}])", "['a', 'b'],".repeat(1000));
    for text in
        [deep.as_str(), &wide, "prefix_rule(", "\"", "'''", "prefix_rule(pattern=[\"\\", "a(b)(c)", "(((", "f(x=\"\\q\")", "\u{feff}f()"]
    {
        assert_eq!(codex(text).rules, Vec::<String>::new(), "{}", text.chars().take(40).collect::<String>());
    }
}
