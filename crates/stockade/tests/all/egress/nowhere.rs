//! A secret's value is in the broker and in egress, and nowhere else: not in any process inside, however it is looked at, not in the owner,
//! not in files, words or arguments.

use std::process::{Child, Command, Stdio};

use super::world::{VALUE, bound_flags, words};
use super::{World, as_both};
use crate::wall::ground::{ended, eventually, finish_with, processes};

/// Another value, which the store has.
const STORED: &str = "ghp_zY9xW8vU7tS6rQ5pO4nM3lK2jI1hG0fE9dC8";

/// Where the values are, a line each.
#[expect(clippy::disallowed_methods, reason = "only root can look into every process")]
fn found(world: &World, what: &[String]) -> Vec<String> {
    let program = world.outside.join("scan.py");
    world.plant(&program, include_str!("scan.py"), 0o644);
    let digit = |half: u8| char::from_digit(u32::from(half), 16).expect("a digit");
    let hex = |text: &str| text.bytes().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect::<String>();
    let outcome = finish_with(Command::new("python3").arg(program).args(what), format!("{}\n{}\n", hex(VALUE), hex(STORED)).as_bytes());
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    outcome.stdout.lines().map(str::to_owned).collect()
}

/// A process, its children and theirs.
fn tree(pid: u32) -> Vec<u32> {
    let mut pids = vec![pid];
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        pids.extend(children.split_whitespace().filter_map(|child| child.parse().ok()).flat_map(tree));
    }
    pids
}

/// Which role a process of ours plays.
fn is_role(pid: u32, role: &str) -> bool {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line == format!("/proc/self/exe\0{role}\0").as_bytes()
}

/// Looks into the owner, and into everything inside.
fn check_processes(world: &World, owner: u32) {
    let (ours, others): (Vec<u32>, Vec<u32>) = tree(owner).into_iter().partition(|pid| is_role(*pid, "egress") || is_role(*pid, "broker"));
    assert!(ours.len() == 2 && others.len() >= 3, "{ours:?} {others:?}");
    let named = |pids: &[u32]| pids.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(found(world, &named(&others)), Vec::<String>::new(), "the owner is {owner}, the others are {others:?}");
    // The control: whoever may have it has it, and is seen to.
    let broker: Vec<u32> = ours.into_iter().filter(|pid| is_role(*pid, "broker")).collect();
    assert!(found(world, &named(&broker)).iter().any(|line| line.contains("memory")), "it is looked for in the wrong way");
}

fn store(world: &World) {
    let binary = world.binary.to_str().expect("a path");
    let kept = finish_with(&mut world.command([binary, "secret", "set", "STORED"]), STORED.as_bytes());
    assert_eq!(kept.code, Some(0), "{kept:?}");
}

fn flags(world: &World) -> Vec<String> {
    let mut flags = bound_flags(&[world.secure]);
    flags.extend(["--secret".into(), format!("STORED@api.test:{}", world.secure), "--workspace-mode".into(), "rw".into()]);
    flags
}

/// Uses both, leaves a core file where it may, and waits.
fn script(world: &World) -> String {
    format!(
        "ulimit -c unlimited; python3 -c 'import os; os.abort()'
         curl -sS -o answer -H \"Authorization: Bearer $TOKEN\" -H \"X-Key: $STORED\" https://api.test:{}/echo && touch ready
         until test -e go; do sleep 0.05; done",
        world.secure
    )
}

fn started(world: &World, words: &[&str]) -> Child {
    let mut command = world.command([world.binary.as_os_str()]);
    command.args(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started")
}

/// What the server got, and that nothing of it is in any file.
fn check_files(world: &World) {
    let seen = world.seen();
    assert_eq!(seen[0]["headers"]["authorization"], format!("Bearer {VALUE}"), "{seen:?}");
    assert_eq!(seen[0]["headers"]["x-key"], STORED, "{seen:?}");
    let places = [&world.state, &world.home, &world.work].map(|path| path.display().to_string());
    assert_eq!(found(world, &places), Vec::<String>::new());
    // The control: the server wrote down what it got.
    assert!(!found(world, &[world.outside.display().to_string()]).is_empty());
}

#[test]
fn the_value_is_in_no_process_but_the_broker_and_egress() {
    as_both(|world| {
        store(world);
        let (flags, script) = (flags(world), script(world));
        let run = [&["run", "--json"], &words(&flags)[..], &["--", "bash", "-c", &script]].concat();
        let child = started(world, &run);
        eventually("it was used", || world.work.join("ready").exists());
        check_processes(world, child.id());
        check_files(world);
        world.file("go", "");
        let outcome = ended(child);
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        for value in [VALUE, STORED] {
            assert!(!outcome.stdout.contains(value) && !outcome.stderr.contains(value), "{outcome:?}");
        }
        check_files(world);
        world.all_ended();
    });
}

#[test]
fn the_supervisor_of_a_created_sandbox_does_not_have_it_either() {
    as_both(|world| {
        store(world);
        let (flags, script) = (flags(world), script(world));
        let made = world.stockade(&[&["sandbox", "create", "--json", "--name", "box"], &words(&flags)[..]].concat());
        let made: serde_json::Value = serde_json::from_str(&made.stdout).unwrap_or_else(|error| panic!("{error}: {made:?}"));
        let id = made["sandbox_id"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned();
        let child = started(world, &["sandbox", "exec", "box", "--", "bash", "-c", &script]);
        eventually("it was used", || world.work.join("ready").exists());
        let supervisors = processes(&format!("hold\0{id}\0"));
        assert_eq!(supervisors.len(), 1, "{supervisors:?}");
        check_processes(world, supervisors[0]);
        check_files(world);
        world.file("go", "");
        let outcome = ended(child);
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        assert_eq!(world.stockade(&["sandbox", "destroy", "box"]).code, Some(0));
        world.all_ended();
    });
}
