//! Where users are: machines that are not ours, pretended or real. Everything is enforced there, or the run is refused with the demand
//! and one command, and `doctor` says the same; `--allow-degraded` holds what can be held and reports the rest.
//!
//! Views of the machine are made in mount and user namespaces of the test's own; nothing of the machine itself is changed. Calls are
//! refused by a filter around the program (`pretend.py`), so that the product has no switch for it.

#![allow(clippy::indexing_slicing, clippy::panic, reason = "tests")]

mod degraded;
mod docker;
mod filesystems;
mod fixing;
mod groups;
mod refusals;

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::Outcome;
use crate::wall::ground::{PATH, finish};
use crate::wall::{Ground, Who};

const PRETEND: &str = include_str!("pretend.py");

/// Every demand that namespaces hold, as a person allows them all.
const NAMESPACES: &str = "--allow-degraded=files,network,processes,privileges,secrets";

/// Something that is not as on this machine.
#[derive(Clone, Copy)]
struct Surroundings<'a> {
    /// Run by a shell as root in a mount namespace of its own, before the program starts. `$1` is a directory of the test's own.
    setup: &'a str,
    /// Words for `pretend.py`.
    pretend: &'a [&'a str],
}

impl Surroundings<'_> {
    /// `stockade WORDS` there, as the ground's user.
    fn stockade(self, ground: &Ground, words: &[&str]) -> Outcome {
        let mut command = self.command(ground);
        command.arg(&ground.binary).args(words);
        finish(&mut command)
    }

    /// The same with `--json`.
    fn json(self, ground: &Ground, words: &[&str]) -> (Option<i32>, Value) {
        let outcome = self.stockade(ground, &[words.first().copied().into_iter().collect(), vec!["--json"], words[1..].to_vec()].concat());
        let value = serde_json::from_str(&outcome.stdout).unwrap_or_else(|e| panic!("{e}: {outcome:?}"));
        (outcome.code, value)
    }

    /// A command that makes the surroundings; the program and its words follow.
    #[expect(clippy::disallowed_methods, reason = "makes namespaces around the program under test")]
    fn command(self, ground: &Ground) -> Command {
        let mut command = Command::new("unshare");
        command.env_clear().current_dir(&ground.work).stdin(Stdio::null());
        command.env("PATH", format!("{PATH}:/usr/sbin:/sbin")).env("HOME", &ground.home).env("XDG_STATE_HOME", &ground.state);
        command.env("LANG", "C.UTF-8");
        let script = format!("{}\nshift\nexec \"$@\"", self.setup);
        command.args(["--mount", "bash", "-euc", &script, "surroundings"]).arg(&ground.base);
        command.args(["python3", "-c", PRETEND]).args(self.pretend);
        if ground.who == Who::Ordinary {
            command.arg("ordinary");
        }
        command.arg("--");
        command
    }

    /// Refused with these demands and this fix, by `run` and by `doctor` alike; nothing is left behind.
    fn refuses(self, ground: &Ground, demands: &[&str], why: &str, fix: &str) {
        let (code, value) = self.json(ground, &["run", "--", "true"]);
        assert_eq!(code, Some(125), "{value}");
        let (message, hint) = (text(&value["error"]["message"]), text(&value["error"]["hint"]));
        for demand in demands {
            assert!(message.contains(demand), "{demand} is not named: {message}");
        }
        assert!(message.contains(why), "{why:?} is not in {message:?}");
        assert!(hint.contains(fix), "{fix:?} is not in {hint:?}");
        assert_eq!(ground.sandboxes(), Vec::<String>::new(), "left behind");
        let (code, doctor) = self.json(ground, &["doctor"]);
        assert_eq!((code, &doctor["ok"]), (Some(1), &Value::Bool(false)), "{doctor}");
        let said = doctor.to_string();
        assert!(said.contains(why) && said.contains(&hint.replace('"', "\\\"")), "doctor says otherwise: {said}");
    }

    /// Runs, with these levels in the report.
    fn reports(self, ground: &Ground, flags: &[&str], levels: &[(&str, &str)]) -> Value {
        let (code, value) = self.json(ground, &[&["run"], flags, &["--", "true"]].concat());
        assert_eq!(code, Some(0), "{value}");
        for (demand, level) in levels {
            assert_eq!(text(&value["enforcement"][demand]), *level, "{demand}: {value}");
        }
        value
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}"))
}
