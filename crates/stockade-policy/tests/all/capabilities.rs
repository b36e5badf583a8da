//! Capabilities as whole manifests: faults and their places, inputs, argument lists, and what rules say to a call.

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use stockade_policy::capability::{Capability, CapabilityFacts, Invocation, Lexical, Vocabulary, from_words};
use stockade_policy::{Checks, Decision, FaultKind, Floor, Layer, Policies, PolicyFile, Principal, Request, Trust, Verdict, schema_text};

const LOG: &str = r#"
name = "git.log"
description = "List commits."
effect = "read"
program = "git"
args = ["log", "--max-count={max_count}", { arg = "--all", when = "all" }, "--author={author}", "--", { arg = "{item}", each = "paths" }]
timeout = "30s"
[input.properties]
max_count = { type = "integer", default = 20, maximum = 100 }
all = { type = "boolean" }
author = { type = "string" }
paths = { type = "array", items = { type = "string", format = "path" } }
[sandbox]
hosts = ["api.example.org"]
exec = ["less"]
[sandbox.limits]
memory = "512M"
cpus = 1.5
pids = 32
[[credentials]]
adapter = "secret"
secret = "TOKEN"
hosts = ["api.example.org"]
[[examples]]
input = { max_count = 5, paths = ["a b"] }
argv = ["git", "log", "--max-count=5", "--", "/workspace/a b"]
[[examples]]
input = { author = "-x" }
verdict = "deny"
"#;

fn log() -> Capability {
    Capability::parse("git.log.toml", LOG).unwrap_or_else(|faults| panic!("{faults}"))
}

