//! Agents in the background: they run on when whoever started them is gone, can be looked at, and leave nothing when they end.

use serde_json::{Value, json};

use super::Stage;
use crate::wall::Who;
use crate::wall::ground::{as_both, eventually, finish, finish_with, processes, unique_seconds};
use crate::wall::terminal::stockade_on_terminal;

fn status(stage: &Stage) -> String {
    let told = stage.verb(&["list", "--json"]);
    let value: Value = serde_json::from_str(&told.stdout).unwrap_or_else(|error| panic!("{error}: {told:?}"));
    value["agents"][0]["status"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn an_agent_without_a_terminal_runs_in_the_background() {
    as_both(|ground| {
        let stage = Stage::new(ground.who, |_| json!([]));
        let script = "cat; echo out; echo err >&2; echo made > made; exit 3";
        let mut command = stage.command(&["--detach", "--name", "back"], &["bash", "-c", script]);
        let started = finish_with(&mut command, b"a prompt\n");
        assert_eq!(started.code, Some(0), "{started:?}");
        eventually("it ends", || status(&stage) == "code 3");
        let logs = stage.verb(&["logs", "back"]);
        assert!(logs.code == Some(0) && ["a prompt\n", "out\n", "err\n"].iter().all(|line| logs.stdout.contains(line)), "{logs:?}");
        let diff = stage.verb(&["diff", "back"]);
        assert!(diff.stdout.contains("+made"), "{diff:?}");
        let failed = finish(&mut stage.command(&["--detach", "--workspace", "/nowhere-at-all"], &["true"]));
        assert!(failed.code == Some(125) && failed.stderr.contains("nowhere-at-all"), "{failed:?}");
    });
}

#[test]
fn a_terminal_can_be_joined_to_an_agents() {
    as_both(|ground| {
        let stage = Stage::new(ground.who, |_| json!([]));
        let script = "[ -t 0 ] && echo terminal; while read -r line; do echo \"got $line\"; stty size; [ $line = end ] && exit 5; done";
        let started = stockade_on_terminal(&stage.ground, &["agent", "run", "--detach", "--name", "t", "--", "bash", "-c", script], "");
        assert!(started.contains("code 0"), "{started}");
        eventually("it runs", || status(&stage) == "running");
        let first = stockade_on_terminal(
            &stage.ground,
            &["agent", "attach", "t"],
            "until(b'terminal')\nos.write(fd, b'one\\r')\nuntil(b'33 77')\nos.write(fd, b'\\x1d')\n",
        );
        assert!(first.contains("got one") && first.contains("let go") && first.contains("code 0 restored True"), "{first}");
        assert_eq!(status(&stage), "running");
        let second = stockade_on_terminal(
            &stage.ground,
            &["agent", "attach", "t"],
            "until(b'got one')\nos.write(fd, b'end\\r')\nuntil(b'got end')\n",
        );
        assert!(second.contains("has ended"), "{second}");
        eventually("it ends", || status(&stage) == "code 5");
        let logs = stage.verb(&["logs", "t"]);
        assert!(logs.stdout.contains("got one") && logs.stdout.contains("got end"), "{logs:?}");
        let late = stage.verb(&["attach", "t"]);
        assert!(late.code == Some(125) && late.stderr.contains("does not run"), "{late:?}");
    });
}

#[test]
fn killing_its_owner_leaves_nothing_running_and_loses_no_change() {
    as_both(|ground| {
        let stage = Stage::new(ground.who, |_| json!([]));
        let seconds = unique_seconds();
        let script = format!("echo kept > kept; setsid sleep {seconds} & sleep {seconds}");
        let started = finish_with(&mut stage.command(&["--detach", "--name", "k"], &["bash", "-c", &script]), b"\n");
        assert_eq!(started.code, Some(0), "{started:?}");
        let sleeps = || processes(&format!("sleep\0{seconds}"));
        eventually("it sleeps", || sleeps().len() >= 2);
        let told = stage.verb(&["list", "--json"]);
        assert!(told.stdout.contains("running"), "{told:?}");
        let text = std::fs::read_dir(stage.state.join("stockade/agents")).unwrap().flatten().next().unwrap().path().join("agent.json");
        let agent: Value = serde_json::from_str(&std::fs::read_to_string(text).unwrap()).unwrap();
        let pid = i32::try_from(agent["owner"][0].as_u64().unwrap()).unwrap();
        rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), rustix::process::Signal::KILL).unwrap();
        eventually("nothing of it runs", || sleeps().is_empty());
        eventually("that is known", || status(&stage) == "killed");
        // Another start sweeps what belongs to nobody; an agent's work is not that.
        stage.run(&[], &["true"]);
        let diff = stage.verb(&["diff", "k"]);
        assert!(diff.stdout.contains("+kept"), "{diff:?}");
        let applied = stage.verb(&["apply", "k"]);
        assert_eq!((applied.code, stage.read("kept").as_str()), (Some(0), "kept\n"), "{applied:?}");
    });
}

#[test]
fn agents_side_by_side_have_a_branch_each() {
    let stage = Stage::new(Who::Ordinary, |_| json!([]));
    stage.repository();
    // The tree is made beside the repository.
    stage.own(&stage.base);
    let work = |name: &str, line: &str| {
        let script = format!(
            "echo {line} > {name}.txt && git add -A && git commit -qm {name} && git branch -f main HEAD; echo x > ../work/{name}-escaped; \
             rm -rf {objects} 2>/dev/null; git log --oneline | wc -l",
            objects = stage.work.join(".git/objects").display()
        );
        let outcome = stage.agent(&["--worktree", "--name", name], &["bash", "-c", &script]);
        assert!(outcome.code == Some(0) && outcome.stdout.ends_with("2\n"), "{outcome:?}");
        assert!(outcome.stderr.contains(&format!("its branch is stockade/{name}")), "{outcome:?}");
    };
    work("one", "1");
    work("two", "2");
    assert_eq!(
        stage.host("git log --all --format=%s; git --no-optional-locks status --porcelain; git fsck --strict 2>&1"),
        "first\n",
        "nothing came before it was applied"
    );
    let diff = stage.verb(&["diff", "one"]);
    assert!(diff.code == Some(0) && diff.stdout.contains("+1"), "{diff:?}");
    for name in ["one", "two"] {
        let applied = stage.verb(&["apply", name]);
        assert_eq!(applied.code, Some(0), "{applied:?}");
    }
    assert_eq!(
        stage.host("git log --format=%s main; git log --format=%s stockade/one; git log --format=%s stockade/two; ls"),
        "first\none\nfirst\ntwo\nfirst\ncalc.py\ntest_calc.py\n"
    );
    let again = stage.agent(&["--worktree", "--name", "one"], &["true"]);
    assert!(again.code == Some(125) && again.stderr.contains("is there already"), "{again:?}");
    let unnamed = stage.agent(&["--worktree"], &["true"]);
    assert_eq!(unnamed.code, Some(125), "{unnamed:?}");
    let rules = "permit (principal, action == Stockade::Action::\"exec\", resource == Stockade::Program::\"ls\");";
    stage.plant(&stage.home.join(".config/stockade/policy/rules.cedar"), rules, 0o600);
    let before = stage.host("git log --all --format=%s; ls ..");
    let denied = stage.agent(&["--worktree", "--name", "three"], &["touch", "y"]);
    assert!(denied.code == Some(126) && denied.stderr.contains("denied by policy"), "{denied:?}");
    assert_eq!(stage.host("git log --all --format=%s; ls .."), before, "what is denied leaves no tree behind");
}
