//! Policy files: any text compiles or is refused with a place in it.
//!
//! What compiles is asked; what is asked denies where nothing permits, and a forbid for everything denies everything. Read as rules of another
//! program, any text gives rules that compile.

use stockade_policy::import::{Imported, Wish, claude, codex};
use stockade_policy::shell::{ByName, classify};
use stockade_policy::{Checks, Floor, Layer, Policies, PolicyFile, Principal, Trust, Verdict};

use crate::shown::assert_honest;

const FORBID: &str = "forbid (principal, action, resource);";

fn file(layer: Layer, trust: Trust, text: &str) -> PolicyFile {
    PolicyFile { layer, trust, name: format!("{}.cedar", layer.name()), text: text.to_owned() }
}

/// The input is a file of the person's; the same one untrusted widens nothing.
pub fn body(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    imported(&text);
    let files = [file(Layer::User, Trust::Trusted, &text)];
    let policies = match Policies::compile(&files, Checks::All) {
        Ok(policies) => policies,
        Err(faults) => {
            assert!(!faults.0.is_empty());
            for fault in &faults.0 {
                assert_honest(&fault.headline(), &[]);
                assert!(fault.line <= text.lines().count().max(1) + 1 && fault.column >= 1, "{fault}");
                assert!(fault.to_string().len() < 10_000 + fault.message.len() * 10);
            }
            return;
        }
    };
    let (principal, script) = (Principal::agent("a/b"), classify("git log x | ls > f", &ByName { directory: "/w" }));
    let verdict = |policies: &Policies| policies.judge(&principal, &script, Floor::Deny).decision.verdict;
    let known = Policies::compile(&files, Checks::Known).unwrap();
    assert_eq!(verdict(&policies), verdict(&known), "the short way says the same");
    let untrusted = Policies::compile(&[file(Layer::Project, Trust::Untrusted, &text)], Checks::Known).unwrap();
    assert_eq!(verdict(&untrusted), Verdict::Deny, "a stranger's permits do not count");
    let forbidden = Policies::compile(&[files[0].clone(), file(Layer::Pack, Trust::Untrusted, FORBID)], Checks::Known).unwrap();
    assert_eq!(verdict(&forbidden), Verdict::Deny, "every layer's forbid counts");
}

/// Foreign text becomes whole rules and nothing else.
fn imported(text: &str) {
    let wishes = [Wish::Allow, Wish::Ask, Wish::Deny];
    let lines: Vec<(Wish, String)> = text.lines().take(8).zip(wishes.iter().cycle()).map(|(line, wish)| (*wish, line.to_owned())).collect();
    for Imported { rules, notes } in [claude(&lines, Some("/home/me")), codex(text)] {
        let policies = Policies::compile(&[file(Layer::User, Trust::Trusted, &rules.join("\n\n"))], Checks::All);
        assert_eq!(policies.map(|policies| policies.rules().len()), Ok(rules.len()));
        assert!(notes.iter().all(|note| !note.why.is_empty()));
    }
}

/// Files of all kinds.
pub fn seeds() -> Vec<Vec<u8>> {
    let texts = [
        include_str!("../../../../conformance/policy/policy.cedar"),
        include_str!("../../../../crates/stockade/presets/developer.cedar"),
        include_str!("../../../../crates/stockade/presets/read-only.cedar"),
        include_str!("../../../../crates/stockade/presets/ci.cedar"),
        FORBID,
        "Bash(git diff:*)\nBash(git * main)\nBash(rm -rf:*)\nRead(~/.ssh/**)\nWebFetch(domain:*.example.org)\nBash(npm run 'x y')\nEdit(//srv/**)",
        "# x\nprefix_rule(pattern = [\"git\", [\"push\", \"fetch\"]], decision = \"prompt\", justification = 'why')\nnetwork_rule(host = \"a.b\", protocol = \"https\", decision = \"allow\")\nx = 1\n",
        "@id(\"a\") @approval(\"required\") @reason(\"b\")\npermit (principal in Stockade::Tenant::\"t\", action == Stockade::Action::\"connect\", resource) when { context.port == 443 };",
        "// allow: ls\npermit (principal, action, resource == Stockade::Program::\"ls\") unless { context.flags.contains(\"-R\") };",
    ];
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}
