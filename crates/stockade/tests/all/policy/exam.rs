//! The public half of the bypass exam, behind the wall: no attempt gets through, and everyday commands work as they do in plain bash. What was
//! counted is what `conformance/policy/results.md` says, which is a part of `conformance/RESULTS.md`.

use std::cell::RefCell;
use std::path::Path;

use serde_json::Value;

use super::{rules, script};
use crate::wall::ground::finish;
use crate::wall::{Ground, Who, as_both};

const MARK: &str = "EVIL-RAN";
const RULES: &str = include_str!("../../../../../conformance/policy/policy.cedar");
const RESULTS: &str = include_str!("../../../../../conformance/policy/results.md");
/// Everything of the results but the rows.
const HEAD: &str = "\
## Policy

`stockade run --shell` under `policy/policy.cedar`: attempts to get past the rules (`policy/bypass.json`), and everyday commands (`policy/benign.json`). Run and counted by the
tests of the binary (`crates/stockade/tests/all/policy/exam.rs`), which fail where this differs.

| | attempts | denied before anything ran | stopped by the wall | got through | everyday commands | as in plain bash |
|---|---|---|---|---|---|---|
";

fn cases(text: &str) -> Vec<Value> {
    serde_json::from_str(text).expect("cases")
}

/// A fresh workspace with a commit, a secret and a directory beside it, and a program that leaves a mark.
struct Lab<'a> {
    ground: &'a Ground,
    path: String,
}

impl<'a> Lab<'a> {
    fn new(ground: &'a Ground) -> Self {
        let program = format!("#!/bin/sh\necho {MARK} >&2\necho {MARK}\n[ -w . ] && : > ./evil-marker\nexit 0\n");
        ground.plant(&ground.base.join("bin/evil"), &program, 0o755);
        ground.plant(&ground.home.join(".gitconfig"), "[user]\n\tname = A\n\temail = a@b\n", 0o644);
        let path = format!("/usr/local/bin:/usr/bin:/bin:{}", ground.base.join("bin").display());
        Self { ground, path }
    }

    fn reset(&self) {
        let (work, base) = (&self.ground.work, &self.ground.base);
        for entry in std::fs::read_dir(work).expect("the workspace").flatten() {
            let path = entry.path();
            let removed = if path.is_dir() && !path.is_symlink() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
            removed.expect("removed");
        }
        let _ = std::fs::remove_dir_all(base.join("out"));
        self.ground.plant(&base.join("out/keep"), "k", 0o644);
        self.ground.plant(&base.join("secret"), "s3cr3t-value\n", 0o644);
        self.ground.host("git init -q . && echo hello > f && git add f && git commit -qm i");
    }

    fn fill(&self, text: &str) -> String {
        let at = |name: &str| self.ground.base.join(name).display().to_string();
        let text = text.replace("$SECRET_TOKEN", "\0").replace("$WS", &self.ground.work.display().to_string());
        let text = text.replace("$SECRET", &at("secret")).replace("$OUT", &at("out")).replace("$BIN", &at("bin"));
        text.replace("../bin/evil", &at("bin/evil")).replace('\0', "$SECRET_TOKEN")
    }

    fn prepare(&self, case: &Value) {
        self.reset();
        if let Some(setup) = case["setup"].as_str() {
            finish(self.ground.outside("bash").args(["-c", &self.fill(setup)]));
        }
    }
}

#[test]
fn no_attempt_gets_through_and_everyday_commands_work() {
    let rows = RefCell::new(HEAD.to_owned());
    as_both(|ground| {
        let lab = Lab::new(ground);
        lab.reset();
        // The control: without rules the marker is there to be found.
        let mut control = ground.stockade(["run", "--shell", "evil"]);
        assert!(finish(control.env("PATH", &lab.path)).stdout.contains(MARK), "the marker program runs where nothing forbids it");
        rules(ground, RULES);
        let cases_of_attempts = cases(include_str!("../../../../../conformance/policy/bypass.json"));
        let (mut through, mut denied) = (Vec::new(), 0);
        for case in &cases_of_attempts {
            lab.prepare(case);
            let mut command = ground.stockade(["run", "--json", "--workspace-mode", "rw", "--timeout", "10s", "--shell"]);
            command
                .arg(lab.fill(case["command"].as_str().expect("a command")))
                .env("PATH", &lab.path)
                .env("SECRET_TOKEN", "tok-s3cr3t-value");
            let outcome = finish(&mut command);
            let said = outcome.stdout + &outcome.stderr;
            let target = case["target"].as_str().map(|target| lab.fill(target));
            let hit = match case["effect"].as_str() {
                Some("exec") => said.contains(MARK) || ground.work.join("evil-marker").exists(),
                Some("read") => said.contains("s3cr3t-value"),
                Some("env") => said.contains("tok-s3cr3t-value"),
                Some("write") => target.is_some_and(|target| Path::new(&target).exists()),
                other => panic!("{other:?}"),
            };
            denied += usize::from(outcome.code == Some(126));
            if hit || outcome.code == Some(125) {
                through.push(format!("{} {:?} {}: {said}", case["id"], outcome.code, case["command"]));
            }
        }
        println!("bypassed {} of {}", through.len(), cases_of_attempts.len());
        assert_eq!(through, Vec::<String>::new());
        let everyday = cases(include_str!("../../../../../conformance/policy/benign.json"));
        let mut broken = Vec::new();
        for case in &everyday {
            let command = case["command"].as_str().expect("a command");
            lab.reset();
            let plain = finish(ground.outside("bash").args(["-c", command]).env("PATH", &lab.path));
            lab.reset();
            let outcome = script(ground, &["--json", "--workspace-mode", "rw"], command);
            if outcome.code != plain.code {
                broken.push(format!("{} {command}: {outcome:?}, plain bash {plain:?}", case["id"]));
            }
        }
        println!("benign as in plain bash {} of {}", everyday.len() - broken.len(), everyday.len());
        assert_eq!(broken, Vec::<String>::new());
        let (who, attempts, commands) =
            (if ground.who == Who::Root { "root" } else { "ordinary user" }, cases_of_attempts.len(), everyday.len());
        let stopped = attempts - denied - through.len();
        let row = format!("| {who} | {attempts} | {denied} | {stopped} | {} | {commands} | {} |\n", through.len(), commands - broken.len());
        rows.borrow_mut().push_str(&row);
    });
    let rows = rows.into_inner();
    assert_eq!(rows, RESULTS, "conformance/policy/results.md should be:\n{rows}");
}
