//! Layers, trust, asking, faults and examples, as whole files.

use stockade_policy::shell::{ByName, classify};
use stockade_policy::{Checks, Decision, FaultKind, Floor, Layer, Policies, PolicyFile, Principal, Request, Trust, Verdict};

const EXEC: &str = "principal, action == Stockade::Action::\"exec\", resource";

fn file(layer: Layer, name: &str, text: &str) -> PolicyFile {
    let trust = if layer == Layer::Project { Trust::Untrusted } else { Trust::Trusted };
    PolicyFile { layer, trust, name: name.into(), text: text.into() }
}

fn trusted(layer: Layer, name: &str, text: &str) -> PolicyFile {
    PolicyFile { trust: Trust::Trusted, ..file(layer, name, text) }
}

fn compile(files: &[PolicyFile]) -> Policies {
    Policies::compile(files, Checks::All).unwrap_or_else(|faults| panic!("{faults}"))
}

fn decide(files: &[PolicyFile], script: &str) -> Decision {
    let script = classify(script, &ByName { directory: "/w" });
    compile(files).judge(&Principal::agent("claude/main"), &script, Floor::Deny).decision
}

fn permit(program: &str) -> String {
    format!("permit ({EXEC} == Stockade::Program::\"{program}\");")
}

fn ask(program: &str) -> String {
    format!("@approval(\"required\") @reason(\"a person looks\") permit ({EXEC} == Stockade::Program::\"{program}\");")
}

fn forbid(program: &str) -> String {
    format!("@id(\"no-{program}\") @reason(\"not {program}\")\nforbid ({EXEC} == Stockade::Program::\"{program}\");")
}

#[test]
fn nothing_is_permitted_but_by_a_rule() {
    let decision = decide(&[file(Layer::User, "u", &permit("ls"))], "ls; cat x");
    assert_eq!((decision.verdict, decision.rule.as_str(), decision.rules.len()), (Verdict::Deny, "default-deny", 0));
    assert_eq!(decision.reason.as_deref(), Some("no rule permits `cat` (exec)"));
    assert_eq!(decide(&[file(Layer::User, "u", &permit("ls"))], "ls | ls").verdict, Verdict::Allow);
}

#[test]
fn every_layers_forbid_counts_and_names_its_place() {
    for layer in [Layer::Machine, Layer::User, Layer::Project, Layer::Pack] {
        let files = [file(Layer::User, "u", &permit("ls")), file(layer, "f.cedar", &format!("\n\n{}", forbid("ls")))];
        let decision = decide(&files, "ls");
        assert_eq!((decision.verdict, decision.rule.as_str()), (Verdict::Deny, "no-ls"), "{layer:?}");
        assert_eq!((decision.source().as_deref(), decision.reason.as_deref()), (Some("f.cedar:3"), Some("not ls")), "{layer:?}");
        assert_eq!(decision.suggest, None);
    }
}

#[test]
fn a_projects_permit_counts_once_it_is_trusted() {
    assert_eq!(decide(&[file(Layer::Project, "p", &permit("ls"))], "ls").verdict, Verdict::Deny);
    assert_eq!(decide(&[trusted(Layer::Project, "p", &permit("ls"))], "ls").verdict, Verdict::Allow);
}

#[test]
fn a_plain_permit_cancels_asking_in_its_own_or_a_lower_layer() {
    let layers = [Layer::Pack, Layer::Project, Layer::User, Layer::Machine];
    for asking in layers {
        assert_eq!(decide(&[trusted(asking, "a", &ask("ls"))], "ls").verdict, Verdict::Ask);
        for plain in layers {
            let files = [trusted(asking, "a", &ask("ls")), trusted(plain, "p", &permit("ls"))];
            let expected = if plain >= asking { Verdict::Allow } else { Verdict::Ask };
            assert_eq!(decide(&files, "ls").verdict, expected, "{asking:?} asks, {plain:?} permits");
        }
    }
    let decision = decide(&[file(Layer::User, "a", &ask("ls"))], "ls");
    assert_eq!(decision.reason.as_deref(), Some("a person looks"));
}

#[test]
fn an_evaluation_error_denies() {
    let text = format!("permit ({EXEC}); permit ({EXEC}) when {{ context.count * 9223372036854775807 > 1 }};");
    let decision = decide(&[file(Layer::User, "u", &text)], "ls a b");
    assert_eq!((decision.verdict, decision.rule.as_str()), (Verdict::Deny, "evaluation-error"));
    assert_eq!(decide(&[file(Layer::User, "u", &text)], "ls a").verdict, Verdict::Allow);
}

