//! What must hold for every policy and every text.

use std::collections::BTreeSet;

use cedar_policy::{Authorizer, Context, Decision as Answer, Entities, EntityUid, PolicySet, Request as Question, RestrictedExpression};
use proptest::prelude::*;
use stockade_policy::shell::{ByName, Call, MAX_CALLS, Needs, classify, classify_argv};
use stockade_policy::{Checks, Floor, Layer, Policies, PolicyFile, Principal, Trust, Verdict};

const PROGRAMS: [&str; 4] = ["ls", "git", "rm", "cat"];
const CONDITIONS: [&str; 11] = [
    "",
    " when { context.flags.contains(\"-f\") }",
    " unless { context.opaque }",
    " when { context.subcommand == \"log\" }",
    " when { context.count > 1 }",
    " when { resource in [Stockade::Program::\"ls\", Stockade::Program::\"git\"] }",
    " when { context.operands.containsAny([\"a\", \"b\"]) }",
    " when { [\"log\", \"push\"].contains(context.subcommand) } unless { context.flags.contains(\"-f\") }",
    " when { context.flags.contains(\"-f\") || context.subcommand == \"log\" }",
    " when { context.count > 1 && context.operands.contains(\"b\") }",
    " when { context.flags.contains(\"-f\") } when { context.subcommand == \"push\" && !context.opaque }",
];
const SCRIPTS: [&str; 9] =
    ["ls", "ls -f", "git log", "git push -f", "git push", "rm $x", "ls | cat a b", "(git log) > f", "cat b <(ls -f)"];

#[derive(Debug, Clone)]
struct Draft {
    layer: Layer,
    effect: usize,
    program: Option<usize>,
    condition: usize,
    principal: usize,
}

impl Draft {
    fn text(&self) -> String {
        let effect = ["permit", "@approval(\"required\") permit", "forbid"][self.effect];
        let principal = ["principal", "principal is Stockade::Agent", "principal == Stockade::Agent::\"a\""][self.principal];
        let resource = self.program.map_or(String::new(), |p| format!(" == Stockade::Program::\"{}\"", PROGRAMS[p]));
        format!("{effect} ({principal}, action == Stockade::Action::\"exec\", resource{resource}){};", CONDITIONS[self.condition])
    }
}

fn draft() -> impl Strategy<Value = Draft> {
    let layer = prop::sample::select(vec![Layer::Pack, Layer::Project, Layer::User, Layer::Machine]);
    (layer, 0..3usize, prop::option::of(0..PROGRAMS.len()), 0..CONDITIONS.len(), 0..3usize)
        // A rule that can never apply does not load.
        .prop_filter("a condition that contradicts the scope", |(_, _, program, condition, _)| *condition != 5 || program.is_none())
        .prop_map(|(layer, effect, program, condition, principal)| Draft { layer, effect, program, condition, principal })
}

fn compile(drafts: &[&Draft]) -> Policies {
    let files = drafts.iter().enumerate().map(|(n, draft)| PolicyFile {
        layer: draft.layer,
        trust: Trust::Trusted,
        name: format!("{n}"),
        text: draft.text(),
    });
    Policies::compile(&files.collect::<Vec<_>>(), Checks::All).unwrap_or_else(|faults| panic!("{faults}"))
}

fn verdicts(policies: &Policies) -> Vec<Verdict> {
    let principals = [Principal::agent("a"), Principal::agent("b"), Principal::human("a")];
    let scripts = SCRIPTS.iter().map(|script| classify(script, &ByName { directory: "/w" }));
    scripts
        .flat_map(|script| principals.iter().map(move |p| (script.clone(), p)))
        .map(|(s, p)| policies.judge(p, &s, Floor::Deny).decision.verdict)
        .collect()
}

/// What Cedar says to a call, asked about all rules at once and by nobody but this test.
fn cedar_alone(rules: &PolicySet, principal: &str, call: &Call) -> Answer {
    let text = |value: &str| RestrictedExpression::new_string(value.to_owned());
    let set = |values: &BTreeSet<String>| RestrictedExpression::new_set(values.iter().map(|value| text(value)));
    let context = Context::from_pairs([
        ("subcommand".to_owned(), text(&call.subcommand)),
        ("flags".to_owned(), set(&call.flags)),
        ("operands".to_owned(), set(&call.operands)),
        ("count".to_owned(), RestrictedExpression::new_long(i64::try_from(call.count).unwrap())),
        ("opaque".to_owned(), RestrictedExpression::new_bool(call.opaque)),
        ("reads".to_owned(), set(&call.reads)),
        ("writes".to_owned(), set(&call.writes)),
    ]);
    let uid = |text: String| text.parse::<EntityUid>().unwrap();
    let program = uid(format!("Stockade::Program::\"{}\"", call.program));
    let question = Question::new(uid(principal.to_owned()), uid("Stockade::Action::\"exec\"".to_owned()), program, context.unwrap(), None);
    Authorizer::new().is_authorized(&question.unwrap(), rules, &Entities::empty()).decision()
}

