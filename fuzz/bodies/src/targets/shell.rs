//! Scripts and argument lists as policy reads them.
//!
//! Any text is answered within bounds; what is answered is stable, and nothing that a script holds can be read as Cedar.

use stockade_policy::shell::{ByName, MAX_CALLS, Needs, classify, classify_argv};

use crate::shown::assert_honest;

const HERE: ByName<'static> = ByName { directory: "/w" };

/// The input is a script; its words are an argument list as well.
pub fn body(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let answer = classify(&text, &HERE);
    assert_eq!(answer, classify(&text, &HERE), "the same text has the same answer");
    match &answer {
        Err(refusal) => assert_honest(&refusal.to_string(), &[]),
        Ok(script) => {
            assert!(script.calls.len() <= MAX_CALLS);
            for call in &script.calls {
                assert!(!call.program.is_empty());
                assert_honest(&call.shown(), &[]);
                if call.needs == Needs::Nothing {
                    assert!(call.path.is_none());
                }
            }
            // The same script twice is each of its calls twice, unless that is over a limit.
            if let Ok(twice) = classify(&format!("{text}\n"), &HERE) {
                assert_eq!(twice.calls.len(), script.calls.len());
            }
        }
    }
    let words: Vec<Option<&str>> = text.split('\0').map(Some).collect();
    if let Ok(script) = classify_argv(&words, &HERE) {
        assert!(script.calls.len() <= MAX_CALLS);
    }
}

/// Scripts of all kinds.
pub fn seeds() -> Vec<Vec<u8>> {
    let attempts: Vec<serde_json::Value> = serde_json::from_str(include_str!("../../../../conformance/policy/bypass.json")).unwrap();
    let everyday: Vec<serde_json::Value> = serde_json::from_str(include_str!("../../../../conformance/policy/benign.json")).unwrap();
    let commands = attempts.iter().chain(&everyday).map(|case| case["command"].as_str().unwrap().as_bytes().to_vec());
    let others = [
        "for ((i=0; i<$(a); i++)); do b; done",
        "case $x in a|b) c;; *) d;& esac",
        "a <<E\n$(b)\nE\n",
        "f() { g; }; f",
        "[[ -n $(a) && b =~ c ]]",
        "echo ${x:-$(a)} ${y[$(b)]}",
        "env -u A B=c timeout 5 xargs -0 sh -c 'd | e'",
        "find . -exec a {} + -fprint f",
        "git\0-c\0core.pager=x\0log",
        "x=(1 $(a)); y[$(b)]=c",
    ];
    commands.chain(others.iter().map(|text| text.as_bytes().to_vec())).collect()
}