#[test]
fn what_needs_no_permit_can_still_be_forbidden() {
    let user = file(Layer::User, "u", &permit("ls"));
    assert_eq!(decide(std::slice::from_ref(&user), "true && : && exit 3; > f").verdict, Verdict::Allow);
    let none = format!("forbid ({EXEC}) when {{ context.writes.contains(\"f\") }};");
    assert_eq!(decide(&[user, file(Layer::Project, "p", &none)], "> f").verdict, Verdict::Deny);
}

#[test]
fn faults_have_a_place_and_a_caret() {
    let check = |text: &str, kind: FaultKind, line: usize, words: &str| {
        let faults = Policies::compile(&[file(Layer::User, "x.cedar", text)], Checks::All).unwrap_err();
        let fault = &faults.0[0];
        assert_eq!((fault.kind, fault.line), (kind, line), "{text}: {faults}");
        assert!(faults.to_string().contains(words) && faults.to_string().contains('^'), "{text}: {faults}");
    };
    check("permit (principal, action, resource)", FaultKind::Syntax, 1, "x.cedar:1");
    check("permit (principal, action, resource);\n\npermit (", FaultKind::Syntax, 3, "x.cedar:3");
    check("permit (principal, action == Stockade::Action::\"exce\", resource);", FaultKind::Validation, 1, "exce");
    check(
        "permit (principal,\n action == Stockade::Action::\"exec\",\n resource == Stockade::Progam::\"x\");",
        FaultKind::Validation,
        3,
        "Progam",
    );
    check(&format!("permit ({EXEC}) when {{ context.flagz.contains(\"-f\") }};"), FaultKind::Validation, 1, "flagz");
    check(&format!("permit ({EXEC}) when {{ context.count == \"1\" }};"), FaultKind::Validation, 1, "x.cedar:1");
    check(&format!("permit ({EXEC} == Stockade::Host::\"a.b\");"), FaultKind::Validation, 1, "x.cedar:1");
    check(&format!("\n@aproval(\"required\")\npermit ({EXEC});"), FaultKind::Annotation, 2, "aproval");
    check(&format!("@approval(\"yes\") permit ({EXEC});"), FaultKind::Annotation, 1, "required");
    check(&format!("@approval(\"required\") forbid ({EXEC});"), FaultKind::Annotation, 1, "forbid");
    check(&format!("@id(\"a\") permit ({EXEC});\n@id(\"a\") permit ({EXEC});"), FaultKind::Annotation, 2, "x.cedar:1");
    check("permit (principal == ?principal, action, resource);", FaultKind::Syntax, 1, "x.cedar:1");
    check(&format!("// allow: cat x\npermit ({EXEC} == Stockade::Program::\"ls\");"), FaultKind::Example, 1, "does not permit");
    check(&format!("// deny: ls -l\npermit ({EXEC} == Stockade::Program::\"ls\");"), FaultKind::Example, 1, "permits");
    check(&format!("// deny: ls\nforbid ({EXEC} == Stockade::Program::\"cat\");"), FaultKind::Example, 1, "does not forbid");
}

#[test]
fn examples_are_about_their_own_rule() {
    let git = format!("permit ({EXEC} == Stockade::Program::\"git\") when {{ [\"log\", \"show\"].contains(context.subcommand) }};");
    let text = format!(
        "// allow: git log --oneline | git show\n// deny: git push\n// deny: ls\n// deny: $git log\n{git}\n// allow: GET api.example.org:443/repos\n// deny: example.org\n{}",
        "permit (principal is Stockade::Agent, action == Stockade::Action::\"connect\", resource == Stockade::Host::\"api.example.org\") \
         when { context.method == \"GET\" && context.tls };",
    );
    compile(&[file(Layer::User, "x", &text)]);
    let tenant = format!("// allow: ls\npermit (principal in Stockade::Tenant::\"t\", {});", &EXEC[11..]);
    compile(&[file(Layer::User, "x", &tenant)]);
}