/// Nothing became less strict.
fn is_no_wider(before: &[Verdict], after: &[Verdict]) -> bool {
    before.iter().zip(after).all(|(before, after)| after >= before)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_forbid_never_widens(drafts in prop::collection::vec(draft(), 0..6), mut forbid in draft()) {
        forbid.effect = 2;
        let before = verdicts(&compile(&drafts.iter().collect::<Vec<_>>()));
        let after = verdicts(&compile(&drafts.iter().chain([&forbid]).collect::<Vec<_>>()));
        prop_assert!(is_no_wider(&before, &after), "{forbid:?}");
    }

    #[test]
    fn removing_a_permit_never_widens(drafts in prop::collection::vec(draft(), 1..6)) {
        let before = verdicts(&compile(&drafts.iter().collect::<Vec<_>>()));
        for (place, removed) in drafts.iter().enumerate().filter(|(_, draft)| draft.effect != 2) {
            let rest: Vec<&Draft> = drafts.iter().enumerate().filter(|(n, _)| *n != place).map(|(_, draft)| draft).collect();
            let after = verdicts(&compile(&rest));
            if removed.effect == 0 {
                prop_assert!(is_no_wider(&before, &after), "{removed:?}");
            } else {
                // Without a permit that asks, a lower layer's plain permit may speak; what was denied stays denied.
                prop_assert!(before.iter().zip(&after).all(|(before, after)| *before != Verdict::Deny || *after == Verdict::Deny));
            }
        }
    }

    #[test]
    fn the_order_of_files_and_rules_makes_no_difference(drafts in prop::collection::vec(draft(), 1..6)) {
        let forward = verdicts(&compile(&drafts.iter().collect::<Vec<_>>()));
        let backward = verdicts(&compile(&drafts.iter().rev().collect::<Vec<_>>()));
        prop_assert_eq!(&forward, &backward);
        // One file with all rules of a layer says the same as many.
        let files = [Layer::Pack, Layer::Project, Layer::User, Layer::Machine].map(|layer| PolicyFile {
            layer,
            trust: Trust::Trusted,
            name: layer.name().to_owned(),
            text: drafts.iter().filter(|draft| draft.layer == layer).map(|draft| draft.text() + "\n").collect(),
        });
        prop_assert_eq!(forward, verdicts(&Policies::compile(&files, Checks::All).unwrap()));
    }

    #[test]
    fn looking_at_few_rules_says_what_looking_at_all_says(mut drafts in prop::collection::vec(draft(), 1..12)) {
        // Cedar knows nothing of rules that ask.
        drafts.iter_mut().filter(|draft| draft.effect == 1).for_each(|draft| draft.effect = 0);
        let policies = compile(&drafts.iter().collect::<Vec<_>>());
        let rules: PolicySet = drafts.iter().map(Draft::text).collect::<String>().parse().unwrap();
        let principals = [("Agent", Principal::agent("a")), ("Agent", Principal::agent("b")), ("Human", Principal::human("a"))];
        for script in SCRIPTS {
            let script = classify(script, &ByName { directory: "/w" });
            for (kind, principal) in &principals {
                let said = policies.judge(principal, &script, Floor::Deny).commands;
                let asked = script.as_ref().unwrap().calls.iter().zip(said).filter(|(call, _)| call.needs == Needs::Permit);
                for (call, (shown, decision)) in asked {
                    let expected = cedar_alone(&rules, &format!("Stockade::{kind}::\"{}\"", principal.id), call);
                    prop_assert_eq!(decision.verdict == Verdict::Allow, expected == Answer::Allow, "{} for {:?}", shown, principal);
                }
            }
        }
    }

    #[test]
    fn the_short_way_of_loading_says_the_same(drafts in prop::collection::vec(draft(), 1..6)) {
        let files: Vec<PolicyFile> = drafts.iter().enumerate().map(|(n, draft)| PolicyFile { layer: draft.layer, trust: Trust::Trusted, name: n.to_string(), text: draft.text() }).collect();
        let (all, known) = (Policies::compile(&files, Checks::All).unwrap(), Policies::compile(&files, Checks::Known).unwrap());
        prop_assert_eq!(verdicts(&all), verdicts(&known));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rules_that_are_printed_say_the_same(drafts in prop::collection::vec(draft(), 1..6)) {
        let print = |text: &str| cedar_policy::Policy::parse(None, text).unwrap().to_string();
        let files: Vec<PolicyFile> = drafts
            .iter()
            .enumerate()
            .map(|(n, draft)| PolicyFile { layer: draft.layer, trust: Trust::Trusted, name: n.to_string(), text: print(&draft.text()) })
            .collect();
        for file in &files {
            prop_assert_eq!(&print(&file.text), &file.text);
        }
        let printed = Policies::compile(&files, Checks::All).unwrap_or_else(|faults| panic!("{faults}"));
        prop_assert_eq!(verdicts(&printed), verdicts(&compile(&drafts.iter().collect::<Vec<_>>())));
    }

    #[test]
    fn a_suggested_rule_is_read_as_it_was_meant(words in prop::collection::vec("\\PC{1,12}|[\"\\\\'\n\t;{}()@a-]{1,12}", 1..5), name in "\\PC{1,10}") {
        let argv: Vec<Option<&str>> = words.iter().map(|word| Some(word.as_str())).collect();
        let script = classify_argv(&argv, &ByName { directory: "/w" });
        prop_assume!(script.is_ok());
        let principal = Principal::agent(name);
        let nothing = Policies::compile(&[], Checks::All).unwrap();
        for (_, decision) in nothing.judge(&principal, &script, Floor::Deny).commands {
            let Some(text) = decision.suggest else { continue };
            let printed = cedar_policy::Policy::parse(None, &text).unwrap_or_else(|error| panic!("{error:?}: {text}")).to_string();
            for text in [text, printed] {
                let file = PolicyFile { layer: Layer::User, trust: Trust::Trusted, name: "s".into(), text };
                let policies = Policies::compile(&[file], Checks::Known).unwrap_or_else(|faults| panic!("{faults}"));
                prop_assert_eq!(policies.rules().len(), 1);
                let allowed = policies.judge(&principal, &script, Floor::Deny).commands.iter().any(|(_, d)| d.verdict == Verdict::Allow);
                prop_assert!(allowed);
            }
        }
    }
}

/// A script whose commands are known, to be printed in more than one way.
#[derive(Debug, Clone)]
enum Node {
    Simple(Vec<String>),
    Join(&'static str, Box<(Node, Node)>),
    Around(&'static str, &'static str, Box<Node>),
    Test(Box<(Node, Node)>),
    Within(&'static str, &'static str, Box<Node>),
}

impl Node {
    /// The programs in the order of the text.
    fn programs(&self) -> Vec<String> {
        match self {
            Self::Simple(words) => words.iter().take(1).cloned().collect(),
            Self::Join(_, pair) | Self::Test(pair) => [pair.0.programs(), pair.1.programs()].concat(),
            Self::Around(_, _, inner) => inner.programs(),
            Self::Within(_, _, inner) => [inner.programs(), vec!["prog".to_owned()]].concat(),
        }
    }

    /// As text; `loose` uses lines, quotes and spaces where it can.
    fn print(&self, loose: bool) -> String {
        let space = if loose { "  " } else { " " };
        match self {
            Self::Simple(words) if loose => {
                let quoted = words.iter().enumerate().map(|(n, word)| if n % 2 == 1 { format!("'{word}'") } else { format!("\"{word}\"") });
                quoted.collect::<Vec<_>>().join(" \\\n ")
            }
            Self::Simple(words) => words.join(" "),
            Self::Join(";", pair) if loose => format!("{}\n{}", pair.0.print(loose), pair.1.print(loose)),
            Self::Join(operator, pair) if loose => format!("{} {operator} # why\n\n{}", pair.0.print(loose), pair.1.print(loose)),
            Self::Join(operator, pair) => format!("{} {operator} {}", pair.0.print(loose), pair.1.print(loose)),
            Self::Around(open, close, inner) => format!("{open}{space}{}\n{close}", inner.print(loose)),
            Self::Test(pair) if loose => format!("if {}\nthen\n{}\nfi", pair.0.print(loose), pair.1.print(loose)),
            Self::Test(pair) => format!("if {}; then {}; fi", pair.0.print(loose), pair.1.print(loose)),
            Self::Within(open, close, inner) => format!("prog{space}{open} {} {close}", inner.print(loose)),
        }
    }
}

fn node() -> impl Strategy<Value = Node> {
    let simple = prop::collection::vec("[a-z]{3}x", 1..4).prop_map(Node::Simple);
    simple.prop_recursive(4, 16, 2, |inner| {
        let pair = (inner.clone(), inner.clone()).prop_map(Box::new);
        prop_oneof![
            (prop::sample::select(vec!["|", "&&", "||", ";"]), pair.clone()).prop_map(|(operator, pair)| Node::Join(operator, pair)),
            (prop::sample::select(vec![("(", ")"), ("{", "}")]), inner.clone()).prop_map(|((open, close), inner)| Node::Around(
                open,
                close,
                Box::new(inner)
            )),
            pair.prop_map(Node::Test),
            (prop::sample::select(vec![("\"$(", ")\""), ("<(", ")"), ("$(", ")")]), inner).prop_map(|((open, close), inner)| Node::Within(
                open,
                close,
                Box::new(inner)
            )),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_script_is_what_it_is_however_it_is_written(node in node()) {
        let (tight, loose) = (node.print(false), node.print(true));
        let (one, other) = (classify(&tight, &ByName { directory: "/w" }), classify(&loose, &ByName { directory: "/w" }));
        // Deep ones are over a limit, and then both are.
        prop_assert_eq!(&one, &other, "{}\n--\n{}", tight, loose);
        if let Ok(script) = one {
            let mut programs: Vec<String> = script.calls.iter().map(|call| call.program.clone()).collect();
            let mut expected = node.programs();
            programs.sort();
            expected.sort();
            prop_assert_eq!(programs, expected, "{}", tight);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_answered(text in "\\PC{0,80}|[a-z$(){}\\[\\]`'\"\\\\;&|<> \n=*!#~-]{0,120}") {
        if let Ok(script) = classify(&text, &ByName { directory: "/w" }) {
            prop_assert!(script.calls.len() <= MAX_CALLS);
            prop_assert!(script.calls.iter().all(|call| !call.program.is_empty()));
        }
    }

    #[test]
    fn plain_words_are_what_they_are(words in prop::collection::vec("[a-zA-Z0-9_./:,@%+][a-zA-Z0-9_./:,@%+-]{0,10}", 1..5)) {
        // A script of plain words and an argument list of the same words are one call.
        prop_assume!(!["if", "then", "else", "elif", "fi", "do", "done", "case", "esac", "while", "until", "for", "in", "select", "function", "time", "coproc"].contains(&words[0].as_str()));
        let argv: Vec<Option<&str>> = std::iter::once(Some("prog")).chain(words.iter().map(|word| Some(word.as_str()))).collect();
        let line = format!("prog {}", words.join(" "));
        prop_assert_eq!(classify(&line, &ByName { directory: "/w" }), classify_argv(&argv, &ByName { directory: "/w" }), "{}", line);
    }

    #[test]
    fn quoted_words_are_one_operand_each(words in prop::collection::vec("[^'\\x00-\\x1f\\x7f-\\x9f-][^'\\x00-\\x1f\\x7f-\\x9f]{0,20}", 1..4)) {
        let line: String = std::iter::once("prog".to_owned()).chain(words.iter().map(|word| format!("'{word}'"))).collect::<Vec<_>>().join(" ");
        let script = classify(&line, &ByName { directory: "/w" }).unwrap();
        prop_assert_eq!(script.calls.len(), 1);
        let mut expected = words.clone();
        expected.sort();
        expected.dedup();
        prop_assert_eq!(script.calls[0].operands.iter().cloned().collect::<Vec<_>>(), expected);
        prop_assert!(!script.calls[0].opaque && script.calls[0].count == words.len());
    }
}

#[test]
fn large_and_deep_texts_end() {
    let deep = |open: &str, close: &str, n: usize| open.repeat(n) + "ls" + &close.repeat(n);
    let texts = [
        "a".repeat(1 << 20),
        "(".repeat(1 << 20),
        "$(".repeat(1 << 18),
        "`".repeat(200_000),
        "\"".repeat(200_001),
        "if ".repeat(80_000),
        "ls;".repeat(80_000),
        "ls | ".repeat(50_000) + "ls",
        "cat <<A\n".repeat(10_000),
        "${a:-".repeat(40_000),
        "[[ ! ".repeat(40_000),
        "env ".repeat(50_000) + "ls",
        "! ".repeat(100_000) + "ls",
        "a=b ".repeat(60_000),
        ">f ".repeat(60_000),
        "{a,".repeat(50_000),
        "$((1+".repeat(50_000),
        "x \\\n".repeat(60_000),
        "'".to_owned() + &"x".repeat(250_000),
    ];
    for text in &texts {
        let _ = classify(text, &ByName { directory: "/w" });
    }
    for (open, close) in [
        ("(", ")"),
        ("( ", " )"),
        ("{ ", "; }"),
        ("$(", ")"),
        ("\"$(", ")\""),
        ("if ", "; then ls; fi"),
        ("while ", "; do ls; done"),
        ("${a:-", "}"),
        ("((", "))"),
        ("$((", "))"),
        ("[[ ( ", " ) ]]"),
        ("<(", ")"),
        ("case $(", ") in a) ;; esac"),
        ("env ", ""),
        ("! ", ""),
        ("f() { ", "; }"),
        ("sh -c '", "'"),
        ("time ", ""),
        ("coproc ", ""),
    ] {
        for n in [1, 2, 5, 10, 15, 20, 24, 30, 100] {
            let _ = classify(&deep(open, close, n), &ByName { directory: "/w" });
        }
    }
}
