//! `stockade init`: a starter policy in the user layer. One that is there is left alone.

use std::process::ExitCode;

use clap::ValueEnum as _;
use serde_json::json;
use stockade_store::policy::{PolicyError, write_preset};

use crate::Context;
use crate::admission;
use crate::approver;
use crate::cli::{InitArgs, Preset};
use crate::failure::Failure;
use crate::receipts::approved;

pub(crate) fn run(args: &InitArgs, context: &Context) -> Result<ExitCode, Failure> {
    let places = context.places()?;
    let name = args.preset.to_possible_value();
    let words: Vec<&str> = name.iter().map(clap::builder::PossibleValue::get_name).collect();
    let decider = approver::demand("write a policy", context)?;
    let written = approved("init", &words, &decider, context, || {
        write_preset(places, text(args.preset)).map_err(|error| match error {
            PolicyError::Exists(_) => admission::failure(&error).with_hint("edit it, or move it away first"),
            error => admission::failure(&error),
        })
    })?;
    if context.printer.is_json() {
        context.printer.json(&json!({ "file": written.path.to_string_lossy() }))?;
    } else {
        context.printer.note(format!("wrote {}", written.path.display()));
        context.printer.note("see what it says: stockade policy explain --agent claude/main -- git push");
    }
    Ok(ExitCode::SUCCESS)
}

/// The starter policy of a name.
pub(super) fn text(preset: Preset) -> &'static str {
    match preset {
        Preset::ReadOnly => include_str!("../../presets/read-only.cedar"),
        Preset::Developer => include_str!("../../presets/developer.cedar"),
        Preset::Ci => include_str!("../../presets/ci.cedar"),
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;
    use stockade_policy::shell::{ByName, classify};
    use stockade_policy::{Checks, Floor, Layer, Policies, PolicyFile, Principal, Trust, Verdict};

    use super::*;

    #[test]
    fn every_preset_stands_is_short_and_permits_the_human() {
        for preset in Preset::value_variants() {
            let text = text(*preset);
            assert!(text.lines().count() < 40, "{preset:?}");
            let file = PolicyFile { layer: Layer::User, trust: Trust::Trusted, name: format!("{preset:?}"), text: text.into() };
            let policies = Policies::compile(&[file], Checks::All).unwrap_or_else(|faults| panic!("{faults}"));
            let verdict = |principal: &Principal, script: &str| {
                policies.judge(principal, &classify(script, &ByName { directory: "/w" }), Floor::Deny).decision.verdict
            };
            let (human, agent) = (Principal::human("me"), Principal::agent("claude/main"));
            assert_eq!(verdict(&human, "make && git push | sort > x"), Verdict::Allow, "{preset:?}");
            assert_eq!(verdict(&agent, "ls -la | head; git log -5"), Verdict::Allow, "{preset:?}");
            for push in [
                "git push",
                "/usr/bin/git push",
                "/bin/git push origin main",
                "/usr/local/bin/git -C x push",
                "git -c a.b=c push",
                "/usr/bin/git -c a.b=c push",
                "git $verb",
                "ls && git --unknown push",
            ] {
                assert_eq!(verdict(&agent, push), Verdict::Deny, "{preset:?} {push}");
            }
            assert_eq!(verdict(&human, "/usr/bin/git push; git $verb"), Verdict::Allow, "{preset:?}");
            let changes = if *preset == Preset::ReadOnly { Verdict::Deny } else { Verdict::Allow };
            assert_eq!(verdict(&agent, "make test"), changes, "{preset:?}");
            assert_eq!(verdict(&agent, "echo x > f"), changes, "{preset:?}");
            for benign in ["git add *.md", "git commit -m \"$TEXT\"", "/usr/bin/git commit -am x", "git -c user.name=me commit", "git"] {
                assert_eq!(verdict(&agent, benign), changes, "{preset:?} {benign}");
            }
        }
    }
}
