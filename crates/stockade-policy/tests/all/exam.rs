//! The public half of the bypass exam, judged by text alone. What the text cannot tell, the exec list must: a program that is not on it does
//! not exist inside. The binary's own tests run the same cases behind the wall.

use serde::Deserialize;
use stockade_policy::shell::{ByName, classify};
use stockade_policy::{Checks, Floor, Judgement, Layer, Policies, PolicyFile, Principal, Trust, Verdict};

#[derive(Deserialize)]
struct Case {
    id: String,
    command: String,
    #[serde(default)]
    expect: String,
}

fn cases(text: &str) -> Vec<Case> {
    serde_json::from_str(text).unwrap()
}

fn policies() -> Policies {
    let text = include_str!("../../../../conformance/policy/policy.cedar").to_owned();
    let file = PolicyFile { layer: Layer::User, trust: Trust::Trusted, name: "policy.cedar".into(), text };
    Policies::compile(&[file], Checks::All).unwrap_or_else(|faults| panic!("{faults}"))
}

fn judge(policies: &Policies, command: &str) -> Judgement {
    let command = command.replace("$SECRET_TOKEN", "\0").replace("$WS", "/lab/ws").replace("$SECRET", "/lab/secret");
    let command = command.replace("$OUT", "/lab/out").replace("$BIN", "/usr/local/bin").replace('\0', "$SECRET_TOKEN");
    policies.judge(&Principal::human("somebody"), &classify(&command, &ByName { directory: "/lab/ws" }), Floor::Deny)
}

#[test]
fn exam_no_attempt_passes() {
    let (policies, cases) = (policies(), cases(include_str!("../../../../conformance/policy/bypass.json")));
    let (mut denied, mut contained, mut through) = (0, 0, Vec::new());
    for case in &cases {
        let Judgement { decision, exec_list, .. } = judge(&policies, &case.command);
        let holds = |list: &[String]| !list.iter().any(|program| program.contains("evil") || program == "sh" || program == "env");
        match (decision.verdict, exec_list) {
            (Verdict::Deny, _) => denied += 1,
            (Verdict::Allow, Some(list)) if case.expect != "DENY" && holds(&list) => contained += 1,
            (verdict, list) => through.push(format!("{} {:?} {list:?}: {}", case.id, verdict, case.command)),
        }
    }
    println!("bypassed {} of {}: {denied} denied, {contained} left to the wall", through.len(), cases.len());
    assert_eq!(through, Vec::<String>::new());
    assert_eq!(cases.len(), 93);
}

#[test]
fn exam_everyday_commands_are_allowed() {
    let (policies, cases) = (policies(), cases(include_str!("../../../../conformance/policy/benign.json")));
    let judged = cases.iter().map(|case| (case, judge(&policies, &case.command)));
    let refused: Vec<String> = judged
        .filter(|(_, judgement)| judgement.decision.verdict != Verdict::Allow || judgement.exec_list.is_none())
        .map(|(case, judgement)| format!("{} {:?}: {}", case.id, judgement.decision, case.command))
        .collect();
    println!("benign {} of {}", cases.len() - refused.len(), cases.len());
    assert_eq!(refused, Vec::<String>::new());
}