#[test]
fn a_suggestion_allows_what_was_denied_and_little_else() {
    let principal = Principal::agent("odd\"client\\/na'me");
    let user = file(Layer::User, "u", &permit("ls"));
    for script in ["git push --force origin", "cat \"a\\\"b\" > f", "wc -l $x", "./run 'x); forbid(principal, action, resource);'", "env"] {
        let script = classify(script, &ByName { directory: "/w" });
        let denied = compile(std::slice::from_ref(&user)).judge(&principal, &script, Floor::Deny).decision;
        let suggested = file(Layer::User, "s", denied.suggest.as_deref().unwrap());
        let policies = compile(&[user.clone(), suggested]);
        assert_eq!(policies.judge(&principal, &script, Floor::Deny).decision.verdict, Verdict::Allow, "{:?}", denied.suggest);
        assert_eq!(policies.judge(&Principal::agent("other"), &script, Floor::Deny).decision.verdict, Verdict::Deny);
    }
    let request = Request::Connect { host: "a.b", port: 443, tls: true, method: "", path: "", secret: None };
    let denied = compile(std::slice::from_ref(&user)).decide(&principal, &request, Floor::Deny);
    let policies = compile(&[user, file(Layer::User, "s", denied.suggest.as_deref().unwrap())]);
    assert_eq!(policies.decide(&principal, &request, Floor::Deny).verdict, Verdict::Allow);
}

#[test]
fn an_exec_list_is_given_where_every_permit_names_its_program() {
    let judge = |text: &str, script: &str| {
        let policies = compile(&[file(Layer::User, "u", text)]);
        policies.judge(&Principal::human("me"), &classify(script, &ByName { directory: "/w" }), Floor::Deny).exec_list
    };
    let named = format!("permit ({EXEC}) when {{ resource in [Stockade::Program::\"ls\", Stockade::Program::\"man\"] }};");
    assert_eq!(judge(&named, "ls -l; : done"), Some(vec!["ls".to_owned()]));
    assert!(judge(&named, "man ls").is_some_and(|list| list.contains(&"groff".to_owned())));
    assert_eq!(judge(&format!("permit ({EXEC});"), "ls"), None);
    assert_eq!(judge(&format!("permit ({EXEC}) unless {{ resource == Stockade::Program::\"rm\" }};"), "ls"), None);
    assert_eq!(judge(&named, "cat x"), None, "denied");
}

#[test]
fn without_a_policy_only_forbids_count() {
    let policies = compile(&[file(Layer::Project, "p", &format!("{} {}", forbid("curl"), permit("ls")))]);
    let judge = |script| policies.judge(&Principal::human("me"), &classify(script, &ByName { directory: "/w" }), Floor::NoPolicy).decision;
    assert_eq!((judge("wget x").verdict, judge("wget x").rule.as_str()), (Verdict::Allow, "no-policy"));
    assert_eq!(judge("curl x").verdict, Verdict::Deny);
}

/// Whether somebody may approve is a question of its own, about the same resource.
#[test]
fn approving_is_asked_about_with_who_asked_what_it_does_and_how() {
    let script = classify("git push", &ByName { directory: "/w" }).unwrap();
    let of = Request::Exec(&script.calls[0]);
    let (agent, human) = (Principal::agent("claude/main"), Principal::human("me"));
    let when = "when { context.method == \"elicitation\" && context.effect == \"write\" && context has requesterAgent && \
                context.requesterAgent == principal }";
    let rule = format!(
        "permit (principal is Stockade::Agent, action == Stockade::Action::\"approve\", resource == Stockade::Program::\"git\") {when};"
    );
    let policies = compile(&[file(Layer::User, "u", &format!("{}\n{rule}", ask("git")))]);
    let verdict = |who: &Principal, requester: &Principal, effect: &str, method: &str| {
        policies.decide(who, &Request::Approve { of: &of, requester, effect, method }, Floor::Deny).verdict
    };
    assert_eq!(verdict(&agent, &agent, "write", "elicitation"), Verdict::Allow);
    for (who, requester, effect, method) in [
        (&human, &agent, "write", "elicitation"),
        (&agent, &human, "write", "elicitation"),
        (&agent, &Principal::agent("other/main"), "write", "elicitation"),
        (&agent, &agent, "destructive", "elicitation"),
        (&agent, &agent, "write", "passphrase"),
    ] {
        assert_eq!(verdict(who, requester, effect, method), Verdict::Deny, "{who:?} {requester:?} {effect} {method}");
    }
    let denied =
        policies.decide(&agent, &Request::Approve { of: &of, requester: &agent, effect: "read", method: "elicitation" }, Floor::Deny);
    let suggested = denied.suggest.expect("a rule");
    let policies = compile(&[file(Layer::User, "u", &suggested)]);
    let request = Request::Approve { of: &of, requester: &agent, effect: "read", method: "elicitation" };
    assert_eq!(policies.decide(&agent, &request, Floor::Deny).verdict, Verdict::Allow, "{suggested}");
}