fn object(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

#[test]
fn a_manifest_is_read_whole() {
    let capability = log();
    assert_eq!((capability.effect.name(), capability.risk.name()), ("read", "low"));
    assert_eq!(capability.sandbox.limits.memory, Some(512 << 20));
    assert_eq!((capability.sandbox.limits.cpu_millis, capability.sandbox.limits.pids), (Some(1500), Some(32)));
    assert_eq!((capability.credentials.len(), capability.examples.len()), (1, 2));
    let prepared = capability.prepare(object(&json!({ "all": true, "paths": ["src/../x"] })), &Lexical { workspace: "/w" }).unwrap();
    assert_eq!(prepared.args, ["log", "--max-count=20", "--all", "--", "/w/x"]);
    assert_eq!(Value::Object(prepared.values), json!({ "all": true, "max_count": 20, "paths": ["x"] }));
}

#[test]
fn every_fault_has_its_line_and_its_words() {
    let check = |from: &str, to: &str, line: usize, words: &str| {
        let text = LOG.replacen(from, to, 1);
        assert_ne!(text, LOG, "{from}");
        let faults = Capability::parse("c.toml", &text).err().unwrap_or_else(|| panic!("{from} -> {to} is taken"));
        let fault = &faults.0[0];
        assert_eq!((fault.kind, fault.line), (FaultKind::Manifest, line), "{faults}");
        assert!(faults.to_string().contains(words), "{words}: {faults}");
        let is_shown = text.lines().nth(line - 1).is_some_and(|line| !line.is_empty());
        assert_eq!(faults.to_string().contains('^'), is_shown, "{words}: {faults}");
    };
    check("effect = \"read\"\n", "", 1, "effect");
    check("\"read\"", "\"reads\"", 4, "reads");
    check("git.log", "git log", 2, "name of a capability");
    check("program = \"git\"", "program = \"/usr/bin/git\"", 5, "file name");
    check("timeout = \"30s\"", "timeuot = \"30s\"", 7, "timeuot");
    check("\"30s\"", "\"soon\"", 7, "soon");
    check("{max_count}", "{maxcount}", 6, "maxcount");
    check("when = \"all\"", "wehn = \"all\"", 6, "wehn");
    check("each = \"paths\"", "each = \"author\"", 6, "list");
    check("\"--author={author}\", ", "", 8, "author");
    check("\"api.example.org\"]\nexec", "\"http://x/\"]\nexec", 14, "host");
    check("\"512M\"", "\"lots\"", 17, "lots");
    check("pids = 32", "pids = 0", 19, "zero");
    check("exec = [\"less\"]", "exec = \"all\"", 15, "exec");
    check("hosts = [\"api.example.org\"]\n[[examples]]", "hosts = [\"other.example.org\"]\n[[examples]]", 20, "sandbox.hosts");
    check("adapter = \"secret\"", "adapter = \"vault\"", 21, "vault");
    check("verdict = \"deny\"", "", 27, "argv");
    check("format = \"path\" } }", "\"$ref\" = \"http://x\" } }", 8, "nothing outside");
    check("description = \"List commits.\"", "description = \"\"", 3, "description");
    check("name = ", "name = = ", 2, "c.toml:2");
    let wide = LOG.replace("[sandbox]\n", "[sandbox]\nmounts = [{ host = \"~/.x\", mode = \"rw\" }]\n");
    assert!(Capability::parse("c", &wide).unwrap_err().to_string().contains("can only mount"), "a reader writes nowhere");
}

#[test]
fn all_faults_are_told_at_once() {
    let text = LOG.replace("git.log", "x").replace("30s", "soon").replace("512M", "lots");
    assert_eq!(Capability::parse("c", &text).unwrap_err().0.len(), 3);
}

#[test]
fn words_are_read_by_what_is_expected() {
    let read = |words: &[&str]| from_words(&log(), words.iter().copied()).map(Value::Object);
    let words = ["max_count=5", "author=12", "paths=a", "paths=b=c", "all=true"];
    assert_eq!(read(&words).unwrap(), json!({ "max_count": 5, "author": "12", "paths": ["a", "b=c"], "all": true }));
    for bad in [&["max_count"][..], &["max_count=five"], &["all=yes"], &["author=a", "author=b"]] {
        assert!(read(bad).is_err(), "{bad:?}");
    }
}

fn vocabulary() -> Vocabulary {
    Vocabulary { capabilities: vec![log().facts(&"git".parse().unwrap())] }
}

fn compile(text: &str) -> Policies {
    let file = PolicyFile { layer: Layer::User, trust: Trust::Trusted, name: "u.cedar".into(), text: text.into() };
    Policies::compile_with(&[file], Checks::All, &vocabulary()).unwrap_or_else(|faults| panic!("{faults}"))
}

fn call<T>(input: &Value, act: impl FnOnce(&Invocation<'_>) -> T) -> T {
    let facts: CapabilityFacts = log().facts(&"git".parse().unwrap());
    let values = log().prepare(object(input), &Lexical { workspace: "/w" }).unwrap().values;
    let network = ["api.example.org".to_owned()];
    act(&Invocation {
        capability: &facts,
        values: &values,
        workspace: "/w",
        backend: "jail",
        network: &network,
        time: "2026-11-16T09:00:00Z",
    })
}

fn decide(policies: &Policies, input: &Value) -> Decision {
    call(input, |invocation| policies.decide(&Principal::agent("a/b"), &Request::Invoke(invocation), Floor::Deny))
}

#[test]
fn rules_see_capabilities_their_group_their_pack_and_their_inputs() {
    let allows = |rule: &str, input: Value| decide(&compile(rule), &input).verdict == Verdict::Allow;
    let five = || json!({ "max_count": 5 });
    assert!(allows("permit (principal, action == Stockade::Action::\"git.log\", resource);", five()));
    assert!(allows("permit (principal, action in Stockade::Action::\"invoke\", resource);", five()));
    assert!(allows(
        "permit (principal, action in Stockade::Action::\"invoke\", resource) when { resource.effect == \"read\" && resource.risk == \"low\" };",
        five()
    ));
    assert!(allows("permit (principal, action, resource in Stockade::Pack::\"git\");", five()));
    assert!(allows("permit (principal, action in Stockade::Action::\"invoke\", resource == Stockade::Capability::\"git.log\");", five()));
    assert!(!allows("permit (principal, action == Stockade::Action::\"exec\", resource);", five()));
    let named = |condition: &str| format!("permit (principal, action == Stockade::Action::\"git.log\", resource) when {{ {condition} }};");
    assert!(allows(&named("context.args.max_count <= 10"), five()));
    assert!(!allows(&named("context.args.max_count <= 10"), json!({ "max_count": 11 })));
    assert!(allows(&named("context.args has author && context.args.author == \"me\""), json!({ "author": "me" })));
    assert!(!allows(&named("context.args has author && context.args.author == \"me\""), five()));
    assert!(allows(
        &named("context.args has paths && [\"src\", \"doc\"].containsAll(context.args.paths)"),
        json!({ "paths": ["src/x/.."] })
    ));
    assert!(!allows(&named("context.args has paths && [\"src\"].containsAll(context.args.paths)"), json!({ "paths": ["src", "etc"] })));
    assert!(allows(
        &named("context.network.contains(\"api.example.org\") && context.backend == \"jail\" && context.workspace == \"/w\""),
        five()
    ));
    assert!(allows(&named("context.time.toTime() >= duration(\"8h\") && context.time.toTime() < duration(\"18h\")"), five()));
}

#[test]
fn misspelt_or_unguarded_inputs_do_not_load() {
    for bad in [
        "permit (principal, action == Stockade::Action::\"git.lgo\", resource);",
        "permit (principal, action == Stockade::Action::\"git.log\", resource) when { context.args.maxcount == 1 };",
        "permit (principal, action == Stockade::Action::\"git.log\", resource) when { context.args.author == \"x\" };",
        "permit (principal, action == Stockade::Action::\"git.log\", resource) when { context.args.max_count == \"5\" };",
    ] {
        let file = PolicyFile { layer: Layer::User, trust: Trust::Trusted, name: "u".into(), text: bad.into() };
        assert!(Policies::compile_with(&[file], Checks::All, &vocabulary()).is_err(), "{bad}");
    }
    assert!(schema_text(&vocabulary()).contains("action \"git.log\" in [\"invoke\"]"));
}

#[test]
fn a_forbid_about_one_capability_wins_over_a_permit_about_all() {
    let rules = "permit (principal, action, resource);\n@id(\"few\") @reason(\"not so many\")\nforbid (principal, action in [Stockade::Action::\"git.log\"], resource) when { context.args.max_count > 50 };";
    let policies = compile(rules);
    assert_eq!(decide(&policies, &json!({})).verdict, Verdict::Allow);
    let denied = decide(&policies, &json!({ "max_count": 51 }));
    assert_eq!((denied.verdict, denied.rule.as_str(), denied.reason.as_deref()), (Verdict::Deny, "few", Some("not so many")));
}

#[test]
fn examples_above_a_rule_about_a_capability_are_calls() {
    let good = "// allow: git.log max_count=5 paths=src\n// deny: git.log max_count=50\npermit (principal, action == Stockade::Action::\"git.log\", resource) when { context.args.max_count < 10 };";
    compile(good);
    let file = |text: &str| PolicyFile { layer: Layer::User, trust: Trust::Trusted, name: "u".into(), text: text.into() };
    let bad = good.replace("max_count=50", "max_count=5");
    assert!(Policies::compile_with(&[file(&bad)], Checks::All, &vocabulary()).is_err());
}

#[test]
fn a_suggestion_allows_the_call_and_no_other() {
    let none = compile("permit (principal, action == Stockade::Action::\"exec\", resource);");
    for input in [
        json!({}),
        json!({ "max_count": 5, "author": "a\"b\\ '); forbid(principal,action,resource);", "paths": ["x", "y z"], "all": false }),
        json!({ "paths": [] }),
    ] {
        let denied = decide(&none, &input);
        assert_eq!((denied.verdict, denied.rule.as_str()), (Verdict::Deny, "default-deny"));
        let suggested = compile(denied.suggest.as_deref().unwrap());
        assert_eq!(decide(&suggested, &input).verdict, Verdict::Allow, "{input}: {:?}", denied.suggest);
        assert_eq!(decide(&suggested, &json!({ "max_count": 99 })).verdict, Verdict::Deny);
    }
}

#[test]
fn values_of_another_kind_deny() {
    let policies = compile("permit (principal, action, resource);");
    let facts = log().facts(&"git".parse().unwrap());
    for values in [json!({}), json!({ "max_count": "5" }), json!({ "max_count": 5, "paths": "x" }), json!({ "max_count": 5, "paths": [1] })]
    {
        let values = object(&values);
        let invocation = Invocation {
            capability: &facts,
            values: &values,
            workspace: "/w",
            backend: "jail",
            network: &[],
            time: "2026-01-01T00:00:00Z",
        };
        assert_eq!(policies.decide(&Principal::human("me"), &Request::Invoke(&invocation), Floor::NoPolicy).verdict, Verdict::Deny);
    }
    let values = object(&json!({ "max_count": 5 }));
    let invocation = Invocation { capability: &facts, values: &values, workspace: "/w", backend: "jail", network: &[], time: "yesterday" };
    assert_eq!(policies.decide(&Principal::human("me"), &Request::Invoke(&invocation), Floor::Deny).verdict, Verdict::Deny, "no time");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn one_value_never_makes_two_arguments(author in any::<String>(), paths in prop::collection::vec("[a-zA-Z0-9 ;$'\"\\\\\n*~{}|&-]{1,12}", 0..5)) {
        let input = json!({ "author": author, "paths": paths });
        match log().prepare(object(&input), &Lexical { workspace: "/w" }) {
            Ok(prepared) => {
                // log, the count, the author, the dashes, and one for each path.
                prop_assert_eq!(prepared.args.len(), 4 + paths.len());
                prop_assert_eq!(&prepared.args[2], &format!("--author={author}"));
                prop_assert!(prepared.args.iter().skip(4).all(|path| path.starts_with("/w")));
            }
            Err(_) => prop_assert!(author.starts_with('-') || author.contains('\0')),
        }
    }

    #[test]
    fn no_value_becomes_cedar(author in "[ -~\n\t\r\u{e4}\u{df}]{0,24}") {
        prop_assume!(!author.starts_with('-') && !author.contains('\0'));
        let none = compile("permit (principal, action == Stockade::Action::\"exec\", resource);");
        let denied = decide(&none, &json!({ "author": author }));
        prop_assert_eq!(denied.verdict, Verdict::Deny);
        let suggested = compile(denied.suggest.as_deref().unwrap_or_default());
        prop_assert_eq!(suggested.rules().len(), 1);
        prop_assert_eq!(decide(&suggested, &json!({ "author": author })).verdict, Verdict::Allow);
    }

    #[test]
    fn any_text_is_a_manifest_or_a_fault(text in "\\PC{0,200}") {
        if let Err(faults) = Capability::parse("x", &text) {
            prop_assert!(!faults.0.is_empty());
        }
    }
}
