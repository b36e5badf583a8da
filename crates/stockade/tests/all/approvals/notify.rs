//! A person is told that something waits, by the program that their own settings name.

use super::{ask_for, request_of, tell};
use crate::wall::ground::eventually;
use crate::wall::{Ground, as_both};

/// A program that writes down its words; gives what it wrote.
fn set_up(ground: &Ground) -> impl Fn() -> String + '_ {
    let (program, written) = (ground.base.join("tell"), ground.base.join("told"));
    ground.plant(&written, "", 0o666);
    ground.plant(&program, &format!("#!/bin/sh\nprintf '[%s]\\n' \"$@\" \"$SECRET\" >> {}\n", written.display()), 0o755);
    let set = tell(ground, &["config", "set", "approvals.notify.command", &format!("{} --urgent", program.display())]);
    assert_eq!(set.code, Some(0), "{set:?}");
    move || std::fs::read_to_string(&written).expect("a file")
}

#[test]
fn a_new_request_is_told_of_once_and_escaped() {
    as_both(|ground| {
        ask_for(ground, "cat");
        let told = set_up(ground);
        let hostile = "<a href='x'>\u{202e}&\u{1b}[2K";
        let call = || crate::wall::ground::finish(ground.running(&[], &["cat", hostile]).env("SECRET", "value"));
        let id = request_of(&call().stderr);
        let expected = format!(
            "[--urgent]\n[Stockade: approval needed]\n[Human::\"{}\" asks: cat &lt;a href='x'&gt;\\u{{202e}}&amp;\\u{{1b}}[2K\nstockade approvals \
             approve {id}]\n[]\n",
            ground.host("id -un").trim()
        );
        eventually("it is told", || told().ends_with("[]\n"));
        assert_eq!(told(), expected);
        // Asked again it is no news.
        assert_eq!(request_of(&call().stderr), id);
        assert_eq!(told(), expected);
    });
}

#[test]
fn what_cannot_be_run_is_a_warning_and_the_request_waits() {
    as_both(|ground| {
        ask_for(ground, "cat");
        for wrong in ["notify-send", "/nothing/here"] {
            assert_eq!(tell(ground, &["config", "set", "approvals.notify.command", wrong]).code, Some(0));
            let asked = ground.run(&[], &["cat", wrong]);
            assert!(asked.code == Some(126) && asked.stderr.contains("nobody is told"), "{asked:?}");
            request_of(&asked.stderr);
        }
    });
}

/// A repository cannot have a program run outside by bringing a settings file.
#[test]
fn a_project_cannot_name_the_program() {
    as_both(|ground| {
        ask_for(ground, "cat");
        ground.directory(&ground.work.join(".stockade"));
        let text = "{\"approvals\": {\"notify\": {\"command\": \"/bin/true\"}}}";
        ground.plant(&ground.work.join(".stockade/settings.json"), text, 0o644);
        let refused = ground.run(&[], &["cat", "x"]);
        assert!(refused.code == Some(125) && refused.stderr.contains("may not be set by a project"), "{refused:?}");
    });
}
